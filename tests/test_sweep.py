"""The sweep is measured whole and in turns; its table follows from rows and rates alone."""

import gc
import random
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from repository import course

from labsupport import __main__ as cli
from labsupport import arithmetic, evidence, loops, machine, rates, roofline, stepwork, sweep
from labsupport.loops import PATHS
from labsupport.sweep import CELLS, QUICK, Grid, config_of, held_out, table

ROOT = Path(__file__).resolve().parents[1]
TINY = ["d16 n12", "d32 n9"]
COLUMNS = ["cell", "d_model", "n_tokens", "round", "path", "total_ns", "agreed"]
# The command, with rates of few and small sizes: those of --quick take some seconds.
SMALL_RATES = """
import sys
from labsupport import __main__, sweep_command
from labsupport import rates, stepwork, sweep
sweep.Grid.probes = lambda grid: (
    stepwork.probes([16, 32], [1, 4], [1, 16], [64, 128]) + rates.probes([10_000, 100_000])
)
rates.BATCH_NS, rates.WARM_CALLS = 1, 1
sys.exit(__main__.main(sys.argv[1:]))
"""


def few_probes(grid=None):
    return stepwork.probes([16, 32], [1, 4], [1, 16], [64, 128]) + rates.probes([10_000, 100_000])


# The grid


def test_the_full_sweep_is_that_of_the_source_and_the_widths_between():
    sizes = [(config_of(cell)[0].d_model, config_of(cell)[1]) for cell in CELLS]
    assert [n for d, n in sizes if d == 128] == [64, 128, 256, 512, 1024]
    assert [d for d, n in sizes if n == 256] == [128, 192, 256, 384, 512, 768, 1024]
    assert len(sizes) == len(set(sizes)) == 11
    assert Grid().paths == ["uncached", "concat", "preallocated", "numpy", "compiled"]
    assert Grid().rounds >= 7
    assert max(config_of(cell)[0].d_model for cell in QUICK.cells) <= 256


def test_a_model_has_room_for_the_loop_and_else_the_sources_context():
    assert config_of("d128 n1024")[0].context == 1024
    assert config_of("d128 n64")[0].context == 128
    assert config_of("d64 n64")[0].n_heads == 4


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"cells": ["128 256"]}, "a cell is written like 'd128 n256', not '128 256'"),
        ({"cells": ["d128 n256 "]}, "a cell is written like"),
        ({"cells": ["d0 n256"]}, "a cell is written like"),
        ({"cells": ["d130 n256"]}, "d_model must be a multiple of n_heads"),
        ({"cells": ["d16 n8", "d16 n8"]}, "cells must be one or more that differ"),
        ({"paths": ["uncached", "magic"]}, "paths are among uncached, .*, not 'magic'"),
        ({"paths": ["numpy"]}, "paths must hold 'uncached'"),
        ({"rounds": 5}, "rounds must be at least 6, not 5"),
    ],
)
def test_a_grid_that_cannot_be_measured_is_refused(wrong, said, tmp_path, capsys):
    with pytest.raises(ValueError, match=said):
        Grid(**wrong)
    ((name, value),) = wrong.items()
    values = value if isinstance(value, list) else [str(value)]
    assert cli.main(["sweep", "--out", str(tmp_path / "run"), f"--{name}", *values]) == 2
    assert "--help" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_no_cells_are_refused():
    with pytest.raises(ValueError, match="cells must be one or more"):
        Grid(cells=[])


# The measurement


