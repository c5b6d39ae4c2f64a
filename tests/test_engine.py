"""The engines: the model's own logits from few operations, and nothing lost when they refuse."""

import importlib
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_engine import reference, tokens_of, weights_of

from labsupport import compiled, folding
from labsupport.charmodel import CharConfig
from labsupport.compiled import CompiledEngine
from labsupport.engine import NumpyEngine

ENGINES = [NumpyEngine, CompiledEngine]
CONFIGS = [
    CharConfig(vocab_size=11, context=70, d_model=32, n_blocks=2, n_heads=2),
    CharConfig(vocab_size=7, context=33, d_model=24, n_blocks=2, n_heads=3),
    CharConfig(vocab_size=50, context=40, d_model=48, n_blocks=3, n_heads=6, n_kv_heads=2),
    CharConfig(vocab_size=2, context=5, d_model=7, n_blocks=1, n_heads=7, n_kv_heads=1),
    CharConfig(vocab_size=1, context=1, d_model=1, n_blocks=1, n_heads=1),
]
SMALL = CONFIGS[1]
TOLERANCE = 2e-6  # of the largest logit


def assert_close(logits, wanted):
    assert logits.dtype == np.float32
    assert logits.shape == wanted.shape
    assert np.abs(logits - wanted).max() <= TOLERANCE * max(1, np.abs(wanted).max())


@pytest.fixture(params=ENGINES, ids=lambda kind: kind.__name__)
def kind(request):
    return request.param


@pytest.fixture
def engine(kind):
    return kind(SMALL, weights_of(SMALL))


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_every_step_to_the_end_of_the_context_gives_the_models_logits(kind, config, seed):
    weights = weights_of(config, seed)
    engine, tokens = kind(config, weights), tokens_of(config, config.context, seed)
    wanted = reference(config, weights).forward(tokens)  # [context, vocab_size]
    for i, token in enumerate(tokens):
        assert_close(engine.step(token), wanted[i])
        assert len(engine) == i + 1


@given(
    kind=st.sampled_from(ENGINES),
    d=st.integers(1, 6),
    n_kv_heads=st.integers(1, 3),
    shared=st.integers(1, 3),
    vocab_size=st.integers(1, 20),
    cuts=st.lists(st.integers(0, 20), max_size=5),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=40)
def test_chunks_of_any_sizes_give_what_one_piece_gives(
    kind, d, n_kv_heads, shared, vocab_size, cuts, seed
):
    n_heads = n_kv_heads * shared
    config = CharConfig(vocab_size, 20, d * n_heads, 2, n_heads, n_kv_heads)
    weights, tokens = weights_of(config, seed), tokens_of(config, 20, seed)
    engine, wanted = kind(config, weights), reference(config, weights).forward(tokens)
    ends = sorted({*cuts, 20} - {0})
    for start, end in zip([0, *ends], ends, strict=False):
        assert_close(engine.prefill(tokens[start:end]), wanted[end - 1])
        assert len(engine) == end


def test_a_long_sequence_at_the_size_of_the_course(kind):
    config = CharConfig(context=300)
    weights, tokens = weights_of(config, scale=0.05), tokens_of(config, 300)
    engine, wanted = kind(config, weights), reference(config, weights).forward(tokens)
    assert_close(engine.prefill(tokens[:299]), wanted[298])
    assert_close(engine.step(tokens[299]), wanted[299])


def test_generate_chooses_as_the_model_does_and_does_not_feed_the_last(kind, engine):
    decoder = reference(SMALL, weights_of(SMALL))
    new = engine.generate([3, 1], 12)
    assert new == decoder.generate([3, 1], 12)
    assert all(type(token) is int for token in new)
    assert len(engine) == 13
    assert engine.generate([new[-1]], 5) == decoder.generate([3, 1, *new], 5)  # goes on


