"""The feedback of `labsupport.checks`: each kind of mistake is named, and no answer is given."""

import numpy as np
import pandas as pd
import pytest

from labsupport import checks, checks_stall, tracebacks
from labsupport.checks import NotYet


def words(check, *args, **named):
    """What a check says of an answer that is not right."""
    with pytest.raises(NotYet) as caught:
        check(*args, **named)
    return str(caught.value)


@pytest.fixture(autouse=True)
def empty(monkeypatch):
    monkeypatch.setattr(checks, "RESULTS", {})
    monkeypatch.setattr(checks, "POINTS", {})


# ---- one number


def test_a_right_number_is_taken():
    checks.value("t_ms", 12.5, 12.5)
    checks.value("t_ms", np.float32(12.5), 12.5)
    checks.value("t_ms", np.array([12.5]), 12.5)
    checks.value("t_ms", 12.5 * (1 + 1e-7), 12.5)


@pytest.mark.parametrize(
    ("got", "said"),
    [
        (..., "no value yet"),
        (None, "no value yet"),
        ("12.5", "type str"),
        (True, "type bool"),
        ([12.5], "type list"),
        (float("nan"), "division by zero"),
        (12_500.0, "1,000 times too large"),
        (0.0125, "1,000 times too small"),
        (12.5e6, "a million times too large"),
        (12.5e-6, "a million times too small"),
        (12.5 * 1024, "bytes or KiB"),
        (12.5 / 1024, "bytes or KiB"),
        (12.5 * 1024**2, "bytes or MiB"),
        (12.5 / 1024**2, "bytes or MiB"),
        (1250.0, "per cent"),
        (0.125, "per cent"),
        (25.0, "counted twice"),
        (6.25, "left out"),
        (-12.5, "sign"),
        (-3.0, "of the wrong sign"),
        (13.7, "too large"),
        (11.9, "too small"),
    ],
)
def test_a_wrong_number_is_told_what_it_looks_like(got, said):
    told = words(checks.value, "t_ms", got, 12.5)
    assert said in told
    assert "12.5" not in told.replace("'12.5'", "")


def test_one_more_or_less_is_off_by_one():
    assert "off by one" in words(checks.value, "n", 7, 8)
    assert "off by one" in words(checks.value, "n", 9.0, 8)
    assert "off by one" not in words(checks.value, "n", 8.9, 8.0)


def test_the_mistakes_of_the_exercise_come_first():
    told = words(checks.value, "m", 24.0, 12.0, {"the mean": 24.0})
    assert told == "m is not right. It looks like the mean."


def test_the_tolerance_is_relative():
    checks.value("x", 1.01e-9, 1e-9, rtol=0.02)
    assert words(checks.value, "x", 1.01e-9, 1e-9)


# ---- arrays

WANT = np.arange(6.0).reshape(2, 3)


def test_a_right_array_is_taken():
    checks.array("scores", WANT.tolist(), WANT)
    checks.array("scores", WANT + 1e-12, WANT)


@pytest.mark.parametrize(
    ("got", "said"),
    [
        (..., "no value yet"),
        (np.array([["a"]]), "dtype"),
        (WANT.T, "transposed"),
        (WANT.ravel(), "shape [6]; it should be [2, 3]"),
        (WANT[:, ::-1], "reverse order along axis 1"),
        (WANT[::-1], "along axis 0"),
        (np.roll(WANT, 1, axis=1), "shifted by one place along axis 1"),
        (np.where(WANT == 4, -1, WANT), "1 of 6 elements are wrong, the first at [1, 1]"),
    ],
)
def test_a_wrong_array_is_told_what_it_looks_like(got, said):
    assert said in words(checks.array, "scores", got, WANT)


def test_square_arrays_are_seen_to_be_transposed():
    square = np.arange(9.0).reshape(3, 3)
    assert "transposed" in words(checks.array, "a", square.T, square)


def test_the_mistakes_of_an_array_come_first():
    said = words(checks.array, "a", WANT.T, WANT, {"keys for values": WANT.T})
    assert "It looks like keys for values." in said


# ---- functions


