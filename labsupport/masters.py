"""A master notebook made ready to grade a class by: its answers, student version and gradebook."""

import hashlib
import json
import os
import re
import shutil
import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbgrader.converters import GenerateAssignment
from nbgrader.converters.base import BaseConverter
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import capture_log, setenv
from traitlets.config import Config, PyFileConfigLoader

from labsupport import marking
from labsupport.restoring import TESTS, grade_id, is_test

ERROR = re.compile(r"[\w.]+: ")  # the last line of a traceback
BARE = "NbGraderException"  # which says that there was an error, not which
SETTINGS = "nbgrader_config.py"  # beside the folder of the masters


@dataclass(frozen=True)
class Master:
    """What grading needs of a chapter; it can be sent to another process.

    - `notebook`, `released`: the master and its student version, as JSON
    - `answers`: an exercise's name -> what `answers.record` stored in the master's run
    - `points`: an exercise's name -> its points
    - `gradebook`: an nbgrader gradebook that knows the chapter and no student
    - `sha256`: of the master's file
    """

    chapter: str
    notebook: str
    released: str
    answers: dict[str, dict]
    points: dict[str, float]
    gradebook: Path
    sha256: str


def grade_ids(source: Path, chapters: Iterable[str] = ()) -> dict[str, list[str]]:
    """The chapters that have a master in `source`, all or those named, with their `grade_id`s.

    ValueError, with words, if there is none, or not the one that was named.
    """
    there = sorted(path.parent.name for path in source.glob("*/*.ipynb") if _is_master(path))
    if not there:
        raise ValueError(f"{source} holds no master notebook, <chapter>/<chapter>.ipynb.")
    unknown = sorted(set(chapters) - set(there))
    if unknown:
        raise ValueError(f"{source} has no master of {unknown[0]}; it has {', '.join(there)}.")
    masters = {chapter: nbformat.read(_path(source, chapter), as_version=4) for chapter in there}
    return {
        chapter: [grade_id(cell) for cell in master.cells if grade_id(cell)]
        for chapter, master in masters.items()
        if chapter in (set(chapters) or there)
    }


def _is_master(path: Path) -> bool:
    return path.stem == path.parent.name and not path.parent.name.startswith(".")


def _path(source: Path, chapter: str) -> Path:
    return source / chapter / f"{chapter}.ipynb"


def prepare(source: Path, chapter: str, folder: Path) -> Master:
    """Run nbgrader's generate_assignment on the master of `chapter`, in `folder`.

    ValueError, with words, if nbgrader refuses it or an exercise has no stored answers.
    """
    path = _path(source, chapter)
    data = path.read_bytes()
    notebook = nbformat.reads(data.decode("utf-8"), as_version=4)
    tests = [cell for cell in notebook.cells if is_test(cell)]
    answers = {exercise(cell): marking.answers(plain(cell.get("outputs", []))) for cell in tests}
    if _course(notebook).get("ran") != fingerprint(notebook):
        said = f"{path} was changed, or saved by another program, after its last run. Run"
        raise ValueError(f"{said}: python tools/exercises.py run {chapter}")
    if without := [name for name, told in answers.items() if not told or not told["parts"]]:
        said = f"{path} stores no answers of {without[0]}. Run: python tools/exercises.py run"
        raise ValueError(f"{said} {chapter}")
    course = folder / chapter
    shutil.copytree(source / chapter, course / "source" / chapter)
    config = configuration(course, chapter)
    settings = source.parent / SETTINGS
    if settings.is_file():
        config = PyFileConfigLoader(settings.name, path=str(settings.parent)).load_config()
        config.merge(configuration(course, chapter))
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    try:
        with setenv(PATH=programs):  # it calls alembic, which is installed beside this Python
            run(GenerateAssignment(coursedir=CourseDirectory(config=config), config=config))
    except RuntimeError as error:
        raise ValueError(f"nbgrader does not take {path}: {error}") from error
    released = (course / "release" / chapter / path.name).read_text(encoding="utf-8")
    points = {exercise(cell): cell.metadata.nbgrader.points for cell in tests}
    sha256 = hashlib.sha256(data).hexdigest()
    gradebook = course / "gradebook.db"
    return Master(chapter, nbformat.writes(notebook), released, answers, points, gradebook, sha256)


def fingerprint(notebook: nbformat.NotebookNode) -> str:
    """SHA-256 of the code of a master and of the answers stored in it.

    `tools/exercises.py run` keeps it in the notebook's metadata. Answers of an earlier question
    would cost points, and JupyterLab saves 100.0 as 100, which is compared exactly.
    """
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    told = [[cell.source, marking.answers(plain(cell.get("outputs", [])))] for cell in code]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _course(notebook: nbformat.NotebookNode) -> dict:
    return notebook.metadata.get("price_of_remembering", {})


def configuration(root: Path, chapter: str) -> Config:
    """nbgrader's settings for a course folder of its own that holds one chapter."""
    config = Config()
    config.CourseDirectory.root = str(root)
    config.CourseDirectory.db_url = f"sqlite:///{root / 'gradebook.db'}"
    config.CourseDirectory.assignment_id = chapter
    config.CourseDirectory.source_directory = "source"
    config.CourseDirectory.release_directory = "release"
    return config


def run(converter: BaseConverter) -> None:
    """Start one of nbgrader's converters; RuntimeError, in the words of its log, if it fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of SQLAlchemy, about nbgrader's way with it
        done = capture_log(converter)
    if not done["success"]:
        told = done.get("log", "") + "\n" + done["error"]
        lines = [line.strip() for line in told.splitlines() if line.strip()]
        raised = [line for line in lines if ERROR.match(line) and BARE not in line]
        if "KeyboardInterrupt" in lines:  # nbgrader takes it for a failure of its own
            raise KeyboardInterrupt
        raise RuntimeError((raised or lines)[-1])


def exercise(cell: nbformat.NotebookNode) -> str:
    """The name of the exercise whose tests a cell holds."""
    return grade_id(cell).removesuffix(TESTS)


def plain(value: object) -> object:
    """A part of a notebook as JSON gives it back: dicts that are dict, and nothing else."""
    return json.loads(json.dumps(value))
