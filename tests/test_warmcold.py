"""The analogue's server and search: right before fast, counted right, judged on fresh rows."""

import gc
from dataclasses import asdict
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from labsupport import evidence, serving, warmcold
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
    for allocator in serving.ALLOCATORS:
        serving.in_fresh_process(serving.serve, allocator, cell={}, rounds=1, seed=0)
    assert all(env["OMP_NUM_THREADS"] == env["OPENBLAS_NUM_THREADS"] == "1" for env in asked)
    names = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
    assert [[n in env for n in names] for env in asked] == [
        [False, False],
        [True, True],
        [True, False],
        [False, True],
    ]


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
    touched = np.ones(4_000_000)  # 32 MB, far above what an allocator keeps at hand
    assert serving.page_faults() - before > 100
    del touched


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
    ("ratio", "verdict"), [(1.2, "slower"), (0.8, "faster"), (1.0, "cannot tell")]
)
def test_a_known_ratio_is_found(ratio, verdict):
    row = warmcold.compare(made_up(ratio)).iloc[0]
    assert row["ratio"] == pytest.approx(ratio, rel=0.01)
    assert row["low"] <= ratio <= row["high"]
    assert row["verdict"] == verdict


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
    assert command.main(["warmcold", "--out", str(out), "--rounds", "7"]) == 0
    assert "python -m labsupport audit" in capsys.readouterr().out
    assert evidence.audit(out).status.startswith("intact")

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
