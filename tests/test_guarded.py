"""The guard in both directions: damage passes a plain cache in silence, never a guarded one."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from test_kvcache import DIM, HEADS, MOST, REFUSALS, some_rows, state

from labsupport.decoder import Decoder, DecoderConfig
from labsupport.guarded import (
    DamagedCacheError,
    GuardedCache,
    StaleWriteError,
    overlapping_write,
)
from labsupport.kvcache import PreallocatedCache


def filled(n=8, kind=GuardedCache, dtype=np.float32):
    cache = kind(HEADS, DIM, dtype, capacity=MOST)
    cache.append(*some_rows(n, dtype=dtype))
    return cache


def damage(cache):
    """The positions found damaged, as (keys, values)."""
    try:
        cache.verify()
    except DamagedCacheError as error:
        return error.keys, error.values
    return [], []


def next_request(kind, late_write):
    """The logits of a second request on caches that a first one used, and those it should get."""
    model = Decoder(DecoderConfig(61, 32, 24, 2, 6, 2), seed=0)
    caches = model.new_caches(kind, capacity=32)

    model.forward([11, 12, 13, 14, 15, 16], caches)  # the first request, whose writer
    kept = caches[1].writable_views()  # keeps its views,
    late = [view[:, 3:5].copy() for view in kept]  # has two rows yet to write,
    for cache in caches:
        cache.reset()  # and ends

    prompt = [21, 22, 23, 24, 25, 26]
    model.forward(prompt, caches)
    if late_write:
        overlapping_write(kept, 2, *late)
    try:
        return model.forward([27], caches)[-1], model.forward([*prompt, 27])[-1]
    except DamagedCacheError:
        assert [len(cache) for cache in caches] == [6, 6]  # the refused pass took its token back
        raise


def test_a_plain_cache_inherits_the_late_write_in_silence():
    got, right = next_request(PreallocatedCache, late_write=True)
    assert np.isfinite(got).all()
    assert np.abs(got - right).max() > 1e-2


def test_a_guarded_cache_answers_the_late_write_with_an_error():
    says = "the keys of tokens 2, 3 changed after .*truncate\\(2\\) keeps the tokens before"
    with pytest.raises(DamagedCacheError, match=says):
        next_request(GuardedCache, late_write=True)


@pytest.mark.parametrize("kind", [PreallocatedCache, GuardedCache])
def test_without_a_late_write_both_are_right(kind):
    got, right = next_request(kind, late_write=False)
    np.testing.assert_allclose(got, right, rtol=0, atol=2e-5)


bits = st.integers(0, 31).map(lambda bit: 1 << bit)


@settings(max_examples=200, deadline=None)
@given(
    data=st.data(),
    dtype=st.sampled_from(["f2", "f4", "f8"]),
    n=st.integers(1, MOST),
    mask=bits | st.integers(1, 2**32 - 1),
)
def test_any_flipped_bit_or_change_of_four_bytes_is_found_where_it_is(data, dtype, n, mask):
    cache = filled(n, dtype=dtype)
    side, head, token = (data.draw(st.integers(0, most)) for most in (1, HEADS - 1, n - 1))
    row = cache.writable_views()[side][head, token].view(np.uint8)
    first = data.draw(st.integers(0, len(row) - 4))
    four_bytes = np.frombuffer(mask.to_bytes(4, "little"), np.uint8)

    row[first : first + 4] ^= four_bytes
    assert damage(cache) == (([token], []) if side == 0 else ([], [token]))
    row[first : first + 4] ^= four_bytes
    assert damage(cache) == ([], [])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_of_many_damaged_rows_every_one_is_named_and_no_other(data):
    cache = filled(10)
    expected = []
    for view in cache.writable_views():
        at = data.draw(st.sets(st.integers(0, 9)))
        for token in at:
            view[data.draw(st.integers(0, HEADS - 1)), token] += 1
        expected.append(sorted(at))
    cache.append(*some_rows(2, seed=9))  # rows after the damage are sound
    assert damage(cache) == tuple(expected)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("read", [("keys", "values"), ("verify", "verify")])
def test_each_read_verifies_what_it_gives(side, read):
    cache = filled()
    cache.writable_views()[side][1, 5, 2] += 1
    says = f"the {('keys', 'values')[side]} of token 5 changed"
    with pytest.raises(DamagedCacheError, match=says):
        getattr(cache, read[side])()


def test_rows_that_changed_places_are_found_though_each_is_intact():
    cache = filled()
    keys, _ = cache.writable_views()
    keys[:, [2, 6]] = keys[:, [6, 2]]
    assert damage(cache) == ([2, 6], [])


def test_a_long_list_of_damage_is_cut_short_and_survives_pickling():
    cache = filled(12)
    for view in cache.writable_views():
        view[:] = 0
    says = "keys of tokens 0, 1, 2, 3, 4, 5, 6, 7 and 4 more and the values of .* 4 more changed"
    with pytest.raises(DamagedCacheError, match=says) as caught:
        cache.verify()
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_truncating_before_the_damage_repairs_and_copying_does_not():
    cache = filled()
    cache.writable_views()[0][0, 4] = 0
    twin = cache.copy()
    assert damage(twin) == damage(cache) == ([4], [])

    cache.truncate(4)
    cache.append(*some_rows(3, seed=2))
    assert damage(cache) == ([], [])
    assert damage(twin) == ([4], [])


@pytest.mark.parametrize("end", [lambda c: c.reset(), lambda c: c.truncate(7)])
def test_a_stale_writer_is_refused_and_nothing_changes(end):
    cache = filled()
    k, v = some_rows(1, seed=3)
    began = cache.generation
    cache.append(k, v, generation=began)  # an append is no reason to refuse the next
    cache.append(k, v, generation=began)
    end(cache)

    before = state(cache)
    with pytest.raises(
        StaleWriteError, match=rf"began in generation {began}, .* now in {cache.generation}:"
    ):
        cache.append(k, v, generation=began)
    assert state(cache) == before
    cache.append(k, v, generation=cache.generation)
    cache.append(k, v)  # who claims nothing is not checked
    assert damage(cache) == ([], [])


def test_a_writer_of_the_original_is_stale_for_the_copy():
    cache = filled()
    with pytest.raises(StaleWriteError):
        cache.copy().append(*some_rows(1), generation=cache.generation)


def test_forgetting_nothing_keeps_the_generation_but_a_reset_never_does():
    cache = filled(3)
    began = cache.generation
    cache.truncate(3)
    assert cache.generation == began
    for _ in range(2):
        before = cache.generation
        cache.reset()
        assert cache.generation > before


ways_to_copy = pytest.mark.parametrize(
    "how", [copy.copy, copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))]
)


@ways_to_copy
def test_a_cache_and_its_copy_never_come_to_the_same_generation(how):
    cache = filled()
    seen = [cache.generation]
    twin = how(cache)
    seen.append(twin.generation)
    for one in (cache, twin, filled(), cache, twin):
        one.reset()
        seen.append(one.generation)
    assert len(set(seen)) == len(seen)


@ways_to_copy
def test_damage_in_the_original_stays_damage_in_the_copy(how):
    cache = filled()
    cache.writable_views()[0][0, 4] = 0
    assert damage(how(cache)) == ([4], [])


def test_of_the_sums_themselves_the_last_is_checked_and_an_earlier_one_once_it_is_the_last():
    cache = filled()
    cache._sums[0, 1, 8] ^= 1
    assert damage(cache) == ([7], [])
    cache._sums[0, 1, 8] ^= 1

    cache._sums[0, 1, 5] ^= 1
    assert damage(cache) == ([], [])
    cache.writable_views()[0][0, 0].view("u4")[:] ^= 1  # brings every row's own sum to be compared
    assert damage(cache) == ([0, 4, 5], [])
    cache.writable_views()[0][0, 0].view("u4")[:] ^= 1
    cache.truncate(5)
    assert damage(cache) == ([4], [])
    cache.append(*some_rows(1, seed=3))
    assert damage(cache)[0] != []


@pytest.mark.parametrize("position", [-1, 7, 8])
def test_an_overlapping_write_that_would_miss_is_refused(position):
    cache = filled()
    with pytest.raises(ValueError, match="views of 8 tokens cannot be written"):
        overlapping_write(cache.writable_views(), position, *some_rows(2))
    assert damage(cache) == ([], [])


@pytest.mark.parametrize("name", REFUSALS)
def test_what_a_plain_cache_refuses_the_guarded_one_refuses(name):
    act, error, says = REFUSALS[name]
    cache = filled(5)
    before = state(cache), cache.generation
    with pytest.raises(error, match=says):
        act(cache)
    assert (state(cache), cache.generation) == before


def test_a_failed_copy_into_storage_leaves_rows_and_sums_as_they_were(monkeypatch):
    cache = filled(5)
    before = state(cache)

    def no_memory(self, k, v):
        raise MemoryError

    monkeypatch.setattr(PreallocatedCache, "append", no_memory)
    with pytest.raises(MemoryError):
        cache.append(*some_rows(2))
    monkeypatch.undo()
    assert state(cache) == before
    cache.append(*some_rows(2, seed=4))
    assert damage(cache) == ([], [])


def test_the_sums_are_counted_as_memory_held():
    plain, guarded = filled(kind=PreallocatedCache), filled()
    assert guarded.nbytes - plain.nbytes == 2 * HEADS * (MOST + 1) * 4
    assert repr(guarded) == repr(plain).replace("Preallocated", "Guarded")


class GuardedAgainstPlain(RuleBasedStateMachine):
    """Without damage the guarded cache is the plain one, whatever is done to both."""

    def __init__(self):
        super().__init__()
        self.plain, self.guarded = (
            kind(HEADS, DIM, capacity=MOST) for kind in (PreallocatedCache, GuardedCache)
        )

    @precondition(lambda self: len(self.plain) < MOST)
    @rule(data=st.data(), seed=st.integers(0, 2**32 - 1), strided=st.booleans())
    def append(self, data, seed, strided):
        n = data.draw(st.integers(0, MOST - len(self.plain)))
        k, v = some_rows(n, seed)
        if strided:
            k, v = (np.repeat(rows, 2, axis=2)[..., ::2] for rows in (k, v))
        self.plain.append(k, v)
        self.guarded.append(k, v, generation=self.guarded.generation)

    @precondition(lambda self: 2 * len(self.plain) <= MOST)
    @rule()
    def append_its_own_rows(self):
        self.plain.append(self.plain.values(), self.plain.keys())
        self.guarded.append(self.guarded.values(), self.guarded.keys())

    @rule(data=st.data())
    def truncate(self, data):
        n = data.draw(st.integers(0, len(self.plain)))
        self.plain.truncate(n)
        self.guarded.truncate(n)

    @rule()
    def reset(self):
        self.plain.reset()
        self.guarded.reset()

    @rule(how=st.sampled_from([GuardedCache.copy, copy.copy, copy.deepcopy]))
    def go_on_with_a_copy(self, how):
        original = self.guarded
        self.plain, self.guarded = self.plain.copy(), how(original)
        for view in original.writable_views():
            view[:] = 0

    @invariant()
    def they_agree(self):
        self.guarded.verify()
        assert len(self.guarded) == len(self.plain)
        assert self.guarded.capacity == self.plain.capacity
        assert np.array_equal(self.guarded.keys(), self.plain.keys())
        assert np.array_equal(self.guarded.values(), self.plain.values())
        assert not self.guarded.keys().flags.writeable


TestGuardedAgainstPlain = GuardedAgainstPlain.TestCase
TestGuardedAgainstPlain.settings = settings(max_examples=80, deadline=None)
