"""Headings, figures and claims can be linked to, by addresses that stay."""

import re
from functools import cache

import pytest
from bs4 import BeautifulSoup
from lesson_inputs import toc_pages
from repository import HTML, ROOT

from labsupport import ledger

PAGES = sorted(toc_pages(ROOT))
NUMBERED = re.compile(r"id\d+")  # what Sphinx calls what has no name: it counts


@cache
def parsed(doc):
    """The article of a page as parsed HTML."""
    soup = BeautifulSoup((HTML / f"{doc}.html").read_text(encoding="utf-8"), "html.parser")
    return soup.find("article")


def slug(heading):
    """A heading's text as part of an address."""
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")


@pytest.mark.parametrize("doc", PAGES)
def test_every_heading_links_to_itself_by_its_own_words(site, doc):
    headings = parsed(doc).select("article [id] > :is(h1, h2, h3, h4)")
    assert headings
    for heading in headings:
        link = heading.select_one("a.headerlink")
        assert link["href"] == f"#{heading.parent['id']}"
        assert link["title"]
        text = heading.get_text().removesuffix(link.get_text())
        assert re.sub(r"^\d+-", "", slug(text)) in heading.parent["id"], "an id that counts"


@pytest.mark.parametrize("doc", PAGES)
def test_every_figure_has_a_name_and_links_to_itself(site, doc):
    for figure in parsed(doc).select("figure"):
        assert not NUMBERED.fullmatch(figure["id"])
        assert figure.select_one("figcaption a.headerlink")["href"] == f"#{figure['id']}"


@pytest.mark.parametrize("doc", PAGES)
def test_anchors_are_unique(site, doc):
    soup = BeautifulSoup((HTML / f"{doc}.html").read_text(encoding="utf-8"), "html.parser")
    ids = [element["id"] for element in soup.select("[id]")]
    assert sorted(ids) == sorted(set(ids))


def test_works_are_linked_by_their_keys(site):
    cited = parsed("pages/references").select(".citation")
    assert cited
    assert all(work["id"].startswith("cite-") for work in cited)


def rows(doc):
    """Claim -> its row in the tables of a page."""
    found = parsed(doc).select("table.claims tbody tr")
    table = {row.th.a.get_text(): row for row in found}
    assert len(table) == len(found), "a claim stands twice"
    return table


@pytest.mark.parametrize("chapter", ledger.CHAPTERS)
def test_each_claim_links_to_itself_and_to_the_other_page(site, chapter):
    doc = f"chapters/{chapter}"
    in_chapter, in_ledger = rows(doc), rows("ledger")
    claims = [claim.id for claim in ledger.of_chapter(chapter)]
    assert sorted(in_chapter) == sorted(claims)
    assert set(claims) <= set(in_ledger)
    for claim in claims:
        anchor = f"claim-{claim}"
        for row, other in ((in_chapter, "../ledger.html"), (in_ledger, f"{doc}.html")):
            there, own = row[claim].th.find_all("a")
            assert row[claim]["id"] == anchor
            assert there["href"] == f"{other}#{anchor}"
            assert own["href"] == f"#{anchor}"
            assert claim in own.get_text()  # a name of its own for those who hear it


@pytest.mark.parametrize("width", [1300, 360])
@pytest.mark.parametrize("doc", ["ledger", "chapters/stall"])
def test_a_claims_own_link_is_seen_and_reached_by_keyboard(fresh, doc, width):
    page = fresh(doc, width=width)
    row = page.locator("#claim-stall-03")
    row.locator("th a").first.focus()
    page.keyboard.press("Tab")
    own = page.locator("a:focus")
    assert own.get_attribute("href") == "#claim-stall-03"
    assert own.locator("[aria-hidden]").is_visible()
    page.keyboard.press("Enter")
    page.wait_for_url("**#claim-stall-03")
    assert row.evaluate("row => row.matches(':target')")
