"""Claims of the cache's derivation on how the times grow with the length.

The source's table is fitted as it did, and its times are whole milliseconds: what follows from them
is given as the range over all times that round to them. Exponents measured here carry bootstrap
intervals over the rounds of the sweep.
"""

import numpy as np

from labsupport import arithmetic, fits
from labsupport.claims import Claim, decide, register, unsettled
from labsupport.claims_clock import agree, speedup
from labsupport.claims_derivation import NEARLY
from labsupport.derivation_source import over_rounding
from labsupport.loops import CACHED

CLAIMS: list[Claim] = []
claim = register(CLAIMS, "derivation")

SIDES = ("uncached", "cached")
MISFIT = 0.25  # a curve that misses by as much is not the one
WIDE = 2 * NEARLY  # an interval of an exponent that says nothing of a figure within it


def sources(ev, of):
    """`of(n, times)` on both columns of the source's table: {side: (low, high)} over rounding."""
    n = ev.length.index.to_numpy()
    return {
        side: over_rounding(ev.length[f"{side}_ms"], lambda times: of(n, times)) for side in SIDES
    }


def exponent(n, times):
    return fits.power_law(n, times).exponent


def measured(ev, path):
    """The exponent of the medians of a path and its interval over rounds: (value, low, high)."""
    rounds = ev.rounds_ns(path)
    return exponent(rounds.columns, rounds.median()), *fits.interval(rounds.columns, rounds)


@claim(
    "derivation-28",
    "The speed-up grows from {first} to {last}, {growth}-fold, over lengths {longer} times apart.",
    first=1.70,
    last=11.29,
    growth=6.6,
    longer=16,
)
def _(said, ev):
    column = ev.length["measured"]
    growth = column.iloc[-1] / column.iloc[0]
    longer = column.index[-1] / column.index[0]
    ends = [column.iloc[0], column.iloc[-1]] == [said["first"], said["last"]]
    return decide(
        bool(ends and round(growth, 1) == said["growth"] and longer == said["longer"]),
        f"Of its own figures {growth:.2f}-fold over {longer:g}-fold lengths, in which the promise "
        f"grows {ev.length['arithmetic'].iloc[-1] / ev.length['arithmetic'].iloc[0]:.1f}-fold.",
    )


@claim(
    "derivation-29",
    "The longer the loop, the more the cache gains: {growth}-fold over these lengths.",
    how="measured",
    growth=6.6,
)
def _(said, ev):
    cells = ev.over_length()
    growth = cells["concat"].iloc[-1] / cells["concat"].iloc[0]
    gains = ", ".join(f"{gain:.1f}" for gain in cells["concat"])
    return decide(
        abs(growth / said["growth"] - 1) <= NEARLY,
        f"Here the same loop gains {gains} at n = {', '.join(map(str, cells.index))}: {growth:.1f}-"
        "fold.",
        in_shape=bool(cells["concat"].is_monotonic_increasing),
    )


@claim(
    "derivation-30",
    "Fitted, time grows as n^{uncached} without a cache and as n^{cached} with one.",
    uncached=1.80,
    cached=1.15,
)
def _(said, ev):
    found = sources(ev, exponent)
    return decide(
        all(bool(agree(said[side], *found[side], digits=2)) for side in SIDES),
        f"From its times n^{found['uncached'][0]:.2f} to n^{found['uncached'][1]:.2f} and "
        f"n^{found['cached'][0]:.2f} to n^{found['cached'][1]:.2f}, as they round.",
        in_shape=found["uncached"][0] > found["cached"][1],
    )


@claim(
    "derivation-31",
    "These fits miss by up to {uncached} % and {cached} %.",
    uncached=23.4,
    cached=10.4,
)
def _(said, ev):
    found = sources(ev, lambda n, times: 100 * fits.power_law(n, times).worst)
    ends = ", ".join(f"{low:.1f} to {high:.1f} %" for low, high in found.values())
    return decide(
        all(bool(agree(said[side], *found[side], digits=1)) for side in SIDES),
        f"From its times by {ends}, fitted over measured.",
        in_shape=all(abs(np.mean(found[side]) / said[side] - 1) <= MISFIT for side in SIDES),
    )


@claim("derivation-32", "The loop without a cache is a mix of an n² and an n³ term.")
def _(said, ev):
    n, times = ev.length.index, ev.length["uncached_ms"]
    pair, three = (fits.sum_of_powers(n, times, powers) for powers in ((2, 3), (1, 2, 3)))
    slopes = ", ".join(f"{slope:.2f}" for slope in fits.local_exponents(n, times))
    first = three.terms[1] * n[0] / three.fitted[0]
    return decide(
        pair.worst < MISFIT,
        f"It is no power law: between neighbours the exponent is {slopes}. But those two terms "
        f"alone miss by {pair.worst:.0%}; with one for each step, whatever its length, by "
        f"{three.worst:.0%}, and that one is {first:.0%} of the time at n = {n[0]}.",
        in_shape=three.worst < MISFIT and three.terms[2] > 0 and three.terms[3] > 0,
    )


