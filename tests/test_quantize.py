"""Codes and scales against torch's own quantization, their error bound, and what is refused."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from labsupport import charweights
from labsupport.charmodel import CharConfig, CharModel
from labsupport.quantize import (
    LARGEST,
    SMALLEST,
    Quantized,
    int8_weights,
    quantize,
    restored,
    weight_bytes,
)

BITS = range(2, 9)


def some(*shape, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * np.exp(rng.normal(0, 3, shape))).astype(dtype)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("axis", [0, 1, 2, (0, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_number_is_off_by_more_than_half_its_scale(bits, axis, dtype):
    x = some(4, 5, 6, seed=bits, dtype=dtype)
    q = quantize(x, axis, bits)
    levels = 2 ** (bits - 1) - 1
    assert (q.codes.dtype, q.scales.dtype, q.bits) == (np.int8, np.float32, bits)
    assert q.codes.shape == x.shape
    assert q.scales.shape == np.abs(x).max(axis=axis, keepdims=True).shape
    assert q.dequantize().dtype == np.float32

    off = np.abs(x.astype(float) - q.dequantize())
    assert (off <= q.scales * (0.5 + 1e-5)).all()
    assert off.max() > 0.4 * q.scales.min()  # the bound is met, not missed by far
    wanted = np.abs(x).max(axis=axis, keepdims=True) / levels
    np.testing.assert_allclose(q.scales, wanted, rtol=1e-6)
    most = np.abs(q.codes).max(axis=axis)
    assert (most == levels).all()  # the largest of each group has the last code


@settings(max_examples=100, deadline=None)
@given(
    x=hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
        elements=st.floats(-float(LARGEST), float(LARGEST), width=32),
    ),
    bits=st.sampled_from(BITS),
)
def test_the_bound_holds_for_numbers_of_any_size(x, bits):
    q = quantize(x, 1, bits)
    levels = 2 ** (bits - 1) - 1
    assert np.isfinite(q.dequantize()).all()
    assert np.abs(q.codes).max() <= levels
    off = np.abs(x.astype(float) - q.codes.astype(float) * q.scales)
    assert (off <= q.scales.astype(float) * (0.5 + 1e-5)).all()


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("axis", [0, 1])
def test_the_numbers_are_those_of_torch(bits, axis):
    x = some(7, 9, seed=bits)
    q = quantize(x, axis, bits)
    most = 2 ** (bits - 1) - 1
    scales = torch.from_numpy(q.scales.ravel())
    kept = 1 - axis  # torch names the axis along which scales differ
    zeros = torch.zeros(len(scales), dtype=torch.int32)
    wanted = torch.fake_quantize_per_channel_affine(
        torch.from_numpy(x), scales, zeros, kept, -most, most
    )
    np.testing.assert_allclose(q.dequantize(), wanted.numpy(), rtol=1e-6)


def test_a_worked_example():
    q = quantize(np.array([[1.0, -127.0, 0.4, 63.5], [0.0, 0.5, -1.0, 0.25]]), axis=1)
    assert q.scales.tolist() == [[1.0], [np.float32(1 / 127)]]
    assert q.codes.tolist() == [[1, -127, 0, 64], [0, 64, -127, 32]]  # halves go to even


def test_rows_of_zeros_and_of_the_smallest_numbers_come_back():
    x = np.zeros((3, 4), np.float32)
    x[1] = 1e-45
    q = quantize(x, 1)
    assert q.scales.tolist() == [[SMALLEST]] * 3
    assert not q.codes.any()
    assert np.abs(q.dequantize() - x).max() <= SMALLEST / 2
    empty = quantize(np.empty((2, 0), np.float32), 1)
    assert (empty.codes.shape, empty.scales.shape) == ((2, 0), (2, 1))


def test_a_large_number_makes_steps_coarse_for_those_that_share_its_scale_only():
    x = some(8, 16, seed=1) / 100
    spoiled = x.copy()
    spoiled[:, 3] = 1000  # one channel
    others = np.arange(16) != 3
    per_token = quantize(spoiled, 1).dequantize()[:, others]
    per_channel = quantize(spoiled, 0).dequantize()[:, others]
    np.testing.assert_array_equal(per_channel, quantize(x, 0).dequantize()[:, others])
    assert np.abs(per_token - x[:, others]).mean() > 10 * np.abs(per_channel - x[:, others]).mean()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
def test_what_has_no_finite_scale_is_refused(bad):
    x = np.ones((2, 3), np.float32)
    x[1, 2] = bad
    with pytest.raises(
        ValueError, match=r"x holds numbers that are NaN, infinite or above 1.7e\+38"
    ):
        quantize(x, 1)


@pytest.mark.parametrize(
    ("act", "error", "says"),
    [
        (lambda: quantize([[1.0]], 1), TypeError, "x must be a float32 or float64 array, not list"),
        (lambda: quantize(np.ones((1, 1), int), 1), TypeError, "not int64; convert it first"),
        (lambda: quantize(np.ones((1, 1), "f2"), 1), TypeError, "not float16"),
        (lambda: quantize(some(2, 2), 1, bits=1), ValueError, "bits must be at least 2, not 1"),
        (lambda: quantize(some(2, 2), 1, bits=9), ValueError, "bits must be 2 to 8, not 9"),
        (lambda: quantize(some(2, 2), 1, bits=4.0), TypeError, "bits must be an int"),
        (lambda: quantize(some(2, 2), 2), ValueError, "axis 2 is out of bounds"),
    ],
)
def test_refusals(act, error, says):
    with pytest.raises(error, match=says):
        act()


@pytest.mark.parametrize("bits", BITS)
def test_bytes_are_those_of_the_arrays_and_packed_ones_those_of_the_bits(bits):
    q = quantize(some(3, 5), 1, bits)
    assert q.nbytes == 15 + 3 * 4
    assert q.packed_bytes == math.ceil(15 * bits / 8) + 3 * 4


# Weights


CONFIG = CharConfig(vocab_size=11, context=9, d_model=8, n_blocks=2, n_heads=4, n_kv_heads=2)


def weights_of(seed=0):
    return charweights.flat(CharModel(CONFIG, seed))


@pytest.mark.parametrize("bits", [8, 4])
def test_matrices_get_a_scale_an_output_and_tables_one_a_row(bits):
    weights = weights_of()
    coded = int8_weights(weights, bits)
    assert coded.keys() == weights.keys()
    for name, array in weights.items():
        if array.ndim == 1:
            assert coded[name] is array
            continue
        n_rows, n_columns = array.shape
        table = name in ("tokens", "positions")
        assert isinstance(coded[name], Quantized)
        assert coded[name].bits == bits
        assert coded[name].scales.shape == ((n_rows, 1) if table else (1, n_columns)), name


def test_restored_weights_make_a_model_near_the_first_and_nearer_with_more_bits():
    weights, tokens = weights_of(3), [[1, 5, 2, 10, 0, 7, 7, 3, 4]]
    wanted = charweights.model(CONFIG, weights)(tokens).detach()
    before = {name: array.copy() for name, array in weights.items()}
    off = []
    for bits in (8, 5, 2):
        found = restored(int8_weights(weights, bits))
        assert all(array.dtype == np.float32 for array in found.values())
        model = charweights.model(CONFIG, found)
        off.append(float((model(tokens).detach() - wanted).abs().max()))
    assert 0 < off[0] < off[1] < off[2]
    assert off[0] < 0.02 * float(wanted.abs().max())
    for name, array in weights.items():
        np.testing.assert_array_equal(array, before[name])


def test_bytes_of_weights_counted_by_hand():
    c, weights = CONFIG, weights_of()
    n = sum(array.size for array in weights.values())
    matrices = {name: array for name, array in weights.items() if array.ndim == 2}
    in_codes = sum(array.size for array in matrices.values())
    outputs = c.n_blocks * (8 + 4 + 4 + 8 + 32 + 8) + 11  # q, k, v, o, up, down; head
    scales = 4 * (outputs + 11 + 9)  # and rows of tokens and positions
    assert weight_bytes(weights) == 4 * n
    assert weight_bytes(int8_weights(weights)) == 4 * (n - in_codes) + in_codes + scales
    packed = weight_bytes(int8_weights(weights, 4), packed=True)
    assert packed == 4 * (n - in_codes) + in_codes // 2 + scales


def test_weights_that_are_not_finite_are_refused():
    weights = weights_of()
    weights["head.w"][0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        int8_weights(weights)


@pytest.mark.parametrize("kind", [np.int8, np.int16])
def test_bits_given_as_a_numpy_number_count_as_any_other(kind):
    x = np.ones((200, 100), np.float32)
    assert quantize(x, 0, kind(4)).packed_bytes == quantize(x, 0, 4).packed_bytes
