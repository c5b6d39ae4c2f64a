"""Chapter 1 shows its key steps in full; here they are run against the package's own."""

import copy

import numpy as np
import pandas as pd
import pytest
from lesson_code import Lesson
from scipy.stats import beta

from labsupport import claims_stall, courses, hypotheses, latewrite, stall_evidence
from labsupport.decoder import Decoder, DecoderConfig
from labsupport.guarded import DamagedCacheError, GuardedCache, overlapping_write
from labsupport.kvcache import PreallocatedCache
from labsupport.serving import Cell, Server

LESSON = Lesson("stall", np=np, pd=pd, copy=copy, courses=courses)
shown, TEXT = LESSON.shown, LESSON.text
LOG = stall_evidence.evidence().log


def test_the_phases_are_the_packages():
    pd.testing.assert_series_equal(
        shown("excess_by_phase")(LOG), claims_stall.excess_by_phase(LOG), check_dtype=False
    )


def test_the_hypothesis_is_the_packages():
    own = hypotheses.Hypothesis("", "", shown("retry_acts"), shown("wait_everywhere"))
    theirs = next(h for h in hypotheses.HYPOTHESES if h.name == "retry, everywhere")
    fit = courses.fit(LOG)
    conditions = [*courses.DEFAULT, *courses.PREDICTED.values(), *courses.repeated(LOG.repeats)]
    for condition in conditions:
        shown_trace = hypotheses.simulate(own, fit, condition)
        assert shown_trace == hypotheses.simulate(theirs, fit, condition)


@pytest.mark.parametrize("n", [1, 2, 299, 3000])
def test_the_failure_bound_is_the_binomial_one(n):
    """By another route: at the bound, n clean runs are a 5 % event; for large n it is 3 / n."""
    bound = shown("failure_bound")(n)
    assert (1 - bound) ** n == pytest.approx(0.05)
    assert n < 100 or bound == pytest.approx(3 / n, rel=0.01)


@pytest.mark.parametrize("seed", [2, 3])
def test_the_late_write_is_the_packages(seed):
    names = {"DecoderConfig": DecoderConfig, "Decoder": Decoder}
    names |= {"overlapping_write": overlapping_write, "config": latewrite.CONFIG}
    names |= {"prompt": latewrite.PROMPT}
    ours = shown("request_after_late_write", **names)
    for kind in (PreallocatedCache, GuardedCache):
        answers = []
        for function in (ours, latewrite.request_after_late_write):
            try:
                answers.append(np.array(function(kind, seed)))
            except DamagedCacheError as error:
                answers.append(str(error))
        assert np.array_equal(*answers)
    assert isinstance(answers[0], str)  # the guarded one refuses


def test_the_warm_request_is_the_servers():
    server = Server(Cell(n_prompt=7, n_new=3, d_model=16), seed=5)
    assert np.array_equal(shown("warm_request")(server), np.array(server.warm()[1]))


def test_every_claim_of_the_ledger_is_shown_in_the_chapter():
    assert LESSON.claims_shown() == LESSON.claims_of_ledger()


def test_the_solutions_figures_are_right():
    """The numbers typed into folded solutions, computed."""
    run = LOG.run("preallocated", 2)
    first, last = run.emissions_ms[0], run.emissions_ms[-1]
    assert f"{last - first:.0f} ms are covered and {first:.0f} are not" in TEXT
    sums = LOG.repeats.groupby("state")["printed_deviation_ms"].sum()
    assert f"The log's sums, {sums['cold']}\nand {sums['warm']}," in TEXT
    bound = shown("failure_bound")
    assert bound(2995) < 0.001 <= bound(2994)
    one_failure = beta.ppf(0.95, 2, [4741 - 1, 4742 - 1])
    assert one_failure[1] < 0.001 <= one_failure[0]
    assert "from k = 2995 on" in TEXT
    assert "about 4742 runs" in TEXT
