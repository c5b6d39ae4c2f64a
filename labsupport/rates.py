"""What this machine can do with one thread: what a call costs, how fast it reads and multiplies.

    probe    a call that reads, multiplies or dispatches a known amount, and nothing else
    round    every probe once, in a random order, after untimed calls that bring its data near
    typical  the median over rounds: what a prediction uses
    best     a low quantile over rounds: what a floor uses, which the machine has been seen to reach

A rate has no step of a model in it, so that what `roofline` predicts is not fitted to what it is
held against. Rounds can be put between those of another measurement: `Timer.round`.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns

import numba
import numpy as np
import torch
from tqdm import tqdm

from labsupport.kvcache import whole_number
from labsupport.timing import collector_off

MB = 10**6
SIZES = [round(2**k * MB) for k in range(-2, 9)]  # bytes, 0.25 MB to 256 MB
# The probe before drove this one's data out. A last-level cache takes what is read over and over
# only by and by: with 9 MB of matrices, a product of a row took 818, 534, 336, 234, 196, 176 µs.
WARM_CALLS, WARM_NS = 8, 50_000_000  # untimed before each batch; as many as fit that time
BATCH_NS = 500_000  # a probe is called until about so much time has passed
BEST = 0.1  # the quantile of `best`


@dataclass(frozen=True)
class Probe:
    """A call and what it asks of the machine.

    name, at      what is called, and its sizes as {name: number}
    n_bytes       read from memory or from a cache, once a call
    n_flops       floating-point operations, a multiplication and an addition being two
    n_operations  calls of a library
    """

    name: str
    call: Callable[[], object]
    at: dict
    n_bytes: int = 0
    n_flops: int = 0
    n_operations: int = 0


class Timer:
    """Times probes round by round. ValueError if two of them have the same name and sizes."""

    def __init__(self, probes, seed=0):
        self.probes, self._rng = list(probes), random.Random(seed)
        seen = [(probe.name, tuple(probe.at.items())) for probe in self.probes]
        if twice := [one for one in seen if seen.count(one) > 1]:
            raise ValueError(f"probes need names or sizes that differ, not twice {twice[0]}")
        self.ns = [[] for _ in self.probes]  # per call, one a round
        with collector_off():
            first_ns = [min(_time(probe.call, 1) for _ in range(3)) for probe in self.probes]
        self._batch = [max(1, round(BATCH_NS / max(ns, 1))) for ns in first_ns]

    def round(self):
        """Time every probe once more, in a random order."""
        with collector_off():
            for i in self._rng.sample(range(len(self.probes)), len(self.probes)):
                end_ns = perf_counter_ns() + WARM_NS
                for _ in range(WARM_CALLS):
                    self.probes[i].call()
                    if perf_counter_ns() > end_ns:
                        break
                self.ns[i].append(_time(self.probes[i].call, self._batch[i]) / self._batch[i])

    def rates(self):
        """What was measured, as plain JSON values: {"rounds": ..., "probes": [{...}, ...]}.

        A probe has its name, its sizes, n_bytes, n_flops, n_operations, typical_ns, best_ns.
        """
        rows = []
        for probe, ns in zip(self.probes, self.ns, strict=True):
            amounts = {n: getattr(probe, n) for n in ("n_bytes", "n_flops", "n_operations")}
            taken = {"typical_ns": float(np.median(ns)), "best_ns": float(np.quantile(ns, BEST))}
            rows.append({"name": probe.name, **probe.at, **amounts, **taken})
        return {"rounds": len(self.ns[0]), "probes": rows}


def _time(call, batch):
    start_ns = perf_counter_ns()
    for _ in range(batch):
        call()
    return perf_counter_ns() - start_ns


def measure(timed=None, rounds=15, seed=0):
    """The rates of `probes` (or of those given) over so many rounds; see `Timer.rates`."""
    whole_number("rounds", rounds, at_least=1)
    timer = Timer(probes() if timed is None else timed, seed)
    for _ in tqdm(range(rounds), desc="rates", disable=None):
        timer.round()
    return timer.rates()


# Reading


@numba.njit(fastmath=True)  # else additions keep their order, and each waits for the one before
def _sum(x):
    total = np.float32(0)
    for i in range(x.shape[0]):
        total += x[i]
    return total


def _numba_sum(x):
    return lambda: _sum(x)


def _torch_sum(x):
    x = torch.from_numpy(x)
    return lambda: x.sum()


def _numpy_dot(x):
    left, right = np.split(x, 2)  # two halves: x with itself would load every number twice
    return lambda: np.dot(left, right)


def _numpy_matrix(x):
    w = x.reshape(-1, 250)
    v, out = w[0].copy(), np.empty(len(w), np.float32)
    return lambda: np.dot(w, v, out=out)


READERS = {  # what reads an array [n] of float32 once, made for one array
    "read: numba sum": _numba_sum,
    "read: torch sum": _torch_sum,
    "read: NumPy dot": _numpy_dot,
    "read: NumPy matrix-vector": _numpy_matrix,
}


def probes(sizes=SIZES):
    """Every reader with an array of each size, in bytes: a list of Probe.

    The readers of one size share their array, which is why the largest sizes cost no more memory.
    Sizes are whole numbers of 1000 bytes, so that matrices of 250 columns fill them.
    """
    made, rng = [], np.random.default_rng(0)
    for n_bytes in sizes:
        if whole_number("a size", n_bytes, at_least=1000) % 1000:
            raise ValueError(f"a size must be a multiple of 1000 bytes, not {n_bytes}")
        x = rng.standard_normal(n_bytes // 4, dtype=np.float32)
        for name, make in READERS.items():
            made.append(Probe(name, make(x), {"size": n_bytes}, n_bytes=x.nbytes))
    return made


def bandwidth(rates, n_bytes, which="best_ns"):
    """Bytes a second at which `n_bytes` that are read over and over can be read.

    That of the fastest reader at each size, on straight lines between the logarithms of sizes and
    rates; beyond the sizes measured it stays as at the last. ValueError without any reader.
    """
    fastest = {}
    for row in rates["probes"]:
        if row["name"] in READERS:
            rate = row["n_bytes"] / row[which] * 1e9
            fastest[row["n_bytes"]] = max(rate, fastest.get(row["n_bytes"], 0))
    if not fastest:
        raise ValueError(f"these rates hold none of {list(READERS)}; measure with rates.probes()")
    sizes = sorted(fastest)
    logs = np.interp(np.log(n_bytes), np.log(sizes), np.log([fastest[size] for size in sizes]))
    return float(np.exp(logs)) if np.ndim(n_bytes) == 0 else np.exp(logs)
