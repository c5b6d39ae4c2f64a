"""Prints the whole course to one PDF, with a browser: every page of _toc.yml, in reading order.

A page is printed as the browser would print it from the web (`_static/print.css`), with what is
folded opened, and no script file loaded. The browser gets the built files under their addresses on
the web, from the disk: no server runs, and nothing else is fetched. Printed pages are kept under
_build/print, and a page is printed again only if a file that it was made of changed.
"""

import hashlib
import json
import mimetypes
import shutil
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import unquote, urlsplit

from browser import fetch, launch
from front_matter import captions, facts, front_matter
from joined import Course, Part, join
from lesson_inputs import toc_pages
from offers import without_offers
from playwright.sync_api import sync_playwright
from pypdf import PdfReader

NAME = "the-price-of-remembering.pdf"
PATIENCE_S = 60  # for a download of Playwright's browser where there is none
WAYS = ("printed.py", "joined.py", "front_matter.py")  # a change of these prints all again

MARGIN = {"top": "16mm", "bottom": "20mm", "left": "16mm", "right": "16mm"}
PAPER = {"format": "A4", "margin": MARGIN, "print_background": True}

# Opens what is folded and waits for images and fonts. A section's place is that of its heading,
# which may stand on the next sheet. Chromium notes the place of an element only if its page links
# to it, so all get a link. Returns the headings: level, text, id.
PREPARE = r"""async () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
  for (const image of document.images) image.loading = "eager";
  await Promise.all([...document.images].map((image) => image.decode().catch(() => null)));
  await document.fonts.ready;

  const headings = [];
  const places = "article :is(section, div)[id] > :is(h1, h2, h3)";
  for (const heading of document.querySelectorAll(places)) {
    const section = heading.parentElement;
    heading.querySelector(".headerlink")?.remove();
    const text = heading.textContent.replace(/\s+/g, " ").trim();
    headings.push([Number(heading.tagName[1]), text, section.id]);
    heading.prepend(...section.querySelectorAll(":scope > span[id]:empty"));
    heading.id = section.id;
    section.removeAttribute("id");
  }

  const links = document.createElement("div");
  links.hidden = true;
  for (const element of document.querySelectorAll("article [id]")) {
    const link = document.createElement("a");
    link.href = "#" + encodeURIComponent(element.id);
    links.append(link);
  }
  document.body.append(links);
  return headings;
}"""


def content(file: Path) -> bytes:
    """What is printed of a file: all of it, but not what a later step writes into a page."""
    return without_offers(file.read_bytes()) if file.suffix == ".html" else file.read_bytes()


def digest(file: Path) -> str:
    """SHA-256 of what is printed of a file; of no file, nothing."""
    return hashlib.sha256(content(file)).hexdigest() if file.is_file() else ""


class Press:
    """Prints pages of a built book, and remembers which files each was made of."""

    def __init__(self, site: Path, store: Path, base: str):
        self.site, self.store, self.base = site, store, base
        self.known, self.files, self.context = {}, set(), None

    def pdf(self, doc: str) -> Path:
        """Where the printed page is kept."""
        return self.store / f"{doc.replace('/', '--')}.pdf"

    def is_current(self, doc: str) -> bool:
        """Whether the page was printed, from files that are the same today."""
        if doc not in self.known or not self.pdf(doc).is_file():
            return False
        return all(digest(self.site / name) == was for name, was in self.known[doc][1].items())

    def answer(self, route) -> None:
        """Give the browser a file of the book; nothing from elsewhere, and no script file."""
        url, kind = route.request.url, route.request.resource_type
        file = self.site / unquote(urlsplit(url).path.removeprefix(urlsplit(self.base).path))
        if kind == "script" or not url.startswith(self.base) or not file.is_file():
            route.abort()
            return
        self.files.add(file)
        guessed = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        route.fulfill(body=content(file), content_type=guessed)

    def print(self, doc: str) -> None:
        """Print one page of the book."""
        self.files.clear()
        page = self.context.new_page()
        page.goto(f"{self.base}{doc}.html", wait_until="load")
        headings = page.evaluate(PREPARE)
        page.pdf(path=self.pdf(doc), **PAPER)
        page.close()
        read = {file.relative_to(self.site).as_posix(): digest(file) for file in self.files}
        self.known[doc] = (headings, dict(sorted(read.items())))

    def part(self, doc: str) -> Part:
        """A printed page, as a part of the course."""
        return Part(self.pdf(doc), doc, f"{self.base}{doc}.html", self.known[doc][0])

    def front(self, about: dict[str, str], captions: dict[str, str], parts: list[Part]) -> Part:
        """Title and contents. How long they are shifts every page number, so that is tried."""
        front = Part(self.pdf("contents"), "", f"{self.base}contents", [(1, "Contents", "")])
        course, page, n_sheets = Course(parts), self.context.new_page(), 0
        while True:
            page.set_content(front_matter(about, captions, course.entries(n_sheets)))
            page.pdf(path=front.pdf, **PAPER)
            before, n_sheets = n_sheets, len(PdfReader(front.pdf).pages)
            if n_sheets == before:
                return front


def start(stack: ExitStack):
    """A browser, closed with `stack`; None if there is none and none can be had."""
    chromium = stack.enter_context(sync_playwright()).chromium
    started = launch(chromium)
    if not started:
        fetch("--only-shell", patience_s=PATIENCE_S)
        started = launch(chromium)
    return started and stack.enter_context(started)


def print_course(root: Path) -> Path | None:
    """Print what changed, and write the whole course to _build/html; None without a browser.

    Raises Playwright's Error if the browser fails while it prints. Then, as without a browser, no
    course is offered that is older than the pages.
    """
    build, docs, about = root / "_build", list(toc_pages(root)), facts(root)
    press = Press(build / "html", build / "print", about["Read it at"])
    whole, ledger = press.store / NAME, press.store / "printed.json"
    ways = [digest(Path(__file__).with_name(name)) for name in WAYS]
    press.store.mkdir(parents=True, exist_ok=True)
    kept = json.loads(ledger.read_text(encoding="utf-8")) if ledger.is_file() else {}
    press.known = kept.get("pages", {}) if kept.get("made_of", {}).get("ways") == ways else {}

    outdated = [doc for doc in docs if not press.is_current(doc)]
    made_of = {"ways": ways, "docs": docs, "about": about, "parts": captions(root)}
    if outdated or not whole.is_file() or kept.get("made_of") != made_of:
        for old in (ledger, build / "html" / NAME):
            old.unlink(missing_ok=True)
        with ExitStack() as stack:
            browser = start(stack)
            if not browser:
                return None
            press.context = browser.new_context(color_scheme="light")
            press.context.route("**/*", press.answer)
            for doc in outdated:
                press.print(doc)
            parts = [press.part(doc) for doc in docs]
            front = press.front(about, captions(root), parts)
        join([front, *parts], about, whole)
        pages = {doc: press.known[doc] for doc in docs}
        kept = {"made_of": made_of, "pages": pages}
        ledger.write_text(json.dumps(kept, indent=1), encoding="utf-8", newline="\n")
    return Path(shutil.copyfile(whole, build / "html" / NAME))
