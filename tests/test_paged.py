"""Blocks of one pool against plain lists of tokens: nothing leaks, nothing free is ever read."""

import copy
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from labsupport.blockpool import BlockPool, PoolFullError
from labsupport.decoder import Decoder, DecoderConfig, attention
from labsupport.kvcache import DoublingCache
from labsupport.paged import FreedCacheError, PagedCache, attend_blocks
from labsupport.prefix import PrefixStore

HEADS, DIM = 2, 3


class PoisonedPool(BlockPool):
    """Every row of a free block is NaN, from the start and again each time the block is freed."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.keys[:] = self.values[:] = np.nan

    def release(self, blocks):
        super().release(blocks)
        for block in blocks:
            if not self.n_tables[block]:
                self.keys[block] = self.values[block] = np.nan


def new_pool(n_blocks=8, block_size=4, dtype=np.float32):
    return PoisonedPool(n_blocks, block_size, HEADS, DIM, dtype)


def new_cache(pool):
    return PagedCache(pool.n_kv_heads, pool.head_dim, pool.dtype, pool=pool)


def rows_of(tokens, dtype=np.float32):
    """Keys and values that tell their token, head, place and kind: [2, n_kv_heads, n, head_dim]."""
    names = np.arange(2 * HEADS * DIM).reshape(2, HEADS, 1, DIM) / 100
    return (np.array(tokens, float)[:, None] + names).astype(dtype)


def filled(pool, n, first=1):
    cache = new_cache(pool)
    cache.append(*rows_of(range(first, first + n)))
    return cache


def holds(cache, tokens):
    """The rows are exactly those of these tokens, by either way of reading."""
    k, v = rows_of(tokens, cache.dtype)
    parts = list(cache.blocks())
    both = [np.concatenate(side, axis=1) for side in zip(*parts, strict=True)] if parts else [k, v]
    for got in ((cache.keys(), cache.values()), both):
        np.testing.assert_array_equal(got[0], k)
        np.testing.assert_array_equal(got[1], v)
    return True


def accounts(pool, caches):
    """What must hold between a pool and all tables on it."""
    held = Counter(block for cache in caches for block in cache.block_table)
    assert pool.n_tables == [held[block] for block in range(pool.n_blocks)]
    assert sorted([*pool._free, *held]) == list(range(pool.n_blocks))
    assert pool.n_free + pool.n_used == pool.n_blocks
    for cache in caches:
        assert len(cache.block_table) == pool.blocks_for(len(cache))
    return True


# Against a model: lists of tokens, and counts made anew from the tables


class PoolAgainstLists(RuleBasedStateMachine):
    """Many sequences on one pool. A sequence is a cache and the list of tokens it must hold."""

    @initialize(n_blocks=st.integers(1, 9), block_size=st.sampled_from([1, 2, 3, 4, 16]))
    def start(self, n_blocks, block_size):
        self.pool = new_pool(n_blocks, block_size)
        self.sequences, self.freed, self.n_tokens = [], [], 0

    def pick(self, data):
        return data.draw(st.sampled_from(self.sequences), label="which sequence")

    @precondition(lambda self: len(self.sequences) < 6)
    @rule()
    def begin(self):
        self.sequences.append((new_cache(self.pool), []))

    @precondition(lambda self: self.sequences)
    @rule(data=st.data(), n=st.integers(0, 9))
    def append(self, data, n):
        cache, tokens = self.pick(data)
        fresh = list(range(self.n_tokens + 1, self.n_tokens + n + 1))  # never a token twice
        table, size = cache.block_table, self.pool.block_size
        needs = -(-(len(tokens) + n) // size) - len(table)
        others = [b for c, _ in self.sequences if c is not cache for b in c.block_table]
        needs += n > 0 and len(tokens) % size > 0 and table[-1] in others
        before = (table, list(self.pool.n_tables), list(self.pool._free))
        if needs > self.pool.n_free:
            for attempt in (lambda: cache.append(*rows_of(fresh)), lambda: cache.check_room(n)):
                with pytest.raises(PoolFullError, match=f"^{needs} more blocks of {size} tokens"):
                    attempt()
            assert (cache.block_table, self.pool.n_tables, self.pool._free) == before
        else:
            assert cache.check_room(n) == len(tokens) + n
            cache.append(*rows_of(fresh))
            tokens += fresh
            self.n_tokens += n

    @precondition(lambda self: self.sequences and len(self.sequences) < 6)
    @rule(data=st.data(), how=st.sampled_from([PagedCache.fork, copy.copy, copy.deepcopy]))
    def fork(self, data, how):
        cache, tokens = self.pick(data)
        used = self.pool.n_used
        self.sequences.append((how(cache), list(tokens)))
        assert self.pool.n_used == used  # nothing is copied before someone writes

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def truncate(self, data):
        cache, tokens = self.pick(data)
        n = data.draw(st.integers(0, len(tokens)))
        cache.truncate(n)
        del tokens[n:]

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def free(self, data):
        cache, _ = self.sequences.pop(data.draw(st.integers(0, len(self.sequences) - 1)))
        cache.free()
        self.freed.append(cache)

    @invariant()
    def contents_are_the_model_s_and_the_books_balance(self):
        assert accounts(self.pool, [cache for cache, _ in self.sequences])
        for cache, tokens in self.sequences:
            assert len(cache) == len(tokens)
            assert holds(cache, tokens)

    @invariant()
    def what_was_freed_cannot_be_used(self):
        for cache in self.freed:
            with pytest.raises(FreedCacheError):
                cache.keys()

    def teardown(self):
        for cache, _ in getattr(self, "sequences", []):
            cache.free()
        if hasattr(self, "pool"):
            assert self.pool.n_free == self.pool.n_blocks


TestPoolAgainstLists = PoolAgainstLists.TestCase
TestPoolAgainstLists.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


# By hand


def test_blocks_are_taken_when_needed_and_given_back():
    pool = new_pool()
    cache = filled(pool, 4)
    assert (cache.block_table, cache.capacity, pool.n_used) == ((0,), 4, 1)
    cache.append(*rows_of([5]))
    assert (cache.block_table, cache.capacity, len(cache)) == ((0, 1), 8, 5)
    cache.truncate(4)
    assert (cache.block_table, pool.n_used) == ((0,), 1)
    other = filled(pool, 5, first=11)
    cache.append(*rows_of([6, 7, 8, 9, 10]))
    assert cache.block_table == (0, 3, 4)
    assert holds(cache, [1, 2, 3, 4, 6, 7, 8, 9, 10])
    assert holds(other, range(11, 16))
    cache.reset()
    assert (cache.block_table, len(cache), pool.n_used) == ((), 0, 2)


def test_a_fork_shares_until_it_writes_and_the_last_owner_writes_in_place():
    pool = new_pool()
    first = filled(pool, 6)
    second = first.fork()
    assert second.block_table == first.block_table == (0, 1)
    assert pool.n_tables[:3] == [2, 2, 0]

    second.append(*rows_of([100]))
    assert (first.block_table, second.block_table) == ((0, 1), (0, 2))
    assert pool.n_tables[:3] == [2, 1, 1]
    first.append(*rows_of([200]))
    assert first.block_table == (0, 1)  # no other holds block 1 any more
    assert holds(first, [1, 2, 3, 4, 5, 6, 200])
    assert holds(second, [1, 2, 3, 4, 5, 6, 100])


def test_a_full_last_block_is_shared_for_good():
    pool = new_pool()
    first = filled(pool, 4)
    second = first.fork()
    second.append(*rows_of([100]))
    first.append(*rows_of([200]))
    assert (first.block_table, second.block_table) == ((0, 2), (0, 1))


def test_the_copy_before_a_write_takes_no_row_that_is_not_the_sequence_s_own():
    pool = new_pool()
    longer = filled(pool, 8)
    shorter = longer.fork()
    shorter.truncate(6)  # in block 1 the rows of tokens 7 and 8 are now only the other's
    shorter.append(*rows_of([100]))
    (own,) = set(shorter.block_table) - set(longer.block_table)
    assert not np.isnan(pool.keys[own, :, :3]).any()
    assert np.isnan(pool.keys[own, :, 3:]).all()
    assert np.isnan(pool.values[own, :, 3:]).all()
    assert holds(longer, range(1, 9))


def test_a_freed_block_holds_another_s_rows_and_the_old_table_cannot_reach_them():
    pool = new_pool(n_blocks=1)
    old = filled(pool, 4)
    old.free()
    new = filled(pool, 4, first=50)
    assert new.block_table == (0,)
    uses = {
        "keys": old.keys,
        "values": old.values,
        "blocks": lambda: next(old.blocks()),
        "append": lambda: old.append(*rows_of([1])),
        "check_room": lambda: old.check_room(0),
        "truncate": lambda: old.truncate(0),
        "reset": old.reset,
        "fork": old.fork,
        "free": old.free,
        "table": lambda: old.block_table,
        "capacity": lambda: old.capacity,
        "len": lambda: len(old),
        "attend": lambda: attend_blocks(np.zeros((HEADS, 1, DIM), np.float32), old),
    }
    for use in uses.values():
        with pytest.raises(FreedCacheError, match=r"was freed .* make a new one, or fork\(\)"):
            use()
    assert holds(new, range(50, 54))
    assert accounts(pool, [new])
    assert "freed" in repr(old)


def test_a_cache_that_is_dropped_gives_its_blocks_back():
    pool = new_pool()
    caches = [filled(pool, 5)]
    caches.append(caches[0].fork())
    del caches[0]
    assert pool.n_used == 2
    del caches[0]
    assert pool.n_used == 0


@pytest.mark.parametrize(
    ("misuse", "says"),
    [
        (lambda p: p.release([5]), "block 5 is held by 0 tables"),
        (lambda p: p.release([0, 1, 0]), "block 0 is held by 1 tables .* released 2 times"),
        (lambda p: p.share([0, 5]), "block 5 is free and cannot be shared"),
        (lambda p: p.share([0, -8]), "there is no block -8 of 8"),
        (lambda p: p.release([0, -7]), "there is no block -7 of 8"),
        (lambda p: p.release([8]), "there is no block 8 of 8"),
    ],
)
def test_a_pool_refuses_what_would_break_its_books(misuse, says):
    pool = new_pool()
    cache = filled(pool, 8)
    with pytest.raises(ValueError, match=says):
        misuse(pool)
    assert accounts(pool, [cache])


def test_a_pool_that_is_full_says_so_and_nothing_has_changed():
    pool = new_pool(n_blocks=3)
    first = filled(pool, 6)
    second = first.fork()
    third = filled(pool, 4, first=11)
    says = r"^1 more blocks of 4 tokens are needed and 0 of 3 are free; free\(\) or truncate\(\)"
    with pytest.raises(PoolFullError, match=says):
        second.append(*rows_of([100]))  # there is a free slot, but the copy needs a block
    assert accounts(pool, [first, second, third])
    assert holds(second, range(1, 7))
    third.free()
    second.append(*rows_of([100]))
    assert holds(second, [1, 2, 3, 4, 5, 6, 100])
    assert holds(first, range(1, 7))


REFUSALS = {
    "list": (lambda c, k: c.append(k.tolist(), k), TypeError, "k must be a NumPy array"),
    "dtype": (lambda c, k: c.append(k, k.astype("f8")), TypeError, "v is float64"),
    "shape": (lambda c, k: c.append(k[:1], k), ValueError, r"k has shape \[1, 1, 3\]"),
    "unequal": (lambda c, k: c.append(k, k[:, :0]), ValueError, "k has 1 tokens and v has 0"),
    "room": (lambda c, k: c.check_room(1.0), TypeError, "n_new must be an int"),
    "negative": (lambda c, k: c.check_room(-1), ValueError, "n_new must be at least 0"),
    "longer": (lambda c, k: c.truncate(7), ValueError, "to 7 tokens: only 6 held"),
    "float": (lambda c, k: c.truncate(1.0), TypeError, "n_tokens must be an int"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_bad_rows_and_lengths_are_refused_and_nothing_changes(name):
    act, error, says = REFUSALS[name]
    pool = new_pool()
    cache = filled(pool, 6)
    twin = cache.fork()
    with pytest.raises(error, match=says):
        act(cache, rows_of([7])[0])
    assert accounts(pool, [cache, twin])
    assert holds(cache, range(1, 7))


@pytest.mark.parametrize(
    ("build", "error", "says"),
    [
        (lambda: BlockPool(0, 4, 1, 1), ValueError, "n_blocks must be at least 1"),
        (lambda: BlockPool(4, 2.0, 1, 1), TypeError, "block_size must be an int"),
        (lambda: BlockPool(4, 4, 0, 1), ValueError, "n_kv_heads must be at least 1"),
        (lambda: BlockPool(4, 4, 1, 1, object), TypeError, "dtype must be a float"),
        (lambda: PagedCache(2, 3, np.float64, pool=new_pool()), ValueError, "make a pool of that"),
        (lambda: PagedCache(1, 3, pool=new_pool()), ValueError, "cannot lie in BlockPool"),
    ],
)
def test_a_pool_or_cache_that_cannot_be_is_refused(build, error, says):
    with pytest.raises(error, match=says):
        build()


@pytest.mark.parametrize("n_held", [4, 6])
def test_a_write_that_is_broken_off_gives_its_blocks_back(n_held, monkeypatch):
    pool = new_pool()
    cache = filled(pool, n_held)
    twin = cache.fork()

    def broken_off(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("labsupport.paged.np.divmod", broken_off)
    with pytest.raises(KeyboardInterrupt):
        cache.append(*rows_of([7, 8, 9]))
    monkeypatch.undo()
    assert accounts(pool, [cache, twin])
    assert holds(cache, range(1, n_held + 1))


def test_its_own_rows_can_be_appended():
    pool = new_pool()
    cache = filled(pool, 3)
    (block,) = cache.blocks()
    cache.append(*block)
    assert holds(cache, [1, 2, 3, 1, 2, 3])


def test_what_is_handed_out_cannot_change_the_pool():
    pool = new_pool()
    cache = filled(pool, 6)
    cache.keys()[:] = 0
    for part in cache.blocks():
        for view in part:
            with pytest.raises(ValueError, match="read-only"):
                view[:] = 0
    assert holds(cache, range(1, 7))


def test_blocks_that_are_given_away_while_they_are_read_are_not_read():
    pool = new_pool(n_blocks=2)
    cache = filled(pool, 8)
    parts = cache.blocks()
    next(parts)
    cache.truncate(4)
    other = filled(pool, 4, first=50)
    with pytest.raises(RuntimeError, match="changed while its blocks were read; read them anew"):
        next(parts)
    parts = other.blocks()
    other.append(*rows_of([]))  # nothing: no block changes hands
    other.free()
    with pytest.raises(FreedCacheError):
        next(parts)


def test_the_bytes_of_a_pool_are_those_of_its_arrays():
    pool = BlockPool(8, 4, HEADS, DIM, np.float16)
    assert pool.nbytes == 2 * 8 * 4 * HEADS * DIM * 2
    assert "0 of 8 blocks of 4" in repr(pool)


# Attention over blocks


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_tokens=st.integers(1, 40),
    block_size=st.sampled_from([1, 3, 16, 64]),
    shared=st.sampled_from([1, 3]),
    scale=st.sampled_from([1, 60, 5000]),  # with 5000, exp of a score would overflow
    data=st.data(),
)
def test_attention_over_blocks_is_attention(seed, n_tokens, block_size, shared, scale, data):
    n_new = data.draw(st.integers(1, n_tokens))
    rng = np.random.default_rng(seed)
    pool = new_pool(90, block_size, np.float64)
    other, cache = new_cache(pool), new_cache(pool)
    k, v = rng.normal(size=(2, HEADS, n_tokens, DIM)) * scale
    for i in range(n_tokens):  # the two take blocks in turns, so that no table is in order
        other.append(k[:, i : i + 1], v[:, i : i + 1])
        cache.append(k[:, i : i + 1], v[:, i : i + 1])
    q = rng.normal(size=(HEADS * shared, n_new, DIM))
    np.testing.assert_allclose(
        attend_blocks(q, cache), attention(q, k, v), rtol=1e-12, atol=1e-12 * scale
    )


@pytest.mark.parametrize("n_new", [0, 7])
def test_queries_without_tokens_are_refused(n_new):
    with pytest.raises(ValueError, match=f"{n_new} queries for 6 tokens"):
        attend_blocks(np.zeros((HEADS, n_new, DIM), np.float32), filled(new_pool(), 6))


# In the model


@pytest.fixture(scope="module")
def model():
    sizes = {"vocab_size": 50, "n_positions": 64, "d_model": 24, "n_layers": 3, "n_heads": 4}
    return Decoder(DecoderConfig(**sizes, n_kv_heads=2, dtype=np.float64), seed=0)


def pool_for(model, n_blocks, block_size=4):
    return PoisonedPool(n_blocks, block_size, model.config.n_kv_heads, 6, model.config.dtype)


def test_the_model_computes_the_same_from_blocks(model):
    pool = pool_for(model, 60)
    tokens = np.random.default_rng(3).integers(0, 50, 30)
    paged, plain = model.new_caches(PagedCache, pool=pool), model.new_caches(DoublingCache)
    for part in (tokens[:7], tokens[7:8], tokens[8:23], tokens[23:]):
        np.testing.assert_allclose(
            model.forward(part, paged), model.forward(part, plain), rtol=1e-12, atol=1e-12
        )
    assert model.generate([1, 2], 9, paged) == model.generate([1, 2], 9, plain)


def test_samples_of_one_prompt_share_its_blocks_and_never_see_each_other(model):
    pool = pool_for(model, 60)
    prompt = list(range(10))
    first = model.new_caches(PagedCache, pool=pool)
    model.forward(prompt, first)
    assert pool.n_used == 3 * 3
    samples = [first, *([cache.fork() for cache in first] for _ in range(3))]
    assert pool.n_used == 3 * 3
    for step in range(6):  # in turns, each with tokens of its own
        for i, caches in enumerate(samples):
            got = model.forward([20 + 5 * i + step % 5], caches)
            so_far = [*prompt, *(20 + 5 * i + s % 5 for s in range(step + 1))]
            np.testing.assert_allclose(got[-1], model.forward(so_far)[-1], rtol=1e-10, atol=1e-10)
    assert pool.n_used == 3 * (2 + 4 * 2)  # two full blocks of the prompt once, the rest four times


@pytest.mark.parametrize("n_blocks", range(7, 12))
def test_a_pool_that_fills_midway_through_the_layers_takes_nothing(model, n_blocks):
    pool = pool_for(model, n_blocks)
    caches = model.new_caches(PagedCache, pool=pool)
    model.forward(list(range(6)), caches)  # two blocks a layer
    kept = [cache.keys() for cache in caches]
    with pytest.raises(PoolFullError):
        model.forward(list(range(10)), caches)  # two more a layer
    assert [len(cache) for cache in caches] == [6, 6, 6]
    assert pool.n_used == 6
    for cache, before in zip(caches, kept, strict=True):
        np.testing.assert_array_equal(cache.keys(), before)
    assert accounts(pool, caches)


def test_kept_prefixes_are_shared_and_not_copied(model):
    pool, store = pool_for(model, 60), PrefixStore()
    prefix, rest = tuple(range(8)), [30, 31, 32]
    caches = model.new_caches(PagedCache, pool=pool)
    model.forward(prefix, caches)
    store.keep("all", "m", prefix, caches)
    assert pool.n_used == 3 * 2
    for _ in range(4):
        mine = [cache.copy() for cache in store.find("all", "m", prefix)]
        got = model.forward(rest, mine)
        np.testing.assert_allclose(got, model.forward([*prefix, *rest])[8:], rtol=1e-10, atol=1e-10)
        assert pool.n_used == 3 * (2 + 1)
    with pytest.raises(LookupError):
        store.find("all", "m", (*prefix[:-1], 9))
    del mine
    assert pool.n_used == 3 * 2
