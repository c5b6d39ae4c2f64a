"""Recorded evidence is written whole or not at all, and read back exactly."""

import json
import os
import statistics
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sample_run
from hypothesis import given, settings
from hypothesis import strategies as st

from labsupport import audit, evidence, machine

ROOT = Path(__file__).resolve().parents[1]


def test_a_run_is_read_back_as_it_was_measured(tmp_path):
    run = evidence.read(sample_run.write(tmp_path / "run"))
    pd.testing.assert_frame_equal(run.rows, sample_run.rows(), check_exact=True)
    raw = (tmp_path / "run" / "raw.csv").read_bytes()
    assert b"\r" not in raw
    assert b".0," not in raw  # integer nanoseconds stay integers


@settings(max_examples=40, deadline=None)
@given(
    numbers=st.lists(
        st.floats(allow_nan=False, allow_infinity=False) | st.none(), min_size=4, max_size=4
    ).filter(lambda x: x != [None] * 4),
    integers=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=4, max_size=4),
    texts=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\r\n")), min_size=4, max_size=4
    ),
)
def test_any_values_survive_the_file(tmp_path_factory, numbers, integers, texts):
    table = pd.DataFrame({"i": range(4), "x": pd.Series(numbers, dtype=float), "k": integers})
    table["t"] = pd.Series(texts, dtype="str")
    out = tmp_path_factory.mktemp("any") / "run"
    plan = {"factors": {"i": range(4)}, "total": None, "segments": [], "agreed": None}
    sample_run.write(out, table, **plan, repeats=[])
    pd.testing.assert_frame_equal(evidence.read(out).rows, table, check_exact=True)
    assert evidence.audit(out).status == audit.INTACT


def test_texts_that_look_like_something_else_stay_texts(tmp_path):
    texts = ["NA", "", "None", "007", "1e5", "True", 'say "a, b"', "null"]
    table = pd.DataFrame({"i": range(8), "t": texts})
    plan = {"factors": {"i": range(8)}, "total": None, "segments": [], "agreed": None}
    assert (
        evidence.read(sample_run.write(tmp_path / "r", table, **plan)).rows["t"].tolist() == texts
    )


def test_the_manifest_says_what_was_run(tmp_path):
    factors = {"seed": range(3), "round": np.arange(4), "path": tuple(sample_run.PATHS)}
    command = ["python", "-m", "labsupport", "profile", "--out", "my run"]
    run = evidence.read(sample_run.write(tmp_path / "run", factors=factors, command=command))
    manifest = run.manifest
    assert (manifest["schema"], manifest["kind"]) == (1, "run")
    assert manifest["command"] == "python -m labsupport profile --out 'my run'"
    assert manifest["factors"] == sample_run.FACTORS
    assert manifest["repeats"] == ["seed", "round"]
    assert manifest["seeds"] == [0, 1, 2]
    assert (manifest["started"], manifest["ended"]) == (
        "2031-05-06T07:08:09+00:00",
        "2031-05-06T07:09:00+00:00",
    )
    assert manifest["sources"]["labsupport/evidence.py"] == machine.source_hash(
        ROOT / "labsupport" / "evidence.py"
    )
    assert manifest["machine"].keys() == machine.describe().keys()
    assert str(tmp_path) not in json.dumps(manifest)


def test_the_summary_holds_the_quartiles_of_each_path(tmp_path):
    run = evidence.read(sample_run.write(tmp_path / "run"))
    assert [row["path"] for row in run.summary["rows"]] == sample_run.PATHS
    for row in run.summary["rows"]:
        rows = run.rows[run.rows["path"] == row["path"]]
        assert row.keys() == {"path", "total_ns", *sample_run.SEGMENTS, "error"}
        for name in row.keys() - {"path"}:
            q1, q3 = np.quantile(rows[name], [0.25, 0.75])
            assert row[name]["n"] == 12
            assert row[name]["median"] == statistics.median(rows[name].tolist())
            assert [row[name]["q1"], row[name]["q3"]] == pytest.approx([q1, q3], rel=1e-14)


def test_the_summary_leaves_out_what_was_not_measured(tmp_path):
    table = pd.DataFrame({"path": ["a", "b"], "seed": [1, 1], "x": [0.5, np.nan]})
    plan = {"factors": {"path": ["a", "b"], "seed": [1]}, "total": None, "segments": []}
    run = evidence.read(sample_run.write(tmp_path / "run", table, **plan, agreed=None))
    a, b = (row["x"] for row in run.summary["rows"])
    assert a == {"n": 1, "median": 0.5, "q1": 0.5, "q3": 0.5}
    assert b == {"n": 0, "median": None, "q1": None, "q3": None}


