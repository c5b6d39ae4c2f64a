"""Which of two functions is faster? A paired comparison that says so only when it can.

A machine's speed wanders by more than the effects this course looks for, so no path is averaged
over a stretch of time of its own: f and g are called in turns, and only neighbours are compared.

    round    each path timed once, one right after the other
    block    two rounds, f g g f or g f f g by a coin: neither drift nor coming second favours one
    group    one or two blocks, giving log(g / f) of the shortest times: interruptions add time
    result   the median over groups, between two of the sorted groups (a sign test)
    pool     a tenth of the groups: no verdict if all calls in it deny what the shortest say

Had f and g the same speed, swapping their names would give orders just as likely. So each group
favours either with probability 1/2, whatever the noise: the interval assumes nothing else of it.
"""

import gc
import math
import random
from dataclasses import dataclass, field
from itertools import repeat
from time import get_clock_info, perf_counter_ns

import numpy as np
import pandas as pd
from scipy.stats import binom

CONFIDENCE = 0.95
# Where copies of a function lie in memory sets them apart for good: over 66 pairs of a 270 µs NumPy
# function with small arrays of their own, 1.5 s a pair, by 0.15 % (root mean square of log ratios;
# 95 % within 1.96 times that). Shared arrays: 0.06 %, arrays that fill a cache 0.3 %; share them.
PLACEMENT_FLOOR = 0.003
WARMUP_SHARE = 0.05  # of the budget; each path is called at least twice
BATCH_CLOCKS = 1000  # a batch lasts at least as long as so many clock readings
WANTED_GROUPS = 40  # two blocks a group only where that many groups remain
FEW_GROUPS = 20  # with fewer, a warning: the interval's ends are among the outermost groups
BLURRED_SHARE = 0.01  # of a batch; a warning when the clock blurs more
POOLS, POOLED_CONFIDENCE = 10, 0.99  # all ten must agree: by chance once in 1024 each way
COLUMNS = ["group", "order", "path", "ns_per_call"]


def compare(
    f, g, *, budget_s=2.0, margin=0.002, seed=None, setup_f=None, setup_g=None, names=("f", "g")
) -> Comparison:
    """Time g against f for about `budget_s` seconds, warm-up and set-up included.

    f and g are called without arguments; but what `setup_f` (`setup_g`) returns, called untimed
    before each call, becomes the one argument of f (g). `margin` is the least relative difference
    that matters, `seed` fixes the order of calls. One group is measured even if it overruns.
    Raises TypeError or ValueError for bad arguments; lets exceptions of f, g and set-ups through.
    """
    for name, call in {"f": f, "g": g, "setup_f": setup_f, "setup_g": setup_g}.items():
        if not callable(call) and (call is not None or name in "fg"):
            raise TypeError(f"{name} must be a function, passed without calling it; got {call!r}")
    if not 0 < budget_s < math.inf:
        raise ValueError(f"budget_s must be a positive number of seconds, got {budget_s!r}")
    _check(margin, names)
    paths = dict(zip(names, [(f, setup_f), (g, setup_g)], strict=True))
    cost_ns = clock_cost_ns()
    clock_ns = cost_ns + clock_resolution_ns()
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        end_ns = perf_counter_ns() + budget_s * 1e9
        batch, calls, round_ns = _warm_up(paths, clock_ns, budget_s * 1e9)
        n_blocks = 2 if end_ns - perf_counter_ns() >= 4 * WANTED_GROUPS * round_ns else 1
        rows = _measure(paths, batch, n_blocks, cost_ns, end_ns, random.Random(seed))
    finally:
        if was_collecting:
            gc.enable()
    return summarise(pd.DataFrame(rows, columns=COLUMNS), margin, names, batch, calls, clock_ns)


def _time_batch(call, setup, batch):
    """Nanoseconds between two stamps around `batch` calls; the same lines serve both paths."""
    clock = perf_counter_ns
    arguments = () if setup is None else (setup(),)
    start_ns = clock()
    for _ in repeat(None, batch):
        call(*arguments)
    return clock() - start_ns


def _warm_up(paths, clock_ns, budget_ns):
    """Call both in turns: (batch, grown while it is short and WANTED_GROUPS fit; calls; round)."""
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
            return batch, calls, round_ns[-1]


def _measure(paths, batch, n_blocks, cost_ns, end_ns, rng):
    """Rows of as many whole groups as should end in time, but of one at least."""
    rows, group, group_ns = [], 0, 0
    while group == 0 or perf_counter_ns() + group_ns <= end_ns:
        before_ns = perf_counter_ns()
        for _ in range(n_blocks):
            order = rng.sample(list(paths), 2)
            for first, second in (order, order[::-1]):
                for name in (first, second):
                    elapsed_ns = _time_batch(*paths[name], batch) - cost_ns
                    rows.append((group, f"{first} first", name, max(elapsed_ns, 1.0) / batch))
        group, group_ns = group + 1, perf_counter_ns() - before_ns
    return rows


def clock_cost_ns():
    """What reading the clock adds to the time between two readings, in nanoseconds (a median)."""
    clock = perf_counter_ns
    return float(np.median([-(clock() - clock()) for _ in range(2000)]))


def clock_resolution_ns():
    """The smallest step of the clock in nanoseconds, as the system states it."""
    return get_clock_info("perf_counter").resolution * 1e9


