"""Joins printed pages into one PDF: jumps between them, bookmarks, page numbers.

Each page was printed by itself and as if from its address on the web, so a link to another page of
the course is a link to the web there. Here it becomes a jump, if the place it names was printed.
"""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urldefrag

from pypdf import PdfReader, PdfWriter
from pypdf.generic import (
    ArrayObject,
    BooleanObject,
    DecodedStreamObject,
    DictionaryObject,
    FloatObject,
    NameObject,
    NullObject,
    TextStringObject,
)

FOOT_PT = 30  # where the page number stands, above the paper's edge


@dataclass
class Part:
    """A printed page of the course."""

    pdf: Path
    doc: str  # its name in _toc.yml
    address: str  # on the web
    headings: list[tuple[int, str, str]]  # level, text, id; the first is the page's title

    @property
    def title(self) -> str:
        return self.headings[0][1]


def places(reader: PdfReader) -> dict[str, tuple[int, float]]:
    """Id of a page's element -> (number of the sheet where it stands, from 0; its height there)."""
    found = {}
    for name, place in reader.named_destinations.items():
        sheet = reader.get_destination_page_number(place)
        if sheet is not None and sheet >= 0:
            found[unquote(name.removeprefix("/"))] = (sheet, float(place.top or 0))
    return found


class Course:
    """The parts in their order, and where each of their places is, counted over all parts."""

    def __init__(self, parts: list[Part]):
        self.parts = parts
        self.readers = [PdfReader(part.pdf) for part in parts]
        self.targets, self.starts, n_sheets = {}, [], 0
        for part, reader in zip(parts, self.readers, strict=True):
            self.starts.append(n_sheets)
            self.targets[part.address] = (n_sheets, float(reader.pages[0].mediabox.top))
            for name, (sheet, top) in places(reader).items():
                self.targets[f"{part.address}#{name}"] = (n_sheets + sheet, top)
            n_sheets += len(reader.pages)

    def target(self, address: str) -> tuple[int, float] | None:
        """Where an address is printed: the place itself, else the page that should have it."""
        address = unquote(address)
        return self.targets.get(address) or self.targets.get(urldefrag(address).url)

    def entries(self, n_before: int) -> list[tuple[str, int, str, str, int]]:
        """Each heading: (document, level, text, address, page number after `n_before` sheets)."""
        found = []
        for part in self.parts:
            for level, text, name in part.headings:
                address = f"{part.address}#{name}"
                sheet, _ = self.target(address)
                found.append((part.doc, level, text, address, n_before + sheet + 1))
        return found


def destination(writer: PdfWriter, place: tuple[int, float]) -> ArrayObject:
    """A place of the joined file, as a jump names it."""
    sheet, top = place
    kept = [NullObject(), FloatObject(round(top, 1)), NullObject()]  # left edge and zoom stay
    return ArrayObject([writer.pages[sheet].indirect_reference, NameObject("/XYZ"), *kept])


def link(writer: PdfWriter, course: Course) -> None:
    """Turn each link to a printed place into a jump; links to elsewhere stay."""
    for part, start, reader in zip(course.parts, course.starts, course.readers, strict=True):
        for sheet in range(start, start + len(reader.pages)):
            for annotation in writer.pages[sheet].get("/Annots") or ():
                note = annotation.get_object()
                if note.get("/Subtype") != "/Link":
                    continue
                address = note.get("/A", {}).get("/URI")
                if not address:
                    address = f"{part.address}#{str(note.get('/Dest', '')).removeprefix('/')}"
                if place := course.target(str(address)):
                    note.pop("/A", None)
                    note[NameObject("/Dest")] = destination(writer, place)


def bookmark(writer: PdfWriter, course: Course) -> None:
    """A bookmark for each part, and below it for its headings."""
    for part in course.parts:
        above = {}  # level -> the latest heading of that level
        for level, text, name in part.headings:
            place = course.target(f"{part.address}#{name}")
            above = {other: item for other, item in above.items() if other < level}
            parent = above[max(above)] if above else None
            above[level] = writer.add_outline_item(title=text, page_number=place[0], parent=parent)
            above[level].get_object()[NameObject("/Dest")] = destination(writer, place)


def number(writer: PdfWriter, course: Course) -> None:
    """Print page numbers, and beside each the title of its part; the title page has none."""
    font = DictionaryObject()
    for key, value in (("Type", "Font"), ("Subtype", "Type1"), ("BaseFont", "Helvetica")):
        font[NameObject(f"/{key}")] = NameObject(f"/{value}")
    font[NameObject("/Encoding")] = NameObject("/WinAnsiEncoding")
    font = writer._add_object(font)
    before = DecodedStreamObject()
    before.set_data(b"q\n")
    before = writer._add_object(before)

    titles = {}
    for part, start, reader in zip(course.parts, course.starts, course.readers, strict=True):
        titles |= dict.fromkeys(range(start, start + len(reader.pages)), part.title)
    for sheet, page in enumerate(writer.pages[1:], start=1):
        left, right = 46, float(page.mediabox.right) - 46
        digits = str(sheet + 1).encode()
        text = titles[sheet].encode("cp1252", "replace").replace(b"\\", b"\\\\")
        text = text.replace(b"(", b"\\(").replace(b")", b"\\)")
        after = DecodedStreamObject()
        after.set_data(
            b"\nQ\n/Artifact BMC q 0.2 g BT /PageNumber 8 Tf "
            + b"1 0 0 1 %d %d Tm (%s) Tj " % (left, FOOT_PT, text)
            + b"1 0 0 1 %.1f %d Tm (%s) Tj " % (right - 4.45 * len(digits), FOOT_PT, digits)
            + b"ET Q EMC\n"
        )
        own = page.raw_get("/Contents")
        own = list(own) if isinstance(own, ArrayObject) else [own]
        page[NameObject("/Contents")] = ArrayObject([before, *own, writer._add_object(after)])
        fonts = page["/Resources"].setdefault(NameObject("/Font"), DictionaryObject()).get_object()
        fonts[NameObject("/PageNumber")] = font


def join(parts: list[Part], about: dict[str, str], path: Path) -> None:
    """Write the parts to one PDF at `path`. `about` names its title, abstract and authors."""
    course, writer = Course(parts), PdfWriter()
    for reader in course.readers:
        writer.append(reader, import_outline=False)
    writer.root_object.pop("/Dests", None)  # each jump names its place itself
    writer.root_object.pop("/Names", None)
    link(writer, course)
    bookmark(writer, course)
    number(writer, course)
    metadata = {
        "/Title": about["Title"],
        "/Author": about["Authors"],
        "/Subject": about["Abstract"],
    }
    writer.add_metadata(metadata)
    writer.root_object[NameObject("/Lang")] = TextStringObject("en")
    shown = DictionaryObject({NameObject("/DisplayDocTitle"): BooleanObject(True)})
    writer.root_object[NameObject("/ViewerPreferences")] = shown
    writer.page_mode = "/UseOutlines"
    writer.write(path)
