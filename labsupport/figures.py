"""The figures of the course, all in one house style; each function takes data and draws.

The alt text and the sentence on what to see stand in the page, beside the cell that draws.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.colors import TwoSlopeNorm

from labsupport.stall_log import StallLog

COLD, WARM, GOOD, OTHER = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
LAYER, GAP, TOKEN = "#56B4E9", "#E8E8E8", "#E69F00"


def use_house_style() -> None:
    """Apply the course's matplotlib style to every figure drawn from here on."""
    plt.style.use(Path(__file__).with_name("house.mplstyle"))


def timeline(log: StallLog) -> plt.Figure:
    """Both default requests on one time axis: layers, tokens, the timer, and what none covers."""
    fig, ax = plt.subplots(figsize=(7.2, 3.4))
    for y, (state, which) in enumerate([("cold", 1), ("warm", 2)]):
        run, layers = log.run("default", which), log.layer_stamps_ms(state)
        tokens = run.emissions_ms
        spans = [
            (0, layers.iloc[0], GAP),
            (layers.iloc[0], layers.iloc[-1], LAYER),
            (layers.iloc[-1], tokens[0], GAP),
            (tokens[0], tokens[-1], TOKEN),
        ]
        for start, end, color in spans:
            ax.barh(y, end - start, left=start, height=0.5, color=color)
        ax.vlines(layers, y - 0.25, y + 0.25, color="#1F4E79", lw=1)
        ax.vlines(tokens, y - 0.25, y + 0.25, color="#7A4B00", lw=1)
        ax.plot(run.elapsed_ms, y - 0.31, "kv", ms=7)
        label = f"timer stops, {run.elapsed_ms:.0f} ms"
        ax.text(run.elapsed_ms, y - 0.39, label, ha="center", va="bottom", fontsize=9)
        for start, end, color in spans:
            if color == GAP:
                ax.text((start + end) / 2, y, f"{end - start:.0f} ms", ha="center", va="center")
    handles = [plt.Rectangle((0, 0), 1, 1, color=c) for c in (GAP, LAYER, TOKEN)]
    ax.legend(
        handles, ["no event", "layer stamps", "token stamps"], ncol=3, loc="upper center",
        bbox_to_anchor=(0.5, 1.18),
    )  # fmt: skip
    ax.set(
        yticks=[0, 1], yticklabels=["cold", "warm"], ylim=(1.45, -0.62),
        xlabel="time since the request's own start (ms)", xlim=(0, 1400),
    )  # fmt: skip
    ax.grid(axis="y", visible=False)
    return fig


def excess(parts: pd.Series) -> plt.Figure:
    """Warm less cold, phase by phase, as steps that lead to the total at the last token; ms."""
    ends = parts.cumsum()
    starts = ends - parts
    fig, ax = plt.subplots(figsize=(7.2, 3.2))
    colors = [WARM if part > 0 else GOOD for part in parts]
    ax.bar(parts.index, parts, bottom=starts, color=colors, width=0.6)
    ax.bar(["last token"], [ends.iloc[-1]], color="#777777", width=0.6)
    for i, part in enumerate(parts):
        ax.text(i, max(starts.iloc[i], ends.iloc[i]) + 6, f"{part:+.0f}", ha="center")
    ax.text(len(parts), ends.iloc[-1] + 6, f"{ends.iloc[-1]:+.0f}", ha="center")
    ax.set(ylabel="warm less cold (ms)", ylim=(0, ends.max() * 1.15))
    ax.grid(axis="x", visible=False)
    return fig


def repeats(log: StallLog) -> plt.Figure:
    """The five repeats of each state with their mean and the reference the log really used; ms."""
    fig, axes = plt.subplots(1, 2, figsize=(7.2, 3.2))
    for ax, state, color in zip(axes, ("cold", "warm"), (COLD, WARM), strict=True):
        rows = log.repeats[log.repeats["state"] == state]
        reference = (rows["time_ms"] - rows["printed_deviation_ms"]).iloc[0]
        ax.plot(rows["run"], rows["time_ms"], "o", color=color)
        ax.axhline(rows["time_ms"].mean(), color=color, label="mean of the five")
        ax.axhline(reference, color="black", ls="--", label="printed deviations' reference")
        ax.set(title=state, xlabel="repeat", xticks=rows["run"], ylabel="elapsed time (ms)")
        ax.margins(y=0.35)
        ax.legend(loc="upper left")
    return fig


