"""Latent attention against a loop of numbers, and against the course's own attention; its two ways
against each other; its counts against the calls that NumPy gets."""

import cmath
import copy
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labsupport import decoder, latent
from labsupport.kvcache import PreallocatedCache
from labsupport.latent import (
    LatentAttention,
    LatentCache,
    LatentConfig,
    attend_absorbed,
    attend_expanded,
    between,
    multiplications,
    rotate,
)
from labsupport.memory import CacheShape
from labsupport.opcounts import array_calls

SIZES = {"d_model": 24, "n_heads": 3, "head_dim": 5, "rope_dim": 4, "d_latent": 7}
V2 = LatentConfig(d_model=5120, n_heads=128, head_dim=128, rope_dim=64, d_latent=512)
WAYS = (attend_expanded, attend_absorbed)

each_way = pytest.mark.parametrize("attend", WAYS)
seeds = st.integers(0, 2**32 - 1)


def small(seed=0, **changes):
    return LatentAttention(LatentConfig(**(SIZES | changes)), seed)


def some_x(n, seed=0, dtype="float64"):
    return np.random.default_rng(seed).normal(size=(n, SIZES["d_model"])).astype(dtype)


def some_rows(n_new, n_tokens, seed):
    """What an attend function takes, but for the weights: q, q_rope, c, k_rope."""
    rng, s = np.random.default_rng(seed), SIZES
    of_q, of_c = (s["n_heads"], n_new), (n_tokens,)
    shapes = ((*of_q, s["head_dim"]), (*of_q, s["rope_dim"]), (*of_c, s["d_latent"]))
    return [rng.normal(size=shape) for shape in (*shapes, (*of_c, s["rope_dim"]))]


def turned(row, position):
    """Neighbours as the two parts of a complex number, which is turned; of a list, as a list."""
    out = []
    for i in range(0, len(row), 2):
        angle = position * 10_000 ** (-i / len(row))
        number = complex(row[i], row[i + 1]) * cmath.exp(1j * angle)
        out += [number.real, number.imag]
    return out


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def times(row, matrix):
    """A list times a matrix [len(row), n], as a list."""
    return [dot(row, column) for column in matrix.T.tolist()]


def in_a_loop(x, w):
    """The layer, one token and one head at a time."""
    out = []
    for t in range(len(x)):
        read = []
        for h in range(len(w["q"])):
            query = times(x[t], w["q"][h]) + turned(times(x[t], w["qr"][h]), t)
            latents = [times(x[s], w["dkv"]) for s in range(t + 1)]
            places = [turned(times(x[s], w["kr"]), s) for s in range(t + 1)]
            scores = [
                dot(query, times(c, w["uk"][h]) + place) / math.sqrt(len(query))
                for c, place in zip(latents, places, strict=True)
            ]
            exps = [math.exp(score) for score in scores]
            values = [times(c, w["uv"][h]) for c in latents]
            read += [dot(exps, column) / math.fsum(exps) for column in zip(*values, strict=True)]
        out.append(times(read, w["o"]))
    return out


@each_way
@settings(max_examples=8, deadline=None)
@given(seed=seeds, n=st.integers(1, 6))
def test_the_layer_is_the_loop(attend, seed, n):
    model, x = small(seed), some_x(n, seed)
    loop = in_a_loop(x.tolist(), model.weights)
    np.testing.assert_allclose(model.forward(x, attend=attend), loop, rtol=0, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    seed=seeds,
    n_new=st.integers(1, 5),
    n_past=st.integers(0, 20),
    sizes=st.fixed_dictionaries(
        {
            "n_heads": st.integers(1, 4),
            "head_dim": st.integers(1, 9),
            "rope_dim": st.sampled_from([2, 4, 6]),
            "d_latent": st.integers(1, 30),
        }
    ),
)
def test_both_ways_give_the_same(seed, n_new, n_past, sizes):
    model, x = small(seed, **sizes), some_x(n_past + n_new, seed)
    caches = [LatentCache(model.config, len(x)) for _ in WAYS]
    for part in filter(len, (x[:n_past], x[n_past:])):
        expanded, absorbed = (
            model.forward(part, cache, attend) for cache, attend in zip(caches, WAYS, strict=True)
        )
        np.testing.assert_allclose(absorbed, expanded, rtol=0, atol=1e-12)
    assert [rows.tolist() for rows in caches[0].rows()] == [r.tolist() for r in caches[1].rows()]


