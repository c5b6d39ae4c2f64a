"""The whole course as one PDF: complete, with jumps for links, and printed only as needed."""

import functools
import re
from contextlib import nullcontext
from types import SimpleNamespace
from unicodedata import normalize

import downloads
import offers
import printed
import pytest
from bs4 import BeautifulSoup
from front_matter import captions, facts
from lesson_inputs import toc_pages
from pypdf import PdfReader
from repository import HTML, ROOT
from sample_book import write

BASE = facts(ROOT)["Read it at"]
DOCS = list(toc_pages(ROOT))
A4_PT = (595, 842)


def plain(text):
    """Text without white space and ligatures, which a PDF keeps in its own way."""
    return re.sub(r"\s+", "", normalize("NFKC", text))


@pytest.fixture(scope="module")
def course():
    return PdfReader(HTML / printed.NAME)


@pytest.fixture(scope="module")
def sheet_text(course):
    """The text of a sheet, counted from 0. Reading one takes a while, so it is read once."""
    return functools.cache(lambda sheet: plain(course.pages[sheet].extract_text()))


@pytest.fixture(scope="module")
def titles():
    """Document -> its title, as the built page has it."""
    found = {}
    for doc in DOCS:
        soup = BeautifulSoup((HTML / f"{doc}.html").read_text(encoding="utf-8"), "html.parser")
        heading = soup.select_one("article h1")
        heading.select_one(".headerlink").decompose()
        found[doc] = heading.get_text(" ", strip=True)
    return found


def starts(reader):
    """Title of each bookmark of the first level -> the sheet that it leads to, from 0."""
    first = [item for item in reader.outline if not isinstance(item, list)]
    return {item.title: reader.get_destination_page_number(item) for item in first}


def leaves(items):
    """All bookmarks of an outline, whatever their level."""
    for item in items:
        yield from leaves(item) if isinstance(item, list) else [item]


def jumps(page):
    """The links of a sheet: those within the file, and the addresses of the others."""
    notes = [note.get_object() for note in page.get("/Annots") or ()]
    links = [note for note in notes if note["/Subtype"] == "/Link"]
    inside = [note["/Dest"] for note in links if "/Dest" in note]
    return inside, [str(note["/A"]["/URI"]) for note in links if "/Dest" not in note]


def test_each_page_has_a_bookmark_in_reading_order(course, titles, sheet_text):
    marks = starts(course)
    assert list(marks) == ["Contents", *titles.values()]
    assert list(marks.values()) == sorted(set(marks.values()))
    for title, sheet in list(marks.items())[1:]:
        assert plain(title) in sheet_text(sheet)


def test_each_heading_has_a_bookmark_to_its_sheet(course, titles, sheet_text):
    marks = starts(course)
    first, last = marks[titles["chapters/stall"]], marks[titles["pages/exercises"]]
    find = course.get_destination_page_number
    found = [(item.title, find(item)) for item in leaves(course.outline)]
    found = [(title, sheet) for title, sheet in found if first <= sheet < last]
    assert len(found) > 60
    assert [title for title, sheet in found if plain(title) not in sheet_text(sheet)] == []


@pytest.mark.parametrize("doc", [doc for doc in DOCS if doc.startswith("chapters/")])
def test_what_a_chapter_folds_is_printed(course, titles, sheet_text, doc):
    marks = starts(course)
    order = [*marks.values(), len(course.pages)]
    first = marks[titles[doc]]
    text = "".join(map(sheet_text, range(first, order[order.index(first) + 1])))
    soup = BeautifulSoup((HTML / f"{doc}.html").read_text(encoding="utf-8"), "html.parser")
    folded = soup.select("article details.sd-dropdown, article details.hide")
    assert len(folded) > 5
    for details in folded:
        details.summary.decompose()
        prose = details.select_one("p, pre")
        words = next(text for text in prose.stripped_strings if len(text) > 2)
        assert plain(words)[:30] in text


def test_the_title_page_and_the_metadata_say_what_it_is(course, sheet_text):
    first = sheet_text(0)
    for label, text in facts(ROOT).items():
        if label != "Built from":  # the book may have been built before the last commit
            assert plain(text) in first
    assert "/CreationDate" not in course.metadata
    assert course.metadata.title == facts(ROOT)["Title"]
    assert course.metadata.author == facts(ROOT)["Authors"]
    assert course.trailer["/Root"]["/Lang"] == "en"


