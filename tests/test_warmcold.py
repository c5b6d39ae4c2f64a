"""The analogue's server and search: right before fast, counted right, judged on fresh rows."""

import argparse
import gc
import itertools
import math
import mmap
import os
import shlex
import subprocess
import sys
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from labsupport import evidence, machine, serving, timing, warmcold
from labsupport.serving import Cell, Server

RECORDED = evidence.read("warm-slower")
SMALL = {"d_model": 16, "n_prompt": 5, "n_new": 3}


@pytest.mark.parametrize("cache", serving.CACHES)
@pytest.mark.parametrize("hit", serving.HITS)
@pytest.mark.parametrize("n_prompt", [1, 5])
@pytest.mark.parametrize("seed", [0, 1])
def test_cold_and_warm_agree_with_no_cache_at_all(cache, hit, n_prompt, seed):
    server = Server(Cell(cache, hit, 16, n_prompt, 3), seed)
    reference = server.full()
    assert reference.shape == (3, serving.VOCAB_SIZE)
    for _ in range(2):  # a second hit must find what the first one found
        for path in (server.cold, server.warm):
            _, logits, _ = path()
            assert np.abs(np.array(logits) - reference).max() <= serving.TOLERANCE


def test_a_warm_request_computes_one_prompt_token():
    server = Server(Cell(**SMALL), 0)
    seen = []
    forward = server.decoder.forward
    server.decoder.forward = lambda tokens, caches=None: (
        seen.append(len(tokens)) or forward(tokens, caches)
    )
    server.cold()
    server.warm()
    assert seen == [5, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("cache", serving.CACHES)
@pytest.mark.parametrize("hit", serving.HITS)
def test_bytes_are_those_of_the_shapes(cache, hit):
    """Counted from the shapes alone: rows of d_model float32 numbers, two a layer."""
    n_prompt, n_new, row = 5, 3, 2 * 10 * 16 * 4
    server = Server(Cell(cache, hit, 16, n_prompt, n_new), 0)
    kept = n_prompt - 1
    stored = {"concat": kept, "doubling": kept, "preallocated": serving.CAPACITY}[cache]
    copied = stored if hit == "whole storage" else kept
    lengths = range(kept, kept + n_new)  # held before each append of the request
    if cache == "concat":
        grown = sum(lengths)
    else:  # one doubling, from 4 to 8 rows
        grown = kept if cache == "doubling" else 0
    _, _, caches = server.warm()
    bytes_copied, n_allocations = server.moved("warm", caches)
    assert bytes_copied == (copied + grown) * row
    moves = {"concat": n_new, "doubling": 1, "preallocated": 0}[cache]
    assert n_allocations == 2 * 10 * (1 + moves)


def test_a_request_with_wrong_logits_is_refused_before_timing(monkeypatch):
    def spoiled(cache):  # values: a constant added to every key would cancel in the softmax
        copy = cache.copy()
        copy.writable_views()[1][...] += 1
        return copy

    monkeypatch.setitem(serving.HITS, "rows", spoiled)
    with pytest.raises(AssertionError, match="a warm request differs"):
        serving.measure(Server(Cell(hit="rows", **SMALL), 0), rounds=2, seed=0)


SPOILED = """
from labsupport import serving
def spoiled(cache):
    copy = cache.copy()
    copy.writable_views()[1][...] += 1
    return copy
serving.HITS["rows"] = spoiled
try:
    serving.serve({"hit": "rows", "d_model": 16, "n_prompt": 5, "n_new": 3}, rounds=2, seed=0)
except AssertionError as error:
    print(error)
"""


def test_wrong_logits_are_refused_where_asserts_are_switched_off():
    environment = os.environ | {"PYTHONOPTIMIZE": "1", "PYTHONPATH": str(machine.ROOT)}
    command = [sys.executable, "-c", SPOILED]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("a warm request differs from full recomputation")


def test_segments_add_up_and_each_round_holds_both_paths():
    rows = pd.DataFrame(serving.measure(Server(Cell(**SMALL), 0), rounds=6, seed=1))
    parts = rows["take_ns"] + rows["first_ns"] + rows["decode_ns"]
    assert (parts == rows["total_ns"]).all()
    assert (rows.groupby("round")["path"].nunique() == 2).all()
    first = rows.groupby("round")["path"].first()
    assert first.nunique() == 2  # the order is not always the same


def test_the_order_is_drawn_and_not_alternated():
    rows = pd.DataFrame(serving.measure(Server(Cell(**SMALL), 0), rounds=12, seed=1))
    first = rows.groupby("round")["path"].first().tolist()
    assert any(a == b for a, b in pairwise(first))
    again = pd.DataFrame(serving.measure(Server(Cell(**SMALL), 0), rounds=12, seed=1))
    assert first == again.groupby("round")["path"].first().tolist()


def test_the_collector_is_off_while_timing_and_back_after():
    seen = []

    class Watched(Server):
        def cold(self):
            seen.append(gc.isenabled())
            return super().cold()

    assert gc.isenabled()
    serving.measure(Watched(Cell(**SMALL), 0), rounds=3, seed=0, warmup=2)
    assert seen == [False] * (2 + 3)  # warm-up included
    assert gc.isenabled()
    with pytest.raises(AssertionError):
        serving.measure(_answers_off_by(1.0), rounds=1, seed=0)
    assert gc.isenabled()


def _answers_off_by(shift):
    server = Server(Cell(**SMALL), 0)
    warm = server.warm

    def shifted():
        stamps, logits, caches = warm()
        return stamps, [row + np.float32(shift) for row in logits], caches

    server.warm = shifted
    return server


def test_the_tolerance_is_that_of_rounding():
    serving.measure(_answers_off_by(1e-6), rounds=1, seed=0)
    with pytest.raises(AssertionError, match="a warm request differs"):
        serving.measure(_answers_off_by(1e-3), rounds=1, seed=0)


def test_stamps_go_to_their_segments_and_faults_are_counted(monkeypatch):
    """With a clock and a counter of our own: each reading is ten times as far as the last."""
    readings = iter([0, 1, 11, 111, 1000, 1002, 1022, 1222])
    monkeypatch.setattr(serving, "perf_counter_ns", lambda: next(readings))
    counts = iter([5, 8, 8, 20])
    monkeypatch.setattr(serving, "page_faults", lambda: next(counts))
    server = Server(Cell(**SMALL), 0)
    rows = serving.measure(server, rounds=1, seed=0, warmup=0)
    parts = [[r[c] for c in ("take_ns", "first_ns", "decode_ns", "total_ns")] for r in rows]
    assert parts == [[1, 10, 100, 111], [2, 20, 200, 222]]
    assert [r["page_faults"] for r in rows] == [3, 12]


def test_a_fresh_process_gets_one_thread_and_its_allocator(monkeypatch):
    asked = []

    def run(command, **options):
        asked.append(options["env"])
        return SimpleNamespace(returncode=0, stdout="[]")

    monkeypatch.setattr(serving.subprocess, "run", run)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "7")  # the reader's own allocator
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=7")
    monkeypatch.setenv("UNRELATED", "kept")
    for allocator in serving.ALLOCATORS:
        serving.in_fresh_process(serving.serve, allocator, cell={}, rounds=1, seed=0)
    assert all(env["OMP_NUM_THREADS"] == env["OPENBLAS_NUM_THREADS"] == "1" for env in asked)
    assert all(env["UNRELATED"] == "kept" for env in asked)
    high, set_by = str(2**30), ("MALLOC_", "GLIBC_")
    trim, mmap = {"MALLOC_TRIM_THRESHOLD_": high}, {"MALLOC_MMAP_THRESHOLD_": high}
    assert [{k: v for k, v in env.items() if k.startswith(set_by)} for env in asked] == [
        {},
        trim | mmap,
        trim,
        mmap,
    ]


