"""The decoder against itself without a cache, and its attention against a loop written out."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_attention import attention_in_a_loop

from labsupport import decoder
from labsupport.decoder import Decoder, DecoderConfig, attention
from labsupport.kvcache import ConcatCache, DoublingCache, PreallocatedCache

SIZES = {"vocab_size": 61, "n_positions": 32, "d_model": 24, "n_layers": 2, "n_heads": 6}
KINDS = {ConcatCache: {}, DoublingCache: {}, PreallocatedCache: {"capacity": 32}}
# Logits are near 1; sums taken in another order differ by a few units in the last place.
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}

each_kind = pytest.mark.parametrize("kind", KINDS)
seeds = st.integers(0, 2**32 - 1)


def small(seed=0, **changes):
    return Decoder(DecoderConfig(**(SIZES | changes)), seed)


def some_tokens(n, seed=0):
    return np.random.default_rng(seed).integers(0, SIZES["vocab_size"], n)


@each_kind
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("n_kv_heads", [6, 3, 2, 1])
@settings(max_examples=15, deadline=None)
@given(seed=seeds, chunks=st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_with_a_cache_the_logits_are_those_without(kind, dtype, n_kv_heads, seed, chunks):
    model = small(seed, dtype=dtype, n_kv_heads=n_kv_heads)
    tokens = some_tokens(min(sum(chunks), 32), seed)
    whole = model.forward(tokens)

    caches = model.new_caches(kind, **KINDS[kind])
    cuts = np.cumsum(chunks)[:-1]
    pieces = [model.forward(p, caches) for p in np.split(tokens, cuts) if p.size]

    assert [p.dtype for p in (whole, *pieces)] == [dtype] * (1 + len(pieces))
    assert whole.shape == (len(tokens), SIZES["vocab_size"])
    assert [len(cache) for cache in caches] == [len(tokens)] * SIZES["n_layers"]
    np.testing.assert_allclose(np.concatenate(pieces), whole, rtol=0, atol=TOLERANCE[dtype])


def change_of_earlier_logits(model, n):
    """How far the logits of n tokens move when one more token follows them."""
    tokens = some_tokens(n + 1, seed=n)
    return np.abs(model.forward(tokens)[:n] - model.forward(tokens[:n])).max()


@pytest.mark.parametrize("n", [1, 2, 5, 31])
def test_the_mask_and_only_the_mask_keeps_later_tokens_out(n, monkeypatch):
    model = small(dtype="float64")
    assert change_of_earlier_logits(model, n) < 1e-12
    monkeypatch.setattr(decoder, "causal_mask", lambda *shape: np.ones(shape, bool))
    assert change_of_earlier_logits(model, n) > 1e-3


def test_every_earlier_token_is_looked_at():
    model = small(dtype="float64")
    tokens = some_tokens(10)
    last = model.forward(tokens)[-1]
    for i in range(10):
        other = tokens.copy()
        other[i] = (other[i] + 1) % SIZES["vocab_size"]
        assert np.abs(model.forward(other)[-1] - last).max() > 1e-3


def test_the_mask_written_out():
    rows = decoder.causal_mask(2, 5).astype(int).tolist()
    assert rows == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


@settings(max_examples=40, deadline=None)
@given(
    seed=seeds,
    n_past=st.integers(0, 6),
    n_new=st.integers(1, 5),
    n_kv_heads=st.integers(1, 3),
    shared=st.integers(1, 3),
)
def test_attention_is_the_loop(seed, n_past, n_new, n_kv_heads, shared):
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(n_kv_heads * shared, n_new, 4))
    k, v = rng.normal(size=(2, n_kv_heads, n_past + n_new, 4))
    read = attention(q, k, v)
    assert read.shape == q.shape
    for head in range(len(q)):
        kv = head // shared
        loop = attention_in_a_loop(q[head].tolist(), k[kv].tolist(), v[kv].tolist())
        np.testing.assert_allclose(read[head], loop, rtol=0, atol=1e-13)


def test_small_steps_against_their_definitions():
    x = np.random.default_rng(3).normal(2, 5, size=(4, 50))
    normed = decoder.layer_norm(x, 3.0, 1.0)
    np.testing.assert_allclose(normed.mean(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(normed.std(axis=1), 3, rtol=1e-5)

    exact = [t * 0.5 * (1 + math.erf(t / math.sqrt(2))) for t in x.ravel()]
    np.testing.assert_allclose(decoder.gelu(x).ravel(), exact, rtol=0, atol=1e-3)

    weights = decoder.softmax(np.array([[1000.0, 1000.0 + math.log(3), -np.inf]]))
    np.testing.assert_allclose(weights, [[0.25, 0.75, 0]], rtol=1e-12)


@each_kind
def test_generation_is_the_same_with_and_without_caches_and_goes_on(kind):
    model, prompt = small(5, n_kv_heads=2), [7, 8, 9]
    plain = model.generate(prompt, 12)
    assert len(plain) == 12
    assert all(type(token) is int for token in plain)

    caches = model.new_caches(kind, **KINDS[kind])
    assert model.generate(prompt, 12, caches) == plain
    assert len(caches[0]) == 14  # the last token was not fed back
    assert model.generate(plain[-1:], 5, caches) == model.generate(prompt + plain, 5)


def test_each_step_takes_the_largest_logit():
    model, prompt = small(6), [1, 2, 3]
    for token in model.generate(prompt, 6):
        assert model.forward(prompt)[-1].max() == model.forward(prompt)[-1][token]
        prompt = [*prompt, token]


def test_weights_are_flat_and_of_one_dtype_and_follow_the_seed():
    a, b, other = small(1).weights, small(1).weights, small(2).weights
    assert a.keys() == b.keys() == other.keys()
    assert all(type(w) is np.ndarray and w.dtype == "float32" for w in a.values())
    assert all(np.array_equal(a[name], b[name]) for name in a)
    assert not any(np.array_equal(a[n], other[n]) for n in a if not n.endswith(".g"))


@pytest.mark.parametrize("name", small().weights)
def test_every_weight_has_a_say(name):
    model, tokens = small(3, dtype="float64"), some_tokens(8)
    before = model.forward(tokens)
    noise = np.random.default_rng(4).normal(size=model.weights[name].shape)
    model.weights[name] = model.weights[name] + noise
    moved = np.abs(model.forward(tokens) - before).max()
    # a constant added to each key moves all scores of a query alike, which softmax cannot see
    assert moved < 1e-12 if name.endswith(".k.b") else moved > 1e-3


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"n_heads": 5}, ValueError, "multiple of n_heads"),
        ({"n_kv_heads": 4}, ValueError, "that of n_kv_heads"),
        ({"n_kv_heads": 0}, ValueError, "n_kv_heads must be at least 1"),
        ({"n_layers": 0}, ValueError, "n_layers must be at least 1"),
        ({"vocab_size": 2.5}, TypeError, "vocab_size must be an int"),
        ({"dtype": "float16"}, TypeError, "dtype must be float32 or float64, not float16"),
        ({"dtype": None}, TypeError, "dtype must be float32 or float64, not None"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(changes, error, says):
    with pytest.raises(error, match=says):
        DecoderConfig(**(SIZES | changes))


def test_heads_are_not_shared_unless_asked():
    config = DecoderConfig(**SIZES)
    assert (config.n_kv_heads, config.head_dim, config.dtype) == (6, 4, np.float32)


def swapped(caches, **changes):
    """The caches, the last of them made for a model with these changes."""
    return [*caches[:-1], *small(**changes).new_caches(ConcatCache)[-1:]]


def longer(caches):
    caches[0].append(caches[0].keys()[:, :1], caches[0].values()[:, :1])
    return caches


REFUSALS = {
    "empty": (lambda m, c: m.forward([], c), "one or more integers"),
    "two rows": (lambda m, c: m.forward([[1, 2]], c), "tokens must be a list"),
    "float": (lambda m, c: m.forward([1.0], c), "integers"),
    "bool": (lambda m, c: m.forward([True], c), "integers"),
    "too large": (lambda m, c: m.forward([3, 61], c), r"token 61 is not in 0\.\.60"),
    "negative": (lambda m, c: m.forward([-1], c), "token -1 is not in"),
    "no cache": (lambda m, c: m.forward([1], []), "give 2 caches, one a layer"),
    "too few": (lambda m, c: m.forward([1], c[:1]), "give 2 caches"),
    "same twice": (lambda m, c: m.forward([1], [c[0]] * 2), "give 2 caches"),
    "unequal": (lambda m, c: m.forward([1], longer(c)), r"hold \[5, 4\] tokens"),
    "heads": (lambda m, c: m.forward([1], swapped(c, n_kv_heads=1)), "layer 1 needs"),
    "dim": (lambda m, c: m.forward([1], swapped(c, d_model=48)), "layer 1 needs"),
    "dtype": (lambda m, c: m.forward([1], swapped(c, dtype="f8")), "layer 1 needs"),
    "positions": (lambda m, c: m.forward([1] * 29, c), "4 tokens and 29 more pass the model's 32"),
    "generate": (lambda m, c: m.generate([1, 2], 28, c), "4 tokens and 29 more pass"),
    "nothing new": (lambda m, c: m.generate([1], 0, c), "n_new must be at least 1"),
    "no prompt": (lambda m, c: m.generate([], 3, c), "one or more integers"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_pass_leaves_the_caches_alone(name):
    act, says = REFUSALS[name]
    model = small()
    caches = model.new_caches(DoublingCache)
    model.forward([1, 2, 3, 4], caches)
    before = [(cache.keys().tobytes(), cache.values().tobytes()) for cache in caches]
    with pytest.raises(ValueError, match=says):
        act(model, caches)
    if name != "unequal":  # made by the test itself
        assert [(c.keys().tobytes(), c.values().tobytes()) for c in caches] == before


@pytest.mark.parametrize(
    "act", [lambda m, c: m.forward([1, 2, 3], c), lambda m, c: m.generate([1], 3, c)]
)
def test_a_full_cache_is_found_before_any_layer_is_appended_to(act):
    roomy, full = ConcatCache(6, 4), ConcatCache(6, 4, max_tokens=2)
    with pytest.raises(ValueError, match="3 more tokens do not fit"):
        act(small(), [roomy, full])
    assert len(roomy) == len(full) == 0
    assert roomy.n_allocations == 2  # those of its construction: nothing was taken back


@each_kind
def test_a_pass_that_fails_midway_takes_back_what_it_appended(kind, monkeypatch):
    model = small()
    caches = model.new_caches(kind, **KINDS[kind])
    model.forward([1, 2, 3], caches)

    def no_memory(x, layer, real=model.transform):
        if layer == 1:
            raise MemoryError
        return real(x, layer)

    monkeypatch.setattr(model, "transform", no_memory)
    with pytest.raises(MemoryError):
        model.forward([4, 5], caches)
    monkeypatch.undo()
    assert [len(cache) for cache in caches] == [3, 3]
    again = model.forward([4, 5], caches)
    np.testing.assert_allclose(again, model.forward([1, 2, 3, 4, 5])[3:], rtol=0, atol=2e-5)


def test_a_pass_without_memory_is_taken_back_though_taking_back_gets_none_either(monkeypatch):
    model = small(n_layers=3)
    caches = model.new_caches(ConcatCache)
    model.forward([1, 2, 3], caches)
    calls = []

    def empty(*args, real=np.empty):
        calls.append(args)
        if len(calls) >= 5:  # two layers of three are appended to
            raise MemoryError("the first of all")
        return real(*args)

    monkeypatch.setattr("labsupport.kvcache.np.empty", empty)
    with pytest.raises(MemoryError, match="the first of all"):
        model.forward([4, 5], caches)
    monkeypatch.undo()
    assert len(calls) > 5
    assert [len(cache) for cache in caches] == [3, 3, 3]
    assert [cache.capacity for cache in caches] == [5, 5, 3]
    again = model.forward([4, 5], caches)
    np.testing.assert_allclose(again, model.forward([1, 2, 3, 4, 5])[3:], rtol=0, atol=2e-5)


def test_a_cache_that_cannot_truncate_does_not_hold_up_the_others():
    class Stuck(ConcatCache):
        def truncate(self, n_tokens):
            raise OSError("stuck")

    model = small(n_layers=3)
    caches = model.new_caches(DoublingCache)
    caches[0] = Stuck(6, 4)
    model.forward([1, 2, 3], caches)

    def fail(*_):
        raise KeyError("the reason")

    model.read_out = fail
    with pytest.raises(KeyError, match="the reason"):
        model.forward([4, 5], caches)
    assert [len(cache) for cache in caches] == [5, 3, 3]
    with pytest.raises(ValueError, match=r"hold \[5, 3, 3\] tokens; truncate"):
        model.forward([4, 5], caches)
