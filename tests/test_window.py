"""The ring against a dict of slots, its attention against a loop, and a windowed decoder in chunks
against itself at one go."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from slow_attention import attention_in_a_loop

from labsupport import decoder, window
from labsupport.decoder import Decoder, DecoderConfig
from labsupport.kvcache import ConcatCache, DoublingCache, PreallocatedCache
from labsupport.memory import CacheShape
from labsupport.ring import RingCache
from labsupport.window import WindowDecoder, felt, receptive_field, window_attention, window_mask

HEADS, DIM = 2, 3
SIZES = {"vocab_size": 61, "n_positions": 48, "d_model": 24, "n_layers": 3, "n_heads": 6}
KINDS = {ConcatCache: {}, DoublingCache: {}, PreallocatedCache: {"capacity": 48}}
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}  # as in test_decoder: logits are near 1

seeds = st.integers(0, 2**32 - 1)


def small(windows, seed=0, **changes):
    sizes = SIZES | {"dtype": "float64", "n_kv_heads": 2, "n_layers": len(windows)} | changes
    return WindowDecoder(DecoderConfig(**sizes), seed, windows)


def some_tokens(n, seed=0):
    return np.random.default_rng(seed).integers(0, SIZES["vocab_size"], n)


def some_rows(n, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=(2, HEADS, n, DIM)).astype(dtype)


def ring(size, n=0, seed=0):
    """A ring of `size` after `n` tokens, seen one by one."""
    cache = RingCache(HEADS, DIM, window=size)
    for i in range(n):
        cache.append(*some_rows(1, seed + i))
    return cache


def state(cache):
    sizes = len(cache), cache.held, cache.nbytes
    return sizes, cache.keys().tobytes(), cache.values().tobytes()


# The mask, and attention in the band


def test_the_mask_written_out():
    assert window_mask(3, 5, 2).astype(int).tolist() == [
        [0, 1, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 1, 1],
    ]
    assert window_mask(2, 2, 1).tolist() == np.eye(2, dtype=bool).tolist()
    np.testing.assert_array_equal(window_mask(3, 7, 7), decoder.causal_mask(3, 7))


@pytest.mark.parametrize(
    ("sizes", "error", "says"),
    [
        ((3, 2, 4), ValueError, "n_tokens must be at least 3, not 2"),
        ((3, 5, 0), ValueError, "window must be at least 1"),
        ((-1, 5, 2), ValueError, "n_new must be at least 0"),
        ((3, 5, 2.0), TypeError, "window must be an int"),
    ],
)
def test_a_mask_that_makes_no_sense_is_refused(sizes, error, says):
    with pytest.raises(error, match=says):
        window_mask(*sizes)


@settings(max_examples=40, deadline=None)
@given(
    seed=seeds,
    n_past=st.integers(0, 9),
    n_new=st.integers(1, 6),
    size=st.integers(1, 8),
    shared=st.integers(1, 3),
)
def test_attention_is_the_loop_and_the_ring_changes_nothing(seed, n_past, n_new, size, shared):
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(2 * shared, n_new, 4))
    k, v = rng.normal(size=(2, 2, n_past + n_new, 4))
    loop = [
        attention_in_a_loop(q[h].tolist(), k[h // shared].tolist(), v[h // shared].tolist(), size)
        for h in range(2 * shared)
    ]
    np.testing.assert_allclose(window_attention(q, k, v, size), loop, rtol=0, atol=1e-13)

    cache = RingCache(2, 4, "float64", window=size)
    cache.append(k[:, :n_past], v[:, :n_past])
    twin = cache.copy()
    read = window.attend_chunk(q, k[:, n_past:], v[:, n_past:], cache)
    np.testing.assert_allclose(read, loop, rtol=0, atol=1e-13)
    for i in range(n_new):
        new = slice(n_past + i, n_past + i + 1)
        one = window.attend_one(q[:, i : i + 1], k[:, new], v[:, new], twin)
        np.testing.assert_allclose(one, np.array(loop)[:, i : i + 1], rtol=0, atol=1e-13)
    assert state(twin) == state(cache)


# The ring


class RingAgainstDict(RuleBasedStateMachine):
    """A dict of slots, filled position by position; and its copy from before the last append."""

    @initialize(size=st.integers(1, 6))
    def start(self, size):
        self.size, self.n = size, 0
        self.cache = RingCache(HEADS, DIM, window=size)
        self.slots, self.before, self.n_before = {}, {}, 0  # slot: (position, k row, v row)

    @rule(n=st.integers(0, 14), seed=seeds)
    def append(self, n, seed):
        k, v = some_rows(n, seed)
        self.before, self.n_before = dict(self.slots), self.n
        self.cache.append(k, v)
        for i in range(n):
            self.slots[self.n % self.size] = (self.n, k[:, i].tolist(), v[:, i].tolist())
            self.n += 1
        k[:] = v[:] = -1  # what the caller does with its own arrays afterwards is no matter

    @rule(n=st.integers(0, 20), from_end=st.booleans())
    def truncate(self, n, from_end):
        n = max(0, self.n - n) if from_end else n
        slots = self.before if n <= self.n_before else self.slots
        there = {position for position, *_ in slots.values()}
        if n > self.n:
            says = "only"
        elif there >= set(range(max(0, n - self.size + 1), n)):
            self.cache.truncate(n)
            self.slots, self.n = {s: row for s, row in slots.items() if row[0] < n}, n
            if n <= self.n_before:
                self.before, self.n_before = dict(self.slots), n
            return
        else:
            says = "were overwritten"
        with pytest.raises(ValueError, match=rf"cannot truncate to {n} tokens.*{says}"):
            self.cache.truncate(n)

    @rule()
    def reset(self):
        self.cache.reset()
        self.slots, self.before, self.n, self.n_before = {}, {}, 0, 0

    @rule(how=st.sampled_from([RingCache.copy, copy.copy, copy.deepcopy]))
    def copied(self, how):
        old, self.cache = self.cache, how(self.cache)
        old.append(*some_rows(9))

    @invariant()
    def it_is_the_dict(self):
        if not hasattr(self, "cache"):
            return
        rows = sorted(self.slots.values())
        keys, values = self.cache.keys(), self.cache.values()
        assert [keys[:, i].tolist() for i in range(len(rows))] == [row[1] for row in rows]
        assert [values[:, i].tolist() for i in range(len(rows))] == [row[2] for row in rows]
        assert keys.shape == values.shape == (HEADS, len(rows), DIM)
        assert (len(self.cache), self.cache.held) == (self.n, len(rows))
        assert self.cache.nbytes == 2 * HEADS * self.size * DIM * 4

        for_next = max(0, min(self.size - 1, self.n))
        assert [part.tolist() for part in self.cache.recent()] == [
            part[:, len(rows) - for_next :].tolist() for part in (keys, values)
        ]
        for part, lying in zip((keys, values), self.cache.slots(), strict=True):
            assert sorted(part.swapaxes(0, 1).tolist()) == sorted(lying.swapaxes(0, 1).tolist())


RingAgainstDict.TestCase.settings = settings(
    max_examples=150, stateful_step_count=15, deadline=None
)
TestRingAgainstDict = RingAgainstDict.TestCase


def test_position_p_lies_in_slot_p_modulo_the_window_as_a_locked_view():
    cache, rows = RingCache(HEADS, DIM, window=4), some_rows(6)
    cache.append(*rows)
    for rows_of, lying in zip(rows, cache.slots(), strict=True):
        np.testing.assert_array_equal(lying, rows_of[:, [4, 5, 2, 3]])
        with pytest.raises(ValueError, match="read-only"):
            lying[0, 0, 0] = 1
    assert np.shares_memory(cache.slots()[0], cache._keys)


def test_the_rows_may_be_its_own():
    cache = ring(3, 5)
    keys, values = cache.keys(), cache.values()
    cache.append(*reversed(cache.slots()))  # crossed over, which is harder
    np.testing.assert_array_equal(cache.keys(), np.roll(values, 5 % 3, axis=1))  # as they lay
    np.testing.assert_array_equal(cache.values(), np.roll(keys, 5 % 3, axis=1))


def test_no_new_tokens_change_nothing_not_even_after_a_truncate():
    cache = ring(4, 9)
    for n_tokens in (9, 8):
        cache.truncate(n_tokens)
        before = state(cache)
        cache.append(*some_rows(0))
        assert state(cache) == before


def test_bytes_stay_and_those_for_taking_back_are_counted_beside():
    row = 2 * HEADS * DIM * 4  # bytes of a token
    cache = ring(5)
    assert (cache.nbytes, cache.undo_nbytes) == (5 * row, 0)
    cache.append(*some_rows(5))
    assert (cache.nbytes, cache.undo_nbytes) == (5 * row, 0)  # nothing was there
    cache.append(*some_rows(1))
    assert (cache.nbytes, cache.undo_nbytes) == (5 * row, row)
    cache.append(*some_rows(30))
    assert (cache.nbytes, cache.undo_nbytes) == (5 * row, 5 * row)
    cache.truncate(6)
    assert (cache.nbytes, cache.undo_nbytes) == (5 * row, 0)


def test_a_copy_counts_the_rows_that_it_moved():
    assert ring(5, 3).copy().bytes_copied == 3 * 2 * HEADS * DIM * 4
    assert copy.copy(ring(5, 12)).bytes_copied == 5 * 2 * HEADS * DIM * 4
    assert ring(5, 12).bytes_copied == 0


class Interrupted(np.ndarray):
    """Storage whose next write does half of its work."""

    armed = True

    def __setitem__(self, key, rows):
        if self.armed:
            self.armed = False
            super().__setitem__((0, *key[1:]), rows[0])
            raise KeyboardInterrupt
        super().__setitem__(key, rows)


@pytest.mark.parametrize("n_new", [1, 3, 8])
@pytest.mark.parametrize("name", ["_keys", "_values"])
@pytest.mark.parametrize("n_seen", [0, 3, 4, 11])
def test_an_append_that_is_interrupted_leaves_the_rows_that_were_held(n_seen, name, n_new):
    cache = ring(4, n_seen)
    before = state(cache)
    setattr(cache, name, getattr(cache, name).view(Interrupted))
    with pytest.raises(KeyboardInterrupt):
        cache.append(*some_rows(n_new, seed=99))
    assert not getattr(cache, name).armed
    assert state(cache) == before


@pytest.mark.parametrize("name", ["_keys", "_values"])
@pytest.mark.parametrize("n_tokens", [11, 0])
def test_a_truncate_that_is_interrupted_is_done_all_the_same(name, n_tokens):
    cache, wanted = ring(4, 11), ring(4, n_tokens)
    cache.append(*some_rows(3, seed=99))
    setattr(cache, name, getattr(cache, name).view(Interrupted))
    with pytest.raises(KeyboardInterrupt):
        cache.truncate(n_tokens)
    assert not getattr(cache, name).armed
    assert state(cache) == state(wanted)


ok = some_rows(1)[0]
REFUSALS = {
    "list": (lambda c: c.append(ok.tolist(), ok), TypeError, "k must be a NumPy array"),
    "dtype": (lambda c: c.append(ok, ok.astype("f8")), TypeError, "v is float64"),
    "shape": (lambda c: c.append(ok[:1], ok[:1]), ValueError, r"takes \[2, n_new, 3\]"),
    "unequal": (lambda c: c.append(ok, some_rows(2)[1]), ValueError, "k has 1 tokens and v has 2"),
    "longer": (lambda c: c.truncate(10), ValueError, "to 10 tokens: only 9 seen"),
    "gone": (lambda c: c.truncate(6), ValueError, "look at 3 before it, and all before position 4"),
    "float": (lambda c: c.truncate(8.0), TypeError, "n_tokens must be an int"),
    "write": (lambda c: c.writable_views(), TypeError, "hands out no rows to write: truncate"),
    "negative": (lambda c: c.truncate(-1), ValueError, "n_tokens must be at least 0"),
    "no window": (lambda c: RingCache(1, 1, window=0), ValueError, "window must be at least 1"),
    "window": (lambda c: RingCache(1, 1, window=2.0), TypeError, "window must be an int"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_says_what_is_wrong_and_changes_nothing(name):
    act, error, says = REFUSALS[name]
    cache = ring(4, 8)
    cache.append(*some_rows(1))
    before = state(cache)
    with pytest.raises(error, match=says):
        act(cache)
    assert state(cache) == before
    cache.truncate(8)  # and the last append can still be taken back
    assert state(cache) == state(ring(4, 8))


def test_what_it_says_of_itself():
    text = "RingCache(n_kv_heads=2, head_dim=3, dtype=float32): 9 tokens seen, the last 4 held of 4"
    assert repr(ring(4, 9)) == text
    assert repr(pickle.loads(pickle.dumps(ring(4, 9)))) == text


# A decoder with windows

per_layer = st.lists(st.none() | st.integers(1, 9), min_size=1, max_size=3)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(seed=seeds, windows=per_layer, chunks=st.lists(st.integers(1, 14), min_size=1, max_size=7))
def test_any_split_into_chunks_gives_the_logits_of_no_cache(kind, seed, windows, chunks):
    model = small(windows, seed)
    tokens = some_tokens(min(sum(chunks), 48), seed)
    caches = model.new_caches(kind, **KINDS[kind])
    pieces = [model.forward(p, caches) for p in np.split(tokens, np.cumsum(chunks)[:-1]) if p.size]
    np.testing.assert_allclose(
        np.concatenate(pieces), model.forward(tokens), rtol=0, atol=TOLERANCE["float64"]
    )
    assert [len(cache) for cache in caches] == [len(tokens)] * len(windows)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("n_kv_heads", [6, 3, 1])
def test_windows_that_hold_everything_make_the_plain_decoder(dtype, n_kv_heads):
    sizes = {"dtype": dtype, "n_kv_heads": n_kv_heads}
    tokens = some_tokens(20)
    plain = Decoder(DecoderConfig(**(SIZES | sizes)), 7).forward(tokens)
    for windows in ([20, 20, 20], [None, 33, 20], [None] * 3):
        model = small(windows, 7, **sizes)
        logits = [model.forward(tokens), model.forward(tokens, model.new_caches())]
        assert [part.dtype for part in logits] == [dtype] * 2
        np.testing.assert_allclose(logits, [plain] * 2, rtol=0, atol=TOLERANCE[dtype])
    assert np.abs(small([20, 19, 20], 7, **sizes).forward(tokens)[-1] - plain[-1]).max() > 1e-3


def store_first(q, k, v, cache):
    """The classic mistake: the chunk's last rows take the place of rows its first look at."""
    cache.append(k, v)
    n_new = q.shape[1]
    keys, values = cache.keys(), cache.values()
    missing = max(0, n_new - cache.held)  # so that the band can be laid over them at all
    pad = ((0, 0), (missing, 0), (0, 0))
    return window_attention(q, np.pad(keys, pad), np.pad(values, pad), cache.window)


