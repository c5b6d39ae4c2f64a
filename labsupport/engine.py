"""The fast cached step in NumPy: one token in, its logits out, and as little as possible between.

    Engine        what this engine and the compiled one share: checks, length, greedy generation
    NumpyEngine   the step in few array operations, each into memory that stays

What the weights are multiplied with beforehand is in `folding`.
"""

import math
from abc import ABC, abstractmethod

import numpy as np

from labsupport import folding
from labsupport.decoder import softmax
from labsupport.kvcache import whole_number


class Engine(ABC):
    """A model with the tokens it has seen: float32, one sequence, room for config.context tokens.

    Whatever is raised, the engine then holds the tokens that it held before.
    """

    def __init__(self, config, weights):
        """`weights` as `charweights.flat` gives them, in float32; they are copied.

        Raises TypeError or ValueError for weights that do not fit.
        """
        if folding.check(config, weights) != np.float32:
            raise TypeError("an engine computes in float32; convert the weights with .astype")
        self.config = config
        self._n_tokens = 0
        self._zeros = np.zeros(config.vocab_size, np.float32)

    def __len__(self):
        """Tokens held."""
        return self._n_tokens

    def truncate(self, n_tokens):
        """Keep the first `n_tokens` tokens; ValueError if there are fewer."""
        if whole_number("n_tokens", n_tokens, at_least=0) > self._n_tokens:
            raise ValueError(f"cannot truncate to {n_tokens} tokens: {self._n_tokens} are held")
        self._n_tokens = n_tokens

    def reset(self):
        """Forget all tokens."""
        self._n_tokens = 0

    def step(self, token):
        """The logits after one more token, [vocab_size]; the next call overwrites them.

        Raises TypeError for what is not an int, ValueError for a token that is not in the
        vocabulary and when the context is full.
        """
        if type(token) is not int or not 0 <= token < self.config.vocab_size:
            token = self._check_tokens([token])[0]
        if self._n_tokens == self.config.context:
            self._check_room(1)
        logits = self._advance(token)  # [vocab_size]
        self._n_tokens += 1  # last: an interrupted step has left no trace
        return logits

    def prefill(self, tokens):
        """The logits after the last of `tokens`, one or more, [vocab_size]; raises what step does.

        The tokens follow those held; in chunks of any sizes they give what one piece gives.
        """
        tokens = self._check_tokens(tokens)
        self._check_room(len(tokens))
        logits = self._take(tokens)
        self._n_tokens += len(tokens)
        return logits

    def generate(self, prompt, n_new):
        """The `n_new` token ids that follow `prompt`, each the one with the largest logit: a list.

        The prompt follows the tokens held, and each token is computed once; the last is not fed
        back. Raises what prefill does, before anything is computed, and FloatingPointError for
        logits that are not finite.
        """
        prompt = self._check_tokens(prompt)
        n_fed = len(prompt) + whole_number("n_new", n_new, at_least=0) - 1
        if n_new == 0:
            return []
        self._check_room(n_fed)
        start = self._n_tokens
        try:
            return self._greedy(prompt, n_new)
        except BaseException:  # also Ctrl-C
            self._n_tokens = start
            raise

    def _greedy(self, prompt, n_new):
        logits, new = self.prefill(prompt), []
        while True:
            if logits.dot(self._zeros) != 0:  # 0 times a number is 0, unless it is not finite
                self._not_finite()
            new.append(int(logits.argmax()))
            if len(new) == n_new:
                return new
            logits = self.step(new[-1])

    @abstractmethod
    def _advance(self, token):
        """The logits after a token at position len(self), its keys and values kept there."""

    @abstractmethod
    def _take(self, tokens):
        """The same for a list of tokens, the first of them there."""

    def _check_tokens(self, tokens):
        tokens = [whole_number("a token", token, at_least=0) for token in tokens]
        if not tokens:
            raise ValueError("there are no tokens; give one or more")
        if max(tokens) >= self.config.vocab_size:
            raise ValueError(f"token {max(tokens)} is not in 0..{self.config.vocab_size - 1}")
        return tokens

    def _check_room(self, n_new):
        if self._n_tokens + n_new > self.config.context:
            raise ValueError(
                f"{self._n_tokens} tokens and {n_new} more pass the context of "
                f"{self.config.context}; truncate() or reset(), or take a larger context"
            )

    def _not_finite(self):
        where = f"after {self._n_tokens} tokens"
        raise FloatingPointError(f"logits {where} are not finite; check the weights")


