"""A reader's own run is marked by its audit, its case and its conclusion, and by nothing else."""

import json

import pandas as pd
import pytest

from labsupport import (
    audit,
    columns,
    evidence,
    jsontext,
    marking_evidence,
    profile,
    profile_command,
    seal,
)
from labsupport.marking_evidence import concluded, follows, is_intact, is_longer

CASE = profile.Case(tokens=12, prefix=10, width=8, layers=1, seeds=2, rounds=15)


def recorded(case, folder):
    """The files of a run, as texts."""
    out = folder / f"run-{case.prefix}-{case.rounds}"
    profile_command.record(evidence.begin(out), case)
    return {file.name: file.read_text(encoding="utf-8") for file in out.iterdir()}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return recorded(CASE, tmp_path_factory.mktemp("runs"))


def resealed(files, **changed):
    """The files with entries of the manifest changed, and a new seal."""
    manifest = json.loads(files["manifest.json"]) | changed
    files = files | {"manifest.json": jsontext.dump(manifest).decode()}
    held = {name: text.encode() for name, text in files.items() if name != "seal.json"}
    return files | {"seal.json": seal.make(held).decode()}


def test_a_run_as_it_was_recorded_is_right_in_all_parts(files):
    assert is_intact(files, None) is True
    assert is_longer(files["manifest.json"], None) is True
    rows = evidence_rows(files)
    assert follows([files["raw.csv"], concluded(rows)], None) is True
    assert is_intact(resealed(files), None) is True


def evidence_rows(files):
    values, problems = columns.parse(files["raw.csv"].encode(), marking_evidence.COLUMNS)
    assert not problems
    return pd.DataFrame(values)


@pytest.mark.parametrize("verdict", ["faster", "slower", "cannot tell"])
def test_whatever_the_rows_say_is_right_and_nothing_else(files, verdict):
    """Doctored so that each verdict comes out."""
    factor = {"faster": 0.5, "slower": 2, "cannot tell": 1}[verdict]
    rows = evidence_rows(files)
    full = rows[rows["path"] == "full"].set_index(["seed", "round"])["total_ns"]
    at = rows["path"] == "frozen"
    keys = list(zip(rows.loc[at, "seed"], rows.loc[at, "round"], strict=True))
    rows.loc[at, "total_ns"] = [round(full[key] * factor) for key in keys]
    raw = rows.to_csv(index=False, lineterminator="\n")
    said = ("faster", "slower", "cannot tell", "", None)
    assert [word for word in said if follows([raw, word], None)] == [verdict]


def test_a_changed_figure_in_any_file_is_found(files):
    for name, text in files.items():
        at = max(i for i, letter in enumerate(text) if letter.isdigit())
        other = "7" if text[at] != "7" else "3"
        assert not is_intact(files | {name: text[:at] + other + text[at + 1 :]}, None), name
        assert not is_intact({key: files[key] for key in files if key != name}, None), name
    assert not is_intact(files | {"more.txt": ""}, None)


def test_rows_that_do_not_fit_their_manifest_are_found_under_a_new_seal(files):
    lines = files["raw.csv"].splitlines(keepends=True)
    for raw in (
        "".join(lines[:-1]),
        "".join([*lines, lines[-1]]),
        files["raw.csv"].replace("True", "False", 1),
    ):
        doctored = files | {"raw.csv": raw}
        marks = {"raw.csv": seal.sha256(raw.encode())}
        assert not is_intact(resealed(doctored, sha256=marks), None)


@pytest.mark.parametrize(
    "changed",
    [
        {"factors": {"seed": [0, 1], "round": list(range(15)), "path": ["full"]}},
        {"factors": {name: list(range(10**4)) for name in ("seed", "round", "path")}},
        {"segments": []},
        {"total": None},
        {"agreed": None},
        {"kind": "transcription"},
        {"repeats": []},
        {"config": {}},
        {"columns": {"seed": "integer"}},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_manifest_that_asks_for_less_or_for_too_much_is_refused_at_once(files, changed):
    doctored = resealed(files, **changed)
    assert not is_intact(doctored, None)
    assert not is_longer(doctored["manifest.json"], None)


@pytest.mark.parametrize(
    ("case", "is_fit"),
    [
        (profile.Case(tokens=12, prefix=8, width=8, layers=1, seeds=2, rounds=15), False),
        (profile.Case(tokens=12, prefix=9, width=8, layers=1, seeds=2, rounds=15), True),
        (profile.Case(tokens=12, prefix=9, width=8, layers=1, seeds=1, rounds=29), False),
        (profile.Case(tokens=12, prefix=9, width=8, layers=1, seeds=1, rounds=401), False),
    ],
)
def test_the_case_has_a_longer_prefix_and_enough_rounds(case, is_fit, tmp_path):
    held = recorded(case, tmp_path)
    assert is_longer(held["manifest.json"], None) is is_fit
    assert (marking_evidence.unfit(case) is None) is is_fit
    assert is_intact(held, None) is (case.rounds < 401)


@pytest.mark.parametrize(
    "given",
    [None, 1, "", [], {}, "x" * 10**6, [[]], {"raw.csv": 1}, [None, "slower"], ["", "slower"]],
    ids=lambda given: repr(given)[:20],
)
def test_a_judge_answers_whatever_it_is_given(given, files):
    for judge in marking_evidence.JUDGES.values():
        assert judge(given, None) is False
    for name in files:
        assert not is_intact(files | {name: given}, None)


def test_files_larger_than_any_run_allowed_are_refused(files):
    assert is_intact(resealed(files, warmed="x" * 100_000), None)
    assert not is_intact(resealed(files, warmed="x" * 400_000), None)
    rows = evidence_rows(files)
    rows = rows[rows["seed"] == 0]
    many = pd.concat([rows.assign(seed=seed) for seed in range(250)])
    for kept in (many.head(len(rows)), many):
        raw = kept.to_csv(index=False, lineterminator="\n")
        said = concluded(kept)
        assert follows([raw, said], None) is (len(raw) <= marking_evidence.MOST_CHARACTERS)


def test_where_a_seal_is_broken_is_not_looked_for(files, monkeypatch):
    """To compare very many lines with a seal of very many may take hours."""
    monkeypatch.setattr(audit, "examine", lambda files: pytest.fail("it was looked for"))
    assert not is_intact(files | {"raw.csv": files["raw.csv"] + "\n"}, None)


def test_rows_that_cannot_be_read_have_no_conclusion(files):
    said = concluded(evidence_rows(files))
    assert not follows([files["raw.csv"].replace("True", "Perhaps", 1), said], None)
