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


@dataclass(frozen=True, eq=False)
class Comparison:
    """time(g) / time(f) with its interval, the verdict on g, and the rows behind both."""

    ratio: float
    low: float
    high: float
    verdict: str  # 'faster', 'slower' or 'cannot tell'
    margin: float
    confidence: float
    n_groups: int
    batch: int  # calls between two readings of the clock
    warmup_calls: int  # of each path, not among the rows
    median_f_ns: float  # per call; median_g_ns / median_f_ns is not the paired ratio
    median_g_ns: float
    warnings: tuple[str, ...]
    rows: pd.DataFrame = field(repr=False)  # one a batch, as measured: COLUMNS
    names: tuple[str, str]

    def __str__(self):
        width, (f, g) = min(max(self.high - self.low, 1e-4), 0.5), self.names
        places = 1 - math.floor(math.log10(width))  # two digits of the width
        ratio, low, high = (f"{x:.{places}f}" for x in (self.ratio, self.low, self.high))
        return f"{g} takes {ratio} ({low} to {high}) times as long as {f}: {self.verdict}"


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


def summarise(rows, margin=0.002, names=("f", "g"), batch=1, warmup_calls=0, clock_ns=0.0):
    """Judge rows, recorded or live, with columns group, order, path, ns_per_call: a `Comparison`.

    `clock_ns` is what the clock blurs in a batch, its cost and resolution. Raises ValueError
    where a column is missing or a group does not hold each path equally often in both orders.
    """
    _check(margin, names)
    lowest_ns = _lowest_ns(rows, names)  # [n_groups, path, order]
    ratio, low, high = ratio_of_pairs(*lowest_ns.min(axis=2).T)
    answer = verdict(low, high, margin)
    medians_ns = [float(rows.ns_per_call[rows.path == name].median()) for name in names]
    doubts = tuple(_doubts(lowest_ns, answer, margin, batch, clock_ns))
    if uneven := tuple(_uneven_calls(rows, names, low, high, answer, margin)):
        answer, doubts = "cannot tell", uneven[:1] + doubts
    judged = (ratio, low, high, answer, margin, CONFIDENCE, len(lowest_ns), batch, warmup_calls)
    return Comparison(*judged, *medians_ns, doubts, rows, tuple(names))


def _uneven_calls(rows, names, low, high, answer, margin):
    """Yield a warning for each average of all calls whose answer the shortest times deny."""
    pool = rows.groupby("group").ngroup() * POOLS // rows["group"].nunique()  # [n_rows]
    pooled = rows.groupby([pool, "path"])["ns_per_call"].agg(["mean", "median"]).unstack("path")
    for kind in ("mean", "median"):
        ratio, lo, hi = ratio_of_pairs(*(pooled[kind][p] for p in names), POOLED_CONFIDENCE)
        if (lo > high or hi < low) and verdict(lo, hi, margin) not in (answer, "cannot tell"):
            seen = f"{kind}s {ratio:.4g}, shortest times {low:.4g} to {high:.4g}"
            what = f"calls of {names[lo > high]} are slower by themselves, not disturbed"
            yield f"uneven calls ({seen}): some {what}; look at rows, compare means"


def _lowest_ns(rows, names):
    """Shortest time of each group, path and order (f first, g first): [n_groups, 2, 2]."""
    if not set(COLUMNS) <= set(rows):
        raise ValueError(f"rows need the columns {COLUMNS}, got {list(rows)}")
    if not (fine := rows.ns_per_call.between(0, math.inf, inclusive="neither")).all():
        raise ValueError(f"ns_per_call is no length of time in row {fine.idxmin()}; mend it")
    wanted = [(path, f"{first} first") for path in names for first in names]
    cells = rows.groupby(["group", "path", "order"])["ns_per_call"]
    sizes = cells.size().unstack(["path", "order"], fill_value=0)  # [n_groups, path x order]
    uneven = sizes.index[sizes.nunique(axis=1) != 1].tolist()
    if set(sizes) != set(wanted) or uneven:
        need = f"each group needs each (path, order) of {wanted} equally often and no other"
        raise ValueError(f"{need}; leave out unfinished groups {uneven[:5]}")
    return cells.min().unstack(["path", "order"])[wanted].to_numpy().reshape(-1, 2, 2)