@claim(
    "derivation-33",
    "Time grows as n^{uncached} without a cache and as n^{cached} with one.",
    how="measured",
    uncached=1.80,
    cached=1.15,
)
def _(said, ev):
    without, cached = measured(ev, "uncached"), measured(ev, "concat")
    fast = measured(ev, "compiled")
    found = (
        f"Here n^{without[0]:.2f} ({without[1]:.2f} to {without[2]:.2f}) and n^{cached[0]:.2f} "
        f"({cached[1]:.2f} to {cached[2]:.2f}); with the compiled step n^{fast[0]:.2f}."
    )
    if max(high - low for _, low, high in (without, cached)) > WIDE:
        return unsettled(found, "more rounds of the sweep")
    same = [
        abs(here[0] - said[side]) <= NEARLY
        for here, side in ((without, "uncached"), (cached, "cached"))
    ]
    return decide(all(same), found, in_shape=without[1] > cached[2])


def slopes_apart(ev):
    """By how much the exponents of both sides differ, drawing rounds again: (low, high)."""
    n = ev.rounds_ns("uncached").columns
    rounds = np.hstack([ev.rounds_ns(path).to_numpy() for path in ("uncached", "concat")])

    def apart(_, times):
        return exponent(n, times[: len(n)]) - exponent(n, times[len(n) :])

    return fits.interval(np.arange(1, 2 * len(n) + 1), rounds, of=apart)


@claim("derivation-34", "The two slopes clearly differ.", how="measured")
def _(said, ev):
    low, high = slopes_apart(ev)
    found = f"By {low:.2f} to {high:.2f}, drawing rounds again."
    if low <= 0 <= high:
        return unsettled(found, "more rounds of the sweep")
    return decide(low > 0, found)


@claim("derivation-35", "What the cache changes is the exponent, not the constant.")
def _(said, ev):
    fit = {side: fits.power_law(ev.length.index, ev.length[f"{side}_ms"]) for side in SIDES}
    powers = {side: one.exponent for side, one in fit.items()}
    constants = {side: one.terms[powers[side]] for side, one in fit.items()}
    times = constants["cached"] / constants["uncached"]
    return decide(
        abs(times - 1) <= NEARLY and powers["cached"] < powers["uncached"],
        f"Its two fits differ by {powers['uncached'] - powers['cached']:.2f} in the exponent, "
        f"which the arithmetic changes by 1, and in the constant {times:.0f}-fold: a step has a "
        "price of its own.",
        in_shape=powers["cached"] < powers["uncached"],
    )


@claim("derivation-36", "Overhead eats a constant factor, never an exponent.", how="measured")
def _(said, ev):
    cells = ev.over_length()
    factors = cells["concat_ns"] / cells["compiled_ns"]
    low, high = slopes_apart(ev)
    promised = np.diff(
        [exponent(cells.index, counts(ev, cells, cached)) for cached in (True, False)]
    )
    eaten, whole = factors.min() <= 1 + NEARLY, high >= (1 - NEARLY) * promised[0]
    return decide(
        eaten and whole,
        "A compiled step changes a constant factor alone: at n = "
        f"{cells.index[0]} to {cells.index[-1]} the source's loop takes {factors.min():.1f} to "
        f"{factors.max():.1f} times as long. The slopes differ by {low:.2f} to {high:.2f}, where "
        f"the arithmetic promises {promised[0]:.2f}.",
        in_shape=eaten or whole,
    )


def counts(ev, cells, cached):
    """Multiplications of the loops of these lengths, [n_cells]."""
    return [arithmetic.loop(ev.config, n, cached) for n in cells.index]


@claim("derivation-37", "At short lengths the cache looks like nothing.", how="measured")
def _(said, ev):
    cell = ev.over_length().iloc[0]
    printed = ev.length["measured"].iloc[0]
    nothing = 1 + NEARLY
    return decide(
        cell["concat_high"] <= nothing,  # its low end would let noise alone look like nothing
        f"At n = {ev.over_length().index[0]} the source's loop gains {speedup(cell, 'concat')} "
        f"here and {printed} there; the compiled step gains {speedup(cell, 'compiled')}.",
        in_shape=cell["concat"] <= 1.5,
    )


@claim("derivation-38", "At length the cache must win.", how="derived")
def _(said, ev):
    lengths = range(2, 1025)
    ratios = np.array([arithmetic.ratio(ev.config, n) for n in lengths])
    last = ev.over_length().iloc[-1]
    slowest = min(CACHED, key=lambda path: last[path])
    rising = bool((np.diff(ratios) > 0).all() and ratios[0] > 1)
    return decide(
        rising and last[f"{slowest}_low"] > 1,
        f"Its multiplications are fewer from n = 2 on, and the ratio rises with every step, to "
        f"{ratios[-1]:.0f} at n = {lengths[-1]}. At n = {last.name} even the slowest way here, "
        f"{slowest}, gains {speedup(last, slowest)}.",
        in_shape=rising,
    )
