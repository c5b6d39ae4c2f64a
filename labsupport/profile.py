"""What reuse costs a query: three paths to the same outputs, each timed in parts that add up.

A query brings tokens, the first `n_prefix` of which the store holds; its answer is the outputs of
the others. `python -m labsupport profile` records the rows of `measure`.
"""

import random
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

import numpy as np
import pandas as pd
from tqdm import tqdm

from labsupport import decoder, kvcache
from labsupport.decoder import Decoder, DecoderConfig
from labsupport.kvcache import PreallocatedCache, whole_number
from labsupport.prefix import FrozenDecoder, PrefixStore, identity
from labsupport.timing import collector_off

VOCAB_SIZE, WARMUPS, TOLERANCE = 64, 5, 1e-12
SCOPE = "profile"
SOURCES = [Path(module.__file__) for module in (decoder, kvcache)]  # the code that computes


def read_sources():
    """Name -> bytes of the code that computes, as it lies on disk now."""
    return {path.name: path.read_bytes() for path in SOURCES}


# Each path returns its outputs, [n_tokens - n_prefix, vocab_size], and the same six stamps in ns.


def full(model, store, tokens, n_prefix):
    """Computes every token and reuses nothing."""
    start = perf_counter_ns()
    split = perf_counter_ns()
    signed = perf_counter_ns()
    found = perf_counter_ns()
    copied = perf_counter_ns()
    outputs = model.forward(tokens)[n_prefix:]
    done = perf_counter_ns()
    return outputs, (start, split, signed, found, copied, done)


def rehash(model, store, tokens, n_prefix):
    """Hashes code, weights and configuration to know which model this is; reuses the prefix."""
    start = perf_counter_ns()
    prefix, rest = tokens[:n_prefix], tokens[n_prefix:]
    split = perf_counter_ns()
    signature = identity(read_sources(), model.weights, model.config)
    signed = perf_counter_ns()
    kept = store.find(SCOPE, signature, prefix)
    found = perf_counter_ns()
    caches = [cache.copy() for cache in kept]
    copied = perf_counter_ns()
    outputs = model.forward(rest, caches)
    done = perf_counter_ns()
    return outputs, (start, split, signed, found, copied, done)


def frozen(model, store, tokens, n_prefix):
    """Trusts the identity that the model was given when it was built; reuses the prefix."""
    start = perf_counter_ns()
    prefix, rest = tokens[:n_prefix], tokens[n_prefix:]
    split = perf_counter_ns()
    signature = model.identity
    signed = perf_counter_ns()
    kept = store.find(SCOPE, signature, prefix)
    found = perf_counter_ns()
    caches = [cache.copy() for cache in kept]
    copied = perf_counter_ns()
    outputs = model.forward(rest, caches)
    done = perf_counter_ns()
    return outputs, (start, split, signed, found, copied, done)


PATHS = {"full": full, "rehash": rehash, "frozen": frozen}
SEGMENTS = ["signature_ns", "lookup_ns", "copy_ns", "continuation_ns", "residual_ns"]
N_STAMPS = 6


def decompose(stamps):
    """The time from first to last stamp and its parts, {"total_ns": ..., "signature_ns": ...}.

    The residual is what is left of the total: the time before the signature, for slicing.
    """
    start, split, signed, found, copied, done = stamps
    total = done - start
    parts = [signed - split, found - signed, copied - found, done - copied]
    return {"total_ns": total, **dict(zip(SEGMENTS, [*parts, total - sum(parts)], strict=True))}


@dataclass(frozen=True)
class Case:
    """What is measured, by default at the source's size; TypeError or ValueError if it cannot be.

    width     numbers a token is held in, shared among the heads
    tokens    of a query, the first `prefix` of which are reused
    seeds     so many models, numbered from 0, each with weights and tokens of its own
    rounds    of each seed; every path once a round, in random order
    """

    width: int = 16
    layers: int = 2
    heads: int = 2
    tokens: int = 12
    prefix: int = 8
    seeds: int = 3
    rounds: int = 101

    def __post_init__(self):
        for name, value in vars(self).items():
            whole_number(name, value, at_least=1)
        if self.prefix >= self.tokens:
            raise ValueError(f"prefix must be less than tokens ({self.tokens}), not {self.prefix}")
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads ({self.heads}), not {self.width}")


def warm_store(model, tokens, n_prefix):
    """A store that holds the first `n_prefix` of `tokens`, with room for the others in a copy."""
    caches = model.new_caches(PreallocatedCache, capacity=len(tokens))
    model.forward(tokens[:n_prefix], caches)
    store = PrefixStore()
    store.keep(SCOPE, model.identity, tokens[:n_prefix], caches)
    return store


def measure(case):
    """One row a query, in the order measured: seed, round, path, total, segments, agreed.

    `agreed` compares the outputs with those of a decoder that is not frozen and has no caches.
    WARMUPS queries of each path and seed are not among the rows. The garbage collector is off.
    """
    with collector_off():
        rows = [row for seed in range(case.seeds) for row in measure_seed(case, seed)]
    return pd.DataFrame(rows)


def setting(case, seed):
    """A decoder of the case's sizes, which can be written, and the tokens of its query."""
    shape = (VOCAB_SIZE, case.tokens, case.width, case.layers, case.heads)
    plain = Decoder(DecoderConfig(*shape, dtype=np.float64), seed)
    tokens = np.random.default_rng(seed).integers(VOCAB_SIZE, size=case.tokens).tolist()
    return plain, tokens


def measure_seed(case, seed, quiet=False):
    """The rows of one seed, as a list of dicts, with the collector as it is; quiet: no bar."""
    plain, tokens = setting(case, seed)
    expected = plain.forward(tokens)[case.prefix :]  # [n_tokens - n_prefix, vocab_size]

    model = FrozenDecoder(plain, read_sources())
    query = (model, warm_store(model, tokens, case.prefix), tokens, case.prefix)
    for path in [*PATHS.values()] * WARMUPS:
        path(*query)

    rows, order = [], random.Random(seed)
    for i in tqdm(range(case.rounds), desc=f"seed {seed}", disable=quiet or None):
        for name in order.sample(list(PATHS), len(PATHS)):
            outputs, stamps = PATHS[name](*query)
            row = {"seed": seed, "round": i, "path": name, **decompose(stamps)}
            rows.append({**row, "agreed": agrees(outputs, expected)})
    return rows


def agrees(outputs, expected):
    """Whether outputs have the expected shape and differ from it by TOLERANCE at most."""
    return outputs.shape == expected.shape and bool(np.abs(outputs - expected).max() <= TOLERANCE)


def medians_us(rows):
    """The median of each timed column, one row a path, in microseconds."""
    medians = rows.groupby("path")[["total_ns", *SEGMENTS]].median().loc[list(PATHS)]
    return medians.rename(columns=lambda name: name.removesuffix("_ns")) / 1000