@settings(max_examples=40, deadline=None)
@given(
    seed=seeds,
    chunks=st.lists(st.tuples(st.integers(1, 6), st.sampled_from(WAYS)), min_size=1, max_size=6),
)
def test_cached_steps_are_the_full_pass_whichever_way_each_is_taken(seed, chunks):
    model = small(seed)
    x = some_x(sum(n for n, _ in chunks), seed)
    cache, pieces = LatentCache(model.config, len(x)), []
    for n, attend in chunks:
        pieces.append(model.forward(x[len(cache) :][:n], cache, attend))
    assert len(cache) == len(x)
    np.testing.assert_allclose(np.concatenate(pieces), model.forward(x), rtol=0, atol=1e-12)


@each_way
def test_in_float32_too(attend):
    model = small(3, dtype="float32")
    x, cache = some_x(12, dtype="float32"), LatentCache(model.config, 12)
    whole = model.forward(x, attend=attend)
    steps = np.concatenate([model.forward(x[i : i + 1], cache, attend) for i in range(12)])
    wide = LatentAttention(LatentConfig(**SIZES), 3)
    wide.weights = {name: w.astype("f8") for name, w in model.weights.items()}
    assert whole.dtype == steps.dtype == cache.rows()[0].dtype == "float32"
    np.testing.assert_allclose([whole, steps], [wide.forward(x.astype("f8"))] * 2, atol=2e-5)


def padded(x, width):
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1])])


@settings(max_examples=20, deadline=None)
@given(seed=seeds, n_new=st.integers(1, 4), n_past=st.integers(0, 6))
def test_absorbed_it_is_attention_whose_heads_share_one_key(seed, n_new, n_past):
    q, q_rope, c, k_rope = some_rows(n_new, n_past + n_new, seed)
    weights = small(seed).weights
    query = np.concatenate([q @ weights["uk"].swapaxes(1, 2), q_rope], axis=-1)
    query *= math.sqrt(query.shape[-1]) / math.sqrt(q.shape[-1] + q_rope.shape[-1])  # the scale
    key = np.concatenate([c, k_rope], axis=-1)[None]  # [1, n_tokens, d_latent + rope_dim]
    value = padded(c, key.shape[-1])[None]  # the latent again, as wide as the key
    mix = decoder.attention(query, key, value)[..., : c.shape[-1]]
    read = attend_absorbed(q, q_rope, c, k_rope, weights)
    np.testing.assert_allclose(mix @ weights["uv"], read, rtol=0, atol=1e-12)


@each_way
def test_only_the_rotary_part_tells_the_order_of_earlier_tokens(attend):
    model, x = small(1), some_x(8)
    swapped = x[[3, 1, 2, 0, 4, 5, 6, 7]]

    def moved():
        last, other = (model.forward(rows, attend=attend)[-1] for rows in (x, swapped))
        return np.abs(last - other).max()

    assert moved() > 1e-3
    model.weights["kr"] = np.zeros_like(model.weights["kr"])
    assert moved() < 1e-12


@each_way
@pytest.mark.parametrize("name", small().weights)
def test_every_weight_has_a_say(name, attend):
    model, x = small(2), some_x(6)
    before = model.forward(x, attend=attend)
    noise = np.random.default_rng(4).normal(size=model.weights[name].shape)
    model.weights[name] = model.weights[name] + noise
    assert np.abs(model.forward(x, attend=attend) - before).max() > 1e-3


# The rotation, and why it comes beside


@settings(max_examples=30, deadline=None)
@given(seed=seeds, dim=st.sampled_from([2, 4, 8]), t=st.integers(0, 500), back=st.integers(0, 500))
def test_products_of_rotated_rows_follow_the_distance_alone(seed, dim, t, back):
    q, k = np.random.default_rng(seed).normal(size=(2, 3, dim))
    here = (rotate(q, t + back) * rotate(k, t)).sum(axis=-1)
    at_0 = (rotate(q, back) * rotate(k, 0)).sum(axis=-1)
    np.testing.assert_allclose(here, at_0, rtol=0, atol=1e-11)
    np.testing.assert_allclose(rotate(q, [t, 0, back])[0], turned(q[0].tolist(), t), atol=1e-11)
    np.testing.assert_array_equal(rotate(q, [t, 0, back])[1], q[1])


