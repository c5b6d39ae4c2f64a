"""The cached step as one compiled function: numba turns these loops into machine code.

The weights are those of `folding`, each matrix [n_out, n_in]: an output is the product of one row
with the input, so the whole step reads one stream of memory from its start to its end. Compiling
takes a few seconds, once a process, when the first engine is made.
"""

import numpy as np

from labsupport import folding
from labsupport.engine import Engine

try:
    from numba import njit
except ImportError as error:
    message = "the compiled engine needs numba: pip install numba, as requirements.txt pins it"
    raise ImportError(message) from error

# What a compiler may change: the order of sums, multiply-add in one, x / y as x * (1 / y). It may
# not assume that there are no NaNs and infinities: those must come out, to be reported.
FAST = {"reassoc", "contract", "arcp", "nsz"}
f4, i4 = np.float32, np.int32


@njit(fastmath=FAST)
def _linear(stream, at, x, y):
    """Add x [n_in] @ matrix + bias to y [n_out]; where the next bias and matrix stand."""
    n_in, n_out = len(x), len(y)
    for j in range(n_out):
        start = at + n_out + j * n_in
        row = stream[start : start + n_in]
        total = stream[at + j]
        for i in range(n_in):
            total += row[i] * x[i]
        y[j] += total
    return at + n_out * (n_in + 1)


@njit(fastmath=FAST)
def _norm(x, y):
    """y = x divided by its root mean square: its mean is 0."""
    squares = f4(0)
    for i in range(len(x)):
        squares += x[i] * x[i]
    scale = f4(1) / np.sqrt(squares / f4(len(x)) + f4(folding.EPS))
    for i in range(len(x)):
        y[i] = x[i] * scale


@njit(fastmath={"contract"})  # no reordering here: rounding by a large addend would be undone
def _exp(x):
    """e**x within 2e-7 of it, for x up to 88; 0 below -87 (2e-38)."""
    x = f4(-87.5) if x < f4(-87.5) else x  # keeps NaN
    x = f4(88) if x > f4(88) else x
    shifted = x * f4(1.44269504) + f4(12582912)  # 1.5 * 2**23: the last bits count whole powers
    n = shifted - f4(12582912)
    r = x - n * f4(0.693359375) + n * f4(2.12194440e-4)  # x = n ln 2 + r, |r| <= ln 2 / 2
    p = f4(1.9875691500e-4)  # Cephes, expf
    p = p * r + f4(1.3981999507e-3)
    p = p * r + f4(8.3334519073e-3)
    p = p * r + f4(4.1665795894e-2)
    p = p * r + f4(1.6666665459e-1)
    p = p * r + f4(5.0000001201e-1)
    p = p * r * r + r + f4(1)
    bits = np.float32(shifted).view(np.int32)  # n, in its last bits
    return p * np.int32((bits + i4(127)) << i4(23)).view(np.float32)  # times 2**n, as an exponent


@njit(fastmath=FAST)
def _gelu(u):
    """u * (1 + tanh(u**3 + SLOPE u)) in place, which is 2 u / (1 + exp(-2 (u**3 + SLOPE u)))."""
    for i in range(len(u)):
        u[i] = f4(2) * u[i] / (f4(1) + _exp(f4(-2) * u[i] * (u[i] * u[i] + f4(folding.SLOPE))))


@njit(fastmath=FAST | {"nnan"})  # else the comparisons must be made one by one
def _largest(x):
    most = x[0]
    for i in range(len(x)):
        most = x[i] if x[i] > most else most
    return most


@njit(fastmath=FAST)
def _attend(q, k, v, scores, read):
    """read = softmax(q @ k) @ v of one head.

    q, read [head_dim], k [head_dim, n_tokens], v [n_tokens, head_dim], scores [n_tokens]
    """
    scores[:] = 0
    for i in range(len(q)):
        row = k[i]
        for t in range(len(scores)):
            scores[t] += q[i] * row[t]

    most, total = _largest(scores), f4(0)
    for t in range(len(scores)):
        scores[t] = _exp(scores[t] - most)
        total += scores[t]

    read[:] = 0
    for t in range(len(scores)):
        row = v[t]
        weight = scores[t] / total
        for i in range(len(read)):
            read[i] += weight * row[i]