def ratio_grid(table: pd.DataFrame) -> plt.Figure:
    """Warm time over cold time for every cell of the search; log colour scale centred on 1.

    `table` is `warmcold.searched`. One panel a kind of hit and allocator; in each, a row a cache
    and number of new tokens, a column a width and prompt length. "Cannot tell" is in brackets.
    """
    panels = list(table.groupby(["hit", "allocator"], sort=False))
    fig, axes = plt.subplots(2, 2, figsize=(9.4, 6.6), sharex=True, sharey=True)
    norm = TwoSlopeNorm(0, vmin=-5, vmax=3)
    for ax, ((hit, allocator), part) in zip(axes.flat, panels, strict=True):
        by = {"index": ["cache", "n_new"], "columns": ["d_model", "n_prompt"]}
        ratio, verdict = part.pivot(values="ratio", **by), part.pivot(values="verdict", **by)
        image = ax.pcolormesh(np.log2(ratio), cmap="PuOr_r", norm=norm, edgecolors="white")
        for i, j in np.ndindex(ratio.shape):
            text = f"{ratio.iloc[i, j]:.2f}"
            text = f"({text})" if verdict.iloc[i, j] == "cannot tell" else text
            strong = not -2.2 < np.log2(ratio.iloc[i, j]) < 1.2
            color = "white" if strong else "black"
            ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=7.8, color=color)
        ax.set_title(f"{hit}, {allocator}", fontsize=10)
        ax.set_xticks(np.arange(ratio.shape[1]) + 0.5, [f"{p}" for _, p in ratio.columns])
        ax.set_yticks(np.arange(ratio.shape[0]) + 0.5, [f"{c}, {n} new" for c, n in ratio.index])
        ax.axvline(ratio.shape[1] / 2, color="black", lw=1.5)
        ax.grid(visible=False)
    widths = " | ".join(map(str, table["d_model"].unique()))
    for ax in axes[-1]:
        ax.set_xlabel(f"prompt (tokens), d_model {widths}")
    for ax in axes[:, 0]:
        ax.set_ylabel("cache, new tokens")
    bar = fig.colorbar(image, ax=axes, ticks=range(-5, 4), shrink=0.8)
    bar.set_ticklabels(["1/32", "1/16", "1/8", "1/4", "1/2", "1", "2", "4", "8"])
    bar.set_label("warm time / cold time (log scale)")
    return fig


def segments(table: pd.DataFrame, labels: list[str]) -> plt.Figure:
    """Stacked median segments (ms) of the requests in `table`, one bar a row, named by `labels`.

    Columns: take_ns, first_ns, decode_ns.
    """
    fig, ax = plt.subplots(figsize=(7.2, 0.9 + 0.55 * len(labels)))
    left = np.zeros(len(labels))
    parts = {
        "take_ns": ("take the caches", OTHER),
        "first_ns": ("first token", LAYER),
        "decode_ns": ("further tokens", TOKEN),
    }
    for column, (name, color) in parts.items():
        ms = table[column].to_numpy() / 1e6
        ax.barh(labels, ms, left=left, color=color, label=name, height=0.6)
        left += ms
    ax.invert_yaxis()
    ax.set(xlabel="median time (ms)")
    ax.grid(axis="y", visible=False)
    ax.legend(ncol=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return fig


def failure_bound(bound, marked: dict[str, int]) -> plt.Figure:
    """The largest failure rate that n clean runs leave possible, `bound(n)`; both axes log."""
    n = np.unique(np.logspace(0, 4, 200).astype(int))
    fig, ax = plt.subplots(figsize=(7.2, 3.2))
    ax.loglog(n, [bound(int(i)) for i in n], color=COLD)
    for name, k in marked.items():
        ax.plot(k, bound(k), "o", color=WARM)
        ax.annotate(
            f"{name}: {bound(k):.2g}", (k, bound(k)), xytext=(7, 5), textcoords="offset points",
            fontsize=9,
        )  # fmt: skip
    ax.set(
        xlabel="clean runs, none failed (log scale)",
        ylabel="failure rate still\npossible, 95 % (log scale)",
    )
    return fig
