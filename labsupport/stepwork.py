"""The work of a step in pieces: each a probe of `rates`, and what sizes in between cost.

    layers      the matrix products of BLOCKS blocks, for so many rows
    attention   of one new token to all tokens, or of all tokens to those before, HEADS heads
    passes      one operation on so many numbers: GELU, LayerNorm, an addition, a copy
    steps       a step of each path of `loops`, on a model so small that its numbers cost next to
                nothing: what its calls cost

A piece also pays for its calls. `excess_ns` takes off what the same piece costs at its smallest
size, so that the calls of a step are counted once, in what the tiny step takes.
"""

import math

import numba
import numpy as np
import torch
from torch.nn import functional as F

from labsupport import loops
from labsupport.charmodel import CharConfig
from labsupport.rates import Probe

BLOCKS, HEADS = 3, 4
SMALLEST = 8  # width; and so many numbers in a pass
WIDTHS = [64, 128, 192, 256, 384, 512, 768, 1024]
ROWS = [1, 4, 16, 64, 256, 1024]
TOKENS = [1, 16, 64, 256, 512, 1024]
ELEMENTS = [2**10, 2**13, 2**16, 2**18, 2**20]
MOST_NUMBERS = 2**18  # rows x width of the largest product, tokens x width of the most attention
STEPS = 8  # of a tiny loop


def probes(widths=WIDTHS, rows=ROWS, tokens=TOKENS, elements=ELEMENTS):
    """The pieces of these sizes and the smallest, a list of Probe."""
    made = steps()
    for d in (SMALLEST, *widths):
        made += layers(d, [n for n in rows if n == 1 or n * d <= MOST_NUMBERS])
        made += attention(d, [n for n in tokens if n == 1 or n * d <= MOST_NUMBERS])
    for n in (SMALLEST, *elements):
        made += passes(n)
    return made


def steps():
    """A loop of STEPS steps of each path on a model of width SMALLEST."""
    config = CharConfig(context=STEPS, d_model=SMALLEST, n_blocks=BLOCKS, n_heads=HEADS)
    counted, tokens = loops.operations(config), loops.tokens_of(config, STEPS)
    return [
        Probe(f"steps: {path}", _of(loop, tokens), {}, n_operations=STEPS * counted[path])
        for path, loop in loops.make(config).items()
    ]


def _of(call, *args):
    return lambda: call(*args)


@numba.njit(fastmath=True)
def _rows(stream, x, out):
    """out[j] = row j . x, the rows of x's length lying one after the other in `stream`."""
    for j in range(out.shape[0]):
        total, row = np.float32(0), stream[j * x.shape[0] : (j + 1) * x.shape[0]]
        for i in range(x.shape[0]):
            total += row[i] * x[i]
        out[j] = total


