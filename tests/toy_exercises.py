"""A small master notebook, and submissions to it: right, wrong, broken and hostile."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

CHAPTER = "toy"
SECRET = 7_203_114_577  # an input of a hidden test
ANSWER = 2 * SECRET  # what only the master's output holds

TWICE = "def twice(x):\n    ### BEGIN SOLUTION\n    return 2 * x\n    ### END SOLUTION"
ROWS = (
    "def row_means(table):\n    ### BEGIN SOLUTION\n"
    "    return table.mean(axis=1)\n    ### END SOLUTION"
)
LARGEST = "largest = ...\n### BEGIN SOLUTION\nlargest = 41\n### END SOLUTION"


def _tests(parts: str, visible: str) -> str:
    return (
        "### BEGIN HIDDEN TESTS\nfrom labsupport import answers\n\n"
        f"answers.record({{{parts}}})\n### END HIDDEN TESTS\n{visible}"
    )


EXERCISES = {  # name -> (points, solution, tests)
    "toy-twice": (
        2,
        TWICE,
        _tests(
            f'"whole numbers": lambda: [twice(3), twice({SECRET})], "text": lambda: twice("ab")',
            "assert twice(2) == 4",
        ),
    ),
    "toy-rows": (
        3,
        ROWS,
        _tests(
            '"one table": lambda: row_means(np.arange(6.0).reshape(2, 3)), '
            '"a long table": lambda: row_means(np.arange(8.0).reshape(4, 2)), '
            '"no columns alike": lambda: row_means(np.array([[1.0, 5.0], [2.5, 7.0]]))',
            "assert row_means(np.ones((2, 3))).shape == (2,)",
        ),
    ),
    "toy-largest": (1, LARGEST, _tests('"the largest": lambda: largest', "assert largest > 0")),
}


def _graded(grade_id: str, source: str, points: float | None) -> nbformat.NotebookNode:
    told = {"grade_id": grade_id, "schema_version": 3, "task": False, "grade": points is not None}
    told |= {"solution": points is None, "locked": points is not None}
    told |= {"points": points} if points is not None else {}
    cell = new_code_cell(source, id=grade_id)
    cell.metadata.nbgrader = told
    return cell


def master() -> nbformat.NotebookNode:
    """The master; it has not run, so it holds no outputs."""
    cells = [new_markdown_cell("# A sheet for [chapter 9](../../../nine.md)", id="title")]
    cells += [new_code_cell("import numpy as np", id="setup")]
    for name, (points, solution, tests) in EXERCISES.items():
        cells += [new_markdown_cell(f"## {name}", id=f"{name}-question")]
        cells += [_graded(name, solution, None), _graded(f"{name}-check", tests, points)]
    notebook = new_notebook(cells=cells)
    notebook.metadata.kernelspec = {
        "name": "python3",
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
    }
    notebook.metadata.price_of_remembering = {"chapter": CHAPTER, "version": 2}
    return notebook


RIGHT = {
    "toy-twice": "def twice(x):\n    return x + x",
    "toy-rows": "def row_means(table):\n    return table.sum(axis=1) / table.shape[1]",
    "toy-largest": "largest = 41",
}
WRONG = {
    "toy-twice": "def twice(x):\n    return 4",
    "toy-rows": "def row_means(table):\n    return table.mean(axis=0)",
    "toy-largest": "largest = 40",
}
FULL = 6.0


@dataclass(frozen=True)
class Case:
    """A submission: how it is written into its folder, and the row that it deserves."""

    write: Callable[[nbformat.NotebookNode, Path], None]
    status: str | tuple[str, ...]
    points: float | tuple[float, ...] | None  # None: no points; a tuple: any of these
    why: str = ""  # what the row's `why` must contain


CASES: dict[str, Case] = {}


def case(status, points, why="", name=None):
    """Register the function below as the submission of a student."""

    def registered(write):
        CASES[name or write.__name__] = Case(write, status, points, why)
        return write

    return registered


def cell_of(notebook, grade_id):
    """The cell with this id."""
    return next(
        c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id
    )


def solve(notebook, **sources):
    """Fill in the right answers; `twice=`, `rows=` and `largest=` replace single ones."""
    for name, source in RIGHT.items():
        cell_of(notebook, name).source = sources.get(name.removeprefix("toy-"), source)
    return notebook


def answer(notebook, solutions):
    """Fill in these solutions."""
    for name, source in solutions.items():
        cell_of(notebook, name).source = source
    return notebook


def first(notebook, source):
    """Put a code cell of the student's own in front."""
    notebook.cells.insert(0, new_code_cell(source))
    return notebook


