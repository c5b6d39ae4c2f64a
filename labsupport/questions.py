"""What every timing tool is asked: two functions, and how much longer the second takes.

    identical  two copies of one function, so the ratio is 1
    effect     the same small operation, some more times in one of them: the ratio is a count
    reuse      `full` and `frozen` of `labsupport.profile`, at the source's size: nobody knows

The copies share their arrays and their code. A tool that runs its own processes builds the
functions anew in each from the three words of an `Asked`.
"""

import math
from dataclasses import dataclass
from itertools import repeat

from labsupport import machine

machine.use_one_thread()

import numpy as np  # noqa: E402 (the thread pools are set before NumPy, which makes them, is loaded)

QUESTIONS = ["identical", "effect", "reuse"]
# Operations in the shorter path, and how many the longer has more: 0.5, 0.65 and 1.3 %.
COUNTS = {"quiet": (1200, 6), "bursts": (1200, 6), "ramp": (1077, 7), "loaded": (1077, 14)}

numbers, results = np.ones(16), np.empty(16)


@dataclass(frozen=True)
class Asked:
    """One question of QUESTIONS, put under a noise of `labsupport.noise` for the trial-th time."""

    question: str
    noise: str
    trial: int

    def counts(self):
        """Operations in f and in g; in odd trials f is the one that has more, if one has."""
        n, more = COUNTS[self.noise]
        if self.question == "identical":
            return n, n
        return (n + more, n) if self.trial % 2 else (n, n + more)

    @property
    def true_ratio(self):
        """time(g) / time(f), or not a number where it is unknown."""
        n_f, n_g = self.counts()
        return math.nan if self.question == "reuse" else n_g / n_f

    def paths(self):
        """The functions f and g; neither takes an argument."""
        return reuse() if self.question == "reuse" else tuple(map(repeated, self.counts()))


def repeated(n_operations):
    """A function that adds two arrays of 16 numbers `n_operations` times, about 0.22 µs each."""

    def path():
        for _ in repeat(None, n_operations):
            np.add(numbers, numbers, out=results)

    return path


def reuse():
    """A query that computes all its tokens, and one that reuses the first: (full, frozen)."""
    from labsupport import profile  # loads pandas, which the other questions do without
    from labsupport.prefix import FrozenDecoder

    case = profile.Case()
    plain, tokens = profile.setting(case, seed=0)
    model = FrozenDecoder(plain, profile.read_sources())
    query = (model, profile.warm_store(model, tokens, case.prefix), tokens, case.prefix)
    return lambda: profile.full(*query), lambda: profile.frozen(*query)
