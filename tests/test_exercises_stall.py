"""Chapter 1's exercises: right answers get all points, blank ones none, wrong ones their share."""

import numpy as np
import pytest
from exercise_code import Sheet

from labsupport import (
    checks,
    checks_plain,
    checks_stall_causes,
    courses,
    evidence,
    scoring,
    stall_log,
)

SHEET = Sheet("stall")
EXERCISES = SHEET.exercises()


# What the remarks and questions say about the log


@pytest.fixture(scope="module")
def log():
    return stall_log.read(evidence.directory("stall-log"))


def test_the_layers_explain_less_than_half_of_the_loss(log):
    cold, warm = (log.layer_stamps_ms(s) for s in ("cold", "warm"))
    ends = [run.emissions_ms[-1] for run in log.runs["default"]]
    step = (warm - cold).diff().mean()
    assert (step, ends[1] - ends[0]) == (18, 423)
    assert 10 * step < 0.5 * 423


def test_no_clock_that_runs_as_fast_as_the_timer_rescues_the_log(log):
    """Even when every stamp and every elapsed time was rounded by half a millisecond."""
    earliest = log.layers["at_ms"].min()
    runs = [run for pair in log.runs.values() for run in pair]
    assert earliest < min(run.emissions_ms[0] for run in runs)
    exact = min(run.elapsed_ms / (run.emissions_ms[-1] - earliest) for run in runs)
    kindest = min((r.elapsed_ms + 0.5) / (r.emissions_ms[-1] - earliest - 1) for r in runs)
    assert exact < kindest < 1 - 1e-3


def test_the_rivals_left_in_the_exercise_survive_in_the_chapter(log):
    space = {}
    for cell in SHEET.cells[:-1]:
        if not SHEET.told(cell).get("grade"):
            exec(cell.source, space)
    left = space["alive"](space["predictions"], space["observed"])
    table = scoring.verdicts(scoring.score(log))
    assert left == [name for name in table.index[table["survives"]] if name in space["NAMES"]]
    assert len(left) == 3
    together = courses.PREDICTED["history-off", 2]
    assert not any(space["predictions"].loc["history-off, second", left])
    assert not together.history
    assert not together.timeout


@pytest.mark.parametrize("needed", ["the check's", "the master's"])
def test_a_bound_that_only_rounding_puts_below_the_rate_is_not_below_it(needed):
    space = {"np": np}
    exec(SHEET.solution("stall-hashes"), space)
    count = checks_stall_causes._needed if needed == "the check's" else space["runs_needed"]
    assert count(0.9, 1, 0.99) == 3
    assert count(1, 1, 0.95) == 1


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_titles_state_the_points(exercise):
    number = list(EXERCISES).index(exercise) + 1
    titles = [c.source.splitlines()[0] for c in SHEET.notebook.cells if c.source.startswith("## ")]
    assert titles[number - 1].startswith(f"## {number}. ")
    assert titles[number - 1].endswith(f"({EXERCISES[exercise]:g} points)")


# The comparison of plain values


@pytest.mark.parametrize(
    ("got", "want", "words"),
    [
        ([1.0], [1.0, 2.0], "1 items"),
        ({"a": 1}, {"b": 1}, "has the keys ['a']"),
        ([1, [2, 5.0]], [1, [2, 3.0]], r"x[1][1] is not right"),
        ("a", "b", "x is 'a'"),
        (None, 3.0, "has an answer"),
        (3.0, None, "should be None"),
        (1.0, "b", "should be a string"),
        (float("nan"), 1.0, "x is nan"),
        (True, 1.0, "one number"),
        (3.0000001, 3, "a whole number"),
        (object(), 1.0, "not object"),
    ],
)
def test_the_first_item_that_differs_is_named(got, want, words):
    with pytest.raises(checks.NotYet) as told:
        checks_plain.told("x", got, want)
    assert words in str(told.value)


def test_what_the_answer_is_of_stands_behind_its_items():
    with pytest.raises(checks.NotYet, match=r"^x\[1\]\[0\] of the log is twice"):
        checks_plain.told("x", [1.0, [4.0]], [1.0, [2.0]], of=" of the log")


def test_equal_plain_values_pass_whatever_kind_of_number_they_are():
    checks_plain.told("x", (np.float64(1.0), [np.int64(2)], None), [1.0 + 1e-12, [2], None])
