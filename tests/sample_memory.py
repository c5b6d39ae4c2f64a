"""Made-up data for the figures of chapter 4, no two numbers alike, and what draws them."""

import numpy as np
import pandas as pd

from labsupport import figures_memory as figures

KiB = 2**10

N = pd.Index([8, 16, 24, 40], name="n_tokens")
POLICIES = ["NumPy, ConcatCache", "NumPy, DoublingCache", "NumPy, PreallocatedCache"]
FORMULA = pd.Series([8.0, 16, 24, 40], N) * KiB
HELD = pd.DataFrame([[8.1, 9.0, 8.3], [16.1, 17, 16.3], [24, 33, 24.3], [40, 65, 40.3]], N)
HELD = HELD.set_axis(POLICIES, axis=1) * KiB
PEAK = HELD * [1.9, 1.5, 1.01]

TOKENS = pd.Index([100, 1000, 10_000, 1_000_000], name="n_tokens")
MODELS = ["GPT-2", "Llama 2 7B", "Mistral 7B v0.1", "DeepSeek-V3"]
RATIOS = pd.DataFrame(
    {name: TOKENS * (4e-6 * 3**-i) for i, name in enumerate(MODELS)}, TOKENS
)  # at most 4
ENDS = [300, 5000, 1000, 70_000]  # one of them a row of RATIOS
CONTEXTS = {
    n: (end, end * (4e-6 * 3**-i)) for i, (n, end) in enumerate(zip(MODELS, ENDS, strict=True))
}

LOSSES = pd.DataFrame(
    {"grouped-query": [0.004, -0.002, 0.009], "multi-query": [0.015, 0.011, 0.023]}
)
TIMES = pd.DataFrame(
    {
        "us": [900.0, 610.0, 470.0],
        "ratio": [1.0, 0.71, 0.52],
        "low": [1.0, 0.69, 0.47],
        "high": [1.0, 0.76, 0.58],
        "bytes": [1.0, 0.53, 0.28],
        "multiplications": [1.0, 0.985, 0.975],
    },
    index=["multi-head", "grouped-query", "multi-query"],
)

LAYOUTS = [("channel", "token"), ("token", "channel"), ("token", "token")]


def lost(factor):
    """Rows as `quantloss.of_cache` gives them: worse, cannot tell of either sign, and better."""
    rows = []
    for i, (keys, values) in enumerate(LAYOUTS):
        for bits, more, reach in [
            (8, -4e-5, 3e-4),
            (6, 2e-4, 6e-4),
            (4, 0.02, 0.005),
            (2, 0.9, 0.2),
        ]:
            more = more * factor * (1 + i / 4)
            more = -0.006 if (bits, i) == (6, 2) else more
            low, high = more - reach * (1.1 + i), more + reach * (1.2 + i)
            verdict = "worse" if low > 0 else "better" if high < 0 else "cannot tell"
            columns = {"keys": keys, "values": values, "bits": bits, "more": more}
            rows.append({**columns, "low": low, "high": high, "verdict": verdict})
    return pd.DataFrame(rows)


SINGLE, TOGETHER = lost(1.0), lost(1.3)

rng = np.random.default_rng(0)
SIDES = {
    "keys": rng.uniform(0.5, 2, (3, 8)),
    "values": rng.uniform(5, 9, (2, 8)),
    "keys, two enlarged": rng.uniform(0.5, 2, (3, 8)) * np.array([1, 32, 1, 1, 1, 1, 32, 1]),
}

POSITION, WINDOW = 3, 4
FELT = np.zeros((3, 14))
for depth in range(3):
    reached = slice(POSITION, POSITION + depth * (WINDOW - 1) + 1)
    FELT[depth, reached] = 10.0 ** -np.arange(depth * (WINDOW - 1) + 1) * (depth + 2)

WIDTHS = ["128", "64", "16"]
LOOKED = pd.DataFrame(
    {
        "loss": [1.6, 1.64, 1.9],
        "low": [1.5, 1.55, 1.8],
        "high": [1.7, 1.73, 2.0],
        "more": [0.001, 0.04, 0.3],
        "least": [-0.002, 0.03, 0.25],
        "most": [0.003, 0.06, 0.38],
        "cache_bytes": [384 * KiB, 192 * KiB, 48 * KiB],
    },
    index=pd.Index(WIDTHS, name="window"),
)

STORE = pd.DataFrame(
    {
        ("ShareGPT", "max"): [21.0, 13, 57, 9],
        ("ShareGPT", "16"): [95.0, 0, 3, 2],
        ("ShareGPT", "128"): [80.0, 0, 14, 6],
        ("Alpaca", "max"): [4.0, 2, 85, 9],
        ("Alpaca", "16"): [82.0, 0, 13, 5],
        ("Alpaca", "128"): [31.0, 0, 62, 7],
    },
    index=["tokens", "reserved", "internal", "external"],
).T.rename_axis(["mix", "policy"])
STORE = STORE.assign(waste=100 - STORE["tokens"], n_running=[7.1, 31, 27, 6.9, 140, 60])

DRAW = {
    "storage": lambda: figures.storage(HELD, PEAK, FORMULA),
    "outweighs": lambda: figures.outweighs(RATIOS, CONTEXTS),
    "shared_heads": lambda: figures.shared_heads(LOSSES, TIMES),
    "bits": lambda: figures.bits(SINGLE, TOGETHER),
    "channel_sizes": lambda: figures.channel_sizes(SIDES),
    "reach": lambda: figures.reach(FELT, POSITION, WINDOW),
    "windows": lambda: figures.windows(LOOKED),
    "waste": lambda: figures.waste(STORE),
}