def test_rotated_latent_keys_would_need_another_matrix_for_each_distance():
    model, rng = small(head_dim=6), np.random.default_rng(5)
    x, c = rng.normal(size=SIZES["d_model"]), rng.normal(size=SIZES["d_latent"])
    for head in range(3):
        query, key = x @ model.weights["q"][head], c @ model.weights["uk"][head]
        for t, s in ((0, 0), (9, 4), (30, 4), (31, 5)):
            score = dot(turned(query.tolist(), t), turned(key.tolist(), s))
            assert abs(x @ between(model.weights, head, t - s) @ c - score) < 1e-12
    first, *others = (between(model.weights, 0, distance) for distance in range(20))
    assert first.shape == (24, 7)
    np.testing.assert_allclose(first, model.weights["q"][0] @ model.weights["uk"][0].T, atol=1e-14)
    for other in others:
        assert np.linalg.norm(other - first) > 0.1 * np.linalg.norm(first)


# Bytes and multiplications


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_cache_holds_one_latent_and_one_rotary_key_a_token_and_no_more(dtype):
    config = LatentConfig(**SIZES, dtype=dtype)
    cache = LatentCache(config, 100)
    assert config.cached_numbers == 7 + 4
    assert cache.nbytes == 100 * (7 + 4) * np.dtype(dtype).itemsize


def test_bytes_beside_those_of_the_same_heads_kept_shared_or_not():
    config = LatentConfig(**SIZES | {"n_heads": 4}, dtype="float32")
    held = {
        n_kv_heads: PreallocatedCache(n_kv_heads, config.head_dim, "float32", capacity=100).nbytes
        for n_kv_heads in (4, 2, 1)
    }
    for n_kv_heads, nbytes in held.items():
        assert CacheShape(1, n_kv_heads, config.head_dim, "float32").bytes_at(100) == nbytes
    of_latents = CacheShape(1, 4, config.head_dim, "float32", latent_dim=config.cached_numbers)
    assert LatentCache(config, 100).nbytes == of_latents.bytes_at(100)
    assert held[1] < of_latents.bytes_at(100) < held[2] < held[4]


def test_of_the_published_sizes_it_holds_what_two_and_a_quarter_shared_heads_would():
    assert V2.cached_numbers == 576
    assert V2.cached_numbers / (2 * V2.head_dim) == 2.25  # arXiv:2405.04434, table 1
    layers = CacheShape(60, 128, 128, "float16", latent_dim=V2.cached_numbers)
    assert layers.bytes_per_token == 67.5 * 1024


@pytest.mark.parametrize(("n_new", "n_tokens"), [(1, 1), (1, 40), (3, 40), (40, 40)])
def test_multiplications_are_those_that_numpy_is_asked_for(n_new, n_tokens):
    rows, weights = some_rows(n_new, n_tokens, seed=0), small().weights
    asked = {}
    for attend in WAYS:
        calls = array_calls(lambda *r, attend=attend: attend(*r, weights), *rows, modules=(latent,))
        asked[attend] = calls.query("kind == 'matmul'")["flops"] / 2  # a sum for each product
    expanded = asked[attend_expanded].tolist()
    assert multiplications(small().config, n_new, n_tokens) == {
        "kept": sum(expanded[2:]),  # after the keys and values are made
        "expanded": sum(expanded),
        "absorbed": asked[attend_absorbed].sum(),
    }


def test_absorbing_pays_in_decoding_and_not_for_a_long_prompt():
    step, prompt = multiplications(V2, 1, 4096), multiplications(V2, 4096, 4096)
    assert step["kept"] < step["absorbed"] < step["expanded"]
    assert prompt["kept"] < prompt["expanded"] < prompt["absorbed"]


# Refusals


def filled(n=4, capacity=6):
    model = small()
    cache = LatentCache(model.config, capacity)
    model.forward(some_x(n), cache)
    return model, cache


