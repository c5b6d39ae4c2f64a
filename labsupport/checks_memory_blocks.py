"""Instant checks of chapter 4's exercises: many sequences in blocks of one memory."""

from functools import partial
from statistics import fmean

from labsupport.checks import exercise
from labsupport.checks_cases import judge

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


def _mean_empty(requests, block_size, first=1, full=False, over="steps"):
    if over == "half":
        return (block_size - 1) / 2
    empty = [
        [
            -(prompt + step) % block_size or full * block_size
            for step in range(first, output + first)
        ]
        for prompt, output in requests
    ]
    if over == "ends":
        return fmean(each[-1] for each in empty)
    if over == "requests":
        return fmean(map(fmean, empty))
    return fmean(n for each in empty for n in each)


@exercise("memory", "mean-empty", 3)
def mean_empty(function):
    """Empty slots in the last block of a running sequence, on average over time."""
    cases = [
        ([(10, 3)], 16),
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
        "a whole block empty where the last is full": partial(_mean_empty, full=True),
    }
    judge("mean_empty", function, cases, _mean_empty, mistakes)
    return (
        "Over time a long request counts for as many steps as it runs. Whoever averages over "
        "requests weighs the short ones too much."
    )