@pytest.fixture(scope="module")
def measured():
    """The rows of a small grid and the rates."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rates, "BATCH_NS", 1)
        patch.setattr(rates, "WARM_CALLS", 1)
        patch.setattr(Grid, "probes", few_probes)
        collecting, visit = [], sweep._Visits.round
        patch.setattr(
            sweep._Visits,
            "round",
            lambda *args: (collecting.append(gc.isenabled()), visit(*args))[1],
        )
        found = sweep.measure(Grid(cells=TINY, rounds=6))
    assert not any(collecting)
    return found


def test_a_round_holds_every_loop_once_in_an_order_of_its_own(measured):
    rows, _ = measured
    assert list(rows) == COLUMNS
    assert len(rows) == len(TINY) * 6 * len(PATHS)
    assert not rows.duplicated(["cell", "round", "path"]).any()
    assert rows["round"].is_monotonic_increasing
    assert rows["agreed"].all()
    assert (rows["total_ns"] > 0).all()
    visits = rows["cell"].to_numpy()[:: len(PATHS)]  # a cell's paths follow one another
    assert (rows["cell"].to_numpy() == np.repeat(visits, len(PATHS))).all()
    assert len({tuple(visits[i : i + 2]) for i in range(0, len(visits), 2)}) == 2
    assert rows.groupby(["cell", "round"])["path"].apply(tuple).nunique() > 4
    assert gc.isenabled()


def test_rates_hold_what_predictions_need(measured):
    _, known = measured
    assert known["rounds"] == 6
    assert known["operations"] == loops.operations(config_of(TINY[0])[0])
    assert {probe.name for probe in few_probes()} == {row["name"] for row in known["probes"]}


def test_a_loop_is_timed_over_all_its_tokens_after_a_prelude(monkeypatch):
    fed = []

    def counting(config, paths):
        def wrap(loop):
            return lambda tokens: (fed.append(len(tokens)), loop(tokens))[1]

        return {path: wrap(loop) for path, loop in loops_make(config, paths).items()}

    loops_make = loops.make
    monkeypatch.setattr(loops, "make", counting)
    visits = sweep._Visits("d16 n12", list(PATHS))
    fed.clear()
    rows = visits.round(random.Random(0))
    assert fed == [sweep.PRELUDE, 12] * len(PATHS)
    assert all(row["d_model"] == 16 and row["n_tokens"] == 12 for row in rows)
    assert visits.round_s > 0


def test_logits_that_differ_are_found_before_anything_is_timed(monkeypatch):
    right = PATHS["numpy"]

    def wrong(model, weights):
        loop = right(model, weights)
        return lambda tokens: loop(tokens) * np.float32(1 + 3 * sweep.TOLERANCE)

    monkeypatch.setitem(PATHS, "numpy", wrong)
    with pytest.raises(RuntimeError, match=r"d16 n12, numpy: the logits differ by 3\.0e-04"):
        sweep.measure(Grid(cells=["d16 n12"], rounds=6))


def test_a_loop_that_comes_to_differ_is_told_in_its_row(monkeypatch):
    visits = sweep._Visits("d16 n12", ["uncached", "numpy"])
    visits.loops["numpy"] = lambda tokens: visits.wanted * np.float32(1 + 3 * sweep.TOLERANCE)
    rows = {row["path"]: row["agreed"] for row in visits.round(random.Random(0))}
    assert rows == {"uncached": True, "numpy": False}


# The table


def made_rows(cells):
    """Rows of {cell: {path: ns}} whose rounds are slow on all paths alike."""
    rows = []
    for cell, times in cells.items():
        config, n = config_of(cell)
        for i in range(7):
            for path, ns in times.items():
                total = round(ns * (1 + 2 * (i % 3 == 0)))
                row = (cell, config.d_model, n, i, path, total, True)
                rows.append(dict(zip(COLUMNS, row, strict=True)))
    return pd.DataFrame(rows)


def test_the_table_holds_speed_ups_shares_and_predictions(measured):
    _, known = measured
    cells = {"d32 n9": {"uncached": 900_000, "numpy": 300_000, "compiled": 100_000}}
    cells["d16 n12"] = {"uncached": 800_000, "numpy": 400_000, "compiled": 50_000}
    made = table(made_rows(cells), known)
    assert made["cell"].tolist() == ["d16 n12", "d32 n9"]
    assert made["d_model"].tolist() == [16, 32]
    assert made["uncached_ns"].tolist() == [800_000, 900_000]
    assert made["numpy"].tolist() == pytest.approx([2, 3])
    assert made["compiled"].tolist() == pytest.approx([16, 9])
    assert (made["numpy_low"] < made["numpy"]).all()
    assert (made["numpy"] < made["numpy_high"]).all()
    assert "concat_ns" not in made
    for _, row in made.iterrows():
        config, n = config_of(row["cell"])
        assert row["arithmetic"] == arithmetic.ratio(config, n)
        assert row["numpy_share"] == pytest.approx(row["numpy"] / row["arithmetic"])
        expected = roofline.loop(config, n, known, known["operations"])["total"]
        assert row["uncached_predicted_ns"] == pytest.approx(expected["uncached"])
        assert row["compiled_predicted_ns"] == pytest.approx(expected["compiled"])
        ratio = expected["uncached"] / expected["numpy"]
        assert row["numpy_predicted"] == pytest.approx(ratio)


def test_predictions_do_not_move_with_what_was_measured(measured):
    rows, known = measured
    slower = rows.assign(total_ns=rows["total_ns"] * 3)
    one, other = table(rows, known), table(slower, known)
    for path in PATHS:
        name = f"{path}_predicted_ns"
        assert one[name].tolist() == other[name].tolist()
        assert other[f"{path}_ns"].tolist() == (3 * one[f"{path}_ns"]).tolist()


def test_held_out_errors_are_absolute_and_relative(measured):
    _, known = measured
    cells = {cell: {"uncached": 100_000, "numpy": 10_000} for cell in TINY}
    made = table(made_rows(cells), known)
    made["uncached_ns"] = made["uncached_predicted_ns"] / [0.9, 1.3]
    made["numpy_predicted"] = made["numpy"] * [0.75, 1.01]
    errors = held_out(made)
    assert list(errors.index) == ["uncached time", "numpy time", "uncached / numpy"]
    assert errors.loc["uncached time"].to_dict() == pytest.approx(
        {"median": 0.2, "worst": 0.3, "within_25": 0.5}
    )
    assert errors.loc["uncached / numpy"].to_dict() == pytest.approx(
        {"median": 0.13, "worst": 0.25, "within_25": 1}
    )


# The command


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The directory of a small run, and what the command printed."""
    out = tmp_path_factory.mktemp("runs") / "run"
    options = ["sweep", "--out", out, "--rounds", "6", "--cells", *TINY]
    return out, course(*options, python=("-c", SMALL_RATES)).stdout


