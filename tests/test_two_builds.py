"""Two builds from the same evidence differ only where a live measurement is shown; and how long
a build takes.

The first build is the one that the other tests read. The second is made here, in another place,
from nothing. It is the one slow test of the suite.
"""

import pytest
from lesson_inputs import executed_lessons, toc_pages
from repository import HTML, ROOT
from two_builds import build, cells, copy_tree, differing_cells, differing_lines

LESSONS = sorted(executed_lessons(ROOT))
PAGES = sorted([*toc_pages(ROOT), "404", "search"])

# What the issue of the published site asks for, in seconds on two cores.
COLD_S, WARM_S, EDIT_S = 480, 25, 15


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    """A tree whose book was built once, from nothing; `took_s` says how long that took."""
    if not (ROOT / "_build" / "passed").is_file():
        pytest.fail("There is no book that was built without error. Run: make book")
    root = copy_tree(tmp_path_factory.mktemp("elsewhere") / "book")
    return root, build(root)


@pytest.fixture(scope="module")
def html(second):
    return second[0] / "_build" / "html"


@pytest.mark.parametrize("doc", LESSONS)
def test_outputs_differ_in_live_cells_only(html, doc):
    assert differing_cells(cells(HTML, doc), cells(html, doc)) == []


@pytest.mark.parametrize("doc", PAGES)
def test_pages_differ_in_their_live_parts_only(html, doc):
    assert differing_lines(HTML / f"{doc}.html", html / f"{doc}.html") == []


def others(html):
    """Files of the site that hold nothing live: name -> content.

    Left out are pages and notebooks, which are compared above; images, which are named by their
    content; the search index, which lists every word and number of the pages; and what pages and
    notebooks are offered in for download.
    """
    holding = {".html", ".ipynb", ".zip", ".pdf"}
    return {
        path.relative_to(html).as_posix(): path.read_bytes()
        for path in html.rglob("*")
        if path.is_file()
        and path.suffix not in holding
        and path.parent != html / "_images"
        and path.name != "searchindex.js"
    }


def test_all_other_files_are_the_same(html):
    first, second = others(HTML), others(html)
    assert set(first) == set(second)
    assert [name for name in first if first[name] != second[name]] == []


def test_a_build_from_nothing_is_quick_enough(second):
    assert second[1] < COLD_S


def test_a_build_of_nothing_new_and_of_an_edited_text_are_quick(html, second):
    """The last test here, for it changes the second tree."""
    root, _ = second
    assert build(root) < WARM_S
    lesson = root / "chapters" / "stall.md"
    text = lesson.read_text(encoding="utf-8")
    lesson.write_text(text + "\nOne more sentence.\n", encoding="utf-8", newline="\n")
    assert build(root) < EDIT_S
    assert "One more sentence." in (html / "chapters" / "stall.html").read_text(encoding="utf-8")