class NumpyEngine(Engine):
    """The engine in NumPy. Nothing is allocated in a step but small views."""

    def __init__(self, config, weights):
        super().__init__(config, weights)
        c, folded = config, folding.fold(config, weights)
        self._tokens, self._positions = folded["tokens"], folded["positions"]

        # A bias is one more row, for an input that is always 1: it costs no operation of its own.
        names = [f"{i}.{n}" for i in range(c.n_blocks) for n in ("qkv", "o", "up", "down")]
        rows = [np.vstack([folded[f"{n}.w"], folded[f"{n}.b"]]) for n in (*names, "head")]
        stream, ends = folding.one_stream(rows), np.cumsum([row.size for row in rows])
        parts = zip(np.split(stream, ends[:-1]), rows, strict=True)
        *matrices, self._head = (part.reshape(row.shape) for part, row in parts)
        self._blocks = [matrices[4 * i : 4 * i + 4] for i in range(c.n_blocks)]

        shared = c.n_heads // c.n_kv_heads
        kv_heads = (c.n_blocks, c.n_kv_heads)
        self._keys = np.zeros((*kv_heads, c.head_dim, c.context), np.float32)  # transposed
        self._values = np.zeros((*kv_heads, c.context, c.head_dim), np.float32)

        d, d_kv = c.d_model, c.n_kv_heads * c.head_dim
        self._x, self._added = np.empty((2, d), np.float32)
        self._scale = np.empty((), np.float32)
        self._normed, self._read, self._hidden = (
            np.ones(n + 1, np.float32) for n in (d, d, 4 * d)
        )  # the last number stays 1, for the bias
        self._slope, self._one = np.array([folding.SLOPE, 1], np.float32).reshape(2, 1)
        self._bent = np.empty(4 * d, np.float32)
        self._logits = np.empty(c.vocab_size, np.float32)
        self._scores = np.empty(c.n_heads * c.context, np.float32)
        self._most, self._total = np.empty((2, c.n_kv_heads, shared, 1), np.float32)
        self._qkv = np.empty(d + 2 * d_kv, np.float32)
        self._parts = [d, d + d_kv]  # where q ends, and k
        q, k, v = np.split(self._qkv, self._parts)  # views
        self._q = q.reshape(c.n_kv_heads, shared, c.head_dim)
        self._k, self._v = k.reshape(c.n_kv_heads, -1), v.reshape(c.n_kv_heads, -1)
        self._read_heads = self._read[:d].reshape(c.n_kv_heads, shared, c.head_dim)

    def _advance(self, token):
        c, t, n_tokens = self.config, self._n_tokens, self._n_tokens + 1
        x, normed, added, qkv, read = self._x, self._normed, self._added, self._qkv, self._read
        read_heads, most, total = self._read_heads, self._most, self._total
        hidden, bent, up_out = self._hidden, self._bent, self._hidden[:-1]
        scores = self._scores[: c.n_heads * n_tokens].reshape(c.n_kv_heads, -1, n_tokens)
        keys = self._keys[..., :n_tokens]  # [n_blocks, n_kv_heads, head_dim, n_tokens]
        values = self._values[:, :, :n_tokens]  # [n_blocks, n_kv_heads, n_tokens, head_dim]

        np.add(self._tokens[token], self._positions[t], x)  # [d_model]
        for (qkv_w, o_w, up_w, down_w), k, v in zip(self._blocks, keys, values, strict=True):
            self._norm()
            normed.dot(qkv_w, qkv)
            k[:, :, t], v[:, t] = self._k, self._v

            np.matmul(self._q, k, scores)  # [n_kv_heads, shared, n_tokens]
            np.maximum.reduce(scores, 2, None, most, True)  # without it exp could overflow
            np.subtract(scores, most, scores)
            np.exp(scores, scores)
            np.add.reduce(scores, 2, None, total, True)
            np.matmul(scores, v, read_heads)  # [n_kv_heads, shared, head_dim]
            np.divide(read_heads, total, read_heads)
            read.dot(o_w, added)
            np.add(x, added, x)

            self._norm()
            normed.dot(up_w, up_out)  # u, [4 * d_model]
            np.multiply(up_out, up_out, bent)
            np.add(bent, self._slope, bent)
            np.multiply(bent, up_out, bent)
            np.tanh(bent, bent)
            np.add(bent, self._one, bent)
            np.multiply(bent, up_out, up_out)
            hidden.dot(down_w, added)
            np.add(x, added, x)
        self._norm()
        return normed.dot(self._head, self._logits)  # [vocab_size]

    def _norm(self):
        """x divided by its root mean square: its mean is 0."""
        x = self._x
        self._scale[()] = 1 / math.sqrt(x.dot(x) / len(x) + folding.EPS)
        np.multiply(x, self._scale, self._normed[:-1])

    def _take(self, tokens):
        """All tokens at once: each matrix is read once for all of them."""
        c, start, end = self.config, self._n_tokens, self._n_tokens + len(tokens)
        past = np.arange(end) <= np.arange(start, end)[:, None]  # [n_new, n_tokens]
        x = self._tokens[tokens] + self._positions[start:end]  # [n_new, d_model]
        for (qkv_w, o_w, up_w, down_w), keys, values in zip(
            self._blocks, self._keys, self._values, strict=True
        ):
            q, k, v = np.split(_linear(_normed(x), qkv_w), self._parts, axis=1)
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
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + folding.EPS)
