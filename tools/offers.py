"""Fills in, on the downloads page, what only the finished build knows: which files there are, and
how large they are.

In the page's source an offer is a span that names a file. A build that made the file turns the name
into a link; a build that could not says so in its place, so that no link is dead. What is
filled in can be taken out again: a page that was not written anew is filled anew, and the printed
course shows the name alone.
"""

import re
from pathlib import Path

PAGE = "pages/downloads"  # a book without this page offers nothing

OFFER = re.compile(r'(<span class="live" data-offer="([\w.-]+)">).*?(</span>)', re.DOTALL)


def without_offers(page: bytes) -> bytes:
    """A page as its source has it: each offer is the bare name of its file."""
    if b'data-offer="' not in page:
        return page
    return OFFER.sub(r"\1\2\3", page.decode("utf-8")).encode("utf-8")


def size(file: Path) -> str:
    """How large a file is, for people: "4.6 MB"."""
    return f"{file.stat().st_size / 1e6:.1f} MB"


def fill(page: Path, offers: dict[str, str]) -> None:
    """Write the offers, file name -> HTML, into the downloads page; it must have each of them."""
    text = page.read_text(encoding="utf-8")
    named = {found[2] for found in OFFER.finditer(text)}
    if named != set(offers):
        raise ValueError(f"{page.name} offers {sorted(named)}; this build makes {sorted(offers)}")
    filled = OFFER.sub(lambda found: found[1] + offers[found[2]] + found[3], text)
    page.write_text(filled, encoding="utf-8", newline="\n")