@pytest.mark.parametrize("variable", [None, "PYTHONPATH"])
def test_a_fresh_process_runs_this_package_and_no_other(tmp_path, monkeypatch, variable):
    other = tmp_path / "labsupport"
    other.mkdir()
    (other / "__init__.py").write_text("", encoding="utf-8")
    answer = "def answer(): print('[1]')\n"
    (other / "serving.py").write_text(answer, encoding="utf-8", newline="\n")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    if variable:
        monkeypatch.setenv(variable, str(tmp_path))
    cost = serving.in_fresh_process(serving.fill, cache="concat", n_tokens=3)
    assert cost["bytes_held"] == 3 * 2 * 4 * 32 * 4


def test_a_fresh_process_measures_the_same_requests():
    cell = asdict(Cell(**SMALL))
    rows = serving.in_fresh_process(serving.serve, cell=cell, rounds=2, seed=3)
    here = serving.measure(Server(Cell(**SMALL), 3), rounds=2, seed=3)
    counted = ["round", "path", "bytes_copied", "n_allocations", "agreed"]
    assert [[r[c] for c in counted] for r in rows] == [[r[c] for c in counted] for r in here]


def test_a_failing_process_says_why():
    with pytest.raises(RuntimeError, match="d_model"):
        serving.in_fresh_process(serving.serve, cell={"d_model": 7}, rounds=1, seed=0)


