"""What goes wrong, and what cannot, when a prefix is reused: each safeguard tried once.

All trials take the model, the tokens and the prefix of the cost study's size; none reads a clock.
"""

import ctypes

import numpy as np

from labsupport import profile
from labsupport.prefix import FrozenDecoder

CASE = profile.Case()


def setting(seed=0):
    """A decoder that can be written, it frozen, a store with its prefix, and the tokens."""
    plain, tokens = profile.setting(CASE, seed)
    frozen = FrozenDecoder(plain, profile.read_sources())
    return plain, frozen, profile.warm_store(frozen, tokens, CASE.prefix), tokens


def projected_rows() -> dict[str, int]:
    """Rows that the first layer projects to answer a query, afresh (`full`) and after a hit."""
    plain, _, store, tokens = setting()
    rows = []

    class Counting(FrozenDecoder):
        def attend(self, x, layer, cache=None):
            rows.append((layer, len(x)))
            return super().attend(x, layer, cache)

    model, counted = Counting(plain, profile.read_sources()), {}
    for name in ("full", "frozen"):
        rows.clear()
        profile.PATHS[name](model, store, tokens, CASE.prefix)
        counted[name] = sum(n for layer, n in rows if layer == 0)
    return counted


def writes_refused() -> tuple[int, int]:
    """Of how many weights, written in place, the frozen decoder refused; and how many there are."""
    _, frozen, _, _ = setting()
    refused = 0
    for array in frozen.weights.values():
        before = array.tobytes()
        try:
            array[...] = 0
        except ValueError:
            refused += array.tobytes() == before
    return refused, len(frozen.weights)


def forced_write() -> tuple[bool, float]:
    """A weight overwritten by its address: is the identity the same, how far are outputs off."""
    _, frozen, _, tokens = setting()
    identity, before = frozen.identity, frozen.forward(tokens)
    array = frozen.weights["0.k.w"]
    ctypes.memset(array.ctypes.data, 0, array.nbytes)
    return frozen.identity == identity, float(np.abs(frozen.forward(tokens) - before).max())


def changed_weight() -> dict[str, bool]:
    """One weight changed by its last bit, in a new instance.

    same_identity  whether the new instance has the old one's identity
    found          whether it finds the prefix that the old one kept
    old_moved      whether the old one's outputs changed
    """
    plain, old, store, tokens = setting()
    before = old.forward(tokens)
    weight = plain.weights["0.k.w"]
    weight[0, 0] = np.nextafter(weight[0, 0], np.inf)
    new = FrozenDecoder(plain, profile.read_sources())
    return {
        "same_identity": new.identity == old.identity,
        "found": _found(store, profile.SCOPE, new.identity, tokens[: CASE.prefix]),
        "old_moved": not np.array_equal(old.forward(tokens), before),
    }


def reused(copied: bool, n_queries=20) -> dict[str, int]:
    """`n_queries` that continue the kept caches, or copies of them.

    kept_tokens, then_tokens  how long the kept prefix was before and after the first query
    right                     queries that were answered, and within the tolerance
    """
    plain, frozen, store, tokens = setting()
    right, rest = plain.forward(tokens)[CASE.prefix :], tokens[CASE.prefix :]
    lengths, n_right = [CASE.prefix], 0
    for _ in range(n_queries):
        caches = kept = store.find(profile.SCOPE, frozen.identity, tokens[: CASE.prefix])
        if copied:
            caches = [cache.copy() for cache in kept]
        try:
            n_right += profile.agrees(frozen.forward(rest, caches), right)
        except ValueError:  # a cache that is full
            pass
        lengths.append(len(kept[0]))
    return {"kept_tokens": lengths[0], "then_tokens": lengths[1], "right": n_right}


def other_keys() -> dict[str, bool]:
    """The part of the key that is another one -> whether the kept prefix is found all the same."""
    _, frozen, store, tokens = setting()
    scope, identity, prefix = profile.SCOPE, frozen.identity, tokens[: CASE.prefix]
    last = [*prefix[:-1], (prefix[-1] + 1) % profile.VOCAB_SIZE]
    return {
        "scope": _found(store, "another", identity, prefix),
        "identity": _found(store, scope, "another", prefix),
        "last token": _found(store, scope, identity, last),
    }


def _found(store, *key) -> bool:
    try:
        store.find(*key)
    except LookupError:
        return False
    return True
