"""The cache in codes against lists of rows that are quantized apart, and what it holds after."""

import copy
import gc
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from labsupport.decoder import Decoder, DecoderConfig
from labsupport.int8cache import Int8Cache
from labsupport.quantize import LARGEST, quantize

HEADS, DIM, MOST, GROUP = 2, 3, 20, 4
LAYOUTS = [(k, v) for k in ("token", "channel") for v in ("token", "channel")]
each_layout = pytest.mark.parametrize(("keys", "values"), LAYOUTS)


def make(keys="channel", values="token", dtype=np.float32, group=GROUP, bits=8, most=MOST):
    return Int8Cache(
        HEADS, DIM, dtype, capacity=most, keys=keys, values=values, group=group, bits=bits
    )


def some_rows(n, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(2, HEADS, n, DIM)).astype(dtype)  # [k or v, n_kv_heads, n, head_dim]


def coded(numbers, bits):
    """A list of numbers that share a scale, as their codes give them back."""
    levels = 2 ** (bits - 1) - 1
    scale = np.float32(max(map(abs, numbers)) / levels) or np.float32(1)
    return [float(scale) * round(number / float(scale)) for number in numbers]


class Side:
    """The keys or values of one head as lists: rows that came, rows of codes, what is exact."""

    def __init__(self, layout, bits):
        self.layout, self.bits, self.n = layout, bits, 0
        self.came, self.codes, self.exact = [], {}, set()

    def read(self):
        if self.layout == "token":
            return [coded(row, self.bits) for row in self.came[: self.n]]
        group, first = self.n // GROUP, self.n // GROUP * GROUP
        rows = [row for g in range(group) for row in self.codes[g]]
        if self.exact.issuperset(range(first, self.n)):
            return rows + self.came[first : self.n]
        return rows + self.codes[group][: self.n - first]

    def append(self, new):
        before, first = self.n, self.n // GROUP * GROUP
        if self.layout == "token":
            self.came[before:] = new
        else:
            self.came[first:] = self.read()[first:] + new  # rows in codes came as codes give them
        self.n += len(new)
        self.exact = set(range(self.n // GROUP * GROUP, self.n))
        for g in range(first // GROUP, self.n // GROUP):
            channels = zip(*self.came[g * GROUP : (g + 1) * GROUP], strict=True)
            self.codes[g] = list(zip(*(coded(c, self.bits) for c in channels), strict=True))
            self.exact |= set(range(first, before))  # so that this append can be taken back


class CacheAgainstLists(RuleBasedStateMachine):
    """In float64, in which no code hangs on how a sum was rounded."""

    @initialize(layouts=st.sampled_from(LAYOUTS), bits=st.integers(2, 8))
    def start(self, layouts, bits):
        self.cache = make(*layouts, np.float64, bits=bits)
        self.sides = [[Side(layout, bits) for _ in range(HEADS)] for layout in layouts]

    @rule(n=st.integers(0, 9), seed=st.integers(0, 2**32 - 1))
    def append(self, n, seed):
        k, v = some_rows(n, seed, np.float64)
        if len(self.cache) + n > MOST:
            with pytest.raises(ValueError, match="do not fit"):
                self.cache.append(k, v)
            return
        self.cache.append(k, v)
        for side, rows in zip(self.sides, (k, v), strict=True):
            for head, own in zip(side, rows.tolist(), strict=True):
                head.append(own)
        k[:] = v[:] = 99  # what the caller does with its arrays is no matter

    @rule(seed=st.integers(0, 2**32 - 1))
    def append_a_nan(self, seed):
        if len(self.cache) < MOST:
            rows = some_rows(1, seed, np.float64)
            rows[seed % 2, 1, 0, 2] = np.nan
            with pytest.raises(ValueError, match=f"{'kv'[seed % 2]} holds numbers that are NaN"):
                self.cache.append(*rows)

    @rule(data=st.data())
    def truncate(self, data):
        n = data.draw(st.integers(0, len(self.cache)))
        self.cache.truncate(n)
        for side in self.sides:
            for head in side:
                head.n = n

    @rule(how=st.sampled_from([lambda c: c.copy(), copy.copy, copy.deepcopy]))
    def go_on_with_a_copy(self, how):
        old, self.cache = self.cache, how(self.cache)
        old.reset()
        old.append(*some_rows(GROUP, 1, np.float64))  # what becomes of the original is no matter

    @invariant()
    def it_reads_as_the_lists_do(self):
        if not hasattr(self, "cache"):
            return
        n = self.sides[0][0].n
        assert len(self.cache) == n
        for side, rows in zip(self.sides, (self.cache.keys(), self.cache.values()), strict=True):
            wanted = np.array([head.read() for head in side]).reshape(HEADS, n, DIM)
            assert (rows.shape, rows.dtype) == (wanted.shape, np.float64)
            np.testing.assert_allclose(rows, wanted, rtol=1e-6, atol=1e-12)


CacheAgainstLists.TestCase.settings = settings(
    max_examples=100, stateful_step_count=25, deadline=None
)
TestCacheAgainstLists = CacheAgainstLists.TestCase


def state(cache):
    """What an operation that is refused must leave alone."""
    return len(cache), cache.nbytes, cache.keys().tobytes(), cache.values().tobytes()


@each_layout
def test_a_number_is_off_by_half_its_scale_at_most_and_the_unfinished_group_by_nothing(
    keys, values
):
    cache, rows = make(keys, values), some_rows(GROUP * 3 + 2)
    cache.append(*rows)
    for layout, came, read in zip(
        (keys, values), rows, (cache.keys(), cache.values()), strict=True
    ):
        assert read.dtype == np.float32
        full = came if layout == "token" else came[:, : GROUP * 3]
        axis = 2
        if layout == "channel":
            np.testing.assert_array_equal(read[:, GROUP * 3 :], came[:, GROUP * 3 :])
            full = full.reshape(HEADS, 3, GROUP, DIM)
        scales = np.abs(full).max(axis=axis, keepdims=True) / 127
        off = np.abs(
            read[:, : len(full[0]) if axis == 2 and layout == "token" else GROUP * 3].reshape(
                full.shape
            )
            - full
        )
        assert (off <= scales * (0.5 + 1e-5)).all()
        assert off.any()


@pytest.mark.parametrize("n_new", [1, 2, 7])
@pytest.mark.parametrize("held", [3, 5, 6])
def test_an_append_that_is_taken_back_leaves_every_bit(held, n_new):
    cache = make("channel", "channel")
    cache.append(*some_rows(held))
    before = state(cache)[2:]
    cache.append(*some_rows(n_new, 1))
    cache.truncate(held)
    assert state(cache)[2:] == before


class Trouble(Exception):
    pass


@pytest.mark.parametrize("n_new", [1, 6])
@each_layout
def test_a_pass_that_fails_leaves_the_caches_as_they_were(keys, values, n_new, monkeypatch):
    config = DecoderConfig(vocab_size=9, n_positions=20, d_model=12, n_layers=2, n_heads=4)
    model = Decoder(config, seed=0)
    options = {"keys": keys, "values": values, "group": GROUP}
    caches = model.new_caches(Int8Cache, capacity=20, **options)
    model.forward(np.arange(7), caches)  # the next token fills a group
    before = [state(cache)[2:] for cache in caches]
    twins = [cache.copy() for cache in caches]

    def fails(x):
        raise Trouble

    monkeypatch.setattr(model, "read_out", fails)
    with pytest.raises(Trouble):
        model.forward(np.arange(n_new), caches)
    monkeypatch.undo()
    assert [state(cache)[2:] for cache in caches] == before
    tokens = np.arange(8)  # and it goes on as if nothing had been
    np.testing.assert_array_equal(model.forward(tokens, caches), model.forward(tokens, twins))


class Interrupting(np.ndarray):
    """Ctrl-C comes when something was written here."""

    def __setitem__(self, at, new):
        super().__setitem__(at, new)
        raise KeyboardInterrupt


@each_layout
@pytest.mark.parametrize("side", ["_keys", "_values"])
@pytest.mark.parametrize("array", ["codes", "scales"])
@pytest.mark.parametrize("kept", [6, 7])  # of a group whose codes are read, and of one as it came
def test_an_interrupted_append_changes_nothing(keys, values, side, array, kept):
    cache = make(keys, values)
    cache.append(*some_rows(5))
    cache.append(*some_rows(2 if kept == 7 else 7, 1))
    cache.truncate(kept)
    before = state(cache)[2:]
    target = getattr(cache, side)
    plain = getattr(target, array)
    setattr(target, array, plain.view(Interrupting))
    with pytest.raises(KeyboardInterrupt):
        cache.append(*some_rows(5, 2))
    setattr(target, array, plain)
    assert state(cache)[2:] == before


@each_layout
@pytest.mark.parametrize("nth", [1, 2])
def test_an_append_that_memory_cannot_hold_changes_nothing(keys, values, nth, monkeypatch):
    cache, calls = make(keys, values), []
    cache.append(*some_rows(6))
    before = state(cache)[2:]

    def fails(*args, **options):
        calls.append(args)
        if len(calls) == nth:
            raise MemoryError
        return quantize(*args, **options)

    monkeypatch.setattr("labsupport.int8cache.quantize", fails)
    with pytest.raises(MemoryError):
        cache.append(*some_rows(5, 1))
    monkeypatch.undo()
    assert state(cache)[2:] == before


def test_codes_and_scales_are_allocated_once_and_move_only_into_a_copy():
    cache = make()
    for i in range(9):
        cache.append(*some_rows(1, i))
    assert (cache.n_allocations, cache.bytes_copied) == (4, 0)
    parts, twin = cache.parts_bytes(), cache.copy()
    assert (twin.n_allocations, twin.bytes_copied) == (4, parts["codes"] + parts["scales"])


ok = some_rows(1)[0]
LARGE = np.full_like(ok, 2 * LARGEST)
REFUSALS = {
    "list": (lambda c: c.append(ok.tolist(), ok), TypeError, "k must be a NumPy array, not list"),
    "dtype": (lambda c: c.append(ok.astype("f8"), ok), TypeError, "k is float64"),
    "shape": (lambda c: c.append(ok, ok[:1]), ValueError, r"v has shape \[1, 1, 3\]"),
    "unequal": (lambda c: c.append(ok, some_rows(2)[1]), ValueError, "k has 1 tokens and v has 2"),
    "too many": (lambda c: c.append(*some_rows(15)), ValueError, "15 more .* 6 of at most 20"),
    "large k": (lambda c: c.append(LARGE, ok), ValueError, "k holds numbers that are NaN"),
    "large v": (lambda c: c.append(ok, -LARGE), ValueError, "v holds numbers that are NaN"),
    "longer": (lambda c: c.truncate(7), ValueError, "cannot truncate to 7 tokens: only 6"),
    "views": (lambda c: c.writable_views(), TypeError, "holds codes, not rows"),
}


@each_layout
@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_says_what_is_wrong_and_changes_nothing(keys, values, name):
    act, error, says = REFUSALS[name]
    cache = make(keys, values)
    cache.append(*some_rows(6))
    before = state(cache)
    with pytest.raises(error, match=says), np.errstate(over="ignore"):
        act(cache)
    assert state(cache) == before


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"keys": "head"}, ValueError, r"keys must be one of \('token', 'channel'\), not 'head'"),
        ({"values": None}, ValueError, "values must be one of"),
        ({"group": 0}, ValueError, "group must be at least 1"),
        ({"bits": 9}, ValueError, "bits must be 2 to 8"),
        ({"dtype": np.float16}, TypeError, "dtype must be float32 or float64"),
        ({"dtype": None}, TypeError, "dtype must be float32 or float64"),
        ({"most": 0}, ValueError, "capacity must be at least 1"),
    ],
)
def test_a_cache_that_cannot_be_is_refused(options, error, says):
    with pytest.raises(error, match=says):
        make(**options)