# --- refusals: nothing is written, nothing is lost ----------------------------------------------


def test_whatever_exists_is_left_as_it_is(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    for name in ("empty", "file"):
        with pytest.raises(FileExistsError, match="exists already"):
            sample_run.write(tmp_path / name)
        with pytest.raises(FileExistsError, match=name):
            evidence.refuse_existing(tmp_path / name)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["empty", "file"]
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def damaged(**columns) -> pd.DataFrame:
    """The sample rows with line 5 of the file, and only it, changed in these columns."""
    table = sample_run.rows()
    for name, value in columns.items():
        table.loc[3, name] = value
    return table


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (damaged(total_ns=1), "raw.csv:5:total_ns: the row does not close"),
        (damaged(copy_ns=-1), "raw.csv:5:copy_ns: found -1"),
        (damaged(agreed=False), "raw.csv:5:agreed: found False"),
        (damaged(path="other"), 'raw.csv:5:path: found "other"'),
        (damaged(error=np.inf), 'raw.csv:5:error: found "inf"'),
        (sample_run.rows().iloc[1:], "1 of 36 expected rows are missing"),
        (pd.concat([sample_run.rows(), sample_run.rows()[:1]]), "raw.csv:38: seed 0"),
        (sample_run.rows().drop(columns="copy_ns"), '"copy_ns" must be a column of integers'),
        (sample_run.rows().astype({"total_ns": float}), '"total_ns" must be a column of integers'),
        (damaged(note="two\nlines"), "'note'.* cannot be recorded"),
        (damaged(note=None), "'note'.* cannot be recorded"),
        (sample_run.rows().rename(columns={"note": "error"}), "differ"),
        (sample_run.rows()[:0], "36 of 36 expected rows are missing"),
    ],
)
def test_rows_that_are_no_evidence_are_refused(tmp_path, table, words):
    with pytest.raises(ValueError, match=words):
        sample_run.write(tmp_path / "run", table)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"factors": {"nowhere": [1]}}, "no such column"),
        ({"agreed": "note"}, "must be a true/false column"),
        ({"repeats": ["nowhere"]}, "not among the factors"),
        ({"started": datetime(2031, 5, 6)}, "started needs a time zone"),
        ({"config": {"out": Path("x")}}, "cannot be recorded in manifest.json"),
        ({"config": {"x": np.nan}}, "JSON"),
    ],
)
def test_arguments_that_say_nothing_true_are_refused(tmp_path, changes, words):
    with pytest.raises(ValueError, match=words):
        sample_run.write(tmp_path / "run", **changes)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("after", range(4))
def test_a_run_interrupted_while_it_is_written_leaves_nothing(tmp_path, monkeypatch, after):
    written = []
    write_bytes = Path.write_bytes

    def interrupted(path, data):
        if len(written) == after:
            raise KeyboardInterrupt
        written.append(path)
        return write_bytes(path, data)

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sample_run.write(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_run_killed_while_it_is_written_never_looks_whole(tmp_path):
    script = """if True:
        import os, pathlib, sys
        import sample_run
        write_bytes = pathlib.Path.write_bytes
        def killed(path, data):
            if path.name == "summary.json":
                os._exit(9)
            return write_bytes(path, data)
        pathlib.Path.write_bytes = killed
        sample_run.write(sys.argv[1])
    """
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "run")], env=environment)
    assert done.returncode == 9
    assert not (tmp_path / "run").exists()
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".run.partial")
    assert evidence.audit(left).status == audit.FAILED
    sample_run.write(tmp_path / "run")  # what was left is in nobody's way


# --- finding and reading ------------------------------------------------------------------------


def test_evidence_is_found_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    with pytest.raises(FileNotFoundError, match="pip install --editable"):
        evidence.directory("my-run")
    sample_run.write(tmp_path / "evidence" / "my-run")
    assert evidence.directory("my-run") == tmp_path / "evidence" / "my-run"
    assert len(evidence.read("my-run").rows) == 36
    with pytest.raises(FileNotFoundError, match=r"'other'.*my-run"):
        evidence.directory("other")


def test_a_run_that_cannot_be_read_points_to_the_audit(tmp_path):
    run = sample_run.write(tmp_path / "run")
    raw = run / "raw.csv"
    raw.write_bytes(raw.read_bytes().replace(b"True", b"maybe", 1))
    with pytest.raises(ValueError, match="python -m labsupport audit"):
        evidence.read(run)
    raw.unlink()
    with pytest.raises(FileNotFoundError, match=r"raw\.csv"):
        evidence.read(run)
    (run / "manifest.json").write_bytes(b"[]")
    with pytest.raises(ValueError, match="python -m labsupport audit"):
        evidence.read(run)
