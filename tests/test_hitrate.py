"""What queries cost when not every one hits: the arithmetic, the streams, the store with room."""

import gc

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labsupport import hitrate, profile, streams
from labsupport.decoder import Decoder, DecoderConfig
from labsupport.prefix import FrozenDecoder, PrefixStore
from labsupport.profile import Case

SMALL = Case(width=8, layers=1, tokens=6, prefix=4)
times = st.floats(1, 1e6)

# Expected


def test_expected_costs_by_hand():
    assert hitrate.expected(0.25, hit=8, miss=12) == 11
    assert (hitrate.expected(0, 8, 12), hitrate.expected(1, 8, 12)) == (12, 8)
    assert hitrate.breakeven(fresh=10, hit=8, miss=12) == 0.5
    assert hitrate.breakeven(fresh=10, hit=4, miss=12) == 0.25


@pytest.mark.parametrize(
    ("fresh", "hit", "miss", "rate"),
    [(10, 10, 12, None), (10, 11, 12, None), (10, 8, 10, 0.0), (10, 8, 9, 0.0), (10, 8, 7, 0.0)],
)
def test_no_rate_is_enough_or_any_is(fresh, hit, miss, rate):
    assert hitrate.breakeven(fresh, hit, miss) == rate


@given(times, times, times, st.floats(0, 1))
def test_above_the_breakeven_and_only_there_reuse_costs_less(fresh, hit, miss, h):
    rate = hitrate.breakeven(fresh, hit, miss)
    if hit > miss:  # then rarer hits cost less, which no reader would call a break-even
        return
    cost = hitrate.expected(h, hit, miss)
    if rate is None:
        assert cost >= fresh * (1 - 1e-12)
    elif h > rate + 1e-9:
        assert cost <= fresh * (1 + 1e-12)
    elif h < rate - 1e-9:
        assert cost >= fresh * (1 - 1e-12)


@pytest.mark.parametrize("rate", [-0.1, 1.1, np.nan])
def test_rates_outside_0_to_1_are_refused(rate):
    with pytest.raises(ValueError, match="from 0 to 1"):
        hitrate.expected(rate, 1, 2)
    with pytest.raises(ValueError, match="from 0 to 1"):
        streams.stream(SMALL, rate, 5, 0)


@pytest.mark.parametrize("costs", [(0, 1, 2), (1, -1, 2), (1, 2, np.nan)])
def test_costs_that_are_no_times_are_refused(costs):
    with pytest.raises(ValueError, match="costs must be positive"):
        hitrate.breakeven(*costs)


# Several workloads

TOY = pd.DataFrame({"fresh": [10.0, 1.0], "reuse": [5.0, 1.6]}, index=["long", "short"])


def test_the_four_ways_to_combine_by_hand():
    got = hitrate.combine(TOY, [1, 1])
    assert got["ratio_of_totals"] == pytest.approx(6.6 / 11)
    assert got["mean_of_ratios"] == pytest.approx((0.5 + 1.6) / 2)
    assert got["mean_of_speedups"] == pytest.approx((2 + 1 / 1.6) / 2)
    assert got["geometric_mean"] == pytest.approx((0.5 * 1.6) ** 0.5)


def test_they_contradict_one_another_and_the_mix_decides():
    got = hitrate.combine(TOY, [1, 1])
    assert got["mean_of_speedups"] > 1  # 'faster'
    assert got["mean_of_ratios"] > 1  # 'slower', of the same two workloads
    assert got["ratio_of_totals"] < 1 < hitrate.combine(TOY, [1, 19])["ratio_of_totals"]


def test_shares_are_relative_and_one_workload_alone_is_itself():
    pd.testing.assert_series_equal(hitrate.combine(TOY, [3, 1]), hitrate.combine(TOY, [0.75, 0.25]))
    alone = hitrate.combine(TOY, [0, 2])
    assert alone[["ratio_of_totals", "mean_of_ratios", "geometric_mean"]].tolist() == (
        pytest.approx([1.6] * 3)
    )


