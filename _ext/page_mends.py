"""Mends of the written pages: what the theme writes that a reader, a browser or a screen reader
trips over.

Each step says what was wrong. They change the page's markup only; how it looks is in `_static`.
"""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from PIL import Image


def one_viewport(soup):
    """Sphinx, docutils and the theme each write this tag."""
    for extra in soup.select('head meta[name="viewport"]')[1:]:
        extra.decompose()


def one_heading(soup):
    """The theme's hidden block for printing repeats the title as a second h1, and the contents."""
    if block := soup.find(id="jb-print-docs-body"):
        block.decompose()


def heading_of_the_article(soup):
    """The title heads the article, not a section of it; so it stands in no section."""
    for title in soup.select("section > h1"):
        title.parent.name = "div"


def plain_main(soup):
    """A main element has its role by itself; the scripts that ask for the attribute are adapted."""
    del soup.main["role"]


def visible_names(soup):
    """An accessible name that differs from the visible text hides what is written there."""
    for element in soup.select("button[aria-label], summary[aria-label]"):
        if element.get_text(strip=True):
            del element["aria-label"]


def named_regions(soup):
    """All content lies in a landmark: the sidebars and what floats over the page have one, too."""
    for name, label in (
        ("pst-primary-sidebar", "Pages of the course"),
        ("pst-secondary-sidebar", "This page"),
    ):
        if sidebar := soup.find(id=name):
            sidebar["role"], sidebar["aria-label"] = "complementary", label


def plain_summaries(soup):
    """A summary holds no paragraphs."""
    for paragraph in soup.select("summary p"):
        paragraph.name = "span"


def tables(soup):
    """pandas' own styles and borders are not valid here, and an empty header heads nothing."""
    for style in soup.select("style[scoped]"):
        style.decompose()
    for element in soup.select("table[border], th[valign], th[halign]"):
        for name in ("border", "valign", "halign"):
            element.attrs.pop(name, None)
    for cell in soup.select("th"):
        if not cell.get_text(strip=True):
            cell.name = "td"
            cell.attrs.pop("scope", None)


def bibliography(soup):
    """docutils' roles for it are deprecated, and its list holds links that are no items."""
    for element in soup.select('[role="doc-biblioentry"], .citation-list[role="list"]'):
        del element["role"]


def formulas(soup):
    """An operator of MathML holds text; KaTeX nests elements in it where one has a subscript."""
    for operator in soup.select("mo:has(*)"):
        operator.string = operator.get_text()


def images(soup, page: Path):
    """Sizes keep the text from jumping; figures wait until they are near."""
    for image in soup.select("img[src]"):
        address = urlsplit(image["src"])
        file = page.parent / unquote(address.path)
        if address.scheme or not file.is_file():
            continue
        image["width"], image["height"] = map(str, size(file))
    for image in soup.select("article img"):
        image["loading"], image["decoding"] = "lazy", "async"


def downloads(soup):
    """What a page offers to download is saved; a browser would show a notebook as text."""
    for link in soup.select(".dropdown-download-buttons a[href]"):
        del link["target"]
        link["download"] = ""


def size(file: Path) -> tuple[int, int]:
    """Width and height of an image in pixels; of a drawing in SVG, those of its view box."""
    if file.suffix == ".svg":
        box = re.search(r'viewBox="([^"]*)"', file.read_text(encoding="utf-8"))[1]
        return tuple(round(float(number)) for number in box.split()[2:])
    with Image.open(file) as opened:
        return opened.size


def mend(soup, page: Path):
    """All mends of one page, in place."""
    one_viewport(soup)
    one_heading(soup)
    heading_of_the_article(soup)
    plain_main(soup)
    visible_names(soup)
    named_regions(soup)
    plain_summaries(soup)
    tables(soup)
    bibliography(soup)
    formulas(soup)
    images(soup, page)
    downloads(soup)