def test_a_run_audits_and_says_what_was_done(run):
    out, printed = run
    assert evidence.audit(out).status == "intact", evidence.audit(out).problems[:3]
    manifest = evidence.read(out).manifest
    assert manifest["factors"] == {"cell": TINY, "round": list(range(6)), "path": list(PATHS)}
    assert (manifest["total"], manifest["agreed"]) == ("total_ns", "agreed")
    config = manifest["config"]
    assert config == config | {"cells": TINY, "threads": 1, "dtype": "float32"}
    assert config["rates"]["operations"]["compiled"] == 1
    words = shlex.split(manifest["command"])
    assert words[:4] == ["python", "-m", "labsupport", "sweep"]
    assert words[6:] == ["--rounds", "6", "--cells", *TINY, "--paths", *PATHS]
    used = {f"labsupport/{name}.py" for name in ("sweep", "loops", "rates", "compiled")}
    assert used <= set(manifest["sources"])
    assert "The loops take about" in printed
    assert f"python -m labsupport audit {out}" in printed


def test_the_table_follows_from_the_record_alone(run):
    out, printed = run
    cells, known = sweep.load(out)
    again = table(evidence.read(out).rows, known)
    pd.testing.assert_frame_equal(cells, again)
    words = [line.split() for line in printed.splitlines()]
    cached = [path for path in PATHS if path != "uncached"]
    for _, row in cells.iterrows():
        speeds = [f"{row[path]:.2f}" for path in [*cached, "arithmetic"]]
        assert [*row["cell"].split(), *speeds] in words


@pytest.mark.parametrize(
    ("column", "value"),
    [("total_ns", "-5"), ("agreed", "False"), ("path", "numpy"), ("cell", "d16 n13")],
)
def test_doctored_rows_are_found(run, tmp_path, column, value):
    out = tmp_path / "copy"
    out.mkdir()
    for file in run[0].iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    raw = pd.read_csv(out / "raw.csv", dtype=str)
    line = int((raw[column] != value).to_numpy().nonzero()[0][3])
    raw.loc[line, column] = value
    raw.to_csv(out / "raw.csv", index=False, lineterminator="\n")
    audit = evidence.audit(out)
    assert audit.status != "intact"
    assert line + 2 in {problem.row for problem in audit.problems}


def never(*_):
    raise AssertionError("nothing may be measured")


def test_what_exists_is_refused_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sweep, "measure", never)
    (tmp_path / "run").mkdir()
    assert cli.main(["sweep", "--quick", "--out", str(tmp_path / "run")]) == 2
    assert "exists already" in capsys.readouterr().err


def test_an_interrupted_run_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setitem(PATHS, "compiled", interrupted)
    options = ["--cells", *TINY, "--rounds", "6"]
    assert cli.main(["sweep", "--out", str(tmp_path / "run"), *options]) == 130
    assert list(tmp_path.iterdir()) == []
    assert gc.isenabled()


def test_rows_that_disagree_are_not_recorded(tmp_path, monkeypatch, measured, capsys):
    rows, known = measured
    doctored = rows.assign(agreed=[False, *rows["agreed"][1:]])
    monkeypatch.setattr(sweep, "measure", lambda grid: (doctored, known))
    options = ["--cells", *TINY, "--rounds", "6"]
    assert cli.main(["sweep", "--out", str(tmp_path / "run"), *options]) == 1
    assert "the outputs did not agree" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_threads_are_looked_at_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    pools = [{"num_threads": 2}]
    monkeypatch.setattr(machine.threadpoolctl, "threadpool_info", lambda: pools)
    monkeypatch.setattr(sweep, "measure", lambda grid: pytest.fail("measured"))
    assert cli.main(["sweep", "--out", str(tmp_path / "run")]) == 1
    assert "runs 2 threads" in capsys.readouterr().err


def test_quick_is_the_grid_that_a_page_measures(tmp_path, monkeypatch, measured):
    asked = []

    def stop(grid):
        asked.append(grid)
        raise RuntimeError("enough")

    monkeypatch.setattr(sweep, "measure", stop)
    assert cli.main(["sweep", "--quick", "--out", str(tmp_path / "run")]) == 1
    assert cli.main(["sweep", "--quick", "--rounds", "9", "--out", str(tmp_path / "run")]) == 1
    assert asked[0] == QUICK
    assert asked[1] == Grid(cells=QUICK.cells, rounds=9, small=True)
