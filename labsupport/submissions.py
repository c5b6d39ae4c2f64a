"""What a class handed in: found, told apart, read. No file is trusted, and none is changed.

A student's folder holds `<chapter>/<chapter>.ipynb`, as nbgrader collects, or notebooks without a
folder. A notebook belongs to the chapter that its metadata names; where they name none, to the one
whose cells it holds; else to the one that its file or folder is named after.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_raw_cell

MB = 10**6
LARGEST = 20 * MB  # bytes of a notebook
FORMAT = 4  # of notebooks; Jupyter writes no other since 2015
CELLS = {"code": new_code_cell, "markdown": new_markdown_cell, "raw": new_raw_cell}
CELL_ID = re.compile(r"[\w-]{1,64}", re.ASCII)


class Unreadable(ValueError):
    """A file that is no notebook to grade, with words for the instructor."""


@dataclass(frozen=True)
class Submission:
    """What a student handed in for a chapter.

    - `path`: the notebook, or None where there is none to grade; `why` then says so
    - `absent`: there is none of this chapter, nor anything that might be meant as one
    - `folder`: the student's folder, out of which no link may lead
    - `remarks`: what an instructor should look at
    """

    student: str
    chapter: str
    folder: Path
    path: Path | None = None
    why: str = ""
    remarks: list[str] = field(default_factory=list)
    absent: bool = False


def find(
    folder: Path, chapters: Mapping[str, Collection[str]]
) -> tuple[list[Submission], list[str]]:
    """A submission for each student and chapter, in order, and what lies there but is not read.

    `chapters` maps a chapter to the `grade_id`s of its master's cells.
    """
    found, ignored = [], []
    for student in sorted(folder.iterdir()):
        if student.name.startswith("."):
            continue
        if not student.is_dir():
            ignored.append(student.name)
            continue
        by_chapter = {chapter: [] for chapter in chapters}
        strays = []
        try:
            paths = notebooks(student)
        except OSError as error:  # nobody else is to suffer
            why = f"a folder cannot be opened ({error})"
            found += [Submission(student.name, name, student, why=why) for name in chapters]
            continue
        for path in paths:
            chapter = chapter_of(path, student, chapters)
            by_chapter.get(chapter, strays).append(path)
        ignored += [f"{student.name}/{path.relative_to(student)}" for path in strays]
        for chapter, paths in by_chapter.items():
            found.append(_choose(student, chapter, paths, strays))
    return found, ignored


def notebooks(student: Path) -> list[Path]:
    """The notebooks in a student's folder and one below; not the copies that Jupyter keeps."""
    inside = [path for path in sorted(student.iterdir()) if not path.name.startswith(".")]
    below = [path for folder in inside if folder.is_dir() for path in sorted(folder.iterdir())]
    there = [path for path in inside + below if not path.name.startswith(".")]  # macOS: ._toy.ipynb
    return [path for path in there if path.suffix.lower() == ".ipynb"]


def _choose(student: Path, chapter: str, paths: list[Path], strays: list[Path]) -> Submission:
    expected = [student / chapter / f"{chapter}.ipynb", student / f"{chapter}.ipynb"]
    named = [path for path in expected if path in paths]
    names = ", ".join(str(path.relative_to(student)) for path in paths or strays)
    if not paths:
        why = f"no notebook of {chapter}" + (f"; not told apart: {names}" if strays else "")
    elif len(paths) == 1 or named:
        path = (named or paths)[0]
        several = f"two notebooks or more ({names}): {path.relative_to(student)} was graded"
        remarks = [several] if len(paths) > 1 else []
        return Submission(student.name, chapter, student, path, remarks=remarks)
    else:
        why = f"two notebooks or more ({names}), and none is called {chapter}.ipynb"
    return Submission(student.name, chapter, student, why=why, absent=not paths + strays)


