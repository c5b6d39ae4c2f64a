"""Judging rows of paired times: the ratio, its interval, the verdict, and the reasons to doubt it.

    group    a few calls of both paths, one right after the other, equally often in both orders
    pair     the shortest time of each path in a group: interruptions only ever add time
    result   the median over groups of log(g / f), between two of the sorted groups (a sign test)
    floor    what sets even copies of a function apart, added to both ends in quadrature
    pool     a tenth of the groups: no verdict if all calls in it deny what the shortest say

Had f and g the same speed, swapping their names would give orders just as likely. So each group
favours either with probability 1/2, whatever the noise: the interval assumes nothing else of it.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.stats import binom

CONFIDENCE = 0.95
MARGIN = 0.002  # an interval within it is no verdict; only a floor below it lets that happen
# Where copies of a function lie in memory sets them apart for as long as they live, by so much in
# 95 % of pairs (1.96 times the root mean square). Over 66 pairs of a 270 µs NumPy function, 1.5 s
# a pair: 0.15 % rms with small arrays of their own, 0.06 % with shared arrays. No floor covers
# arrays that fill a cache or begin at different alignments (7 %), nor a loop of one short
# operation whose code lies badly (5 % in 2 of 36 copies): there one copy is slower as it lies.
PLACEMENT_FLOOR = 0.003
SHARED_FLOOR = 0.0012
FEW_GROUPS = 20  # with fewer, a warning: the interval's ends are among the outermost groups
BLURRED_SHARE = 0.01  # of a batch; a warning when the clock blurs more
POOLS = 10
RARE_CONFIDENCE = 0.99  # of warnings; all ten pools must agree, by chance once in 1024 each way
COLUMNS = ["group", "order", "path", "ns_per_call"]


@dataclass(frozen=True, eq=False)
class Comparison:
    """time(g) / time(f) with its interval, the verdict on g, and the rows behind both."""

    ratio: float
    low: float
    high: float
    verdict: str  # 'faster', 'slower' or 'cannot tell'
    margin: float
    confidence: float  # of this look; that of `compare` with all its looks is CONFIDENCE
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


def summarise(
    rows,
    margin=MARGIN,
    names=("f", "g"),
    batch=1,
    warmup_calls=0,
    clock_ns=0.0,
    *,
    floor=PLACEMENT_FLOOR,
    confidence=CONFIDENCE,
) -> Comparison:
    """Judge rows, recorded or live, with columns group, order, path, ns_per_call.

    `clock_ns` is what the clock blurs in a batch, its cost and resolution. Raises ValueError
    where a column is missing or a group does not hold each path equally often in both orders.
    """
    check(margin, names, floor)
    lowest_ns = _lowest_ns(rows, names)  # [n_groups, path, order]
    ratio, low, high = ratio_of_pairs(*lowest_ns.min(axis=2).T, confidence, floor)
    answer = verdict(low, high, margin)
    medians_ns = [float(rows.ns_per_call[rows.path == name].median()) for name in names]
    doubts = tuple(_doubts(lowest_ns, answer, margin, batch, clock_ns, floor))
    uneven = [*_uneven_calls(rows, names, low, high, answer, margin)]
    if uneven := uneven or [*_rare_slow_calls(rows, names, answer, margin)]:
        answer, doubts = "cannot tell", (uneven[0], *doubts)
    judged = (ratio, low, high, answer, margin, confidence, len(lowest_ns), batch, warmup_calls)
    return Comparison(*judged, *medians_ns, doubts, rows, tuple(names))


def _uneven_calls(rows, names, low, high, answer, margin):
    """Yield a warning for each average of all calls whose answer the shortest times deny."""
    pool = rows.groupby("group").ngroup() * POOLS // rows["group"].nunique()  # [n_rows]
    pooled = rows.groupby([pool, "path"])["ns_per_call"].agg(["mean", "median"]).unstack("path")
    for kind in ("mean", "median"):
        ratio, lo, hi = ratio_of_pairs(*(pooled[kind][p] for p in names), RARE_CONFIDENCE)
        if (lo > high or hi < low) and verdict(lo, hi, margin) not in (answer, "cannot tell"):
            seen = f"{kind}s {ratio:.4g}, shortest times {low:.4g} to {high:.4g}"
            what = f"calls of {names[lo > high]} are slower by themselves, not disturbed"
            yield f"uneven calls ({seen}): some {what}; look at rows, compare means"


def _rare_slow_calls(rows, names, answer, margin):
    """Yield a warning if means deny the answer because of calls that are slow on one path alone."""
    calls = rows.groupby("path")["ns_per_call"]
    slow = rows["path"][rows.ns_per_call > 2 * calls.transform("median")].value_counts()
    n_f, n_g = (int(slow.get(name, 0)) for name in names)
    means = calls.mean()
    ratio = means[names[1]] / means[names[0]]
    # A disturbance hits either path by the toss of a coin.
    by_chance = 2 * binom.cdf(min(n_f, n_g), n_f + n_g, 0.5) > 1 - RARE_CONFIDENCE
    if not by_chance and answer not in ("cannot tell", verdict(ratio, ratio, margin)):
        seen = f"{n_f} of {names[0]}, {n_g} of {names[1]}; means {ratio:.4g}"
        yield f"rare slow calls ({seen}): they are not disturbances; look at rows, compare means"


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


def _doubts(lowest_ns, answer, margin, batch, clock_ns, floor):
    """Yield the reasons not to trust a comparison, each with its figure and what to do."""
    f_ns, g_ns = lowest_ns.min(axis=2).T  # [n_groups] each
    if (n_groups := len(f_ns)) < FEW_GROUPS:
        need_s = 1.1e-9 * (FEW_GROUPS + 1) * 2 * batch * (f_ns + g_ns).mean()  # 2 rounds a group
        yield f"too few groups ({n_groups}): give budget_s {need_s:.2g} or more, and set-ups' time"
    # What g gains by coming second f gains in the other order: the root is one call's share.
    first_second_ns = np.sqrt(lowest_ns[:, 0] * lowest_ns[:, 1, ::-1])  # [n_groups, 2]
    share, low, high = ratio_of_pairs(*first_second_ns.T, RARE_CONFIDENCE)
    if verdict(low, high, margin) != "cannot tell":
        yield f"order effect (second / first {share:.4f}): set up fresh state for every call"
    halves = slice((n_groups + 1) // 2), slice(n_groups // 2, None)
    (early, low, high), (late, low_2, high_2) = (ratio_of_pairs(f_ns[h], g_ns[h]) for h in halves)
    if max(low, low_2) > min(high, high_2) * (1 + margin):
        yield f"drift (ratio {early:.4f}, then {late:.4f}): look for state that grows with calls"
    if clock_ns > BLURRED_SHARE * (batch_ns := batch * lowest_ns.min()):
        yield f"clock too coarse ({clock_ns:.0f} of {batch_ns:.0f} ns): do more work in one call"
    _, low, high = ratio_of_pairs(f_ns, g_ns, floor=0.0)
    seen, sought = math.sqrt(high / low) - 1 if low else 0.0, max(margin, floor)
    if answer == "cannot tell" and seen > sought:
        times = math.ceil((seen / sought) ** 2)
        yield f"wide spread (± {seen:.2%}): calm the machine or make budget_s {times} times as long"


def ratio_of_pairs(f_ns, g_ns, confidence=CONFIDENCE, floor=PLACEMENT_FLOOR):
    """Median of g / f over pairs with its interval: (ratio, low, high); f_ns, g_ns: [n_pairs].

    The ends are two order statistics (the sign test turned round: Conover, Practical Nonparametric
    Statistics, 3rd ed., section 3.2), moved outwards by the relative `floor`: an error that has
    nothing to do with the noise adds to it as a root of squares. With fewer pairs than the
    confidence needs (6 at 95 %) they are 0 and infinity. Raises ValueError for bad times.
    """
    f_ns, g_ns = np.asarray(f_ns, dtype=float), np.asarray(g_ns, dtype=float)
    if f_ns.ndim != 1 or f_ns.shape != g_ns.shape or f_ns.size == 0:
        raise ValueError(f"need as many times of f as of g, got shapes {f_ns.shape}, {g_ns.shape}")
    if not ((f_ns > 0) & (g_ns > 0) & np.isfinite(f_ns + g_ns)).all():
        raise ValueError("times must be positive and finite; leave out pairs that are not")
    logs = np.sort(np.log(g_ns / f_ns))  # [n_pairs]
    k = int(binom.ppf((1 - confidence) / 2, len(logs), 0.5))  # fewer than k heads are too rare
    low, high = (logs[k - 1], logs[-k]) if k else (-math.inf, math.inf)
    middle, apart = np.median(logs), math.log1p(floor)
    low, high = middle - math.hypot(middle - low, apart), middle + math.hypot(high - middle, apart)
    return math.exp(middle), math.exp(low), math.exp(high)


def verdict(low, high, margin):
    """'slower' or 'faster'; 'cannot tell' if the interval holds 1 or lies within the margin."""
    if low <= 1 <= high or (1 / (1 + margin) <= low and high <= 1 + margin):
        return "cannot tell"
    return "slower" if low > 1 else "faster"


def check(margin, names, floor):
    """Raises ValueError for a margin, names of paths or a floor that no comparison can have."""
    for name, value in {"margin": margin, "floor": floor}.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be a relative difference of 0 or more, got {value!r}")
    if isinstance(names, str) or len(names) != 2 or names[0] == names[1]:
        raise ValueError(f"names must be two different names, of f and of g; got {names!r}")
