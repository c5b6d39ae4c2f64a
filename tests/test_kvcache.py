"""The caches against a plain Python list of rows, and against a separate count of their costs."""

import copy
import gc
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from labsupport.kvcache import ConcatCache, DoublingCache, PreallocatedCache

HEADS, DIM, MOST = 2, 3, 12
KINDS = (ConcatCache, DoublingCache, PreallocatedCache)
each_kind = pytest.mark.parametrize("kind", KINDS)


def make(kind, most=MOST, dtype=np.float32, heads=HEADS, dim=DIM):
    room = {"capacity": most} if kind is PreallocatedCache else {"max_tokens": most}
    return kind(heads, dim, dtype, **room)


def some_rows(n, seed=0, dtype=np.float32, heads=HEADS, dim=DIM):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(2, heads, n, dim)).astype(dtype)  # [k or v, n_kv_heads, n, head_dim]


def filled(kind, n, **shape):
    cache = make(kind, **shape)
    cache.append(*some_rows(n, dtype=cache.dtype, heads=cache.n_kv_heads, dim=cache.head_dim))
    return cache


def state(cache):
    """All that an operation which is refused must leave alone."""
    counts = (len(cache), cache.capacity, cache.nbytes, cache.bytes_copied, cache.n_allocations)
    return counts, cache.keys().tobytes(), cache.values().tobytes()


# Every refusal: what is done to a cache of 5 tokens with room for 12, the error, what it says.
ok = some_rows(1)[0]
REFUSALS = {
    "list": (lambda c: c.append(ok.tolist(), ok), TypeError, r"k must be a NumPy array, not list"),
    "none": (lambda c: c.append(ok, None), TypeError, r"v must be .* not NoneType; convert with"),
    "wider": (lambda c: c.append(ok.astype("f8"), ok), TypeError, r"k is float64, .* float32"),
    "narrower": (lambda c: c.append(ok, ok.astype("f2")), TypeError, r"v\.astype\('float32'\)"),
    "int": (lambda c: c.append(ok, ok.astype("i4")), TypeError, r"v is int32"),
    "swapped": (lambda c: c.append(ok.astype(">f4"), ok), TypeError, r"k is >f4"),
    "2-d": (lambda c: c.append(ok[:, 0], ok), ValueError, r"k has shape \[2, 3\].*n_new is 1 for"),
    "4-d": (lambda c: c.append(ok, ok[None]), ValueError, r"v has shape \[1, 2, 1, 3\]"),
    "heads": (lambda c: c.append(ok[:1], ok[:1]), ValueError, r"takes \[2, n_new, 3\]"),
    "dim": (lambda c: c.append(ok, ok[..., :2]), ValueError, r"v has shape \[2, 1, 2\]"),
    "order": (lambda c: c.append(*some_rows(4).transpose(0, 2, 1, 3)), ValueError, r"transpose or"),
    "unequal": (lambda c: c.append(ok, some_rows(2)[1]), ValueError, r"k has 1 tokens and v has 2"),
    "too many": (lambda c: c.append(*some_rows(8)), ValueError, r"8 more .* 5 of at most 12"),
    "no room": (lambda c: c.check_room(8), ValueError, r"truncate\(\) or reset\(\)"),
    "masked": (lambda c: c.append(ok, np.ma.masked_array(ok)), TypeError, r"v is masked"),
    "room -1": (lambda c: c.check_room(-1), ValueError, r"n_new must be at least 0, not -1"),
    "room 0.5": (lambda c: c.check_room(0.5), TypeError, r"n_new must be an int, not 0.5"),
    "room True": (lambda c: c.check_room(True), TypeError, r"n_new must be an int, not True"),
    "negative": (lambda c: c.truncate(-1), ValueError, r"n_tokens must be at least 0, not -1"),
    "longer": (lambda c: c.truncate(6), ValueError, r"cannot truncate to 6 tokens: only 5"),
    "bool": (lambda c: c.truncate(True), TypeError, r"must be an int, not True \(bool\)"),
    "np.bool": (lambda c: c.truncate(np.True_), TypeError, r"must be an int"),
    "float": (lambda c: c.truncate(3.0), TypeError, r"must be an int, not 3.0 \(float\)"),
    "no length": (lambda c: c.truncate(None), TypeError, r"must be an int, not None"),
}


