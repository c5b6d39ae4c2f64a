"""The extension that links glossary terms, on a small book of its own."""

import io
import re

import glossary_links
import pytest
from bs4 import BeautifulSoup
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

GLOSSARY = """
# Glossary

```{glossary}
:sorted:

BLAS
  The library that multiplies matrices. It is fast.

hit
  Found. Also a verb.

residual
  The time that **no part** covers.

residual stream
  **Rows** between layers.

entry
grouped thing
  A thing that is put in.

window
  How far a token looks back.
```
"""

PAGE = """
# A residual in a heading

Nothing of blas, prewindow, window-like or /window is meant, `residual` is code, and on Windows
there is no $window$. [The window](https://example.org) is a link, and a hit is a verb.

![the window](picture.png)

<a href="https://example.org">The window</a> is one, too.

The residual stream comes before a residual; then come residuals, grouped
things, entries, BLAS, BLAS again. Windows may begin a sentence.
"""

FOLDED = """
# Folded

:::{dropdown} The residual stream on top
A window within, and entries.
:::

:::{admonition} An entry on top
:class: dropdown
A residual within.
:::

The residual is open, and the window, too.

entry
: of a list

| entry |
| --- |
| BLAS |
"""


@pytest.fixture
def build(tmp_path):
    """build(**files) writes these sources and builds; returns the pages that were written."""
    conf = "extensions = ['myst_parser', 'sphinx_design', 'glossary_links']\n"
    conf += "myst_enable_extensions = ['dollarmath', 'deflist', 'colon_fence']\n"
    source, out = tmp_path / "source", tmp_path / "out"
    (source / "pages").mkdir(parents=True)
    (source / "conf.py").write_text(conf, encoding="utf-8")
    (source / "picture.png").write_bytes(b"")

    def built(**files):
        for name, text in files.items():
            path = source / f"{'pages/' if name == 'glossary' else ''}{name}.md"
            path.write_text(text, encoding="utf-8")
        warned = io.StringIO()
        app = Sphinx(source, source, out, tmp_path / "trees", "html", status=None, warning=warned)
        written = []
        app.connect("doctree-resolved", lambda app, tree, doc: written.append(doc))
        app.build()
        assert "term not in glossary" not in warned.getvalue()
        return sorted(written)

    def links(name):
        soup = BeautifulSoup((out / f"{name}.html").read_text(encoding="utf-8"), "html.parser")
        found = soup.select("a.term-link")
        return [(a.get_text(" ", strip=True).replace("\n", " "), a["href"]) for a in found]

    built.links, built.out = links, out
    return built


@pytest.fixture(autouse=True)
def exceptions(monkeypatch):
    """The small book's own: its entry "hit" is not linked."""
    monkeypatch.setattr(glossary_links, "NOT_LINKED", {"hit": "a verb"})


TOC = "# Book\n\n```{toctree}\npages/glossary\npage\n```\n"


def test_the_first_use_of_each_entry_is_linked_and_nothing_else(build):
    build(index=TOC, glossary=GLOSSARY, page=PAGE)
    to = "pages/glossary.html#term-"
    assert build.links("page") == [
        ("residual stream", to + "residual-stream"),
        ("residual", to + "residual"),
        ("grouped things", to + "grouped-thing"),  # and "entries" is the same entry
        ("BLAS", to + "BLAS"),
        ("Windows", to + "window"),
    ]
    assert build.links("pages/glossary") == []


def test_what_is_open_comes_before_what_is_folded(build):
    build(index=TOC, glossary=GLOSSARY, page=FOLDED)
    assert [text for text, _ in build.links("page")] == ["entries", "residual", "window", "BLAS"]
    soup = BeautifulSoup((build.out / "page.html").read_text(encoding="utf-8"), "html.parser")
    assert [a.get_text() for a in soup.select("details a.term-link")] == ["entries"]
    assert soup.select("summary a, dt a.term-link, thead a, .admonition-title a") == []


def test_a_term_role_is_the_pages_only_link_to_its_entry(build):
    build(index=TOC, glossary=GLOSSARY, page="# P\n\nA window, an entry, a {term}`window`.\n")
    assert [text for text, _ in build.links("page")] == ["entry"]
    assert 'href="pages/glossary.html#term-window"' in (build.out / "page.html").read_text("utf-8")


def test_a_tip_is_the_first_sentence_where_it_is_plain(build):
    build(index=TOC, glossary=GLOSSARY, page="# P\n\nBLAS, the residual, the residual stream.\n")
    page = (build.out / "page.html").read_text(encoding="utf-8")
    tips = re.findall(r'term-link[^>]*title="([^"]*)"', page)
    assert tips == ["The library that multiplies matrices."]


def test_only_what_changed_is_written_again(build):
    other = "# Other\n\nNo window here.\n"
    toc = TOC.replace("page\n", "page\nother\n")
    assert len(build(index=toc, glossary=GLOSSARY, page=PAGE, other=other)) == 4
    assert build() == []
    changed = build(page=PAGE.replace("comes before", "precedes"))
    assert "page" in changed
    assert "other" not in changed
    build(glossary=GLOSSARY.replace("BLAS\n", "BLAS\nprecedes\n", 1))
    assert ("precedes", "pages/glossary.html#term-precedes") in build.links("page")
    build(glossary=GLOSSARY.replace("window\n  How far", "view\n  How far"))
    assert [text for text, _ in build.links("other")] == []


def test_two_builds_link_alike(build):
    build(index=TOC, glossary=GLOSSARY, page=PAGE)
    first = (build.out / "page.html").read_bytes()
    build(page=PAGE + "\nMore.\n")
    build(page=PAGE)
    assert (build.out / "page.html").read_bytes() == first


def test_an_exception_that_names_no_entry_is_refused(build, monkeypatch):
    monkeypatch.setattr(glossary_links, "NOT_LINKED", {"gone": "was renamed"})
    with pytest.raises(ExtensionError, match="gone"):
        build(index=TOC, glossary=GLOSSARY, page=PAGE)


def test_numbers_that_a_cell_computed_are_not_linked():
    names = {"window": glossary_links.Name(0, "term-window", "")}
    glued = nodes.inline("", "", nodes.Text("window"), classes=["pasted-text"])
    paragraph = nodes.paragraph("", "", glued, nodes.Text(" and a window"))
    glossary_links.link(paragraph, glossary_links.Finder(names), "glossary.html")
    link = paragraph.next_node(nodes.reference)
    assert link.astext() == "window"
    assert glued.astext() == "window"
    assert link.parent is paragraph


def test_a_book_without_a_glossary_has_no_links(build):
    build(index="# Book\n\nA window.\n")
    assert build.links("index") == []
