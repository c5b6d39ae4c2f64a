"""Where the site's links lead: to a page and an anchor that exist, or to a file of the repository.

Links to other hosts are checked by a job of their own, which needs a network.
"""

import re
from collections import defaultdict
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
import yaml
from lesson_inputs import toc_pages
from repository import ROOT, read

from pages import HTML, PAGES, TOC, anchors, built, links, soup

CONFIG = yaml.safe_load(read("_config.yml"))
REPOSITORY, BRANCH = CONFIG["repository"]["url"], CONFIG["repository"]["branch"]
SITE = CONFIG["html"]["baseurl"]
SOURCES = toc_pages(ROOT)


def test_the_site_has_these_pages_and_no_other(site):
    assert built() == set(PAGES)


@pytest.mark.parametrize("doc", PAGES)
def test_internal_links_resolve(site, doc):
    broken = []
    for tag, path, anchor in links(doc):
        target = path.removesuffix(".html")
        if not (HTML / path).is_file() or (anchor and anchor not in anchors(target)):
            broken.append(f"{str(tag)[:100]} -> {path}#{anchor}")
    assert broken == []


def test_no_page_is_an_orphan(site):
    reached, todo = set(), {"index"}
    while todo:
        reached |= todo
        found = {path for doc in todo for _, path, _ in links(doc) if path.endswith(".html")}
        todo = {path.removesuffix(".html") for path in found} - reached
    assert set(TOC) - reached == set()


def test_previous_and_next_follow_the_table_of_contents(site):
    order = list(SOURCES)
    for doc, before, after in zip(order, [None, *order], [*order[1:], None], strict=False):
        area = {tag["class"][0]: path for tag, path, _ in links(doc) if is_step(tag)}
        expected = {"left-prev": before, "right-next": after}
        assert area == {step: f"{to}.html" for step, to in expected.items() if to}


def is_step(tag):
    return tag.get("class", [""])[0] in ("left-prev", "right-next")


@pytest.mark.parametrize("doc", PAGES)
def test_links_to_the_repository_name_files_that_exist(site, doc):
    """On this branch; in the forms that the repository's host knows."""
    whole = {"", ".git", "/issues", "/discussions", f"/archive/refs/heads/{BRANCH}.zip"}
    for link in soup(doc).select(f'a[href^="{REPOSITORY}"]'):
        rest = unquote(link["href"].removeprefix(REPOSITORY)).split("#")[0].rstrip("/")
        if rest in whole or re.match(r"/(issues/new\?|commit/[0-9a-f]{7,40}$)", rest):
            continue
        _, kind, branch, path = rest.split("/", 3)
        assert kind in ("blob", "edit", "tree", "raw"), link
        assert branch == BRANCH, link
        assert (ROOT / path).exists(), link


@pytest.mark.parametrize("doc", TOC)
def test_a_page_can_be_edited_and_reported(site, doc):
    button = {
        kind: soup(doc).select_one(f"a.btn-source-{kind}-button")["href"]
        for kind in ("repository", "edit", "issues")
    }
    source = SOURCES[doc].relative_to(ROOT).as_posix()
    assert button["repository"] == REPOSITORY
    assert button["edit"] == f"{REPOSITORY}/edit/{BRANCH}/{source}"
    assert unquote(button["issues"]).startswith(f"{REPOSITORY}/issues/new?title=")
    assert f"{doc}.html" in unquote(button["issues"])


def test_the_sitemap_lists_the_pages_where_they_are_published(site):
    tree = ElementTree.parse(HTML / "sitemap.xml")
    listed = {element.text for element in tree.iter() if element.tag.endswith("}loc")}
    assert listed >= {f"{SITE}{doc}.html" for doc in TOC}
    assert all((HTML / address.removeprefix(SITE)).is_file() for address in listed)


@pytest.mark.parametrize("address", ["no-such-page", "chapters/no/such/page"])
def test_a_wrong_address_leads_to_the_books_own_page(visit, address):
    page = visit(address)
    missing = f"404: {page.url}"
    assert [told for told in page.complaints if "404 (Not Found)" not in told] == [missing]
    assert page.evaluate("document.styleSheets[0].cssRules.length") > 100
    page.locator('a[href$="/index.html"]:visible').first.click()
    assert page.locator("h1").inner_text().startswith(CONFIG["title"])


def test_each_file_that_is_offered_can_be_fetched(visit):
    """Notebooks, sources, archives: as what it is, and not empty."""
    offered = defaultdict(set)
    for doc in PAGES:
        for tag, path, _ in links(doc):
            if tag.name == "a" and not path.endswith(".html"):
                offered[path].add(doc)
    page = visit("index")
    for path in offered:
        answer = page.request.head(f"{page.url.rsplit('/', 1)[0]}/{path}")
        assert answer.ok, (path, offered[path])
        assert int(answer.headers["content-length"]) > 0, path
        assert answer.headers["content-type"] != "application/octet-stream", path
