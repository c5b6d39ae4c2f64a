"""Kept prefixes: found under their own key only, owned by the store, true to their model."""

import hashlib
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labsupport.decoder import Decoder, DecoderConfig
from labsupport.kvcache import DoublingCache, PreallocatedCache
from labsupport.prefix import FrozenDecoder, PrefixStore, identity
from labsupport.window import WindowDecoder

CONFIG = DecoderConfig(30, 40, 16, 2, 2, dtype=np.float64)
SOURCES = {"decoder.py": b"def forward", "kvcache.py": b"def append"}
TOKENS, N_PREFIX = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8], 8
PREFIX, REST = TOKENS[:N_PREFIX], TOKENS[N_PREFIX:]


def marked(n_tokens, mark):
    """One layer's caches, every row of which holds `mark`."""
    cache = PreallocatedCache(1, 2, capacity=n_tokens + 1)
    rows = np.full((1, n_tokens, 2), mark, np.float32)  # [n_kv_heads, n_tokens, head_dim]
    cache.append(rows, rows)
    return [cache]


def mark_of(caches):
    return int(caches[0].keys()[0, 0, 0])


# Keys


class Colliding(int):
    """An int whose hash is that of every other one."""

    def __hash__(self):
        return 0


def test_equal_hashes_never_give_another_prefix():
    store, prefixes = PrefixStore(), [[Colliding(i), Colliding(j)] for i in range(9) for j in "12"]
    prefixes += [[Colliding(i)] for i in range(9)]
    assert len({hash(tuple(p)) for p in prefixes}) == 2  # one for each length
    for i, prefix in enumerate(prefixes):
        with pytest.raises(LookupError):
            store.find("a", "model", prefix)
        store.keep("a", "model", prefix, marked(len(prefix), i))
    for i, prefix in enumerate(prefixes):
        assert mark_of(store.find("a", "model", prefix)) == i


def test_an_int_and_its_equal_in_hash_are_two_tokens():
    modulus = sys.hash_info.modulus
    assert hash((1,)) == hash((1 + modulus,))
    store = PrefixStore()
    store.keep("a", "model", [1], marked(1, 1))
    with pytest.raises(LookupError):
        store.find("a", "model", [1 + modulus])


ONES = [1, True, 1.0, np.int64(1), np.int32(1), np.True_, np.float64(1), Colliding(1), "1"]


@pytest.mark.parametrize("kept", ONES, ids=lambda one: type(one).__name__)
def test_a_token_of_another_type_is_another_token(kept):
    store = PrefixStore()
    store.keep("a", "model", [2, kept], marked(2, 7))
    for asked in ONES:
        if type(asked) is type(kept):
            assert mark_of(store.find("a", "model", [2, asked])) == 7
        else:
            with pytest.raises(LookupError):
                store.find("a", "model", [2, asked])


def test_scope_and_identity_belong_to_the_key():
    store = PrefixStore()
    store.keep("a", "model", [1, 2], marked(2, 1))
    store.keep("b", "model", [1, 2], marked(2, 2))
    store.keep("a", "other", [1, 2], marked(2, 3))
    found = [store.find(*key, [1, 2]) for key in (("a", "model"), ("b", "model"), ("a", "other"))]
    assert [mark_of(caches) for caches in found] == [1, 2, 3]
    for key in (("b", "other"), ("model", "a"), ("a", "mode")):
        with pytest.raises(LookupError, match="keep"):
            store.find(*key, [1, 2])


keys = st.tuples(
    st.sampled_from(["a", "b"]),
    st.sampled_from(["x", "y"]),
    st.lists(st.sampled_from([0, 1, True, 1.0, np.int64(1), -1, -2]), max_size=3),
)


@given(st.lists(st.tuples(keys, st.integers(0, 99)), max_size=12), keys)
def test_as_a_list_searched_part_by_part(entries, asked):
    def same(a, b):
        a, b = [*a[:2], *a[2]], [*b[:2], *b[2]]
        pairs = list(zip(a, b, strict=False))
        return len(a) == len(b) and all(type(x) is type(y) and x == y for x, y in pairs)

    store = PrefixStore()
    for (scope, model, prefix), mark in entries:
        store.keep(scope, model, [*prefix, 5], marked(len(prefix) + 1, mark))
    scope, model, prefix = asked
    expected = [mark for key, mark in entries if same(key, asked)]
    if expected:
        assert mark_of(store.find(scope, model, [*prefix, 5])) == expected[-1]
    else:
        with pytest.raises(LookupError):
            store.find(scope, model, [*prefix, 5])


