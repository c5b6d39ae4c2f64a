"""The course's Sphinx extension: what the theme and well-kept extensions leave undone.

`_config.yml` loads this module alone; it sets up the others of this folder. Each has one job and
says in its docstring why that job has to be done here.

When a build is finished, the pages that it wrote are mended (`page_mends`), their scripts are put
off until the page is shown (`scripts`), and the style sheets of all pages become one (`styles`).
The three work on the written files, since the theme's templates offer no place for it.
"""

from itertools import chain
from pathlib import Path

import page_mends
import scripts
import styles
from bs4 import BeautifulSoup
from bs4.dammit import EntitySubstitution
from bs4.formatter import HTMLFormatter

# The modules of this folder that are extensions themselves.
PARTS = (
    "katex",
    "glossary_links",
    "deep_links",
    "launch_links",
    "head",
    "not_found",
    "renewal",
    "quizzes",
    "status",
    "explore",
)


class AsWritten(HTMLFormatter):
    """HTML whose attributes keep their order, and whose "<br>" has no slash."""

    def __init__(self):
        super().__init__(EntitySubstitution.substitute_xml, void_element_close_prefix="")

    def attributes(self, tag):
        return tag.attrs.items()


def mend_page(path: Path, site: Path) -> list[str]:
    """Mend one written page in place; returns the style sheets that it had."""
    soup = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
    page_mends.mend(soup, path)
    scripts.put_off(soup, path, site)
    sheets = styles.link(soup, path, site)
    path.write_text(soup.decode(formatter=AsWritten()), encoding="utf-8", newline="\n")
    return sheets


def finish(app, exception):
    """Mend the pages that this build wrote; then write what all pages share."""
    if exception or app.builder.name != "html":
        return
    site = Path(app.outdir)
    pages = sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)
    written = [path for path in pages if not styles.is_linked(path)]
    sheets = [mend_page(path, site) for path in written]
    if written:
        scripts.write(site, Path(__file__).parent / "static")
        styles.write(site, pages, list(dict.fromkeys(chain.from_iterable(sheets))))


def setup(app):
    """Set up the parts, then the mending of written pages."""
    for part in PARTS:
        app.setup_extension(part)
    app.connect("build-finished", finish, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