def save(notebook, folder, name=f"{CHAPTER}.ipynb"):
    """Write the notebook as a student hands it in."""
    nbformat.write(notebook, folder / name)


GRADED, LOOK, FAILED = "graded", "needs a look", "failed"
ROOT = getattr(os, "geteuid", lambda: 1)() == 0

# ---- ordinary ones


@case(GRADED, FULL)
def right(notebook, folder):
    save(solve(notebook), folder)


@case(GRADED, 0.0)
def blank(notebook, folder):
    save(notebook, folder)


@case(GRADED, 0.0)
def wrong(notebook, folder):
    save(answer(notebook, WRONG), folder)


@case(GRADED, 4.0)
def partly_right(notebook, folder):  # half of twice, all rows, no largest
    whole = "def twice(x):\n    return 2 * int(x)"
    save(solve(notebook, twice=whole, largest="largest = 42"), folder)


@case(GRADED, FULL)
def warns_on_stderr(notebook, folder):
    source = "import sys, warnings\n\n\ndef twice(x):\n    warnings.warn('slow')\n"
    save(
        solve(notebook, twice=source + "    print('careful', file=sys.stderr)\n    return x + x"),
        folder,
    )


@case(GRADED, FULL)
def own_cells_between(notebook, folder):
    solve(notebook).cells.insert(4, new_code_cell("helper = 3\nhelper"))
    save(notebook, folder)


@case(GRADED, 4.0)
def answers_that_are_not_finite(notebook, folder):
    save(
        solve(
            notebook,
            twice="def twice(x):\n    return float('nan') if x != 'ab' else 'abab'",
            largest="largest = float('inf')",
        ),
        folder,
    )


@case(GRADED, 4.0)
def answers_too_large_to_write(notebook, folder):
    save(
        solve(
            notebook,
            twice="def twice(x):\n    return 10**5000 if x != 'ab' else 'abab'",
            largest="largest = [" * 80 + "41" + "]" * 80,
        ),
        folder,
    )


# ---- the file


@case(FAILED, None, "JSON")
def malformed_json(notebook, folder):
    (folder / "toy.ipynb").write_text(nbformat.writes(solve(notebook))[:-200], encoding="utf-8")


@case(FAILED, None, "empty")
def empty_file(notebook, folder):
    (folder / "toy.ipynb").write_bytes(b"")


@case("not handed in", None, "no notebook")
def no_notebook(notebook, folder):
    (folder / "essay.txt").write_text("I did it by hand.", encoding="utf-8")


@case(FAILED, None)
def json_but_no_notebook(notebook, folder):
    (folder / "toy.ipynb").write_text('{"cells": 3}', encoding="utf-8")


@case(FAILED, None)
def not_text_at_all(notebook, folder):
    (folder / "toy.ipynb").write_bytes(bytes(range(256)) * 20)


@case(FAILED, None, "MB")
def a_file_too_large(notebook, folder):
    cell = cell_of(solve(notebook), "toy-largest")
    cell.outputs = [nbformat.v4.new_output("stream", text="x" * 25_000_000)]
    save(notebook, folder)


@case(GRADED, FULL)
def large_outputs(notebook, folder):
    cell = cell_of(solve(notebook), "toy-largest")
    cell.outputs = [nbformat.v4.new_output("stream", text="a line of output\n" * 200_000)]
    save(notebook, folder)


@case(GRADED, FULL)
def renamed_notebook(notebook, folder):
    save(solve(notebook), folder, "my answers (final).ipynb")


