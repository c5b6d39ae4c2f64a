"""The simulated server against counts by hand, bitmaps, closed forms, real caches, the paper."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labsupport import mixes, reservation
from labsupport.admission import N_SLOTS, Paged, Sequence, memory, serve
from labsupport.blockpool import BlockPool
from labsupport.contiguous import Buddy, FirstFit
from labsupport.paged import PagedCache

KINDS = ["tokens", "reserved", "internal", "external"]
SHAREGPT, ALPACA = ({mix: mixes.MEANS[mix]} for mix in ("ShareGPT", "Alpaca"))
lists_of_lengths = st.lists(
    st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=12
).map(np.array)


# Pieces of an address space, against a bitmap of it


def runs_of(free):
    """Where the runs of free slots are: [(start, length)]."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], free, [0]])))
    return [(a, b - a) for a, b in edges.reshape(-1, 2).tolist()]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([FirstFit, Buddy]), st.integers(1, 70), st.data())
def test_pieces_are_found_where_a_bitmap_says_they_are(kind, n_slots, data):
    space, free, pieces = kind(n_slots), np.ones(n_slots, int), {}
    for _ in range(data.draw(st.integers(1, 25))):
        if pieces and data.draw(st.booleans()):
            start = data.draw(st.sampled_from(sorted(pieces)))
            space.release(start)
            free[start : start + pieces.pop(start)] = 1
        else:
            n = data.draw(st.integers(1, n_slots))
            if kind is FirstFit:
                size, fits = n, [start for start, run in runs_of(free) if run >= n]
            else:
                size = next(2**i for i in range(9) if 2**i >= n)
                fits = [i for i in range(0, n_slots - size + 1, size) if free[i : i + size].all()]
            start = space.take(n)
            assert (start is None) == (not fits)
            if start is not None:
                assert start == fits[0] if kind is FirstFit else start in fits
                assert free[start : start + size].all()  # no two pieces overlap
                free[start : start + size] = 0
                pieces[start] = size
        assert space.n_free == free.sum()
    for start in pieces:
        space.release(start)
    assert space.gaps == kind(n_slots).gaps


def test_what_is_not_taken_cannot_be_given_back():
    for space in (FirstFit(8), Buddy(8)):
        space.take(3)
        with pytest.raises(KeyError):
            space.release(1)
        with pytest.raises(ValueError, match="n_slots must be at least 1"):
            type(space)(0)


# Lengths


@pytest.mark.parametrize("spread", [0, 0.5, 1, 1.5])
@pytest.mark.parametrize("mix", mixes.MEANS)
def test_requests_have_the_means_asked_for_and_fit_the_model(mix, spread):
    means = mixes.MEANS[mix]
    lengths = mixes.requests(*means, 4000, spread=spread)
    assert lengths.mean(axis=0) == pytest.approx(means, rel=0.03, abs=0.5)
    assert lengths.min() >= 1
    assert lengths[:, 0].max() <= 1024
    assert lengths.sum(axis=1).max() <= 2048
    logs = np.log(lengths[lengths.sum(axis=1) < 1000])
    assert logs.std(axis=0).max() <= spread * 1.05 + 0.02
    if mix == "Alpaca" and spread < 1:  # hardly any is cut
        assert logs[:, 1].std() == pytest.approx(spread, rel=0.05, abs=0.02)
        assert spread == 0 or abs(np.corrcoef(lengths.T)[0, 1]) < 0.05


