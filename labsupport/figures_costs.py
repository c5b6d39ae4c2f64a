"""The figures of chapter 2, in the house style of `figures`; each function takes data and draws."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogLocator

from labsupport.figures import COLD, GAP, GOOD, LAYER, OTHER, TOKEN, WARM

PATH_COLORS = {"full": COLD, "rehash": WARM, "frozen": GOOD}
PARTS = {
    "signature": WARM,
    "lookup": OTHER,
    "copy": TOKEN,
    "continuation": LAYER,
    "residual": "#555555",
}
ABOVE = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}  # a legend there hides no data


def _colored(names, *colors):
    """(name, its colour) of each; ValueError for more names than colours, so that none is lost."""
    if len(names) > len(colors):
        raise ValueError(f"at most {len(colors)} can be told apart, not {', '.join(names)}")
    return zip(names, colors, strict=False)


def _reach(table, middle, low, high):
    """How far an interval reaches below and above its middle, as errorbar wants it: [2, n_rows]."""
    return np.array([table[middle] - table[low], table[high] - table[middle]])


def _log_us(ax):
    """A log axis of times, its ticks as plain numbers."""
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()


def totals(rows: pd.DataFrame) -> plt.Figure:
    """The share of queries that took at most so long, one step curve a path; µs, log axis."""
    fig, ax = plt.subplots(figsize=(7.2, 3.4))
    for path, color in PATH_COLORS.items():
        us = rows.loc[rows["path"] == path, "total_ns"] / 1000
        ax.ecdf(us, color=color, label=path)
        ax.plot(us.median(), 0.5, "o", color=color)
    ax.axhline(0.5, color="#777777", lw=0.8, ls=":")
    _log_us(ax)
    ax.set(xlabel="total time of a query (µs, log scale)", ylabel="share of queries")
    ax.legend(ncol=3, **ABOVE)
    return fig


def decomposition(tables: dict[str, pd.DataFrame]) -> plt.Figure:
    """Stacked parts of a query in µs: a group of bars an origin, in it one bar a path.

    Each table has a row a path and the columns of PARTS; a column may be missing or NaN.
    """
    labels = [f"{origin}, {path}" for origin, table in tables.items() for path in table.index]
    fig, ax = plt.subplots(figsize=(7.2, 0.9 + 0.36 * len(labels)))
    stacked = pd.concat(tables.values()).reindex(columns=list(PARTS)).fillna(0)
    left = np.zeros(len(labels))
    for part, color in PARTS.items():
        us = stacked[part].to_numpy()
        ax.barh(labels, us, left=left, color=color, label=part, height=0.7)
        left += us
    ax.invert_yaxis()
    ax.set(xlabel="time of a query (µs)", xlim=(0, left.max() * 1.03))
    ax.grid(axis="y", visible=False)
    ax.legend(ncol=5, columnspacing=1.0, **ABOVE)
    return fig


def hit_rates(expected, measured: dict[str, tuple[pd.Series, pd.DataFrame]]) -> plt.Figure:
    """Reuse over fresh against the hit rate: lines expected, points measured with intervals.

    expected  `hitrate.expected`
    measured  case -> (its costs, `hitrate.costs`; its table, `hitrate.against_expected`)
    """
    rates = np.linspace(0, 1, 50)
    fig, ax = plt.subplots(figsize=(7.2, 3.6))
    for case, color in _colored(measured, WARM, COLD):
        cost, table = measured[case]
        ratios = [expected(rate, cost["hit"], cost["miss"]) / cost["fresh"] for rate in rates]
        ax.plot(rates, ratios, color=color, label=f"{case}, expected")
        ax.errorbar(
            table["hits"], table["ratio"], _reach(table, "ratio", "low", "high"), fmt="o",
            color=color, capsize=3, label=f"{case}, measured",
        )  # fmt: skip
    ax.axhline(1, color="black", lw=0.8, ls=":")
    ax.set(xlabel="share of queries that hit", ylabel="time with reuse /\ntime without")
    ax.set_ylim(bottom=0)
    ax.legend(loc="lower left")
    return fig


def terms(predicted: pd.DataFrame, measured_us: pd.Series) -> plt.Figure:
    """Predicted time in µs by term, stacked, one bar a row; a black mark at the measured time."""
    fig, ax = plt.subplots(figsize=(7.2, 0.9 + 0.55 * len(predicted)))
    left = np.zeros(len(predicted))
    for name, color in _colored(predicted.columns, OTHER, WARM, TOKEN, LAYER, GOOD):
        us = predicted[name].to_numpy()
        ax.barh(predicted.index, us, left=left, color=color, label=name, height=0.6)
        left += us
    marks = measured_us[predicted.index]
    ax.errorbar(
        marks, np.arange(len(marks)), yerr=0.4, fmt="none", ecolor="black", elinewidth=2.5,
        label="measured",
    )  # fmt: skip
    ax.invert_yaxis()
    ax.set(xlabel="time (µs)", xlim=(0, max(left.max(), marks.max()) * 1.03))
    ax.grid(axis="y", visible=False)
    ax.legend(ncol=3, **ABOVE)
    return fig


def predictions(cells: pd.DataFrame) -> plt.Figure:
    """Predicted over measured time of every cell and path against the measured time; log axis.

    `cells` is `breakeven.table`. The band holds what is within 20 %.
    """
    fig, ax = plt.subplots(figsize=(7.2, 3.6))
    ax.axhspan(0.8, 1.2, color=GAP, label="within 20 %")
    ax.axhline(1, color="#777777", lw=0.8)
    for (path, color), marker in zip(PATH_COLORS.items(), "os^", strict=True):
        measured = cells[f"{path}_ns"]
        ax.plot(
            measured / 1000, cells[f"{path}_predicted_ns"] / measured, marker, color=color,
            ms=4, alpha=0.75, label=path,
        )  # fmt: skip
    _log_us(ax)
    ax.set(xlabel="measured median time of a query (µs, log scale)", ylabel="predicted / measured")
    ax.legend(ncol=4, **ABOVE)
    return fig


def breakeven_map(cells: pd.DataFrame, crossings: pd.DataFrame) -> plt.Figure:
    """Frozen over full for every cell, a panel a number of tokens; log colours, white at 1.

    `cells` is `breakeven.table`, `crossings` is `breakeven.crossings` along the width. The solid
    line is where the measured ratio passes 1, the dashed one where the predicted ratio does.
    "Cannot tell" is in brackets.
    """
    tokens, widths = cells["tokens"].unique(), np.sort(cells["width"].unique())
    shares = list(dict.fromkeys(cells["share"]))
    height = 0.9 + 0.36 * len(shares) * len(tokens)
    fig, axes = plt.subplots(len(tokens), 1, figsize=(7.2, height), sharex=True, squeeze=False)
    limit = np.abs(np.log2(cells["frozen"])).max()
    for ax, n in zip(axes[:, 0], tokens, strict=True):
        part = cells[cells["tokens"] == n]
        by = {"index": "share", "columns": "width"}
        ratio = part.pivot(values="frozen", **by).loc[shares, widths]
        verdict = part.pivot(values="frozen_verdict", **by).loc[shares, widths]
        image = ax.pcolormesh(
            np.log2(ratio), cmap="PuOr_r", vmin=-limit, vmax=limit, edgecolors="white"
        )
        for i, j in np.ndindex(ratio.shape):
            log = np.log2(ratio.iloc[i, j])
            text = f"{ratio.iloc[i, j]:.2f}"
            ax.text(
                j + 0.5, i + 0.5, f"({text})" if verdict.iloc[i, j] == "cannot tell" else text,
                color="white" if abs(log) > 0.6 * limit else "black", fontsize=8.5,
                ha="center", va="center",
                path_effects=[withStroke(linewidth=3, foreground=image.to_rgba(log))],  # over lines
            )  # fmt: skip
        lines = crossings[crossings["tokens"] == n].set_index("share").loc[shares]
        for column, style in {"measured": "-", "predicted": "--"}.items():
            _column_line(ax, lines[column], widths, style)
        ax.set(ylabel=f"share of\n{n} tokens")
        ax.set_yticks(np.arange(len(shares)) + 0.5, shares)
        ax.grid(visible=False)
    axes[-1, 0].set_xticks(np.arange(len(widths)) + 0.5, widths)
    axes[-1, 0].set_xlabel("width (log scale)")
    handles = [plt.Line2D([], [], color="black", lw=2.2, ls=style) for style in ("-", "--")]
    fig.legend(handles, ["break-even, measured", "predicted"], ncol=2, loc="outside upper center")
    ticks = [t for t in (-3, -2, -1, 0, 1, 2, 3) if abs(t) <= limit]
    bar = fig.colorbar(image, ax=axes[:, 0], ticks=ticks, shrink=0.8)
    bar.set_ticklabels([f"{2.0**t:g}" for t in ticks])
    bar.set_label("frozen / full (log scale)")
    return fig


def _column_line(ax, crossing: pd.Series, widths, style: str) -> None:
    """A vertical step for each row at the width where it crosses, on the columns' own scale.

    A width stands in the middle of its column; 0 and infinity are the edges of the panel.
    """
    middles = np.arange(len(widths)) + 0.5
    at = np.interp(np.log(crossing.clip(widths[0], widths[-1])), np.log(widths), middles)
    at[crossing == 0] = 0
    at[np.isinf(crossing)] = len(widths)
    x, y = np.repeat(at, 2), np.repeat(np.arange(len(at) + 1), 2)[1:-1]
    ax.plot(x, y, color="black", lw=2.2, ls=style, clip_on=False)


def cut(line: pd.DataFrame, recorded: pd.DataFrame) -> plt.Figure:
    """Frozen over full against the width along one line of the grid: live, recorded, predicted."""
    fig, ax = plt.subplots(figsize=(7.2, 3.4))
    for table, aside, color, marker, name in (
        (line, 1 / 1.025, COLD, "o", "live"), (recorded, 1.025, WARM, "s", "recorded"),
    ):  # fmt: skip
        ax.errorbar(
            table["width"] * aside, table["frozen"],  # side by side, so that neither hides
            _reach(table, "frozen", "frozen_low", "frozen_high"), fmt=marker, color=color,
            capsize=3, label=name,
        )  # fmt: skip
    predicted = line["frozen_predicted"]
    ax.plot(line["width"], predicted, "--", color=COLD, label="predicted, live prices")
    ax.axhline(1, color="black", lw=0.8, ls=":")
    ax.set_xscale("log", base=2)
    ax.set_xticks(line["width"], line["width"])
    ax.set(xlabel="width (log scale)", ylabel="frozen / full")
    ax.legend()
    return fig


def instruments(summary: pd.DataFrame) -> plt.Figure:
    """Shares of false alarms and of right verdicts on a true effect, a row a tool, with intervals.

    `summary` is `instrument.summary`. One colour and one place in the row a noise.
    """
    noises = list(dict.fromkeys(summary["noise"]))
    tools = list(dict.fromkeys(summary["tool"]))
    fig, axes = plt.subplots(1, 2, figsize=(7.2, 0.8 + 0.62 * len(tools)), sharey=True)
    titles = {"false alarm": "identical code:\nfalse alarms", "power": "a true effect:\nfound"}
    for ax, (measure, title) in zip(axes, titles.items(), strict=True):
        for i, (noise, color) in enumerate(_colored(noises, COLD, TOKEN, OTHER, WARM)):
            rows = summary[(summary["measure"] == measure) & (summary["noise"] == noise)]
            share = rows.set_index("tool").loc[tools]
            y = np.arange(len(tools)) + (i - (len(noises) - 1) / 2) * 0.19
            bars = _reach(share, "share", "low", "high")
            ax.errorbar(share["share"], y, xerr=bars, fmt="o", color=color, ms=4, label=noise)
        ax.set(title=title, xlabel="share of trials", xlim=(-0.03, 1.03))
        ax.set_yticks(np.arange(len(tools)), tools)
    axes[0].invert_yaxis()
    axes[0].axvline(0.05, color="black", lw=0.8, ls=":")
    axes[1].axvline(0.95, color="black", lw=0.8, ls=":")
    handles, names = axes[0].get_legend_handles_labels()
    fig.legend(handles, names, ncol=4, loc="outside upper center")
    return fig
