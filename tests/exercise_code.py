"""Runs one exercise of a master notebook in this process, with any solution in its place."""

from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest

from labsupport import answers, checks, marking

SOURCE = Path(__file__).parent.parent / "exercises" / "source"
CHAPTERS = ("stall", "decomposition", "derivation", "memory")


@dataclass(frozen=True)
class Attempt:
    """What came of a solution: the mark, the check's words, whether the check was content."""

    mark: marking.Mark
    words: str
    right: bool


class Sheet:
    """A master notebook. Exercises are named by the `grade_id` of their solution cell; the cell of
    their tests has the same with "-check" behind it."""

    def __init__(self, chapter: str):
        self.chapter = chapter
        self.notebook = nbformat.read(SOURCE / chapter / f"{chapter}.ipynb", as_version=4)
        self.cells = [cell for cell in self.notebook.cells if cell.cell_type == "code"]
        self._wanted = {}

    def told(self, cell) -> dict:
        """nbgrader's metadata of a cell."""
        return cell.metadata.get("nbgrader", {})

    def exercises(self) -> dict[str, float]:
        """The exercises and their points, in order."""
        tests = [self.told(cell) for cell in self.cells if self.told(cell).get("grade")]
        return {told["grade_id"].removesuffix("-check"): told["points"] for told in tests}

    def solution(self, exercise: str) -> str:
        """The master's solution cell."""
        return next(c.source for c in self.cells if self.told(c).get("grade_id") == exercise)

    def blank(self, exercise: str) -> str:
        """The solution cell as it is handed out."""
        lines, kept, inside = self.solution(exercise).splitlines(), [], False
        for line in lines:
            if line.strip() == "### BEGIN SOLUTION":
                kept.append(line[: len(line) - len(line.lstrip())] + "raise NotImplementedError()")
                inside = True
            elif line.strip() == "### END SOLUTION":
                inside = False
            elif not inside:
                kept.append(line)
        return "\n".join(kept)

    def attempt(self, exercise: str, source: str | None = None) -> Attempt:
        """Run all cells up to the exercise's tests, with `source` as its solution cell."""
        if exercise not in self._wanted:
            self._wanted[exercise] = marking.answers(self._run(exercise, None)[0])
        outputs, words, right = self._run(exercise, source)
        points = self.exercises()[exercise]
        judges = marking.JUDGES.get(exercise)
        mark = marking.mark(outputs, self._wanted[exercise], points, judges)
        return Attempt(mark, words, right)

    def _run(self, exercise, source):
        space, outputs = {"__name__": "__main__"}, []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(answers, "display", lambda data, raw: outputs.append(data))
            for cell in self.cells:
                told = self.told(cell)
                if told.get("grade_id") == f"{exercise}-check":
                    try:
                        exec(compile(cell.source, told["grade_id"], "exec"), space)
                        words, right = "", True
                    except Exception as error:
                        words, right = f"{type(error).__name__}: {error}", False
                    shown = [{"output_type": "display_data", "data": data} for data in outputs]
                    return shown, words, right
                if told.get("grade"):
                    continue
                if told.get("grade_id") == exercise and source is not None:
                    try:
                        exec(compile(source, exercise, "exec"), space)
                    except Exception:  # a notebook goes on after a cell that fails
                        pass
                else:
                    exec(compile(cell.source, f"{self.chapter}.ipynb", "exec"), space)
        raise ValueError(f"{self.chapter} has no cell {exercise}-check")


def changed(source: str, *changes: tuple[str, str]) -> str:
    """A right solution with each (old, new) made; ValueError unless old stands there once."""
    for old, new in changes:
        if source.count(old) != 1:
            raise ValueError(f"{old!r} stands {source.count(old)} times in:\n{source}")
        source = source.replace(old, new)
    return source


def loaded_points(chapter: str) -> dict[str, float]:
    """The points that the checks of a chapter's exercises print."""
    return {name: points for (of, name), points in checks.POINTS.items() if of == chapter}
