"""Made-up data for the figures of chapter 3, no two numbers alike, and what draws them."""

import numpy as np
import pandas as pd

from labsupport import figures_derivation as figures
from labsupport import fits

CHANGES = pd.DataFrame(
    {
        "float32": [0.0, 3e-7, 8e-7],
        "float64": [0.0, 4e-16, 9e-16],
        "float32, no mask": [0.0, 0.21, 0.47],
    },
    index=["embedding", "block 1", "block 2"],
)

PATHS = ["concat", "compiled"]
LENGTHS, WIDTHS = [64, 128, 256, 1024], [128, 256, 512]


def cells(d_model, n_tokens):
    """Rows as `sweep.table` has them."""
    many = max(len(d_model), len(n_tokens))
    i = np.arange(many)
    table = pd.DataFrame({"d_model": d_model * (many // len(d_model)), "arithmetic": 30.0 + 20 * i})
    table["n_tokens"] = n_tokens * (many // len(n_tokens))
    for k, path in enumerate(PATHS):
        table[path] = (2.0 + 1.3 * i) * (1 + 4 * k)
        table[f"{path}_low"], table[f"{path}_high"] = table[path] * 0.9, table[path] * 1.3
        table[f"{path}_share"] = table[path] / table["arithmetic"]
        table[f"{path}_predicted"] = table[path] * (1.4 - 0.3 * k)
    return table


OVER_N, OVER_D = cells([128], LENGTHS), cells(WIDTHS, [256])
SOURCE_N = pd.DataFrame(
    {"measured": [1.7, 2.4, 5.1], "arithmetic": [32.9, 66.1, 277.5]}, index=[64, 128, 512]
)
SOURCE_D = pd.DataFrame({"measured": [2.9, 7.6], "arithmetic": [134.5, 130.2]}, index=[128, 512])
BOUND = [0.52, 0.48, 0.31]

TIMES_MS = {"uncached": np.array([70.0, 190, 600, 11000]), "cached": np.array([40.0, 78, 200, 900])}
FITTED = {
    "uncached": {
        "power law": fits.power_law(LENGTHS, TIMES_MS["uncached"]),
        "two terms": fits.sum_of_powers(LENGTHS, TIMES_MS["uncached"], (1, 3)),
    },
    "cached": {"power law": fits.power_law(LENGTHS, TIMES_MS["cached"])},
}

TERMS = ["dispatch", "bandwidth", "arithmetic", "elementwise"]
SIDES = {
    "uncached": (
        pd.DataFrame(
            [[120e3, 0.0, 900e3, 300e3], [130e3, 0.0, 5000e3, 800e3]],
            index=["d128 n64", "d128 n256"],
            columns=TERMS,
        ),
        pd.Series({"d128 n64": 1300e3, "d128 n256": 5500e3}),
    ),
    "cached": (
        pd.DataFrame(
            [[110e3, 40e3, 0.0, 7e3], [115e3, 60e3, 0.0, 8e3]],
            index=["d128 n64", "d128 n256"],
            columns=TERMS,
        ),
        pd.Series({"d128 n256": 210e3, "d128 n64": 190e3}),
    ),
}

RUNGS, RIVALS = ["torch, concatenated", "NumPy, plain", "compiled"], ["transformers", "CTranslate2"]
BENCH = pd.DataFrame(
    {
        "us": [270.0, 180.0, 47.0, 1100.0, 73.0],
        "us_low": [265.0, 170.0, 46.0, 1050.0, 71.0],
        "us_high": [290.0, 199.0, 50.0, 1300.0, 80.0],
    },
    index=[*RUNGS, *RIVALS],
).iloc[::-1]
PREDICTED_US = pd.Series({"compiled": 41.0, "torch, concatenated": 250.0})
FLOOR_US = 31.0

rng = np.random.default_rng(0)
N_STEPS = 400
STEPS = pd.concat(
    pd.DataFrame(
        {
            "dtype": dtype,
            "gap": np.where(np.arange(N_STEPS) < ties, 0.0, 10 ** rng.uniform(-4, 1, N_STEPS)),
            "error": np.where(
                np.arange(N_STEPS) % 3 == 0, 0.0, -(10 ** rng.uniform(low, low + 2, N_STEPS))
            ),
            "same": np.arange(N_STEPS) >= ties,
        }
    )
    for dtype, low, ties in [("float64", -17, 0), ("float32", -8, 0), ("bfloat16", -4, 7)]
)
CURVE = pd.DataFrame(
    {"step": [0, 100, 300], "training": [4.6, 2.1, 1.2], "held_out": [4.7, 2.2, 1.6]}
)

DRAW = {
    "redundancy": lambda: figures.redundancy(CHANGES),
    "speedups": lambda: figures.speedups(OVER_N, SOURCE_N, "n_tokens", PATHS),
    "growth": lambda: figures.growth(LENGTHS, TIMES_MS, FITTED),
    "step_terms": lambda: figures.step_terms(SIDES),
    "collected": lambda: figures.collected(OVER_D, BOUND, PATHS),
    "ladder": lambda: figures.ladder(BENCH, RUNGS, RIVALS, PREDICTED_US, FLOOR_US),
    "flips": lambda: figures.flips(STEPS),
    "losses": lambda: figures.losses(CURVE),
}
