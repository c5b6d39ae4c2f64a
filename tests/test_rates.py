"""Probes do the work they say; a rate is that work over the time; sizes in between lie between."""

import gc
import json

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from labsupport import arithmetic, rates, stepwork
from labsupport.charmodel import CharConfig
from labsupport.rates import READERS, Probe, Timer, bandwidth

SIZES = [10_000, 40_000]


def made(name, typical_ns=2.0, best_ns=1.0, **at):
    """A row of rates as `Timer.rates` gives it."""
    amounts = {"n_bytes": at.get("size", 0), "n_flops": 0, "n_operations": 1}
    return {"name": name, **at, **amounts, "typical_ns": typical_ns, "best_ns": best_ns}


# Reading


@pytest.mark.parametrize("name", READERS)
def test_a_reader_reads_every_number_once(name):
    """Seen in the answer: it is the sum of all numbers, or of their products."""
    x = np.zeros(2000, np.float32)
    answers = []
    for place in (0, 999, 1000, 1999):
        x[:] = 1
        x[place] = 3
        answers.append(float(np.asarray(READERS[name](x)()).sum()))
    unchanged = float(np.asarray(READERS[name](np.ones(2000, np.float32))()).sum())
    assert all(answer != unchanged for answer in answers)


def test_the_readers_of_a_size_are_probes_of_that_many_bytes():
    probes = rates.probes(SIZES)
    assert [(p.name, p.at, p.n_bytes) for p in probes] == [
        (name, {"size": size}, size) for size in SIZES for name in READERS
    ]


@pytest.mark.parametrize("size", [1500, 0, 1000.0])
def test_a_size_that_the_readers_cannot_fill_is_refused(size):
    with pytest.raises((ValueError, TypeError), match="a size must be"):
        rates.probes([size])


def test_bandwidth_is_that_of_the_fastest_reader_on_a_line_of_logarithms():
    slow, fast = list(READERS)[:2]
    rows = [made(slow, 100, 100, size=1000), made(fast, size=1000, best_ns=10, typical_ns=20)]
    rows += [made(slow, size=16_000, best_ns=640), made(fast, size=16_000, best_ns=9999)]
    rows += [made("another thing", size=1000, best_ns=1e-3)]
    known = {"probes": rows}
    assert bandwidth(known, 1000) == pytest.approx(1000 / 10 * 1e9)
    assert bandwidth(known, 16_000) == pytest.approx(16_000 / 640 * 1e9)
    assert bandwidth(known, 4000) == pytest.approx((100e9 * 25e9) ** 0.5)  # half way in log size
    assert bandwidth(known, 10) == bandwidth(known, 1000)
    assert bandwidth(known, 1e9) == bandwidth(known, 16_000)
    assert bandwidth(known, 1000, "typical_ns") == pytest.approx(1000 / 20 * 1e9)
    np.testing.assert_allclose(bandwidth(known, np.array([1000, 16_000])), [100e9, 25e9])


def test_rates_without_a_reader_have_no_bandwidth():
    with pytest.raises(ValueError, match=r"hold none of .*; measure with rates.probes"):
        bandwidth({"probes": [made("another thing")]}, 1000)


# Rounds


def test_rounds_call_every_probe_and_rates_are_plain(monkeypatch):
    monkeypatch.setattr(rates, "BATCH_NS", 1000)
    calls = []
    probes = [
        Probe(name, lambda name=name: calls.append(name), {"size": 8}, 4, 2, 1) for name in "ab"
    ]
    timer = Timer(probes)
    for _ in range(12):
        before = len(calls)
        timer.round()
        assert set(calls[before:]) == {"a", "b"}
    found = json.loads(json.dumps(timer.rates()))
    assert found["rounds"] == 12
    assert [row["name"] for row in found["probes"]] == ["a", "b"]
    for row, ns in zip(found["probes"], timer.ns, strict=True):
        assert (row["size"], row["n_bytes"], row["n_flops"], row["n_operations"]) == (8, 4, 2, 1)
        assert row["typical_ns"] == np.median(ns)
        assert sorted(ns)[0] <= row["best_ns"] <= sorted(ns)[2]
    assert gc.isenabled()


def test_the_order_of_a_round_is_random(monkeypatch):
    monkeypatch.setattr(rates, "BATCH_NS", 1)
    calls = []
    timer = Timer([Probe(name, lambda name=name: calls.append(name), {}) for name in "abc"])
    orders = set()
    for _ in range(20):
        calls.clear()
        timer.round()
        orders.add("".join(dict.fromkeys(calls)))
    assert len(orders) > 2


def test_a_batch_is_warmed_until_a_cache_has_taken_its_data(monkeypatch):
    monkeypatch.setattr(rates, "BATCH_NS", 1)
    calls = []
    timer = Timer([Probe("a", lambda: calls.append(1), {})])
    calls.clear()
    timer.round()
    assert len(calls) == rates.WARM_CALLS + 1
    monkeypatch.setattr(rates, "WARM_NS", -1)  # a long call is not made so often
    calls.clear()
    timer.round()
    assert len(calls) == 2


