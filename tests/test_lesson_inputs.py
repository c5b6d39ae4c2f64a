"""What a lesson depends on: each of its inputs is found, and little else."""

from pathlib import Path
from types import SimpleNamespace

import lesson_inputs
import pytest
from lesson_inputs import imported_modules, lesson_digests, toc_pages
from sample_book import BOOK, LESSON, write


@pytest.fixture
def book(tmp_path):
    """A book of two lessons, each with modules of its own."""
    write(tmp_path, BOOK)
    return tmp_path


def changed(book, files):
    """The lessons whose digest changes when these files are written."""
    before = lesson_digests(book)
    write(book, files)
    return {doc for doc, digest in lesson_digests(book).items() if before[doc] != digest}


@pytest.mark.parametrize(
    ("file", "affected"),
    [
        ("labsupport/top.py", {"chapters/one"}),
        ("labsupport/middle.py", {"chapters/one"}),  # through top
        ("labsupport/deep.py", {"chapters/one"}),  # through an import inside a function
        ("labsupport/other.py", {"chapters/two"}),
        ("labsupport/unused.py", set()),
        ("labsupport/__init__.py", {"chapters/one", "chapters/two"}),
        ("labsupport/course.mplstyle", {"chapters/one", "chapters/two"}),
        ("labsupport/README.md", set()),  # no module names it
        ("requirements.txt", {"chapters/one", "chapters/two"}),
        ("evidence/run-a/raw.csv", {"chapters/one"}),  # named by a module that it imports
        ("evidence/run-a/new.csv", {"chapters/one"}),
        ("evidence/run-b/raw.csv", set()),
    ],
)
def test_a_change_affects_the_lessons_that_depend_on_it(book, file, affected):
    addition = "# changed\n" + BOOK.get(file, "")
    assert changed(book, {file: addition}) == affected


def test_text_beside_the_cells_affects_nothing(book):
    edited = BOOK["chapters/one.md"].replace("Some text.", "Other text, on run-b.")
    assert changed(book, {"chapters/one.md": edited}) == set()


def test_evidence_named_in_a_cell_affects_that_lesson(book):
    write(book, {"chapters/two.md": LESSON % "print('run-b')"})
    assert changed(book, {"evidence/run-b/raw.csv": "2\n"}) == {"chapters/two"}


@pytest.mark.parametrize(
    ("code", "modules"),
    [
        ("import numpy as top", set()),
        ("import labsupport", {"__init__"}),
        ("import labsupport.top as t", {"__init__", "top"}),
        ("from labsupport import top, other", {"__init__", "top", "other"}),
        ("from labsupport.top import VALUE", {"__init__", "top"}),
        ("%matplotlib inline\n!ls\nfrom labsupport import top", {"__init__", "top"}),
    ],
)
def test_imports_are_found(book, code, modules):
    assert imported_modules(code, book / "labsupport") == modules


@pytest.mark.parametrize(
    "code", ["!python -m labsupport audit", "run([sys.executable, '-m', 'labsupport'])"]
)
def test_the_command_line_may_use_any_module(book, code):
    write(book, {"chapters/two.md": LESSON % code})
    assert changed(book, {"labsupport/unused.py": "# changed\n"}) == {"chapters/two"}


def test_code_that_cannot_be_read_may_import_anything(book):
    everything = {path.stem for path in (book / "labsupport").glob("*.py")}
    write(book, {"labsupport/.#top.py": "an editor's lock"})
    assert imported_modules("%%time\nfrom labsupport import (", book / "labsupport") == everything


def test_a_page_that_does_not_exist_is_named(book):
    (book / "chapters" / "two.md").unlink()
    with pytest.raises(FileNotFoundError, match=r"chapters/two"):
        toc_pages(book)


@pytest.mark.parametrize(
    "code",
    [
        "import importlib\nimportlib.import_module('labsupport.unused')",
        "import importlib\nfor n in ['unused']:\n    importlib.import_module(f'labsupport.{n}')",
        "import importlib\nimportlib.import_module('.unused', 'labsupport')",
        "TABLE = {'a': 'labsupport.unused'}",
        "run([sys.executable, '-c', 'from labsupport import other, unused'])",
        "!python -c 'from labsupport import unused'",
        "%time from labsupport import unused",
        "%timeit -n 1 from labsupport import (unused)",
        "%run ../labsupport/unused.py",
        "%load_ext labsupport.unused",
        "exec('''from labsupport import (\n    unused,\n)''')",
        "exec('from labsupport import un' + 'used')",
        "run([sys.executable, '../labsupport/unused.py'])",
    ],
)
def test_a_cell_may_import_in_other_ways(book, code):
    write(book, {"chapters/two.md": LESSON % code})
    assert changed(book, {"labsupport/unused.py": "# changed\n"}) == {"chapters/two"}


