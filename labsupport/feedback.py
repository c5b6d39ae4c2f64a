"""What a student gets back: their notebook as a page, with the marks beside the exercises.

Nothing of the grading run is in it but marks, parts by name and the names of Python's errors, so
hidden tests and answers cannot leak, beyond a few bits, whatever a submission prints. Opening it
runs nothing.
"""

import base64
import binascii
import re
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat.v4 import new_markdown_cell, new_notebook, new_output
from nbgrader.converters import GenerateFeedback
from nbgrader.coursedir import CourseDirectory

from labsupport.marking import Mark
from labsupport.masters import configuration, exercise, run
from labsupport.restoring import grade_id, is_test
from labsupport.submissions import text

LONGEST = 5_000  # characters of an output
SOURCE = 50_000  # characters of a cell
PICTURES = ("image/png", "image/jpeg")
LARGEST = 2_000_000  # characters of a picture
SHARE = 5_000_000  # characters of all outputs of a notebook

# In the page's head: browsers then run no script, whatever the page holds, and fetch nothing.
POLICY = (
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
    "<style>td, th { padding: 0.2em 0.6em; }"
    " .panel-heading { height: auto; overflow: auto; }</style>"
)
FONTS = re.compile(r"@font-face\s*{[^}]*}")  # they could not be fetched
RELATIVE = re.compile(r"\[([^\]]*)\]\(\.\./[^)]*\)")  # links into the course
FORMULAS = "Formulas stand here as they are written; the notebook shows them."
TEST_CELL = re.compile(r'(<a href="#([\w.-]+)-check">)Test cell(?=</a>)')  # in the contents
COMMENT = re.compile(r'<li><a href="#comment-[\w.-]+">Comment</a></li>\n?')
SCRIPT = re.compile(r"<script\b.*?</script\s*>", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class Title:
    """What stands on top: whose page it is, the points, and what stopped the run, if anything."""

    student: str
    points: float
    of: float
    stopped: str | None


def notebook(
    restored: nbformat.NotebookNode,
    released: nbformat.NotebookNode,
    marks: dict[str, Mark],
    errors: dict[int, str],
    title: Title,
) -> nbformat.NotebookNode:
    """The notebook that the page shows.

    The student's cells with the outputs that they handed in; the tests as they were handed out,
    with the marks. `errors` maps the index of a cell of `restored` to the error that stopped it.
    Prompts count all cells from 1, as the words on stops do.
    """
    questions = {cell.source for cell in released.cells if cell.cell_type == "markdown"}
    tests = {grade_id(cell): cell.source for cell in released.cells if is_test(cell)}
    made, left = new_notebook(cells=[_top(title)]), SHARE
    for index, cell in enumerate(restored.cells):
        shown = nbformat.from_dict({**cell, "source": _short(cell.source, SOURCE)})
        if is_test(cell):
            shown.source = tests[grade_id(cell)]
            words = marks[exercise(cell)].words()
            shown.outputs = [new_output("stream", name="stdout", text=words)]
        elif cell.cell_type == "code":
            shown.outputs, left = _outputs(cell.outputs, left)
            if index in errors:
                words = f"Cell {index + 1} stopped with {errors[index]} when it was graded."
                shown.outputs.append(new_output("stream", name="stdout", text=words))
        elif cell.source in questions:
            shown.source = RELATIVE.sub(r"\1", cell.source)
        else:  # HTML of the student's own stays text
            shown = new_markdown_cell(_verbatim(shown.source), id=cell.id)
        if cell.cell_type == "code":
            shown.execution_count = index + 1
        made.cells.append(shown)
    return made


def _top(title: Title) -> nbformat.NotebookNode:
    lines = [f"{title.student}: {title.points:g} of {title.of:g} points"]
    lines += [f"The run was stopped: {title.stopped}."] if title.stopped else []
    lines.append(FORMULAS)
    return new_markdown_cell(_verbatim(text("\n".join(lines))), id="top-of-the-page")


def _verbatim(source: str) -> str:
    """Markdown that shows a text as it is."""
    fence = "`" * (3 + max(map(len, re.findall("`+", source)), default=0))
    return f"{fence}\n{source}\n{fence}"


def _short(words: str, most: int) -> str:
    return words if len(words) <= most else words[:most] + "\n[the rest is left out]"


def _outputs(handed: list, left: int) -> tuple[list, int]:
    """The texts and pictures of outputs, each of which may be anything; `left` characters."""
    kept = []
    for output in handed:
        for mime, value in _values(output):
            if len(value) <= left:
                left -= len(value)
                kept.append(new_output("display_data", data={mime: value}))
    return kept, left


def _values(output: object):
    if not isinstance(output, dict):
        return
    kind, data = output.get("output_type"), output.get("data")
    if kind == "stream":
        yield "text/plain", _short(text(output.get("text")), LONGEST)
    elif kind == "error":
        words = "\n".join(text([line]) for line in _list(output.get("traceback")))
        yield "text/plain", _short(words, LONGEST)
    elif isinstance(data, dict):
        pictures = [(mime, _base64(data.get(mime))) for mime in PICTURES]
        if pictures := [(mime, value) for mime, value in pictures if value]:
            yield pictures[0]
        elif words := text(data.get("text/plain")):
            yield "text/plain", _short(words, LONGEST)


def _list(value: object) -> list:
    return value if isinstance(value, list) else []


def _base64(value: object) -> str:
    """A picture's text if it is one, on one line; "" if not."""
    value = "".join(text(value).split())
    try:
        return value if base64.b64decode(value, validate=True) and len(value) <= LARGEST else ""
    except (binascii.Error, ValueError):
        return ""


def page(made: nbformat.NotebookNode, course: Path, student: str, chapter: str) -> str:
    """The page, HTML, by nbgrader's generate_feedback in the course folder of an autograde run."""
    folder = course / "autograded" / student / chapter
    for old in folder.glob("*.ipynb"):
        old.chmod(0o644)  # nbgrader makes what it grades read-only
        old.unlink()
    nbformat.write(made, folder / f"{chapter}.ipynb")
    config = configuration(course, chapter)
    config.CourseDirectory.student_id = student
    run(GenerateFeedback(coursedir=CourseDirectory(config=config), config=config))
    written = course / "feedback" / student / chapter / f"{chapter}.html"
    html = SCRIPT.sub("", written.read_text(encoding="utf-8"))
    html = FONTS.sub("", COMMENT.sub("", TEST_CELL.sub(r"\1\2", html)))
    return html.replace("<head>", f"<head>\n{POLICY}", 1)