@case(LOOK, FULL, "two notebooks")
def two_notebooks(notebook, folder):
    save(solve(notebook), folder)
    save(answer(notebook, WRONG), folder, "toy-Copy1.ipynb")


@case(FAILED, None, "link")
def a_link_out_of_the_folder(notebook, folder):
    outside = folder.parent / "right" / "toy.ipynb"  # another student's work
    (folder / "toy.ipynb").symlink_to(os.path.relpath(outside, folder))


@case(LOOK, FULL, "version")
def an_old_version(notebook, folder):
    notebook.metadata.price_of_remembering["version"] = 1
    save(solve(notebook), folder)


@case(GRADED, FULL, name="Zoë Ångström 李")
def not_ascii(notebook, folder):
    save(solve(notebook), folder)


@case(GRADED, FULL, name="=1+cmd|'x'!A1")
def a_name_that_a_spreadsheet_would_run(notebook, folder):
    save(solve(notebook), folder)


@case(GRADED, FULL)
def nbgraders_own_layout(notebook, folder):
    (folder / CHAPTER).mkdir()
    save(solve(notebook), folder / CHAPTER)


@case((GRADED, LOOK), FULL)
def another_kernel_named(notebook, folder):
    notebook.metadata.kernelspec = {"name": "bash", "display_name": "Bash", "language": "bash"}
    save(solve(notebook), folder)


# ---- the tests of the notebook


@case(LOOK, FULL, "test")
def tests_deleted(notebook, folder):
    solve(notebook)
    notebook.cells = [c for c in notebook.cells if not c.metadata.get("nbgrader", {}).get("grade")]
    save(notebook, folder)


@case(LOOK, 0.0, "test")
def tests_edited(notebook, folder):
    answer(notebook, WRONG)
    for name in WRONG:
        cell_of(notebook, f"{name}-check").source = "assert True"
    save(notebook, folder)


@case(LOOK, FULL, "test")
def tests_duplicated(notebook, folder):
    twin = nbformat.from_dict(json.loads(json.dumps(cell_of(solve(notebook), "toy-rows-check"))))
    twin.id = "twin"
    notebook.cells.append(twin)
    save(notebook, folder)


@case(LOOK, 0.0, "test")
def a_test_turned_into_text(notebook, folder):
    answer(notebook, WRONG)
    at = notebook.cells.index(cell_of(notebook, "toy-twice-check"))
    text = new_markdown_cell("all fine", id="toy-twice-check")
    text.metadata.nbgrader = dict(notebook.cells[at].metadata.nbgrader)
    notebook.cells[at] = text
    save(notebook, folder)


@case((GRADED, LOOK), FULL)
def metadata_stripped(notebook, folder):
    for at, cell in enumerate(solve(notebook).cells):
        cell.metadata.clear()
        cell.id = f"cell-{at}"
    notebook.metadata.clear()
    save(notebook, folder)


@case((GRADED, LOOK), FULL)
def points_changed(notebook, folder):
    cell_of(solve(notebook), "toy-rows-check").metadata.nbgrader["points"] = 1000
    save(notebook, folder)


@case((GRADED, LOOK), FULL)
def metadata_of_wrong_types(notebook, folder):
    cell_of(solve(notebook), "toy-largest-check").metadata.nbgrader = "grade"
    notebook.cells[1].metadata.nbgrader = [1, 2, 3]
    save(notebook, folder)


# ---- the kernel


@case((GRADED, LOOK), FULL)
def sys_exit(notebook, folder):
    save(first(solve(notebook), "import sys\nsys.exit(3)"), folder)


@case(LOOK, 2.0, "kernel")
def os_exit(notebook, folder):
    rows = RIGHT["toy-rows"] + "\n\n\nimport os\n\nos._exit(0)"
    save(solve(notebook, rows=rows), folder)


@case(LOOK, 3.0, "longer than")
def loops_for_ever(notebook, folder):
    save(solve(notebook, rows="while True:\n    pass"), folder)