@pytest.mark.parametrize("n_new", [2, 5, 9])
def test_a_chunk_stored_before_it_is_read_is_wrong_in_all_but_its_last_rows(n_new, monkeypatch):
    model, tokens = small([5]), some_tokens(20 + n_new)
    right = model.forward(tokens)[20:]
    caches = model.new_caches()
    model.forward(tokens[:20], caches)
    monkeypatch.setattr(window, "attend_chunk", store_first)
    wrong = np.abs(model.forward(tokens[20:], caches) - right).max(axis=1)
    assert wrong[-1] < 1e-12
    assert (wrong[:-1] > 1e-3).all()


@pytest.mark.parametrize("n_new", [1, 3, 12])
@pytest.mark.parametrize("n_seen", [0, 2, 9])
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_pass_that_fails_midway_leaves_every_cache_as_it_was(n_seen, layer, n_new, monkeypatch):
    model, tokens = small([4, None, 6]), some_tokens(40)
    caches = model.new_caches()
    if n_seen:
        model.forward(tokens[:n_seen], caches)
    before = [(len(c), c.keys().tobytes(), c.values().tobytes()) for c in caches]

    def no_memory(x, at, real=model.transform):
        if at == layer:
            raise MemoryError
        return real(x, at)

    monkeypatch.setattr(model, "transform", no_memory)
    with pytest.raises(MemoryError):
        model.forward(tokens[n_seen : n_seen + n_new], caches)
    monkeypatch.undo()
    assert [(len(c), c.keys().tobytes(), c.values().tobytes()) for c in caches] == before
    rest = model.forward(tokens[n_seen:], caches)
    np.testing.assert_allclose(rest, model.forward(tokens)[n_seen:], rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_tokens", [1, 4, 7, 40])
def test_bytes_are_those_that_the_shape_of_the_cache_says(n_tokens):
    windows = (4, None, 7)
    model = small(windows, dtype="float32")
    caches = model.new_caches()
    model.forward(some_tokens(n_tokens), caches)
    said = CacheShape(3, 2, model.config.head_dim, "float32", windows)
    rows = sum(cache.keys().nbytes + cache.values().nbytes for cache in caches)
    assert said.bytes_at(n_tokens) == rows
    if n_tokens >= 7:  # the rings are full
        assert sum(cache.nbytes for cache in caches) == rows


def test_generation_goes_on_far_past_the_windows_and_takes_no_more_memory():
    model, prompt = small([3, 5, 4]), [7, 8, 9, 10, 11, 12]
    caches = model.new_caches()
    nbytes = [cache.nbytes for cache in caches]
    assert model.generate(prompt, 40, caches) == model.generate(prompt, 40)
    assert [cache.nbytes for cache in caches] == nbytes
    assert nbytes == [2 * 2 * size * 4 * 8 for size in (3, 5, 4)]  # k and v, heads, .., bytes


@pytest.mark.parametrize(
    ("act", "error", "says"),
    [
        (lambda: small([4, 4], n_layers=3), ValueError, "give 3 windows, one a layer, not 2"),
        (lambda: small([4, 0]), ValueError, "window must be at least 1"),
        (lambda: small([4, "8"]), TypeError, "window must be an int"),
        (
            lambda: small([4, None]).forward([1], small([None, 4]).new_caches()),
            ValueError,
            "layer 0, whose window is 4, cannot use ConcatCache",
        ),
        (
            lambda: small([4, None]).forward([1], small([4, 4]).new_caches()),
            ValueError,
            "layer 1, whose window is None, cannot use RingCache.*new_caches",
        ),
        (
            lambda: small([4]).forward([1], small([5]).new_caches()),
            ValueError,
            "layer 0, whose window is 4",
        ),
        (lambda: receptive_field([4, 0]), ValueError, "window must be at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(act, error, says):
    with pytest.raises(error, match=says):
        act()


# How far a token is felt


@settings(max_examples=25, deadline=None)
@given(seed=seeds, windows=per_layer, position=st.integers(0, 12))
def test_a_change_is_felt_as_far_as_the_windows_add_up_and_no_further(seed, windows, position):
    model, tokens = small(windows, seed), some_tokens(40, seed)
    other = (tokens[position] + 1) % SIZES["vocab_size"]
    table = felt(model, tokens, position, other)
    assert table.shape == (len(windows) + 1, 40)
    for depth, row in enumerate(table):
        field = receptive_field(windows[:depth])
        end = 40 if field is None else min(40, position + field)
        assert (row[:position] == 0).all()
        assert (row[position:end] > 1e-12).all()
        assert (row[end:] == 0).all()


def test_logits_depend_on_the_whole_field_and_on_nothing_before_it():
    model, tokens = small([4, 4, 4]), some_tokens(30)
    assert receptive_field(model.windows) == 10
    last = model.forward(tokens)[-1]
    moved = []
    for i in range(30):
        other = tokens.copy()
        other[i] = (other[i] + 1) % SIZES["vocab_size"]
        moved.append(np.abs(model.forward(other)[-1] - last).max())
    assert min(moved[20:]) > 1e-6
    assert max(moved[:20]) == 0


def test_what_is_felt_is_what_the_logits_are_read_from():
    model, tokens = small([4, None]), some_tokens(12)
    depths = list(window._depths(model, tokens))
    np.testing.assert_array_equal(depths[0], model.embed(tokens, 0))
    np.testing.assert_array_equal(model.read_out(depths[-1]), model.forward(tokens))


def test_a_layer_without_a_window_reaches_everything():
    assert receptive_field([4, None, 4]) is None
    assert receptive_field([]) == receptive_field([1, 1]) == 1
    assert receptive_field([4096] * 32) == 131_041  # 32 x 4096 = 131,072, less one a layer, and 1