def layers(d_model, rows):
    """The matrix products of BLOCKS blocks: in torch for each number of rows, in NumPy for one.

    A torch layer holds its matrix as [n_out, n_in]; NumPy's row times matrix has [n_in, n_out].
    """
    d, rng = d_model, np.random.default_rng(0)
    shapes = [(d, 3 * d), (d, d), (d, 4 * d), (4 * d, d)] * BLOCKS  # [n_in, n_out]
    matrices = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    n_weights = sum(m.size for m in matrices)
    amounts = {"n_bytes": 4 * n_weights, "n_operations": len(shapes)}
    row = {n_in: np.ones(n_in, np.float32) for n_in in (d, 4 * d)}
    out = {n_out: np.empty(n_out, np.float32) for n_out in (d, 3 * d, 4 * d)}

    def numpy_layers():
        for m in matrices:
            row[m.shape[0]].dot(m, out[m.shape[1]])

    at = {"d_model": d, "rows": 1}
    made = [Probe("NumPy layers", numpy_layers, at, n_flops=2 * n_weights, **amounts)]
    stream, many = np.concatenate([m.ravel() for m in matrices]), np.empty(n_weights // d, "f4")
    call = _of(_rows, stream, row[d], many)
    amounts_of_one = amounts | {"n_operations": 1}
    made.append(Probe("compiled layers", call, at, n_flops=2 * n_weights, **amounts_of_one))
    weights = [torch.from_numpy(m).view(m.shape[::-1]) for m in matrices]  # [n_out, n_in]
    biases = {n_out: torch.zeros(n_out) for n_out in out}
    for n in rows:
        call = _torch_layers(weights, biases, {n_in: torch.ones(1, n, n_in) for n_in in row})
        n_flops = 2 * n * n_weights
        made.append(Probe("torch layers", call, at | {"rows": n}, n_flops=n_flops, **amounts))
    return made


def _torch_layers(weights, biases, x):
    @torch.inference_mode()
    def call():
        for w in weights:
            F.linear(x[w.shape[1]], w, biases[w.shape[0]])

    return call


def attention(d_model, tokens):
    """HEADS heads over so many tokens: torch's for the last token and for all, NumPy's products."""
    made, d = [], d_model
    for n in tokens:
        q, k, v = torch.randn(3, 1, HEADS, n, d // HEADS)  # [1, n_heads, n_tokens, head_dim]
        at, amounts = {"d_model": d, "tokens": n}, {"n_bytes": 8 * n * d, "n_operations": 1}
        one = _torch_attention(q[:, :, -1:].clone(), k, v, causal=False)
        made.append(Probe("torch attention of one", one, at, n_flops=4 * n * d, **amounts))
        all_ = _torch_attention(q, k, v, causal=True)
        made.append(Probe("torch attention of all", all_, at, n_flops=4 * n * n * d, **amounts))
        joined = _torch_cat(k[:, :, 1:], k[:, :, :1])
        made.append(Probe("torch cat", joined, at, n_bytes=4 * n * d, n_operations=1))

        q, k, v = q[0, :, -1:].numpy(), k[0].mT.contiguous().numpy(), v[0].numpy()
        call = _numpy_attention(q, k, v)
        amounts = {"n_flops": 4 * n * d, "n_bytes": 8 * n * d, "n_operations": 7}
        made.append(Probe("NumPy attention of one", call, at, **amounts))
    return made


def _torch_attention(q, k, v, causal):
    @torch.inference_mode()
    def call():
        F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return call


def _torch_cat(old, new):
    @torch.inference_mode()
    def call():
        torch.cat([old, new], dim=2)

    return call


def _numpy_attention(q, k, v):
    """q [n_heads, 1, head_dim], k [n_heads, head_dim, n_tokens], v as k transposed."""
    scores, read = np.matmul(q, k), np.empty_like(q)
    most, total = np.empty_like(q[:, :, :1]), np.empty_like(q[:, :, :1])

    def call():
        np.matmul(q, k, scores)
        np.maximum.reduce(scores, 2, None, most, True)
        np.subtract(scores, most, scores)
        np.exp(scores, scores)
        np.add.reduce(scores, 2, None, total, True)
        np.matmul(scores, v, read)
        return np.divide(read, total, read)

    return call


def passes(elements):
    """One operation on so many numbers, in rows of 128 where there are as many."""
    x = torch.randn(elements).view(-1, min(elements, 128))
    gain, a = torch.ones(x.shape[1]), x.numpy().ravel()
    other, out, target = x.clone(), a.copy(), x.clone()
    calls = {
        "torch GELU": lambda: F.gelu(x, approximate="tanh"),
        "torch LayerNorm": lambda: F.layer_norm(x, x.shape[1:], gain, gain),
        "torch addition": lambda: x + other,
        "torch copy": lambda: target.copy_(x),
        "NumPy tanh": lambda: np.tanh(a, out),
        "NumPy product": lambda: np.multiply(a, a, out),
    }
    return [
        Probe(name, torch.inference_mode()(call), {"elements": elements}, n_operations=1)
        for name, call in calls.items()
    ]


def excess_ns(rates, name, **at):
    """What a piece costs beyond its smallest size, in ns, at sizes measured or between them.

    at holds one or two sizes in the order of the probe; one of them may be an array.
    Between sizes the logarithms lie on straight lines, beyond the last on that of the last two.
    ValueError if the rates do not hold the smallest and two sizes more.
    """
    first, *second = at
    rows = [row for row in rates["probes"] if row["name"] == name]
    least = min((row["typical_ns"] for row in rows if row[first] == SMALLEST), default=math.nan)
    lines = {}
    for row in rows:
        if row[first] > SMALLEST:
            beyond = max(row["typical_ns"] - least, 1.0)
            lines.setdefault(row[first], {})[row[second[0]] if second else 1] = beyond
    if len(lines) < 2 or math.isnan(least):
        raise ValueError(f"these rates hold too few sizes of {name!r}; measure stepwork.probes()")
    if second:
        along = [_between(line, at[second[0]]) for line in lines.values()]
    else:
        along = [line[1] for line in lines.values()]
    return _between(dict(zip(lines, along, strict=True)), at[first])


def _between(line, x):
    """{size: value or array of values} at size x, along straight lines of logarithms."""
    sizes = sorted(line)
    if len(sizes) == 1:
        return line[sizes[0]]
    logs, log_x = np.log(sizes), np.log(x)
    values = np.log([line[size] for size in sizes])  # [n_sizes], or [n_sizes, n]
    i = np.clip(np.searchsorted(logs, log_x) - 1, 0, len(sizes) - 2)
    part = (log_x - logs[i]) / (logs[i + 1] - logs[i])
    return np.exp(values[i] + part * (values[i + 1] - values[i]))
