"""The figures of chapter 3, in the house style of `figures`; each function takes data and draws."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

from labsupport.figures import COLD, GOOD, LAYER, OTHER, TOKEN, WARM
from labsupport.figures_costs import ABOVE

LOOK = {  # path of a sweep: (colour, marker)
    "uncached": (OTHER, "D"),
    "concat": (WARM, "o"),
    "preallocated": (TOKEN, "v"),
    "numpy": (GOOD, "s"),
    "compiled": (COLD, "^"),
}
SOURCE = {"color": "black", "marker": "x", "ls": "none", "ms": 8, "mew": 1.8}
TERM_COLORS = {"dispatch": WARM, "bandwidth": COLD, "arithmetic": GOOD, "elementwise": TOKEN}
LOOKS = [(COLD, "o"), (WARM, "s"), (GOOD, "^"), (OTHER, "D"), (TOKEN, "v")]  # of other things
STYLES = ["-", "--", ":"]


def _points(ax, x, middle, low, high, **look):
    """Points with intervals that reach from low to high."""
    ax.errorbar(x, middle, np.array([middle - low, high - middle]), capsize=3, ls="none", **look)


def told_apart(names, looks):
    """(name, look) of each; ValueError for more names than looks: none may be lost."""
    if len(names) > len(looks):
        raise ValueError(f"at most {len(looks)} can be told apart, not {', '.join(names)}")
    return zip(names, looks, strict=False)


def log_axis(ax, side, ticks=None):
    """A log axis, its ticks plain numbers: those given, or 1, 2 and 5 times powers of ten."""
    ax.set(**{f"{side}scale": "log"})
    axis = {"x": ax.xaxis, "y": ax.yaxis}[side]
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)) if ticks is None else FixedLocator(ticks))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def _log_from_zero(ax, side, values):
    """A log axis of numbers some of which may be 0: where zeros stand, left of all, marked 0."""
    above = values[values > 0]
    first, last = int(np.floor(np.log10(above.min()))), int(np.ceil(np.log10(above.max())))
    step = max(1, round((last - first) / 6))
    decades = range(first, last + 1, step)
    ticks = {10.0**k: f"$10^{{{k}}}$" for k in decades}
    zero = 10.0 ** (first - step)
    if len(above) < np.size(values):
        ticks = {zero: "0"} | ticks
    ax.set(**{f"{side}scale": "log"})
    ax.set(**{f"{side}ticks": list(ticks), f"{side}ticklabels": list(ticks.values())})
    ax.minorticks_off()
    return zero


def redundancy(changes: pd.DataFrame) -> plt.Figure:
    """The largest change of an earlier token's activations when a token is appended; log axis.

    A row a place in the model, from the embedding to the last block; a column a case, such as a
    dtype with or without the mask. No change at all stands at the tick that says 0.
    """
    fig, ax = plt.subplots(figsize=(7.2, 3.6))
    zero = _log_from_zero(ax, "y", changes.to_numpy())
    places = np.arange(len(changes))
    for i, (name, (color, marker)) in enumerate(told_apart(changes.columns, LOOKS)):
        beside = places + 0.06 * (i - (changes.shape[1] - 1) / 2)  # so that none hides another
        drawn = changes[name].replace(0, zero)
        ax.plot(beside, drawn, f"-{marker}", color=color, lw=1.2, label=name)
    ax.set_xticks(places, changes.index)
    ax.set(ylabel="largest change of an\nearlier token (log scale)", xlabel="activations after")
    ax.legend(ncol=2, **ABOVE)
    return fig


def speedups(cells: pd.DataFrame, source: pd.DataFrame, by: str, paths: list[str]) -> plt.Figure:
    """What arithmetic promises, the clock gives, and the share of it, over length or width.

    cells   the rows of `sweep.table` that differ in `by`, "n_tokens" or "d_model"
    source  `derivation_source.length` or `width`: its index is of the same kind
    """
    fig, (above, below) = plt.subplots(2, 1, figsize=(7.2, 5.2), sharex=True)
    x, named = cells[by], {"n_tokens": "tokens generated", "d_model": "width d_model"}[by]
    above.plot(x, cells["arithmetic"], color="black", label="multiplications")
    for path in paths:
        color, marker = LOOK[path]
        interval = (cells[column] for column in (path, f"{path}_low", f"{path}_high"))
        _points(above, x, *interval, color=color, marker=marker, label=path)
        below.plot(x, 100 * cells[f"{path}_share"], f"-{marker}", color=color, lw=1.2)
    above.plot(source.index, source["measured"], label="source's clock", **SOURCE)
    below.plot(source.index, 100 * source["measured"] / source["arithmetic"], **SOURCE)
    log_axis(below, "x", sorted({*x, *source.index}))
    log_axis(above, "y")
    above.set(ylabel="uncached / cached\n(log scale)")
    below.set(ylabel="collected share (%)", xlabel=f"{named} (log scale)")
    below.set_ylim(bottom=0)
    above.legend(ncol=4, **ABOVE)
    return fig


def growth(n, times_ms: dict, fitted: dict) -> plt.Figure:
    """Time of a loop over its length with fitted curves, and below by how much those miss.

    times_ms  side -> the median time at each n, [n_lengths]
    fitted    side -> {name of a curve: `fits.Fit` to these times}
    """
    fig, (above, below) = plt.subplots(
        2, 1, figsize=(7.2, 5.4), sharex=True, height_ratios=[1.6, 1]
    )
    n = np.asarray(n, float)
    dense = np.geomspace(n.min(), n.max(), 60)
    for side, (color, marker) in told_apart(times_ms, LOOKS):
        above.plot(n, times_ms[side], marker, color=color, label=f"{side}, measured")
        for name, style in told_apart(fitted[side], STYLES):
            fit = fitted[side][name]
            curve = sum(c * dense**power for power, c in fit.terms.items())
            above.plot(dense, curve, style, color=color, lw=1.2, label=f"{side}, {name}")
            below.plot(n, 100 * fit.misses, f"{style}{marker}", color=color, lw=1.2, ms=4)
    below.axhline(0, color="#777777", lw=0.8)
    log_axis(below, "x", n)
    log_axis(above, "y")
    above.set(ylabel="time of a loop (ms, log scale)")
    below.set(ylabel="miss of the fit (%)", xlabel="tokens generated (log scale)")
    above.legend(ncol=2, **ABOVE)
    return fig


def step_terms(sides: dict[str, tuple[pd.DataFrame, pd.Series]]) -> plt.Figure:
    """Predicted terms of a step over its measured time, stacked; a panel a side, a bar a cell.

    sides  side -> (predicted terms in ns, a row a cell and the columns of TERM_COLORS; measured
           times in ns, one a cell). The measured time is written beside the bar.
    """
    rows = max(len(predicted) for predicted, _ in sides.values())
    fig, axes = plt.subplots(
        1, len(sides), figsize=(7.2, 1.3 + 0.3 * rows), sharey=True, sharex=True, squeeze=False
    )
    for ax, (side, (predicted, measured)) in zip(axes[0], sides.items(), strict=True):
        measured = measured[predicted.index]
        left = np.zeros(len(predicted))
        for term, color in TERM_COLORS.items():
            share = (predicted[term] / measured).to_numpy()
            ax.barh(predicted.index, share, left=left, color=color, label=term, height=0.7)
            left += share
        for y, ns in enumerate(measured):
            ax.text(1.62, y, f"{ns / 1000:,.0f} µs", ha="right", va="center", fontsize=8.5)
        ax.axvline(1, color="black", lw=1.2)
        ax.set(title=side, xlabel="predicted / measured", xlim=(0, 1.65))
        ax.grid(axis="y", visible=False)
    axes[0, 0].invert_yaxis()
    handles, names = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, names, ncol=4, loc="outside upper center")
    return fig


def collected(cells: pd.DataFrame, bound, paths: list[str]) -> plt.Figure:
    """The share of the arithmetic that the clock gives, over the width: measured and predicted.

    `cells` are rows of `sweep.table` that differ in d_model; `bound` [n_rows] is the largest share
    that the machine allows in each.
    """
    fig, ax = plt.subplots(figsize=(7.2, 3.8))
    x, promised = cells["d_model"], cells["arithmetic"] / 100  # for shares in percent
    ax.plot(x, 100 * np.asarray(bound), color="black", label="bound")
    for path in paths:
        color, marker = LOOK[path]
        interval = (cells[column] / promised for column in (path, f"{path}_low", f"{path}_high"))
        _points(ax, x, *interval, color=color, marker=marker, label=f"{path}, measured")
        ax.plot(x, cells[f"{path}_predicted"] / promised, "--", color=color, lw=1.2,
                label=f"{path}, predicted")  # fmt: skip
    log_axis(ax, "x", x)
    ax.set(xlabel="width d_model (log scale)", ylabel="collected share (%)")
    ax.set_ylim(bottom=0)
    ax.legend(ncol=3, **ABOVE)
    return fig


def ladder(table: pd.DataFrame, rungs: list, rivals: list, predicted_us, floor_us) -> plt.Figure:
    """Time of a token for each rung, in their order, and for rivals, beside the floor; log axis.

    table         `enginebench.table`
    predicted_us  a Series, of the rungs for which there is a prediction
    floor_us      the least that a token can take
    """
    names = [*rungs, *rivals]
    fig, ax = plt.subplots(figsize=(7.2, 1.1 + 0.32 * len(names)))
    for part, color, marker, label in ((rungs, COLD, "o", "ours"), (rivals, WARM, "s", "others")):
        y, us = np.array([names.index(name) for name in part]), table.loc[part]
        reach = np.array([us["us"] - us["us_low"], us["us_high"] - us["us"]])
        ax.errorbar(us["us"], y, xerr=reach, fmt=marker, color=color, capsize=3, label=label)
    at = [names.index(name) for name in predicted_us.index]
    ax.plot(predicted_us, at, "|", color="black", ms=14, mew=2, label="predicted")
    ax.axvline(floor_us, color="#777777", ls="--", label="floor")
    ax.set_yticks(np.arange(len(names)), names)
    ax.invert_yaxis()
    log_axis(ax, "x")
    ax.set(xlabel="time of a token (µs, log scale)")
    ax.legend(ncol=4, **ABOVE)
    return fig


def flips(rows: pd.DataFrame) -> plt.Figure:
    """Errors between the two likeliest tokens beside the gaps they would have to exceed; log axis.

    `rows` is `agreement.across`; a panel a dtype. Where the two distributions overlap tokens flip.
    """
    dtypes = list(dict.fromkeys(rows["dtype"]))
    fig, axes = plt.subplots(
        len(dtypes), 1, figsize=(7.2, 0.9 + 1.25 * len(dtypes)), sharex=True, squeeze=False
    )
    errors, gaps = rows["error"].abs(), rows["gap"]
    zero = _log_from_zero(axes[-1, 0], "x", np.concatenate([errors, gaps]))
    bins = np.geomspace(zero / 2, 2 * max(errors.max(), gaps.max()), 61)
    for ax, dtype in zip(axes[:, 0], dtypes, strict=True):
        part = rows["dtype"] == dtype
        for values, color, name in ((errors, WARM, "error"), (gaps, LAYER, "gap")):
            drawn, share = values[part].replace(0, zero), np.full(part.sum(), 100 / part.sum())
            ax.hist(drawn, bins, weights=share, color=color, alpha=0.75, label=name)
        n_flips = int((~rows.loc[part, "same"]).sum())
        ax.set(title=f"{dtype}: {n_flips} of {part.sum():,} steps flip", ylabel="steps (%)")
    axes[-1, 0].set_xlabel("difference of the two leading draws (log scale)")
    handles, names = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, names, ncol=2, loc="outside upper center")
    return fig


def losses(curve: pd.DataFrame) -> plt.Figure:
    """Mean losses, `training` and `held_out`, over `step`, as `training.train` gives them."""
    fig, ax = plt.subplots(figsize=(7.2, 3.2))
    for name, color, style in (("training", COLD, "-"), ("held_out", WARM, "--")):
        ax.plot(curve["step"], curve[name], style, color=color, label=name.replace("_", " "))
    ax.set(xlabel="training step", ylabel="loss (nats a character)")
    ax.set_ylim(bottom=0)
    ax.legend()
    return fig
