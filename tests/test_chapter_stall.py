"""Chapter 1 shows its key steps in full; here they are run against the package's own."""

import copy
import re
from pathlib import Path

import jupytext
import numpy as np
import pandas as pd
import pytest

from labsupport import claims_causes, claims_stall, courses, hypotheses, ledger
from labsupport.serving import Cell, Server

CHAPTER = Path(__file__).parents[1] / "chapters" / "stall.md"
TEXT = CHAPTER.read_text(encoding="utf-8")
CELLS = [c.source for c in jupytext.read(CHAPTER).cells if c.cell_type == "code"]
LOG = claims_stall.evidence().log


def shown(name, **names):
    """The function `name` as the page defines it."""
    cell = next(c for c in CELLS if f"def {name}(" in c)
    source = re.search(rf"^def {name}\(.*?(?=^\S|\Z)", cell, re.M | re.S).group()
    namespace = {"np": np, "pd": pd, "copy": copy, "courses": courses, **names}
    exec(source, namespace)
    return namespace[name]


def test_the_phases_are_the_packages():
    pd.testing.assert_series_equal(
        shown("excess_by_phase")(LOG), claims_stall.excess_by_phase(LOG), check_dtype=False
    )


def test_the_hypothesis_is_the_packages():
    own = hypotheses.Hypothesis("", "", shown("retry_acts"), shown("wait_everywhere"))
    theirs = next(h for h in hypotheses.HYPOTHESES if h.name == "retry, everywhere")
    fit = courses.fit(LOG)
    conditions = [*courses.DEFAULT, *courses.PREDICTED.values(), *courses.REPEATS]
    for condition in conditions:
        shown_trace = hypotheses.simulate(own, fit, condition)
        assert shown_trace == hypotheses.simulate(theirs, fit, condition)


@pytest.mark.parametrize("n", [1, 2, 10, 299])
def test_the_failure_bound_is_the_packages(n):
    assert shown("failure_bound")(n) == claims_causes.failure_bound(n)


def test_the_warm_request_is_the_servers():
    server = Server(Cell(n_prompt=7, n_new=3, d_model=16), seed=5)
    assert np.array_equal(shown("warm_request")(server), np.array(server.warm()[1]))


def test_every_claim_of_the_ledger_is_shown_in_the_chapter():
    numbers = []
    for call in re.findall(r'ledger\.show\("stall", (.*)\)', TEXT):
        numbers += eval(f"[{call}]", {"range": range})
    assert sorted(numbers) == list(range(1, len(ledger.of_chapter("stall")) + 1))
