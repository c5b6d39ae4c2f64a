"""When are fewer bytes less time? A decode step of the NumPy decoder, and a product compiled.

The step turns all codes into floats first, with a pass over memory that float32 does not need. The
compiled product makes a float of each code where it is used, so only the codes come from memory.
"""

from functools import partial

import numpy as np
import pandas as pd

from labsupport import timing
from labsupport.int8cache import Int8Cache
from labsupport.int8kernel import float_product, int8_product
from labsupport.kvcache import PreallocatedCache, whole_number
from labsupport.quantize import Quantized

KIBI, MEBI = 2**10, 2**20
NAMES = ("float32", "int8")
N_IN = 1024  # of a product; the rows make the size
CLOSE = 1e-5  # relative to the largest: how far sums in another order may be off


def cache_bytes(n_kv_heads, head_dim, lengths, capacity=None, **options):
    """What one layer holds at each of `lengths` tokens, read off real caches: one row each.

        n_tokens, float32_bytes, int8_bytes, ratio (float32 / int8), and of the int8 cache
        codes_bytes, scales_bytes, exact_bytes (rows of a group that is not full)

    capacity   of both; None: each just as long as the tokens. options are those of `Int8Cache`.
    """
    rng, found = np.random.default_rng(0), []
    for n_tokens in lengths:
        room = {"capacity": n_tokens if capacity is None else capacity}
        coded = Int8Cache(n_kv_heads, head_dim, **room, **options)
        for _ in range(n_tokens):  # one at a time, as decoding does
            coded.append(*rng.standard_normal((2, n_kv_heads, 1, head_dim), np.float32))
        plain = PreallocatedCache(n_kv_heads, head_dim, **room)
        found.append(
            {
                "n_tokens": n_tokens,
                "float32_bytes": plain.nbytes,
                "int8_bytes": coded.nbytes,
                "ratio": plain.nbytes / coded.nbytes,
                **{f"{part}_bytes": n for part, n in coded.parts_bytes().items()},
            }
        )
    return pd.DataFrame(found)


def step(model, n_tokens, budget_s=1.5, seed=0, **options):
    """Compare one decode step of `model`, a Decoder, after n_tokens: int8 against float32.

    A `timing.Comparison`; the step takes its token back, so that every one is the same. options
    are those of `Int8Cache`. Raises ValueError for more tokens than the model has positions.
    """
    whole_number("n_tokens", n_tokens, at_least=1)
    tokens = np.random.default_rng(seed).integers(model.config.vocab_size, size=n_tokens)
    room = {"capacity": n_tokens + 1}
    steps = []
    for caches in (
        model.new_caches(PreallocatedCache, **room),
        model.new_caches(Int8Cache, **room, **options),
    ):
        model.forward(tokens, caches)
        steps.append(partial(_step_and_back, model, caches, tokens[-1:]))
    return timing.compare(*steps, budget_s=budget_s, seed=seed, names=NAMES)


def _step_and_back(model, caches, token):
    logits = model.forward(token, caches)
    for cache in caches:
        cache.truncate(len(cache) - 1)
    return logits


def kernel_times(sizes=(256 * KIBI, 128 * MEBI), budget_s=1.0, seed=0):
    """Compare both products for matrices of so many bytes in float32: one row a size.

        float32_bytes, int8_bytes (with scales), float32_us, int8_us (medians)
        ratio, low, high, verdict    of time, int8 / float32; `bytes` is the ratio of bytes

    First both give the product of the same codes, or AssertionError says that they do not.
    """
    rng, found = np.random.default_rng(seed), []
    for size in sizes:
        n_out = whole_number("size", size, at_least=4 * N_IN) // (4 * N_IN)
        x = rng.standard_normal(N_IN, np.float32)
        codes = rng.integers(-127, 128, (n_out, N_IN), np.int8)
        coded = Quantized(codes, rng.random((n_out, 1), np.float32) + np.float32(0.5), bits=8)
        matrix = coded.dequantize()  # both paths compute with the same numbers
        y_float, y_int8 = np.empty((2, n_out), np.float32)
        products = (
            partial(float_product, matrix, x, y_float),
            partial(int8_product, coded.codes, coded.scales, x, y_int8),
        )
        for product in products:
            product()
        off = np.abs(y_float - y_int8).max() / np.abs(y_float).max()
        assert off <= CLOSE, f"the products differ by {off:.2g}: nothing to time"
        judged = timing.compare(*products, budget_s=budget_s, seed=seed, names=NAMES)
        found.append(
            {
                "float32_bytes": matrix.nbytes,
                "int8_bytes": coded.nbytes,
                "bytes": coded.nbytes / matrix.nbytes,
                "float32_us": judged.median_f_ns / 1000,
                "int8_us": judged.median_g_ns / 1000,
                "ratio": judged.ratio,
                "low": judged.low,
                "high": judged.high,
                "verdict": judged.verdict,
            }
        )
    return pd.DataFrame(found)