@each_kind
@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_says_what_is_wrong_and_changes_nothing(kind, name):
    act, error, says = REFUSALS[name]
    cache = filled(kind, 5)
    before = state(cache)
    with pytest.raises(error, match=says):
        act(cache)
    assert state(cache) == before


@pytest.mark.parametrize(
    ("build", "error", "says"),
    [
        (lambda: ConcatCache(0, 3), ValueError, "n_kv_heads must be at least 1, not 0"),
        (lambda: ConcatCache(2, 2.0), TypeError, "head_dim must be an int"),
        (lambda: DoublingCache(2, 3, max_tokens=0), ValueError, "max_tokens must be at least 1"),
        (lambda: DoublingCache(2, 3, max_tokens=True), TypeError, "max_tokens must be an int"),
        (lambda: DoublingCache(2, 3, object), TypeError, "dtype must be a float or integer type"),
        (lambda: DoublingCache(2, 3, None), TypeError, "float or integer type, not None"),
        (lambda: PreallocatedCache(2, 3, capacity=10**18), ValueError, r"0, 3\]: .* less capacity"),
        (lambda: PreallocatedCache(2, 3, capacity=10**20), ValueError, r"0, 3\]: .* less capacity"),
        (lambda: PreallocatedCache(2, 3, capacity=-4), ValueError, "capacity must be at least 1"),
        (lambda: PreallocatedCache(2, 3), TypeError, "capacity"),
    ],
)
def test_a_cache_that_cannot_be_is_refused(build, error, says):
    with pytest.raises(error, match=says):
        build()


class Modelled:
    """A cache beside the plain list that says what it holds and the plain sums of what it cost."""

    def __init__(self, cache, rows, capacity, allocations, moved):
        self.cache, self.rows, self.capacity = cache, rows, capacity
        self.allocations, self.moved = allocations, moved  # moved: in rows, one of k and one of v

    def append(self, rows):
        n = len(self.rows) + len(rows)
        if type(self.cache) is ConcatCache and rows:
            self.move(n)
        elif n > self.capacity:
            self.move(min(MOST, max(n, 2 * self.capacity)))
        self.rows += rows

    def move(self, capacity):
        self.capacity = capacity
        self.allocations += 2
        self.moved += len(self.rows)


class CacheAgainstList(RuleBasedStateMachine):
    kind = None  # set by the subclasses below

    @initialize(dtype=st.sampled_from([np.float16, np.float32, np.float64]))
    def start(self, dtype):
        capacity = MOST if self.kind is PreallocatedCache else 0
        self.dtype = np.dtype(dtype)
        self.pairs = [Modelled(make(self.kind, dtype=dtype), [], capacity, 2, 0)]

    def pick(self, data):
        return self.pairs[data.draw(st.integers(0, len(self.pairs) - 1), label="which cache")]

    @rule(data=st.data(), n=st.integers(0, 6), seed=st.integers(0, 2**32 - 1))
    def append(self, data, n, seed):
        p = self.pick(data)
        k, v = some_rows(n, seed, self.dtype)
        if len(p.rows) + n > MOST:
            with pytest.raises(ValueError, match="do not fit"):
                p.cache.append(k, v)
            return
        p.cache.append(k, v)
        p.append([(k[:, i].tolist(), v[:, i].tolist()) for i in range(n)])
        k[:] = v[:] = -1  # what the caller does with its own arrays afterwards is no matter

    @rule(data=st.data(), kept=st.integers(0, MOST))
    def truncate(self, data, kept):
        p = self.pick(data)
        if kept > len(p.rows):
            with pytest.raises(ValueError, match="cannot truncate"):
                p.cache.truncate(kept)
            return
        shorter = kept < len(p.rows)
        p.cache.truncate(kept)
        del p.rows[kept:]
        if self.kind is ConcatCache and shorter:
            p.move(kept)

    @rule(data=st.data())
    def reset(self, data):
        p = self.pick(data)
        p.cache.reset()
        had_rows = bool(p.rows)
        p.rows.clear()
        if self.kind is ConcatCache and had_rows:
            p.move(0)

    @precondition(lambda self: len(self.pairs) < 4)
    @rule(data=st.data(), how=st.sampled_from(["copy", "copy.copy"]))
    def copy(self, data, how):
        p = self.pick(data)
        twin = p.cache.copy() if how == "copy" else copy.copy(p.cache)
        self.pairs.append(Modelled(twin, list(p.rows), p.capacity, 2, len(p.rows)))

    @rule(data=st.data())
    def append_its_own_rows(self, data):
        p = self.pick(data)
        if 2 * len(p.rows) <= MOST:
            p.cache.append(p.cache.values(), p.cache.keys())  # crossed over, which is harder
            p.append([(v, k) for k, v in p.rows])

    @rule(data=st.data(), name=st.sampled_from(sorted(REFUSALS)))
    def refused(self, data, name):
        act, error, _ = REFUSALS[name]
        p = self.pick(data)
        if name in ("too many", "no room", "longer", "bool") or self.dtype != np.float32:
            return  # an error only at another length or dtype
        with pytest.raises(error):
            act(p.cache)

    @invariant()
    def every_cache_is_its_list(self):
        row_bytes = HEADS * DIM * self.dtype.itemsize
        for p in getattr(self, "pairs", ()):
            cache, n = p.cache, len(p.rows)
            keys, values = cache.keys(), cache.values()
            assert keys.shape == values.shape == (HEADS, n, DIM)
            assert keys.dtype == values.dtype == self.dtype
            assert [(keys[:, i].tolist(), values[:, i].tolist()) for i in range(n)] == p.rows
            assert len(cache) == n
            assert cache.capacity == p.capacity
            assert cache.nbytes == 2 * p.capacity * row_bytes
            assert cache.n_allocations == p.allocations
            assert cache.bytes_copied == 2 * p.moved * row_bytes


