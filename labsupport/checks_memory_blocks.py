"""Instant checks of chapter 4's exercises: many sequences, in blocks or with one beginning."""

import math
from functools import partial
from statistics import fmean

import numpy as np
from scipy.special import logsumexp, softmax

from labsupport import checks
from labsupport.checks import NotYet, exercise
from labsupport.checks_cases import judge
from labsupport.checks_memory_arrays import several

GiB = 2**30


def _sequences(card, weights, a_token, n_tokens, block_size, n_shared, unit=GiB, mistake=None):
    room = card * unit - (0 if mistake == "weights" else weights)
    if mistake == "tokens":
        return max(0, (room // a_token - n_shared) // (n_tokens - n_shared))
    up = -(-n_shared // block_size)
    common = {"leak": up, "unshared": 0}.get(mistake, n_shared // block_size)
    in_all = n_tokens // block_size if mistake == "down" else -(-n_tokens // block_size)
    free = room // (a_token * block_size) - (0 if mistake == "free" else common)
    n = free // max(1, in_all - common)
    return n if mistake == "negative" else max(0, n)


@exercise("memory", "sequences", 3)
def sequences(function):
    """How many sequences fit, in blocks, with a common beginning."""
    cases = [
        (24, 16_060_522_496, 131_072, 2000, 16, 0),
        (24, 16_060_522_496, 131_072, 2010, 64, 1000),
        (24, 13_476_831_232, 524_288, 1025, 128, 896),
        (80, 16_060_522_496, 131_072, 700, 16, 601),
        (8, 13_476_831_232, 524_288, 100, 16, 0),
        (13, 13_476_831_232, 524_288, 4000, 16, 3200),
    ]
    mistakes = {
        "GB where the card has GiB": partial(_sequences, unit=10**9),
        "a card without the weights on it": partial(_sequences, mistake="weights"),
        "tokens, not blocks: a block that is partly filled is taken whole": partial(
            _sequences, mistake="tokens"
        ),
        "blocks rounded down: the last, partly filled one is needed too": partial(
            _sequences, mistake="down"
        ),
        "a beginning that each sequence holds anew": partial(_sequences, mistake="unshared"),
        "shared blocks that nobody counts: they lie in the pool once": partial(
            _sequences, mistake="free"
        ),
        "a block that is shared though each sequence writes into it": partial(
            _sequences, mistake="leak"
        ),
        "a negative number of blocks, where nothing fits": partial(_sequences, mistake="negative"),
    }
    judge("sequences", function, cases, _sequences, mistakes)
    return (
        "A shared beginning is worth most where it is long and the rest short. Whoever asks "
        "thousands of questions about one document pays for the document once."
    )


def _mean_empty(requests, block_size, first=1, more=0, full=False, over="steps", held="both"):
    if over == "half":
        return (block_size - 1) / 2
    empty = []
    for prompt, output in requests:
        begun = 0 if held == "output" else prompt
        last = -(begun + output) % block_size
        steps = range(first, output + first + more)
        if held == "final":
            empty.append([last + output - step for step in steps])
        else:
            empty.append([-(begun + step) % block_size or full * block_size for step in steps])
    if over == "ends":
        return fmean(each[-1] for each in empty)
    if over == "requests":
        return fmean(map(fmean, empty))
    return fmean(n for each in empty for n in each)


@exercise("memory", "mean-empty", 3)
def mean_empty(function):
    """Empty slots in the last block of a running sequence, on average over time."""
    cases = [
        ([(10, 3), (30, 9)], 16),
        ([(5, 200), (30, 12), (3, 1)], 16),
        ([(19, 58), (4, 10), (7, 21)], 128),
        ([(15, 1), (2, 40)], 8),
    ]
    mistakes = {
        "half a block, whatever the requests": partial(_mean_empty, over="half"),
        "a mean of the requests' means: one that runs for long is there for more steps": partial(
            _mean_empty, over="requests"
        ),
        "the last step of each request alone": partial(_mean_empty, over="ends"),
        "steps counted from 0: the first token is held after the first step": partial(
            _mean_empty, first=0
        ),
        "a step too many: prompts alone are held in none": partial(_mean_empty, first=0, more=1),
        "prompts left out: their tokens are held, too": partial(_mean_empty, held="output"),
        "room kept for the whole answer from the start": partial(_mean_empty, held="final"),
        "the slots that are filled, not the empty ones": lambda *case: case[1] - _mean_empty(*case),
        "a share of the block, not a number of slots": lambda *case: _mean_empty(*case) / case[1],
        "a whole block empty where the last is full": partial(_mean_empty, full=True),
    }
    judge("mean_empty", function, cases, _mean_empty, mistakes)
    return (
        "Over time a long request counts for as many steps as it runs. Whoever averages over "
        "requests weighs the short ones too much."
    )


def _part(q, k, v):
    """What each query reads from these keys, and the log of the sum of its exponentials."""
    scores = q @ k.T / math.sqrt(q.shape[1])
    lse = logsumexp(scores, axis=1)
    return np.exp(scores - lse[:, None]) @ v, lse


def _check_part(attend):
    rng = np.random.default_rng(2)
    q, k, v = rng.standard_normal((3, 4)), *rng.standard_normal((2, 7, 4))
    k[:, 0], q[:, 0] = 3, (2, 0, -2)  # so the scores of one query lie far above those of the next
    for factor in (1, 1000):
        want, lse = _part(factor * q, k, v)
        scores = factor * q @ k.T
        largest = scores.max(axis=1) / 2
        read, log = several("attend_part", checks.call(attend, factor * q, k, v), 2)
        if not (np.isfinite(read).all() and np.isfinite(log).all()):
            if np.isfinite(read[0]).all():
                raise NotYet(
                    "attend_part gives NaN for a query whose scores are far below another's: take "
                    "off the largest of each query, not of all."
                )
            raise NotYet(
                "attend_part overflows where scores are large: take the largest off first."
            )
        checks.array("What attend_part reads", read, want, {
            "scores that are not divided by the root of head_dim": _part(2 * factor * q, k, v)[0],
            "scores divided by head_dim, not by its root": _part(factor * q / 2, k, v)[0],
            "a softmax over the queries: it goes over the keys of each": softmax(scores / 2, 0) @ v,
            "a sum of values that is not divided by the sum of the weights": np.exp(
                scores / 2 - largest[:, None]
            ) @ v,
        })  # fmt: skip
        checks.array("The log that attend_part returns", log, lse, {
            "a log from which the largest score is still missing": lse - largest,
            "the sum, without its logarithm": np.exp(np.minimum(lse, 700)),
            "the sum after the largest score was taken off, without its logarithm": np.exp(
                lse - largest
            ),
            "a logarithm to the base 2": lse / math.log(2),
        })  # fmt: skip
    return (q, k, v)


@exercise("memory", "merge", 4)
def merge(attend, join):
    """Attention in parts that are merged afterwards."""
    q, k, v = _check_part(attend)
    a, b = _part(q, k[:5], v[:5]), _part(4 * q, k[5:], v[5:])
    nothing = np.zeros_like(q), np.full(3, -np.inf)
    weights = np.exp(a[1] - np.logaddexp(a[1], b[1]))[:, None]
    read = weights * a[0] + (1 - weights) * b[0]
    name = "The read of merge(a, b)"
    got, log = several("merge", checks.call(join, a, b), 2)
    checks.array(name, got, read, {
        "a mean of both parts: each counts by its sum of exponentials": (a[0] + b[0]) / 2,
        "a sum of both parts, which were divided by their own sums already": a[0] + b[0],
        "the two weights interchanged": (1 - weights) * a[0] + weights * b[0],
        "weights in proportion to the logarithms": (a[0] * a[1][:, None] + b[0] * b[1][:, None])
        / (a[1] + b[1])[:, None],
    })  # fmt: skip
    checks.array("The log of merge(a, b)", log, np.logaddexp(a[1], b[1]), {
        "a sum of logarithms, where the sums themselves add": a[1] + b[1],
        "the larger logarithm alone": np.maximum(a[1], b[1]),
    })  # fmt: skip
    far = a[0], a[1] + 5000
    for first, second, want in ((a, nothing, a), (nothing, a, a), (far, b, far), (nothing,) * 3):
        got, log = several("merge", checks.call(join, first, second), 2)
        if np.isnan(got).any() or np.isnan(log).any() or np.isposinf(log).any():
            raise NotYet(
                "merge gives NaN or infinity where a part is empty, or the logarithms are large: "
                "take the larger off before `exp`, and think of two empty parts."
            )
        if np.isneginf(want[1]).all() and not np.isneginf(log).all():
            raise NotYet("Both parts are empty here: the log of merge(a, b) is -inf.")
        checks.array("The read of a part merged with an empty or a tiny one", got, want[0])
        if not np.array_equal(np.isinf(log), np.isinf(want[1])) or not np.allclose(
            log, want[1], rtol=1e-9
        ):
            raise NotYet("The log of a part merged with an empty or a tiny one is not its own.")
    return (
        "So a common beginning can be read once for a whole batch, and a long cache by many cores "
        "or cards at once: what travels is one row and one number a query."
    )
