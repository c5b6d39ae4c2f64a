"""A cell is tagged live only if it measures, or shows what a live cell measured.

That every cell whose outputs differ between two builds is tagged: see test_two_builds.py.
"""

import jupytext
import pytest
from lesson_inputs import executed_lessons
from live_cells import without_measurement
from nbformat.v4 import new_code_cell, new_output
from repository import ROOT
from two_builds import differing_cells, differing_lines, is_live

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


def printing(*pieces, tags=()):
    outputs = [new_output("stream", text=text) for text in pieces]
    return new_code_cell("print(x)", outputs=outputs, metadata={"tags": list(tags)})


def test_an_output_that_differs_is_found_unless_its_cell_is_live():
    assert differing_cells([printing("1")], [printing("2")]) == ["print(x)"]
    live = [printing("1", tags=["live"])], [printing("2", tags=["live"])]
    assert differing_cells(*live) == []
    assert differing_cells([printing("12")], [printing("1", "2")]) == []


def test_a_date_on_a_page_is_found_and_a_live_part_is_not(tmp_path):
    pages = tmp_path / "1.html", tmp_path / "2.html"
    parts = '<div class="cell tag_live"><div class="cell_output"><img src="{0}.png"></div></div>'
    parts += '<p>takes <span class="pasted-text">{0}</span> s</p><td class="live">{0}</td>'
    for n, page in enumerate(pages):
        page.write_text(parts.format(n), encoding="utf-8")
    assert differing_lines(*pages) == []
    for n, page in enumerate(pages):
        page.write_text(f"<p>Built on day {n}</p>" + parts.format(n), encoding="utf-8")
    assert len(differing_lines(*pages)) == 1
