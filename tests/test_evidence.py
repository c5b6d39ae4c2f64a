"""Recorded evidence is written whole or not at all, and read back exactly."""

import json
import os
import shutil
import statistics
import subprocess
import sys
from datetime import UTC, datetime, timedelta
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
    before = datetime.now(UTC)
    run = evidence.read(sample_run.write(tmp_path / "run", factors=factors, command=command))
    manifest = run.manifest
    assert (manifest["schema"], manifest["kind"]) == (1, "run")
    assert manifest["command"] == "python -m labsupport profile --out 'my run'"
    assert manifest["factors"] == sample_run.FACTORS
    assert manifest["repeats"] == ["seed", "round"]
    assert manifest["seeds"] == [0, 1, 2]
    times = [datetime.fromisoformat(manifest[name]) for name in ("started", "ended")]
    second = timedelta(seconds=1)  # to which times are cut
    assert before - second < times[0] <= times[1] <= datetime.now(UTC)
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


@pytest.mark.parametrize("kind", ["float16", "float32", "Float32", "Float64"])
def test_floats_of_any_width_keep_their_value(tmp_path, kind):
    values = pd.Series([0.1, 1 / 3, 2.5e-7, 1000.5]).astype(kind)
    plan = {"factors": {"i": range(4)}, "total": None, "segments": [], "agreed": None}
    table = pd.DataFrame({"i": np.arange(4, dtype="int32"), "x": values})
    read = evidence.read(sample_run.write(tmp_path / "run", table, **plan)).rows
    assert read["x"].tolist() == [float(x) for x in values]
    assert (read["x"].dtype, read["i"].dtype) == ("float64", "int64")
    assert table["x"].dtype == kind  # the caller's own rows are as they were


def test_numbers_that_float64_cannot_hold_are_refused(tmp_path):
    values = np.full(4, np.longdouble(1) / 3)
    plan = {"factors": {"i": range(4)}, "total": None, "segments": [], "agreed": None}
    table = pd.DataFrame({"i": range(4), "x": values})
    if values.dtype.itemsize == 8:  # there a long double is a float64
        assert (
            evidence.read(sample_run.write(tmp_path / "run", table, **plan)).rows["x"][0] == 1 / 3
        )
        return
    with pytest.raises(ValueError, match=r"'x'.* cannot be recorded"):
        sample_run.write(tmp_path / "run", table, **plan)
    assert list(tmp_path.iterdir()) == []


# --- refusals: nothing is written, nothing is lost ----------------------------------------------


def test_whatever_exists_is_left_as_it_is(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    for name in ("empty", "file"):
        with pytest.raises(FileExistsError, match="exists already"):
            sample_run.write(tmp_path / name)
        with pytest.raises(FileExistsError, match=name):
            evidence.begin(tmp_path / name)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["empty", "file"]
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def test_what_came_while_measuring_is_left_as_it_is(tmp_path):
    begun = evidence.begin(tmp_path / "run")
    (tmp_path / "run").write_text("mine", encoding="utf-8")
    with pytest.raises(FileExistsError, match="exists already"):
        evidence.write(begun, sample_run.rows(), **sample_run.arguments())
    assert [p.read_text(encoding="utf-8") for p in tmp_path.iterdir()] == ["mine"]


def test_a_place_that_cannot_be_written_is_refused_at_the_start(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    for out in ("file/run", "file/deep/run"):
        with pytest.raises(OSError, match=r"nothing can be created in .*file .*another directory"):
            evidence.begin(tmp_path / out)

    def read_only(path, *_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", read_only)
    with pytest.raises(OSError, match=r"cannot be written: .*Permission denied"):
        evidence.begin(tmp_path / "deep" / "run")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_the_start_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for out in (tmp_path / "run", tmp_path / "deep" / "run", "run", "deep/run"):
        assert evidence.begin(out).out == Path(out)
    assert list(tmp_path.iterdir()) == []


CODE_CHANGES = """
import json, pathlib, sys
import sample_run
from labsupport import evidence, machine
begun = evidence.begin(sys.argv[1])
{change}
try:
    evidence.write(begun, sample_run.rows(), **sample_run.arguments())
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("", ""),
        ("append('books')", "labsupport/books.py"),  # loaded before
        ("append('prefix'); import labsupport.prefix", "labsupport/prefix.py"),  # loaded later
        ("append('ledger')", "what git says"),  # never loaded, but the tree is no longer clean
    ],
)
def test_code_that_changes_while_measuring_is_no_evidence(tmp_path, change, words):
    tree, out = tmp_path / "tree", tmp_path / "run"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(machine.PACKAGE, tree / "labsupport", ignore=ignore)
    shutil.copy(ROOT / ".gitignore", tree)
    settings = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words_of_git in (["init"], ["add", "."], ["commit", "-m", "all"]):
        command = ["git", *settings, *words_of_git]
        subprocess.run(command, cwd=tree, check=True, capture_output=True)
    script = "def append(name):\n    file = machine.PACKAGE / f'{name}.py'\n"
    script += "    file.write_bytes(file.read_bytes() + b'# changed')\n"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tree), str(ROOT / "tests")])}
    done = subprocess.run(
        [sys.executable, "-c", CODE_CHANGES.format(change=script + change), str(out)],
        cwd=tree,
        env=environment,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    assert out.exists() == (not words)
    assert ("Nothing was written" in done.stdout and words in done.stdout) == bool(words)


def test_a_tree_that_was_put_right_by_the_end_is_no_evidence(tmp_path, monkeypatch):
    begun = evidence.begin(tmp_path / "run")
    monkeypatch.setattr(machine, "commit", lambda: {"commit": "0" * 40, "clean": True})
    with pytest.raises(ValueError, match="what git says of the commit"):
        evidence.write(begun, sample_run.rows(), **sample_run.arguments())
    assert list(tmp_path.iterdir()) == []


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
    for name in ("", ".", "..", "../evidence", "../evidence/my-run", "my-run/", str(tmp_path)):
        with pytest.raises(FileNotFoundError, match=r"no evidence named .*my-run"):
            evidence.directory(name)
    with pytest.raises(FileNotFoundError, match="no evidence named ''"):
        evidence.read("")
    with pytest.raises(FileNotFoundError, match=r"'other'.*my-run"):
        evidence.directory("other")


def test_a_name_means_the_evidence_and_a_path_the_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    for out, warmed in (("evidence/run", "recorded"), ("run", "mine"), ("other", "other")):
        sample_run.write(Path(out), warmed=warmed)
    said = ["run", Path("run"), "./run", "evidence/run", "other"]
    warmed = [evidence.read(name).manifest["warmed"] for name in said]
    assert warmed == ["recorded", "mine", "mine", "recorded", "other"]


def test_a_transcription_is_not_read_as_a_run():
    with pytest.raises(ValueError, match=r"stall-log is a transcription, not a run\. Its manifest"):
        evidence.read("stall-log")


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