@pytest.mark.parametrize("n_held", [0, 2, 4])
def test_caches_of_another_length_than_the_prefix_are_refused(n_held):
    store = PrefixStore()
    store.keep("a", "model", [1, 2, 3], marked(3, 1))
    with pytest.raises(ValueError, match=rf"3 tokens, the caches hold \[3, {n_held}\]"):
        store.keep("a", "model", [1, 2, 3], marked(3, 2) + marked(n_held, 2))
    with pytest.raises(ValueError, match="truncate"):
        store.keep("a", "model", [1, 2, 3], [])
    assert len(store) == mark_of(store.find("a", "model", [1, 2, 3])) == 1


# Ownership


@pytest.fixture
def model():
    return FrozenDecoder(Decoder(CONFIG, 0), SOURCES)


def kept_prefix(model, kind=DoublingCache, **options):
    """The store, and the caches that were given to it."""
    store, caches = PrefixStore(), model.new_caches(kind, **options)
    model.forward(PREFIX, caches)
    store.keep("a", model.identity, PREFIX, caches)
    return store, caches


def rows_of(caches):
    return [np.copy(rows) for cache in caches for rows in (cache.keys(), cache.values())]


def same_rows(a, b):
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_kept_prefix_stays_as_it_is_however_often_its_copy_goes_on(model):
    store, _ = kept_prefix(model, PreallocatedCache, capacity=len(TOKENS))
    before = rows_of(store.find("a", model.identity, PREFIX))
    for query in range(20):
        rest = [(token + query) % 30 for token in REST]
        caches = [cache.copy() for cache in store.find("a", model.identity, PREFIX)]
        outputs = model.forward(rest, caches)
        assert np.abs(outputs - model.forward(PREFIX + rest)[N_PREFIX:]).max() <= 1e-12
        for views in (cache.writable_views() for cache in caches):
            for rows in views:
                rows[...] = np.nan  # what a query does to its copy is its own affair
        kept = store.find("a", model.identity, PREFIX)
        assert [len(cache) for cache in kept] == [N_PREFIX] * 2
        assert same_rows(rows_of(kept), before)


def test_without_the_copy_the_second_query_is_answered_wrongly_and_nothing_says_so(model):
    store, _ = kept_prefix(model)
    right = model.forward(TOKENS)[N_PREFIX:]
    first = model.forward(REST, store.find("a", model.identity, PREFIX))
    assert np.abs(first - right).max() <= 1e-12
    assert [len(cache) for cache in store.find("a", model.identity, PREFIX)] == [len(TOKENS)] * 2
    second = model.forward(REST, store.find("a", model.identity, PREFIX))
    assert np.abs(second - right).max() > 0.01


def test_without_the_copy_two_queries_write_into_the_same_rows(model):
    """Putting the length right after each query does not help while another goes on."""
    store, _ = kept_prefix(model, PreallocatedCache, capacity=len(TOKENS) + 1)
    right = model.forward([*TOKENS, 7])[-1]
    caches = store.find("a", model.identity, PREFIX)
    model.forward(REST, caches)
    for cache in store.find("a", model.identity, PREFIX):
        cache.truncate(N_PREFIX)
    model.forward(REST[::-1], store.find("a", model.identity, PREFIX))
    assert np.abs(model.forward([7], caches)[-1] - right).max() > 0.01


def test_who_gave_the_caches_may_go_on_with_them(model):
    store, caches = kept_prefix(model)
    before = rows_of(store.find("a", model.identity, PREFIX))
    model.forward(REST, caches)
    caches[0].writable_views()[0][...] = np.nan
    assert same_rows(rows_of(store.find("a", model.identity, PREFIX)), before)


# Identity


def weights_of(**changes):
    return {"w": np.arange(6.0).reshape(2, 3), "b": np.zeros(3), "g": np.ones(3)} | changes


