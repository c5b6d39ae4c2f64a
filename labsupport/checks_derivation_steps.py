"""Cached steps, right and faulty, that the checks of chapter 3's exercises hold answers against."""

import numpy as np
import torch

from labsupport import charmodel


def attention(q, k, v):
    """The package's causal attention on float64 arrays: [n_heads, n_new, head_dim].

    q [n_heads, n_new, head_dim], k and v [n_kv_heads, n_tokens, head_dim], the new tokens last.
    """
    q, k, v = (torch.from_numpy(np.ascontiguousarray(x))[None] for x in (q, k, v))
    return charmodel.attention(q, k, v)[0].numpy()


def step(q, k, v, keys, values):
    """A cached step that is right: what is read, [n_heads, head_dim], the keys and the values.

    q [n_heads, head_dim], k and v [n_kv_heads, head_dim] are the new token's; keys and values
    [n_kv_heads, n_tokens, head_dim] come back with one more token.
    """
    keys = np.concatenate([keys, k[:, None]], axis=1)
    values = np.concatenate([values, v[:, None]], axis=1)
    return attention(q[:, None], keys, values)[:, 0], keys, values


def read(q, keys, values, *, scale=None, axis=1, dealt=False):
    """What one query a head reads, [n_heads, head_dim]; the options make mistakes.

    scale   what divides the scores; the root of head_dim by default
    axis    over which softmax goes: 1 tokens, 0 heads
    dealt   query heads are dealt out to key heads, h % n_kv_heads; by default neighbours share
    """
    of = np.arange(len(q))
    of = of % len(keys) if dealt else of // (len(q) // len(keys))
    scores = np.einsum("hd,htd->ht", q, keys[of]) / (scale or q.shape[1] ** 0.5)
    shares = np.exp(scores - scores.max(axis, keepdims=True))
    shares /= shares.sum(axis, keepdims=True)
    return np.einsum("ht,htd->hd", shares, values[of])


def tokens(seed, n_heads=4, n_kv_heads=2, n_tokens=6, head_dim=8):
    """Random q [n_heads, n_tokens, head_dim], k and v [n_kv_heads, n_tokens, head_dim]."""
    rng, heads = np.random.default_rng(seed), (n_heads, n_kv_heads, n_kv_heads)
    return tuple(rng.standard_normal((n, n_tokens, head_dim)) for n in heads)


def inputs(n_heads, n_kv_heads, n_tokens, lifted=0.0):
    """What `step` takes, with `n_tokens` kept. All scores are raised by `lifted`, which softmax
    does not see; that needs a key head for each query head."""
    q, k, v = tokens(n_tokens, n_heads, n_kv_heads, n_tokens + 1)
    q = q[:, -1]
    if lifted:  # a multiple of the query, added to every key
        k = k + (q * lifted * q.shape[1] ** 0.5 / (q**2).sum(axis=1, keepdims=True))[:, None]
    return q, k[:, -1], v[:, -1], k[:, :-1], v[:, :-1]


def differences(step, q, k, v):
    """One by one, minus all at once: [n_tokens, n_heads, head_dim].

    `step` is given the keys and values that it returned, none at first.
    """
    whole, keys, values, off = attention(q, k, v), k[:, :0], v[:, :0], []
    for t in range(q.shape[1]):
        got, keys, values = step(q[:, t], k[:, t], v[:, t], keys, values)
        off.append(got - whole[:, t])
    return np.stack(off)


def faulty(fault):
    """A step that does `fault` to what the right one returns."""
    return lambda *given: fault(*step(*given))


def _when(n_tokens, change):
    """A fault of what is read when there are just so many tokens."""
    return lambda got, keys, values: (
        got + change if keys.shape[1] == n_tokens else got,
        keys,
        values,
    )


# What a proof has overlooked that does not find the fault: words -> fault. The tokens are 6.
FAULTS = {
    "It is wrong at every token: is `step` called, the one that is given?": (
        lambda got, keys, values: (got + 0.5 * (-1.0) ** np.arange(got.shape[1]), keys, values)
    ),
    "It reads too little everywhere: is a difference below 0 lost?": (
        lambda got, keys, values: (got - 0.5, keys, values)
    ),
    "It reads too much everywhere: is a difference below 0 lost?": (
        lambda got, keys, values: (got + 0.5, keys, values)
    ),
    "It is wrong at the first token only: is every token compared?": _when(1, 1.0),
    "It is wrong at the last token only: is every token compared?": _when(6, 1.0),
    "The cache that it returns is damaged: is that what the next step is given?": (
        lambda got, keys, values: (got, keys, np.zeros_like(values))
    ),
    "max(0.0, nan) is 0.0, and every comparison with NaN is false.": _when(3, np.nan),
}


class Stopped(Exception):
    """What `stopping` raises."""


def stopping(*given):
    """A step that does not come to an end."""
    raise Stopped("a step that raises")


def slots(used, *, held, old, dtype, capacity=16, head_dim=8):
    """q [head_dim], keys and values [capacity, head_dim], and what a step read of the first `used`.

    Behind the `held` tokens lie zeros or, with old=1, what a longer text left.
    """
    rng = np.random.default_rng(used)
    q, keys, values = (rng.standard_normal((n, head_dim)) for n in (1, capacity, capacity))
    keys[held:] *= old
    values[held:] *= old
    got = read(q, keys[None, :used], values[None, :used])[0]
    return q[0], keys, values, got.astype(dtype)


def nearest(q, keys, values, got, scale=None):
    """How many slots give what is nearest to `got`, with scores divided by `scale`."""
    tries = [
        read(q[None], keys[None, : n + 1], values[None, : n + 1], scale=scale)[0]
        for n in range(len(keys))
    ]
    return int(np.argmin(np.abs(np.array(tries) - got).max(axis=1))) + 1
