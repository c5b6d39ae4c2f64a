"""What a step should take on this machine, and what part of the arithmetic a cache can collect.

A step's time is the sum of four terms, from what the step asks for and what the machine was
measured to do (`rates`, `stepwork`), neither fitted to a step of the model:

    dispatch     its library calls, at the price that they have where there is nothing to compute
    bandwidth    what has to be read for one new token: every weight, and the keys and values
    arithmetic   products of many rows with a matrix, at the rate measured for so many rows; few
                 rows have a low one, since there too every weight is read
    elementwise  GELU, LayerNorm, softmax and additions, on so many numbers

A floor has one term: the bytes that must be read, or the multiplications that must be made, at the
best rate seen, whichever takes longer (Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009).
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from labsupport import arithmetic, stepwork
from labsupport.rates import bandwidth

TERMS = ["dispatch", "bandwidth", "arithmetic", "elementwise"]
DTYPE_BYTES = 4


def uncached(config, n_tokens, rates, operations):
    """The terms of a step that computes all `n_tokens` again: {term: ns}.

    n_tokens    a number, or an array for as many steps; so are the terms
    rates       as `rates.measure(stepwork.probes())` gives them
    operations  {path: calls a step}, as `loops.operations` counts them
    """
    d, n = config.d_model, np.asarray(n_tokens)
    blocks, numbers = config.n_blocks, config.d_model * np.asarray(n_tokens)
    products = _as_layers(config) * stepwork.excess_ns(rates, "torch layers", d_model=d, rows=n)
    attention = stepwork.excess_ns(rates, "torch attention of all", d_model=d, tokens=n)

    def over(name, count):
        return stepwork.excess_ns(rates, f"torch {name}", elements=count)

    a_block = over("GELU", 4 * numbers) + 2 * over("LayerNorm", numbers)
    a_block = a_block + 2 * over("addition", numbers) + over("copy", numbers)  # copy: joined heads
    return {
        "dispatch": _dispatch(rates, "uncached", operations) + 0 * n,
        "bandwidth": 0.0 * n,
        "arithmetic": products + blocks * attention,
        "elementwise": blocks * a_block + over("LayerNorm", numbers) + over("addition", numbers),
    }


def cached(config, n_tokens, rates, operations, path="preallocated"):
    """The terms of a step that computes the last of `n_tokens`, as `uncached` gives them.

    path is "concat", "preallocated", "numpy" or "compiled".
    """
    d, n, blocks = config.d_model, np.asarray(n_tokens), config.n_blocks
    library = {"numpy": "NumPy", "compiled": "compiled"}.get(path, "torch")
    weights = stepwork.excess_ns(rates, f"{library} layers", d_model=d, rows=1)
    reading = _as_layers(config) * weights + 0 * n
    elementwise = 0.0 * n
    if library == "compiled":
        kv_bytes = 2 * DTYPE_BYTES * _d_kv(config) * n * blocks
        reading = reading + kv_bytes / bandwidth(rates, kv_bytes, "typical_ns") * 1e9
    else:
        one = stepwork.excess_ns(rates, f"{library} attention of one", d_model=d, tokens=n)
        reading = reading + blocks * one
    if path == "concat":
        reading = reading + 2 * blocks * stepwork.excess_ns(rates, "torch cat", d_model=d, tokens=n)
    if library == "NumPy":
        passes = {"tanh": 1, "product": 5}
        a_block = sum(
            count * stepwork.excess_ns(rates, f"NumPy {name}", elements=4 * d)
            for name, count in passes.items()
        )
        elementwise = elementwise + blocks * a_block
    if library == "torch":
        elementwise = elementwise + blocks * stepwork.excess_ns(rates, "torch GELU", elements=4 * d)
    return {
        "dispatch": _dispatch(rates, path, operations) + 0 * n,
        "bandwidth": reading,
        "arithmetic": 0.0 * n,
        "elementwise": elementwise,
    }


def _dispatch(rates, path, operations):
    """Calls times their price, in ns: that of the same path where numbers cost nothing."""
    return operations[path] * call_ns(rates, path)


def call_ns(rates, path):
    """What one library call of a path costs with next to nothing to compute, in ns."""
    (tiny,) = (row for row in rates["probes"] if row["name"] == f"steps: {path}")
    return tiny["typical_ns"] / tiny["n_operations"]


def _as_layers(config):
    """Weights in the matrices of a model, in those of the piece `layers` of the same width."""
    once = arithmetic.multiplications(config, 1, 1)
    weights = sum(once[kind] for kind in ("qkv", "o", "up", "down", "head"))
    return weights / (12 * config.d_model**2 * stepwork.BLOCKS)


def loop(config, n, rates, operations):
    """The terms of a loop of `n` steps in ns: a DataFrame, one row a path, and their `total`."""
    steps, table = np.arange(1, n + 1), {}
    for path in operations:
        made = (
            uncached(config, steps, rates, operations)
            if path == "uncached"
            else cached(config, steps, rates, operations, path)
        )
        table[path] = {term: float(np.sum(made[term])) for term in TERMS}
    table = pd.DataFrame(table).T
    return table.assign(total=table.sum(axis=1), binds=table.idxmax(axis=1))


def floor_cached_ns(config, n_tokens, rates):
    """The least a step for the last of `n_tokens` can take here, in ns: an array or a number.

    Read are all weights, and the keys and values of all tokens, at the bandwidth of a buffer of
    that size; or the multiplications at the best rate of matrices take longer.
    """
    once = arithmetic.multiplications(config, 1, 1)
    pairs = once["scores"] + once["values"]
    weights = sum(once.values()) - pairs
    n = np.asarray(n_tokens)
    n_bytes = DTYPE_BYTES * (weights + config.n_blocks * 2 * _d_kv(config) * n)
    reading_ns = n_bytes / bandwidth(rates, n_bytes) * 1e9
    return np.maximum(reading_ns, 2 * (weights + pairs * n) / matrix_rate(rates) * 1e9)


def floor_uncached_ns(config, n_tokens, rates):
    """The least a step for all of `n_tokens` can take here, in ns: an array or a number.

    The products of the blocks for all tokens, each score that the mask leaves, the logits of the
    last token, at the best rate of matrices; or reading all weights once takes longer.
    """
    once = arithmetic.multiplications(config, 1, 1)
    pairs, head = once["scores"] + once["values"], once["head"]
    layers, n = sum(once.values()) - pairs - head, np.asarray(n_tokens)
    flops = 2 * (layers * n + pairs * n * (n + 1) / 2 + head)
    n_bytes = DTYPE_BYTES * (layers + head)
    reading_ns = n_bytes / bandwidth(rates, n_bytes) * 1e9
    return np.maximum(flops / matrix_rate(rates) * 1e9, reading_ns)


def _d_kv(config):
    return config.n_kv_heads * config.head_dim


def matrix_rate(rates):
    """The best rate of torch's products of matrices that was seen, in FLOP a second."""
    rows = [row for row in rates["probes"] if row["name"] == "torch layers"]
    return max(row["n_flops"] / row["best_ns"] for row in rows) * 1e9


