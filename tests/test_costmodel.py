"""The amounts of a query are counted in a real pass; a prediction is amounts times prices."""

import types

import numpy as np
import pandas as pd
import pytest

from labsupport import costmodel, opcounts
from labsupport.costmodel import PRICES, SEGMENTS, count, predict, price, segment_calls
from labsupport.decoder import DecoderConfig, random_weights
from labsupport.profile import Case

CASE = Case()
ARRAY_CALLS = list(opcounts.KINDS)


@pytest.fixture(scope="module")
def counts():
    return count(CASE)


def test_four_tokens_on_a_cache_ask_for_as_many_calls_as_twelve(counts):
    calls = counts[ARRAY_CALLS].sum(axis=1)
    assert 1 < calls["continuation"] / calls["full"] < 1.15
    assert counts.loc["continuation", "matmul"] == counts.loc["full", "matmul"] == 2 * 8 + 1
    appends = 2 * 2  # keys and values of each layer, into caches that are counted too
    assert counts.loc["continuation", "copy"] == counts.loc["full", "copy"] + appends
    assert counts.loc["full", "flop"] == 3 * counts.loc["continuation", "flop"]


@pytest.mark.parametrize("sizes", [(16, 2, 2, 12, 8), (32, 3, 4, 30, 5), (16, 2, 16, 12, 8)])
def test_arithmetic_is_that_of_the_formula(sizes):
    width, layers, heads, n_tokens, n_prefix = sizes
    case = Case(width=width, layers=layers, heads=heads, tokens=n_tokens, prefix=n_prefix)
    for segment, n_new in (("full", n_tokens), ("continuation", n_tokens - n_prefix)):
        weights = layers * 12 * width * width + width * 64  # q, k, v, o, up, down; and the head
        attention = layers * 2 * width * n_tokens  # scores, and what is read by them
        assert count(case).loc[segment, "flop"] == 2 * n_new * (weights + attention)


def test_other_segments_are_what_they_do(counts):
    config = DecoderConfig(64, 12, 16, 2, 2, dtype=np.float64)
    n_bytes = sum(array.nbytes for array in random_weights(config, 0).values())
    hashed = counts["hashed byte"]
    assert n_bytes < hashed["signature"] < n_bytes + 60_000  # code, names, the configuration
    assert hashed.drop("signature").sum() == 0
    assert counts["file"].to_dict() == dict.fromkeys(SEGMENTS, 0) | {"signature": 2}
    assert counts["key token"].to_dict() == dict.fromkeys(SEGMENTS, 0) | {"lookup": 8}
    assert counts.loc["copy", ["new", "copy"]].tolist() == [2 * 2, 2 * 2]  # keys, values; layers
    assert counts.loc["copy", "copied byte"] == 2 * 2 * 2 * 8 * 16 * 8
    assert counts.loc["lookup", ARRAY_CALLS].sum() == 0
    assert (counts["instruction"] > 0).all()


def test_a_mask_counts_its_infinities(counts):
    heads, layers = 2, 2
    assert counts.loc["full", "masked exp"] == layers * heads * 12 * 11 // 2
    assert counts.loc["continuation", "masked exp"] == layers * heads * 4 * 3 // 2
    assert counts.loc["full", "exp"] == layers * heads * 12 * 12


def test_counting_twice_gives_the_same_and_protects_what_is_kept(counts):
    again = count(Case(seeds=1, rounds=7))
    pd.testing.assert_frame_equal(again, counts)
    again.loc[:] = 0
    pd.testing.assert_frame_equal(count(CASE), counts)
    (calls, steps) = segment_calls(CASE)["full"]
    assert len(calls) == counts.loc["full", ARRAY_CALLS].sum()
    assert steps["instructions"] == counts.loc["full", "instruction"]


def amounts_of(function, *args):
    calls = opcounts.array_calls(function, *args)
    return costmodel.amounts(calls, {"instructions": 0, "files": 0})


