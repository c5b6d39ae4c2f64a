"""Streams of queries that share prefixes, answered afresh and with a store, timed query by query.

The first use of each prefix is a cold start: a miss, which computes all tokens and keeps the
prefix. A store of limited room forgets, and then a prefix misses again.
"""

import random
from collections import OrderedDict
from time import perf_counter_ns

import numpy as np
import pandas as pd

from labsupport.kvcache import PreallocatedCache, whole_number
from labsupport.prefix import FrozenDecoder, PrefixStore
from labsupport.profile import SCOPE, VOCAB_SIZE, WARMUPS, agrees, read_sources, setting
from labsupport.timing import collector_off


def stream(case, hit_rate, n_queries, seed):
    """Queries, lists of case.tokens tokens each: the share `hit_rate` of them repeats a prefix.

    The first brings a new prefix, whatever the rate; a repeated one is any that came before.
    ValueError or TypeError for a rate outside 0 to 1, no queries, or more than there are prefixes.
    """
    if not 0 <= hit_rate <= 1:
        raise ValueError(f"hit_rate must be from 0 to 1, not {hit_rate}")
    whole_number("n_queries", n_queries, at_least=1)
    rng, prefixes, queries = np.random.default_rng(seed), [], []
    n_new = max(1, round((1 - hit_rate) * n_queries))
    if n_new > VOCAB_SIZE**case.prefix:
        raise ValueError(f"there are no {n_new} prefixes of {case.prefix} tokens; ask for fewer")
    new = rng.permutation(np.arange(1, n_queries) < n_new)  # [n_queries - 1]
    for is_new in [True, *new]:
        if is_new:
            while (prefix := _tokens(rng, case.prefix)) in prefixes:
                pass
            prefixes.append(prefix)
        prefix = prefixes[-1] if is_new else prefixes[rng.integers(len(prefixes))]
        queries.append(prefix + _tokens(rng, case.tokens - case.prefix))
    return queries


def working_set(case, n_prefixes, n_queries, seed):
    """Queries, lists of case.tokens tokens each, that draw their prefix from a set of this size.

    A store without limit misses each prefix once; one with less room than the set, more often.
    """
    rng = np.random.default_rng(seed)
    prefixes = [_tokens(rng, case.prefix) for _ in range(n_prefixes)]
    rest = case.tokens - case.prefix
    return [prefixes[rng.integers(n_prefixes)] + _tokens(rng, rest) for _ in range(n_queries)]


def _tokens(rng, n):
    return rng.integers(VOCAB_SIZE, size=n).tolist()


class _ByUse(OrderedDict):
    """In the order of use: what is read or written moves to the end."""

    def get(self, key, default=None):
        if key in self:
            self.move_to_end(key)
        return super().get(key, default)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.move_to_end(key)


class BoundedStore(PrefixStore):
    """A store with room for so many prefixes: when one more comes, the longest unused goes."""

    def __init__(self, room):
        super().__init__()
        self.room, self._kept = whole_number("room", room, at_least=1), _ByUse()

    def keep(self, scope, identity, prefix, caches):
        """As PrefixStore.keep; then the longest unused prefix goes, if there is one too many."""
        super().keep(scope, identity, prefix, caches)
        if len(self) > self.room:
            self._kept.popitem(last=False)


def answer(model, store, tokens, n_prefix):
    """(outputs after the prefix, [n_tokens - n_prefix, vocab_size]; whether the prefix was kept).

    A miss computes all tokens in one pass, then keeps the prefix for the queries to come.
    """
    prefix, rest = tokens[:n_prefix], tokens[n_prefix:]
    try:
        kept = store.find(SCOPE, model.identity, prefix)
    except LookupError:
        caches = model.new_caches(PreallocatedCache, capacity=len(tokens))
        outputs = model.forward(tokens, caches)[n_prefix:]
        for cache in caches:
            cache.truncate(n_prefix)
        store.keep(SCOPE, model.identity, prefix, caches)
        return outputs, False
    return model.forward(rest, [cache.copy() for cache in kept]), True


def run(case, streams, room=None, seed=0):
    """One row a query, in the order measured: stream, query, hit, fresh_ns, reuse_ns.

    Each stream begins with an empty store, of so much `room` (None: no limit). A query is answered
    afresh and with the store, in random order, the collector off. RuntimeError if outputs differ
    by more than TOLERANCE; those of a miss and a hit are checked before anything is timed.
    """
    plain, _ = setting(case, seed)
    model, order = FrozenDecoder(plain, read_sources()), random.Random(seed)
    store, first = PrefixStore(), streams[0][0]
    for _ in range(WARMUPS):  # a miss, then hits
        _check(answer(model, store, first, case.prefix)[0], plain.forward(first)[case.prefix :])

    rows = []
    with collector_off():
        for i, queries in enumerate(streams):
            store = PrefixStore() if room is None else BoundedStore(room)
            for j, tokens in enumerate(queries):
                row = _both(model, store, tokens, case.prefix, order)
                rows.append({"stream": i, "query": j, **row})
    return pd.DataFrame(rows)


def _both(model, store, tokens, n_prefix, order):
    """A query answered in both ways, in random order."""
    for way in order.sample(["fresh", "reuse"], 2):
        start_ns = perf_counter_ns()
        if way == "fresh":
            fresh = model.forward(tokens)[n_prefix:]
            fresh_ns = perf_counter_ns() - start_ns
        else:
            reused, hit = answer(model, store, tokens, n_prefix)
            reuse_ns = perf_counter_ns() - start_ns
    _check(reused, fresh)
    return {"hit": hit, "fresh_ns": fresh_ns, "reuse_ns": reuse_ns}


def _check(outputs, right):
    if not agrees(outputs, right):
        raise RuntimeError("a query answered with the store differs from one computed afresh")