def test_sheets_are_a4_and_numbered(course, sheet_text):
    for sheet, page in enumerate(course.pages):
        assert tuple(round(side) for side in page.mediabox[2:]) == pytest.approx(A4_PT, abs=2)
        if sheet % 25 == 1:
            assert sheet_text(sheet).endswith(str(sheet + 1))


def test_contents_give_the_sheet_of_each_page(course, titles, sheet_text):
    marks = starts(course)
    text = "".join(map(sheet_text, range(1, list(marks.values())[1])))
    for title in titles.values():
        assert plain(title) + str(marks[title] + 1) in text
    assert all(plain(caption) in text for caption in captions(ROOT).values())


def test_links_between_pages_are_jumps(course):
    n_inside, outside = 0, set()
    for page in course.pages:
        inside, addresses = jumps(page)
        outside |= set(addresses)
        n_inside += len(inside)
        for place in inside:
            assert course.get_page_number(place[0].get_object()) is not None
    assert n_inside > 10 * len(DOCS)
    to_site = {address.split("#")[0] for address in outside if address.startswith(BASE)}
    assert not to_site & {f"{BASE}{doc}.html" for doc in DOCS}
    assert len(outside) > 10  # foreign links stay


def test_it_is_of_reasonable_size(course):
    assert (HTML / printed.NAME).stat().st_size < 15e6


