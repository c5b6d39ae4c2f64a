"""The cached step as one compiled function: numba turns these loops into machine code.

The weights are those of `folding`, each matrix [n_out, n_in]: an output is the product of one row
with the input, so the whole step reads one stream of memory from its start to its end. Compiling
takes a few seconds, once a process, when the first engine is made.
"""

import numpy as np

from labsupport import folding
from labsupport.enginebase import Engine

try:
    from numba import njit
except ImportError as error:
    message = "the compiled engine needs numba: pip install numba, as requirements.txt pins it"
    raise ImportError(message) from error

# What a compiler may change: the order of sums, multiply-add in one, x / y as x * (1 / y). It may
# not assume that there are no NaNs and infinities: those must come out, to be reported.
FAST = {"error_model": "numpy", "fastmath": {"reassoc", "contract", "arcp", "nsz"}}
f4, i4 = np.float32, np.int32


@njit(**FAST)
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


@njit(**FAST)
def _norm(x, y):
    """y = x divided by its root mean square: its mean is 0."""
    squares = f4(0)
    for i in range(len(x)):
        squares += x[i] * x[i]
    square = squares / f4(len(x)) + f4(folding.EPS)
    scale = np.sqrt(square) / square  # NaN, to be reported, where the sum is too large for float32
    for i in range(len(x)):
        y[i] = x[i] * scale


# Nothing is reordered here: to add and subtract a large number rounds, and would be undone.
@njit(error_model="numpy", fastmath={"contract"})
def _exp(x):
    """e**x within 2e-7 of it, for -87 < x < 88, and stays at the ends beyond them."""
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


@njit(**FAST)
def _gelu(u):
    """u * (1 + tanh(u**3 + SLOPE u)) in place, which is 2 u / (1 + exp(-2 (u**3 + SLOPE u)))."""
    for i in range(len(u)):
        u[i] = f4(2) * u[i] / (f4(1) + _exp(f4(-2) * u[i] * (u[i] * u[i] + f4(folding.SLOPE))))


@njit(fastmath={"nnan", "nsz"})  # else the comparisons must be made one by one
def _largest(x):
    most = x[0]
    for i in range(len(x)):
        most = x[i] if x[i] > most else most
    return most


@njit(**FAST)
def _add_rows(y, weights, rows):
    """Add weights [n] @ rows [n, len(y)] to y, four rows at a time: y is then moved less often."""
    n = len(weights) // 4 * 4
    for i in range(0, n, 4):
        a, b, c, d = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
        four = rows[i : i + 4]
        for j in range(len(y)):
            y[j] += a * four[0, j] + b * four[1, j] + c * four[2, j] + d * four[3, j]
    for i in range(n, len(weights)):
        for j in range(len(y)):
            y[j] += weights[i] * rows[i, j]


@njit(**FAST)
def _attend(q, k, v, scores, read):
    """read = softmax(q @ k) @ v of one head.

    q, read [head_dim], k [head_dim, context], v [context, head_dim], scores [n_tokens]
    """
    scores[:] = 0
    _add_rows(scores, q, k)
    most, total = _largest(scores), f4(0)
    for t in range(len(scores)):
        scores[t] = _exp(scores[t] - most)
        total += scores[t]
    read[:] = 0
    _add_rows(read, scores, v)
    for i in range(len(read)):
        read[i] /= total


@njit(**FAST)
def _step(token, t, sizes, tables, stream, keys, values, work, logits):
    """The logits after a token at position t, [vocab_size]; its keys and values are kept."""
    n_blocks, n_heads, n_kv_heads, head_dim = sizes
    tokens, positions = tables
    d, d_kv, n_tokens, at = n_heads * head_dim, n_kv_heads * head_dim, t + 1, 0
    x, normed, read, qkv = work[0, :d], work[1, :d], work[2, :d], work[3, : d + 2 * d_kv]
    hidden, scores = work[4, : 4 * d], work[5, :n_tokens]

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
            _attend(qkv[part], k, v, scores, read[part])
        at = _linear(stream, at, read, x)

        _norm(x, normed)
        hidden[:] = 0
        at = _linear(stream, at, normed, hidden)
        _gelu(hidden)
        at = _linear(stream, at, hidden, x)
    _norm(x, normed)
    logits[:] = 0
    _linear(stream, at, normed, logits)


@njit(**FAST)
def _run(prompt, start, new, sizes, tables, stream, keys, values, work, logits):
    """Feed `prompt` from position `start`; fill `new` with the largest logits' ids, one a step.

    Gives the number of ids found: fewer than asked for when logits are not finite.
    """
    t = start
    for token in prompt:
        _step(token, t, sizes, tables, stream, keys, values, work, logits)
        t += 1
    for i in range(len(new)):
        if i > 0:
            _step(new[i - 1], t, sizes, tables, stream, keys, values, work, logits)
            t += 1
        if not np.isfinite(logits).all():
            return i
        new[i] = np.argmax(logits)
    return len(new)


class CompiledEngine(Engine):
    """The engine compiled. Prefill takes the tokens one by one, in compiled code."""

    def __init__(self, config, weights):
        super().__init__(config, weights)
        c, folded = config, folding.fold(config, weights)
        pairs = [(folded[f"{n}.b"], folded[f"{n}.w"].T) for n in folding.matrices(config)]

        sizes = (c.n_blocks, c.n_heads, c.n_kv_heads, c.head_dim)
        tables = folded["tokens"], folded["positions"]
        stream = folding.one_stream([array for pair in pairs for array in pair])
        keys = folding.aligned(c.n_blocks, c.n_kv_heads, c.head_dim, c.context)
        values = folding.aligned(c.n_blocks, c.n_kv_heads, c.context, c.head_dim)
        work = folding.aligned(6, max(4 * c.d_model, -(-c.context // 16) * 16))
        self._logits = folding.aligned(c.vocab_size)
        self._state = sizes, tables, stream, keys, values, work, self._logits
        self._none, self._one = np.empty(0, np.int64), np.empty(1, np.int64)
        _run(self._none, 0, self._none, *self._state)  # compiles, the first time

    def _advance(self, token):
        self._one[0] = token
        return self._take(self._one)

    def _take(self, tokens):
        _run(np.asarray(tokens), self._n_tokens, self._none, *self._state)
        return self._logits

    def _greedy(self, prompt, n_new):
        new = np.empty(n_new, np.int64)
        n_found = _run(np.asarray(prompt), self._n_tokens, new, *self._state)
        self._n_tokens += len(prompt) + min(n_found, n_new - 1)
        if n_found < n_new:
            self._not_finite()
        return new.tolist()
