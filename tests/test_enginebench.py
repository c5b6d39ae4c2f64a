"""The engine bench: what all paths must agree on, the floors, the rows, the table, the command."""

import argparse
import math

import numpy as np
import pandas as pd
import pytest
import torch

from labsupport import (
    __main__ as cli,
)
from labsupport import (
    arithmetic,
    charweights,
    engine_command,
    enginebench,
    enginepaths,
    enginerivals,
    evidence,
)
from labsupport.charmodel import CharConfig
from labsupport.enginebench import CACHED_FLOOR, COLUMNS, UNCACHED_FLOOR
from labsupport.enginepaths import PINNED, Path
from labsupport.enginerivals import NO_CACHE, USUAL

CONFIG = CharConfig(vocab_size=13, context=24, d_model=16, n_blocks=2, n_heads=2)
SHARED = CharConfig(vocab_size=11, context=16, d_model=24, n_blocks=3, n_heads=4, n_kv_heads=2)
SMALL = "--n 6 --rounds 7 --d-model 16 --blocks 1 --heads 2 --vocab 9".split()


@pytest.fixture(scope="module")
def subject():
    return enginebench.subject(CONFIG, 20)


# The subject


@pytest.mark.parametrize("config", [CONFIG, SHARED])
def test_a_subject_is_what_the_exact_model_generates_without_a_cache(config):
    made = enginebench.subject(config, 12, seed=3)
    exact = {name: w.astype(np.float64) for name, w in made.weights.items()}
    model = charweights.model(config, exact)
    assert model.generate(made.tokens[:1], 12) == made.tokens[1:]
    assert made.seed >= 3
    with torch.inference_mode():
        for i in (0, 4, 11):
            last = model(torch.tensor([made.tokens[: i + 1]]))[0, -1].numpy()
            np.testing.assert_allclose(made.logits[i], last, atol=1e-12)
    leads = [row.max() - np.partition(row, -2)[-2] for row in made.logits]
    assert made.gap == pytest.approx(min(leads))
    assert made.gap > enginebench.GAP


def test_weights_with_a_near_tie_are_passed_over(monkeypatch):
    gaps = [enginebench.subject(CONFIG, 12, seed).gap for seed in range(4)]
    rising = next(i for i in range(3) if gaps[i + 1] > gaps[i])
    monkeypatch.setattr(enginebench, "GAP", gaps[rising])
    assert enginebench.subject(CONFIG, 12, rising).seed == rising + 1
    monkeypatch.setattr(enginebench, "GAP", math.inf)
    with pytest.raises(ValueError, match="no seed from 0 to 99 is without a near-tie"):
        enginebench.subject(CONFIG, 2)


# The paths


@pytest.mark.parametrize("config", [CONFIG, SHARED])
def test_all_our_paths_give_the_subjects_tokens_and_logits(config):
    subject = enginebench.subject(config, config.context)
    first, *wanted = subject.tokens
    ways = enginepaths.paths(config, subject.weights)
    assert PINNED in ways
    for path in ways.values():
        for _ in range(2):  # nothing of one loop reaches the next
            assert path.run(first, len(wanted)) == wanted
        assert path.logits(subject.tokens[:-1]).shape == subject.logits.shape
    off = enginebench.differences(ways, subject)
    assert list(off) == list(ways)
    assert 0 < min(off.values()) <= max(off.values()) < enginebench.TOLERANCE


@pytest.mark.parametrize("error", [1e-3, -1e-3, math.nan, math.inf])
@pytest.mark.parametrize("place", [(0, 0), (19, 12)])
def test_a_path_that_computes_something_else_is_refused(subject, error, place):
    def wrong(tokens):
        logits = subject.logits.copy()
        logits[place] += error
        return logits

    right = Path(None, lambda tokens: subject.logits)
    with pytest.raises(ValueError, match="'wrong one' does not compute the same: its logits"):
        enginebench.differences({"right": right, "wrong one": Path(None, wrong)}, subject)


def test_a_path_with_generate_of_its_own_is_run_by_it():
    class Engine:
        held, asked = 3, []

        def reset(self):
            self.held = 0

        def generate(self, prompt, n_new):
            self.asked.append((self.held, prompt, n_new))
            return [5] * n_new

    assert enginepaths.stepping(Engine()).run(4, 2) == [5, 5]
    assert Engine.asked == [(0, [4], 2)]


# The floors


@pytest.mark.parametrize(("config", "n"), [(CONFIG, 1), (CONFIG, 24), (SHARED, 15)])
def test_a_step_reads_its_weights_and_on_average_half_a_cache(config, n):
    weights = enginebench.subject(config, 1).weights
    once = sum(w.nbytes for name, w in weights.items() if name not in ("tokens", "positions"))
    rows = weights["tokens"][0].nbytes + weights["positions"][0].nbytes
    a_token = 2 * config.n_blocks * config.n_kv_heads * config.head_dim * 4
    cache = np.mean([t * a_token for t in range(1, n + 1)])
    assert enginebench.step_bytes(config, n) == once + rows + cache


