"""Prices that made the times are found again; pieces are timed in turns and share no sizes."""

import gc
import math

import numpy as np
import pandas as pd
import pytest

from labsupport import breakeven, calibrate, opcounts
from labsupport.breakeven import Grid
from labsupport.costmodel import PRICES
from labsupport.pieces import LARGE, PRODUCTS, TINY, Piece, pieces
from labsupport.profile import Case


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """The pieces and what each asks for."""
    timed = pieces(tmp_path_factory.mktemp("pieces"))
    return timed, pd.DataFrame([piece.amounts() for piece in timed])


def test_prices_are_found_again_from_the_times_they_make(counted):
    _, counts = counted
    made = {name: 2.0 + i % 5 for i, name in enumerate(PRICES)}
    times = counts[list(PRICES)].to_numpy(dtype=float) @ np.array(list(made.values()))
    assert calibrate.fit(counts, times) == pytest.approx(made, rel=1e-6)


def test_the_pieces_tell_every_price_from_the_others(counted):
    _, counts = counted
    scaled = counts[list(PRICES)] / counts[list(PRICES)].max()
    assert np.linalg.matrix_rank(scaled.to_numpy(dtype=float)) == len(PRICES)


def test_noise_of_a_tenth_moves_the_sum_by_less(counted):
    _, counts = counted
    made = np.array([20.0 if name in (*opcounts.KINDS, "instruction") else 0.1 for name in PRICES])
    times = counts[list(PRICES)].to_numpy(dtype=float) @ made
    noisy = times * np.random.default_rng(0).uniform(0.9, 1.1, len(times))
    found = np.array(list(calibrate.fit(counts, noisy).values()))
    assert (found >= 0).all()
    total = counts[list(PRICES)].sum().to_numpy(dtype=float)
    assert total @ found == pytest.approx(total @ made, rel=0.05)


@pytest.mark.parametrize("wrong", [0.0, -3.0, math.nan])
def test_times_that_are_none_are_refused(counted, wrong):
    _, counts = counted
    times = np.ones(len(counts))
    times[5] = wrong
    with pytest.raises(ValueError, match=r"piece 5 .* more time"):
        calibrate.fit(counts, times)


def test_no_size_of_a_piece_is_one_of_the_grid():
    grid, sizes = Grid(), {n for shape in (*TINY, *LARGE, *PRODUCTS) for n in shape[1:]}
    assert not sizes & {n * width for width in grid.widths for n in (1, 4)}
    assert not {shape[0] for shape in (*TINY, *LARGE)} & set(grid.tokens)


def test_a_piece_is_counted_as_it_runs(counted):
    timed, counts = counted
    rows = counts.assign(name=[piece.name for piece in timed])
    assert (rows.query("name == 'read a file'")["file"] == 1).all()
    assert (rows.query("name == 'x @ w'")["matmul"] == 1).all()
    assert (rows.query("name == 'mean'")[["reduction", "elementwise"]] == 1).all(axis=None)
    assert (rows.query("name == 'exp of a mask'")["masked exp"] > 0).any()
    assert rows.query("name == 'look up'")["key token"].tolist() == [5, 20, 80, 250]
    assert (rows["instruction"] > 0).mean() > 0.9


def test_every_piece_takes_turns_and_a_long_one_is_called_before_it_is_timed(monkeypatch):
    clock, log = [0], []

    def spend(name, ns):
        log.append(name)
        clock[0] += ns

    monkeypatch.setattr(calibrate, "perf_counter_ns", lambda: clock[0])
    monkeypatch.setattr(calibrate, "NOTHING", Piece("nothing", spend, ("nothing", 40)))
    takes = {"a": 1_040, "b": 540, "long": 90_040}
    timed = [Piece(name, spend, (name, ns)) for name, ns in takes.items()]
    times = calibrate.time_in_turns(timed, budget_s=0.002)
    assert [set(ns) for ns in times] == [{1_000}, {500}, {90_000}]
    turns = "".join(log).removeprefix("aaabbb" + "long" * 3).split("nothing")[:-1]
    assert {turn for turn in turns if "long" not in turn} == {"ab", "ba"}  # shuffled
    assert {turn for turn in turns if "long" in turn} == {"longlong"}


def test_the_collector_is_off_while_pieces_are_timed():
    seen = []
    calibrate.time_in_turns([Piece("look", lambda: seen.append(gc.isenabled()))], 0.001)
    assert seen
    assert not any(seen)
    assert gc.isenabled()


def test_each_piece_is_timed_once_however_short_the_budget():
    times = calibrate.time_in_turns(
        [Piece("a", lambda: None), Piece("b", sum, (range(10**5),))], 1e-9
    )
    assert all(len(ns) >= 1 for ns in times)


def test_typical_times_pool_the_turns_and_ignore_a_burst():
    quiet = [np.array([10.0, 11, 12, 13]), np.array([5.0])]
    burst = [np.array([90.0, 95, 99]), np.array([7.0])]
    assert calibrate.typical_ns(quiet, burst) == pytest.approx([11.5, 5.0])


@pytest.mark.parametrize("step_ns", [1, 125 / 3, 100])
def test_a_coarse_clock_gives_short_pieces_a_time(monkeypatch, step_ns):
    """Steps of the clocks of Linux, of a Mac and of Windows, on calls of 40 and 75 ns."""
    now, rng = [0.0], np.random.default_rng(0)

    def read():
        now[0] += 20 + rng.uniform(0, 10)
        return math.floor(now[0] / step_ns) * step_ns

    def spend(ns):
        now[0] += ns

    monkeypatch.setattr(calibrate, "perf_counter_ns", read)
    monkeypatch.setattr(calibrate, "NOTHING", Piece("nothing", spend, (20,)))
    timed = [Piece("short", spend, (20 + 40,)), Piece("long", spend, (20 + 75,))]
    short_ns, long_ns = calibrate.typical_ns(calibrate.time_in_turns(timed, 0.002))
    assert 20 < short_ns < 80
    assert short_ns < long_ns < 150


def test_one_price_for_all_calls_is_that_of_calls_alone():
    counts = pd.DataFrame(0.0, index=range(3), columns=list(PRICES))
    counts["matmul"] = [1, 4, 2]
    assert calibrate.call_price(counts, np.array([500.0, 2000, 10**6])) == pytest.approx(500)


def test_memory_is_kept_before_pieces_are_made_and_before_a_case_is_measured(monkeypatch):
    done = []
    monkeypatch.setattr(calibrate, "keep_memory", lambda: done.append("memory"))
    monkeypatch.setattr(calibrate, "pieces", lambda _: done.append("pieces") or [])
    with calibrate.prepared():
        assert done == ["memory", "pieces"]
    done.clear()
    measure = breakeven.profile.measure
    monkeypatch.setattr(
        breakeven.profile, "measure", lambda case: done.append("case") or measure(case)
    )
    case = Case(width=8, layers=1, tokens=4, prefix=2, seeds=1, rounds=6)
    breakeven.one_case(case, dict.fromkeys(PRICES, 1.0))
    assert done == ["memory", "case"]


def test_a_calibration_gives_each_price_once():
    prices = calibrate.calibrate(budget_s=0.2)
    assert list(prices) == list(PRICES)
    assert all(math.isfinite(ns) and ns >= 0 for ns in prices.values())
    assert prices["matmul"] > prices["flop"]