def chapter_of(path: Path, folder: Path, chapters: Mapping[str, Collection[str]]) -> str | None:
    """The chapter, one of `chapters` or another, that a notebook belongs to; None if it is unknown.

    What cannot be read goes by its name alone.
    """
    try:
        told = parse(path, folder)
    except Unreadable:
        told = {}
    course = _dict(_dict(told.get("metadata")).get("price_of_remembering"))
    if isinstance(course.get("chapter"), str):
        return course["chapter"]
    cells = told["cells"] if isinstance(told.get("cells"), list) else []
    ids = {_graded(_dict(cell)).get("grade_id") for cell in cells}
    holds = {chapter: len(ids.intersection(names)) for chapter, names in chapters.items()}
    if any(holds.values()):
        return max(holds, key=holds.get)
    return next((name for name in (path.stem, path.parent.name) if name in chapters), None)


def content(path: Path, folder: Path) -> bytes:
    """What a file holds; Unreadable if it lies outside `folder`, is no file, too large or empty."""
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise Unreadable(f"{path.name} is a link that leads out of the student's folder")
        if not path.is_file():
            raise Unreadable(f"{path.name} is no file")
        size = path.stat().st_size
        if size > LARGEST:
            raise Unreadable(f"{path.name} has {size / MB:.0f} MB; {LARGEST // MB} MB are read")
        if not size:
            raise Unreadable(f"{path.name} is empty")
        return path.read_bytes()
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, before Python 3.13
        raise Unreadable(f"{path.name} cannot be opened ({error})") from error


def digest(path: Path, folder: Path) -> str:
    """The SHA-256 of a file; Unreadable as for `content`."""
    return hashlib.sha256(content(path, folder)).hexdigest()


def parse(path: Path, folder: Path) -> dict:
    """The JSON object in a file; Unreadable if it is none, or for what `content` refuses."""
    try:
        told = json.loads(content(path, folder))
    except RecursionError as error:
        raise Unreadable(f"{path.name} is not readable as JSON: it is nested too deeply") from error
    except ValueError as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(f"{path.name} is not readable as JSON ({error})") from error
    if not isinstance(told, dict):
        raise Unreadable(f"{path.name} is JSON, but no notebook")
    return told


def read(path: Path, folder: Path) -> nbformat.NotebookNode:
    """A notebook made anew of what the file holds that is well formed.

    A cell keeps its kind, source, id and outputs, and of its metadata nbgrader's `grade_id` and
    `points`; the notebook keeps the `chapter` and `version` of the course. Unreadable if the file
    is no notebook.
    """
    told = parse(path, folder)
    if not isinstance(told.get("cells"), list):
        raise Unreadable(f"{path.name} is JSON, but no notebook: it has no list of cells")
    if told.get("nbformat") != FORMAT:
        raise Unreadable(f"{path.name} is not in version {FORMAT} of the notebook format")
    course = _dict(_dict(told.get("metadata")).get("price_of_remembering"))
    version = course.get("version")
    notebook = new_notebook(metadata={"version": version if type(version) is int else None})
    used = set()
    for number, cell in enumerate(map(_dict, told["cells"])):
        kind = cell.get("cell_type")
        if not isinstance(kind, str) or kind not in CELLS:
            continue
        name = cell.get("id")
        if not isinstance(name, str) or not CELL_ID.fullmatch(name) or name in used:
            name = f"unnamed-{number}"
        used.add(name)
        made = CELLS[kind](text(cell.get("source")), id=name, metadata=_graded(cell))
        if kind == "code" and isinstance(cell.get("outputs"), list):
            made.outputs = cell["outputs"]  # as they came: `feedback` takes what it knows of them
        notebook.cells.append(made)
    return notebook


def text(value: object) -> str:
    """A string, or a list of strings as notebooks store lines; "" for anything else."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "".join(value)
    if not isinstance(value, str):
        return ""
    return value.encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair becomes "?"


def _graded(cell: dict) -> dict:
    told = _dict(_dict(cell.get("metadata")).get("nbgrader"))
    kept = {"grade_id": told["grade_id"]} if isinstance(told.get("grade_id"), str) else {}
    return kept | ({"points": told["points"]} if type(told.get("points")) in (int, float) else {})


def _dict(value: object) -> dict:
    return value if isinstance(value, dict) else {}