@pytest.mark.parametrize("shares", [[1], [1, 2, 3], [1, -1], [0, 0], [np.nan, 1]])
def test_shares_that_do_not_fit_are_refused(shares):
    with pytest.raises(ValueError, match="each of 2 workloads"):
        hitrate.combine(TOY, shares)


# Streams


def prefixes(queries, case=SMALL):
    return [tuple(tokens[: case.prefix]) for tokens in queries]


@pytest.mark.parametrize(
    ("rate", "n_new"), [(0, 40), (0.25, 30), (0.5, 20), (0.9, 4), (0.99, 1), (1, 1)]
)
def test_a_stream_repeats_the_share_that_is_asked(rate, n_new):
    case = Case(tokens=12, prefix=8)
    queries = streams.stream(case, rate, 40, seed=1)
    assert len(queries) == 40
    assert {len(tokens) for tokens in queries} == {12}
    assert len(set(prefixes(queries, case))) == n_new
    assert all(0 <= token < profile.VOCAB_SIZE for tokens in queries for token in tokens)
    assert all(type(token) is int for tokens in queries for token in tokens)
    assert len({tuple(tokens[8:]) for tokens in queries}) > 35  # what follows is always new


def test_short_prefixes_are_new_where_they_should_be():
    case = Case(tokens=12, prefix=1)
    assert len(set(prefixes(streams.stream(case, 0, 60, seed=1), case))) == 60
    with pytest.raises(ValueError, match="no 65 prefixes of 1 tokens"):
        streams.stream(case, 0, 65, seed=1)


def test_streams_follow_their_seed():
    assert streams.stream(SMALL, 0.5, 20, 3) == streams.stream(SMALL, 0.5, 20, 3)
    assert streams.stream(SMALL, 0.5, 20, 3) != streams.stream(SMALL, 0.5, 20, 4)
    assert streams.working_set(SMALL, 3, 20, 3) == streams.working_set(SMALL, 3, 20, 3)


def test_cold_and_warm_queries_are_mixed():
    seen, hits = set(), []
    for prefix in prefixes(streams.stream(SMALL, 0.5, 200, 2)):
        hits.append(prefix in seen)
        seen.add(prefix)
    assert not hits[0]
    assert 0.3 < np.mean(hits[:100]) < 0.7
    assert 0.3 < np.mean(hits[100:]) < 0.7


def test_a_working_set_is_no_larger_than_asked():
    queries = streams.working_set(SMALL, 3, 60, seed=0)
    assert len(set(prefixes(queries))) == 3


# The store with room


def kept(store, n):
    """Keep a prefix of one token, `n`."""
    cache = streams.PreallocatedCache(1, 1, capacity=1)
    cache.append(np.ones((1, 1, 1), np.float32), np.ones((1, 1, 1), np.float32))
    store.keep("a", "model", [n], [cache])


def held(store, tokens):
    found = []
    for n in tokens:
        try:
            store.find("a", "model", [n])
        except LookupError:
            continue
        found.append(n)
    return found


def test_the_longest_unused_goes_first():
    store = streams.BoundedStore(2)
    kept(store, 1)
    kept(store, 2)
    store.find("a", "model", [1])  # used: now 2 is the oldest
    kept(store, 3)
    assert len(store) == 2
    assert held(store, [1, 2, 3]) == [1, 3]
    kept(store, 1)  # kept anew, which is a use
    kept(store, 4)
    assert held(store, [1, 3, 4]) == [1, 4]


@given(st.integers(1, 4), st.lists(st.integers(0, 5), max_size=40))
def test_it_holds_the_last_used(room, asked):
    store, recent = streams.BoundedStore(room), []
    for n in asked:
        hit = n in recent
        assert (held(store, [n]) == [n]) == hit
        if not hit:
            kept(store, n)
        recent = ([m for m in recent if m != n] + [n])[-room:]
    assert len(store) == len(recent)