@njit(fastmath=FAST)
def _step(token, t, sizes, tables, stream, keys, values, work, logits):
    """The logits after a token at position t, [vocab_size]; its keys and values are kept."""
    n_blocks, n_heads, n_kv_heads, head_dim = sizes
    tokens, positions = tables
    x, normed, qkv, read, hidden, scores = work
    d, d_kv, n_tokens, at = n_heads * head_dim, n_kv_heads * head_dim, t + 1, 0

    for i in range(d):
        x[i] = tokens[token, i] + positions[t, i]
    for block in range(n_blocks):
        _norm(x, normed)
        qkv[:] = 0
        at = _linear(stream, at, normed, qkv)
        for i in range(d_kv):
            head, j = i // head_dim, i % head_dim
            keys[block, head, j, t] = qkv[d + i]
            values[block, head, t, j] = qkv[d + d_kv + i]
        for h in range(n_heads):
            part, kv = slice(h * head_dim, (h + 1) * head_dim), h // (n_heads // n_kv_heads)
            k, v = keys[block, kv], values[block, kv]
            _attend(qkv[part], k, v, scores[:n_tokens], read[part])
        at = _linear(stream, at, read, x)

        _norm(x, normed)
        hidden[:] = 0
        at = _linear(stream, at, normed, hidden)
        _gelu(hidden)
        at = _linear(stream, at, hidden, x)
    _norm(x, normed)
    logits[:] = 0
    _linear(stream, at, normed, logits)


@njit(fastmath=FAST)
def _run(prompt, start, new, sizes, tables, stream, keys, values, logits):
    """Feed `prompt` from position `start`; fill `new` with the largest logits' ids, one a step.

    Gives the number of ids found: fewer than asked for when logits are not finite.
    """
    d = tables[0].shape[1]
    d_qkv = d + 2 * sizes[2] * sizes[3]
    work = (
        np.empty(d, f4),
        np.empty(d, f4),
        np.empty(d_qkv, f4),
        np.empty(d, f4),
        np.empty(4 * d, f4),
        np.empty(keys.shape[3], f4),
    )
    t = start
    for token in prompt:
        _step(token, t, sizes, tables, stream, keys, values, work, logits)
        t += 1
    for i in range(len(new)):
        if not np.isfinite(logits).all():
            return i
        new[i] = np.argmax(logits)
        if i + 1 < len(new):
            _step(new[i], t, sizes, tables, stream, keys, values, work, logits)
            t += 1
    return len(new)


class CompiledEngine(Engine):
    """The engine compiled. Prefill takes the tokens one by one, in compiled code."""

    def __init__(self, config, weights):
        super().__init__(config, weights)
        c, folded = config, folding.fold(config, weights)
        names = [f"{i}.{n}" for i in range(c.n_blocks) for n in ("qkv", "o", "up", "down")]
        parts = [(folded[f"{n}.b"], folded[f"{n}.w"].T.ravel()) for n in (*names, "head")]
        stream = np.concatenate([array for part in parts for array in part])

        self._sizes = (c.n_blocks, c.n_heads, c.n_kv_heads, c.head_dim)
        self._tables = folded["tokens"], folded["positions"]
        self._stream = stream
        kv_heads = (c.n_blocks, c.n_kv_heads)
        self._keys = np.zeros((*kv_heads, c.head_dim, c.context), f4)
        self._values = np.zeros((*kv_heads, c.context, c.head_dim), f4)
        self._logits = np.empty(c.vocab_size, f4)
        self._state = self._sizes, self._tables, stream, self._keys, self._values, self._logits
        self._none = np.empty(0, np.int64)
        _run(self._none, 0, self._none, *self._state)  # compiles, the first time

    def _advance(self, token):
        return self._take([token])

    def _take(self, tokens):
        _run(np.array(tokens), self._n_tokens, self._none, *self._state)
        return self._logits

    def _greedy(self, prompt, n_new):
        new = np.empty(n_new, np.int64)
        n_found = _run(np.array(prompt), self._n_tokens, new, *self._state)
        self._n_tokens += len(prompt) + min(n_found, n_new - 1)
        if n_found < n_new:
            self._not_finite()
        return new.tolist()