def test_floors_read_and_multiply_what_a_loop_does(monkeypatch):
    n_read, n_multiplied = [], []

    def reader(x):
        return lambda: n_read.append(x.nbytes)

    def matmul(x, w, out):
        n_multiplied.append(x.size * w.shape[1])

    monkeypatch.setattr(enginebench.rates, "READERS", {"mine": reader})
    calls, said = enginebench.floors(CONFIG, 20)
    monkeypatch.setattr(enginebench.np, "matmul", matmul)
    n_read.clear()
    calls[CACHED_FLOOR]()
    assert len(n_read) == 20
    needed = enginebench.step_bytes(CONFIG, 20)
    assert {needed <= size < needed + 1000 for size in n_read} == {True}
    calls[UNCACHED_FLOOR]()
    assert len(n_multiplied) == said["products"]
    needed = arithmetic.loop(CONFIG, 20, cached=False)
    assert needed <= sum(n_multiplied) < needed + n_multiplied[0]
    assert said["reader"] == "mine"


# The rows


def test_every_round_holds_each_path_and_floor_once_in_an_order_of_its_own(subject):
    first, *wanted = subject.tokens
    asked = []

    def run(name, tokens):
        def call(token, n_new):
            asked.append((name, token, n_new))
            return tokens

        return Path(call, None)

    off = [*wanted[:-1], (wanted[-1] + 1) % 13]
    ways = {"right": run("right", wanted), "off": run("off", off), "other": run("other", wanted)}
    rows = enginebench.measure(ways, {"floor": lambda: None}, subject, rounds=12, seed=1)
    assert list(rows) == COLUMNS
    assert set(asked) == {(name, first, 20) for name in ways}
    assert len(asked) == 3 * (1 + 12)  # the first to warm up
    orders = [tuple(part["path"]) for _, part in rows.groupby("round")]
    assert {tuple(sorted(order)) for order in orders} == {("floor", "off", "other", "right")}
    assert len(orders) == 12
    assert len(set(orders)) > 3
    assert set(rows.loc[~rows["agreed"], "path"]) == {"off"}
    assert rows.loc[rows["path"] == "off", "agreed"].any() == 0
    assert (rows["total_ns"] >= 0).all()


# The table


def made_rows(times_ns, rounds=8):
    """Rows whose paths take so long, each round half as long again as the round before."""
    found = [
        (turn, name, round(ns * 1.5**turn), True)
        for turn in range(rounds)
        for name, ns in times_ns.items()
    ]
    return pd.DataFrame(found, columns=COLUMNS)


TIMES = {
    PINNED: 8e7,
    "uncached, quicker": 5e7,
    NO_CACHE: 9e7,
    USUAL: 3.2e7,
    "compiled": 1e6,
    CACHED_FLOOR: 6e5,
    UNCACHED_FLOOR: 4e7,
}


def test_the_table_says_what_the_rows_hold():
    config = {"n": 10, "arithmetic_ratio": 160.0}
    table = enginebench.table(made_rows(TIMES), config)
    assert list(table.index) == sorted(TIMES, key=TIMES.get, reverse=True)
    row = table.loc["compiled"]
    assert row["us"] == pytest.approx(1e6 / 10 / 1000 * 1.5**3.5, rel=0.03)  # of the median round
    lowest, highest = 1e2 * 1.5**1.75, 1e2 * 1.5**5.25  # of the 8 rounds, by place
    assert row["us_low"] == pytest.approx(lowest, rel=0.05)
    assert row["us_high"] == pytest.approx(highest, rel=0.05)
    assert row["times"] == pytest.approx(32)
    assert row["low"] <= 32 <= row["high"]
    assert row["of_floor"] == pytest.approx(0.6)
    assert row["collected"] == pytest.approx(80 / 160)
    assert row["collected_fastest"] == pytest.approx(50 / 160)
    assert row["collected_floor"] == pytest.approx(40 / 160)
    assert table.loc[PINNED, "of_floor"] == pytest.approx(0.5)
    assert table.loc[NO_CACHE, "of_floor"] == pytest.approx(4 / 9)
    assert table.loc[CACHED_FLOOR, "of_floor"] == 1
    uncached = [PINNED, "uncached, quicker", NO_CACHE, UNCACHED_FLOOR]
    assert table["collected"].isna()[uncached].all()
    assert table["collected"].notna().drop(uncached).all()


def test_a_doctored_row_moves_the_table():
    rows = made_rows(TIMES)
    config = {"n": 10, "arithmetic_ratio": 160.0}
    before = enginebench.table(rows, config)
    rows.loc[rows["path"] == "compiled", "total_ns"] *= 2
    after = enginebench.table(rows, config)
    for column in ("times", "of_floor", "collected"):
        halved = before.loc["compiled", column] / 2
        assert after.loc["compiled", column] == pytest.approx(halved)


