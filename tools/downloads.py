"""Makes what the downloads page offers, and writes into the page what was made."""

from pathlib import Path

import bundle
import offers
import printed
from pypdf import PdfReader

NO_BROWSER = "No PDF of the course was made: no Chromium or Chrome could be started to print it."


def link(file: Path) -> str:
    """A link to a file at the site's root, as the downloads page has it, with the file's size."""
    return f'<a href="../{file.name}" download>{file.name}</a> ({offers.size(file)}'


def offer_downloads(root: Path) -> list[str]:
    """Write the .zip and the PDF of a built book, and offer them; returns what there is to say.

    Without a browser there is no PDF, and the page says so. A book without a downloads page gets
    neither.
    """
    page = root / "_build" / "html" / f"{offers.PAGE}.html"
    if not page.is_file():
        return []
    packed, course = bundle.write_bundle(root), printed.print_course(root)
    said = {bundle.NAME: f"{link(packed)})", printed.NAME: f"{printed.NAME} (not with this build)"}
    if course:
        said[printed.NAME] = f"{link(course)}, {len(PdfReader(course).pages)} pages)"
    offers.fill(page, said)
    return [] if course else [NO_BROWSER]
