"""The rival simulators: fitted on the default pair alone, told conditions and never traces."""

import inspect
from dataclasses import replace
from pathlib import Path

import pytest

from labsupport import courses, hypotheses, scoring, stall_log, traces

LOG = stall_log.read(Path(__file__).parents[1] / "evidence" / "stall-log")
FIT = courses.fit(LOG)
BY_NAME = {h.name: h for h in hypotheses.HYPOTHESES}


def shifted(run: traces.Run, ms: float) -> traces.Run:
    """The same run with every token and the timer's end `ms` later."""
    text = []
    for event in run.events:
        message = event.message
        if "at_ms" in event.fields:
            at = (event.fields["at_ms"] + ms) / 1000
            message = f"token_{event.fields['token']} emitted: {at:.3f}s"
        if "elapsed_ms" in event.fields:
            message = f"elapsed={event.fields['elapsed_ms'] + ms:.0f}ms"
        text.append(f"[{event.tag}] {message}")
    return replace(traces.read("\n".join(text) + "\n")[0], env=run.env)


def with_run(trace: str, which: int, run: traces.Run) -> stall_log.StallLog:
    runs = list(LOG.runs[trace])
    runs[which - 1] = run
    return replace(LOG, runs={**LOG.runs, trace: runs})


@pytest.mark.parametrize("trace", ["preallocated", "history-off"])
@pytest.mark.parametrize("which", [1, 2])
def test_no_simulator_sees_what_it_is_scored_on(trace, which):
    doctored = with_run(trace, which, shifted(LOG.run(trace, which), 500))
    assert courses.fit(doctored) == FIT
    assert list(inspect.signature(hypotheses.simulate).parameters) == [
        "hypothesis",
        "p",
        "condition",
    ]


def test_the_fit_does_depend_on_the_default_pair():
    assert courses.fit(with_run("default", 2, shifted(LOG.run("default", 2), 100))) != FIT


@pytest.mark.parametrize("name", BY_NAME)
def test_simulators_are_deterministic_and_speak_the_logs_format(name):
    for condition in (*courses.DEFAULT, *courses.PREDICTED.values()):
        text = hypotheses.simulate(BY_NAME[name], FIT, condition)
        assert text == hypotheses.simulate(BY_NAME[name], FIT, condition)
        (run,) = traces.read(text)
        assert len(run.emissions_ms) == courses.N_TOKENS
        assert run.one("entries") == condition.entries
        assert run.emissions_ms == sorted(run.emissions_ms)


def test_without_a_mechanism_the_cold_run_comes_back():
    """The plain course is the cold run's own, to the rounding of a printed millisecond."""
    (run,) = traces.read(hypotheses.simulate(BY_NAME["order"], FIT, courses.DEFAULT[0]))
    recorded = LOG.run("default", 1)
    assert run.emissions_ms[0] == recorded.emissions_ms[0]
    assert run.emissions_ms[-1] == recorded.emissions_ms[-1]
    assert run.elapsed_ms == recorded.elapsed_ms


def test_a_wait_everywhere_refits_the_warm_run_it_was_fitted_on():
    (run,) = traces.read(hypotheses.simulate(BY_NAME["retry, everywhere"], FIT, courses.DEFAULT[1]))
    errors = scoring.compare(run, LOG.run("default", 2))
    assert errors["marks agree"]
    assert abs(errors["first token"]) <= 1
    assert abs(errors["last token"]) <= 1


def test_what_survives_depends_on_the_recorded_runs():
    """A slow second request under preallocation would spare the rivals that predict one."""
    table = scoring.verdicts(scoring.score(LOG))
    assert table.loc["retry, everywhere", "survives"]
    assert not table.loc["verification of writes", "survives"]

    slow = with_run("preallocated", 2, LOG.run("default", 2))
    doctored = scoring.verdicts(scoring.score(slow))
    assert not doctored.loc["retry, everywhere", "survives"]
    assert doctored.loc["verification of writes", "predicts preallocated"]


def test_a_session_that_heals_itself_would_spare_the_first_hit():
    repeats = LOG.repeats.assign(time_ms=848)
    table = scoring.verdicts(scoring.score(replace(LOG, repeats=repeats)))
    assert table.loc["first hit, one process", "predicts repeats"]
    assert not table.loc["retry, everywhere", "predicts repeats"]


def test_the_interventions_leave_more_than_one_rival():
    """What the chapter says: the log's experiments cannot tell the survivors apart."""
    scores = scoring.score(LOG)
    alive = scoring.verdicts(scores).query("survives").index
    assert len(alive) > 1
    predicted = scores[scores["hypothesis"].isin(alive) & (scores["trace"] != "default")]
    assert (predicted.groupby(["trace", "request"])["last token"].nunique() == 1).all()
