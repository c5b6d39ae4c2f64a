"""A whole class through `python -m labsupport grade`: honest, broken and hostile submissions.

One run grades them all, in the sandbox, and each test looks at what came of one.
"""

import csv
import hashlib
import html
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest
import toy_exercises as toy
from exercise_code import CHAPTERS, SOURCE, Sheet

import exercises

ROOT = Path(__file__).resolve().parent.parent


def grade(submissions, marks, *options):
    """Run the command; what it printed, and its exit code."""
    command = [sys.executable, "-m", "labsupport", "grade", str(submissions), "--out", str(marks)]
    done = subprocess.run([*command, *map(str, options)], cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def table(path):
    """A CSV file as a list of dicts."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def tree(folder):
    """Every file below a folder, and its digest; a link stands for itself."""
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


@pytest.fixture(scope="module")
def masters(tmp_path_factory):
    """The small master, run, and its student version beside it."""
    folder = tmp_path_factory.mktemp("masters")
    path = folder / "source" / toy.CHAPTER / f"{toy.CHAPTER}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(toy.master(), path)
    exercises.run(toy.CHAPTER, folder / "source")
    exercises.student(toy.CHAPTER, folder / "student", folder / "source")
    return folder


def handed_out(masters):
    """A fresh copy of the student version."""
    return nbformat.read(masters / "student" / toy.CHAPTER / f"{toy.CHAPTER}.ipynb", as_version=4)


class Graded:
    """What came of the class."""

    def __init__(self, masters, folder):
        self.submissions, self.marks = folder / "submissions", folder / "marks"
        for student, case in toy.CASES.items():
            (self.submissions / student).mkdir(parents=True)
            case.write(handed_out(masters), self.submissions / student)
        (self.submissions / "a loose file.txt").write_text("who am I?", encoding="utf-8")
        before, start = tree(self.submissions), time.perf_counter()
        options = ("--masters", masters / "source", "--cell-seconds", 8, "--total-seconds", 60)
        self.code, self.said = grade(self.submissions, self.marks, *options)
        self.seconds = time.perf_counter() - start
        self.unchanged = tree(self.submissions) == before
        self.rows = {
            row["student"].removeprefix("'"): row for row in table(self.marks / "marks.csv")
        }


@pytest.fixture(scope="module")
def graded(masters, tmp_path_factory):
    """All cases, graded in one run, while a server listens on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        os.environ["TOY_SERVER_PORT"] = str(server.getsockname()[1])
        return Graded(masters, tmp_path_factory.mktemp("class"))


def test_there_are_at_least_thirty_cases():
    assert len(toy.CASES) >= 30


def test_the_batch_runs_to_its_end(graded):
    assert graded.code == 0, graded.said
    assert set(graded.rows) == set(toy.CASES)


@pytest.mark.parametrize("student", toy.CASES)
def test_each_submission_gets_the_row_it_deserves(graded, student):
    case, row = toy.CASES[student], graded.rows[student]
    statuses = (case.status,) if isinstance(case.status, str) else case.status
    assert row["status"] in statuses, row
    assert case.why in row["why"]
    if case.points is None:
        assert row["points"] == ""
    else:
        allowed = case.points if isinstance(case.points, tuple) else (case.points,)
        assert float(row["points"]) in allowed, row
        assert float(row["of"]) == toy.FULL
    if row["status"] != toy.GRADED:
        assert row["why"]


def test_the_originals_are_as_they_were(graded):
    assert graded.unchanged


def test_nothing_is_left_running(graded):
    left = [p.info for p in psutil.process_iter(["cmdline"]) if "time.sleep(4321)" in str(p.info)]
    assert left == []


def test_feedback_shows_neither_hidden_tests_nor_answers(graded):
    pages = list((graded.marks / "feedback").rglob("*.html"))
    ran = [row for row in graded.rows.values() if row["points"] != ""]
    assert len(pages) >= len(ran)
    for page in pages:
        text = html.unescape(page.read_text(encoding="utf-8"))
        text = re.sub("<[^>]+>", "", text)
        for secret in (toy.SECRET, toy.ANSWER, "BEGIN HIDDEN", "answers.record({"):
            assert str(secret) not in text, f"{page.name} shows {secret}"


def test_feedback_says_which_parts_were_right(graded):
    (page,) = (graded.marks / "feedback" / "partly_right").glob("*.html")
    text = page.read_text(encoding="utf-8")
    assert "right: whole numbers" in text
    assert "not yet: text" in text
    assert text.index("right: one table") < text.index("right: a long table")  # as in the test


def test_the_contents_of_feedback_name_the_exercises(graded):
    (page,) = (graded.marks / "feedback" / "partly_right").glob("*.html")
    text = page.read_text(encoding="utf-8")
    assert re.search(r'<a href="#toy-rows-check">toy-rows</a>', text)
    assert ">Comment</a>" not in text
    assert "A sheet for chapter 9" in text  # a link would lead nowhere
    assert "@font-face" not in text
    assert ">Test cell</a>" not in text


def test_a_spreadsheet_runs_no_name(graded):
    text = (graded.marks / "marks.csv").read_text(encoding="utf-8")
    assert not re.search(r"(^|,)\"?[=+@]", text, re.MULTILINE)


def test_the_summary_tells_what_needs_a_person(graded):
    text = (graded.marks / "summary.md").read_text(encoding="utf-8")
    looked = [s for s, row in graded.rows.items() if row["status"] != toy.GRADED]
    assert all(student in text for student in looked)
    assert "a loose file.txt" in text


def test_marks_that_exist_are_refused_and_resume_does_nothing_again(graded, masters):
    before = tree(graded.marks)
    code, said = grade(graded.submissions, graded.marks, "--masters", masters / "source")
    assert code == 2
    assert "--resume" in said
    assert tree(graded.marks) == before


# ---- the real masters


def real_class(folder):
    """For each chapter: the master, the blank, and every other exercise answered wrongly, twice.

    (An exercise may use the one before it.)
    """
    for chapter in CHAPTERS:
        wrong = __import__(f"exercise_answers_{chapter}").WRONG
        handed = SOURCE.parent / "student" / chapter / f"{chapter}.ipynb"
        exercises_of = list(Sheet(chapter).exercises())
        wrongly = {"wrong": exercises_of[::2], "wrong too": exercises_of[1::2]}
        for student in ("master", "blank", *wrongly):
            notebook = nbformat.read(handed, as_version=4)
            for cell in notebook.cells:
                name = cell.metadata.get("nbgrader", {}).get("grade_id")
                if student != "blank" and name in exercises_of:
                    cell.source = Sheet(chapter).solution(name)
                if name in wrongly.get(student, []):
                    cell.source = wrong[name][0][1]
            (folder / student).mkdir(parents=True, exist_ok=True)
            nbformat.write(notebook, folder / student / f"{chapter}.ipynb")


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    real_class(folder / "submissions")
    code, said = grade(folder / "submissions", folder / "marks")
    assert code == 0, said
    return folder / "marks"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_master_gets_full_marks_and_the_blank_none(real, chapter):
    rows = [row for row in table(real / "exercises.csv") if row["chapter"] == chapter]
    full = {row["exercise"]: row for row in rows if row["student"] == "master"}
    none = {row["exercise"]: row for row in rows if row["student"] == "blank"}
    assert set(full) == set(none) == set(Sheet(chapter).exercises())
    assert all(row["points"] == row["of"] for row in full.values())
    assert all(float(row["points"]) == 0 for row in none.values())
    status = {
        r["student"]: r["status"] for r in table(real / "marks.csv") if r["chapter"] == chapter
    }
    assert status["master"] == status["blank"] == "graded"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_known_wrong_answers_get_what_they_deserve(real, chapter):
    wrong = __import__(f"exercise_answers_{chapter}").WRONG
    rows = [row for row in table(real / "exercises.csv") if row["chapter"] == chapter]
    for student, first in (("wrong", 0), ("wrong too", 1)):
        got = [row for row in rows if row["student"] == student]
        assert len(got) == len(Sheet(chapter).exercises())
        for number, row in enumerate(got):
            share = wrong[row["exercise"]][0][2] if number % 2 == first else 1
            assert float(row["points"]) == pytest.approx(share * float(row["of"]), abs=0.005), row


# ---- a large class


def test_forty_submissions_cost_little_beyond_their_own_run(masters, tmp_path):
    """Under 1.5 s of the class's time each, on two cores, beyond the notebooks' own run time."""
    n, workers = 40, 2
    for i in range(n):
        folder = tmp_path / "submissions" / f"student {i:02d}"
        folder.mkdir(parents=True)
        toy.save(toy.solve(handed_out(masters)), folder)
    start = time.perf_counter()
    code, said = grade(
        tmp_path / "submissions",
        tmp_path / "marks",
        "--masters",
        masters / "source",
        "--workers",
        workers,
    )
    took = time.perf_counter() - start
    assert code == 0, said
    rows = table(tmp_path / "marks" / "marks.csv")
    assert [float(row["points"]) for row in rows] == [toy.FULL] * n
    own = sum(float(row["seconds"]) for row in rows) / workers
    assert (took - own) / n < 1.5, f"{took:.0f} s for {n}, of which {own:.0f} s their own"

    (tmp_path / "marks" / "marks.csv").unlink()  # as if it had been interrupted before the end
    states = sorted((tmp_path / "marks" / "state").rglob("*.json"))
    states[7].unlink()
    written = {path: path.stat().st_mtime_ns for path in states if path.exists()}
    code, said = grade(
        tmp_path / "submissions", tmp_path / "marks", "--masters", masters / "source", "--resume"
    )
    assert code == 0, said
    rows = table(tmp_path / "marks" / "marks.csv")
    assert [float(row["points"]) for row in rows] == [toy.FULL] * n
    assert states[7].exists()
    assert {path: path.stat().st_mtime_ns for path in written} == written  # 39 were not run again