@pytest.mark.parametrize("cache", serving.CACHES)
def test_filling_costs_what_the_policy_says(cache):
    n, row = 100, 2 * 4 * 32 * 4
    cost = serving.fill(cache, n)
    copied = {"concat": n * (n - 1) // 2, "doubling": 127, "preallocated": 0}[cache]
    assert cost["bytes_copied"] == copied * row
    held = {"concat": n, "doubling": 128, "preallocated": serving.CAPACITY}[cache]
    assert cost["bytes_held"] == held * row
    assert cost == cost | {
        k: v
        for k, v in serving.in_fresh_process(serving.fill, cache=cache, n_tokens=n).items()
        if k not in ("total_ns", "page_faults")
    }


def test_page_faults_see_memory_touched_for_the_first_time():
    before = serving.page_faults()
    touched = mmap.mmap(-1, 2**25)  # 32 MB from the system, whatever the allocator has kept
    touched[:: mmap.PAGESIZE] = bytes(2**25 // mmap.PAGESIZE)
    assert serving.page_faults() - before > 10  # 16 where pages are huge, thousands elsewhere
    touched.close()


def made_up(ratio, phase="search", hit="rows", n=30, seed=0):
    """Rows of one cell in which warm takes `ratio` times as long as cold, within a percent."""
    rng = np.random.default_rng(seed)
    levels = {"phase": phase, "cache": "concat", "hit": hit, "allocator": "default"}
    rows = []
    for i in range(n):
        for path, scale in (("cold", 1.0), ("warm", ratio)):
            total = int(1e6 * scale * rng.normal(1, 0.003))
            counts = dict.fromkeys(["bytes_copied", "n_allocations", "page_faults"], 0)
            times = {"total_ns": total, "take_ns": 0, "first_ns": total, "decode_ns": 0}
            rows.append(levels | SMALL | {"round": i, "path": path} | times | counts)
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [(r, "slower") for r in (1.2, 1.05)]
    + [(r, "faster") for r in (0.8, 0.95)]
    + [(r, "cannot tell") for r in (1.0, 1.014, 0.986)],  # the last two: below 2 %
)
def test_a_known_ratio_is_found(ratio, verdict):
    row = warmcold.compare(made_up(ratio)).iloc[0]
    assert row["ratio"] == pytest.approx(ratio, rel=0.01)
    assert row["low"] <= ratio <= row["high"]
    assert row["verdict"] == verdict


def test_rounds_are_paired_and_medians_are_over_rounds():
    """Worked by hand: warm over cold is 8, 4 and five times a half."""
    cold, warm = [1, 2, 4, 8, 16, 32, 64], [8, 1, 2, 4, 64, 16, 32]
    rows = made_up(1.0, n=7).sort_values(["path", "round"])
    rows["total_ns"] = [1000 * t for t in cold + warm]
    rows["page_faults"] = [9, 1, 2, 3, 4, 5, 6, 0, 0, 0, 7, 8, 9, 9]
    row = warmcold.compare(rows.sample(frac=1, random_state=3)).iloc[0]
    assert row["ratio"] == pytest.approx(0.5)
    assert row["low"] == pytest.approx(0.5 / (1 + timing.PLACEMENT_FLOOR))
    above = math.hypot(math.log(16), math.log1p(timing.PLACEMENT_FLOOR))  # from 0.5 to 8, and more
    assert row["high"] == pytest.approx(0.5 * math.exp(above))
    assert [row[f"{path}_total_ns"] for path in serving.PATHS] == [8000, 8000]
    assert [row[f"{path}_page_faults"] for path in serving.PATHS] == [4, 7]


def test_every_cell_is_asked_for_in_an_order_and_with_seeds_of_its_phase(monkeypatch):
    grid = {
        "cache": ["concat", "doubling"],
        "allocator": ["default", "keeps memory", "trim threshold alone"],
        "n_new": [1, 2, 3, 4],
    }
    asked = []

    def noted(task, allocator, cell, rounds, seed):
        assert (task, rounds) == (serving.serve, 7)
        asked.append(({**cell, "allocator": allocator}, seed))
        return [{"round": 0, "asked": len(asked) - 1}]

    monkeypatch.setattr(warmcold, "in_fresh_process", noted)

    def order(phase, seed):
        """The cells as asked for, and their seeds, after checking the rows against them."""
        asked.clear()
        rows = warmcold._times(phase, 7, seed, grid)
        for row in rows:
            cell, _ = asked[row["asked"]]
            assert row == {"phase": phase, **cell, "round": 0, "asked": row["asked"]}
        cells = [tuple(cell[name] for name in grid) for cell, _ in asked]
        assert sorted(cells) == sorted(itertools.product(*grid.values()))
        return cells, [seed for _, seed in asked]

    drawn = [order(phase, seed) for phase in warmcold.PHASES for seed in (0, 1)]
    assert order("search", 0) == drawn[0]
    orders = [cells for cells, _ in drawn] + [list(itertools.product(*grid.values()))]
    assert all(a != b for a, b in itertools.combinations(orders, 2))
    seeds = [seed for _, seeds in drawn for seed in seeds]
    assert len(set(seeds)) == len(seeds) == 4 * 24


def test_what_the_search_found_is_judged_by_fresh_rows_alone():
    lucky = [made_up(1.2), made_up(1.0, "confirm", seed=1)]
    solid = [made_up(1.2, hit="whole storage"), made_up(1.3, "confirm", "whole storage")]
    faster = [made_up(0.8).assign(n_new=1), made_up(1.2, "confirm").assign(n_new=1)]
    confirmed = warmcold.confirmed(pd.concat([*lucky, *solid, *faster]))
    assert list(confirmed["hit"]) == ["whole storage", "rows"]
    assert list(confirmed["verdict"]) == ["slower", "cannot tell"]
    assert confirmed["ratio"].iloc[0] == pytest.approx(1.3, rel=0.01)


def test_nothing_slower_is_an_answer():
    rows = pd.concat([made_up(0.8), made_up(0.8, "confirm")])
    assert warmcold.confirmed(rows).empty


def test_the_recorded_search_is_whole_and_audits():
    assert RECORDED.manifest["factors"] | warmcold.GRID == RECORDED.manifest["factors"]
    levels = np.prod([len(v) for v in RECORDED.manifest["factors"].values()])
    assert len(RECORDED.rows) == levels
    assert RECORDED.rows["agreed"].all()
    audit = evidence.audit(evidence.directory("warm-slower"))
    assert audit.status != "failed", audit.problems[:3]


def test_the_recorded_run_was_made_from_a_clean_tree():
    assert RECORDED.manifest["git"]["clean"] is True


def test_a_small_search_can_be_run_and_audited(tmp_path, monkeypatch, capsys):
    from labsupport import __main__ as command

    grid = {"cache": ["concat"], "hit": ["rows"], "allocator": ["default"], **{
        name: [level] for name, level in SMALL.items()
    }}  # fmt: skip
    monkeypatch.setattr(warmcold, "GRID", grid)
    out = tmp_path / "run"
    options = ["--rounds", "7", "--seed", "3"]
    assert command.main(["warmcold", "--out", str(out), *options]) == 0
    assert "python -m labsupport audit" in capsys.readouterr().out
    assert evidence.audit(out).status.startswith("intact")
    words = shlex.split(evidence.read(out).manifest["command"])
    assert words[:4] == ["python", "-m", "labsupport", "warmcold"]
    parser = argparse.ArgumentParser()
    warmcold.add_arguments(parser)
    again = vars(parser.parse_args(words[4:]))
    assert again == {"out": str(out), "rounds": 7, "seed": 3}

    before = sorted(p.read_bytes() for p in out.iterdir())
    assert command.main(["warmcold", "--out", str(out), "--rounds", "7"]) == 2
    assert sorted(p.read_bytes() for p in out.iterdir()) == before  # refused, nothing touched


def test_an_interrupted_search_leaves_nothing(tmp_path, monkeypatch):
    from labsupport import __main__ as command

    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(warmcold, "in_fresh_process", interrupted)
    assert command.main(["warmcold", "--out", str(tmp_path / "run")]) == 130
    assert list(tmp_path.iterdir()) == []


def never(*_args, **_kwargs):
    raise AssertionError("nothing may be measured")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--out", "run", "--rounds", "5"], "--rounds must be at least 6, not 5"),
        (["--out", "run", "--rounds", "0"], "--rounds must be at least 6, not 0"),
        (["--out", "run", "--rounds=-5"], "--rounds must be at least 6, not -5"),
        (["--out", "run", "--seed=-1"], "--seed must be 0 or more, not -1"),
        (["--out", "file"], "file exists already"),
        (["--out", "file/run"], f"{Path('file/run')} cannot be written"),
    ],
)
def test_what_cannot_be_searched_is_refused_in_one_line(
    tmp_path, monkeypatch, capsys, options, said
):
    from labsupport import __main__ as command

    monkeypatch.setattr(warmcold, "in_fresh_process", never)
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine", encoding="utf-8")
    assert command.main(["warmcold", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(said)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_the_fewest_rounds_are_those_that_have_an_interval():
    assert np.isinf(warmcold.compare(made_up(1.2, n=warmcold.MIN_ROUNDS - 1))["high"]).all()
    assert np.isfinite(warmcold.compare(made_up(1.2, n=warmcold.MIN_ROUNDS))["high"]).all()


def test_a_search_whose_code_changed_is_not_recorded(tmp_path, monkeypatch, capsys):
    from labsupport import __main__ as command

    def rows(_task, _allocator, cell, rounds, seed):
        counts = dict.fromkeys(["bytes_copied", "n_allocations", "page_faults"], 0)
        times = {"total_ns": 3, "take_ns": 1, "first_ns": 1, "decode_ns": 1, "agreed": True}
        pairs = itertools.product(range(rounds), serving.PATHS)
        return [{"round": i, "path": path, **times, **counts} for i, path in pairs]

    monkeypatch.setattr(warmcold, "in_fresh_process", rows)
    monkeypatch.setattr(machine, "changed_since", lambda *_: ["labsupport/serving.py"])
    assert command.main(["warmcold", "--out", str(tmp_path / "run"), "--rounds", "6"]) == 1
    (line,) = [x for x in capsys.readouterr().err.splitlines() if "Nothing was written" in x]
    assert "labsupport/serving.py" in line
    assert list(tmp_path.iterdir()) == []
