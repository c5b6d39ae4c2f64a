"""Instant checks of chapter 4's exercises: those whose answers are arrays."""

import math

import numpy as np

from labsupport import checks
from labsupport.checks import NotYet, exercise
from labsupport.window import window_mask


def several(name: str, got: object, n: int) -> tuple:
    """`got` as a tuple of `n` arrays."""
    if not isinstance(got, tuple | list) or len(got) != n or any(part is None for part in got):
        raise NotYet(f"{name} should return {n} arrays, in a tuple.")
    return tuple(map(np.asarray, got))


@exercise("memory", "expand", 3)
def expand(function):
    """Key/value heads for all query heads, without a copy."""
    store = np.random.default_rng(0).standard_normal((2, 10, 4))
    k = store[:, :5]  # a cache with room left: its rows are not one piece
    before, n_heads = store.copy(), 6
    got = function(k, n_heads)
    if got is None:
        raise NotYet("expand returns nothing: is there a `return`?")
    if not np.array_equal(store, before):
        raise NotYet("expand changes the cache that it was given.")
    if np.ndim(got) == 3:
        raise NotYet("expand gives three axes. To merge two of the four takes a copy: keep both.")
    want = np.repeat(k, 3, axis=0).reshape(2, 3, 5, 4)
    mistakes = {
        "heads dealt out in turns: neighbours share a head": np.tile(k, (3, 1, 1)).reshape(
            2, 3, 5, 4
        ),
        "the group's axis before that of the key/value heads": want.swapaxes(0, 1),
        "n_heads copies of each head: each serves n_heads / n_kv_heads": np.repeat(
            k[:, None], 6, 1
        ),
    }
    checks.array("expand(k, 6)", got, want, mistakes)
    if not np.shares_memory(got, store):
        raise NotYet("expand gives the right numbers in a copy: look for a view that repeats.")
    return (
        f"The shape says {math.prod(want.shape) * 8} bytes and the storage holds {k.nbytes}: the "
        "axis of the group has a stride of 0. A reshape to three axes would copy all of it."
    )


def _codes(x, axis, levels):
    scales = np.abs(x).max(axis=axis, keepdims=True) / levels
    scales[scales == 0] = 1
    return np.rint(x / scales), scales


def _check_codes(side, given, x, axis, levels):
    """The codes and scales of one side; `axis` is that of the numbers that share a scale."""
    (codes, scales), (want, want_scales) = given, _codes(x, axis, levels)
    zeros = np.where(np.abs(x).max(axis=axis, keepdims=True) == 0, 0, want_scales)
    other = f"a scale along the other direction: {side} want theirs by " + (
        "channel" if axis == 1 else "token"
    )
    mistakes = {
        other: _codes(x, 3 - axis, levels)[1],
        "one scale for all heads together": _codes(x, (0, axis), levels)[1],
        "one scale for a whole head": _codes(x, (1, 2), levels)[1],
        "one level too many: 0 takes one of the 2**bits": _codes(x, axis, levels + 1)[1],
        "2**bits - 1, the levels of both signs together": _codes(x, axis, 2 * levels + 1)[1],
        "the largest number, not the largest absolute number": np.where(
            (largest := x.max(axis=axis, keepdims=True)) == 0, 1, largest / levels
        ),
        "8 bits, whatever the bits asked for": _codes(x, axis, 127)[1],
        "a scale of 0 for a group of zeros, and then 0 / 0": zeros,
    }
    if np.shape(scales) == np.squeeze(want_scales, axis).shape:
        raise NotYet(
            f"The scales of the {side} have lost the axis that was reduced: keep it, with 1."
        )
    if scales.dtype.kind == "f" and scales.dtype != np.float64:
        raise NotYet(f"The {side}' scales are {scales.dtype}: Scales should be float64.")
    checks.array(f"The array of the {side}' scales", scales, want_scales, mistakes, atol=1e-9)
    mistakes = {"codes cut off towards 0, not rounded": np.trunc(x / want_scales)}
    mistakes["codes rounded down"] = np.floor(x / want_scales)
    checks.array(f"The array of the {side}' codes", codes, want, mistakes)
    if codes.dtype != np.int8:
        raise NotYet(f"The {side}' codes are {codes.dtype}: nothing is saved until they are int8.")


@exercise("memory", "quantize", 4)
def quantize(encode, decode):
    """Keys in codes by channel, values by token, and back."""
    keys, values = np.random.default_rng(1).standard_normal((2, 2, 6, 4))
    keys[0, :, 1] *= 30  # a channel that stands out
    keys[1, :, 2] = values[0, 3] = 0
    for bits in (8, 4):
        given = several("encode", checks.call(encode, keys, values, bits), 4)
        levels = 2 ** (bits - 1) - 1
        _check_codes("keys", given[:2], keys, 1, levels)
        _check_codes("values", given[2:], values, 2, levels)
    codes, scales = np.array([[[5, -127], [0, 127]]], np.int8), np.array([[[0.5, 2.0]]])
    mistakes = {
        "codes divided by their scales": codes / scales,
        "numbers squeezed into int8 again": (codes * scales).astype(np.int64).astype(np.int8),
    }
    checks.array("decode", checks.call(decode, codes, scales), codes * scales, mistakes)
    return (
        "A step can do without decoding: the scales of key channels can be multiplied into the "
        "query, those of the values' tokens into the attention weights."
    )


def _mask(n_seen, n_new, window, look=0, turned=True):
    """[n_new, slots filled]: which rows each new token may look at, a row a slot."""
    n_held = min(n_seen, window)
    slots = np.arange(n_held)
    newest = (n_seen - 1 - slots) % window if turned else n_held - 1 - slots
    return newest + 1 + np.arange(n_new)[:, None] < window + look


@exercise("memory", "ring-mask", 3)
def ring_mask(function):
    """The mask of a chunk over the slots of a ring, in the order of the slots."""
    for n_seen, n_new, window in ((7, 4, 5), (4, 5, 7), (5, 3, 5), (13, 2, 6), (23, 7, 6)):
        called = f"ring_mask({n_seen}, {n_new}, {window})"
        got = np.asarray(checks.call(function, n_seen, n_new, window))
        if got.dtype != bool:
            raise NotYet(f"{called} should hold bools, True where a slot may be looked at.")
        want, held = _mask(n_seen, n_new, window), min(n_seen, window)
        first = _mask(n_seen, 1, window)
        mistakes = {
            "True where it should be False, and the other way round": ~want,
            "rows taken to be in order: the ring has turned": _mask(
                n_seen, n_new, window, 0, False
            ),
            "a window that is one token too wide: a token itself is among them": _mask(
                n_seen, n_new, window, 1
            ),
            "a window that is one token too narrow": _mask(n_seen, n_new, window, -1),
            "the mask of the first new token for all": np.repeat(first, n_new, axis=0),
            "every row that is held, out of the window or not": np.ones((n_new, held), bool),
            "the band over tokens in order, new ones included": window_mask(
                n_new, held + n_new, window
            ),
        }
        mistakes = {words: wrong.astype(int) for words, wrong in mistakes.items()}
        if n_seen < window and got.shape == (n_new, window):
            raise NotYet(
                f"{called} has a column for each slot: leave out those that are empty yet."
            )
        checks.array(called, got.astype(int), want.astype(int), mistakes)
    return (
        "With this mask a chunk reads the slots where they lie; `RingCache.recent` copies them "
        "into order first. The chunk's own tokens get a triangle beside it."
    )