def test_two_probes_of_one_name_and_size_are_refused():
    probe = Probe("a", lambda: None, {"size": 1})
    with pytest.raises(ValueError, match="probes need names or sizes that differ"):
        Timer([probe, probe])
    with pytest.raises(ValueError, match="rounds must be at least 1"):
        rates.measure([probe], rounds=0)


# The pieces of a step


def test_layers_multiply_by_every_weight_of_the_blocks():
    for probe in stepwork.layers(8, [1, 4]):
        n_weights = 3 * 12 * 8 * 8
        assert probe.n_bytes == 4 * n_weights
        assert probe.n_flops == 2 * n_weights * probe.at["rows"]
        assert probe.n_operations == (1 if probe.name.startswith("compiled") else 12)
        probe.call()


def test_torch_layers_make_the_multiplications_they_say():
    for probe in stepwork.layers(8, [1, 4]):
        if probe.name == "torch layers":
            with FlopCounterMode(display=False) as counter:
                probe.call()
            assert counter.get_total_flops() == probe.n_flops, probe


def test_attention_multiplies_as_a_block_does():
    config = CharConfig(d_model=8, n_blocks=1)
    for probe in stepwork.attention(8, [1, 16]):
        n_new = probe.at["tokens"] if probe.name == "torch attention of all" else 1
        kinds = arithmetic.multiplications(config, n_new, probe.at["tokens"])
        if "attention" in probe.name:
            assert probe.n_flops == 2 * (kinds["scores"] + kinds["values"]), probe
        assert probe.n_bytes == probe.at["tokens"] * 8 * 4 * (2 if "attention" in probe.name else 1)


def test_the_compiled_piece_is_a_product_of_rows():
    rng = np.random.default_rng(0)
    matrix, x = rng.standard_normal((5, 8), "f4"), rng.standard_normal(8, "f4")
    out = np.empty(5, "f4")
    stepwork._rows(matrix.ravel(), x, out)
    np.testing.assert_allclose(out, matrix @ x, rtol=1e-5, atol=1e-5)


def test_numpys_attention_is_that_of_torch():
    q, k, v = torch.randn(3, 4, 5, 2)  # [n_heads, n_tokens, head_dim]
    wanted = scaled_dot_product_attention(q[:, -1:], k, v, scale=1.0)
    read = stepwork._numpy_attention(q[:, -1:].numpy(), k.mT.contiguous().numpy(), v.numpy())()
    np.testing.assert_allclose(read, wanted, rtol=1e-4, atol=1e-5)


def test_every_piece_is_made_once_and_runs():
    probes = stepwork.probes([16], [1, 4], [1, 16], [64])
    for probe in probes:
        probe.call()
    names = {p.name for p in probes}
    assert {f"steps: {path}" for path in ("uncached", "concat", "numpy", "compiled")} <= names
    Timer(probes)  # no two alike


def test_products_beyond_the_most_numbers_are_left_out(monkeypatch):
    monkeypatch.setattr(stepwork, "MOST_NUMBERS", 64)
    at = [p.at for p in stepwork.probes([64], [1, 4], [1, 4], [16]) if p.name == "torch layers"]
    assert at == [
        {"d_model": 8, "rows": 1},
        {"d_model": 8, "rows": 4},
        {"d_model": 64, "rows": 1},
    ]


def test_excess_is_beyond_the_smallest_on_lines_of_logarithms():
    rows = [made("x", typical_ns=5, d_model=8, rows=1), made("x", typical_ns=99, d_model=8, rows=4)]
    for d in (16, 64):
        rows += [made("x", typical_ns=5 + d * d * n, d_model=d, rows=n) for n in (1, 4, 16)]
    known = {"probes": rows}
    excess = stepwork.excess_ns
    assert excess(known, "x", d_model=16, rows=4) == pytest.approx(16 * 16 * 4)
    assert excess(known, "x", d_model=32, rows=2) == pytest.approx(32 * 32 * 2)  # between
    assert excess(known, "x", d_model=128, rows=64) == pytest.approx(128 * 128 * 64)  # beyond
    n = np.arange(1, 40)
    np.testing.assert_allclose(excess(known, "x", d_model=32, rows=n), 32 * 32 * n)
    lines = {"probes": [made("y", typical_ns=2 + n, elements=n) for n in (100, 400)]}
    lines["probes"].append(made("y", typical_ns=2, elements=8))
    assert excess(lines, "y", elements=200) == pytest.approx(200)


def test_excess_needs_the_smallest_and_two_more():
    rows = [made("x", d_model=8, rows=1), made("x", d_model=16, rows=1)]
    for few in (rows, rows[1:], []):
        with pytest.raises(ValueError, match="hold too few sizes of 'x'"):
            stepwork.excess_ns({"probes": few}, "x", d_model=16, rows=1)


def test_a_dot_product_reads_each_number_once():
    x = np.arange(1, 9, dtype=np.float32)
    assert READERS["read: NumPy dot"](x)() == np.dot(x[:4], x[4:])


def test_a_piece_that_took_less_than_the_smallest_costs_next_to_nothing():
    times = {stepwork.SMALLEST: 5.0, 1024: 4.0, 2048: 9.0}
    rows = [{"name": "p", "elements": n, "typical_ns": ns} for n, ns in times.items()]
    assert stepwork.excess_ns({"probes": rows}, "p", elements=1024) == pytest.approx(1.0)
