"""What a page says of itself to search engines and to those who link to it; the 404 page."""

import re
from urllib.parse import urlsplit
from xml.etree import ElementTree

import cards
import pytest
import yaml
from PIL import Image
from repository import HTML, read

from pages import TOC, soup

CONFIG = yaml.safe_load(read("_config.yml"))
SITE = CONFIG["html"]["baseurl"]
NOWHERE = "no/such/page"


def content(doc, **attributes):
    """The content of the one meta tag with these attributes."""
    [tag] = soup(doc).head.find_all("meta", attrs=attributes)
    return tag["content"]


def property_of(doc, name):
    return content(doc, property=name)


@pytest.mark.parametrize("doc", TOC)
def test_a_page_describes_itself_in_plain_words(site, doc):
    said = content(doc, name="description")
    assert 50 <= len(said) <= 160
    assert not re.search(r"[\\${}<>]", said)
    assert property_of(doc, "og:description") == said


def test_no_two_pages_describe_themselves_alike(site):
    assert len({content(doc, name="description") for doc in TOC}) == len(TOC)


@pytest.mark.parametrize("doc", TOC)
def test_a_shared_link_shows_title_and_image(site, doc):
    title = soup(doc).select_one("article h1").find(string=True).strip()
    assert property_of(doc, "og:title").startswith(title)
    assert property_of(doc, "og:type") == "website"
    assert property_of(doc, "og:site_name") == CONFIG["title"]
    assert property_of(doc, "og:image:alt").startswith(title)
    assert content(doc, name="twitter:card") == "summary_large_image"
    image = property_of(doc, "og:image")
    assert image.startswith(SITE)
    with Image.open(HTML / image.removeprefix(SITE)) as opened:
        said = [property_of(doc, f"og:image:{side}") for side in ("width", "height")]
        assert [str(side) for side in opened.size] == said


def test_each_page_has_an_image_of_its_own(site):
    assert len({property_of(doc, "og:image") for doc in TOC}) == len(TOC)


def test_text_fits_its_image(tmp_path):
    """Nothing is drawn at the edges, also of the longest title and description."""
    for doc in TOC:
        title = property_of(doc, "og:title")
        name = cards.draw(tmp_path, doc, "Site", title, "measured " * 60)
        with Image.open(tmp_path / name) as opened:
            image = opened.convert("RGB")
        ground = image.getpixel((0, 0))
        w, h = image.size
        for edge in ((w - 40, 0, w, h), (0, 0, 40, h), (0, 0, w, 25), (0, h - 25, w, h)):
            [(_, colour)] = image.crop(edge).getcolors(1) or [(0, None)]
            assert colour == ground, (doc, edge)


def test_an_image_is_drawn_once_and_always_alike(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    name = cards.draw(one, "a/b", "Site", "Title", "Words")
    assert cards.draw(two, "a/b", "Site", "Title", "Words") == name
    assert (one / name).read_bytes() == (two / name).read_bytes()
    (one / name).write_bytes(b"kept")
    cards.draw(one, "a/b", "Site", "Title", "Words")
    assert (one / name).read_bytes() == b"kept"
    assert cards.draw(one, "a/b", "Site", "Title", "Other words") != name


def test_the_site_map_lists_the_pages_at_their_canonical_address(site):
    mapped = [place.text for place in ElementTree.parse(HTML / "sitemap.xml").iter() if place.text]
    canonical = {}
    for doc in TOC:
        [link] = soup(doc).select('head link[rel="canonical"]')
        canonical[doc] = link["href"]
        assert link["href"] == property_of(doc, "og:url") == f"{SITE}{doc}.html"
    assert sorted(mapped) == sorted(canonical.values())


def test_robots_txt_names_the_site_map(site):
    assert f"Sitemap: {SITE}sitemap.xml" in (HTML / "robots.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("doc", TOC)
def test_only_pages_to_find_are_listed(site, doc):
    assert not soup(doc).select('meta[name="robots"]')


@pytest.mark.parametrize("doc", ["404", "search"])
def test_search_and_404_are_not(site, doc):
    assert content(doc, name="robots") == "noindex"
    assert not soup(doc).select('head link[rel="canonical"]')


@pytest.mark.parametrize("doc", [*TOC, "404"])
def test_a_page_has_the_icon(site, doc):
    [icon] = soup(doc).select('head link[rel~="icon"]')
    assert icon["href"].endswith("_static/favicon.svg")


def test_the_icon_is_sharp_at_16_pixels():
    """Every edge of its rows lies on a whole pixel."""
    rows = re.findall(
        r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"', read("_static/favicon.svg")
    )
    assert len(rows) == 4
    assert all(int(edge) % 4 == 0 for row in rows for edge in row)


# The 404 page


@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("width", [1300, 360])
@pytest.mark.parametrize("doc", ["nothing", NOWHERE])
def test_the_404_page_is_whole_at_any_depth(visit, doc, width, scripts):
    page = visit(doc, width, scripts=scripts)
    wrong = [said for said in page.complaints if f"/{doc}.html" not in said and "404" not in said]
    assert not wrong
    refused = [said for said in page.complaints if said.startswith("404: ")]
    assert refused == [said for said in refused if said.endswith(f"/{doc}.html")]
    assert "no page at this address" in page.locator("h1").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    styled = "getComputedStyle(document.documentElement).getPropertyValue('--pst-color-primary')"
    assert page.evaluate(styled)


def test_every_address_of_the_404_page_is_there(site):
    path = urlsplit(SITE).path
    for tag in soup("404").find_all(True):
        for name in ("href", "src", "action"):
            address = urlsplit(tag.get(name, "#"))
            if address.path and not address.netloc:
                assert address.path.startswith(path), tag
                assert (HTML / address.path.removeprefix(path)).is_file(), tag


def test_the_404_page_searches_and_leads_home(opening, site):
    with opening(NOWHERE) as page:
        page.locator("article").get_by_label("Search the course").fill("residual")
        page.locator("article").get_by_role("button", name="Search").click()
        page.wait_for_url("**/search.html?q=residual")
        page.wait_for_selector("ul.search li a")
    with opening(NOWHERE) as page:
        page.locator("article").get_by_role("link", name="the first page").click()
        page.wait_for_url("**/index.html")
