"""A book that was built before ends as one that is built from nothing."""

import io

import pytest
from sphinx.application import Sphinx

BOOK = {
    "index": "# Book\n\n```{toctree}\none\ntwo\nwords\n```\n",
    "one": "# One\n\n(there)=\n## Old words\n\nText.\n",
    "two": "# Two\n\n[](#there), [more](one.md#old-words)\n",
    "words": "# Words\n\n```{glossary}\nentry\n  A thing.\n```\n",
}


@pytest.fixture
def build(tmp_path):
    """build(folder, **files) writes these sources and builds.

    Returns pages, the search index, and how many links lead nowhere.
    """

    def built(folder, **files):
        source, out = tmp_path / folder, tmp_path / folder / "out"
        source.mkdir(exist_ok=True)
        conf = "extensions = ['myst_parser', 'renewal']\nmyst_heading_anchors = 3\n"
        (source / "conf.py").write_text(conf, encoding="utf-8")
        for name, text in files.items():
            (source / f"{name}.md").write_text(text, encoding="utf-8")
        warned = io.StringIO()
        Sphinx(source, source, out, source / "trees", "html", status=None, warning=warned).build()
        pages = [(out / f"{name}.html").read_text(encoding="utf-8") for name in BOOK]
        index = (out / "searchindex.js").read_text(encoding="utf-8")
        return pages, index, warned.getvalue().count("xref_missing")

    return built


@pytest.mark.parametrize(
    ("old", "new"),
    [("Text.", "Other words."), ("# One", "# First"), ("Old words", "New words")],
)
def test_an_edit_ends_as_a_build_from_nothing(build, old, new):
    edited = BOOK["one"].replace(old, new, 1)
    build("before", **BOOK)
    pages, index, _ = build("before", one=edited)
    assert pages == build("afresh", **BOOK | {"one": edited})[0]
    assert '"indexentries": {"entry": [[3, "term-entry", true]]}' in index


def test_a_link_that_leads_nowhere_now_is_told(build):
    assert build("book", **BOOK)[2] == 0
    assert build("book", one=BOOK["one"].replace("Old", "New"))[2] == 1


def test_a_text_edit_writes_no_page_that_it_does_not_concern(build, tmp_path):
    build("book", **BOOK)
    page = tmp_path / "book/out/two.html"
    page.write_text("as it was", encoding="utf-8")
    build("book", one=BOOK["one"].replace("Text.", "Other words."))
    assert page.read_text(encoding="utf-8") == "as it was"
