"""A model in fewer operations: all that does not depend on a token, multiplied into the weights.

So the engines' cached step (`engine`, `compiled`) has less left to do, and gives the same logits
to rounding.
"""

import math

import numpy as np

from labsupport import charweights

EPS = 1e-5  # what torch's LayerNorm adds to the variance
CUBIC = math.sqrt(2 / math.pi) * 0.044715  # gelu(h) = h / 2 * (1 + tanh(LINEAR h + CUBIC h**3))
ALPHA = CUBIC ** (1 / 3)  # so with u = ALPHA h it is u (u**2 + SLOPE) that goes into tanh
SLOPE = math.sqrt(2 / math.pi) / ALPHA


@np.errstate(invalid="ignore")  # weights that are not finite show in the logits
def fold(config, weights):
    """The same model in fewer operations: {name: array}, of the dtype of `weights`, all new.

    tokens, positions                         [vocab_size, d_model], [context, d_model]
    "{i}.qkv", "{i}.o", "{i}.up", "{i}.down"  .w [n_in, n_out] and .b [n_out] of block i
    head                                      the same

    What writes to the residual stream has mean 0 over d_model, so the stream has: a LayerNorm need
    only divide by the root mean square. Its gain and bias are in the matrix behind it, 1 /
    sqrt(head_dim) is in q, and up gives u = ALPHA h, so that down takes u * (1 + tanh(u**3 +
    SLOPE u)) for gelu(h).

    Raises TypeError unless all weights are float32, or all float64; ValueError, naming the weight,
    when one is missing, left over or of another shape.
    """
    dtype = check(config, weights)
    w = {name: np.asarray(array, np.float64) for name, array in weights.items()}
    folded = {name: _centred(w[name]) for name in ("tokens", "positions")}

    def put(name, matrix, bias):
        folded[f"{name}.w"], folded[f"{name}.b"] = matrix, bias

    def put_behind(norm, name, matrix, bias):  # (x * g + b) @ m + c = x @ (g * m) + (b @ m + c)
        put(name, w[f"{norm}.g"][:, None] * matrix, w[f"{norm}.b"] @ matrix + bias)

    scales = {"q": 1 / math.sqrt(config.head_dim), "k": 1, "v": 1}
    for i in range(config.n_blocks):
        matrix = np.hstack([w[f"{i}.{part}.w"] * scale for part, scale in scales.items()])
        bias = np.hstack([w[f"{i}.{part}.b"] * scale for part, scale in scales.items()])
        put_behind(f"{i}.norm_1", f"{i}.qkv", matrix, bias)
        put(f"{i}.o", _centred(w[f"{i}.o.w"]), _centred(w[f"{i}.o.b"]))
        put_behind(f"{i}.norm_2", f"{i}.up", w[f"{i}.up.w"] * ALPHA, w[f"{i}.up.b"] * ALPHA)
        put(f"{i}.down", _centred(w[f"{i}.down.w"]) / (2 * ALPHA), _centred(w[f"{i}.down.b"]))
    put_behind("norm", "head", w["head.w"], w["head.b"])
    return {name: np.ascontiguousarray(array, dtype) for name, array in folded.items()}


def matrices(config):
    """The names of the folded matrices, in the order in which a step reads them."""
    names = [f"{i}.{n}" for i in range(config.n_blocks) for n in ("qkv", "o", "up", "down")]
    return [*names, "head"]


def one_stream(arrays):
    """Copies of all these float32 arrays, one behind the other: [n_numbers], see `aligned`."""
    parts = [array.ravel() for array in arrays]
    return np.concatenate(parts, out=aligned(sum(part.size for part in parts)))


def aligned(*shape):
    """Zeros in float32 that start on a cache line: a load of a whole vector then crosses none."""
    n = math.prod(shape)
    memory = np.zeros(n + 15, np.float32)  # 16 numbers are 64 bytes
    return memory[-memory.ctypes.data % 64 // 4 :][:n].reshape(shape)


def _centred(array):
    return array - array.mean(axis=-1, keepdims=True)


def check(config, weights):
    """The one dtype of the weights, once they are known to fit."""
    dtypes = {np.asarray(array).dtype for array in weights.values()}
    if dtypes not in ({np.dtype(np.float32)}, {np.dtype(np.float64)}):
        found = sorted(map(str, dtypes))
        raise TypeError(f"weights must all be float32, or all float64, not {found}")
    charweights.numpy_decoder(config, weights)
    return dtypes.pop()