def bound(flops_per_byte, flops_per_s, bytes_per_s):
    """The largest share of the arithmetic ratio that a cache can give back as time, at most 1.

    Let a step without cache make F_u FLOPs and one with it F_c, reading B_c bytes, on a machine of
    R FLOPs and W bytes a second. At best the first takes F_u / R and the second B_c / W, so that

        share = (time ratio) / (arithmetic ratio) = ((F_u / R) / (B_c / W)) / (F_u / F_c)
              = (F_c / B_c) / (R / W)

    the FLOPs that a cached step makes for a byte it reads, over the machine's ridge point. F_u has
    gone: neither length nor width is left in it, only what a byte of weights is good for. A
    weight of two bytes is multiplied and added once for one token, 1 FLOP a byte, however large
    the model. Where F_c / B_c is above the ridge point, the arithmetic binds and the share is 1.
    """
    for name, value in vars().copy().items():
        if not value > 0:
            raise ValueError(f"{name} must be above 0, not {value}")
    return min(1.0, flops_per_byte / (flops_per_s / bytes_per_s))


@dataclass(frozen=True)
class Accelerator:
    """Published peak rates: dense products in bfloat16 or float16, and of the main memory."""

    name: str
    flops_per_s: float
    bytes_per_s: float
    source: str


ACCELERATORS = [
    Accelerator("A100 80GB SXM", 312e12, 2039e9, "NVIDIA A100 Tensor Core GPU data sheet, 2021"),
    Accelerator("H100 SXM", 989.4e12, 3.35e12, "NVIDIA H100 Tensor Core GPU Architecture, 2022"),
]