# A small book of its own: what is printed again, and what happens without a browser

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>%s</title>
<link rel="stylesheet" href="%s_static/site.css"></head><body><article class="bd-article">
<section id="%s"><h1>%s<a class="headerlink" href="#">#</a></h1><p>%s</p>
<section id="far"><h2>Far</h2><p>End.</p></section></section></article></body></html>"""

BOOK = {
    "_toc.yml": "format: jb-book\nroot: index\nparts:\n- caption: Part\n"
    "  chapters:\n  - file: pages/downloads\n",
    "_config.yml": "title: Tiny (a book)\nauthor: Nobody\nhtml:\n"
    "  baseurl: https://tiny.example/book/\n  extra_footer: Free.\n"
    "repository:\n  url: https://github.com/price-of-remembering/tiny\n",
    "CITATION.cff": "abstract: Little.\nversion: 1.0.0\n",
    "index.md": "",
    "pages/downloads.md": "",
    # The second section begins on the sheet of the first, but its heading moves to the next.
    "_build/html/_static/site.css": "h2 { margin-top: 20mm; break-after: avoid; }"
    "p { height: 130mm; break-inside: avoid; }",
    "_build/html/index.html": PAGE
    % ("I", "", "start", "Start", '<a href="pages/downloads.html#far">There</a>'),
    "_build/html/pages/downloads.html": PAGE
    % (
        "D",
        "../",
        "downloads",
        "Downloads",
        "".join(
            f'<span class="live" data-offer="{name}">{name}</span>'
            for name in (printed.NAME, downloads.bundle.NAME)
        )
        + '<a href="https://other.example/">Elsewhere</a>',
    ),
}


@pytest.fixture
def book(tmp_path, monkeypatch, browser):
    """The small book, and what of it gets printed, as a list that grows."""
    write(tmp_path, BOOK)
    monkeypatch.setattr(printed, "start", lambda stack: browser)
    done, real = [], printed.Press.print

    def noted(press, doc):
        done.append(doc)
        real(press, doc)

    monkeypatch.setattr(printed.Press, "print", noted)
    return SimpleNamespace(root=tmp_path, done=done)


def print_again(book, files=()):
    """Write the files, print; what was printed, and the PDF."""
    write(book.root, dict(files))
    book.done.clear()
    made = printed.print_course(book.root)
    return list(book.done), made


def test_only_what_changed_is_printed_again(book):
    both = ["index", "pages/downloads"]
    printed_now, made = print_again(book)
    assert printed_now == both
    first = made.read_bytes()
    assert print_again(book)[0] == []
    assert made.read_bytes() == first

    page = "_build/html/index.html"
    assert print_again(book, {page: BOOK[page].replace("There", "Over there")})[0] == ["index"]
    assert "Over there" in PdfReader(made).pages[2].extract_text()
    sheet = "_build/html/_static/site.css"
    assert print_again(book, {sheet: BOOK[sheet] + "h1 { color: red; }"})[0] == both
    assert print_again(book, BOOK)[0] == both
    assert made.read_bytes() == first  # the same pages, the same bytes

    made.unlink()
    assert print_again(book)[0] == []
    assert made.read_bytes() == first
    assert print_again(book, {"CITATION.cff": "abstract: Less.\nversion: 2.0.0\n"})[0] == []
    assert "2.0.0" in PdfReader(made).pages[0].extract_text()


def test_a_jump_goes_to_the_place_on_its_sheet(book):
    reader = PdfReader(print_again(book)[1])
    assert starts(reader) == {"Contents": 0, "Start": 2, "Downloads": 4}
    inside, outside = jumps(reader.pages[2])
    assert (len(inside), outside) == (1, [])
    assert reader.get_page_number(inside[0][0].get_object()) == 5  # the heading's sheet
    assert jumps(reader.pages[4])[1] == ["https://other.example/"]
    contents = [
        reader.get_page_number(place[0].get_object()) for place in jumps(reader.pages[1])[0]
    ]
    assert contents == [2, 3, 4, 5]


def test_the_offer_has_sizes_and_is_not_printed(book, monkeypatch):
    packed = book.root / "_build" / "html" / downloads.bundle.NAME
    packed.write_bytes(bytes(2_000_000))
    monkeypatch.setattr(downloads.bundle, "write_bundle", lambda root: packed)
    page = book.root / "_build" / "html" / "pages" / "downloads.html"
    for _ in range(2):  # a build that does not write the page anew, too
        assert downloads.offer_downloads(book.root) == []
        text = page.read_text(encoding="utf-8")
        assert f'<a href="../{packed.name}" download>{packed.name}</a> (2.0 MB)</span>' in text
        assert re.search(rf">{printed.NAME}</a> \(0\.\d MB, 6 pages\)</span>", text)
    assert book.done == ["index", "pages/downloads"]
    assert "pages)" not in PdfReader(page.parent.parent / printed.NAME).pages[4].extract_text()


def test_without_a_browser_the_build_passes_and_offers_no_pdf(book, monkeypatch):
    packed = book.root / "_build" / "html" / downloads.bundle.NAME
    packed.write_bytes(b"")
    monkeypatch.setattr(downloads.bundle, "write_bundle", lambda root: packed)
    page = book.root / "_build" / "html" / "pages" / "downloads.html"
    downloads.offer_downloads(book.root)
    made = page.parent.parent / printed.NAME
    assert made.is_file()

    monkeypatch.undo()
    monkeypatch.setattr(downloads.bundle, "write_bundle", lambda root: packed)
    fetched = []
    monkeypatch.setattr(
        printed, "sync_playwright", lambda: nullcontext(SimpleNamespace(chromium=0))
    )
    monkeypatch.setattr(printed, "launch", lambda chromium: None)
    monkeypatch.setattr(printed, "fetch", lambda *what, patience_s: fetched.append(what))
    write(book.root, {"_build/html/index.html": BOOK["_build/html/index.html"] + " "})
    assert downloads.offer_downloads(book.root) == [downloads.NO_PDF.format(downloads.NO_BROWSER)]
    assert fetched == [("--only-shell",)]
    assert not made.exists()  # that of an earlier build is not this one's
    text = page.read_text(encoding="utf-8")
    assert f"{printed.NAME} (not with this build)" in text
    assert f'href="../{printed.NAME}"' not in text


def test_a_browser_that_fails_leaves_the_course_out_and_says_why(book, tmp_path, monkeypatch):
    packed = tmp_path / "packed.zip"
    packed.write_bytes(b"")
    monkeypatch.setattr(downloads.bundle, "write_bundle", lambda root: packed)
    downloads.offer_downloads(book.root)
    made = book.root / "_build" / "html" / printed.NAME
    assert made.is_file()
    monkeypatch.setattr(printed, "PREPARE", "() => { throw new Error('no room left') }")
    write(book.root, {"_build/html/index.html": BOOK["_build/html/index.html"] + " "})
    (said,) = downloads.offer_downloads(book.root)
    assert "the browser failed" in said
    assert "no room left" in said
    assert not made.exists()


def test_an_offer_that_the_page_lacks_is_an_error(tmp_path):
    write(tmp_path, {"page.html": '<span class="live" data-offer="one.zip">one.zip</span>'})
    with pytest.raises(ValueError, match=r"one\.zip"):
        offers.fill(tmp_path / "page.html", {"two.zip": ""})
