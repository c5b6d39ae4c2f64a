"""One submission, graded: nbgrader's autograde, run in a sandbox and marked outside of it."""

import builtins
import hashlib
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat.v4 import new_output
from nbgrader.api import Gradebook
from nbgrader.converters import Autograde
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import LimitOutput, NbGraderPreprocessor, SaveAutoGrades
from traitlets import List

from labsupport import feedback, marking, restoring, sandbox_execute, submissions
from labsupport.marking import Mark
from labsupport.masters import Master, configuration, exercise, plain, run
from labsupport.sandbox import Limits
from labsupport.submissions import Submission

STATUSES = GRADED, LOOK, FAILED, ABSENT = "graded", "needs a look", "failed", "not handed in"
MOST_ERRORS = 5  # that feedback tells of
STUDENT = "s0001"  # nbgrader's name of every student: theirs may hold any character


@dataclass(frozen=True)
class Settings:
    """How submissions run: within what limits, in a sandbox or not, and a folder to work in."""

    limits: Limits
    sandboxed: bool
    folder: Path


@dataclass
class Result:
    """What came of a submission.

    - `status`: "graded", "needs a look", "failed" or "not handed in", with `why` in words
    - `points`, `of`: of the notebook; None where it failed
    - `seconds`: how long the notebook ran
    - `exercises`: for each, its name, `points`, `of`, and `right`: part -> whether it was right
    - `page`: the feedback, HTML; "" where it failed
    - `sha256`: of the submission and of the master (`key`), by which a later run knows them again
    """

    student: str
    chapter: str
    status: str
    why: str
    points: float | None = None
    of: float | None = None
    seconds: float | None = None
    exercises: list[dict] = field(default_factory=list)
    page: str = ""
    sha256: tuple[str, str] = ("", "")


class Marker(NbGraderPreprocessor):
    """Replaces the output of every test by the mark, in the form that nbgrader reads it from.

    Nothing that the kernel printed is left there: a warning costs no marks, a faked output gains
    none. Sets resources["marks"], exercise -> Mark; "unanswered", the tests that sent no answers;
    "refused", those whose answers could not be compared; "errors", what stopped other cells.
    """

    def preprocess(self, nb, resources):
        """Mark all tests of `nb`; returns it and `resources`."""
        resources |= {"marks": {}, "unanswered": [], "refused": [], "errors": errors(nb)}
        for cell in nb.cells:
            if restoring.is_test(cell):
                name = exercise(cell)
                told = resources["answers"][name]
                points = float(cell.metadata.nbgrader.points)
                resources["marks"][name] = self._mark(name, cell.outputs, told, points, resources)
                cell.outputs = outputs(resources["marks"][name])
        return nb, resources

    def _mark(self, name, sent, told, points, resources):
        try:
            sent = plain(sent)
            if not marking.answers(sent):
                resources["unanswered"].append(name)
            return marking.mark(sent, told, points, marking.JUDGES.get(name))
        except Exception:  # a kernel may send anything as an answer
            resources["refused"].append(name)
            return Mark(0.0, points, dict.fromkeys(told["parts"], False))


def outputs(mark: Mark) -> list:
    """Outputs of a test cell from which nbgrader reads this mark (nbgrader.utils.determine_grade).

    No error and no result is full marks; a result that is a number is that many points; an error
    is none.
    """
    words = new_output("stream", name="stdout", text=mark.words())
    if mark.points == mark.of:
        return [words]
    if mark.points:
        number = {"text/plain": repr(mark.points)}
        return [words, new_output("execute_result", data=number, execution_count=None)]
    return [new_output("error", ename="NotYet", evalue="", traceback=[mark.words()])]


def errors(notebook) -> dict[int, str]:
    """Which cells, by index, stopped with an error, and its name if it is one of Python's own.

    The first few: each could spell a sign or two of a hidden test, which later cells can read.
    """
    told = {
        index: output.ename if _is_builtin(output.ename) else "an error"
        for index, cell in enumerate(notebook.cells)
        for output in cell.get("outputs", [])
        if output.output_type == "error" and not restoring.is_test(cell)
    }
    return dict(list(told.items())[:MOST_ERRORS])


def _is_builtin(name: str) -> bool:
    kind = getattr(builtins, name, None)
    return isinstance(kind, type) and issubclass(kind, BaseException)


class Grader(Autograde):
    """nbgrader's autograde with our execution and our marks."""

    autograde_preprocessors = List([sandbox_execute.Execute, Marker, LimitOutput, SaveAutoGrades])

    def __init__(self, answers: dict[str, dict], **kwargs):
        super().__init__(**kwargs)
        self.answers = answers
        self.came_of_it = {}

    def init_single_notebook_resources(self, notebook_filename):
        """Gives the preprocessors the master's answers."""
        told = super().init_single_notebook_resources(notebook_filename)
        return told | {"answers": self.answers}

    def write_single_notebook(self, output, resources):
        """Keeps what the preprocessors found out."""
        self.came_of_it = resources
        super().write_single_notebook(output, resources)


