"""The .zip of executed notebooks: complete, the same bytes each time, enough to run a lesson."""

import io
import json
import os
import re
import subprocess
import sys
import zipfile

import bundle
import pytest
from lesson_inputs import executed_lessons, toc_pages
from repository import HTML, ROOT

LESSONS = list(executed_lessons(ROOT))
STUDENT = [doc for doc in toc_pages(ROOT) if doc.startswith("exercises/student/")]


@pytest.fixture(scope="module")
def packed():
    with zipfile.ZipFile(HTML / bundle.NAME) as archive:
        yield archive


@pytest.fixture(scope="module")
def unpacked(packed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("zip")
    packed.extractall(folder)
    return folder / bundle.TOP


def git(*words):
    command = ["git", "ls-files", "-z", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    return {name for name in done.stdout.split("\0") if name}


def test_it_has_what_a_lesson_needs_and_no_solutions(packed):
    names = {name.removeprefix(f"{bundle.TOP}/") for name in packed.namelist()}
    assert all(name.startswith(f"{bundle.TOP}/") for name in packed.namelist())
    notebooks = {f"{doc}.ipynb" for doc in [*LESSONS, *STUDENT]}
    assert notebooks == {name for name in names if name.endswith(".ipynb")}
    assert {"README.md", "LICENSE", "LICENSE-CONTENT", "pyproject.toml"} <= names
    tracked = git("labsupport", "evidence", "exercises/student")
    assert len(tracked) > 150
    assert names - tracked - notebooks == {
        "README.md", "LICENSE", "LICENSE-CONTENT", "pyproject.toml", "requirements.txt"
    }  # fmt: skip
    assert {name for name in tracked if (ROOT / name).is_file()} <= names
    assert not [name for name in names if "source" in name.split("/")]


def test_it_is_small_and_has_nothing_of_this_machine(packed):
    assert (HTML / bundle.NAME).stat().st_size < 20e6
    for entry in packed.infolist():
        assert entry.date_time == bundle.EPOCH
        assert entry.external_attr >> 16 == 0o100644
    assert packed.namelist() == sorted(packed.namelist())


def test_the_same_files_give_the_same_bytes(tmp_path):
    files = {"b.txt": b"two", "a.txt": b"one" * 1000}
    assert bundle.pack(files) == bundle.pack(dict(reversed(files.items())))
    assert bundle.pack(files) != bundle.pack(files | {"b.txt": b"three"})
    with zipfile.ZipFile(io.BytesIO(bundle.pack(files))) as archive:
        assert archive.read(f"{bundle.TOP}/a.txt") == files["a.txt"]
        assert {entry.date_time[0] for entry in archive.infolist()} == {1980}  # no date of today


def test_it_is_written_only_when_something_changed(tmp_path, monkeypatch):
    (tmp_path / "_build" / "html").mkdir(parents=True)
    files = {"a.txt": b"one"}
    monkeypatch.setattr(bundle, "contents", lambda root: files)
    path = bundle.write_bundle(tmp_path)
    os.utime(path, ns=(0, 0))
    bundle.write_bundle(tmp_path)
    assert path.stat().st_mtime_ns == 0
    files["a.txt"] = b"two"
    bundle.write_bundle(tmp_path)
    assert path.stat().st_mtime_ns > 0


def test_what_is_not_tracked_stays_out(tmp_path):
    (tmp_path / "labsupport").mkdir()
    for name in ("kept.py", "own.py", "kept.pyc"):
        (tmp_path / "labsupport" / name).write_text("", encoding="utf-8")
    assert bundle.tracked(tmp_path) == ["labsupport/kept.py", "labsupport/own.py"]  # no git here
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "labsupport/kept.py"], cwd=tmp_path, check=True)
    assert bundle.tracked(tmp_path) == ["labsupport/kept.py"]


@pytest.mark.parametrize("doc", LESSONS)
def test_its_lessons_are_executed(unpacked, doc):
    notebook = json.loads((unpacked / f"{doc}.ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert any(cell["outputs"] for cell in code)


def test_links_of_its_notebooks_lead_somewhere(unpacked):
    n_links = 0
    for doc in LESSONS:
        path = unpacked / f"{doc}.ipynb"
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] != "markdown":
                continue
            for target in re.findall(r"\]\((?!https?:)([^)#\s]+\.\w+)", "".join(cell["source"])):
                assert (path.parent / target).is_file(), f"{doc} links to {target}"
                n_links += 1
    assert n_links > 3


def test_a_link_to_another_page_leads_to_the_web():
    pages = {"a/one": None, "a/two": None, "b/three": None}
    text = "[1](two.md#x) [2](../b/three.md) [3](gone.md) [4](https://example.org/two.md)"
    assert bundle.linked(text, "a/one", pages, {"a/two"}, "https://site/") == (
        "[1](two.ipynb#x) [2](https://site/b/three.html) [3](gone.md) [4](https://example.org/two.md)"
    )


def test_labsupport_and_evidence_work_from_it_alone(unpacked):
    code = "import labsupport, sys; from labsupport import evidence; print(labsupport.__file__);"
    code += "print(len(evidence.read('warm-slower').rows))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = ['.']; {code}"],
        cwd=unpacked, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    where, rows = done.stdout.split("\n")[:2]
    assert where.startswith(str(unpacked))
    assert int(rows) > 0
