"""Made-up rows, caches and models, on which the exercises of chapter 2 are checked.

Their right answers are known by construction and are the same on any machine.
"""

import random
from dataclasses import replace

import numpy as np
import pandas as pd

from labsupport import profile
from labsupport.decoder import Decoder, DecoderConfig
from labsupport.kvcache import ConcatCache, DoublingCache, PreallocatedCache
from labsupport.prefix import FrozenDecoder, identity

TIMES = ["total_ns", *profile.SEGMENTS]
CONFIG = DecoderConfig(
    vocab_size=16, n_positions=12, d_model=8, n_layers=1, n_heads=2, dtype=np.float64
)


# Rows


def row(total, *parts):
    """A row like those of `profile.measure`; total and the five parts in ns, closed or not."""
    times = dict(zip(TIMES, (total, *parts), strict=True))
    return pd.Series({"seed": 0, "round": 7, "path": "frozen", **times, "agreed": True})


def parts_of_queries(n_rows, seed, paths=("full", "frozen")):
    """`n_rows` closed rows of each path, each part slow in rows of its own."""
    draw, rows = random.Random(seed), []
    for i in range(n_rows):
        for path in paths:
            parts = [draw.randrange(1_000, 60_000) for _ in profile.SEGMENTS]
            parts[draw.randrange(len(parts))] += 100_000
            times = dict(zip(TIMES, (sum(parts), *parts), strict=True))
            rows.append({"seed": 0, "round": i, "path": path, **times, "agreed": True})
    return pd.DataFrame(rows)


def rounds(ratio, spread, seed, *, slow=None, rehash=2.0, n_seeds=2, n_rounds=40):
    """Totals of shuffled rounds in which frozen takes `ratio` times as long as full.

    spread  each total is up to so much longer or shorter, by chance
    slow    the path whose every sixth total is four times as long, if one is
    """
    draw, rows = random.Random(seed), []
    for i in range(n_seeds):
        for j in range(n_rounds):
            base = 200_000 * (1 + draw.random())  # the machine's speed wanders
            usual = {"full": base, "rehash": base * rehash, "frozen": base * ratio}
            for path in draw.sample(list(usual), 3):
                total = usual[path] * (1 + spread * (2 * draw.random() - 1))
                total *= 4 if path == slow and j % 6 == 0 else 1
                rows.append({"seed": i, "round": j, "path": path, "total_ns": round(total)})
    return pd.DataFrame(rows)


def seeds_apart(ratio, slow_ratio, seed, *, n_rounds=31):
    """Shuffled totals of three seeds; the third is ten times as slow, with a ratio of its own.

    Whoever takes a mean over seeds sees the third alone.
    """
    parts = [rounds(ratio, 0.02, seed + i, n_seeds=1, n_rounds=n_rounds) for i in range(2)]
    last = rounds(slow_ratio, 0.02, seed + 2, n_seeds=1, n_rounds=n_rounds)
    parts.append(last.assign(total_ns=10 * last["total_ns"]))
    rows = pd.concat([part.assign(seed=i) for i, part in enumerate(parts)])
    return rows.sample(frac=1, random_state=seed).reset_index(drop=True)


# Caches; only a copy of a cache of these kinds is ever written


class Lent(PreallocatedCache):
    """A copy has a length of its own and the same rows."""

    def copy(self):
        twin = object.__new__(type(self))
        twin.__dict__.update(vars(self))
        return twin


class ValuesLent(PreallocatedCache):
    """A copy has keys of its own and the same values."""

    def copy(self):
        twin = super().copy()
        twin._values = self._values
        return twin


class CopiedLater(Lent):
    """A copy has the same rows until it is written; then it gets its own."""

    _is_lent = False

    def copy(self):
        twin = super().copy()
        twin._is_lent = True
        return twin

    def append(self, k, v):
        if self._is_lent:
            self._move_to(self.capacity)
            self._is_lent = False
        super().append(k, v)


class OneForAll(PreallocatedCache):
    """The first copy gets rows of its own, all later ones get the rows of the first."""

    _first = None

    def copy(self):
        twin = super().copy()
        if self._first is None:
            self._first = twin
        twin._keys, twin._values = self._first._keys, self._first._values
        return twin


class CopiedIfLonger(Lent):
    """A copy gets rows of its own when it grows past those that it was given."""

    def copy(self):
        twin = super().copy()
        twin._n_lent = len(self)
        return twin

    def append(self, k, v):
        n_lent = getattr(self, "_n_lent", None)
        if n_lent is not None and len(self) >= n_lent:
            self._move_to(self.capacity)
            self._n_lent = None
        super().append(k, v)


def filled(kind, n_tokens=3, n_kv_heads=2, head_dim=4):
    """A cache of a kind with room for more, which holds rows that are all different."""
    room = {} if issubclass(kind, ConcatCache | DoublingCache) else {"capacity": n_tokens + 8}
    cache = kind(n_kv_heads, head_dim, np.float64, **room)
    rows = np.arange(1.0, 1 + n_kv_heads * n_tokens * head_dim)
    rows = rows.reshape(n_kv_heads, n_tokens, head_dim)
    cache.append(rows, -rows)
    return cache


# Models, names for them, and changes


class Counted(Decoder):
    """Its version is raised by `replace`, its one door."""

    version = 0

    def replace(self, name, array):
        self.weights[name] = array
        self.version += 1


def plain():
    """A small model that can be written."""
    return Decoder(CONFIG, seed=3)


def counted():
    """The same model with a counter."""
    return Counted(CONFIG, seed=3)


def frozen():
    """The same model, frozen."""
    return FrozenDecoder(plain(), {})


def version(model):
    """Names a counted model."""
    return model.version


def whole_hash(model):
    """Names a model by its weights and its configuration."""
    return identity({}, model.weights, model.config)


def weights_hash(model):
    """Names a model by its weights alone."""
    return identity({}, model.weights, "")


def scale_in_place(model):
    """One matrix is scaled where it lies."""
    model.weights["0.k.w"][:] *= 1.5


def scale_slightly(model):
    """One matrix is scaled by so little that outputs change by some 1e-8."""
    model.weights["0.v.w"][:] *= 1 + 1e-8


def scale_hardly(model):
    """One matrix is scaled by so little that outputs change by some 1e-13."""
    model.weights["0.v.w"][:] *= 1 + 1e-13


def replace_by_equal(model):
    """An array goes through the door of the counter, and it is the same."""
    model.replace("0.k.w", model.weights["0.k.w"].copy())


def write_unused(model):
    """The last position is written, which shorter queries never read."""
    model.weights["positions"][-1] *= 2


def more_heads(model):
    """The same weights are read as four heads."""
    model.config = replace(CONFIG, n_heads=4, n_kv_heads=4)
