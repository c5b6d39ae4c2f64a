"""The prices of `costmodel`, from some hundred small pieces of code that are timed in turns.

No piece is a part of a decoder, and no size is one of the break-even grid. Each piece is counted
by the tools that count a query, timed in the company of all others (in a random order, so that it
finds the processor's caches as a query's calls do, not warmed by itself), and the prices are those,
none below 0, that fit all times with the least relative error.
"""

import hashlib
import random
import string
import sys
import tempfile
import textwrap
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import SequenceMatcher
from fractions import Fraction
from ipaddress import ip_address
from pathlib import Path, PurePosixPath
from time import perf_counter_ns

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from labsupport import costmodel, opcounts
from labsupport.profile import collector_off

LONG_NS = 10_000
MMAP_LIMIT_BYTES = 31 * 2**20  # glibc adapts to blocks of up to 32 MiB (mallopt(3))

TINY = [(3, 5), (7, 11), (5, 90)]
LARGE = [(40, 100), (200, 20), (30, 300), (150, 150), (100, 700), (150, 1100)]
PRODUCTS = [  # rows of x, columns of x, columns of w
    *[(3, 5, 7), (1, 24, 24), (5, 24, 24), (7, 24, 96), (11, 96, 24), (20, 48, 48)],
    *[(1, 100, 400), (3, 100, 400), (9, 100, 100), (40, 100, 100), (100, 100, 400)],
    *[(1, 200, 800), (9, 200, 200), (30, 200, 200), (150, 48, 200), (100, 24, 96)],
    *[(1, 400, 400), (6, 400, 400), (24, 400, 400), (3, 300, 1200)],
]


def keep_memory():
    """Have glibc keep freed memory for the process, so that big arrays cost no page faults.

    It hands out blocks over a threshold page by page from the operating system, and raises the
    threshold to the largest such block that was freed (mallopt(3), M_MMAP_THRESHOLD). Else the
    time of a query depends on what the process did before. Nothing happens with other allocators.
    """
    np.empty(MMAP_LIMIT_BYTES, np.uint8)


@dataclass(frozen=True)
class Piece:
    """A function, its arguments, and how many tokens of a key it hashes and compares."""

    name: str
    function: object
    args: tuple = ()
    key_tokens: int = 0

    def amounts(self):
        """What it asks for, as `costmodel.amounts` counts it."""
        steps = opcounts.interpreter_steps(self.function, *self.args)
        calls = opcounts.array_calls(self.function, *self.args, modules=[sys.modules[__name__]])
        return costmodel.amounts(calls, steps, self.key_tokens)


def pieces(directory):
    """The pieces of code; a file to read is written into `directory`."""
    rng = np.random.default_rng(0)
    return [*_interpreter(directory), *_arrays(rng), *_products(rng), *_hashes(), *_keys()]


def _interpreter(directory):
    template, path = string.Template("$who has $what"), PurePosixPath("some/folder/file.txt")
    for n_bytes in (500, 5_000, 20_000):
        file = Path(directory) / f"{n_bytes} bytes"
        file.write_bytes(bytes(n_bytes))
        yield Piece("read a file", file.read_bytes)
    yield Piece("fractions", lambda: Fraction(3, 7) * Fraction(2, 9))
    yield Piece("compare texts", lambda: SequenceMatcher(None, "abcd", "bcde").ratio())
    yield Piece("wrap a text", lambda: textwrap.wrap("some words to be wrapped in lines", 12))
    yield Piece("fill in a text", lambda: template.substitute(who="she", what="it"))
    yield Piece("read an address", lambda: ip_address("192.168.3.4"))
    yield Piece("name a file", lambda: path.with_suffix(".csv").parent / "other")


def _arrays(rng):
    for shape in TINY + LARGE:
        x, y = rng.standard_normal((2, *shape))
        row, column = x[0].copy(), x[:, :1].copy()
        picked, target = np.arange(0, shape[0], 2), np.empty((shape[0] + 1, shape[1]))
        mask = np.arange(shape[1]) <= np.arange(shape[0])[:, None]
        yield Piece("x + y", lambda x, y: x + y, (x, y))
        yield Piece("x * y", lambda x, y: x * y, (x, y))
        yield Piece("0.5 * x", lambda x: 0.5 * x, (x,))
        yield Piece("1 + x", lambda x: 1 + x, (x,))
        yield Piece("sqrt", lambda column: np.sqrt(column), (column * column,))
        yield Piece("x + row", lambda x, row: x + row, (x, row))
        yield Piece("x * row", lambda x, row: x * row, (x, row))
        yield Piece("x - column", lambda x, column: x - column, (x, column))
        yield Piece("x / column", lambda x, column: x / column, (x, column))
        yield Piece("exp", lambda x: np.exp(x), (x,))
        yield Piece("tanh", lambda x: np.tanh(x), (x,))
        yield Piece("sum", lambda x: x.sum(axis=-1, keepdims=True), (x,))
        yield Piece("max", lambda x: x.max(axis=-1, keepdims=True), (x,))
        yield Piece("mean", lambda x: x.mean(axis=-1, keepdims=True), (x,))
        yield Piece("x[rows]", lambda x, picked: x[picked], (x, picked))
        yield Piece("where", lambda mask, x: np.where(mask, x, -np.inf), (mask, x))
        yield Piece("x[a:] = y", _assign, (target, x))
    for shape in TINY:
        x = rng.standard_normal(shape)
        yield Piece("x[1:]", lambda x: x[1:], (x,))
        yield Piece("x[:, None]", lambda x: x[:, None], (x,))
        yield Piece("reshape", lambda x: x.reshape(len(x), 1, -1), (x,))
        yield Piece("swapaxes", lambda x: x.swapaxes(0, 1), (x,))
        yield Piece("read only", lambda x: np.asarray(memoryview(x).toreadonly()), (x,))
    for n in (3, 17):
        numbers = list(range(n))
        yield Piece("arange", lambda n: np.arange(n), (n,))
        yield Piece("empty", lambda n: np.empty((2, n, 6)), (n,))
        yield Piece("asarray", lambda numbers: np.asarray(numbers), (numbers,))