def failed(submission: Submission, why: str) -> Result:
    """The result of a submission that got no marks."""
    status = ABSENT if submission.absent else FAILED
    return Result(submission.student, submission.chapter, status, why)


def key(submission: Submission, master: Master, settings: Settings) -> tuple[str, str]:
    """What a later run knows a result by: SHA-256 of the notebook and how it is run, the master's.

    Unreadable as for `submissions.content`.
    """
    read = submissions.digest(submission.path, submission.folder)
    told = repr((read, submission.remarks, settings.limits, settings.sandboxed))
    return hashlib.sha256(told.encode(errors="backslashreplace")).hexdigest(), master.sha256


def grade(submission: Submission, master: Master, settings: Settings) -> Result:
    """Grade a submission; whatever it is, there is a result."""
    result = failed(submission, submission.why)
    try:
        handed = submissions.read(submission.path, submission.folder)
        result.sha256 = key(submission, master, settings)
        with tempfile.TemporaryDirectory(dir=settings.folder, ignore_cleanup_errors=True) as course:
            _grade(result, submission, handed, master, settings, Path(course))
    except submissions.Unreadable as error:
        result.why = "; ".join([str(error), *submission.remarks])
    except Exception as error:  # ours or nbgrader's; the next submission is not to suffer
        return failed(submission, f"{type(error).__name__}: {error}"[:500])
    return result


def _grade(result, submission, handed, master, settings, course):
    notebook, released = (
        nbformat.reads(text, as_version=4) for text in (master.notebook, master.released)
    )
    restored = restoring.restore(handed, notebook, released)
    told = autograde(restored.notebook, master, settings, course)
    marks, outcome = told["marks"], told["outcome"]
    result.seconds = outcome["seconds"]
    if outcome["stopped"] and len(told["unanswered"]) == len(marks):
        result.why = f"{outcome['stopped']}, before any exercise was answered"
        return
    looks = [*submission.remarks, *restored.looks]
    if outcome["stopped"]:
        looks.append(outcome["stopped"])
    else:
        looks += [f"the tests of {name} sent no answers" for name in told["unanswered"]]
    looks += [f"the answers of {name} could not be compared" for name in told["refused"]]
    result.status = LOOK if looks else GRADED
    result.why = "; ".join(looks + restored.remarks)
    result.points = round(sum(mark.points for mark in marks.values()), 2)
    result.of = sum(mark.of for mark in marks.values())
    result.exercises = [
        {"exercise": name, "points": mark.points, "of": mark.of, "right": mark.right}
        for name, mark in marks.items()
    ]
    title = feedback.Title(submission.student, result.points, result.of, outcome["stopped"])
    page = feedback.notebook(restored.notebook, released, marks, told["errors"], title)
    result.page = feedback.page(page, course, STUDENT, master.chapter)


def autograde(notebook, master: Master, settings: Settings, course: Path) -> dict:
    """Run nbgrader's autograde on a restored notebook; what its preprocessors found out.

    The keys are `outcome` (`sandbox_execute.Execute`) and those of `Marker`. RuntimeError if the
    scores in nbgrader's gradebook are not the marks.
    """
    folder = course / "submitted" / STUDENT / master.chapter
    folder.mkdir(parents=True)
    shutil.copyfile(master.gradebook, course / "gradebook.db")
    bare = nbformat.from_dict(notebook)
    bare.cells = [_without_outputs(cell) for cell in notebook.cells]
    nbformat.write(bare, folder / f"{master.chapter}.ipynb")
    config = configuration(course, master.chapter)
    config.CourseDirectory.student_id = STUDENT
    config.Execute.limits = settings.limits
    config.Execute.sandboxed = settings.sandboxed
    grader = Grader(master.answers, coursedir=CourseDirectory(config=config), config=config)
    run(grader)
    told = grader.came_of_it
    with Gradebook(config.CourseDirectory.db_url) as gradebook:
        kept = gradebook.find_submission_notebook(master.chapter, master.chapter, STUDENT)
        scores = {exercise_of(grade.name): grade.auto_score for grade in kept.grades}
    if scores != {name: mark.points for name, mark in told["marks"].items()}:
        raise RuntimeError("nbgrader's scores are not the marks")
    return told


def exercise_of(name: str) -> str:
    """The exercise of a test by its grade_id."""
    return name.removesuffix(restoring.TESTS)


def _without_outputs(cell):
    return nbformat.from_dict({**cell, "outputs": []} if cell.cell_type == "code" else cell)
