"""What `make book` adds to Jupyter Book: outdated lessons run again, and nothing else does."""

import json
import shutil
import subprocess

import build as builder
import nbformat
import pytest
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from lesson_inputs import executed_lessons, lesson_digests, toc_pages
from sample_book import BOOK, write


@pytest.fixture
def book(tmp_path):
    """A book of two lessons, each with modules of its own."""
    write(tmp_path, BOOK)
    return tmp_path


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


def test_a_lesson_that_left_the_book_and_returns_is_outdated(book):
    build = fill_cache(book)
    for toc in (BOOK["_toc.yml"].replace("  - file: chapters/two\n", ""), BOOK["_toc.yml"]):
        write(book, {"_toc.yml": toc})
        builder.drop_outdated(build, executed_lessons(book), lesson_digests(book))
    assert left(build) == ({"one"}, {"one"})


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
    assert builder.build_book(book, {}) == 1
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
        assert builder.build_book(book, {}) == code
        assert (book / "_build" / "passed").is_file() == (code == 0)
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