def test_without_rivals_the_table_has_no_ratio_to_them():
    ours = {name: ns for name, ns in TIMES.items() if name not in (USUAL, NO_CACHE)}
    table = enginebench.table(made_rows(ours), {"n": 10, "arithmetic_ratio": 160.0})
    assert table[["times", "low", "high"]].isna().all(axis=None)
    assert table.loc["compiled", "of_floor"] == pytest.approx(0.6)


# The command


def run(*words):
    return cli.main(["bench", "engine", *map(str, words)])


def test_the_command_writes_a_run_that_passes_the_audit(tmp_path, capsys):
    out = tmp_path / "run"
    assert run("--out", out, *SMALL, "--without-rivals") == 0
    said = capsys.readouterr().out
    audit = evidence.audit(out)
    assert audit.problems == []
    rows, config = enginebench.load(out)
    ways = set(enginepaths.RUNGS) | set(config["largest_difference"])
    assert set(rows["path"]) == ways | {CACHED_FLOOR, UNCACHED_FLOOR}
    assert rows["agreed"].all()
    assert (rows.groupby("path")["round"].nunique() == 7).all()
    assert all(0 < off <= config["tolerance"] for off in config["largest_difference"].values())
    assert config["smallest_gap"] > config["tolerance"]
    assert (config["n"], config["d_model"], config["context"]) == (6, 16, 128)
    assert config["arithmetic_ratio"] == pytest.approx(
        arithmetic.ratio(CharConfig(9, 128, 16, 1, 2), 6)
    )
    for name in enginebench.table(rows, config).index:
        assert name in said
    command = evidence.read(out).manifest["command"]
    assert command.endswith("--without-rivals")
    parser = argparse.ArgumentParser()
    engine_command.add_arguments(parser)
    again = parser.parse_args(command.split(" engine ")[1].split())
    assert (again.n, again.rounds, again.d_model, again.vocab) == (6, 7, 16, 9)
    assert run("--out", out, *SMALL, "--without-rivals") == 2  # it is there already


def test_missing_rivals_are_named_and_nothing_is_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(enginerivals, "missing", lambda: ["ctranslate2==1.2"])
    assert run("--out", tmp_path / "run", *SMALL) == 2
    said = capsys.readouterr().err
    assert "python -m pip install ctranslate2==1.2" in said
    assert "--without-rivals" in said
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--n", "0"], "--n and --rounds must be 1 or more"),
        (["--rounds", "0"], "--n and --rounds must be 1 or more"),
        (["--vocab", "1"], "--vocab 2 or more"),
        (["--seed", "-1"], "--seed must be 0 or more"),
        (["--heads", "3"], "d_model must be a multiple of n_heads"),
    ],
)
def test_options_that_cannot_be_are_refused(tmp_path, capsys, words, said):
    assert run("--out", tmp_path / "run", "--without-rivals", *words) == 2
    assert said in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_a_path_that_is_wrong_is_not_recorded(tmp_path, capsys, monkeypatch):
    (name, make), *_ = enginepaths.RUNGS.items()

    def spoiled(config, weights):
        return make(config, {**weights, "head.b": weights["head.b"] + np.float32(1e-3)})

    monkeypatch.setitem(enginepaths.RUNGS, name, spoiled)
    assert run("--out", tmp_path / "run", *SMALL, "--without-rivals") == 1
    assert f"{name!r} does not compute the same" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_tokens_that_differ_while_timing_are_not_recorded(tmp_path, capsys, monkeypatch):
    truly = enginepaths.paths

    def one_off(*sizes):
        ways = truly(*sizes)
        right = ways[PINNED]
        return ways | {PINNED: Path(lambda *asked: [*right.run(*asked)[::-1], 0], right.logits)}

    monkeypatch.setattr(enginepaths, "paths", one_off)
    assert run("--out", tmp_path / "run", *SMALL, "--without-rivals") == 1
    assert "outputs did not agree" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_rivals_join_the_run_with_their_versions(tmp_path, capsys, monkeypatch):
    truly = enginepaths.paths

    def stand_ins(config, weights):
        path = truly(config, weights)[PINNED]
        return {USUAL: path, "CTranslate2": path}, {enginerivals.COMPILED: "there is no compiler"}

    monkeypatch.setattr(enginerivals, "missing", list)
    monkeypatch.setattr(enginerivals, "paths", stand_ins)
    monkeypatch.setattr(engine_command.importlib.metadata, "version", lambda name: f"{name} 7")
    out = tmp_path / "run"
    assert run("--out", out, *SMALL) == 0
    said = capsys.readouterr().out
    assert f"Left out: {enginerivals.COMPILED}, since there is no compiler" in said
    rows, config = enginebench.load(out)
    assert {USUAL, "CTranslate2"} < set(rows["path"])
    assert config["versions"] == {name: f"{name} 7" for name in enginerivals.PINS}
    assert config["left_out"] == {enginerivals.COMPILED: "there is no compiler"}