@each_layout
def test_the_bytes_counted_by_hand(keys, values):
    cache = make(keys, values)
    cache.append(*some_rows(6))  # a group of 4 and 2 tokens that wait
    a_scale = {"token": MOST * 4, "channel": MOST // GROUP * DIM * 4}
    waiting = {"token": 0, "channel": 2 * DIM * 4}
    wanted = {
        "codes": 2 * HEADS * MOST * DIM,
        "scales": HEADS * (a_scale[keys] + a_scale[values]),
        "exact": HEADS * (waiting[keys] + waiting[values]),
    }
    assert cache.parts_bytes() == wanted
    assert cache.nbytes == sum(wanted.values())


def test_with_groups_of_head_dim_tokens_both_layouts_have_as_many_bytes_of_scales():
    caches = [
        Int8Cache(2, 8, capacity=64, keys=layout, values=layout) for layout in ("token", "channel")
    ]
    a, b = (cache.parts_bytes()["scales"] for cache in caches)
    assert a == b == 2 * 2 * 64 * 8 // 8 * 4


def test_rows_that_wait_never_pass_one_group_when_tokens_come_singly():
    cache, most = make("channel", "token"), 0
    for i in range(MOST):
        cache.append(*some_rows(1, i))
        most = max(most, cache.parts_bytes()["exact"])
    assert most == HEADS * (GROUP - 1) * DIM * 4


@each_layout
@pytest.mark.parametrize("appends", [[(0, 500)], [(0, 490), (449, 70)], [(0, 100), (90, 390)]])
def test_memory_held_is_what_nbytes_says(keys, values, appends):
    """Each append is (tokens kept before it, tokens that are new)."""

    def made():
        cache = Int8Cache(2, 64, capacity=1000, keys=keys, values=values)
        for kept, n_new in appends:
            cache.truncate(kept)
            cache.append(*np.ones((2, 2, n_new, 64), np.float32))
        return cache

    made()  # what is made once, at the first use, is not the cache's
    gc.collect()
    tracemalloc.start()
    cache = made()
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert abs(held - cache.nbytes) < 10_000


def test_an_independent_copy_and_a_pickle():
    cache = make("channel", "token")
    cache.append(*some_rows(6))
    for twin in (cache.copy(), copy.copy(cache), pickle.loads(pickle.dumps(cache))):
        before = state(twin)
        assert before[2:] == state(cache)[2:]
        cache.append(*some_rows(3, 5))
        cache.truncate(1)
        cache.append(*some_rows(5, 6))
        assert state(twin) == before
        cache.truncate(0)
        cache.append(*some_rows(6))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_decoder_takes_it_and_is_near_what_it_was(dtype):
    config = DecoderConfig(50, 40, d_model=32, n_layers=2, n_heads=4, n_kv_heads=2, dtype=dtype)
    model, tokens = Decoder(config, seed=1), np.random.default_rng(1).integers(0, 50, 40)
    wanted, off = model.forward(tokens), []
    for bits in (8, 4):
        caches = model.new_caches(Int8Cache, capacity=40, bits=bits)
        logits = np.concatenate([model.forward([token], caches) for token in tokens])
        assert logits.dtype == dtype
        off.append(np.abs(logits - wanted).max())
    assert 1e-5 < off[0] < 0.1 * off[1]