for _kind in KINDS:
    _machine = type(f"{_kind.__name__}AgainstList", (CacheAgainstList,), {"kind": _kind})
    _machine.TestCase.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
    globals()[f"Test{_kind.__name__}AgainstList"] = _machine.TestCase
del _machine


@each_kind
def test_views_cannot_be_written_nor_made_writable(kind):
    cache = filled(kind, 4)
    for view in (cache.keys(), cache.values()):
        with pytest.raises(ValueError, match="read-only"):
            view[0, 0, 0] = 1
        for array in (view, view.base):
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.flags.writeable = True


@each_kind
def test_views_are_of_the_storage_and_not_copies(kind):
    cache = filled(kind, 4)
    k, v = cache.writable_views()
    assert k.shape == v.shape == (HEADS, 4, DIM)
    assert np.shares_memory(k, cache.keys())
    assert np.shares_memory(v, cache.values())
    k[1, 2, 0], v[0, 3, 1] = 7, 8
    assert cache.keys()[1, 2, 0] == 7
    assert cache.values()[0, 3, 1] == 8


@each_kind
@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_any_copy_is_independent(kind, how):
    cache = filled(kind, 4)
    twin = how(cache)
    before = state(twin)
    for view in cache.writable_views():
        view[:] = 99
    cache.append(*some_rows(3, seed=5))
    assert state(twin) == before

    twin.append(*some_rows(1, seed=6))  # its views show its own storage
    np.testing.assert_array_equal(twin.keys()[:, 4:], some_rows(1, seed=6)[0])
    np.testing.assert_array_equal(cache.keys()[:, 4:], some_rows(3, seed=5)[0])