def test_a_function_gets_copies_and_its_value_is_returned():
    given = np.zeros(2)
    assert checks.call(lambda a, b: b, given, b="x") == "x"


@pytest.mark.parametrize(
    "argument",
    [np.zeros(2), [1, 2], {"a": np.zeros(1)}, pd.DataFrame({"a": [1]}), [np.zeros(1)]],
)
def test_a_changed_argument_is_seen(argument):
    def spoil(x):
        if isinstance(x, list) and isinstance(x[0], np.ndarray):
            x[0][0] = 7
        elif isinstance(x, dict):
            x["a"][0] = 7
        elif isinstance(x, pd.DataFrame):
            x.loc[0, "a"] = 7
        else:
            x[0] = 7
        return 1

    assert "changes an argument" in words(checks.call, spoil, argument)


def test_an_argument_given_by_name_is_watched_too():
    def spoil(*, x):
        x.append(3)
        return 1

    assert "changes an argument" in words(checks.call, spoil, x=[1])


def test_an_error_tells_what_the_check_had_called():
    def first(rows):
        return rows[7]

    with pytest.raises(IndexError) as raised:
        checks.call(first, [1, 2])
    assert raised.value.__notes__ == ["The check had called first([1, 2])."]


def test_no_return_and_no_function_are_told():
    assert "is there a `return`" in words(checks.call, lambda: None)
    assert "type int" in words(checks.call, 3)


# ---- choices


def test_a_choice_gets_the_words_of_its_option():
    options = {"a": "read the first line again", "b": "which run is that?"}
    checks.choice("which", "a", "a", options)
    assert words(checks.choice, "which", "b", "a", options) == "which: which run is that?"
    assert "one of: a, b" in words(checks.choice, "which", "c", "a", options)
    assert "no value yet" in words(checks.choice, "which", ..., "a", options)


# ---- exercises and marks


def test_an_exercise_prints_its_points_and_keeps_the_result(capsys):
    @checks.exercise("toy", "one", 2)
    def one(answer):
        checks.value("x", answer, 3)
        return "And so on."

    with pytest.raises(NotYet):
        one(4)
    assert checks.marks().to_dict("records") == [
        {"chapter": "toy", "exercise": "one", "points": 0, "of": 2}
    ]
    one(3)
    assert capsys.readouterr().out == "Right (2 points). And so on.\n"
    assert checks.marks()["points"].tolist() == [2]
    assert checks.POINTS == {("toy", "one"): 2}


def test_an_exercise_that_is_not_written_says_so():
    @checks.exercise("toy", "one", 1)
    def one(function):
        return checks.call(function)

    def blank():
        raise NotImplementedError

    assert "still to be written" in words(one, blank)


def test_what_the_readers_code_raises_reaches_the_reader():
    @checks.exercise("toy", "one", 1)
    def one(function):
        return checks.call(function)

    with pytest.raises(ZeroDivisionError):
        one(lambda: 1 / 0)


def test_the_traceback_of_the_readers_code_shows_no_line_of_the_checks():
    def spoilt(cold_ms, warm_ms):
        return 1 / 0

    with pytest.raises(ZeroDivisionError) as raised:
        checks_stall.slowdown(spoilt)
    ours = [entry for entry in raised.traceback if "labsupport" in str(entry.path)]
    assert [entry.name for entry in ours] == ["check"]  # which IPython leaves out
    assert raised.traceback[-1].name == "spoilt"


def test_an_answer_on_which_a_check_stumbles_shows_no_line_of_the_checks():
    space = {}
    where = str(tracebacks.PACKAGE / "checks_toy.py")
    exec(compile("def stumbles(answer):\n    return answer - 1", where, "exec"), space)
    told = words(checks.exercise("toy", "one", 1)(space["stumbles"]), [3])
    assert "not of the kind that is asked for" in told
    assert "TypeError" in told


def test_a_notebook_shows_the_words_alone():
    assert NotYet("Count again.")._render_traceback_() == ["Not yet. Count again."]


def test_marks_without_any_check_is_an_empty_table():
    assert list(checks.marks().columns) == ["chapter", "exercise", "points", "of"]