def _doubts(lowest_ns, answer, margin, batch, clock_ns):
    """Yield the reasons not to trust a comparison, each with its figure and what to do."""
    f_ns, g_ns = lowest_ns.min(axis=2).T  # [n_groups] each
    if (n_groups := len(f_ns)) < FEW_GROUPS:
        need_s = 1.1e-9 * (FEW_GROUPS + 1) * 2 * batch * (f_ns + g_ns).mean()  # 2 rounds a block
        yield f"too few groups ({n_groups}): give budget_s {need_s:.2g} or more, and set-ups' time"
    # What g gains by coming second f gains in the other order: the root is one call's share.
    first_second_ns = np.sqrt(lowest_ns[:, 0] * lowest_ns[:, 1, ::-1])  # [n_groups, 2]
    share, low, high = ratio_of_pairs(*first_second_ns.T)
    if verdict(low, high, margin) != "cannot tell":
        yield f"order effect (second / first {share:.4f}): set up fresh state for every call"
    halves = slice((n_groups + 1) // 2), slice(n_groups // 2, None)
    (early, low, high), (late, low_2, high_2) = (ratio_of_pairs(f_ns[h], g_ns[h]) for h in halves)
    if max(low, low_2) > min(high, high_2) * (1 + margin):
        yield f"drift (ratio {early:.4f}, then {late:.4f}): look for state that grows with calls"
    if clock_ns > BLURRED_SHARE * (batch_ns := batch * lowest_ns.min()):
        yield f"clock too coarse ({clock_ns:.0f} of {batch_ns:.0f} ns): do more work in one call"
    _, low, high = ratio_of_pairs(f_ns, g_ns, floor=0.0)
    seen, sought = math.sqrt(high / low) - 1 if low else 0.0, max(margin, PLACEMENT_FLOOR)
    if answer == "cannot tell" and seen > sought:
        times = math.ceil((seen / sought) ** 2)
        yield f"wide spread (± {seen:.2%}): calm the machine or make budget_s {times} times as long"


def ratio_of_pairs(f_ns, g_ns, confidence=CONFIDENCE, floor=PLACEMENT_FLOOR):
    """Median of g / f over pairs with its interval: (ratio, low, high); f_ns, g_ns: [n_pairs].

    The ends are two order statistics (the sign test turned round: Conover, Practical Nonparametric
    Statistics, 3rd ed., section 3.2), moved outwards by the relative `floor`; with fewer pairs
    than the confidence needs (6 at 95 %), 0 and infinity. Raises ValueError for bad times.
    """
    f_ns, g_ns = np.asarray(f_ns, dtype=float), np.asarray(g_ns, dtype=float)
    if f_ns.ndim != 1 or f_ns.shape != g_ns.shape or f_ns.size == 0:
        raise ValueError(f"need as many times of f as of g, got shapes {f_ns.shape}, {g_ns.shape}")
    if not ((f_ns > 0) & (g_ns > 0) & np.isfinite(f_ns + g_ns)).all():
        raise ValueError("times must be positive and finite; leave out pairs that are not")
    logs = np.sort(np.log(g_ns / f_ns))  # [n_pairs]
    k = int(binom.ppf((1 - confidence) / 2, len(logs), 0.5))  # fewer than k heads are too rare
    low, high = (logs[k - 1], logs[-k]) if k else (-math.inf, math.inf)
    return math.exp(np.median(logs)), math.exp(low) / (1 + floor), math.exp(high) * (1 + floor)


def verdict(low, high, margin):
    """'slower' or 'faster'; 'cannot tell' if the interval holds 1 or lies within the margin."""
    if low <= 1 <= high or (1 / (1 + margin) <= low and high <= 1 + margin):
        return "cannot tell"
    return "slower" if low > 1 else "faster"


def clock_cost_ns():
    """What reading the clock adds to the time between two readings, in nanoseconds (a median)."""
    clock = perf_counter_ns
    return float(np.median([-(clock() - clock()) for _ in range(2000)]))


def clock_resolution_ns():
    """The smallest step of the clock in nanoseconds, as the system states it."""
    return get_clock_info("perf_counter").resolution * 1e9


def _check(margin, names):
    if not 0 <= margin < math.inf:
        raise ValueError(f"margin must be a relative difference of 0 or more, got {margin!r}")
    if isinstance(names, str) or len(names) != 2 or names[0] == names[1]:
        raise ValueError(f"names must be two different names, of f and of g; got {names!r}")
