"""The prices of `costmodel`, fitted to the times of some hundred `pieces` of code.

Each piece is counted by the tools that count a query and timed in the company of all others, in a
random order, so that it finds the processor's caches as the calls of a query do, not warmed by
itself. The prices are those, none below 0, that fit all times with the least relative error.
"""

import random
import tempfile
from contextlib import contextmanager
from time import perf_counter_ns

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from labsupport import costmodel, opcounts
from labsupport.pieces import Piece, pieces
from labsupport.timing import collector_off

LONG_NS = 10_000
MMAP_LIMIT_BYTES = 31 * 2**20  # glibc adapts to blocks of up to 32 MiB (mallopt(3))
NOTHING = Piece("nothing", lambda: None)


def keep_memory():
    """Have glibc keep freed memory for the process, so that big arrays cost no page faults.

    It hands out blocks over a threshold page by page from the operating system, and raises the
    threshold to the largest such block that was freed (mallopt(3), M_MMAP_THRESHOLD). Else the
    time of a query depends on what the process did before. Nothing happens with other allocators.
    """
    np.empty(MMAP_LIMIT_BYTES, np.uint8)


def time_in_turns(timed, budget_s, seed=0):
    """Times of each piece in ns, one array a piece, the cost of the clock subtracted.

    Short and long pieces take turns among themselves. A long one is called twice and the second
    call is timed: its numbers, not its code, are what should be near.
    """
    rng, times, nothing = random.Random(seed), [[] for _ in timed], []
    with collector_off():
        first_ns = [min(_time(piece) for _ in range(3)) for piece in timed]
        for long in (False, True):
            group = [i for i, ns in enumerate(first_ns) if (ns > LONG_NS) == long]
            end_ns = perf_counter_ns() + budget_s / 2 * 1e9
            while group and (perf_counter_ns() < end_ns or not times[group[0]]):
                for i in rng.sample(group, len(group)):
                    if long:
                        _time(timed[i])
                    times[i].append(_time(timed[i]))
                nothing.append(_time(NOTHING))
    return [np.array(ns) - _of_faster_half(nothing) for ns in times]


def _time(piece):
    function, args = piece.function, piece.args
    start_ns = perf_counter_ns()
    function(*args)
    return perf_counter_ns() - start_ns


def fit(counts, measured_ns):
    """Prices, none below 0, whose sums come nearest to the times by relative error: {name: ns}.

    counts is a DataFrame, pieces by PRICES; measured_ns one time a piece. ValueError when a time
    is not above 0.
    """
    measured_ns = np.asarray(measured_ns, dtype=float)
    if not (measured_ns > 0).all():
        said = "a piece took no time; is the clock too coarse? Measure again, with more time"
        raise ValueError(f"piece {int(np.argmin(measured_ns))} took {measured_ns.min()} ns: {said}")
    relative = counts[list(costmodel.PRICES)].to_numpy(dtype=float) / measured_ns[:, None]
    prices, _ = nnls(relative, np.ones(len(relative)))
    return dict(zip(costmodel.PRICES, map(float, prices), strict=True))


@contextmanager
def prepared():
    """The pieces and a DataFrame of what each asks for, while the files exist that they read."""
    keep_memory()
    with tempfile.TemporaryDirectory() as directory:
        timed = pieces(directory)
        yield timed, pd.DataFrame([piece.amounts() for piece in timed])


def typical_ns(*turns):
    """The mean of the faster half of each piece's times, as `time_in_turns` returned: [n_pieces].

    Not of all, since a neighbour on the machine makes many calls slower and none faster; not the
    least, since that is a call which happened to find everything near; and no order statistic,
    which would be a whole number of the clock's steps (100 ns on Windows), often none at all.
    """
    return np.array([_of_faster_half(np.concatenate(ns)) for ns in zip(*turns, strict=True)])


def _of_faster_half(ns):
    return float(np.sort(ns)[: (len(ns) + 1) // 2].mean())


def calibrate(budget_s=3.5):
    """The prices on this machine, now: {name: ns}. Takes `budget_s` and about a second."""
    with prepared() as (timed, counts):
        return fit(counts, typical_ns(time_in_turns(timed, budget_s)))


def call_price(counts, measured_ns):
    """What a call costs if nothing else did: the one price, in ns, that fits the short pieces."""
    calls = counts[list(opcounts.KINDS)].sum(axis=1).to_numpy()
    short = (measured_ns < LONG_NS) & (calls > 0)
    relative = calls[short] / measured_ns[short]
    return float(relative.sum() / (relative @ relative))
