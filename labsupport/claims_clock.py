"""Claims of the cache's derivation on what the clock collects of the promise, and why so little.

`ev.length` and `ev.width` are the source's tables, `ev.cells` the sweep recorded here; its path
"concat" is the source's loop, and "compiled" makes the same multiplications in other calls.
"""

import numpy as np

from labsupport import arithmetic, roofline
from labsupport.claims import Claim, decide, register, unsettled
from labsupport.claims_derivation import NEARLY
from labsupport.claims_sameness import MOST
from labsupport.derivation_source import HALF_MS
from labsupport.rates import bandwidth

CLAIMS: list[Claim] = []
claim = register(CLAIMS, "derivation")

D, N = 128, 256  # the cell of which the source says the most


def quotients(table):
    """The speed-ups that times within HALF_MS of the printed allow: arrays low, high, [n_rows]."""
    uncached, cached = table["uncached_ms"], table["cached_ms"]
    return (uncached - HALF_MS) / (cached + HALF_MS), (uncached + HALF_MS) / (cached - HALF_MS)


def agree(printed, low, high, digits):
    """Whether some number from low to high is printed so, rounded to `digits` places."""
    half = 0.5 * 10.0**-digits * (1 + 1e-9)
    return (printed >= low - half) & (printed <= high + half)


def ceiling(config, n, rates):
    """The share of the arithmetic that this machine can give back as time, at n tokens in float32.

    A cached step reads four bytes for each multiplication, and an addition goes with it.
    """
    n_bytes = 4 * sum(arithmetic.multiplications(config, 1, n).values())
    return roofline.bound(0.5, roofline.matrix_rate(rates), bandwidth(rates, n_bytes))


def speedup(cell, path):
    """`3.1 (3.0 to 3.2)` of a cell."""
    return f"{cell[path]:.2f} ({cell[f'{path}_low']:.2f} to {cell[f'{path}_high']:.2f})"


@claim("derivation-19", "The measured column is the ratio of the two columns of times.")
def _(said, ev):
    right = [agree(t["measured"], *quotients(t), digits=2) for t in (ev.length, ev.width)]
    right = np.concatenate(right)
    exact = sum(
        (t["uncached_ms"] / t["cached_ms"]).round(2).eq(t["measured"]).sum()
        for t in (ev.length, ev.width)
    )
    return decide(
        bool(right.all()),
        f"{right.sum()} of {len(right)} are, for some times that round to those printed; of the "
        f"printed times themselves {exact}.",
        in_shape=right.mean() >= MOST,
    )


@claim(
    "derivation-20",
    "The minimum of {runs} or more runs gives each time to the digits printed.",
    runs=3,
)
def _(said, ev):
    one, other = ev.length.loc[N], ev.width.loc[D]
    names = ["uncached_ms", "cached_ms"]
    rounds = np.stack([ev.rounds_ns(path)[N].to_numpy() for path in ("uncached", "concat")])
    drawn = np.random.default_rng(0).integers(rounds.shape[1], size=(1000, said["runs"]))
    least = rounds[:, drawn].min(axis=2)  # [2, n_draws]
    low, high = np.quantile(least[0] / least[1], [0.025, 0.975])
    return decide(
        bool((one[names] == other[names]).all()),
        f"Its tables hold one cell twice: {one['uncached_ms']:g} and {one['cached_ms']:g} ms, then "
        f"{other['uncached_ms']:g} and {other['cached_ms']:g}, so {one['measured']:.2f} and "
        f"{other['measured']:.2f}. Here the speed-up from minima of {said['runs']} rounds is "
        f"anything from {low:.2f} to {high:.2f}.",
        in_shape=abs(other["measured"] / one["measured"] - 1) <= 0.005,
    )


