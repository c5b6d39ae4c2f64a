"""Packs what a reader needs to run the lessons elsewhere: one .zip, the same bytes each time.

It has the lessons as notebooks with the outputs of this build, the student exercises, `labsupport`
and the recorded evidence, which the lessons need, and a README. The masters with the solutions stay
out. Links between the notebooks lead to the notebooks; links to other pages lead to the web.
"""

import posixpath
import re
import subprocess
import zipfile
from io import BytesIO
from pathlib import Path

import nbformat
import yaml
from lesson_inputs import executed_lessons, files_in, toc_pages

NAME = "the-price-of-remembering.zip"
TOP = "the-price-of-remembering"
FOLDERS = ("exercises/student", "labsupport", "evidence")
FILES = {name: name for name in ("pyproject.toml", "LICENSE", "LICENSE-CONTENT")}
FILES["requirements.txt"] = ".binder/requirements.txt"  # what notebooks need, and no more
README = Path(__file__).with_name("bundle-readme.md")
LINK = re.compile(r"(\]\()([\w./-]+)\.(?:md|ipynb)((?:#[^)\s]*)?\))")
EPOCH = (1980, 1, 1, 0, 0, 0)  # a file's date would differ between two builds


def tracked(root: Path) -> list[str]:
    """The files of the packed folders under version control; all of them where there is no git."""
    command = ["git", "ls-files", "-z", "--", *FOLDERS]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8")
        names = [name for name in done.stdout.split("\0") if name and (root / name).is_file()]
    except OSError:
        names = []
    if names:
        return names
    found = [path for folder in FOLDERS for path in files_in(root / folder)]
    return sorted(path.relative_to(root).as_posix() for path in found)


def linked(source: str, doc: str, pages: dict[str, Path], packed: set[str], web: str) -> str:
    """A cell's Markdown in which links to pages lead to packed notebooks, else to the web."""

    def lead(found):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(doc), found[2]))
        if target not in pages:
            return found[0]
        address = f"{found[2]}.ipynb" if target in packed else f"{web}{target}.html"
        return found[1] + address + found[3]

    return LINK.sub(lead, source)


def contents(root: Path) -> dict[str, bytes]:
    """Name in the .zip -> content, for everything that is packed."""
    pages, lessons = toc_pages(root), executed_lessons(root)
    packed = {*lessons, *(doc for doc in pages if doc.startswith("exercises/student/"))}
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    web = config["html"]["baseurl"]

    found = {"README.md": README.read_text(encoding="utf-8").replace("SITE", web).encode()}
    for name, source in (FILES | {name: name for name in tracked(root)}).items():
        found[name] = (root / source).read_bytes()
    for doc in lessons:
        path = root / "_build" / "html" / "_sources" / f"{doc}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = linked(cell.source, doc, pages, packed, web)
        found[f"{doc}.ipynb"] = nbformat.writes(notebook).encode()
    return found


def pack(files: dict[str, bytes]) -> bytes:
    """The files as a .zip with one folder at its top; the same bytes for the same files."""
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(f"{TOP}/{name}", EPOCH)
            entry.create_system = 3  # so that the mode counts, whatever system packs
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def write_bundle(root: Path) -> Path:
    """Write the .zip to _build/html, unless the one there is the same; returns its path."""
    path = root / "_build" / "html" / NAME
    made = pack(contents(root))
    if not path.is_file() or path.read_bytes() != made:
        path.write_bytes(made)
    return path