@pytest.mark.parametrize("room", [0, -1])
def test_no_room_is_refused(room):
    with pytest.raises(ValueError, match="room must be at least 1"):
        streams.BoundedStore(room)


# Measured


def model_of(case):
    shape = (profile.VOCAB_SIZE, case.tokens, case.width, case.layers, case.heads)
    plain = Decoder(DecoderConfig(*shape, dtype=np.float64), 0)
    return plain, FrozenDecoder(plain, profile.read_sources())


@pytest.mark.parametrize("case", [SMALL, Case(), Case(width=32, tokens=20, prefix=19)])
def test_hits_and_misses_give_the_outputs_of_a_fresh_computation(case):
    (plain, model), store, hits = model_of(case), PrefixStore(), []
    for tokens in streams.stream(case, 0.7, 30, 5):
        outputs, hit = streams.answer(model, store, tokens, case.prefix)
        assert np.abs(outputs - plain.forward(tokens)[case.prefix :]).max() <= 1e-12
        assert outputs.shape == (case.tokens - case.prefix, profile.VOCAB_SIZE)
        hits.append(hit)
    assert sum(hits) == 21
    assert len(store) == 9


def test_a_miss_computes_all_tokens_once_and_a_hit_the_rest(monkeypatch):
    (_, model), store, seen, forward = model_of(SMALL), PrefixStore(), [], Decoder.forward

    def counted(self, tokens, caches=None):
        seen.append(len(tokens))
        return forward(self, tokens, caches)

    monkeypatch.setattr(Decoder, "forward", counted)
    for _ in range(3):
        streams.answer(model, store, [1, 2, 3, 4, 5, 6], 4)
    assert seen == [6, 2, 2]


def test_every_stream_begins_cold():
    queries = streams.stream(SMALL, 0.8, 10, 1)
    rows = streams.run(SMALL, [queries, queries, queries])
    assert list(rows) == ["stream", "query", "hit", "fresh_ns", "reuse_ns"]
    hits = rows.pivot(index="stream", columns="query", values="hit")
    assert hits.sum(axis=1).tolist() == [8, 8, 8]
    assert not hits[0].any()
    assert (rows[["fresh_ns", "reuse_ns"]] > 0).all().all()
    assert gc.isenabled()


def test_both_ways_take_turns_at_random_with_the_collector_off_after_the_warm_up(monkeypatch):
    log, answer, forward = [], streams.answer, Decoder.forward

    def reused(*asked):
        log.append(("reuse", gc.isenabled()))
        return answer(*asked)

    def fresh(self, tokens, caches=None):
        if caches is None:
            log.append(("fresh", gc.isenabled()))
        return forward(self, tokens, caches)

    monkeypatch.setattr(streams, "answer", reused)
    monkeypatch.setattr(Decoder, "forward", fresh)
    streams.run(SMALL, [streams.stream(SMALL, 0.5, 40, 1)])
    warmed, timed = log[: 2 * profile.WARMUPS], log[2 * profile.WARMUPS :]
    assert [way for way, _ in warmed].count("reuse") == profile.WARMUPS
    assert not any(collecting for _, collecting in timed)
    firsts = [way for way, _ in timed[::2]]
    assert len(timed) == 2 * 40
    assert 8 < firsts.count("fresh") < 32


@pytest.mark.parametrize(("room", "misses"), [(None, 3), (3, 3), (2, 60), (1, 60)])
def test_room_decides_how_often_a_working_set_hits(room, misses):
    """Three prefixes asked in turns: with room for two, the one to come has just gone."""
    rest = list(range(SMALL.tokens - SMALL.prefix))
    queries = [[n % 3] * SMALL.prefix + rest for n in range(60)]
    rows = streams.run(SMALL, [queries], room=room)
    assert (~rows["hit"]).sum() == misses


