"""The figures of chapter 2, in the house style of `figures`; each function takes data and draws."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.colors import TwoSlopeNorm

from labsupport.figures import COLD, GAP, GOOD, LAYER, OTHER, TOKEN, WARM

PATH_COLORS = {"full": COLD, "rehash": WARM, "frozen": GOOD}
PARTS = {
    "signature": ("signature", WARM),
    "lookup": ("lookup", OTHER),
    "copy": ("copy", TOKEN),
    "continuation": ("continuation", LAYER),
    "residual": ("residual", "#555555"),
}


def totals(rows: pd.DataFrame) -> plt.Figure:
    """The share of queries that took at most so long, one step curve a path; µs, log axis."""
    fig, ax = plt.subplots(figsize=(7.2, 3.4))
    for path, color in PATH_COLORS.items():
        us = rows.loc[rows["path"] == path, "total_ns"] / 1000
        ax.ecdf(us, color=color, label=path)
        ax.plot(us.median(), 0.5, "o", color=color)
    ax.axhline(0.5, color="#777777", lw=0.8, ls=":")
    ticks = [150, 200, 300, 400, 600, 1000]
    ax.set_xscale("log")
    ax.set_xticks(ticks, map(str, ticks))
    ax.minorticks_off()
    ax.set(xlabel="total time of a query (µs, log scale)", ylabel="share of queries")
    ax.legend(loc="lower right")
    return fig


def decomposition(tables: dict[str, pd.DataFrame]) -> plt.Figure:
    """Stacked parts of a query in µs: a group of bars an origin, in it one bar a path.

    Each table has a row a path and the columns of PARTS; a column may be missing or NaN.
    """
    labels = [f"{origin}, {path}" for origin, table in tables.items() for path in table.index]
    fig, ax = plt.subplots(figsize=(7.2, 0.9 + 0.36 * len(labels)))
    stacked = pd.concat([t.reindex(columns=list(PARTS)) for t in tables.values()]).fillna(0)
    left = np.zeros(len(labels))
    for part, (name, color) in PARTS.items():
        us = stacked[part].to_numpy()
        ax.barh(labels, us, left=left, color=color, label=name, height=0.7)
        left += us
    ax.invert_yaxis()
    ax.set(xlabel="time of a query (µs)")
    ax.grid(axis="y", visible=False)
    ax.legend(ncol=5, loc="lower center", bbox_to_anchor=(0.4, 1.0), columnspacing=1.0)
    return fig


def hit_rates(expected, measured: dict[str, tuple[pd.Series, pd.DataFrame]]) -> plt.Figure:
    """Reuse over fresh against the hit rate: lines expected, points measured with intervals.

    expected  `hitrate.expected`
    measured  case -> (its costs, `hitrate.costs`; its table, `hitrate.against_expected`)
    """
    rates = np.linspace(0, 1, 50)
    fig, ax = plt.subplots(figsize=(7.2, 3.6))
    for (case, (cost, table)), color in zip(measured.items(), (WARM, COLD), strict=False):
        ratios = [expected(rate, cost["hit"], cost["miss"]) / cost["fresh"] for rate in rates]
        ax.plot(rates, ratios, color=color, label=f"{case}, expected")
        bars = np.abs(table[["low", "high"]].sub(table["ratio"], axis=0)).T  # [2, n_rates]
        ax.errorbar(
            table["hits"], table["ratio"], bars, fmt="o", color=color, capsize=3,
            label=f"{case}, measured",
        )  # fmt: skip
    ax.axhline(1, color="black", lw=0.8, ls=":")
    ax.set(xlabel="share of queries that hit", ylabel="time with reuse /\ntime without")
    ax.set_ylim(bottom=0)
    ax.legend(loc="lower left")
    return fig


def terms(predicted: pd.DataFrame, measured_us: pd.Series) -> plt.Figure:
    """Predicted time in µs by term, stacked, one bar a row; a black mark at the measured time."""
    fig, ax = plt.subplots(figsize=(7.2, 0.9 + 0.55 * len(predicted)))
    colors = [OTHER, WARM, TOKEN, LAYER, GOOD]
    left = np.zeros(len(predicted))
    for (name, us), color in zip(predicted.items(), colors, strict=False):
        ax.barh(predicted.index, us, left=left, color=color, label=name, height=0.6)
        left += us.to_numpy()
    for y, label in enumerate(predicted.index):
        ax.plot([measured_us[label]] * 2, [y - 0.4, y + 0.4], color="black", lw=2.5)
    ax.plot([], [], color="black", lw=2.5, label="measured")
    ax.invert_yaxis()
    ax.set(xlabel="time (µs)")
    ax.grid(axis="y", visible=False)
    ax.legend(ncol=3, loc="lower center", bbox_to_anchor=(0.4, 1.0))
    return fig


def predictions(cells: pd.DataFrame) -> plt.Figure:
    """Predicted over measured time of every cell and path against the measured time; log axis.

    `cells` is `breakeven.table`. The band holds what is within 20 %.
    """
    fig, ax = plt.subplots(figsize=(7.2, 3.6))
    ax.axhspan(1 / 1.2, 1.2, color=GAP, label="within 20 %")
    ax.axhline(1, color="#777777", lw=0.8)
    for (path, color), marker in zip(PATH_COLORS.items(), "os^", strict=True):
        measured = cells[f"{path}_ns"]
        ax.plot(
            measured / 1000, cells[f"{path}_predicted_ns"] / measured, marker, color=color,
            ms=4, alpha=0.75, label=path,
        )  # fmt: skip
    ax.set_xscale("log")
    ax.set(
        xlabel="measured median time of a query (µs, log scale)", ylabel="predicted / measured",
        ylim=(0.6, 1.4),
    )  # fmt: skip
    ax.legend(ncol=4, loc="lower center")
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
        norm = TwoSlopeNorm(0, vmin=-limit, vmax=limit)
        image = ax.pcolormesh(np.log2(ratio), cmap="PuOr_r", norm=norm, edgecolors="white")
        for i, j in np.ndindex(ratio.shape):
            text = f"{ratio.iloc[i, j]:.2f}"
            text = f"({text})" if verdict.iloc[i, j] == "cannot tell" else text
            color = "white" if abs(np.log2(ratio.iloc[i, j])) > 0.6 * limit else "black"
            ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=8.5, color=color)
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
    """A vertical step for each row at the width where it crosses, on the columns' own scale."""
    columns = np.interp(np.log(crossing.clip(1e-9, 1e9)), np.log(widths), np.arange(len(widths)))
    at = columns + 0.5
    at[crossing <= widths[0]] = 0.0
    at[crossing > widths[-1]] = len(widths)
    x, y = np.repeat(at, 2), np.repeat(np.arange(len(at) + 1), 2)[1:-1]
    ax.plot(x, y, color="black", lw=2.2, ls=style, clip_on=False)


