"""Some hundred small pieces of code, to whose times the prices of `costmodel` are fitted.

None is a part of a decoder, and no size is one of the break-even grid.
"""

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from difflib import SequenceMatcher
from fractions import Fraction
from ipaddress import ip_address
from itertools import product
from pathlib import Path, PurePosixPath

import numpy as np

from labsupport import costmodel, opcounts

TINY = [(3, 5), (7, 11), (5, 90)]
LARGE = [(40, 100), (200, 20), (30, 300), (150, 150), (100, 700), (150, 1100)]
PRODUCTS = [  # rows of x, columns of x, columns of w
    *[(3, 5, 7), (1, 24, 24), (5, 24, 24), (7, 24, 96), (11, 96, 24), (20, 48, 48)],
    *[(1, 100, 400), (3, 100, 400), (9, 100, 100), (40, 100, 100), (100, 100, 400)],
    *[(1, 200, 800), (9, 200, 200), (30, 200, 200), (150, 48, 200), (100, 24, 96)],
    *[(1, 400, 400), (6, 400, 400), (24, 400, 400), (3, 300, 1200)],
]


@dataclass(frozen=True)
class Piece:
    """A function, its arguments, and how many tokens of a key it hashes and compares."""

    name: str
    function: Callable
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
    path = PurePosixPath("some/folder/file.txt")
    for n_bytes in (500, 5_000, 20_000):
        file = Path(directory) / f"{n_bytes} bytes"
        file.write_bytes(bytes(n_bytes))
        yield Piece("read a file", file.read_bytes)
    yield Piece("fractions", lambda: Fraction(3, 7) * Fraction(2, 9))
    yield Piece("compare texts", lambda: SequenceMatcher(None, "abcd", "bcde").ratio())
    yield Piece("read an address", lambda: ip_address("192.168.3.4"))
    yield Piece("name a file", lambda: path.with_suffix(".csv").parent / "other")
    yield Piece("check numbers", _check_numbers, (list(range(5)),))
    yield Piece("name parts", _name_parts, ({f"{i}.part": i for i in range(4)},))
    yield Piece("make an object", lambda: _Pair(3, 4).sum)


class _Pair:
    def __init__(self, first, second):
        self.first, self.second = first, second

    @property
    def sum(self):
        return self.first + self.second


def _check_numbers(numbers):
    for i, number in enumerate(numbers):
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"{number!r} at {i} is no int")
        if number < 0 or number > len(numbers):
            raise ValueError(f"{number} at {i} is out of range")
    return len(numbers)


def _name_parts(parts):
    return [parts[f"{i}.part"] + _twice(i, start=1) for i in range(len(parts))]


def _twice(number, start=0):
    return start + 2 * number


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
        yield Piece("exp of a mask", lambda x: np.exp(x), (np.where(mask, x, -np.inf),))
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
    for n_bytes, n in product([2e6, 5e6, 10e6, 14e6], [1, 3, 20]):
        x, w = rng.standard_normal((n, 300)), rng.standard_normal((300, 300))
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
