"""The fast cached step in NumPy: one token in, its logits out, and as little as possible between.

Few array operations, each into memory that stays. What is multiplied into the weights beforehand
is in `folding`; what all engines share is in `enginebase`.
"""

import math
from functools import partial

import numpy as np

from labsupport import folding
from labsupport.decoder import softmax
from labsupport.enginebase import Engine


class NumpyEngine(Engine):
    """The engine in NumPy. Nothing is allocated in a step but small views."""

    def __init__(self, config, weights):
        super().__init__(config, weights)
        c, folded = config, folding.fold(config, weights)
        d, d_kv, shared = c.d_model, c.n_kv_heads * c.head_dim, c.n_heads // c.n_kv_heads
        empty = partial(np.empty, dtype=np.float32)

        # A bias is one more row, for an input that is always 1: it costs no operation of its own.
        names = folding.matrices(c)
        rows = [np.vstack([folded[f"{n}.w"], folded[f"{n}.b"]]) for n in names]
        stream, ends = folding.one_stream(rows), np.cumsum([row.size for row in rows])
        parts = zip(np.split(stream, ends[:-1]), rows, strict=True)
        *matrices, self._head = (part.reshape(row.shape) for part, row in parts)
        self._blocks = [matrices[4 * i : 4 * i + 4] for i in range(c.n_blocks)]
        self._tokens, self._positions = folded["tokens"], folded["positions"]

        self._keys = empty((c.n_blocks, c.n_kv_heads, c.head_dim, c.context))  # transposed
        self._values = empty((c.n_blocks, c.n_kv_heads, c.context, c.head_dim))

        # All else that a step writes; views of the same numbers have names of their own.
        self._x, self._added, self._scale = empty(d), empty(d), empty(())
        self._normed, self._read, self._hidden = (  # the last number stays 1, for the bias
            np.ones(n + 1, np.float32) for n in (d, d, 4 * d)
        )
        self._unit, self._u, self._bent = self._normed[:-1], self._hidden[:-1], empty(4 * d)
        self._slope, self._one = np.array([[folding.SLOPE], [1]], np.float32)
        self._qkv, self._ends = empty(d + 2 * d_kv), [d, d + d_kv]  # where q ends, and k
        q, k, v = np.split(self._qkv, self._ends)
        self._q = q.reshape(c.n_kv_heads, shared, c.head_dim)
        self._k, self._v = k.reshape(c.n_kv_heads, -1), v.reshape(c.n_kv_heads, -1)
        self._heads = self._read[:-1].reshape(c.n_heads, c.head_dim)
        self._grouped = self._heads.reshape(self._q.shape)
        self._scores, self._ones = empty(c.n_heads * c.context), np.ones(c.context, np.float32)
        self._most, self._total = empty((2, c.n_heads, 1))
        self._logits = empty(c.vocab_size)

    def _advance(self, token):
        c, t, n_tokens = self.config, self._n_tokens, self._n_tokens + 1
        x, normed, added = self._x, self._normed, self._added  # [d_model]; normed ends in a 1
        qkv, u, bent = self._qkv, self._u, self._bent
        keys = self._keys[..., :n_tokens]  # [n_blocks, n_kv_heads, head_dim, n_tokens]
        values = self._values[:, :, :n_tokens]  # [n_blocks, n_kv_heads, n_tokens, head_dim]
        scores = self._scores[: c.n_heads * n_tokens].reshape(c.n_heads, n_tokens)
        grouped = scores.reshape(c.n_kv_heads, -1, n_tokens)  # [n_kv_heads, shared, n_tokens]
        most, total, ones = self._most, self._total, self._ones[:n_tokens, None]

        np.add(self._tokens[token], self._positions[t], x)  # [d_model]
        for (qkv_w, o_w, up_w, down_w), k, v in zip(self._blocks, keys, values, strict=True):
            self._norm()
            normed.dot(qkv_w, qkv)  # [d_model + 2 * d_kv]
            k[:, :, t], v[:, t] = self._k, self._v

            np.matmul(self._q, k, grouped)  # [n_kv_heads, shared, n_tokens]
            np.maximum.reduce(scores, 1, None, most, True)  # or exp may overflow
            np.subtract(scores, most, scores)
            np.exp(scores, scores)
            scores.dot(ones, total)  # a sum, each score times 1: [n_heads, 1]
            np.matmul(grouped, v, self._grouped)  # [.., shared, head_dim]
            np.divide(self._heads, total, self._heads)
            self._read.dot(o_w, added)  # [d_model]
            np.add(x, added, x)

            self._norm()
            normed.dot(up_w, u)  # [4 * d_model]
            np.multiply(u, u, bent)
            np.add(bent, self._slope, bent)
            np.multiply(bent, u, bent)
            np.tanh(bent, bent)
            np.add(bent, self._one, bent)
            np.multiply(bent, u, u)  # gelu, but for a factor that is in down
            self._hidden.dot(down_w, added)  # [d_model]
            np.add(x, added, x)
        self._norm()
        return normed.dot(self._head, self._logits)  # [vocab_size]

    def _norm(self):
        """x divided by its root mean square: its mean is 0."""
        x = self._x
        square = float(x.dot(x)) / len(x) + folding.EPS
        self._scale[()] = math.sqrt(square) / square  # NaN, to be reported, if the sum is infinite
        np.multiply(x, self._scale, self._unit)

    def _take(self, tokens):
        """All tokens at once: each matrix is read once for all of them."""
        c, start, end = self.config, self._n_tokens, self._n_tokens + len(tokens)
        past = np.arange(end) <= np.arange(start, end)[:, None]  # [n_new, n_tokens]
        x = self._tokens[tokens] + self._positions[start:end]  # [n_new, d_model]
        for (qkv_w, o_w, up_w, down_w), keys, values in zip(
            self._blocks, self._keys, self._values, strict=True
        ):
            q, k, v = np.split(_linear(_normed(x), qkv_w), self._ends, axis=1)
            keys[:, :, start:end] = k.reshape(-1, c.n_kv_heads, c.head_dim).transpose(1, 2, 0)
            values[:, start:end] = v.reshape(-1, c.n_kv_heads, c.head_dim).swapaxes(0, 1)

            q = q.reshape(-1, c.n_kv_heads, c.n_heads // c.n_kv_heads, c.head_dim)
            q = q.transpose(1, 2, 0, 3)  # [n_kv_heads, shared, n_new, head_dim]
            scores = np.where(past, q @ keys[:, None, :, :end], -np.inf)
            read = softmax(scores) @ values[:, None, :end]  # [n_kv_heads, shared, n_new, head_dim]
            x = x + _linear(read.transpose(2, 0, 1, 3).reshape(x.shape), o_w)

            u = _linear(_normed(x), up_w)  # [n_new, 4 * d_model]
            x = x + _linear(u * (1 + np.tanh(u * (u * u + folding.SLOPE))), down_w)
        return _linear(_normed(x[-1:]), self._head)[0]  # [vocab_size]


def _linear(x, matrix):
    return x @ matrix[:-1] + matrix[-1]


def _normed(x):
    """Each row divided by its root mean square."""
    square = (x * x).mean(axis=-1, keepdims=True) + folding.EPS
    return x * (np.sqrt(square) / square)  # NaN where the sum is infinite
