"""What `make book` adds to Jupyter Book: outdated lessons run again, and nothing else does."""

import json
import shutil
import subprocess

import build as builder
import nbformat
import pytest
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from lesson_inputs import executed_lessons, imported_modules, lesson_digests, toc_pages

LESSON = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  name: python3
  display_name: Python 3
---

# A lesson

Some text.

```{code-cell} ipython3
%s
```
"""

BOOK = {
    "_toc.yml": "format: jb-book\nroot: index\nchapters:\n"
    "  - file: chapters/one\n  - file: chapters/two\n",
    "_config.yml": "title: Tiny\nonly_build_toc_files: true\n"
    "execute:\n  execute_notebooks: cache\n  raise_on_error: true\n"
    "launch_buttons:\n  binderhub_url: https://mybinder.org\n"
    "repository:\n  url: https://github.com/price-of-remembering/tiny\n",
    "requirements.txt": "numpy\n",
    "index.md": "# Tiny\n",
    "_static/tiny.css": "p {}\n",
    "chapters/one.md": LESSON % "from labsupport import top\nprint(top.VALUE)",
    "chapters/two.md": LESSON % "import labsupport.other\nprint('two')",
    "labsupport/__init__.py": "",
    "labsupport/top.py": "from labsupport.middle import VALUE\n",
    "labsupport/middle.py": "def f():\n    from . import deep\n\nVALUE = 1\n",
    "labsupport/deep.py": "RUN = 'run-a'\n",
    "labsupport/other.py": "",
    "labsupport/unused.py": "",
    "labsupport/__main__.py": "",
    "labsupport/course.mplstyle": "lines.linewidth: 2\n",
    "evidence/run-a/raw.csv": "1\n",
    "evidence/run-b/raw.csv": "1\n",
}


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


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
    assert imported_modules("%%time\nfrom labsupport import (", book / "labsupport") == everything


def test_a_page_that_does_not_exist_is_named(book):
    (book / "chapters" / "two.md").unlink()
    with pytest.raises(FileNotFoundError, match=r"chapters/two"):
        toc_pages(book)


def fill_cache(book):
    """Pretend that a build ran: a record and a doctree for each lesson, and the digests."""
    build, lessons = book / "_build", executed_lessons(book)
    build.mkdir()
    builder.drop_outdated(build, lessons, lesson_digests(book))  # nothing there yet to drop
    cache = get_cache(build / ".jupyter_cache")
    for doc, path in lessons.items():
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(f"'{doc}'")])
        cache.cache_notebook_bundle(CacheBundleIn(notebook, str(path)), check_validity=False)
        write(build, {f".doctrees/{doc}.doctree": ""})
    return build


def left(build):
    """File names that still have a record, and those that still have a doctree."""
    records = get_cache(build / ".jupyter_cache").list_cache_records()
    trees = (build / ".doctrees" / "chapters").glob("*.doctree")
    return {record.uri[-6:-3] for record in records}, {path.stem for path in trees}


def test_only_the_outdated_lesson_is_dropped(book):
    build = fill_cache(book)
    builder.drop_outdated(build, executed_lessons(book), lesson_digests(book))
    assert left(build) == ({"one", "two"}, {"one", "two"})

    write(book, {"labsupport/deep.py": "RUN = 'none'\n"})
    builder.drop_outdated(build, executed_lessons(book), lesson_digests(book))
    assert left(build) == ({"two"}, {"two"})


def test_a_record_of_no_lesson_is_dropped(book):
    build = fill_cache(book)
    shutil.move(book / "chapters" / "two.md", book / "chapters" / "three.md")
    write(book, {"_toc.yml": BOOK["_toc.yml"].replace("two", "three")})
    builder.drop_outdated(build, executed_lessons(book), lesson_digests(book))
    assert left(build)[0] == {"one"}


def test_unknown_inputs_keep_nothing(book):
    build = fill_cache(book)
    (build / "inputs.json").unlink()
    builder.drop_outdated(build, executed_lessons(book), lesson_digests(book))
    assert left(build) == (set(), set())


def test_a_page_without_html_is_missed(book):
    write(book / "_build" / "html", {"index.html": "", "chapters/one.html": ""})
    assert builder.missing_pages(book / "_build", toc_pages(book)) == ["chapters/two"]


def test_a_build_without_a_page_fails(book, monkeypatch, capsys):
    write(book / "_build" / "html", {"index.html": "", "chapters/one.html": ""})
    passed = subprocess.CompletedProcess([], returncode=0)
    monkeypatch.setattr(builder.subprocess, "run", lambda *args, **options: passed)
    monkeypatch.setattr(builder, "drop_unfinished", lambda *args: None)
    assert builder.build_book(book) == 1
    assert "chapters/two" in capsys.readouterr().err


WHOLE = ["_toc.yml", "_config.yml", "requirements.txt", "_static/tiny.css"]


@pytest.mark.parametrize("file", [*WHOLE, "index.md"])
def test_what_concerns_every_page_starts_the_pages_afresh(book, file):
    write(book / "_build", {"html/index.html": "", "passed": builder.whole_book_mark(book)})
    write(book, {file: BOOK[file] + "# changed\n"})
    builder.drop_unfinished(book / "_build" / "passed", builder.whole_book_mark(book))
    assert (book / "_build" / "html" / "index.html").exists() == (file not in WHOLE)


def test_a_build_that_did_not_pass_starts_the_pages_afresh(book):
    write(book / "_build", {"html/index.html": ""})
    builder.drop_unfinished(book / "_build" / "passed", builder.whole_book_mark(book))
    assert not (book / "_build" / "html").exists()


def test_a_tiny_book_from_end_to_end(book, monkeypatch, capfd):
    monkeypatch.setenv("PYTHONPATH", str(book))  # its labsupport, not ours

    def build_again(files, code=0):
        write(book, files)
        assert builder.build_book(book) == code
        return capfd.readouterr().out

    def printed():
        path = book / "_build" / "html" / "_sources" / "chapters" / "one.ipynb"
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return [output["text"] for cell in cells for output in cell.get("outputs", [])]

    assert "2 executed; 0 of 2 from the cache" in build_again({})
    assert printed() == [["1\n"]]
    assert "Nothing executed; 2 of 2 from the cache" in build_again({})

    said = build_again({"labsupport/middle.py": "VALUE = 2\n"})
    assert "1 executed; 1 of 2 from the cache" in said
    assert printed() == [["2\n"]]

    # A warning fails the build, and fails it again: it is not lost with the page that was read.
    broken = BOOK["chapters/one.md"].replace("Some text.", "[No such page](missing.md)")
    build_again({"chapters/one.md": broken}, code=1)
    build_again({}, code=1)

    said = build_again({"chapters/one.md": BOOK["chapters/one.md"].replace("Some", "New")})
    assert "Nothing executed; 2 of 2 from the cache" in said
    assert printed() == [["2\n"]]  # the download has its outputs although nothing ran