def cut(line: pd.DataFrame, recorded: pd.DataFrame) -> plt.Figure:
    """Frozen over full against the width along one line of the grid: live, recorded, predicted."""
    fig, ax = plt.subplots(figsize=(7.2, 3.4))
    for table, color, marker, name in (
        (line, COLD, "o", "live"), (recorded, WARM, "s", "recorded"),
    ):  # fmt: skip
        bars = np.abs(table[["frozen_low", "frozen_high"]].sub(table["frozen"], axis=0)).T
        ax.errorbar(
            table["width"], table["frozen"], bars, fmt=marker, color=color, capsize=3, label=name
        )
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
        for i, (noise, color) in enumerate(zip(noises, (COLD, TOKEN, OTHER, WARM), strict=False)):
            rows = summary[(summary["measure"] == measure) & (summary["noise"] == noise)]
            share = rows.set_index("tool").loc[tools]
            y = np.arange(len(tools)) + (i - (len(noises) - 1) / 2) * 0.19
            bars = np.abs(share[["low", "high"]].sub(share["share"], axis=0)).T
            ax.errorbar(share["share"], y, xerr=bars, fmt="o", color=color, ms=4, label=noise)
        ax.set(title=title, xlabel="share of trials", xlim=(-0.03, 1.03))
        ax.set_yticks(np.arange(len(tools)), tools)
    axes[0].invert_yaxis()
    axes[0].axvline(0.05, color="black", lw=0.8, ls=":")
    axes[1].axvline(0.95, color="black", lw=0.8, ls=":")
    handles, names = axes[0].get_legend_handles_labels()
    fig.legend(handles, names, ncol=4, loc="outside upper center")
    return fig