@each_kind
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 40])
def test_cost_of_filling_token_by_token_is_the_textbook_formula(kind, n):
    cache = make(kind, most=40)
    for k, v in (some_rows(1, seed) for seed in range(n)):
        cache.append(k, v)

    growths = 1 + (n - 1).bit_length()  # capacities 1, 2, 4, ... up to the first that holds n
    rows_moved, n_allocations = {
        ConcatCache: (n * (n - 1) // 2, 2 + 2 * n),
        DoublingCache: (2 ** (growths - 1) - 1, 2 + 2 * growths),
        PreallocatedCache: (0, 2),
    }[kind]
    assert cache.bytes_copied == rows_moved * 2 * HEADS * DIM * 4
    assert cache.n_allocations == n_allocations


def test_appending_to_a_preallocated_cache_allocates_nothing():
    cache = make(PreallocatedCache, most=400, dim=512)
    k, v = some_rows(1, dim=512)
    cache.append(k, v)
    tracemalloc.start()
    for _ in range(300):
        cache.append(k, v)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert max(held, peak) < k.nbytes  # not even one row


@each_kind
@pytest.mark.parametrize("shorten", ["truncate", "reset", "copy", "nothing"])
def test_memory_held_is_what_nbytes_says(kind, shorten):
    gc.collect()
    tracemalloc.start()
    cache = filled(kind, 600, most=1000, dim=128)  # about 1 MB
    if shorten == "truncate":
        cache.truncate(10)
    elif shorten == "reset":
        cache.reset()
    elif shorten == "copy":
        cache.truncate(10)
        cache = cache.copy()
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert abs(held - cache.nbytes) < 20_000
    tokens = {ConcatCache: len(cache), DoublingCache: 600, PreallocatedCache: 1000}[kind]
    assert cache.nbytes == 2 * tokens * HEADS * 128 * 4


@pytest.mark.parametrize("kind", [ConcatCache, DoublingCache])
def test_growth_that_memory_cannot_hold_changes_nothing(kind):
    cache = kind(HEADS, DIM)
    cache.append(*some_rows(5))
    before = state(cache)
    vast = np.broadcast_to(np.float32(0), (HEADS, 10**15, DIM))  # an array of one number
    with pytest.raises(MemoryError):
        cache.append(vast, vast)
    assert state(cache) == before


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize(
    ("kind", "act"),
    [
        (ConcatCache, lambda c: c.append(ok, ok)),
        (DoublingCache, lambda c: c.append(ok, ok)),
        (PreallocatedCache, lambda c: c.copy()),
    ],
)
def test_an_allocation_that_fails_midway_changes_nothing(kind, act, nth, monkeypatch):
    cache = filled(kind, 5)
    before = state(cache)
    calls = []

    def empty(*args, real=np.empty):
        calls.append(args)
        if len(calls) == nth:
            raise MemoryError
        return real(*args)

    monkeypatch.setattr("labsupport.kvcache.np.empty", empty)
    with pytest.raises(MemoryError):
        act(cache)
    monkeypatch.undo()
    assert len(calls) == nth
    assert state(cache) == before


@pytest.mark.parametrize("nth", [1, 2])
def test_a_truncate_without_memory_for_less_keeps_the_storage_it_has(nth, monkeypatch):
    cache = filled(ConcatCache, 5)
    (_, held, *rest), keys, values = state(cache)
    more, calls = some_rows(1, seed=1), []

    def empty(*args, real=np.empty):
        calls.append(args)
        if len(calls) >= nth:
            raise MemoryError
        return real(*args)

    monkeypatch.setattr("labsupport.kvcache.np.empty", empty)
    cache.truncate(3)
    cache.append(*more)  # there is room
    monkeypatch.undo()
    assert len(calls) == nth
    assert len(cache) == 4
    assert state(cache)[0] == (4, held, *rest)
    now_held = cache.keys(), cache.values()
    for now, before, new in zip(now_held, (keys, values), more, strict=True):
        rows = np.frombuffer(before, "f4").reshape(HEADS, 5, DIM)
        np.testing.assert_array_equal(now, np.concatenate([rows[:, :3], new], axis=1))

    cache.truncate(1)  # memory is back
    assert (cache.capacity, cache.nbytes) == (1, 2 * HEADS * DIM * 4)


def test_the_two_ways_round_the_lock_are_those_the_docstring_names():
    cache = filled(PreallocatedCache, 2)
    np.asarray(cache.keys().base.base.obj)[0, 0, 0] = 7
    assert cache.keys()[0, 0, 0] == 7
    for way in ("torch.from_numpy", "`.base`"):
        assert way in type(cache).keys.__doc__


@each_kind
def test_a_cache_without_a_limit_grows_past_any_and_says_its_shape(kind):
    cache = kind(HEADS, DIM, capacity=50) if kind is PreallocatedCache else kind(HEADS, DIM)
    cache.append(*some_rows(50))
    assert len(cache) == cache.check_room(0) == 50
    assert f"{kind.__name__}(n_kv_heads=2, head_dim=3, dtype=float32): 50 tokens" in repr(cache)
    assert cache.max_tokens == (50 if kind is PreallocatedCache else None)
