"""Terms, floors and the bound follow from rates and counts that are known here."""

import math

import numpy as np
import pytest

from labsupport import arithmetic, charweights, ladder, loops, roofline, stepwork
from labsupport.charmodel import CharConfig, CharModel
from labsupport.loops import PATHS
from labsupport.roofline import TERMS, bound, cached, floor_cached_ns, floor_uncached_ns, uncached

CONFIG = CharConfig(vocab_size=10, context=64, d_model=16, n_blocks=2, n_heads=4)
WEIGHTS = charweights.flat(CharModel(CharConfig()))
CALLS = {"uncached": 70, "concat": 80, "preallocated": 90, "numpy": 100, "compiled": 1}
CALL_NS = {"uncached": 3.0, "concat": 4.0, "preallocated": 5.0, "numpy": 2.0, "compiled": 7.0}
SMALL = 1000.0  # ns of each piece at its smallest


def _piece(name, price, first, second=None):
    """Rows of a piece that costs `price` ns for each unit of the product of its sizes."""
    rows = [{"name": name, **dict.fromkeys([first], 8), **({second: 1} if second else {})}]
    rows[0] |= {"typical_ns": SMALL}
    for a in (16, 64):
        for b in (1, 64) if second else (1,):
            at = {first: a} | ({second: b} if second else {})
            rows.append({"name": name, **at, "typical_ns": SMALL + price * a * b})
    return rows


@pytest.fixture
def rates():
    """Rates of a machine where every size costs in proportion."""
    rows = [
        {
            "name": f"steps: {path}",
            "typical_ns": 8 * calls * CALL_NS[path],
            "n_operations": 8 * calls,
        }
        for path, calls in CALLS.items()
    ]
    rows += _piece("torch layers", 11.0, "d_model", "rows")
    for library, price in (("NumPy", 5.0), ("compiled", 3.0)):
        rows += _piece(f"{library} layers", price, "d_model", "rows")
    rows += _piece("torch attention of all", 2.0, "d_model", "tokens")
    rows += _piece("torch attention of one", 0.5, "d_model", "tokens")
    rows += _piece("NumPy attention of one", 0.25, "d_model", "tokens")
    rows += _piece("torch cat", 0.125, "d_model", "tokens")
    for i, name in enumerate(("GELU", "LayerNorm", "addition", "copy")):
        rows += _piece(f"torch {name}", 10.0 ** (3 - i), "elements")
    rows += _piece("NumPy tanh", 20.0, "elements") + _piece("NumPy product", 3.0, "elements")
    rows += [
        {"name": "read: NumPy dot", "n_bytes": size, "typical_ns": size / 10, "best_ns": size / 20}
        for size in (1000, 10**6)
    ]
    for row in rows:
        if row["name"] == "torch layers":
            row |= {"n_flops": 4000.0, "best_ns": 100.0}
    return {"probes": rows}


LAYERS = (12 * 16 * 16 * 2 + 16 * 10) / (12 * 16 * 16 * 3)  # weights of CONFIG, in three blocks'


def test_the_terms_of_an_uncached_step(rates):
    n = 32
    terms = uncached(CONFIG, n, rates, CALLS)
    numbers = 16 * n
    over = {"GELU": 1000, "LayerNorm": 100, "addition": 10, "copy": 1}
    a_block = over["GELU"] * 4 + over["LayerNorm"] * 2 + over["addition"] * 2 + over["copy"]
    assert list(terms) == TERMS
    assert terms["dispatch"] == pytest.approx(70 * 3)
    assert terms["bandwidth"] == 0
    assert terms["arithmetic"] == pytest.approx(LAYERS * 11 * 16 * n + 2 * 2 * 16 * n)
    assert terms["elementwise"] == pytest.approx(numbers * (2 * a_block + 100 + 10))


@pytest.mark.parametrize(
    ("path", "bandwidth", "elementwise"),
    [
        ("preallocated", LAYERS * 11 * 16 + 2 * 0.5 * 16 * 32, 2 * 1000 * 64),
        ("concat", LAYERS * 11 * 16 + 2 * (0.5 + 2 * 0.125) * 16 * 32, 2 * 1000 * 64),
        ("numpy", LAYERS * 5 * 16 + 2 * 0.25 * 16 * 32, 2 * (20 + 5 * 3) * 64),
        ("compiled", LAYERS * 3 * 16 + 2 * 4 * 16 * 32 * 2 / 10, 0),
    ],
)
def test_the_terms_of_a_cached_step(rates, path, bandwidth, elementwise):
    terms = cached(CONFIG, 32, rates, CALLS, path)
    assert terms["dispatch"] == pytest.approx(CALLS[path] * CALL_NS[path])
    assert terms["bandwidth"] == pytest.approx(bandwidth)
    assert terms["arithmetic"] == 0
    assert terms["elementwise"] == pytest.approx(elementwise)


def test_a_loop_is_the_sum_of_its_steps(rates):
    table = roofline.loop(CONFIG, 20, rates, CALLS)
    assert list(table.index) == list(PATHS)
    for path, row in table.iterrows():
        step = uncached if path == "uncached" else cached
        options = {} if path == "uncached" else {"path": path}
        steps = [step(CONFIG, t, rates, CALLS, **options) for t in range(1, 21)]
        for term in TERMS:
            assert row[term] == pytest.approx(sum(s[term] for s in steps))
        assert row["total"] == pytest.approx(sum(row[term] for term in TERMS))
        assert row["binds"] == max(TERMS, key=lambda term: row[term])
    assert len(set(table["binds"])) > 1


