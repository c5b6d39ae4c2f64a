"""Makes what the downloads page offers, and writes into the page what was made."""

from pathlib import Path

import bundle
import offers
import printed
from playwright.sync_api import Error
from pypdf import PdfReader

NO_PDF = "No PDF of the course was made: {}."
NO_BROWSER = "no Chromium or Chrome could be started to print it"


def link(file: Path) -> str:
    """A link to a file at the site's root, as the downloads page has it, with the file's size."""
    return f'<a href="../{file.name}" download>{file.name}</a> ({offers.size(file)}'


def offer_downloads(root: Path) -> list[str]:
    """Write the .zip and the PDF of a built book, and offer them; returns what there is to say.

    Without a browser, or with one that fails, there is no PDF, and the page says so. A book without
    a downloads page gets neither.
    """
    page = root / "_build" / "html" / f"{offers.PAGE}.html"
    if not page.is_file():
        return []
    packed = bundle.write_bundle(root)
    try:
        course, why = printed.print_course(root), NO_BROWSER
    except Error as error:
        course, why = None, f"the browser failed ({error.message.splitlines()[0]})"
    said = {bundle.NAME: f"{link(packed)})", printed.NAME: f"{printed.NAME} (not with this build)"}
    if course:
        said[printed.NAME] = f"{link(course)}, {len(PdfReader(course).pages)} pages)"
    offers.fill(page, said)
    return [] if course else [NO_PDF.format(why)]
