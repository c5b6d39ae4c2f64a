"""Chapter 4's exercises: the master, the blank sheet, and every mistake that the checks name."""

import re
import warnings

import exercise_code
import pytest
from exercise_answers_memory import SHEET, WRONG

from labsupport import checks_memory  # noqa: F401 (its checks are counted)

CASES = [
    pytest.param(exercise, *wrong[1:], id=f"{exercise}: {wrong[0]}")
    for exercise, answers in WRONG.items()
    for wrong in answers
]


def test_the_points_of_the_cells_are_those_of_the_checks():
    told = exercise_code.loaded_points("memory")
    assert SHEET.exercises() == {f"memory-{name}": points for name, points in told.items()}
    assert 20 <= sum(told.values()) <= 30
    assert 6 <= len(told) <= 10


def test_the_headings_give_the_points_of_the_cells():
    text = "\n".join(cell.source for cell in SHEET.notebook.cells if cell.cell_type == "markdown")
    for number, points in enumerate(SHEET.exercises().values(), start=1):
        heading = next(line for line in text.splitlines() if line.startswith(f"## {number}. "))
        assert heading.endswith(f"({points} points)")


@pytest.mark.parametrize("exercise", SHEET.exercises())
def test_the_master_is_right(exercise):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning of a right answer would stand in the notebook
        attempt = SHEET.attempt(exercise)
    assert attempt.right, attempt.words
    assert attempt.mark.points == attempt.mark.of == SHEET.exercises()[exercise]


@pytest.mark.parametrize("exercise", SHEET.exercises())
def test_a_blank_sheet_earns_nothing(exercise):
    attempt = SHEET.attempt(exercise, SHEET.blank(exercise))
    assert attempt.mark.points == 0
    assert "still to be written" in attempt.words


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the wrong answers themselves
@pytest.mark.parametrize(("exercise", "source", "share", "words"), CASES)
def test_a_wrong_answer_earns_its_share_and_is_told_why(exercise, source, share, words):
    attempt = SHEET.attempt(exercise, source)
    assert attempt.right is (not words)
    assert words in attempt.words
    assert attempt.mark.points == pytest.approx(share * attempt.mark.of, abs=0.01)


def test_an_error_that_has_nothing_to_do_with_a_slip_reaches_the_reader():
    source = "def cache_bytes(config, n_tokens):\n    return 'bytes' + n_tokens"
    assert SHEET.attempt("memory-cache-bytes", source).words.startswith("TypeError: ")


@pytest.mark.parametrize("constant", ["0", "1.0", "math.inf", "'1024'", "'both'", "True", "None"])
@pytest.mark.parametrize("exercise", SHEET.exercises())
def test_an_answer_that_is_always_the_same_earns_nothing(exercise, constant):
    source = SHEET.solution(exercise)
    functions = re.findall(r"^def (\w+)", source, re.MULTILINE)
    fixed = "\n".join(f"def {name}(*asked):\n    return {constant}" for name in functions)
    attempt = SHEET.attempt(exercise, fixed)
    assert (attempt.mark.points, attempt.right) == (0, False)


def test_every_exercise_has_wrong_answers_of_several_kinds():
    assert set(WRONG) == set(SHEET.exercises())
    for wrong in WRONG.values():
        assert len({words for *_, words in wrong if words}) >= 3
