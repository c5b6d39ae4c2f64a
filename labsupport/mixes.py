"""Lengths of requests as a server sees them: a mix with published means, and what follows from it.

A sequence that makes many tokens is there for many steps, so over time long ones count for more
than in the list of requests. The sums here say by how much; no server needs to be simulated.
"""

import numpy as np
from scipy.optimize import brentq

from labsupport.kvcache import whole_number

MAX_TOKENS = 2048  # the longest sequence of OPT, whose server the figures are from
MEANS = {"ShareGPT": (161.31, 337.99), "Alpaca": (19.31, 58.45)}  # arXiv:2309.06180, figure 11

# Of the logarithms, an assumption: no spread is published. With this one a server that reserves
# 2048 slots for everyone holds the 20.4 % of tokens of figure 2 there. The figure names no mix;
# over the 7.00 sequences of figure 13 (15.7K slots, table 1) they are 457 tokens each: ShareGPT's.
SPREAD = 0.77


def requests(mean_prompt, mean_output, n, spread=SPREAD, max_tokens=MAX_TOKENS, seed=0):
    """`n` pairs of lengths, prompt and output in tokens: an int array [n, 2].

    Both are log-normal and independent, with standard deviation `spread` of the logarithm. A prompt
    is cut at half of max_tokens, an output where the sequence is max_tokens long; the means asked
    for are those of the sample after the cut, up to rounding. ValueError if no sample has them.
    """
    normal = np.random.default_rng(seed).standard_normal((2, whole_number("n", n, at_least=1)))
    prompt = _scaled(spread * normal[0], mean_prompt, max_tokens // 2)
    output = _scaled(spread * normal[1], mean_output, max_tokens - prompt)
    return np.stack([prompt, output], axis=1)


def _scaled(logs, mean, most):
    """Whole lengths from 1 to `most`: exp(logs), times what gives them this mean."""

    def lengths(log_scale):
        return np.clip(np.exp(logs + log_scale), 1, most)

    low, high = -50.0, 50.0
    if not lengths(low).mean() <= mean <= lengths(high).mean():
        raise ValueError(f"no lengths from 1 to {np.max(most)} have a mean of {mean}")
    return np.rint(lengths(brentq(lambda x: lengths(x).mean() - mean, low, high))).astype(int)


def mean_held(lengths):
    """Tokens that a running sequence holds, on average over time.

    One of prompt p and output o holds p + 1, ..., p + o in its o steps, p + (o + 1) / 2 on average.
    """
    prompt, output = np.array(lengths, np.int64).T
    return (output * (prompt + (output + 1) / 2)).sum() / output.sum()


def mean_final(lengths):
    """Tokens that a running sequence will hold in the end, on average over time."""
    prompt, output = np.array(lengths, np.int64).T
    return (output * (prompt + output)).sum() / output.sum()


def mean_unfilled(lengths, block_size):
    """Empty slots in the last block of a running sequence, on average over time.

    (block_size - 1) / 2 if every filling of the last block is as likely as any other. That fails
    for sequences that are short against a block: these mostly have one, and it starts empty.
    """
    prompt, output = np.array(lengths, np.int64).T

    def up_to(n):  # summed over a sequence's first n steps, had it no prompt
        full, rest = n // block_size, n % block_size
        return full * (block_size * (block_size - 1) // 2) + rest * (2 * block_size - rest - 1) // 2

    return (up_to(prompt + output) - up_to(prompt)).sum() / output.sum()


def share_unfilled(held, block_size):
    """The share of given slots that is empty when each sequence leaves (block_size - 1) / 2 so.

    held: tokens a running sequence holds on average, as `mean_held` gives them.
    """
    unfilled = (block_size - 1) / 2
    return unfilled / (held + unfilled)