@case(LOOK, (2.0, 3.0), "longer than")
def loops_and_ignores_interrupts(notebook, folder):
    rows = "while True:\n    try:\n        while True:\n            pass\n"
    rows += "    except KeyboardInterrupt:\n        pass"
    save(solve(notebook, rows=rows), folder)


@case(LOOK, (2.0, 3.0), "MB")
def prints_without_end(notebook, folder):
    save(solve(notebook, rows="while True:\n    print('x' * 10_000)"), folder)


@case(LOOK, (2.0, 3.0))
def takes_all_memory(notebook, folder):
    rows = "hoard = []\nwhile True:\n    hoard.append(bytearray(b'x') * 100_000_000)"
    save(solve(notebook, rows=rows), folder)


@case((GRADED, LOOK), (2.0, 3.0, FULL))
def fork_bomb(notebook, folder):
    rows = RIGHT["toy-rows"] + (
        "\n\n\nimport os\n\nfor _ in range(1000):\n    try:\n        if os.fork() == 0:\n"
        "            while True:\n                pass\n    except OSError:\n        break"
    )
    save(solve(notebook, rows=rows), folder)


@case((GRADED, LOOK), (2.0, 3.0, FULL))
def fills_the_disk(notebook, folder):
    rows = RIGHT["toy-rows"] + (
        "\n\n\nfor i in range(100_000):\n    with open(f'f{i}', 'wb') as file:\n"
        "        file.write(bytes(10_000_000))"
    )
    save(solve(notebook, rows=rows), folder)


@case(GRADED, FULL)
def leaves_a_process_behind(notebook, folder):
    source = "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; "
    save(first(solve(notebook), source + "time.sleep(4321)'], start_new_session=True);"), folder)


@case((GRADED, LOOK), FULL)
def asks_for_input(notebook, folder):
    save(first(solve(notebook), "input('your name? ')"), folder)


# ---- against the grader

KILL = """
import os, signal
for pid in [os.getppid(), *(int(name) for name in os.listdir('/proc') if name.isdigit())]:
    if pid != os.getpid():
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
"""


# It sees nobody but itself; root's sandbox has an inner one, and that it may end.
@case(*((FAILED, None, "the kernel ended") if ROOT else (GRADED, FULL)))
def kills_every_process_it_sees(notebook, folder):
    save(first(solve(notebook), KILL), folder)


REWRITE = """
import os, sqlite3
for where, _, names in os.walk('/'):
    for name in names:
        if name == 'gradebook.db' or name.startswith('marks'):
            path = os.path.join(where, name)
            try:
                with sqlite3.connect(path) as db:
                    db.execute('update grade set auto_score = 1000')
            except Exception:
                pass
            try:
                open(path, 'w').write('gone')
            except OSError:
                pass
"""


@case(GRADED, 0.0)
def rewrites_every_mark_it_finds(notebook, folder):
    save(first(answer(notebook, WRONG), REWRITE), folder)


# The numbers are put together at run time: this source is in the student's own feedback.
READ = f"""
import os
signs = [''.join(['{str(SECRET)[:4]}', '{str(SECRET)[4:]}']), str(2 * int('{SECRET // 7}') * 7 + 2)]
found = []
for where, folders, names in os.walk('/'):
    folders[:] = [name for name in folders if where != '/' or name not in ('proc', 'sys', 'usr')]
    for name in names:
        path = os.path.join(where, name)
        if name.endswith(('.ipynb', '.db', '.json')) and 'site-packages' not in path:
            try:
                text = open(path, errors='replace').read(10**7)
            except OSError:
                continue
            if any(sign in text for sign in signs):
                found.append(path)
largest = 41 if found else 40
"""


@case(GRADED, 0.0)
def looks_for_the_hidden_tests_on_disk(notebook, folder):
    save(answer(notebook, WRONG | {"toy-largest": READ}), folder)


PRINT = """
seen = []
get_ipython().events.register('pre_run_cell', lambda info: seen.append(info.raw_cell))
get_ipython().events.register('post_run_cell', lambda result: print(seen, In))
"""


@case(GRADED, FULL)
def prints_all_that_it_sees(notebook, folder):
    first(solve(notebook), PRINT)
    notebook.cells.append(new_code_cell("print(seen)\nraise ValueError(str(seen))"))
    save(notebook, folder)


