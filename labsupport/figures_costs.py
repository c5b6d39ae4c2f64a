"""The figures of chapter 2, in the house style of `figures`; each function takes data and draws."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

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
    ax.set(xlabel="share of queries that hit", ylabel="time with reuse /\ntime without", ylim=(0, None))
    ax.legend(loc="lower left")
    return fig
