"""A page on paper: only its article, nothing cut, nothing folded, dark ink on white."""

import io
import re
from unicodedata import normalize

import pytest
from lesson_inputs import toc_pages
from pypdf import PdfReader
from repository import ROOT

DOCS = list(toc_pages(ROOT))
WIDTH = 672  # px between A4's margins

# What a reader of the paper would miss: parts beyond its edge, or hidden in a box that scrolls.
CUT = """(width) => [...document.querySelectorAll("article *")].filter((element) => {
  const box = element.getBoundingClientRect();
  if (!box.width || element.closest(".katex-mathml, svg, .visually-hidden")) return false;
  const hides = getComputedStyle(element).overflowX !== "visible";
  return box.right > width + 1 || box.left < -1
    || (hides && element.scrollWidth > element.clientWidth + 1 && !element.matches("img, select"));
}).map((element) => `${element.tagName} ${element.className}: ${element.textContent.slice(0, 60)}`)
"""

OUTSIDE = """() => [...document.querySelectorAll("body *")].filter((element) =>
  !element.closest("article") && !element.querySelector("article")
  && element.getBoundingClientRect().height > 1 && element.textContent.trim()
).map((element) => `${element.tagName} ${element.className}`)"""

FOLDED = """() => [...document.querySelectorAll("article details")].filter((details) => {
  const inside = [...details.querySelectorAll("p, pre")];
  const seen = (element) => element.checkVisibility({contentVisibilityAuto: true});
  return seen(details) && inside.length && !inside.some(seen);
}).map((details) => details.textContent.slice(0, 60))"""

FAINT = """() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map((part) => {
      const c = part / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  return [...document.querySelectorAll("body, article *")].filter((element) =>
    element.tagName === "BODY" || [...element.childNodes].some((node) =>
      node.nodeType === Node.TEXT_NODE && node.textContent.trim()))
    .filter((element) => !element.closest(".katex-mathml, svg, option")
      && 1.05 / (light(getComputedStyle(element).color) + 0.05) < 4.5)
    .map((element) => `${element.tagName} ${element.className} ${getComputedStyle(element).color}`);
}"""


def plain(text):
    """Text without white space and ligatures, which a PDF keeps in its own way."""
    return re.sub(r"\s+", "", normalize("NFKC", text))


@pytest.fixture
def paper(visit):
    """paper(doc, ...) -> the page as it is printed; on the screen again after the test."""
    pages = []

    def laid_out(doc, **how):
        pages.append(visit(doc, width=WIDTH, **how))
        pages[-1].emulate_media(media="print")
        return pages[-1]

    yield laid_out
    for page in pages:
        page.emulate_media(media="screen")


@pytest.mark.parametrize("doc", DOCS)
def test_only_the_article_is_printed_and_nothing_is_cut(paper, doc):
    page = paper(doc, scripts=False)
    assert page.locator("h1:visible").count() == 1
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(CUT, WIDTH) == []
    assert page.evaluate(FOLDED) == []
    assert page.locator("button:visible, .headerlink:visible").count() == 0


@pytest.mark.parametrize("doc", ["chapters/memory", "ledger", "exercises/student/stall/stall"])
def test_dark_mode_is_printed_dark_on_white(paper, doc):
    page = paper(doc, scheme="dark")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate(FAINT) == []
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(CUT, WIDTH) == []
    ground = "e => getComputedStyle(e).backgroundColor"
    assert page.locator("body").evaluate(ground) == "rgb(255, 255, 255)"
    for image in page.locator("article img").all():
        assert image.evaluate("e => getComputedStyle(e).filter") == "none"


def test_a_page_printed_from_the_browser_has_all_its_text(visit):
    page = visit("pages/refresher", scheme="dark")
    reader = PdfReader(io.BytesIO(page.pdf(format="A4")))
    text = plain("".join(sheet.extract_text() for sheet in reader.pages))
    folded = page.locator("article details .sd-card-text:first-child")
    folded = folded.evaluate_all("all => all.map(text => text.firstChild.textContent)")
    assert len(folded) > 3
    for words in folded:
        assert plain(words)[:20] in text
    for link in page.locator('article a[href^="http"]').all():
        assert link.get_attribute("href") not in text  # its words are printed, not its address
