"""The extension that names sections and completes claims tables, on a page of its own."""

import deep_links
import pytest
from bs4 import BeautifulSoup
from sphinx.application import Sphinx

TABLE = (
    "<table class='claims'><tbody><tr id='claim-a-01'><th scope='row'>"
    "<a href='#claim-a-01'>a-01</a></th><td>So it is.</td></tr></tbody></table>"
)
PAGE = """# Page

## 0.2, 2026

## In words

## 0.1, 2025
"""


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """pages(page) builds this page and returns it as parsed HTML, and its table of contents."""
    conf = "extensions = ['myst_parser', 'deep_links']\nhtml_theme = 'basic'\n"
    (tmp_path / "conf.py").write_text(conf, encoding="utf-8")

    def built(page):
        (tmp_path / "index.md").write_text(page, encoding="utf-8")
        out = tmp_path / "out"
        app = Sphinx(tmp_path, tmp_path, out, tmp_path / "trees", "html", status=None, warning=None)
        app.build()
        soup = BeautifulSoup((out / "index.html").read_text(encoding="utf-8"), "html.parser")
        return soup, app.env.tocs["index"]

    return built


def test_a_heading_of_figures_has_an_anchor_that_does_not_count(pages):
    soup, contents = pages(PAGE)
    anchors = [section["id"] for section in soup.select("section section")]
    assert anchors == ["section-0-2-2026", "in-words", "section-0-1-2025"]
    assert "#section-0-1-2025" in str(contents)
    later, _ = pages(PAGE.replace("## 0.2", "## 0.3, 2027\n\n## 0.2"))
    assert set(anchors) < {section["id"] for section in later.select("section section")}


def test_headings_of_the_same_words_have_different_anchors(pages):
    soup, _ = pages("# Page\n\n" + "## Added\n\n" * 4)
    anchors = [section["id"] for section in soup.select("section section")]
    assert anchors[:2] == ["added", "section-added"]
    assert len(set(anchors)) == 4


def test_a_row_links_to_itself_and_to_the_ledgers():
    table = BeautifulSoup(TABLE, "html.parser").table
    deep_links.link_rows(table, "../ledger.html")
    there, own = table.tbody.th.find_all("a")
    assert (there["href"], own["href"]) == ("../ledger.html#claim-a-01", "#claim-a-01")
    assert own.find(class_="visually-hidden").get_text() == "Link to the row of a-01"


def test_on_the_ledger_a_row_gets_its_anchor_and_keeps_its_link():
    text = TABLE.replace(" id='claim-a-01'", "").replace("'#claim", "'chapters/a.html#claim")
    table = BeautifulSoup(text, "html.parser").table
    deep_links.link_rows(table, "")
    assert table.tbody.tr["id"] == "claim-a-01"
    assert table.tbody.th.a["href"] == "chapters/a.html#claim-a-01"