def test_requests_are_those_of_their_seed():
    first, again, other = (mixes.requests(20, 50, 30, seed=seed) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize("means", [(1100, 50), (0.5, 50), (100, 2000)])
def test_means_that_no_lengths_can_have_are_refused(means):
    with pytest.raises(ValueError, match="no lengths from 1 to"):
        mixes.requests(*means, 100)


@given(lists_of_lengths, st.integers(1, 17))
def test_means_over_time_are_those_of_a_count_step_by_step(lengths, size):
    steps = [(p + j, p + o) for p, o in lengths.tolist() for j in range(1, o + 1)]
    held, final = np.array(steps).T
    assert mixes.mean_held(lengths) == pytest.approx(held.mean())
    assert mixes.mean_final(lengths) == pytest.approx(final.mean())
    assert mixes.mean_unfilled(lengths, size) == pytest.approx((-held % size).mean())


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32"])
def test_means_over_time_do_not_hang_on_how_wide_the_lengths_are_stored(dtype):
    lengths = np.array([(200, 255), (100, 255)])
    for mean in (mixes.mean_held, mixes.mean_final, lambda x: mixes.mean_unfilled(x, 16)):
        assert mean(lengths.astype(dtype)) == mean(lengths)


def test_half_a_block_is_right_for_long_sequences_and_wrong_for_short_ones():
    long, short = (mixes.requests(*mixes.MEANS[mix], 3000) for mix in ("ShareGPT", "Alpaca"))
    for size in (8, 16, 32):
        assert mixes.mean_unfilled(long, size) == pytest.approx((size - 1) / 2, rel=0.01)
    assert mixes.mean_unfilled(short, 128) > 1.1 * 127 / 2
    same = np.full((5, 2), (16, 4))  # four steps, all at the start of a block
    assert mixes.mean_unfilled(same, 16) == (15 + 14 + 13 + 12) / 4
    assert mixes.share_unfilled(100, 1) == 0
    assert mixes.share_unfilled(92.5, 16) == 0.075


# The server, by hand


def steps(lengths, policy, n_slots, **options):
    rows = serve(np.array(lengths), memory(policy, n_slots, **options))
    return rows[[*KINDS, "n_running", "n_waiting"]].values.tolist()


def test_reserving_the_most_by_hand():
    # two requests, one piece of 6 slots at a time in a memory of 10
    assert steps([(2, 2), (1, 1)], "max", 10, max_tokens=6) == [
        [3, 1, 2, 4, 1, 1],
        [4, 0, 2, 4, 1, 1],
        [2, 0, 4, 4, 1, 0],
    ]


def test_reserving_powers_of_two_and_the_exact_length_by_hand():
    lengths = [(2, 3), (1, 1)]
    assert steps(lengths, "pow2", 10) == [
        [3 + 2, 2, 1, 2, 2, 0],
        [4, 1, 1, 4, 1, 0],
        [5, 0, 1, 4, 1, 0],
    ]
    assert steps(lengths, "exact", 10)[0] == [5, 2, 0, 3, 2, 0]
    assert steps([(2, 3)], "pow2", 10, max_tokens=5)[0] == [3, 2, 0, 5, 1, 0]


def test_blocks_by_hand_with_the_youngest_sent_back():
    # three blocks of 2 slots and one slot that no block has; nothing spared
    rows = serve(np.array([(1, 4), (1, 3)]), memory("2", 7, spare=0))
    assert rows[[*KINDS, "n_running", "n_waiting", "recomputed"]].values.tolist() == [
        [4, 0, 0, 3, 2, 0, 0],  # both fill a block
        [3, 1, 0, 3, 1, 1, 2],  # the first takes the third and the second has none: back with 2
        [4, 0, 0, 3, 1, 1, 0],  # 2 tokens and the next need two blocks, one is free
        [5, 0, 1, 1, 1, 1, 0],
        [3, 1, 0, 3, 1, 0, 0],
        [4, 0, 0, 3, 1, 0, 0],
    ]


def test_what_is_summed_up_are_the_steps_in_which_a_request_waits():
    got = reservation.summary(serve(np.array([(1, 4), (1, 3)]), memory("2", 7, spare=0)))
    assert got["n_steps"] == 6
    assert got["tokens"] == pytest.approx(100 * (3 + 4 + 5) / 3 / 7)
    assert got["waste"] == pytest.approx(100 * (4 + 3 + 2) / 3 / 7)
    assert got["recomputed"] == pytest.approx(100 * 2 / 7)  # 2 tokens again, 7 of output
    assert (got["n_running"], got["empty_each"]) == (1, pytest.approx(2 / 3))


def test_a_block_size_may_be_a_number():
    assert memory(16, 64).pool.block_size == memory("16", 64).pool.block_size == 16


def test_blocks_are_spared_for_others_and_never_from_the_only_one():
    spare = {"n_slots": 40, "spare": 0.5}  # 5 of 10 blocks of 4
    n_running = 4  # its column
    assert [row[n_running] for row in steps([(30, 2)], "4", **spare)] == [1, 1]
    assert steps([(8, 2), (4, 2)], "4", **spare)[0][n_running] == 2  # 3 + 2 + 5
    assert steps([(8, 2), (8, 2)], "4", **spare)[0][n_running] == 1  # 3 + 3 + 5


def test_free_room_that_lies_apart_is_of_no_use_to_one_piece():
    lengths = np.array([(1, 1), (1, 3), (1, 1), (2, 2)])  # pieces of 2, 4, 2, then one of 4
    rows = serve(lengths, memory("exact", 8))
    assert rows["scattered"].tolist() == [False, True, True, False, False]
    assert rows["n_waiting"].tolist() == [1, 1, 1, 0, 0]
    assert not serve(lengths, memory("1", 8))["scattered"].any()


@settings(max_examples=100, deadline=None)
@given(lists_of_lengths, st.sampled_from([*reservation.POLICIES, "3", "max buddy"]))
def test_all_are_served_and_every_slot_is_accounted_for(lengths, policy):
    rows = serve(lengths, memory(policy, 150, max_tokens=40))
    assert (rows[KINDS].sum(axis=1) == 150).all()
    assert (rows >= 0).all().all()
    assert rows["n_running"].sum() == lengths[:, 1].sum()  # one token a step each, none twice
    held = [p + j for p, o in lengths.tolist() for j in range(1, o + 1)]
    assert rows["tokens"].sum() == sum(held)
    if not policy.isdecimal():
        assert rows["recomputed"].sum() == 0


@pytest.mark.parametrize(
    ("lengths", "policy", "says"),
    [
        ([(5, 5)], "max", "a request of 10 tokens never fits in 20 slots"),
        ([(20, 20)], "max", "a request of 40 tokens outgrows 30 slots"),
        ([(10, 12)], "exact", "a request of 22 tokens never fits"),
        ([(10, 7)], "exact buddy", "a request of 17 tokens never fits"),
        ([(15, 3)], "16", "a request of 18 tokens never fits"),
        ([(1, 1), (19, 3)], "4", "a request of 22 tokens never fits"),
        ([(1, 0)], "16", "an output of 1 or more"),
        ([(0, 1)], "exact", "a prompt of 1 token or more"),
        ([1, 2], "exact", r"int array \[n, 2\]"),
        ([(1.0, 2.0)], "exact", r"int array \[n, 2\]"),
        ([(1, 2)], "best", "no policy is called 'best'"),
        ([(1, 2)], "max best", "no policy is called 'max best'"),
        ([(1, 2)], "16 buddy", "no policy is called '16 buddy'"),
        ([(1, 2)], "32", "n_blocks must be at least 1"),
    ],
)
def test_what_cannot_be_served_is_refused(lengths, policy, says):
    with pytest.raises(ValueError, match=says):
        serve(lengths, memory(policy, 20, max_tokens=30))


def test_without_anyone_waiting_there_is_nothing_to_sum_up():
    with pytest.raises(ValueError, match="no request had to wait"):
        reservation.summary(serve([(1, 2)], memory("exact", 20)))


# The server against real caches


class RealPaged(Paged):
    """The same policy, with a cache for each sequence and its rows in the pool."""

    def __init__(self, n_slots, block_size, spare):
        super().__init__(n_slots, block_size, spare)
        self.caches = {}

    def push(self, sequence, n):
        rows = np.full((1, n, 1), id(sequence) % 100, np.int8)
        self.caches[id(sequence)].append(rows, rows)

    def admit(self, sequence):
        if self.pool.blocks_for(sequence.held + 1) > self.pool.n_free:
            return False
        self.caches[id(sequence)] = PagedCache(1, 1, np.int8, pool=self.pool)
        self.push(sequence, sequence.held + 1)  # the next token is made in the same step
        sequence.chunk = self.caches[id(sequence)].capacity
        return True

    def grow(self, sequence):
        try:
            self.push(sequence, 1)
        except ValueError:
            return False
        sequence.chunk = self.caches[id(sequence)].capacity
        return True

    def release(self, sequence):
        cache = self.caches.pop(id(sequence))
        assert (cache.keys() == id(sequence) % 100).all()  # no other's token among them
        assert len(cache) == sequence.held
        cache.free()


@pytest.mark.parametrize("size", [1, 4, 16])
def test_the_simulation_is_what_real_caches_do(size):
    lengths = mixes.requests(12, 40, 60, seed=size)
    simulated = serve(lengths, Paged(700, size, spare=0))
    real = RealPaged(700, size, spare=0)
    real_rows = serve(lengths, real)
    assert simulated["recomputed"].sum() > 0
    assert real.pool.n_free == real.pool.n_blocks
    assert simulated.equals(real_rows)


# What is measured, against closed forms and the paper


@pytest.fixture(scope="module")
def sharegpt():
    return reservation.measure(SHAREGPT).loc["ShareGPT"]


@pytest.fixture(scope="module")
def alpaca():
    return reservation.measure(ALPACA).loc["Alpaca"]


def lengths_of(mix, n_outputs=200_000):
    prompt, output = mixes.MEANS[mix]
    return mixes.requests(prompt, output, round(n_outputs / output))


def test_reserving_the_most_leaves_what_the_closed_form_says(sharegpt, alpaca):
    for mix, table in (("ShareGPT", sharegpt), ("Alpaca", alpaca)):
        held = mixes.mean_held(lengths_of(mix))
        got = table.loc["max"]
        assert got["n_running"] == N_SLOTS // 2048
        assert got["external"] == pytest.approx(100 * (N_SLOTS % 2048) / N_SLOTS)
        assert got["tokens"] == pytest.approx(100 * 7 * held / N_SLOTS, rel=0.03)


def test_a_policy_that_gives_less_memory_runs_more_at_once(sharegpt, alpaca):
    for table in (sharegpt, alpaca):
        order = table.loc[["max", "pow2", "exact", "128", "64", "32", "16", "8", "1"], "n_steps"]
        order = order.drop("128") if table is alpaca else order  # a block is more than most need
        assert order.is_monotonic_decreasing
        for policy in ("pow2", "exact"):
            assert table.loc[f"{policy} buddy", "tokens"] < table.loc[policy, "tokens"] - 8
        np.testing.assert_allclose(table[KINDS].sum(axis=1), 100)
        np.testing.assert_allclose(table["waste"], table[KINDS[1:]].sum(axis=1))


@pytest.mark.parametrize("size", [8, 16, 32, 64, 128])
def test_blocks_waste_what_the_last_one_leaves(sharegpt, alpaca, size):
    for mix, table in (("ShareGPT", sharegpt), ("Alpaca", alpaca)):
        unfilled = mixes.mean_unfilled(lengths_of(mix), size)
        assert table.loc[str(size), "empty_each"] == pytest.approx(unfilled, rel=0.03)


def test_the_published_shares_are_met_for_one_mix_and_not_for_the_other(sharegpt, alpaca):
    published = reservation.PUBLISHED
    np.testing.assert_allclose(published[KINDS].sum(axis=1)[:3], 100, atol=0.15)
    got = sharegpt.loc[published.index]
    assert abs(got["tokens"] - published["tokens"]).max() < 5
    for kind in KINDS[1:]:
        assert abs(got[kind] - published[kind]).max() < 6
    assert ((got["waste"] > 60) & (got["waste"] < 81)).tolist() == [True, True, True, False]
    assert sharegpt.loc["16", "waste"] < 4 < sharegpt.loc["32", "waste"]
    assert sharegpt.loc["exact", "waste"] < 60  # first fit, with the lengths known

    assert alpaca.loc["max", "waste"] > 95
    assert alpaca.loc["8", "waste"] > 4


@pytest.mark.parametrize("spread", [0.4, 1.0, 1.3])
def test_the_order_does_not_hang_on_the_spread(spread):
    table = reservation.measure(
        SHAREGPT, ["max", "pow2 buddy", "exact buddy", "16"], spread=spread, n_outputs=100_000
    ).loc["ShareGPT"]
    assert table["tokens"].is_monotonic_increasing
    assert table.loc["max", "waste"] > 70
    assert table.loc["16", "waste"] < 4
    assert table.loc["16", "n_running"] > 1.8 * table.loc["exact buddy", "n_running"]


def test_measure_serves_what_it_is_told_to():
    table = reservation.measure(
        {"short": (5, 20)}, ["max", "16"], 0.3, 700, 100, spare=0.1, n_outputs=3000, seed=9
    )
    lengths = mixes.requests(5, 20, 150, spread=0.3, max_tokens=100, seed=9)
    for policy in ("max", "16"):
        rows = serve(lengths, memory(policy, n_slots=700, max_tokens=100, spare=0.1))
        assert table.loc[("short", policy)].equals(reservation.summary(rows))
    assert table.loc[("short", "max"), "n_running"] == 7


def test_to_spare_more_blocks_is_to_compute_less_again():
    little, much = (
        reservation.measure(SHAREGPT, ["16"], spare=spare, n_outputs=100_000).iloc[0]
        for spare in (0.01, 0.2)
    )
    assert much["recomputed"] < little["recomputed"] / 3
    assert much["waste"] > little["waste"] + 2


# Outputs that share a prompt


def test_what_sharing_saves_by_hand():
    # 2 blocks of prompt, 1 of output: 4 of 6 remain with two outputs, 6 of 12 with four
    assert reservation.sampling([(8, 4)], 2, block_size=4) == pytest.approx(100 / 3)
    assert reservation.sampling([(8, 4)], 4, block_size=4) == pytest.approx(50)
    assert reservation.sampling([(8, 4)], 1, block_size=4) == 0
    assert reservation.sampling([(3, 1)], 2, block_size=4) == 0  # no whole block to share


@settings(max_examples=25, deadline=None)
@given(lists_of_lengths, st.integers(1, 4), st.integers(1, 6))
def test_what_sharing_saves_is_the_whole_blocks_of_the_prompt(lengths, n_samples, size):
    saved = total = 0
    for p, o in lengths.tolist():
        saved += o * (n_samples - 1) * (p // size)
        total += n_samples * sum(-(-(p + j) // size) for j in range(1, o + 1))
    got = reservation.sampling(lengths, n_samples, size)
    assert got == pytest.approx(100 * saved / total)


def test_a_pool_of_a_simulation_is_a_real_one():
    paged = memory("16", 100)
    assert isinstance(paged.pool, BlockPool)
    assert paged.pool.n_blocks == 6
    sequence = Sequence(prompt=16, final=20, held=16)
    assert paged.admit(sequence)
    assert (paged.pool.n_used, sequence.chunk) == (2, 32)
    paged.release(sequence)
    assert paged.pool.n_used == 0
