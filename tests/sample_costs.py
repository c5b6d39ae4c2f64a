"""Made-up data for the figures of chapter 2, no two numbers alike, and what draws them."""

from itertools import product
from math import inf

import numpy as np
import pandas as pd

from labsupport import figures_costs

PATHS = ["full", "rehash", "frozen"]
RUNS = pd.DataFrame(
    {
        "path": ["full", "rehash", "frozen", "rehash", "full", "frozen", "rehash", "full"],
        "total_ns": [210e3, 510e3, 190e3, 640e3, 260e3, 1100e3, 480e3, 230e3],
    }
)
MEDIANS = {  # µs; the first has no residual, and cells without a value
    "theirs": pd.DataFrame(
        {
            "total": [99.0, 301.0],
            "signature": [np.nan, 130.0],
            "lookup": [np.nan, 11.0],
            "copy": [np.nan, 17.0],
            "continuation": [97.0, 143.0],
        },
        index=["full", "rehash"],
    ),
    "ours": pd.DataFrame(
        {
            "total": [84.0, 90.0],
            "signature": [0.0, 2.0],
            "lookup": [0.0, 3.0],
            "copy": [0.0, 12.0],
            "continuation": [80.0, 66.0],
            "residual": [4.0, 7.0],
        },
        index=["full", "frozen"],
    ),
}
POINTS = ["hits", "ratio", "low", "high"]
RATES = {
    "little": (
        pd.Series({"fresh": 100.0, "hit": 105.0, "miss": 130.0}),
        pd.DataFrame([[0.2, 1.3, 1.2, 1.45], [0.7, 1.1, 1.05, 1.12]], columns=POINTS),
    ),
    "much": (
        pd.Series({"fresh": 400.0, "hit": 120.0, "miss": 480.0}),
        pd.DataFrame([[0.3, 0.8, 0.7, 0.83], [0.9, 0.4, 0.37, 0.5]], columns=POINTS),
    ),
}
TERMS = pd.DataFrame(
    {"steps": [31.0, 43.0], "calls": [90.0, 101.0], "sums": [37.0, 13.0], "bytes": [5.0, 2.0]},
    index=["twelve rows", "four rows"],
)
MEASURED = pd.Series({"four rows": 171.0, "twelve rows": 155.0})  # the other order
WIDTHS, SHARES, TOKENS = [16, 32, 64, 128], ["1/3", "1/2", "2/3"], [12, 48]
CELLS = pd.DataFrame(product(TOKENS, SHARES, WIDTHS), columns=["tokens", "share", "width"])
CELLS["frozen"] = 1.1 ** (np.arange(24.0)[::-1] - 17)  # 1.77 to 0.20
CELLS["frozen_verdict"] = ["cannot tell" if i % 5 == 1 else "slower" for i in range(24)]
for i, path in enumerate(PATHS):
    CELLS[f"{path}_ns"] = (1 + i) * 1e5 * 1.17 ** np.arange(24)
    CELLS[f"{path}_predicted_ns"] = CELLS[f"{path}_ns"] * (0.43 - 0.01 * i + 0.05 * np.arange(24))
CROSSINGS = pd.DataFrame(  # not in the order of the cells
    [
        (48, "2/3", 0.0, 23.0),
        (48, "1/3", 128.0, inf),
        (48, "1/2", 16.0, 0.0),
        (12, "1/2", 45.0, 32.0),
        (12, "1/3", inf, 100.0),
        (12, "2/3", 20.0, 64.0),
    ],
    columns=["tokens", "share", "measured", "predicted"],
)
LIVE = pd.DataFrame(
    {
        "width": WIDTHS,
        "frozen": [1.2, 0.95, 0.7, 0.5],
        "frozen_low": [1.15, 0.93, 0.62, 0.49],
        "frozen_high": [1.22, 1.05, 0.71, 0.58],
        "frozen_predicted": [1.3, 1.0, 0.65, 0.45],
    }
)
RECORDED = LIVE.assign(
    frozen=[1.1, 0.9, 0.8, 0.55], frozen_low=[1.0, 0.88, 0.75, 0.51],
    frozen_high=[1.13, 0.92, 0.87, 0.57], frozen_predicted=[9.0, 8.0, 7.0, 6.0],
)  # fmt: skip
NOISES, TOOLS = ["calm", "busy", "wild"], ["compare", "stopwatch"]
ANSWERS = pd.DataFrame(
    product(NOISES, TOOLS, ["coverage", "power", "false alarm"]),
    columns=["noise", "tool", "measure"],
)
ANSWERS["share"] = 0.05 + 0.047 * np.arange(18)
ANSWERS["low"], ANSWERS["high"] = ANSWERS["share"] - 0.04, ANSWERS["share"] * 1.1


def expected(rate, hit, miss):
    """No straight line, and not the same with hit and miss exchanged."""
    return miss - rate**2 * (miss - hit)


DRAW = {
    "totals": lambda: figures_costs.totals(RUNS),
    "decomposition": lambda: figures_costs.decomposition(MEDIANS),
    "hit_rates": lambda: figures_costs.hit_rates(expected, RATES),
    "terms": lambda: figures_costs.terms(TERMS, MEASURED),
    "predictions": lambda: figures_costs.predictions(CELLS),
    "breakeven_map": lambda: figures_costs.breakeven_map(CELLS, CROSSINGS),
    "cut": lambda: figures_costs.cut(LIVE, RECORDED),
    "instruments": lambda: figures_costs.instruments(ANSWERS),
}