@pytest.mark.parametrize(
    ("code", "affected"),
    [
        ("TABLE = {'a': 'labsupport.unused'}\n", {"chapters/two"}),
        ("RUN = ['-c', 'import os\\nfrom labsupport import unused']\n", {"chapters/two"}),
        ("import runpy\n\n\ndef f(name):\n    runpy.run_module(name)\n", {"chapters/two"}),
        ('"""See `labsupport.unused`."""\n', set()),
        ("def f():\n    '''See labsupport/unused.py.'''\n", set()),
        ("x = 1  # as in labsupport.unused\n", set()),
    ],
)
def test_a_module_imports_by_its_strings_but_not_by_what_it_explains(book, code, affected):
    write(book, {"labsupport/other.py": code})
    assert changed(book, {"labsupport/unused.py": "# changed\n"}) == affected


@pytest.mark.parametrize(
    ("code", "affected"),
    [
        ("from labsupport import evidence\nevidence.read('run-a')", set()),
        ("from labsupport import evidence\nevidence.read( 'run-b' ).rows", {"chapters/two"}),
        ("from labsupport import evidence\nevidence.directory('run-' + x)", {"chapters/two"}),
        ("from labsupport import evidence\nevidence.read(f'run-{x}')", {"chapters/two"}),
        ("from labsupport import evidence\nlist(map(evidence.read, names))", {"chapters/two"}),
        ("from labsupport import evidence as e\ne.read(name)", {"chapters/two"}),
        ("import labsupport.evidence as e\ne.read('run-a').rows", set()),
        ("from labsupport.evidence import read\nread(name)", {"chapters/two"}),
        ("print('run-b2, rerun-b, run-b-old, run_b')", set()),
        ("print('../evidence/run-b/raw.csv')", {"chapters/two"}),
    ],
)
def test_evidence_counts_by_its_whole_name_or_where_the_name_is_computed(book, code, affected):
    write(book, {"labsupport/evidence.py": "", "chapters/two.md": LESSON % code})
    assert changed(book, {"evidence/run-b/raw.csv": "2\n"}) == affected


def test_a_module_that_computes_the_name_of_evidence_may_read_every_run(book):
    module = "from labsupport import evidence\n\n\ndef f(x):\n    return evidence.read(x)\n"
    write(book, {"labsupport/evidence.py": "", "labsupport/other.py": module})
    assert changed(book, {"evidence/run-b/raw.csv": "2\n"}) == {"chapters/two"}


@pytest.mark.parametrize("name", [".DS_Store", ".other.py.swp", "other.py~", "#other#", "old.bak"])
@pytest.mark.parametrize("folder", ["labsupport", "evidence/run-a", "evidence/run-a/.old"])
def test_files_that_editors_leave_affect_nothing(book, folder, name):
    assert changed(book, {f"{folder}/{name}": "run-b"}) == set()


def test_another_version_of_python_affects_every_lesson(book, monkeypatch):
    before = lesson_digests(book)
    monkeypatch.setattr(lesson_inputs, "sys", SimpleNamespace(version_info=(3, 99, 0)))
    after = lesson_digests(book)
    assert all(before[doc] != after[doc] for doc in before)


def test_a_new_name_for_the_same_file_affects_the_lesson(book):
    before = lesson_digests(book)
    (book / "evidence" / "run-a" / "raw.csv").rename(book / "evidence" / "run-a" / "rows.csv")
    assert before["chapters/one"] != lesson_digests(book)["chapters/one"]


def test_in_the_real_book_only_what_uses_a_module_depends_on_it():
    root = Path(__file__).resolve().parent.parent
    using = {name: set() for name in lesson_inputs.all_modules(root / "labsupport")}
    for doc, path in lesson_inputs.executed_lessons(root).items():
        for file in lesson_inputs.input_files(lesson_inputs.code_cells(path), root, {}):
            if file.parent.name == "labsupport" and file.suffix == ".py":
                using[file.stem].add(doc)
    assert not any("pages/refresher" in docs for docs in using.values())
    assert {"chapters/stall", "ledger"} <= using["timing"]
    assert "ledger" not in using["figures"]