@pytest.mark.parametrize("hits_before", [0, 12])
def test_outputs_that_differ_stop_the_run(monkeypatch, hits_before):
    """At the check before anything is timed, or in the middle of it."""
    answered, answer = [], streams.answer

    def spoiled(*asked):
        outputs, hit = answer(*asked)
        answered.append(hit)
        return outputs + (len(answered) > hits_before) * 1e-9, hit

    monkeypatch.setattr(streams, "answer", spoiled)
    with pytest.raises(RuntimeError, match="differs from one computed afresh"):
        streams.run(SMALL, [streams.stream(SMALL, 0.5, 20, 1)])
    assert len(answered) == hits_before + 1
    assert gc.isenabled()


def rows_of(**ns):
    """Rows of `measure` in which a fresh query, a hit and a miss always take these times."""
    rows = []
    for i in range(21):
        rate, held_out = [(0.5, False), (0.25, True), (0.75, True)][i % 3]
        for j in range(20):
            hit = j >= 20 * (1 - rate)
            rows.append({"stream": i, "query": j, "hit": hit, "fresh_ns": ns["fresh"],
                         "reuse_ns": ns["hit"] if hit else ns["miss"],
                         "hit_rate": rate, "held_out": held_out})  # fmt: skip
    return pd.DataFrame(rows)


def test_costs_and_the_table_by_hand():
    rows = rows_of(fresh=10_000, hit=4_000, miss=12_000)
    assert hitrate.costs(rows).to_dict() == {"fresh": 10_000, "hit": 4_000, "miss": 12_000}
    table = hitrate.against_expected(rows)
    assert table.index.tolist() == [0.25, 0.75]
    assert table["hits"].tolist() == [0.25, 0.75]
    assert table["reuse_us"].tolist() == table["expected_us"].tolist() == [10, 6]
    assert table["ratio"].tolist() == pytest.approx([1, 0.6])
    assert table["expected_ratio"].tolist() == pytest.approx([1, 0.6])
    assert (table["low"] < table["ratio"]).all()
    assert (table["ratio"] < table["high"]).all()


def test_the_expectation_uses_no_stream_that_it_is_compared_with():
    rows = rows_of(fresh=10_000, hit=4_000, miss=12_000)
    rows.loc[rows["held_out"], ["fresh_ns", "reuse_ns"]] *= 3
    table = hitrate.against_expected(rows)
    assert table["expected_us"].tolist() == [10, 6]
    assert table["reuse_us"].tolist() == [30, 18]


def test_one_disturbed_stream_changes_no_cost():
    rows = rows_of(fresh=10_000, hit=4_000, miss=12_000)
    rows.loc[rows["stream"] == 3, ["fresh_ns", "reuse_ns"]] *= 50
    assert hitrate.costs(rows).to_dict() == {"fresh": 10_000, "hit": 4_000, "miss": 12_000}


def test_costs_need_hits_and_misses():
    with pytest.raises(ValueError, match="no hit or no miss"):
        hitrate.costs(rows_of(fresh=3, hit=1, miss=2).query("hit"))


def test_measured_streams_are_run_in_turns():
    rows = hitrate.measure(SMALL, [0.2, 0.8], n_queries=10, n_streams=7)
    kinds = rows.groupby("stream")[["hit_rate", "held_out", "hit"]].mean()
    assert kinds["hit_rate"].tolist() == [0.5, 0.2, 0.8] * 7
    assert kinds["held_out"].tolist() == [0, 1, 1] * 7
    assert kinds["hit"].tolist() == pytest.approx([0.5, 0.2, 0.8] * 7)
    table = hitrate.against_expected(rows)
    assert table["hits"].tolist() == pytest.approx([0.2, 0.8])
    cost = hitrate.costs(rows)
    for rate in (0.2, 0.8):
        mean_us = hitrate.expected(rate, cost["hit"], cost["miss"]) / 1000
        assert table.loc[rate, "expected_us"] == pytest.approx(mean_us)
