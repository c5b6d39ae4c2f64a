"""The compiled products against NumPy, bytes of real caches, and comparisons on small budgets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labsupport import int8kernel, quanttime
from labsupport.decoder import Decoder, DecoderConfig
from labsupport.quantize import quantize


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n_out=st.integers(0, 40), n_in=st.integers(1, 300))
def test_both_products_are_those_of_numpy(seed, n_out, n_in):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n_in, np.float32)
    coded = quantize(rng.standard_normal((n_out, n_in), np.float32), axis=1)
    matrix = coded.dequantize()
    wanted = matrix.astype(float) @ x
    sizes = np.abs(matrix.astype(float)) @ np.abs(x)  # what rounding is relative to
    y = np.full((2, n_out), np.nan, np.float32)
    int8kernel.float_product(matrix, x, y[0])
    int8kernel.int8_product(coded.codes, coded.scales, x, y[1])
    assert (np.abs(y - wanted) <= 1e-5 * sizes + 1e-30).all()


def test_times_of_products_come_with_their_bytes():
    found = quanttime.kernel_times(sizes=(64 * 1024, 128 * 1024), budget_s=0.05)
    assert found["float32_bytes"].tolist() == [65536, 131072]
    assert found["int8_bytes"].tolist() == [16384 + 16 * 4, 32768 + 32 * 4]
    assert found["bytes"].tolist() == pytest.approx([0.25 + 1 / 1024] * 2)
    assert (found[["float32_us", "int8_us", "low", "ratio"]] > 0).all().all()
    with pytest.raises(ValueError, match="size must be at least 4096"):
        quanttime.kernel_times(sizes=(1000,))


def test_products_that_differ_are_not_timed(monkeypatch):
    def spoiled(codes, scales, x, y):
        int8kernel.int8_product(codes, scales, x, y)
        y[0] += 0.01 * np.abs(y).max()

    monkeypatch.setattr(quanttime, "int8_product", spoiled)
    with pytest.raises(AssertionError, match=r"differ by 0\.01: nothing to time"):
        quanttime.kernel_times(sizes=(65536,))


@pytest.mark.parametrize(
    ("keys", "values"), [("channel", "token"), ("token", "token"), ("channel", "channel")]
)
def test_bytes_of_caches_at_each_length(keys, values):
    found = quanttime.cache_bytes(2, 8, [4, 21, 64], keys=keys, values=values)
    for n, row in zip([4, 21, 64], found.to_dict("records"), strict=True):
        n_by_channel = [keys, values].count("channel")
        n_coded = (2 - n_by_channel) * n + n_by_channel * (n // 8 * 8)  # whole groups only
        codes, scales = 2 * n_coded * 8, 4 * 2 * n_coded
        # Of a group that has just become full, what the last token made codes of, to take it back.
        exact = n_by_channel * 4 * 2 * (n % 8 or 7) * 8
        assert row["n_tokens"] == n
        assert row["float32_bytes"] == 2 * 2 * n * 8 * 4
        assert (row["codes_bytes"], row["scales_bytes"]) == (codes, scales)
        assert row["exact_bytes"] == exact
        assert row["int8_bytes"] == codes + scales + exact
        assert row["ratio"] == row["float32_bytes"] / row["int8_bytes"]
    room = quanttime.cache_bytes(2, 8, [4], capacity=64).iloc[0]
    assert room["float32_bytes"] == 2 * 2 * 64 * 8 * 4
    assert room["codes_bytes"] == 2 * 2 * 64 * 8


def test_each_step_starts_from_the_same_tokens(monkeypatch):
    model = Decoder(DecoderConfig(11, 40, 16, 2, n_heads=2), seed=0)
    lengths = []

    def compare(f, g, **options):
        for call in (f, g, f, g):
            lengths.append(call().shape)
        caches = [call.args[1] for call in (f, g)]
        kinds = [[type(cache).__name__ for cache in both] for both in caches]
        return [len(c) for both in caches for c in both], kinds, options["names"]

    monkeypatch.setattr(quanttime.timing, "compare", compare)
    held, kinds, names = quanttime.step(model, 20)
    assert held == [20] * 4
    assert kinds == [["PreallocatedCache"] * 2, ["Int8Cache"] * 2]
    assert names == ("float32", "int8")
    assert lengths == [(1, 11)] * 4
    with pytest.raises(ValueError, match="positions"):
        quanttime.step(model, 41)


def test_a_step_is_really_compared():
    model = Decoder(DecoderConfig(11, 300, 16, 1, n_heads=2), seed=0)
    judged = quanttime.step(model, 256, budget_s=0.05)
    assert judged.names == ("float32", "int8")
    assert judged.n_groups >= 1