@claim(
    "derivation-21",
    "At n = {n} the cache makes the loop {times} times faster.",
    how="measured",
    n=256,
    times=2.94,
)
def _(said, ev):
    cell = ev.over_length().loc[said["n"]]
    found = (
        f"Here the same loop gains {speedup(cell, 'concat')}, the fastest cached step "
        f"{speedup(cell, 'compiled')}."
    )
    within = cell["concat_low"] <= said["times"] <= cell["concat_high"]
    if within and cell["concat_high"] > 1.5 * cell["concat_low"]:
        return unsettled(found, "more rounds of the sweep: its interval is too wide to say")
    return decide(
        within,
        found,
        in_shape=1 < cell["concat_low"] and cell["concat"] <= cell["arithmetic"] / 5,
    )


@claim("derivation-22", "Of the promise {percent} % was collected.", percent=2.2)
def _(said, ev):
    row = ev.length.loc[N]
    share = 100 * row["measured"] / row["arithmetic"]
    return decide(round(share, 1) == said["percent"], f"{share:.2f} %, of its own figures.")


@claim(
    "derivation-23",
    "On arithmetic alone the loop should be {times} times faster.",
    how="derived",
    times=130,
)
def _(said, ev):
    share = ceiling(ev.config, N, ev.rates)
    best = share * arithmetic.ratio(ev.config, N)
    return decide(
        best >= said["times"],
        f"A cached step reads a number for each multiplication. With both loops at the best rates "
        f"of this machine the gain is {best:.0f}-fold, {share:.0%} of the promise: bandwidth "
        "binds the cached side, not arithmetic.",
    )


@claim("derivation-24", "So little came back because the model is too small.", how="measured")
def _(said, ev):
    cell = ev.over_length().loc[N]
    times = cell["compiled_share"] / cell["concat_share"]
    return decide(
        times <= 1 + NEARLY,
        f"A model of the same size collects {cell['compiled_share']:.0%} with a compiled step, "
        f"{times:.1f} times as much as the source's loop with {cell['concat_share']:.1%}: the size "
        "stayed, the software changed.",
        in_shape=times <= 1.5,
    )


@claim(
    "derivation-25",
    "At this width products cost next to nothing: time goes into Python and launches.",
    how="measured",
)
def _(said, ev):
    cell = ev.over_length().loc[N]
    in_cached = 1 - cell["compiled_ns"] / cell["concat_ns"]
    floor_ns = roofline.floor_uncached_ns(ev.config, np.arange(1, N + 1), ev.rates).sum()
    in_uncached = 1 - floor_ns / cell["uncached_ns"]
    return decide(
        min(in_cached, in_uncached) >= MOST,
        f"Of the cached loop at n = {N} {in_cached:.0%} goes when one compiled call makes the "
        f"same products. Of the loop without a cache at most {in_uncached:.0%} is anything but "
        "multiplication at the best rate of this machine.",
        in_shape=in_cached >= 0.5,
    )


@claim(
    "derivation-26",
    "{blocks} blocks times {operations} operations times n steps launch the same number of kernels "
    "either way.",
    how="measured",
    blocks=3,
    operations=8,
)
def _(said, ev):
    counts = ev.trials["kernels"]()
    uncached, cached = counts["uncached"], counts["cached"]
    blocks = ev.config.n_blocks
    return decide(
        said["blocks"] == blocks and uncached == cached == said["operations"],
        f"torch runs {uncached} operations a block without a cache and {cached} with one, whose "
        f"keys and values are joined; views not counted. In {blocks} blocks {blocks * uncached} "
        f"and {blocks * cached} a step.",
        in_shape=2 / 3 <= uncached / cached <= 1.5,
    )


@claim("derivation-27", "Multiplication was not what was being paid for.")
def _(said, ev):
    n, times = ev.length.index, ev.length["uncached_ms"]
    launching = (ev.length["cached_ms"] / n).min()  # ms: a whole step takes no less
    rest = 1 - n * launching / times
    return decide(
        rest[N] <= 1 - MOST,
        f"No step of its cached loop takes less than {launching:.2f} ms on average, so launching a "
        f"step costs no more. Of its loop without a cache that leaves {rest[N]:.0%} at n = {N} and "
        f"{rest.iloc[-1]:.0%} at n = {n[-1]} that is no launching.",
        in_shape=rest[N] <= 0.5,
    )