BASE = (SOURCES, weights_of(), CONFIG)
OTHERS = {
    "a byte of code": (SOURCES | {"decoder.py": b"def Forward"}, *BASE[1:]),
    "a file's name": ({"decode.py": b"def forward", "kvcache.py": b"def append"}, *BASE[1:]),
    "a file more": (SOURCES | {"more.py": b""}, *BASE[1:]),
    "code moved to the next file": (
        {"decoder.py": b"def forwar", "kvcache.py": b"ddef append"},
        *BASE[1:],
    ),
    "the last bit of a weight": (
        SOURCES,
        weights_of(b=np.array([0, 0, np.nextafter(0, 1)])),
        CONFIG,
    ),
    "the sign of a zero": (SOURCES, weights_of(b=np.array([0, 0, -0.0])), CONFIG),
    "two weights exchanged": (SOURCES, weights_of(b=np.ones(3), g=np.zeros(3)), CONFIG),
    "a weight's name": (
        SOURCES,
        {("bias" if k == "b" else k): v for k, v in BASE[1].items()},
        CONFIG,
    ),
    "a weight less": (SOURCES, {"w": BASE[1]["w"], "b": np.zeros(3)}, CONFIG),
    "the shape": (SOURCES, weights_of(w=np.arange(6.0).reshape(3, 2)), CONFIG),
    "the type, with equal bytes": (SOURCES, weights_of(b=np.zeros(3, np.int64)), CONFIG),
    "the type, with equal values": (SOURCES, weights_of(b=np.zeros(3, np.float32)), CONFIG),
    "a size of the configuration": (*BASE[:2], DecoderConfig(30, 41, 16, 2, 2, dtype=np.float64)),
    "the dtype of the configuration": (*BASE[:2], DecoderConfig(30, 40, 16, 2, 2)),
}


@pytest.mark.parametrize("change", OTHERS)
def test_every_part_counts(change):
    assert identity(*OTHERS[change]) != identity(*BASE)


def test_no_two_of_these_models_are_one():
    assert len({identity(*model) for model in OTHERS.values()}) == len(OTHERS)


def test_order_and_layout_in_memory_do_not_count():
    sources, weights, config = BASE
    turned = {name: np.asfortranarray(weights[name]) for name in reversed(weights)}
    spaced = weights | {"b": np.zeros((3, 2))[:, 0]}
    backwards = {name: sources[name] for name in reversed(sources)}
    expected = identity(sources, weights, config)
    assert identity(backwards, turned, config) == identity(sources, spaced, config) == expected


def test_it_is_the_sha256_of_the_parts_after_their_lengths():
    config = repr(CONFIG)
    told = [
        f"config, {len(config)} bytes\n{config}".encode(),
        b"source 'decoder.py', 11 bytes\ndef forward",
        b"source 'kvcache.py', 10 bytes\ndef append",
        b"weights 'b' <f8 (2, 1), 16 bytes\n" + np.array([1.5, -2]).astype("<f8").tobytes(),
    ]
    weights = {"b": np.array([[1.5], [-2]], "<f8")}
    assert identity(SOURCES, weights, CONFIG) == hashlib.sha256(b"".join(told)).hexdigest()


# The frozen model


def test_a_frozen_model_computes_what_the_other_does():
    plain = Decoder(DecoderConfig(30, 40, 16, 2, 4, n_kv_heads=2), 3)
    frozen = FrozenDecoder(plain, SOURCES)
    assert np.array_equal(frozen.forward(TOKENS), plain.forward(TOKENS))
    assert frozen.identity == identity(SOURCES, plain.weights, plain.config)


def test_a_write_to_frozen_weights_raises(model):
    before = model.forward(TOKENS)
    for array in model.weights.values():
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
        with pytest.raises(ValueError, match="read-only"):
            array += 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.setflags(write=True)
    with pytest.raises(TypeError):
        model.weights["head.b"] = np.ones(30)
    with pytest.raises(TypeError):
        del model.weights["head.b"]
    for name in ("weights", "identity", "config", "anything"):
        with pytest.raises(AttributeError, match=f"{name} cannot be set"):
            setattr(model, name, None)
    assert np.array_equal(model.forward(TOKENS), before)
    assert model.identity == identity(SOURCES, model.weights, model.config)


def test_changed_weights_take_a_new_instance_with_a_new_identity():
    plain = Decoder(CONFIG, 0)
    old = FrozenDecoder(plain, SOURCES)
    before = old.forward(TOKENS)
    plain.weights["0.k.w"][0, 0] += 1e-9
    new = FrozenDecoder(plain, SOURCES)
    assert new.identity != old.identity
    assert np.array_equal(old.forward(TOKENS), before)  # the change has not reached it
    store, _ = kept_prefix(old)
    with pytest.raises(LookupError):
        store.find("a", new.identity, PREFIX)


def test_a_frozen_model_is_hashed_once(monkeypatch):
    from labsupport import prefix

    calls = []
    monkeypatch.setattr(prefix, "identity", lambda *_: calls.append(1) or "name")
    model = FrozenDecoder(Decoder(CONFIG, 0), SOURCES)
    for _ in range(3):
        model.forward(TOKENS)
        assert model.identity == "name"
    assert calls == [1]


def test_a_decoder_that_attends_otherwise_is_not_frozen():
    with pytest.raises(TypeError, match="a WindowDecoder attends otherwise; freeze a plain"):
        FrozenDecoder(WindowDecoder(CONFIG, 0, [4, 4]), SOURCES)