def _assign(target, x):
    target[1:] = x


def _products(rng):
    for n, k, m in PRODUCTS:
        x, w = rng.standard_normal((n, k)), rng.standard_normal((k, m))
        yield Piece("x @ w", lambda x, w: x @ w, (x, w))
    for n_bytes in (2e6, 5e6, 10e6, 14e6):
        x, w = rng.standard_normal((1, 300)), rng.standard_normal((300, 300))
        matrices = [w.copy() for _ in range(round(n_bytes / w.nbytes))]
        yield Piece("x @ each w", _times_each, (x, *matrices))
    for n_heads, n, k, m in [(2, 3, 4, 5), (3, 7, 12, 20), (2, 60, 12, 100), (2, 100, 40, 100)]:
        q, keys = rng.standard_normal((n_heads, n, m)), rng.standard_normal((n_heads, k, m))
        weights, v = rng.standard_normal((n_heads, n, k)), rng.standard_normal((n_heads, k, m))
        yield Piece("q @ k.T", lambda q, keys: q @ keys.swapaxes(-1, -2), (q, keys))
        yield Piece("weights @ v", lambda weights, v: weights @ v, (weights, v))


def _times_each(x, *matrices):
    for w in matrices:
        x @ w


def _hashes():
    for n_bytes in (300, 3_000, 100_000, 1_000_000):
        yield Piece("SHA-256", _hash, (bytes(n_bytes),))


def _hash(content):
    digest = hashlib.sha256()
    for part in (b"name", content, b"name", b"content"):
        digest.update(part)
    return digest.hexdigest()


def _keys():
    for n in (5, 20, 80, 250):
        tokens = list(range(n))
        kept = {(tuple(map(type, tokens)), tuple(tokens)): n}
        yield Piece(
            "look up",
            lambda kept, tokens: kept[tuple(map(type, tokens)), tuple(tokens)],
            (kept, tokens),
            key_tokens=n,
        )


def time_in_turns(timed, budget_s, seed=0):
    """Times of each piece in ns, one array a piece, the cost of the clock subtracted.

    Short and long pieces take turns among themselves. A long one is called twice and the second
    call is timed: its numbers, not its code, are what should be near.
    """
    rng, times, nothing = random.Random(seed), [[] for _ in timed], []
    with collector_off():
        first_ns = [min(_time(piece) for _ in range(3)) for piece in timed]
        for long in (False, True):
            group = [i for i, ns in enumerate(first_ns) if (ns > LONG_NS) == long]
            end_ns = perf_counter_ns() + budget_s / 2 * 1e9
            while group and (perf_counter_ns() < end_ns or not times[group[0]]):
                for i in rng.sample(group, len(group)):
                    if long:
                        _time(timed[i])
                    times[i].append(_time(timed[i]))
                nothing.append(_time(NOTHING))
    return [np.array(ns) - np.median(nothing) for ns in times]


def _time(piece):
    function, args = piece.function, piece.args
    start_ns = perf_counter_ns()
    function(*args)
    return perf_counter_ns() - start_ns


NOTHING = Piece("nothing", lambda: None)


def fit(counts, measured_ns):
    """Prices, none below 0, whose sums come nearest to the times by relative error: {name: ns}.

    counts is a DataFrame, pieces by PRICES; measured_ns one time a piece. ValueError when a time
    is not above 0.
    """
    measured_ns = np.asarray(measured_ns, dtype=float)
    if not (measured_ns > 0).all():
        said = "a piece took no time; is the clock too coarse? Measure again, with more time"
        raise ValueError(f"piece {int(np.argmin(measured_ns))} took {measured_ns.min()} ns: {said}")
    relative = counts[list(costmodel.PRICES)].to_numpy(dtype=float) / measured_ns[:, None]
    prices, _ = nnls(relative, np.ones(len(relative)))
    return dict(zip(costmodel.PRICES, map(float, prices), strict=True))


@contextmanager
def prepared():
    """The pieces and a DataFrame of what each asks for, while the files exist that they read."""
    keep_memory()
    with tempfile.TemporaryDirectory() as directory:
        timed = pieces(directory)
        yield timed, pd.DataFrame([piece.amounts() for piece in timed])


def medians(*turns):
    """The median time of each piece over what one or more `time_in_turns` returned: [n_pieces]."""
    return np.array([np.median(np.concatenate(ns)) for ns in zip(*turns, strict=True)])


def calibrate(budget_s=4.0):
    """The prices on this machine, now: {name: ns}. Takes `budget_s` and about a second."""
    with prepared() as (timed, counts):
        return fit(counts, medians(time_in_turns(timed, budget_s)))


def call_price(counts, measured_ns):
    """What a call costs if nothing else did: the one price, in ns, that fits the short pieces."""
    calls = counts[list(opcounts.KINDS)].sum(axis=1).to_numpy()
    short = (measured_ns < LONG_NS) & (calls > 0)
    relative = calls[short] / measured_ns[short]
    return float(relative.sum() / (relative @ relative))