def test_what_is_forgotten_has_no_part_in_what_follows(kind, engine):
    wanted = reference(SMALL, weights_of(SMALL)).forward([3, 1, 6])[-1]
    engine.prefill([3, 1, 0, 2, 5])
    engine.truncate(2)
    assert len(engine) == 2
    assert_close(engine.step(6), wanted)
    engine.reset()
    assert len(engine) == 0
    assert_close(engine.prefill([3, 1, 6]), wanted)


def test_tokens_may_be_numpy_integers(engine):
    one = engine.prefill(np.array([3, 1])).copy()
    engine.reset()
    engine.step(np.int32(3))
    assert_close(engine.step(np.int64(1)), one.astype("f8"))


def test_numpy_counts_do_not_wrap_around(kind):
    config = CharConfig(**{**vars(SMALL), "context": 300})
    weights, tokens = weights_of(config), tokens_of(config, 257)
    engine = kind(config, weights)
    engine.prefill(tokens[:256])
    engine.truncate(np.uint8(255))
    engine.step(tokens[255])
    assert_close(engine.step(tokens[256]), reference(config, weights).forward(tokens)[-1])
    assert len(engine) == 257
    engine.reset()
    assert len(engine.generate(tokens[:10], np.uint8(250))) == 250
    assert len(engine) == 259


def test_no_new_tokens_are_an_empty_list_and_nothing_is_done(engine):
    assert engine.generate([1, 2], 0) == []
    assert len(engine) == 0


REFUSED = {
    "a token below": (lambda e: e.step(-1), ValueError, "at least 0"),
    "a token above": (lambda e: e.step(7), ValueError, r"token 7 is not in 0\.\.6"),
    "a float": (lambda e: e.step(1.0), TypeError, "must be an int"),
    "a bool": (lambda e: e.step(True), TypeError, "must be an int"),
    "an empty prompt": (lambda e: e.prefill([]), ValueError, "one or more"),
    "an empty prompt, generating": (lambda e: e.generate([], 3), ValueError, "one or more"),
    "an empty prompt for nothing": (lambda e: e.generate([], 0), ValueError, "one or more"),
    "a stranger in a prompt": (lambda e: e.prefill([1, 9, 2]), ValueError, "token 9"),
    "a batch": (lambda e: e.prefill([[1, 2], [3, 4]]), TypeError, "must be an int"),
    "a prompt too long": (lambda e: e.prefill([1] * 31), ValueError, "3 tokens and 31 more"),
    "too many new tokens": (lambda e: e.generate([1], 31), ValueError, "3 tokens and 31 more"),
    "fewer than none": (lambda e: e.generate([1], -1), ValueError, "n_new"),
    "a part of a token": (lambda e: e.generate([1], 1.5), TypeError, "n_new"),
    "more than are held": (lambda e: e.truncate(4), ValueError, "3 are held"),
    "less than none": (lambda e: e.truncate(-1), ValueError, "n_tokens"),
}


