"""The master notebooks: nbval sees every deterministic cell; students get what follows."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from exercise_code import CHAPTERS, SOURCE, Sheet, loaded_points

import exercises
from labsupport import answers

ROOT = Path(__file__).resolve().parent.parent
STUDENT = ROOT / "exercises" / "student"
CELL_SECONDS = 120


def validate(path):
    """Run nbval on one notebook: the outcome of each code cell, in order, as pytest's letters."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--nbval",
        "--nbval-current-env",
        "-p",
        "no:cacheprovider",
    ]
    command += [f"--nbval-cell-timeout={CELL_SECONDS}", "-rA", "--tb=no", "-q", path.name]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, env=quiet())
    lines = re.findall(
        r"^(PASSED|FAILED|ERROR|XFAIL\w*) \S+::Cell (\d+)", done.stdout, re.MULTILINE
    )
    return {int(index): outcome for outcome, index in lines}, done.stdout


def quiet():
    """The environment without what this run of pytest was told."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST")}
    return kept | {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}


def is_compared(cell):
    return "nbval-ignore-output" not in cell.metadata.get("tags", [])


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_nbval_accepts_the_master(chapter):
    outcomes, said = validate(SOURCE / chapter / f"{chapter}.ipynb")
    assert len(outcomes) == len(Sheet(chapter).cells), said
    assert set(outcomes.values()) == {"PASSED"}, said


@pytest.mark.parametrize("what", ["text", "answers"])
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_nbval_refuses_every_stored_output_that_was_altered(chapter, what, tmp_path):
    """The proof that the gate can fail: all outputs are altered, and each cell must fail."""
    notebook = nbformat.read(SOURCE / chapter / f"{chapter}.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    altered = {i for i, cell in enumerate(code) if is_compared(cell) and alter(cell, what)}
    path = tmp_path / f"{chapter}.ipynb"
    nbformat.write(notebook, path)
    outcomes, said = validate(path)
    assert {i for i, outcome in outcomes.items() if outcome == "FAILED"} == altered, said
    tests = [cell for cell in code if cell.metadata.get("nbgrader", {}).get("grade")]
    assert len(altered) >= sum(map(is_compared, tests))


def alter(cell, what):
    """Change each stored output's words, or else its answers alone; False where there are none."""
    before = json.dumps(cell.outputs)
    for output in cell.outputs:
        data = output.get("data", {})
        if what == "answers" and answers.MIME in data:
            name = next(iter(data[answers.MIME]["parts"]))
            data[answers.MIME]["parts"][name] = {"value": "altered"}
        elif what == "text" and "text" in output:
            output.text = altered(output.text)
        elif what == "text" and "text/plain" in data:
            data["text/plain"] = altered(data["text/plain"])
    return json.dumps(cell.outputs) != before


def altered(text):
    """`text` with its last figure, or else its last letter, replaced by another."""
    at = [m.start() for m in re.finditer(r"\d", text)] or [len(text.rstrip()) - 1]
    other = "7" if text[at[-1]] != "7" else "3"
    return text[: at[-1]] + other + text[at[-1] + 1 :]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_code_cell_of_the_master_has_run_in_order(chapter):
    counts = [cell.execution_count for cell in Sheet(chapter).cells]
    assert counts == list(range(1, len(counts) + 1))  # nbval compares no cell without a count


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_student_version_is_what_its_master_gives(chapter, tmp_path):
    made = exercises.student(chapter, tmp_path)
    kept = STUDENT / chapter / f"{chapter}.ipynb"
    same = made.read_text(encoding="utf-8") == kept.read_text(encoding="utf-8")
    assert same, f"{kept} is not what its master gives. Your answers: git stash. Or: make exercises"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_student_version_holds_no_solution_and_no_output(chapter):
    kept = nbformat.read(STUDENT / chapter / f"{chapter}.ipynb", as_version=4)
    text = json.dumps(kept)
    assert not re.search("(BEGIN|END) (SOLUTION|HIDDEN TESTS)|answers.record", text)
    assert all(not cell.get("outputs") for cell in kept.cells)
    code = [cell.source for cell in kept.cells if cell.cell_type == "code"]
    stubs = [source for source in code if "raise NotImplementedError()" in source]
    assert len(stubs) == len(Sheet(chapter).exercises())


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_has_six_to_ten_exercises_with_the_points_that_its_checks_print(chapter):
    __import__(f"labsupport.checks_{chapter}")
    sheet = Sheet(chapter)
    named = {name.removeprefix(f"{chapter}-"): points for name, points in sheet.exercises().items()}
    assert named == loaded_points(chapter)
    assert 6 <= len(named) <= 10
    assert 20 <= sum(named.values()) <= 30


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_exercise_has_one_solution_and_one_test_with_hidden_parts(chapter):
    sheet = Sheet(chapter)
    for exercise in sheet.exercises():
        assert "### BEGIN SOLUTION" in sheet.solution(exercise)
        tests = [c for c in sheet.cells if sheet.told(c).get("grade_id") == f"{exercise}-check"]
        (test,) = tests
        assert test.source.startswith("### BEGIN HIDDEN TESTS\n")
        assert "assert" not in test.source  # hidden tests ask; they do not judge
