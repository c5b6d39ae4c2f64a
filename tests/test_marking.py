"""Answers as plain values, and marks from them: what is taken, what is refused, what is equal."""

import json
import sys

import nbformat
import numpy as np
import pytest

from labsupport import answers, marking
from labsupport.answers import plain


class Sly(float):
    """Equal to everything."""

    def __eq__(self, other):
        return True

    __hash__ = float.__hash__


class SlyArray(np.ndarray):
    """An array that says what it likes."""

    def tolist(self):
        return [1, 2]


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (None, None),
        (True, True),
        (3, 3),
        ("a", "a"),
        (1 / 3, 0.333333333),
        (float("nan"), {"float": "nan"}),
        (float("-inf"), {"float": "-inf"}),
        ((1, [2.0, "b"]), [1, [2.0, "b"]]),
        ({"a": (1,)}, {"a": [1]}),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool(True), True),
        (np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
        (np.array([1.0, np.nan]), [1.0, {"float": "nan"}]),
    ],
)
def test_plain_values_pass(value, want):
    got = plain(value)
    assert got == want
    assert type(got) is type(want)
    json.dumps(got, allow_nan=False)


@pytest.mark.parametrize(
    "value",
    [
        Sly(1),
        [Sly(1)],
        np.array([1, 2]).view(SlyArray),
        np.array(["a"]),
        np.array([None]),
        {1: 2},
        {"a": {1, 2}},
        object(),
        ...,
        10**400,
        print,
        1j,
    ],
)
def test_other_values_are_refused(value):
    with pytest.raises(TypeError, match="answer"):
        plain(value)


def test_deep_answers_are_refused():
    value = 1
    for _ in range(answers.DEEPEST + 2):
        value = [value]
    with pytest.raises(TypeError, match="levels"):
        plain(value)


@pytest.fixture
def shown(monkeypatch):
    kept = []
    monkeypatch.setattr(answers, "display", lambda data, raw: kept.append(data))
    return kept


def outputs(data):
    return [{"output_type": "display_data", "data": data}]


def test_a_part_that_raises_spoils_itself_alone(shown):
    answers.record({"x": sys.exit, "a": lambda: 1 / 0, "b": lambda: 2, "c": lambda: Sly(2)})
    parts = marking.answers(outputs(shown[0]))["parts"]
    assert parts["a"] == {"refused": "ZeroDivisionError: division by zero"}
    assert parts["b"] == {"value": 2}
    assert parts["x"] == {"refused": "SystemExit: "}
    assert "refused" in parts["c"]
    assert "division" in shown[0]["text/plain"]


def recorded(**parts):
    return {"parts": {k: {"value": v} for k, v in parts.items()}, "rtol": 1e-3, "atol": 0.0}


def test_points_are_shared_between_the_parts():
    master = recorded(a=1, b=[1.0, 2.0], c="x", d=None)
    given = recorded(a=1, b=[1.0005, 2.0], c="y", d=None)
    got = marking.mark(outputs({answers.MIME: given}), master, 6.0)
    assert got.points == 4.5
    assert got.right == {"a": True, "b": True, "c": False, "d": True}
    assert got.words() == "4.5 of 6 points\nright: a\nright: b\nnot yet: c\nright: d"


def test_an_error_in_the_place_of_an_answer_is_named_if_it_is_pythons_own(shown):
    master = recorded(a=1, b=2, c=3)
    parts = {"a": {"refused": "NameError: name 'f' is not defined"}, "b": {"refused": "Secret: 7"}}
    parts["c"] = {"refused": 7}
    got = marking.mark(outputs({answers.MIME: {"parts": parts}}), master, 3.0)
    assert got.words() == (
        "0 of 3 points\nnot yet: a (NameError)\nnot yet: b\nnot yet: c\n"
        "Its check, in your notebook, says what kind of mistake it looks like."
    )


@pytest.mark.parametrize(
    "given",
    [
        [],
        outputs({"text/plain": "6.0"}),
        outputs({answers.MIME: "all right"}),
        outputs({answers.MIME: {"parts": [1]}}),
        outputs({answers.MIME: {"parts": {"a": 1, "b": {"refused": "no"}, "z": {"value": 1}}}}),
        [{"output_type": "stream", "text": "6.0"}],
        [{"output_type": "execute_result", "data": {answers.MIME: recorded(a=1, b=2)}}],
    ],
)
def test_what_is_no_answer_gets_no_points(given):
    assert marking.mark(given, recorded(a=1, b=2), 6.0).points == 0


def test_the_last_answers_count_and_the_masters_tolerance():
    bad, good = recorded(a=9.0), recorded(a=1.0) | {"rtol": 1e9}
    given = outputs({answers.MIME: good}) + outputs(
        {answers.MIME: bad | {"rtol": 1e9, "atol": 1e9}}
    )
    assert marking.mark(given, recorded(a=1.0), 2.0).points == 0
    assert marking.mark(given[::-1], recorded(a=1.0), 2.0).points == 2.0


def test_parts_keep_their_order_in_a_notebook(shown):
    answers.record({"z": lambda: 1, "a": lambda: 2})
    kept = nbformat.from_dict(json.loads(json.dumps(shown[0], sort_keys=True)))
    master = marking.answers(outputs(kept))
    assert list(marking.mark(outputs(kept), master, 2.0).right) == ["z", "a"]


def test_dicts_of_a_notebook_are_compared_with_the_tolerance():
    master = nbformat.from_dict(recorded(a={"x": 1.0}))
    given = outputs({answers.MIME: recorded(a={"x": 1.0001})})
    assert marking.mark(given, master, 1.0).points == 1.0


def test_a_judge_decides_in_the_place_of_the_comparison():
    judges = {"a": lambda got, want: got == [want]}
    given = outputs({answers.MIME: recorded(a=[3], b=2)})
    assert marking.mark(given, recorded(a=3, b=2), 2.0, judges).points == 2.0
    assert marking.mark(given, recorded(a=3, b=2), 2.0).points == 1.0


@pytest.mark.parametrize(
    ("got", "want", "same"),
    [
        (3, 3, True),
        (3.0, 3, True),
        (3.0000001, 3, False),
        (True, 1, False),
        (1, True, False),
        ("1", 1, False),
        (1, "1", False),
        (None, 0, False),
        (0, None, False),
        (1.0009, 1.0, True),
        (1.0011, 1.0, False),
        (1e-30, 0.0, False),
        ({"float": "nan"}, 1.0, False),
        (float("inf"), 1.0, False),
        (float("nan"), 1.0, False),
        (10**400, 1.0, False),
        ([1, 2], [1, 2], True),
        ([1, 2], [1, 2, 3], False),
        ([1, 2], (1, 2), False),
        ([1], {"0": 1}, False),
        ({"a": 1.0005}, {"a": 1.0}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([[1.0], "x", None, True], [[1.0], "x", None, True], True),
    ],
)
def test_values_are_compared_by_kind(got, want, same):
    assert marking.equal(got, want, 1e-3, 0.0) is same


def test_an_absolute_tolerance_lets_zero_be_missed():
    assert marking.equal(1e-9, 0.0, 1e-3, 1e-8)