@pytest.mark.parametrize(("call", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_leaves_the_engine_as_it_was(engine, call, error, message):
    wanted = reference(SMALL, weights_of(SMALL)).forward([3, 1, 6, 2])[-1]
    engine.prefill([3, 1, 6])
    with pytest.raises(error, match=message):
        call(engine)
    assert len(engine) == 3
    assert_close(engine.step(2), wanted)


def test_a_full_context_refuses_a_step(engine):
    engine.prefill([1] * SMALL.context)
    with pytest.raises(ValueError, match="pass the context of 33"):
        engine.step(1)
    assert len(engine) == SMALL.context


def test_the_context_may_be_filled_to_its_end(engine):
    assert len(engine.generate([1], 33)) == 33  # feeds 1 + 32
    assert len(engine) == 33


@pytest.mark.parametrize("damage", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_reported_with_their_position(kind, damage):
    weights = weights_of(SMALL)
    weights["positions"][5] = damage
    engine = kind(SMALL, weights)
    engine.step(3)
    with (
        np.errstate(invalid="ignore"),
        pytest.raises(FloatingPointError, match="after 6 tokens are not finite"),
    ):
        engine.generate([1, 2], 20)
    assert len(engine) == 1
    weights["head.b"][2] = damage
    with pytest.raises(FloatingPointError, match="after 1 tokens"):
        kind(SMALL, weights).generate([1], 1)


def test_an_interrupted_step_leaves_no_trace(engine, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    engine.step(3)
    for name, call in (
        ("_advance", lambda: engine.step(1)),
        ("_take", lambda: engine.prefill([1])),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(engine, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                call()
        assert len(engine) == 1


def test_an_interrupted_generation_gives_back_what_was_held():
    engine = NumpyEngine(SMALL, weights_of(SMALL))
    engine.step(3)
    advance, calls = engine._advance, []

    def third_fails(token):
        calls.append(token)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return advance(token)

    engine._advance = third_fails
    with pytest.raises(KeyboardInterrupt):
        engine.generate([1], 9)
    assert len(engine) == 1


def test_weights_are_copied_and_never_changed(kind):
    weights = weights_of(SMALL)
    before = {name: w.copy() for name, w in weights.items()}
    for w in weights.values():
        w.setflags(write=False)
    engine = kind(SMALL, weights)
    wanted = engine.prefill([3, 1, 6]).astype("f8")
    engine.reset()
    for name, w in weights.items():
        np.testing.assert_array_equal(w, before[name])
        w.setflags(write=True)
        w[...] = 0
    assert_close(engine.prefill([3, 1, 6]), wanted)


def _without(weights):
    del weights["1.up.b"]


def _with_more(weights):
    weights["2.up.b"] = weights["1.up.b"]


def _reshaped(weights):
    weights["0.o.w"] = weights["0.o.w"][:, 1:]


def _in_float64(weights):
    weights.update({name: w.astype("f8") for name, w in weights.items()})


def _one_in_float64(weights):
    weights["0.q.w"] = weights["0.q.w"].astype("f8")


def _in_integers(weights):
    weights.update({name: w.astype("i4") for name, w in weights.items()})


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (_without, ValueError, r"1\.up\.b.*missing"),
        (_with_more, ValueError, r"2\.up\.b.*left over"),
        (_reshaped, ValueError, r"0\.o\.w.*\[24, 24\], not \[24, 23\]"),
        (_in_float64, TypeError, "float32"),
        (_one_in_float64, TypeError, "all be float32"),
        (_in_integers, TypeError, "int32"),
    ],
)
def test_weights_that_do_not_fit_are_refused(kind, damage, error, message):
    weights = weights_of(SMALL)
    damage(weights)
    with pytest.raises(error, match=message):
        kind(SMALL, weights)


def test_large_scores_and_activations_overflow_nowhere(kind):
    """Scores in the thousands, where exp alone would be infinite, and GELU far on both sides."""
    weights = weights_of(SMALL)
    for name in ("0.q.w", "0.k.w", "1.q.w", "1.k.w"):
        weights[name] *= 100
    for name in ("0.up.w", "1.up.w"):
        weights[name] *= 1000
    tokens, engine = tokens_of(SMALL, 33), kind(SMALL, weights)
    decoder = reference(SMALL, weights)
    k = decoder._linear(decoder._norm(decoder.embed(tokens, 0), "0.norm_1"), "0.k")
    assert np.abs(k).max() > 100  # and so are the queries: scores beyond what exp takes
    with np.errstate(all="raise", under="ignore"):
        logits = [engine.step(token).copy() for token in tokens]
    wanted = decoder.forward(tokens)
    assert np.abs(np.array(logits) - wanted).max() < 1e-2 * np.abs(wanted).max()


def test_a_step_in_numpy_allocates_nothing_but_views():
    """NumPy itself takes a buffer where one number is repeated along a row: here 4 KB and 1 KB."""
    config = CharConfig(vocab_size=4000, context=64, d_model=1024, n_blocks=1, n_heads=4)
    engine = NumpyEngine(config, weights_of(config))
    engine.prefill(tokens_of(config, 60))
    engine.step(1)
    tracemalloc.start()
    engine.step(1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8000  # q, k and v are 12 KB; what is between up and down, and the logits, 16 KB


class Watched(np.ndarray):
    """An array that insists on being told where the result of an operation belongs."""

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        assert out is not None, f"{ufunc.__name__} makes a new array"
        plain = [np.asarray(array) for array in inputs]
        getattr(ufunc, method)(*plain, out=tuple(map(np.asarray, out)), **options)
        return out[0]

    def dot(self, other, out=None):
        assert out is not None or np.ndim(other) == 1, "a product makes a new array"
        return np.asarray(self).dot(np.asarray(other), None if out is None else np.asarray(out))


def test_every_operation_in_numpy_writes_to_memory_that_stays():
    weights, tokens = weights_of(SMALL), tokens_of(SMALL, 9)
    engine = NumpyEngine(SMALL, weights)
    for name, value in vars(engine).items():
        if isinstance(value, np.ndarray):
            setattr(engine, name, value.view(Watched))
    logits = [np.array(engine.step(token)) for token in tokens]
    assert_close(np.array(logits), reference(SMALL, weights).forward(tokens))


def test_folding_is_exact_to_rounding():
    """In float64 the folded model is the model to 1e-13: nothing is left out or approximated."""
    from labsupport.ladder import FoldedRung

    weights = {n: w.astype("f8") for n, w in weights_of(SMALL).items()}
    rung, tokens = FoldedRung(SMALL, weights), tokens_of(SMALL, 33)
    wanted = reference(SMALL, weights).forward(tokens)
    got = np.array([rung.step(token) for token in tokens])
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-13 * np.abs(wanted).max())


def test_all_that_is_written_to_the_stream_has_mean_0():
    folded = folding.fold(SMALL, {n: w.astype("f8") for n, w in weights_of(SMALL).items()})
    for name in ("tokens", "positions", "0.o.w", "0.o.b", "1.down.w", "1.down.b"):
        np.testing.assert_allclose(folded[name].mean(axis=-1), 0, atol=1e-15)


def test_the_compiled_exponential():
    x = np.linspace(-87, 88, 20_001, dtype=np.float32)
    x = np.concatenate([x, np.linspace(-1, 1, 2001, dtype=np.float32)])
    wanted = np.exp(x.astype("f8"))
    got = np.array([compiled._exp(value) for value in x], dtype="f8")
    assert (np.abs(got - wanted) / wanted).max() < 2e-7
    assert compiled._exp(np.float32(-1e30)) < 2e-38
    assert 1e38 < compiled._exp(np.float32(np.inf)) < np.inf
    assert np.isnan(compiled._exp(np.float32(np.nan)))


def test_memory_starts_on_a_cache_line():
    for shape in [(1,), (3, 5), (100,), (2, 0), (7, 11, 2)]:
        array = folding.aligned(*shape)
        assert array.shape == shape
        assert array.ctypes.data % 64 == 0
    stream = folding.one_stream([np.ones((2, 3), "f4"), np.full(5, 2, "f4").reshape(1, 5)])
    assert stream.tolist() == [1] * 6 + [2] * 5


def test_without_numba_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "labsupport.compiled")
    with pytest.raises(ImportError, match="pip install numba"):
        importlib.import_module("labsupport.compiled")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_stream_too_large_for_float32_is_told_and_not_normalised_to_nothing(kind):
    weights = weights_of(SMALL)
    weights["0.norm_2.g"] *= np.float32(1e30)  # finite, but not its square
    engine = kind(SMALL, weights)
    with pytest.raises(FloatingPointError, match="not finite; check the weights"):
        engine.generate([1], 2)
    assert not np.isfinite(engine.prefill([1, 2])).all()