def test_products_of_a_row_and_of_many_are_priced_apart():
    w = np.ones((200, 300))
    row = amounts_of(lambda x, w: x @ w, np.ones((1, 200)), w)
    assert (row["row byte"], row["flop"], row["packed byte"]) == (w.nbytes, 0, 0)
    few = amounts_of(lambda x, w: x @ w, np.ones((16, 200)), w)
    assert (few["row byte"], few["flop"], few["packed byte"]) == (0, 2 * 16 * w.size, 0)
    many = amounts_of(lambda x, w: x @ w, np.ones((17, 200)), w)
    assert (many["flop"], many["packed byte"]) == (2 * 17 * w.size, w.nbytes)
    stacked = amounts_of(lambda x, w: x @ w, np.ones((3, 9, 200)), np.ones((3, 200, 300)))
    assert stacked["packed byte"] == 0  # each of the three is small


def test_matrices_beyond_the_near_cache_are_far_by_doublings():
    def pass_through(x, *matrices):
        for w in matrices:
            x @ w

    w = np.ones((256, 256))  # half a MiB
    x = np.ones((2, 256))
    assert amounts_of(pass_through, x, *[w] * 2)["far byte"] == 0
    assert amounts_of(pass_through, x, *[w] * 8)["far byte"] == pytest.approx(8 * w.nbytes * 2)


def test_divisions_and_choices_are_slow_elements_and_exp_none():
    work = amounts_of(lambda x: np.exp(x / x) + np.tanh(x), np.ones((3, 5)))
    named = {name: work[name] for name in ("slow element", "element", "exp", "tanh", "elementwise")}
    assert named == {"slow element": 15, "element": 15, "exp": 15, "tanh": 15, "elementwise": 4}


def test_what_is_chosen_by_where_is_slow_and_no_copied_byte():
    watched = types.SimpleNamespace(np=np)
    calls = opcounts.array_calls(
        lambda x: watched.np.where(x > 0, x, 1.0), np.ones((3, 5)), modules=[watched]
    )
    work = costmodel.amounts(calls, {"instructions": 0, "files": 0})
    assert (work["copy"], work["slow element"], work["copied byte"]) == (1, 15, 0)


def test_new_arrays_are_written_and_empty_ones_are_not():
    watched = types.SimpleNamespace(np=np)
    for make, n_bytes in ((lambda: watched.np.empty(6), 0), (lambda: watched.np.arange(6), 96)):
        calls = opcounts.array_calls(make, modules=[watched])
        work = costmodel.amounts(calls, {"instructions": 0, "files": 0})
        assert (work["new"], work["copied byte"]) == (1, n_bytes)


def test_a_broadcast_costs_a_loop_for_each_row():
    work = amounts_of(lambda x: x - x[:, :1], np.ones((2, 3, 5)))
    assert (work["broadcast"], work["loop"], work["element"]) == (1, 2 * 3, 30)


def test_every_amount_has_a_price_and_a_meaning(counts):
    assert list(counts) == list(PRICES)
    assert set(amounts_of(lambda: None)) == set(PRICES)
    assert all(PRICES.values())


def test_a_prediction_is_the_sum_of_amounts_times_prices(counts):
    prices = {name: 10.0**i for i, name in enumerate(PRICES)}
    by_hand = {s: sum(counts.loc[s, name] * prices[name] for name in PRICES) for s in SEGMENTS}
    assert price(counts, prices).to_dict() == pytest.approx(by_hand)
    table = predict(CASE, prices)
    reuse = by_hand["lookup"] + by_hand["copy"] + by_hand["continuation"]
    assert table["total"].to_dict() == pytest.approx(
        {"full": by_hand["full"], "rehash": reuse + by_hand["signature"], "frozen": reuse}
    )
    assert table.loc["full", "continuation"] == pytest.approx(by_hand["full"])
    assert table.loc["frozen", "signature"] == table.loc["full", "copy"] == 0
    assert list(table) == ["total", "signature", "lookup", "copy", "continuation"]
    assert (table.drop(columns="total").sum(axis=1)).tolist() == pytest.approx(list(table["total"]))


def test_a_price_that_lacks_is_named():
    with pytest.raises(KeyError, match="flop"):
        predict(CASE, {name: 1.0 for name in PRICES if name != "flop"})
