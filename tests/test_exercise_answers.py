"""Every exercise of every chapter: right, blank, constant and wrong answers get their due."""

import re
import warnings
from importlib import import_module

import pytest
from exercise_code import CHAPTERS, Sheet

SHEETS = {chapter: Sheet(chapter) for chapter in CHAPTERS}
WRONG = {chapter: import_module(f"exercise_answers_{chapter}").WRONG for chapter in CHAPTERS}
EXERCISES = [(chapter, name) for chapter, sheet in SHEETS.items() for name in sheet.exercises()]
CASES = [
    pytest.param(chapter, name, *told, id=f"{name}: {why}")
    for chapter, name in EXERCISES
    for why, *told in WRONG[chapter].get(name, [])
]
CONSTANTS = ["None", "True", "0", "0.0", "1.0", "math.inf", "[]", "(0, 1)", "(0.0, 1.0)", "''"]
CONSTANTS += ["'1024'", "'both'"]


@pytest.mark.parametrize(("chapter", "name"), EXERCISES)
def test_the_master_has_full_marks_and_nothing_is_said(chapter, name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning of a right answer would stand in the notebook
        attempt = SHEETS[chapter].attempt(name)
    assert attempt.right, attempt.words
    assert attempt.words == ""
    assert attempt.mark.points == attempt.mark.of == SHEETS[chapter].exercises()[name]


@pytest.mark.parametrize(("chapter", "name"), EXERCISES)
def test_a_blank_has_none(chapter, name):
    attempt = SHEETS[chapter].attempt(name, SHEETS[chapter].blank(name))
    assert attempt.mark.points == 0
    assert not attempt.right
    assert "still to be written" in attempt.words or "no value yet" in attempt.words


@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize(("chapter", "name"), EXERCISES)
def test_a_constant_earns_nothing(chapter, name, constant):
    functions = re.findall(r"^def (\w+)", SHEETS[chapter].solution(name), re.MULTILINE)
    fixed = [f"def {function}(*_, **__):\n    return {constant}" for function in functions]
    attempt = SHEETS[chapter].attempt(name, "\n".join(["import math", *fixed]))
    assert (attempt.mark.points, attempt.right) == (0, False)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the wrong answers themselves
@pytest.mark.parametrize(("chapter", "name", "source", "share", "words"), CASES)
def test_a_wrong_answer_has_its_share_and_its_words(chapter, name, source, share, words):
    attempt = SHEETS[chapter].attempt(name, source)
    assert attempt.mark.points == pytest.approx(share * attempt.mark.of, abs=0.005)
    assert attempt.right == (words == ""), attempt.words
    assert attempt.right or attempt.words.startswith(("NotYet: ", words))  # or it is their error
    assert words in attempt.words


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_exercise_has_wrong_answers(chapter):
    assert set(WRONG[chapter]) == set(SHEETS[chapter].exercises())


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_titles_number_the_exercises_and_state_their_points(chapter):
    text = [cell.source for cell in SHEETS[chapter].notebook.cells if cell.cell_type == "markdown"]
    titles = [source.splitlines()[0] for source in text if re.match(r"## \d", source)]
    points = SHEETS[chapter].exercises().values()
    assert len(titles) == len(points)
    for number, (title, of) in enumerate(zip(titles, points, strict=True), start=1):
        assert title.startswith(f"## {number}. ")
        assert title.endswith(f"({of:g} points)")
