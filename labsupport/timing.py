"""Which of two functions is faster? A paired comparison that says so only when it can.

A machine's speed wanders by more than the effects this course looks for, so no path is averaged
over a stretch of time of its own: f and g are called in turns, and only neighbours are compared.

    round    each path timed once, one right after the other
    group    two rounds, f g g f or g f f g by a coin: neither drift nor coming second favours one
    looks    the rows are judged a few times (see `pairs`), and a clear case ends there
    risk     each look may mislead a little, all together in at most 5 % of comparisons
"""

import gc
import math
import random
from contextlib import contextmanager
from itertools import count, repeat
from time import get_clock_info, perf_counter_ns

import numpy as np
import pandas as pd

from labsupport.pairs import (
    COLUMNS,
    CONFIDENCE,
    MARGIN,
    PLACEMENT_FLOOR,
    SHARED_FLOOR,
    Comparison,
    check,
    ratio_of_pairs,
    summarise,
    verdict,
)

__all__ = [
    "CONFIDENCE",
    "LOOKS",
    "MARGIN",
    "PLACEMENT_FLOOR",
    "SHARED_FLOOR",
    "Comparison",
    "clock_cost_ns",
    "clock_resolution_ns",
    "collector_off",
    "compare",
    "ratio_of_pairs",
    "summarise",
    "verdict",
]

WARMUP_SHARE = 0.05  # of the budget; each path is called at least twice
BATCH_CLOCKS = 1000  # a batch lasts at least as long as so many clock readings
WANTED_GROUPS = 40  # a batch leaves time for so many, and no look comes before them
# Share of the budget -> risk that the interval of this look misses the truth. The sum bounds the
# risk of them all (Bonferroni), whichever look ends the comparison.
LOOKS = {1 / 8: 0.005, 1 / 4: 0.005, 1 / 2: 0.01, 1: 0.03}


def compare(
    f,
    g,
    *,
    budget_s=2.0,
    margin=MARGIN,
    seed=None,
    setup_f=None,
    setup_g=None,
    names=("f", "g"),
    floor=PLACEMENT_FLOOR,
    whole_budget=False,
) -> Comparison:
    """Time g against f for `budget_s` seconds at most, warm-up and set-up included.

    f and g are called without arguments; but what `setup_f` (`setup_g`) returns, called untimed
    before each call, becomes the one argument of f (g). Let both read the same arrays where they
    can, and say so by `floor=SHARED_FLOOR`: arrays of their own set even copies of f apart.

    margin        the least relative difference that matters
    seed          fixes the order of calls
    floor         the relative difference that copies of f may show, see `pairs`
    whole_budget  do not end early, however clear the answer; one look at the end

    One group is measured even if it overruns. Raises TypeError or ValueError for bad arguments;
    lets exceptions of f, g and set-ups through.
    """
    for name, call in {"f": f, "g": g, "setup_f": setup_f, "setup_g": setup_g}.items():
        if not callable(call) and (call is not None or name in "fg"):
            raise TypeError(f"{name} must be a function, passed without calling it; got {call!r}")
    if not 0 < budget_s < math.inf:
        raise ValueError(f"budget_s must be a positive number of seconds, got {budget_s!r}")
    check(margin, names, floor)
    paths = dict(zip(names, [(f, setup_f), (g, setup_g)], strict=True))
    looks = {1: 1 - CONFIDENCE} if whole_budget else LOOKS
    cost_ns = clock_cost_ns()
    clock_ns = cost_ns + clock_resolution_ns()
    with collector_off():
        start_ns, budget_ns = perf_counter_ns(), budget_s * 1e9
        batch, calls = _warm_up(paths, clock_ns, budget_ns)
        groups, rows = _groups(paths, batch, cost_ns, random.Random(seed)), []
        for share, risk in looks.items():
            _measure_until(start_ns + share * budget_ns, groups, rows)
            if share < 1 and len(rows) < 4 * WANTED_GROUPS:
                continue
            table = pd.DataFrame(rows, columns=COLUMNS)
            judged = summarise(
                table, margin, names, batch, calls, clock_ns, floor=floor, confidence=1 - risk
            )
            if judged.verdict != "cannot tell" and not judged.warnings:
                break
    return judged


@contextmanager
def collector_off():
    """Within, the garbage collector does not run by itself; afterwards it is as it was."""
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_collecting:
            gc.enable()


def _time_batch(call, setup, batch):
    """Nanoseconds between two stamps around `batch` calls; the same lines serve both paths."""
    clock = perf_counter_ns
    arguments = () if setup is None else (setup(),)
    start_ns = clock()
    for _ in repeat(None, batch):
        call(*arguments)
    return clock() - start_ns


def _warm_up(paths, clock_ns, budget_ns):
    """Call both in turns: (batch, grown while it is short and WANTED_GROUPS fit; calls of each)."""
    may_batch = all(setup is None for _, setup in paths.values())
    batch, calls, round_ns = 1, 0, []
    while True:
        start_ns = perf_counter_ns()
        shortest_ns = min(_time_batch(*path, batch) for path in paths.values())
        round_ns.append(perf_counter_ns() - start_ns)
        calls += batch
        doubled_fits = 2 * WANTED_GROUPS * 2 * round_ns[-1] <= budget_ns  # two rounds a group
        if may_batch and doubled_fits and shortest_ns < BATCH_CLOCKS * clock_ns:
            batch *= 2
        elif len(round_ns) >= 2 and sum(round_ns) >= WARMUP_SHARE * budget_ns:  # 1st: first use
            return batch, calls


def _groups(paths, batch, cost_ns, rng):
    """Yield the four rows of a group, measured when they are asked for, without end."""
    for group in count():
        order, rows = rng.sample(list(paths), 2), []
        for first, second in (order, order[::-1]):
            for name in (first, second):
                elapsed_ns = _time_batch(*paths[name], batch) - cost_ns
                rows.append((group, f"{first} first", name, max(elapsed_ns, 1.0) / batch))
        yield rows


def _measure_until(end_ns, groups, rows):
    """Add to `rows` as many whole groups as should end in time; the first one in any case."""
    group_ns = 0
    while not rows or perf_counter_ns() + group_ns <= end_ns:
        before_ns = perf_counter_ns()
        rows += next(groups)
        group_ns = perf_counter_ns() - before_ns


def clock_cost_ns():
    """What reading the clock adds to the time between two readings, in nanoseconds (a median)."""
    clock = perf_counter_ns
    return float(np.median([-(clock() - clock()) for _ in range(2000)]))


def clock_resolution_ns():
    """The smallest step of the clock in nanoseconds, as the system states it."""
    return get_clock_info("perf_counter").resolution * 1e9