def test_a_deeper_model_has_more_of_everything(rates):
    deep = CharConfig(vocab_size=10, context=64, d_model=16, n_blocks=6, n_heads=4)
    calls = {path: 3 * n for path, n in CALLS.items()}
    few, many = (roofline.loop(c, 9, rates, n) for c, n in ((CONFIG, CALLS), (deep, calls)))
    assert (many["total"] > 2 * few["total"]).all()


# Floors


def test_the_floor_of_a_cached_step_reads_every_byte_or_multiplies(rates):
    weights = 12 * 16 * 16 * 2 + 16 * 10
    n_bytes = 4 * (weights + 2 * 2 * 16 * 32)
    assert floor_cached_ns(CONFIG, 32, rates) == pytest.approx(n_bytes / 20)  # bytes a ns, best
    slow = {"probes": [{**r, "best_ns": 1e5} if "n_flops" in r else r for r in rates["probes"]]}
    flops = 2 * (weights + 2 * 2 * 16 * 32)
    assert floor_cached_ns(CONFIG, 32, slow) == pytest.approx(flops / (4000 / 1e5))


def test_grouped_queries_read_fewer_bytes_and_multiply_as_often(rates):
    shared = CharConfig(vocab_size=10, context=64, d_model=16, n_blocks=2, n_heads=4, n_kv_heads=1)
    saved = 4 * 2 * (2 * 16 * 12 + 2 * 12 * 32)  # weights and rows of three heads, two blocks
    less = floor_cached_ns(CONFIG, 32, rates) - floor_cached_ns(shared, 32, rates)
    assert less == pytest.approx(saved / 20)


def test_the_floor_of_an_uncached_step_is_its_causal_multiplications(rates):
    n = np.array([1, 32])
    layers = 12 * 16 * 16 * 2
    flops = 2 * (layers * n + 2 * 2 * 16 * n * (n + 1) / 2 + 16 * 10)
    reading = 4 * (layers + 160) / 20
    expected = np.maximum(flops / 40, reading)  # 4000 FLOPs in 100 ns
    np.testing.assert_allclose(floor_uncached_ns(CONFIG, n, rates), expected)
    assert expected[0] == reading < expected[1]
    written = arithmetic.multiplications(CONFIG, 32, 32)
    assert flops[1] < 2 * sum(written.values())  # masked scores and unused logits are spared


# The bound


def test_the_bound_is_intensity_over_the_ridge_point():
    assert bound(1, 312e12, 2039e9) == pytest.approx(2039e9 / 312e12)
    assert bound(0.5, 100e9, 50e9) == 0.25
    assert bound(200, 100e9, 50e9) == 1
    for wrong in ((0, 1, 1), (1, -1, 1), (1, 1, 0), (math.nan, 1, 1)):
        with pytest.raises(ValueError, match="must be above 0"):
            bound(*wrong)


def test_the_bound_is_what_both_sides_at_their_floors_give():
    """From times, where the bound comes from intensities alone."""
    rate, width, weights, n = 97e9, 33e9, 5e6, 1000
    time_uncached, time_cached = 2 * weights * n / rate, 4 * weights / width
    share = (time_uncached / time_cached) / n
    assert bound(2 / 4, rate, width) == pytest.approx(share)


def test_no_published_accelerator_lets_a_cache_collect_a_hundredth_at_half_precision():
    assert len(roofline.ACCELERATORS) == 2
    for one in roofline.ACCELERATORS:
        assert bound(1, one.flops_per_s, one.bytes_per_s) < 0.01
        assert one.source


# What is counted


def test_operations_of_a_torch_step_are_those_of_a_count_by_hand():
    """A block: norm, qkv, split; unflatten and transpose of three; attention; transpose, flatten,
    o; addition, norm, up, GELU, down, addition."""
    by_blocks = [loops.operations(CharConfig(d_model=8, n_blocks=n)) for n in (1, 2)]
    a_block = {path: by_blocks[1][path] - by_blocks[0][path] for path in PATHS}
    assert a_block["uncached"] == 3 + 6 + 1 + 3 + 6 == 19
    assert a_block["concat"] == 19 + 2  # keys, values
    assert a_block["preallocated"] == 19 + 2 * 3  # of each a slice, a copy, a slice
    assert by_blocks[0]["compiled"] == by_blocks[1]["compiled"] == 1
    by_rung = ladder.work("NumPy, no allocation", CharConfig(), WEIGHTS, 2)
    assert loops.operations(CharConfig())["numpy"] == by_rung["operations"] + by_rung["views"]


def test_all_loops_give_the_logits_of_one_pass():
    config, n = CharConfig(d_model=16, context=24), 24
    tokens = loops.tokens_of(config, n)
    wanted = loops.one_pass(config)(tokens)
    for path, loop in loops.make(config).items():
        assert loops.difference(loop(tokens), wanted) < 1e-5, path
        assert loops.difference(loop(tokens[:-1]), wanted) > 1e-3, path


def test_pieces_have_the_names_that_predictions_ask_for():
    """A renamed probe would leave a prediction without its rate."""
    small = stepwork.probes([16, 32], [1, 4], [1, 16], [64, 128])
    rows = [{"name": p.name, **p.at, "typical_ns": 5.0, "n_operations": 8} for p in small]
    rows.append({"name": "read: NumPy dot", "n_bytes": 1000, "typical_ns": 1.0, "best_ns": 1.0})
    table = roofline.loop(CONFIG, 3, {"probes": rows}, CALLS)
    assert (table["total"] > 0).all()
