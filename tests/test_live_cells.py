"""A cell is tagged live only if it measures, or shows what a live cell measured.

That every cell whose outputs differ between two builds is tagged: see test_two_builds.py.
"""

import jupytext
import pytest
from lesson_inputs import executed_lessons
from live_cells import without_measurement
from nbformat.v4 import new_code_cell
from repository import ROOT
from two_builds import is_live

LESSONS = executed_lessons(ROOT)
CHAPTERS = [doc for doc in LESSONS if doc.startswith("chapters/")]


def code(source, *tags):
    return new_code_cell(source, metadata={"tags": list(tags)})


@pytest.mark.parametrize("doc", LESSONS)
def test_a_live_cell_measures_or_shows_a_measurement(doc):
    assert without_measurement(jupytext.read(LESSONS[doc]).cells) == []


@pytest.mark.parametrize("doc", CHAPTERS)
def test_every_chapter_measures_something_live(doc):
    assert any(map(is_live, jupytext.read(LESSONS[doc]).cells))


def test_a_cell_that_only_counts_is_found():
    timed = code("from labsupport import timing\nfound = timing.compare(f, g)", "live")
    shows = code("print(found)", "live")
    counts = code("from labsupport import arithmetic\nprint(arithmetic.flops(3))", "live")
    assert without_measurement([timed, shows, counts]) == [counts.source]
    assert without_measurement([shows]) == [shows.source]
    untagged = code("from labsupport import timing\nfound = timing.compare(f, g)")
    assert without_measurement([untagged, shows]) == [shows.source]
