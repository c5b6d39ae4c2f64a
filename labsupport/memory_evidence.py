"""What the checks of chapter 4's claims read: printed figures, real models, and trials.

A trial makes models of the source's sizes, fills their caches and weighs the storage of both. How
good a model is does not matter to that, so its weights are random. Each takes less than a second.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import pandas as pd

from labsupport import charweights, footprint, memory_source, quantize
from labsupport.charcache import ConcatCache, PreallocatedCache, new_caches
from labsupport.charmodel import CharConfig, CharModel
from labsupport.footprint import stored_bytes
from labsupport.modelcards import CARDS, Card


@dataclass(frozen=True)
class MemoryEvidence:
    """What the checks of chapter 4 read.

    sizes    the source's rows: tokens -> what it prints as megabytes
    stated   the figures of its text, by name
    config   sizes of the model that it describes
    cards    real models, by name
    trials   the functions of this module that end in a trial, by name, without arguments
    """

    sizes: pd.Series
    stated: dict[str, float]
    config: CharConfig
    cards: dict[str, Card]
    trials: dict[str, Callable]


def held(model, n_tokens, kind=PreallocatedCache):
    """Bytes stored by the caches of a model that has read `n_tokens`, with room for no more."""
    options = {"capacity": n_tokens} if kind is PreallocatedCache else {}
    caches = new_caches(model, kind, **options)
    model([[0] * n_tokens], caches)
    return stored_bytes(caches)


def stored(model, lengths):
    """Bytes of the caches after so many tokens: a row a length, `preallocated` and `concat`."""
    kinds = {"preallocated": PreallocatedCache, "concat": ConcatCache}
    columns = {name: [held(model, n, kind) for n in lengths] for name, kind in kinds.items()}
    return pd.DataFrame(columns, index=pd.Index(lengths, name="n_tokens"))


def full(model):
    """A model fed one token at a time until it takes no more: {n_tokens, cache, weights}.

    cache and weights in bytes.
    """
    caches = new_caches(model)
    while True:
        try:
            model([[0]], caches)
        except ValueError:  # past its context
            break
    return {
        "n_tokens": len(caches[0]),
        "cache": stored_bytes(caches),
        "weights": stored_bytes(model),
    }


def peak(config, n_tokens):
    """The most bytes alive at once while caches fill token by token, and those stored at the end.

    {"concat", "preallocated", "stored"}
    """
    kinds = {"concat": "torch, ConcatCache", "preallocated": "torch, PreallocatedCache"}
    rows = footprint.rows_for(kinds["concat"], config.n_kv_heads, config.head_dim)

    def filled(kind):
        return footprint.filled(kinds[kind], rows, config.n_blocks, n_tokens)

    most = {kind: footprint.torch_peak(lambda kind=kind: filled(kind)) for kind in kinds}
    return most | {"stored": stored_bytes(filled("concat"))}


def splitting(config, n_tokens, heads=(1, 2, 4, 8)):
    """Bytes of the caches with d_model split into so many heads, none shared: {n_heads: bytes}."""
    configs = [replace(config, n_heads=n, n_kv_heads=None) for n in heads]
    return {c.n_heads: held(CharModel(c), n_tokens) for c in configs}


class _Noting(PreallocatedCache):
    """Notes the bytes that it hands to attention."""

    def append(self, k, v):
        k, v = super().append(k, v)
        self.handed = k.nbytes + v.nbytes
        return k, v


def sharing(config, n_tokens):
    """With heads that share: {n_kv_heads: {"held": bytes, "read": bytes in a step}}.

    read   what the caches hand to attention for one token more
    """
    found = {}
    for n_kv_heads in (n for n in range(config.n_heads, 0, -1) if config.n_heads % n == 0):
        model = CharModel(replace(config, n_kv_heads=n_kv_heads))
        caches = new_caches(model, _Noting, capacity=n_tokens)
        model([[0] * (n_tokens - 1)], caches)
        model([[0]], caches)
        handed = sum(one.handed for one in caches)
        found[n_kv_heads] = {"held": stored_bytes(caches), "read": handed}
    return found


def int8(model, n_tokens):
    """Bytes of weights and caches, as they are and with the weights in int8.

    {"weights", "weights, int8", "cache", "cache, int8"}
    """
    weights = charweights.flat(model)
    coded = quantize.int8_weights(weights)
    restored = charweights.model(model.config, quantize.restored(coded))
    return {
        "weights": quantize.weight_bytes(weights),
        "weights, int8": quantize.weight_bytes(coded),
        "cache": held(model, n_tokens),
        "cache, int8": held(restored, n_tokens),
    }


def trials_of(config, n_longer) -> dict[str, Callable]:
    """The trials on a model of these sizes, by name, each run at most once.

    n_longer   tokens of a model that is like it but for a longer position table
    """
    model, n = cache(lambda: CharModel(config)), config.context
    long = cache(lambda: CharModel(replace(config, context=n_longer)))
    runs = {
        "stored": lambda: stored(model(), sorted({1, 2, n // 2, n - 1, n})),
        "full": lambda: full(model()),
        "longer": lambda: {"cache": held(long(), n_longer), "weights": stored_bytes(long())},
        "peak": lambda: peak(config, n),
        "splitting": lambda: splitting(config, n),
        "sharing": lambda: sharing(config, n),
        "int8": lambda: int8(long(), n_longer),
    }
    return {name: cache(run) for name, run in runs.items()}


@cache
def evidence() -> MemoryEvidence:
    """The evidence that the repository holds."""
    sizes, config = memory_source.sizes(), CharConfig()
    trials = trials_of(config, int(sizes.index.max()))
    return MemoryEvidence(sizes, memory_source.stated(), config, CARDS, trials)
