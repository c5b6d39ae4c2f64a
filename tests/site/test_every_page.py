"""What holds on every page of the site, in a browser: light and dark, wide and narrow."""

import pytest
from node_tools import fetch

from pages import PAGES

WAYS = {"light": (1300, "light"), "dark": (1300, "dark"), "phone": (360, "light")}
WIRE_BYTES, REQUESTS = 300_000, 16  # what a page may cost to load, its figures left out

# axe's own choice of rules includes the best practices. One of these it still calls experimental,
# the other it leaves out, and Lighthouse asks for it: what a finger touches is 24 px high and wide.
START_AXE = """() => {
  window.finding = axe.run(document, {
    resultTypes: ["violations"],
    rules: {
      "label-content-name-mismatch": { enabled: true },
      "target-size": { enabled: true },
    },
  }).then((found) => found.violations.flatMap((rule) =>
    rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 200)}`)));
}"""
OPEN_ALL = "document.querySelectorAll('details').forEach((details) => { details.open = true; })"
EXCESS = "document.documentElement.scrollWidth - window.innerWidth"

# Pages one after the other, so that the tests of one share what was loaded for it.
pytestmark = pytest.mark.parametrize("doc", PAGES, scope="module")


@pytest.fixture(scope="module")
def axe(visit, doc):
    """Way to look at the page -> what axe finds in it, as lines. All but the first are unfolded.

    Each way has a process of the browser to itself, so axe is started in all before any is asked.
    """
    script = (fetch() / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    shown = {way: visit(doc, *how) for way, how in WAYS.items()}
    for way, page in shown.items():
        if way != "light":
            page.evaluate(OPEN_ALL)
        page.wait_for_timeout(100)  # the page's scripts look at what unfolded
        page.evaluate(script)
        page.evaluate(START_AXE)
    return {way: page.evaluate("() => window.finding") for way, page in shown.items()}


@pytest.mark.parametrize("way", WAYS)
def test_it_loads_without_complaint(visit, doc, way):
    page = visit(doc, *WAYS[way])
    assert page.evaluate("document.documentElement.dataset.theme") == WAYS[way][1]
    assert page.complaints == []


@pytest.mark.parametrize("way", WAYS)
def test_axe_finds_nothing(axe, way):
    assert axe[way] == []


def test_no_sideways_scroll_on_a_phone(visit, doc):
    page = visit(doc, *WAYS["phone"])
    page.evaluate(OPEN_ALL)
    for width in (360, 320):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate(EXCESS) <= 0, f"wider than {width} px"


def test_it_costs_little_to_load(visit, doc):
    page = visit(doc, *WAYS["phone"])
    asked = [request for request in page.at_first if request.resource_type != "image"]
    sizes = {request.url: request.sizes()["responseBodySize"] for request in asked}
    assert sum(sizes.values()) < WIRE_BYTES, sizes
    assert len(page.at_first) <= REQUESTS, [request.url for request in page.at_first]


def test_images_are_sized_and_wait_below_the_first_screen(visit, doc):
    page = visit(doc)
    images = page.evaluate(
        """[...document.images].map((image) => ({
          source: image.getAttribute("src"),
          sized: ["width", "height"].every((side) => Number(image.getAttribute(side)) > 0),
          lazy: image.loading === "lazy",
          top: image.getBoundingClientRect().top + scrollY,
          shown: image.checkVisibility(),
        }))"""
    )
    assert [image["source"] for image in images if not image["sized"]] == []
    late = [image for image in images if image["shown"] and image["top"] > 900]
    assert [image["source"] for image in late if not image["lazy"]] == []


def test_all_is_there_without_scripts(visit, doc):
    page = visit(doc, scripts=False)
    assert page.complaints == []
    plain, full = (shown.locator("main").inner_text() for shown in (page, visit(doc)))
    assert len(plain.split()) >= 0.95 * len(full.split())
    assert page.locator("article .math:not(:has(math))").count() == 0
    for image in page.query_selector_all("article img"):
        image.scroll_into_view_if_needed()
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    for details in page.query_selector_all("article details:not([open], [hidden] *)"):
        details.query_selector("summary").click()
        assert details.query_selector(":scope > :not(summary)").is_visible()
