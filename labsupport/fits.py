"""How a time grows with a length: one power law, its interval over rounds, and sums of powers."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

LEVEL = 0.95


@dataclass(frozen=True)
class Fit:
    """A fitted curve over the lengths it was fitted to.

    terms    power of n -> coefficient, in units of the times; one pair for a power law
    fitted   what the curve gives at each length, [n_lengths]
    misses   fitted / measured - 1, [n_lengths]
    """

    terms: dict[float, float]
    fitted: np.ndarray
    misses: np.ndarray

    @property
    def exponent(self) -> float:
        """The power of a fit of one term; ValueError for another."""
        (power,) = self.terms
        return power

    @property
    def worst(self) -> float:
        """The largest miss, without its sign."""
        return float(np.abs(self.misses).max())


def power_law(n, times) -> Fit:
    """times ≈ constant · n^exponent: least squares of log(times) over log(n).

    Raises ValueError unless there are two or more different lengths, all numbers positive.
    """
    n, times = _checked(n, times)
    exponent, log_constant = np.polyfit(np.log(n), np.log(times), 1)
    return _fit(n, times, {float(exponent): float(np.exp(log_constant))})


def sum_of_powers(n, times, powers=(2, 3)) -> Fit:
    """times ≈ sum of c_p · n^p with c_p >= 0, the sum of the squared relative misses least.

    Raises ValueError unless there are at least as many different lengths as powers, all positive.
    """
    n, times = _checked(n, times, at_least=len(powers))
    shares = n[:, None] ** np.array(powers, float) / times[:, None]  # [n_lengths, n_powers]
    scale = shares.max(axis=0)  # so that no power drowns another in rounding
    found, _ = nnls(shares / scale, np.ones(len(n)))
    return _fit(n, times, dict(zip(powers, (found / scale).tolist(), strict=True)))


def local_exponents(n, times) -> np.ndarray:
    """The slope of log(times) over log(n) between neighbours, [n_lengths - 1]: of a power law, one
    number throughout."""
    n, times = _checked(n, times)
    return np.diff(np.log(times)) / np.diff(np.log(n))


def interval(n, rounds, of=lambda n, times: power_law(n, times).exponent, draws=1000, seed=0):
    """A bootstrap interval (low, high) of `of(n, medians)` at LEVEL: rounds are drawn again.

    rounds [n_rounds, n_lengths] are times; a round is drawn as a whole, so that what slowed all
    lengths of a round does so in the draw too. Percentile method (Efron and Tibshirani,
    An Introduction to the Bootstrap, 1993, chapter 13).

    Raises ValueError for fewer than two rounds, whose spread nothing shows.
    """
    rounds = np.asarray(rounds, float)
    if rounds.ndim != 2 or len(rounds) < 2:
        raise ValueError(f"rounds must be two or more rows of times, not {list(rounds.shape)}")
    _checked(n, rounds[0])
    drawn = np.random.default_rng(seed).integers(len(rounds), size=(draws, len(rounds)))
    values = [of(n, np.median(rounds[rows], axis=0)) for rows in drawn]
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _fit(n, times, terms):
    fitted = sum(c * n**power for power, c in terms.items())
    return Fit(terms, fitted, fitted / times - 1)


def _checked(n, times, at_least=2):
    n, times = np.asarray(n, float), np.asarray(times, float)
    if n.ndim != 1 or n.shape != times.shape:
        raise ValueError(f"one time for each length, not {list(times.shape)} for {list(n.shape)}")
    if len(set(n.tolist())) < at_least:
        raise ValueError(f"{at_least} different lengths are needed, not {len(set(n.tolist()))}")
    if not all(np.isfinite(x).all() and (x > 0).all() for x in (n, times)):
        raise ValueError("lengths and times must be positive and finite")
    return n, times