REFUSALS = {
    "odd": (lambda m, c: small(rope_dim=3), ValueError, "rope_dim must be even"),
    "none": (lambda m, c: small(d_latent=0), ValueError, "d_latent must be at least 1"),
    "float": (lambda m, c: small(head_dim=4.0), TypeError, "head_dim must be an int"),
    "dtype": (lambda m, c: small(dtype="float16"), TypeError, "dtype must be float32 or float64"),
    "no dtype": (lambda m, c: small(dtype=None), TypeError, "not None"),
    "capacity": (lambda m, c: LatentCache(m.config, 0), ValueError, "capacity must be at least 1"),
    "full": (lambda m, c: m.forward(some_x(3), c), ValueError, "4 tokens and 3 more .* cache's 6"),
    "wide": (lambda m, c: m.forward(np.ones((2, 9)), c), ValueError, r"x must be .*\[2, 9\]"),
    "flat": (lambda m, c: m.forward(np.ones(24), c), ValueError, r"not \[24\] of float64"),
    "empty": (lambda m, c: m.forward(np.ones((0, 24)), c), ValueError, r"\[1 or more, 24\]"),
    "narrow": (lambda m, c: m.forward(some_x(1, dtype="f4"), c), ValueError, "of float32"),
    "rows": (lambda m, c: c.append(np.ones((1, 7)), np.ones((2, 4))), ValueError, "k_rope must"),
    "whose": (lambda m, c: small(d_latent=9).forward(some_x(1), c), ValueError, r"c must be \[1,"),
    "too long": (lambda m, c: c.truncate(5), ValueError, "to 5 tokens: only 4 held"),
    "half": (lambda m, c: c.truncate(0.5), TypeError, "n_tokens must be an int"),
    "write": (lambda m, c: c.rows()[1].__setitem__(0, 0), ValueError, "read-only"),
    "no past": (lambda m, c: multiplications(V2, 5, 4), ValueError, "n_tokens must be at least 5"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_says_what_is_wrong_and_changes_nothing(name):
    act, error, says = REFUSALS[name]
    model, cache = filled()
    before = [rows.tobytes() for rows in cache.rows()]
    with pytest.raises(error, match=says):
        act(model, cache)
    assert [rows.tobytes() for rows in cache.rows()] == before


def test_a_pass_that_fails_midway_takes_back_what_it_appended():
    model, cache = filled()
    before = [rows.tobytes() for rows in cache.rows()]

    def interrupted(*rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.forward(some_x(1), cache, interrupted)
    assert [rows.tobytes() for rows in cache.rows()] == before


def test_a_truncated_cache_goes_on_as_one_that_never_held_more():
    model, cache = filled(6)
    cache.truncate(2)
    x = np.concatenate([some_x(6)[:2], some_x(3, seed=8)])
    np.testing.assert_allclose(
        model.forward(x[2:], cache), model.forward(x)[2:], rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("kind", [np.int16, np.int32])
def test_sizes_given_as_numpy_numbers_do_not_overflow(kind):
    sizes = (5120, 128, 128, 64, 512)
    narrow, plain = LatentConfig(*map(kind, sizes)), LatentConfig(*sizes)
    assert latent.multiplications(narrow, 1, 131_072) == latent.multiplications(plain, 1, 131_072)


@pytest.mark.parametrize("how", [lambda cache: cache.copy(), copy.copy, copy.deepcopy])
def test_a_copy_of_a_cache_is_another_s(how):
    cache = latent.LatentCache(LatentConfig(8, 2, 4, 2, 3), 4)
    cache.append(np.ones((2, 3)), np.ones((2, 2)))
    twin = how(cache)
    cache.append(np.full((1, 3), 2.0), np.full((1, 2), 2.0))
    twin.append(np.full((1, 3), 9.0), np.full((1, 2), 9.0))
    for own, last in ((cache, 2), (twin, 9)):
        assert [rows[:, 0].tolist() for rows in own.rows()] == [[1, 1, last]] * 2
    assert twin.capacity == 4


def test_whole_numbers_are_rotated_as_others_are():
    rows = np.array([[1, 0, 2, 3]])
    np.testing.assert_array_equal(latent.rotate(rows, [5]), latent.rotate(rows.astype(float), [5]))
