"""Checks of the exercises of chapter 3 about draws that flip."""

import numpy as np
from scipy.special import logsumexp

from labsupport.checks import NotYet, array, call, exercise, value
from labsupport.checks_derivation_numbers import several


@exercise("derivation", "gaps", 3)
def gaps(function, n_certain):
    """Gaps of 200 steps over 12 symbols, and how many steps are safe at several errors."""
    rng = np.random.default_rng(31)
    logits, noise = 2 * rng.standard_normal((200, 12)), rng.gumbel(size=(200, 12))
    right = _gaps(logits + noise)
    shares = np.exp(logits + noise)
    shares /= shares.sum(axis=1, keepdims=True)
    mistakes = {
        "gaps of the logits alone: what is drawn has noise added": _gaps(logits),
        "gaps of probabilities: the draw compares logits and noise": _gaps(shares),
        "the gap between the largest and the smallest": np.ptp(logits + noise, axis=1),
        "the gap between the second and the first, below 0": -right,
    }
    array("gaps(logits, noise)", call(function, logits, noise), right, mistakes, atol=1e-9)
    for off in (0.3, 0.05):
        mistakes = {
            "one logit moving: the leader may fall while the second rises": (right > off).sum(),
            "the steps that may flip, not those that cannot": (right <= 2 * off).sum(),
            "a share, where a number of steps is asked": (right > 2 * off).mean(),
            "gaps of the logits alone": (_gaps(logits) > 2 * off).sum(),
        }
        want = int((right > 2 * off).sum())
        value(f"n_certain at {off}", call(n_certain, logits, noise, off), want, mistakes)
    return (
        "A run without a flip is luck; this is a proof for its steps. Had the source drawn so "
        "and no logit moved by more than its 9.06e-06, only a gap up to 1.8e-05 could have flipped."
    )


def _gaps(scores):
    """By how much the largest of each row leads the second, [n_steps]."""
    second, first = np.partition(scores, -2, axis=1)[:, -2:].T
    return first - second


@exercise("derivation", "flip_chances", 4)
def flip_chances(function):
    """Logits that differ a little, and much; too large for exp; one of a probability of 0."""
    rng = np.random.default_rng(41)
    logits = 2 * rng.standard_normal(10)
    for other in (logits + 0.05 * rng.standard_normal(10), rng.permutation(logits)):
        _flip_chances(function, logits, other)
    _flip_chances(function, logits + 1500, other + 1500)
    never = 800.0 * (np.arange(10) == 3)
    _flip_chances(function, logits - never, other - never)
    return (
        "No way to draw flips less often than the last, half the sum of the differences. Gumbel "
        "noise stays within twice that; the running sum depends on the order of the alphabet."
    )


def _flip_chances(function, logits, other):
    with np.errstate(all="ignore"):
        got = several("flip_chances(...)", call(function, logits, other), 3)
    p, r = softmax(logits), softmax(other)
    if not np.isfinite(np.array(got, float)).all():
        if not (p.all() and r.all()):
            raise NotYet(
                "A symbol's probability may be 0 in float64, and 0 / 0 is nan. Its logit is as "
                "good as any other: what is a quotient of two probabilities in terms of logits?"
            )
        raise NotYet(
            "Of logits of 1,500 exp overflows. Softmax does not change when one number is "
            "subtracted from all of a step's logits."
        )
    running, gumbel, least = chances(logits, other)
    edges = np.abs(np.cumsum(p) - np.cumsum(r)).sum()
    independent = 1 - (p * r).sum()
    mistakes = {
        "the sum of how far the edges move: one that passes another is counted twice": edges,
        "the least possible chance: the order of the alphabet counts here": least,
        "two numbers drawn independently: both paths are given the same": independent,
        "the chance that the draws agree": 1 - running,
    }
    value("The chance with a running sum", got[0], running, mistakes)
    mistakes = {
        "the least possible chance: Gumbel noise needs a little more": least,
        "noise drawn independently: both paths are given the same": independent,
        "the chance that the draws agree": 1 - gumbel,
    }
    value("The chance with Gumbel noise", got[1], gumbel, mistakes)
    mistakes = {
        "all differences summed: what one symbol loses another gains": 2 * least,
        "the largest difference of a probability": np.abs(p - r).max(),
        "the chance that the draws agree": 1 - least,
    }
    value("The least chance", got[2], least, mistakes)


def softmax(logits):
    """Probabilities, [vocab_size]."""
    shares = np.exp(logits - logits.max())
    return shares / shares.sum()


def chances(logits, other):
    """The chances that two draws differ: (running sum, Gumbel, least). One is from p, the softmax
    of `logits`, [vocab_size], and one from r, that of `other`.

    Running sum: cut [0, 1] at the edges of both, and see in which pieces the symbols differ.
    Gumbel: argmax(log p + noise) is the first to arrive of E_i / p_i, with E_i exponential; symbol
    i is the first of both with probability 1 / sum_j max(p_j / p_i, r_j / r_i), with quotients
    from logits, of which none is 0 / 0. Least: no two
    draws agree more often than sum_i min(p_i, r_i), the maximal coupling.
    """
    p, r = softmax(logits), softmax(other)
    cuts = np.sort(np.concatenate([[0.0, 1.0], np.cumsum(p)[:-1], np.cumsum(r)[:-1]]))
    middles, widths = (cuts[1:] + cuts[:-1]) / 2, np.diff(cuts)
    symbols = [np.searchsorted(np.cumsum(x)[:-1], middles) for x in (p, r)]
    running = widths[symbols[0] != symbols[1]].sum()
    beside = np.maximum(*(x[None] - x[:, None] for x in (logits, other)))  # logs, [i, j]
    gumbel = 1 - np.exp(-logsumexp(beside, axis=1)).sum()
    least = 1 - np.minimum(p, r).sum()
    return float(running), float(gumbel), float(least)
