"""Make what is derived from the master notebooks in exercises/source.

    python tools/exercises.py run [CHAPTER ...]       execute masters, store outputs and counts
    python tools/exercises.py student [CHAPTER ...]   generate the student versions

Both are committed; the tests run the masters with nbval and generate the student versions again.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from labsupport import masters

ROOT = Path(__file__).resolve().parent.parent
EXERCISES = ROOT / "exercises"
SOURCE = EXERCISES / "source"
CELL_SECONDS = 120
NAMES = ("run", "student")


def chapters() -> list[str]:
    """The chapters that have a master notebook."""
    return sorted(path.parent.name for path in SOURCE.glob("*/*.ipynb"))


def run(chapter: str, source: Path = SOURCE) -> None:
    """Execute a master and store its outputs; ValueError if it writes to stderr."""
    path = source / chapter / f"{chapter}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name="python3", resources=where).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # clock times
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                raise ValueError(f"{path.name}, cell {cell.id} wrote to stderr: {output.text}")
    notebook.metadata.language_info = {"name": "python"}  # the full form names this Python
    notebook.metadata.price_of_remembering["ran"] = masters.fingerprint(notebook)
    write(notebook, path)


def write(notebook, path: Path) -> None:
    """Write a notebook with the same line ends on every system."""
    nbformat.validate(notebook)
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8", newline="\n")


def student(chapter: str, out: Path, source: Path = SOURCE) -> Path:
    """Generate the student version into `out`/CHAPTER with nbgrader; returns the notebook's path.

    ValueError if nbgrader refuses the master (two cells of one name, a test without points), or
    if it has not run.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = masters.prepare(source, chapter, Path(folder)).released
    path = out / chapter / f"{chapter}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    write(nbformat.reads(made, as_version=4), path)
    return path


def main(argv: list[str] | None = None) -> int:
    """Do what the command line says; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=NAMES)
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER")
    args = parser.parse_args(argv)
    for chapter in args.chapters or chapters():
        if args.what == "run":
            run(chapter)
        else:
            print(student(chapter, EXERCISES / "student").relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
