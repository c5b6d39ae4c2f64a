"""The code and the words of a chapter, as its page shows them, for tests to run and to compare."""

import ast
import re

import jupytext
from repository import ROOT, read

from labsupport import ledger


class Lesson:
    """One chapter.

    names   what its functions find in their namespace, such as the modules that the page imports
    text    the source of the page; prose is the same with every run of white space as one space
    cells   the source of each code cell
    """

    def __init__(self, chapter, **names):
        page = f"chapters/{chapter}.md"
        self.chapter, self.names, self.text = chapter, names, read(page)
        self.prose = " ".join(self.text.split())
        self.cells = [c.source for c in jupytext.read(ROOT / page).cells if c.cell_type == "code"]

    def source_of(self, name):
        """The text of the function or class `name` as the page defines it, with its decorators."""
        cell = self.cell(rf"^(def|class) {name}\b")
        found = next(n for n in ast.parse(cell).body if getattr(n, "name", None) == name)
        start = min([found.lineno, *(d.lineno for d in found.decorator_list)]) - 1
        return "\n".join(cell.splitlines()[start : found.end_lineno])

    def shown(self, name, **names):
        """The function or class `name` as the page defines it, run among its names and these."""
        return run(self.source_of(name), {**self.names, **names})[name]

    def cell(self, pattern):
        """The first code cell in which `pattern`, a regular expression, is found."""
        return next(c for c in self.cells if re.search(pattern, c, re.M))

    def solution(self, title):
        """The code of the folded solution of the exercise with this title."""
        exercise = self.text.split(f". {title}\n", 1)[1].split(":::{admonition}")[0]
        return re.search(r"```python\n(.*?)```", exercise, re.S).group(1)

    def claims_shown(self):
        """The ids of the claims that the page shows, sorted, each as often as it is shown."""
        numbers = []
        for call in re.findall(rf'ledger\.show\("{self.chapter}", (.*)\)', self.text):
            numbers += eval(f"[{call}]", {"range": range})
        return [f"{self.chapter}-{n:02d}" for n in sorted(numbers)]

    def claims_of_ledger(self):
        """The ids of all claims that the ledger has of this chapter, sorted."""
        return [claim.id for claim in ledger.of_chapter(self.chapter)]


def run(source, names):
    """What the names stand for after `source` was run among `names`."""
    namespace = dict(names)
    exec(source, namespace)
    return namespace


def value(source, names):
    """What the expression in which `source` ends gives, when all before it was run."""
    *before, last = ast.parse(source).body
    namespace = dict(names)
    exec(compile(ast.Module(before, []), "<page>", "exec"), namespace)
    return eval(compile(ast.Expression(last.value), "<page>", "eval"), namespace)