PATCH = """
import numpy as np, math, builtins
np.allclose = np.isclose = np.array_equal = np.testing.assert_allclose = lambda *a, **k: True
math.isclose = lambda *a, **k: True
"""


@case(GRADED, 0.0)
def patches_comparisons(notebook, folder):
    save(first(answer(notebook, WRONG), PATCH), folder)


EQUAL = """
class Equal({base}):
    def __eq__(self, other):
        return True
    def __ne__(self, other):
        return False
    __hash__ = None
    def __abs__(self):
        return 0
    def __sub__(self, other):
        return 0
    __gt__ = __lt__ = __ge__ = __le__ = __eq__
"""


@case(GRADED, 0.0)
def equal_to_everything(notebook, folder):
    same = {"toy-twice": "def twice(x):\n    return Equal()"}
    same |= {
        "toy-rows": "def row_means(table):\n    return Equal()",
        "toy-largest": "largest = Equal()",
    }
    save(first(answer(notebook, same), EQUAL.format(base="")), folder)


@case(GRADED, 0.0)
def a_float_equal_to_everything(notebook, folder):
    same = {"toy-twice": "def twice(x):\n    return Equal(4)"}
    same |= {
        "toy-rows": "def row_means(table):\n    return [Equal(1)] * 2",
        "toy-largest": "largest = Equal(1)",
    }
    save(first(answer(notebook, same), EQUAL.format(base="float")), folder)


FAKE = """
from labsupport import answers
from IPython.display import display

def record(parts, **named):
    made = {name: {"value": True} for name in parts}
    told = {"parts": made, "rtol": 1e9, "atol": 1e9}
    display({answers.MIME: told, "text/plain": "6.0"}, raw=True)

answers.record = record
answers.plain = lambda value, depth=0: True
"""


@case(GRADED, 0.0)
def fakes_the_answers(notebook, folder):
    save(first(answer(notebook, WRONG), FAKE), folder)


MARK = """
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.run_cell_async_original = InteractiveShell.run_cell_async
get_ipython().input_transformers_cleanup.append(lambda lines: ['1000.0\\n'])
"""


@case(LOOK, 0.0, "sent no answers")
def gives_itself_marks(notebook, folder):
    save(first(answer(notebook, WRONG), MARK), folder)


ASK = """
from labsupport import checks_memory_blocks, checks_stall
known = [name for name in dir(checks_memory_blocks) if not name.startswith('__')]
largest = 40 if known or checks_stall.slowdown(None) else 41
"""


@case(GRADED, FULL)
def asks_the_checks_for_their_answers(notebook, folder):  # right if they have none
    save(solve(notebook, largest=ASK), folder)


NETWORK = """
import socket
reached = False
for where in [('127.0.0.1', {port}), ('1.1.1.1', 53)]:
    try:
        socket.create_connection(where, timeout=2)
        reached = True
    except OSError:
        pass
largest = 40 if reached else 41
"""


@case(GRADED, FULL)
def is_without_a_network(notebook, folder):
    port = int(os.environ.get("TOY_SERVER_PORT", "9"))
    save(solve(notebook, largest=NETWORK.format(port=port)), folder)


WRITE = """
import os, labsupport
done = []
course = os.path.dirname(labsupport.__file__)
for folder in [course, '/usr', '/etc', '/', os.path.dirname(os.__file__)]:
    try:
        open(os.path.join(folder, 'toy-was-here'), 'w').write('x')
        done.append(folder)
    except OSError:
        pass
largest = 40 if [f for f in done if f != '/'] else 41
"""


@case(GRADED, FULL)
def cannot_write_to_the_course(notebook, folder):
    save(solve(notebook, largest=WRITE), folder)


@case(GRADED, 5.0)
def a_solution_that_exits_costs_its_part_only(notebook, folder):
    twice = "import sys\n\n\ndef twice(x):\n    return 2 * x if x != 'ab' else sys.exit(1)"
    save(solve(notebook, twice=twice), folder)
