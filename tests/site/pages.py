"""The pages of the built book, parsed: what is on each, and where its links lead."""

import functools
from pathlib import PurePosixPath
from urllib.parse import unquote, urljoin, urlsplit

from bs4 import BeautifulSoup
from lesson_inputs import executed_lessons, toc_pages
from repository import HTML, ROOT
from serving import base_path

TOC = sorted(toc_pages(ROOT))  # what readers read
LESSONS = sorted(executed_lessons(ROOT))
EXTRA = ["404", "search"]  # pages that Sphinx and an extension add
PAGES = TOC + EXTRA
BASE = base_path(ROOT)


@functools.cache
def soup(doc):
    """The page of a document, parsed."""
    return BeautifulSoup((HTML / f"{doc}.html").read_text(encoding="utf-8"), "html.parser")


def links(doc):
    """The internal links of a page: (tag, file below the site, anchor), as browsers resolve them.

    A link that leaves the folder of the site comes as it is, so no file will be found for it.
    """
    found = []
    for tag in soup(doc).find_all(lambda tag: tag.has_attr("href") or tag.has_attr("src")):
        written = tag.get("href", tag.get("src"))
        address = urlsplit(urljoin(f"http://site{BASE}{doc}.html", written))
        if address.netloc == "site":
            path = unquote(address.path)
            path = path.removeprefix(BASE) if path.startswith(BASE) else path
            path += "index.html" if path.endswith("/") or not path else ""
            found.append((tag, path, unquote(address.fragment)))
    return found


def anchors(doc):
    """What a link's anchor can name on a page."""
    named = soup(doc).find_all(lambda tag: tag.has_attr("id") or tag.has_attr("name"))
    return {tag.get(kind) for tag in named for kind in ("id", "name")} | {"", "top"}


def built():
    """The documents whose pages stand in the site, the theme's templates left out."""
    found = (path.relative_to(HTML).as_posix() for path in HTML.rglob("*.html"))
    return {path.removesuffix(".html") for path in found if PurePosixPath(path).parts[0][0] != "_"}
