"""Grading: what nbgrader is told, what a mark rests on, what feedback shows, what a class gets."""

import argparse
import base64
import csv
import html
import json
import os
import signal
import tempfile
import time
from html.parser import HTMLParser

import nbformat
import pytest
import toy_exercises as toy
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from nbgrader.utils import determine_grade
from test_submissions import released

import exercises
from labsupport import (
    answers,
    feedback,
    grade_command,
    grading,
    markbook,
    marking,
    masters,
    sandbox,
)
from labsupport.grading import Result, Settings
from labsupport.marking import Mark
from labsupport.submissions import Submission

LIMITS = sandbox.Limits(cell_s=20, total_s=60)


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """The folder of masters that holds the small one, which has run."""
    folder = tmp_path_factory.mktemp("grading") / "source"
    path = folder / "toy" / "toy.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(toy.master(), path)
    exercises.run("toy", folder)
    return folder


@pytest.fixture(scope="session")
def master(source, tmp_path_factory):
    """The small master, ready to grade by."""
    return masters.prepare(source, "toy", tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def ada(tmp_path):
    """The folder of a student."""
    (tmp_path / "class" / "Ada <b>").mkdir(parents=True)
    return tmp_path / "class" / "Ada <b>"


def grade(notebook, ada, master, tmp_path):
    """Grade one notebook in this process, its kernel outside of a sandbox."""
    toy.save(notebook, ada)
    submission = Submission(ada.name, "toy", ada, ada / "toy.ipynb")
    return grading.grade(submission, master, Settings(LIMITS, False, tmp_path))


# ---- masters


def test_a_master_is_prepared_once_for_all(master):
    assert master.points == {"toy-twice": 2, "toy-rows": 3, "toy-largest": 1}
    parts = {"one table", "a long table", "no columns alike"}
    assert set(master.answers["toy-rows"]["parts"]) == parts
    assert str(toy.SECRET) in master.notebook
    assert str(toy.SECRET) not in master.released
    assert "raise NotImplementedError" in master.released
    assert type(master.answers["toy-twice"]) is dict


def test_masters_are_found_by_name(source, tmp_path):
    assert list(masters.grade_ids(source)) == ["toy"]
    assert masters.grade_ids(source, ["toy"])["toy"][:2] == ["toy-twice", "toy-twice-check"]
    with pytest.raises(ValueError, match="no master of play; it has toy"):
        masters.grade_ids(source, ["play"])
    with pytest.raises(ValueError, match="no master notebook"):
        masters.grade_ids(tmp_path)


def test_a_master_that_has_not_run_is_refused(tmp_path):
    path = tmp_path / "source" / "toy" / "toy.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(toy.master(), path)
    with pytest.raises(ValueError, match=r"after its last run.*exercises.py run toy"):
        masters.prepare(tmp_path / "source", "toy", tmp_path)


@pytest.mark.parametrize("what", ["the question", "a number as JupyterLab saves it", "the answers"])
def test_a_master_that_was_changed_after_its_run_is_refused(source, tmp_path, what):
    notebook = nbformat.read(source / "toy" / "toy.ipynb", as_version=4)
    test = toy.cell_of(notebook, "toy-rows-check")
    told = test.outputs[0].data[answers.MIME]
    if what == "the question":
        test.source = test.source.replace("5.0", "6.0")
    elif what == "the answers":
        test.outputs = []
    else:
        assert told["atol"] == 0.0
        told["atol"] = 0
    path = tmp_path / "source" / "toy" / "toy.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)
    with pytest.raises(ValueError, match="after its last run"):
        masters.prepare(tmp_path / "source", "toy", tmp_path)


def test_a_master_without_answers_is_refused(source, tmp_path):
    notebook = nbformat.read(source / "toy" / "toy.ipynb", as_version=4)
    toy.cell_of(notebook, "toy-rows-check").outputs = []
    notebook.metadata.price_of_remembering["ran"] = masters.fingerprint(notebook)
    path = tmp_path / "source" / "toy" / "toy.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)
    with pytest.raises(ValueError, match=r"no answers of toy-rows.*exercises.py run toy"):
        masters.prepare(tmp_path / "source", "toy", tmp_path)


def test_a_master_that_nbgrader_refuses_is_told(source, tmp_path):
    notebook = nbformat.read(source / "toy" / "toy.ipynb", as_version=4)
    toy.cell_of(notebook, "toy-rows").metadata.nbgrader.grade_id = "toy-twice"  # no code
    path = tmp_path / "source" / "toy" / "toy.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)
    with pytest.raises(ValueError, match=r"nbgrader does not take .*: .*ValidationError: "):
        masters.prepare(tmp_path / "source", "toy", tmp_path)


# ---- marks


@pytest.mark.parametrize("points", [0.0, 0.67, 1.5, 3.0])
def test_nbgrader_reads_the_points_from_what_stands_for_them(points):
    cell = new_code_cell("", outputs=grading.outputs(Mark(points, 3.0, {"a part": points > 0})))
    cell.metadata.nbgrader = {"grade": True, "solution": False, "points": 3.0, "grade_id": "x"}
    assert determine_grade(cell) == (points, 3.0)
    assert "a part" in str(cell.outputs)


def marked(sent, master):
    """What the marker makes of these outputs of the first test."""
    notebook = nbformat.reads(master.notebook, as_version=4)
    toy.cell_of(notebook, "toy-twice-check").outputs = sent
    resources = {"answers": master.answers}
    return grading.Marker().preprocess(notebook, resources)


def test_the_marker_goes_by_answers_and_by_nothing_else(master):
    stored = toy.cell_of(nbformat.reads(master.notebook, as_version=4), "toy-twice-check").outputs
    warning = new_output("stream", name="stderr", text="careful")
    error = new_output("error", ename="AssertionError", evalue="the visible check", traceback=[])
    faked = new_output("execute_result", data={"text/plain": "2.0"}, execution_count=1)
    for sent, points in (
        (stored, 2.0),
        ([warning, *stored, error], 2.0),
        ([faked], 0.0),
        ([], 0.0),
    ):
        notebook, resources = marked(sent, master)
        cell = toy.cell_of(notebook, "toy-twice-check")
        assert resources["marks"]["toy-twice"].points == points
        assert determine_grade(cell) == (points, 2.0)
        assert "careful" not in str(cell.outputs)
        assert resources["unanswered"] == ([] if sent and sent != [faked] else ["toy-twice"])


def test_answers_that_break_the_comparison_cost_their_exercise_only(master, monkeypatch):
    def judge(got, want):
        raise TypeError("what is that?")

    monkeypatch.setitem(marking.JUDGES, "toy-twice", {"text": judge})
    stored = toy.cell_of(nbformat.reads(master.notebook, as_version=4), "toy-twice-check").outputs
    _, resources = marked(stored, master)
    assert resources["refused"] == ["toy-twice"]
    assert resources["marks"]["toy-twice"] == Mark(
        0.0, 2.0, {"whole numbers": False, "text": False}
    )
    assert resources["marks"]["toy-rows"].points == 3.0


def test_only_names_of_pythons_own_errors_are_kept():
    cells = [
        new_code_cell("", outputs=[new_output("error", ename=name, evalue="x", traceback=[])])
        for name in ("NameError", "the hidden answer is 7", "print", "int", "KeyboardInterrupt")
    ]
    assert grading.errors(nbformat.v4.new_notebook(cells=cells)) == {
        0: "NameError",
        1: "an error",
        2: "an error",
        3: "an error",
        4: "KeyboardInterrupt",
    }
    output = new_output("error", ename="KeyError", evalue="x", traceback=[])
    many = nbformat.v4.new_notebook(cells=[new_code_cell("", outputs=[output]) for _ in range(40)])
    assert len(grading.errors(many)) == grading.MOST_ERRORS


def test_a_right_notebook_gets_full_marks(ada, master, tmp_path):
    result = grade(toy.solve(released()), ada, master, tmp_path)
    assert (result.status, result.why) == (grading.GRADED, "")
    assert (result.points, result.of) == (6.0, 6.0)
    assert result.seconds > 0
    assert result.sha256[1] == master.sha256
    assert "right: whole numbers" in result.page
    assert [path.name for path in tmp_path.iterdir()] == ["class"]  # nothing is left


def test_partial_credit_reaches_nbgrader_and_the_student(ada, master, tmp_path):
    solved = toy.solve(released(), rows="def row_means(t):\n    return t.mean(axis=1)[:2]")
    result = grade(toy.first(solved, "undefined"), ada, master, tmp_path)
    assert (result.status, result.points) == (grading.GRADED, 5.0)
    (rows,) = [told for told in result.exercises if told["exercise"] == "toy-rows"]
    assert rows == {
        "exercise": "toy-rows",
        "points": 2.0,
        "of": 3.0,
        "right": {"one table": True, "a long table": False, "no columns alike": True},
    }
    assert "not yet: a long table" in result.page
    assert "Cell 1 stopped with NameError" in result.page
    assert "2.0 / 3.0" in result.page  # nbgrader's own line, from its gradebook


def test_scores_that_are_not_the_marks_are_no_result(ada, master, tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "outputs", lambda mark: [])  # nbgrader: full marks
    result = grade(released(), ada, master, tmp_path)
    assert (result.status, result.points) == (grading.FAILED, None)
    assert "scores are not the marks" in result.why


def test_a_kernel_that_ends_before_any_answer_is_no_zero(ada, master, tmp_path):
    result = grade(
        toy.first(toy.solve(released()), "import os\nos._exit(1)"), ada, master, tmp_path
    )
    assert (result.status, result.points, result.page) == (grading.FAILED, None, "")
    assert "the kernel ended" in result.why


def test_what_cannot_be_read_and_what_breaks_are_rows(ada, master, tmp_path, monkeypatch):
    (ada / "toy.ipynb").write_text("{", encoding="utf-8")
    submission = Submission("Ada", "toy", ada, ada / "toy.ipynb", remarks=["two notebooks"])
    result = grading.grade(submission, master, Settings(LIMITS, False, tmp_path))
    assert (result.status, result.points) == (grading.FAILED, None)
    assert "JSON" in result.why
    assert "two notebooks" in result.why
    monkeypatch.setattr(grading, "autograde", lambda *_: 1 / 0)
    result = grade(released(), ada, master, tmp_path)
    assert (result.status, result.why) == (grading.FAILED, "ZeroDivisionError: division by zero")


# ---- feedback


class Active(HTMLParser):
    """Collects what a browser would run or fetch."""

    def __init__(self, text):
        super().__init__()
        self.found, self.policy = [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        told = dict(attrs)
        if tag == "meta" and told.get("http-equiv") == "Content-Security-Policy":
            self.policy = told["content"]
        runs = tag in ("script", "iframe", "object", "embed", "svg", "link", "form", "marquee")
        runs |= any(name.startswith("on") for name in told)
        for name in ("src", "href"):
            value = (told.get(name) or "").strip().lower()
            runs |= value.startswith(("javascript:", "http:", "//", "data:text"))
        if runs:
            self.found.append((tag, told))


EVIL = "<script>alert(1)</script><img src='http://a.b/c.png' onerror='alert(2)'><svg onload=x>"


def test_opening_feedback_runs_and_fetches_nothing(ada, master, tmp_path):
    notebook = toy.solve(released())
    cell = toy.cell_of(notebook, "toy-largest")
    for mime in ("text/html", "image/svg+xml", "application/javascript", "text/markdown"):
        cell.outputs.append(new_output("display_data", data={mime: EVIL, "text/plain": EVIL}))
    cell.outputs.append(new_output("display_data", data={"image/png": f'"/>{EVIL}'}))
    cell.outputs.append(new_output("stream", text=EVIL))
    cell.outputs.append(new_output("error", ename=EVIL, evalue=EVIL, traceback=[EVIL]))
    cell.source += f"\n# {EVIL}"
    notebook.cells.append(new_markdown_cell(f"{EVIL}\n\n[x](javascript:alert(1))\n```\n{EVIL}"))
    page = grade(notebook, ada, master, tmp_path).page
    active = Active(page)
    assert active.found == []
    assert "default-src 'none'" in active.policy
    assert "data:image" not in page  # what is no picture
    assert page.count("alert(1)") >= 7  # it is there, as text
    assert "Ada &lt;b&gt;" in page


def test_feedback_shows_what_was_handed_in_within_bounds(ada, master, tmp_path):
    png = base64.b64encode(bytes(range(200))).decode()
    notebook = toy.solve(released())
    cell = toy.cell_of(notebook, "toy-largest")
    cell.outputs = [
        new_output("stream", text="as I saw it\n"),
        new_output("display_data", data={"image/png": png + "\n", "text/plain": "<Figure>"}),
        *(new_output("stream", text="long" * 25_000) for _ in range(3)),
    ]
    toy.cell_of(notebook, "toy-rows").outputs = {"output_type": "?"}
    path = ada / "toy.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    submission = Submission(ada.name, "toy", ada, path)
    page = grading.grade(submission, master, Settings(LIMITS, False, tmp_path)).page
    assert "as I saw it" in page
    assert png in page
    assert page.count("long") < 3 * feedback.LONGEST / 4 + 100
    assert page.count("the rest is left out") == 3
    assert ">A sheet for chapter 9<" in page  # the course's own Markdown is rendered


def test_all_outputs_together_are_bounded(monkeypatch):
    monkeypatch.setattr(feedback, "SHARE", 10)
    outputs, left = feedback._outputs([new_output("stream", text="123456")] * 3, feedback.SHARE)
    assert (len(outputs), left) == (1, 4)


def test_feedback_leaks_neither_hidden_tests_nor_answers(ada, master, tmp_path):
    notebook = toy.first(toy.solve(released(), rows=toy.WRONG["toy-rows"]), toy.PRINT)
    notebook.cells.append(new_code_cell("print(In)\nraise ValueError(str(In))"))
    notebook.cells.append(new_code_cell("raise type(str(In), (Exception,), {})()"))
    result = grade(notebook, ada, master, tmp_path)
    text = html.unescape(result.page)
    assert result.points == 3.0
    assert "stopped with ValueError" in text
    assert "stopped with an error" in text
    for secret in (toy.SECRET, toy.ANSWER, "HIDDEN TESTS", "answers.record({", answers.MIME):
        assert str(secret) not in text


# ---- the files of a class


def test_safe_names_are_distinct_and_every_system_takes_them():
    names = [
        "Ada",
        "Zoë 李",
        "a/b",
        "a:b",
        "con",
        "nul.txt",
        "..",
        ".",
        "=1+1",
        "x" * 300,
        "-",
        "a_b",
    ]
    made = [markbook.safe(name) for name in names]
    assert len({name.casefold() for name in made}) == len(names)
    assert made[0] == "Ada"
    assert made[-1] == "a_b"
    for name in made:
        assert not set(name) & set('<>:"/\\|?* \n')
        assert len(name) < 80
        assert not name.startswith(".")
        assert name.split(".")[0].casefold() not in ("con", "nul")


def result(student, status=grading.GRADED, points=2.0, **told):
    """A result of one exercise."""
    right = [
        {"exercise": "toy-twice", "points": points, "of": 2.0, "right": {"a": True, "b": False}}
    ]
    told = {"why": "", "of": 2.0, "seconds": 1.5, "exercises": right, "page": "<p>"} | told
    return Result(student, "toy", status, points=points, **told)


def rows(path):
    """A table as lists."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_nobody_can_be_called_what_a_name_was_made_into():
    made = markbook.safe("x y")
    assert markbook.safe(made) != made


def test_tables_and_summary(tmp_path):
    odd = "=cmd|'x'\n!A1"
    failed = Result("Bob", "toy", grading.FAILED, "toy.ipynb is empty")
    results = [result("Ada", points=1.0), result(odd, grading.LOOK, 0.0, why="-3 tests"), failed]
    markbook.write(tmp_path, results, ["loose.txt"], ["Graded in a sandbox."])
    assert rows(tmp_path / "marks.csv") == [
        ["student", "chapter", "status", "why", "points", "of", "seconds"],
        ["Ada", "toy", "graded", "", "1.0", "2.0", "1.5"],
        [f"'{odd}", "toy", "needs a look", "'-3 tests", "0.0", "2.0", "1.5"],
        ["Bob", "toy", "failed", "toy.ipynb is empty", "", "", ""],
    ]
    assert rows(tmp_path / "exercises.csv") == [
        ["student", "chapter", "exercise", "points", "of", "right_parts", "parts"],
        ["Ada", "toy", "toy-twice", "1.0", "2.0", "1", "2"],
        [f"'{odd}", "toy", "toy-twice", "0.0", "2.0", "1", "2"],
    ]
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    for line in (
        "| graded | 1 |",
        "| failed | 1 |",
        "| toy-twice | 25% | a: 2 of 2; b: 0 of 2 |",
        "- `=cmd|'x' !A1`, toy: -3 tests",
        "- `Bob`, toy: toy.ipynb is empty",
        "- `loose.txt`",
        "Graded in a sandbox.",
    ):
        assert line in text.splitlines()


def test_a_result_is_kept_until_the_files_change(tmp_path):
    one = result("Zoë", sha256=("a", "b"))
    assert markbook.kept(tmp_path, "Zoë", "toy", ("a", "b")) is None
    markbook.keep(tmp_path, one)
    back = markbook.kept(tmp_path, "Zoë", "toy", ("a", "b"))
    assert back == Result(**vars(one) | {"page": ""})
    assert markbook.kept(tmp_path, "Zoë", "toy", ("other", "b")) is None
    assert markbook.kept(tmp_path, "Zoë", "toy", ("a", "other")) is None
    assert [path.name for path in tmp_path.rglob("*") if path.name.endswith(".partial")] == []
    (tmp_path / "feedback" / "Zoë" / "toy.html").unlink()
    assert markbook.kept(tmp_path, "Zoë", "toy", ("a", "b")) is None
    markbook.keep(tmp_path, one)
    (tmp_path / "state" / "Zoë" / "toy.json").write_text('{"student": "Z', encoding="utf-8")
    assert markbook.kept(tmp_path, "Zoë", "toy", ("a", "b")) is None
    markbook.keep(tmp_path, one)
    markbook.keep(tmp_path, Result("Zoë", "toy", grading.FAILED, "hung", sha256=("a", "b")))
    assert markbook.kept(tmp_path, "Zoë", "toy", ("a", "b")) is None
    assert not (tmp_path / "feedback" / "Zoë" / "toy.html").exists()


# ---- the command


def command(*words):
    """Run the command in this process; its exit code."""
    parser = argparse.ArgumentParser()
    grade_command.add_arguments(parser)
    return grade_command.main(parser.parse_args([str(word) for word in words]))


@pytest.fixture
def two(ada):
    """A class of two, and a file that belongs to nobody."""
    toy.save(toy.solve(released()), ada)
    (ada.parent / "Bob").mkdir()
    toy.save(released(), ada.parent / "Bob")
    (ada.parent / "list.txt").write_text("Ada, Bob", encoding="utf-8")
    return ada.parent


def test_a_class_is_graded_and_resumed(two, source, tmp_path, capsys):
    out = tmp_path / "marks"
    before = {path: path.read_bytes() for path in two.rglob("*") if path.is_file()}
    words = (two, "--out", out, "--masters", source, "--unsafe", "--workers", 2)
    assert command(*words) == 0
    assert "2 graded, 0 needs a look, 0 failed" in capsys.readouterr().out
    table = {row[0]: row for row in rows(out / "marks.csv")}
    assert table["Ada <b>"][2:6] == ["graded", "", "6.0", "6.0"]
    assert table["Bob"][2:6] == ["graded", "", "0.0", "6.0"]
    assert (out / "feedback" / "Bob" / "toy.html").is_file()
    text = (out / "summary.md").read_text(encoding="utf-8")
    assert "- `list.txt`" in text
    assert "without a sandbox" in text

    assert command(*words) == 2
    assert "--resume" in capsys.readouterr().err
    toy.save(toy.solve(released()), two / "Bob")
    (out / "marks.csv").unlink()
    page = out / "feedback" / markbook.safe("Ada <b>") / "toy.html"
    page.write_text("from before", encoding="utf-8")
    assert command(*words, "--resume") == 0
    assert [row[4] for row in rows(out / "marks.csv")[1:]] == ["6.0", "6.0"]
    assert page.read_text(encoding="utf-8") == "from before"
    assert {path.name for path in out.iterdir()} == {
        *("marks.csv", "exercises.csv", "summary.md", "feedback", "state")
    }
    before[two / "Bob" / "toy.ipynb"] = (two / "Bob" / "toy.ipynb").read_bytes()
    assert before == {path: path.read_bytes() for path in two.rglob("*") if path.is_file()}


def usage(capsys, *words):
    """What a wrong command says."""
    assert command(*words) == 2
    said = capsys.readouterr().err.strip()
    assert len(said.splitlines()) == 1
    return said


def test_wrong_usage_is_told_with_the_remedy(two, source, tmp_path, capsys, monkeypatch):
    out, told = tmp_path / "marks", ("--masters", source, "--unsafe")
    assert "is no folder" in usage(capsys, tmp_path / "none", "--out", out, *told)
    assert "lies in" in usage(capsys, two, "--out", two / "marks", *told)
    assert "1 or more" in usage(capsys, two, "--out", out, "--workers", 0, *told)
    for seconds in ("nan", "inf", "0", "-1"):
        assert "above 0" in usage(capsys, two, "--out", out, "--cell-seconds", seconds, *told)
        assert "above 0" in usage(capsys, two, "--out", out, "--total-seconds", seconds, *told)
    (tmp_path / "no class").mkdir()
    assert "no folder of a student" in usage(capsys, tmp_path / "no class", "--out", out, *told)
    assert "no master" in usage(capsys, two, "--out", out, "--chapter", "play", *told)
    assert "no master" in usage(capsys, two, "--out", out, "--masters", two, "--unsafe")
    monkeypatch.setattr(sandbox, "refusal", lambda: None)
    for place in (two, source, out):
        monkeypatch.setattr(sandbox, "shows", lambda path, place=place: path == place)
        assert str(place) in usage(capsys, two, "--out", out, "--masters", source)
    monkeypatch.setattr(sandbox, "refusal", lambda: "No sandbox: apt install bubblewrap.")
    said = usage(capsys, two, "--out", out, "--masters", source)
    assert "apt install bubblewrap" in said
    assert "--unsafe" in said
    assert not out.exists()


def test_a_chapter_that_nobody_handed_in_is_no_failure_of_all(tmp_path):
    some = [
        Submission("Ada", "toy", tmp_path, tmp_path / "toy.ipynb"),
        Submission("Ada", "play", tmp_path),
        Submission("Bob", "toy", tmp_path),
    ]
    assert grade_command.handed_in(some) == [some[0], some[2]]
    assert grade_command.handed_in(some[1:]) == some[1:]


def dies(submission, master, settings):
    """In place of grading: workers that are killed, that hang, that fail, that work."""
    if submission.student == "dies":
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
    if submission.student == "hangs":
        time.sleep(600)
    if submission.student == "fails":
        raise LookupError("nothing there")
    return result(submission.student)


def test_a_worker_that_dies_or_hangs_fails_its_own_submission_only(tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "grade", dies)
    monkeypatch.setattr(grade_command, "OVERHEAD_S", 4)
    settings = Settings(sandbox.Limits(total_s=4), False, tmp_path)
    students = ["dies", "hangs", "fails", "works", "works too"]
    jobs = [(Submission(student, "toy", tmp_path), None, settings) for student in students]
    got = {students[job]: result for job, result in grade_command._run(jobs, 2)}
    assert "ended (exit code" in got["dies"].why
    assert "too long" in got["hangs"].why
    assert got["fails"].why == "LookupError: nothing there"
    assert {s for s, result in got.items() if result.status == grading.FAILED} == set(students[:3])


def test_a_result_is_known_by_all_that_it_depends_on(ada, master, tmp_path):
    toy.save(released(), ada)
    one = Submission("Ada <b>", "toy", ada, ada / "toy.ipynb")
    two = Submission("Ada <b>", "toy", ada, ada / "toy.ipynb", remarks=["two notebooks"])
    some = Settings(sandbox.Limits(cell_s=1), True, tmp_path)
    longer = Settings(sandbox.Limits(cell_s=60), True, tmp_path)
    unsafe = Settings(sandbox.Limits(cell_s=1), False, tmp_path)
    elsewhere = Settings(sandbox.Limits(cell_s=1), True, tmp_path / "other")
    keys = [grading.key(one, master, how) for how in (some, longer, unsafe)]
    keys += [grading.key(two, master, some)]
    assert len(set(keys)) == 4
    assert grading.key(one, master, elsewhere) == keys[0]
    toy.save(toy.solve(released()), ada)
    assert grading.key(one, master, some) != keys[0]


@pytest.mark.parametrize("name", ["keep", "write"])
def test_a_full_disk_is_told(two, source, tmp_path, monkeypatch, capsys, name):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(markbook, name, full)
    monkeypatch.setattr(grade_command, "_run", lambda jobs, workers: [(0, result("Ada"))])
    words = (two, "--out", tmp_path / "marks", "--masters", source, "--unsafe")
    assert command(*words) == 2
    assert "No space left" in (said := capsys.readouterr().err)
    assert "--resume" in said


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"] if os.name == "posix" else [])
def test_an_end_from_outside_is_an_interruption(two, source, tmp_path, monkeypatch, name):
    def ended(jobs, workers):
        os.kill(os.getpid(), getattr(signal, name))
        time.sleep(5)
        yield 0, result("Ada")

    before = signal.getsignal(getattr(signal, name))
    monkeypatch.setattr(grade_command, "_run", ended)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    try:
        words = (two, "--out", tmp_path / "marks", "--masters", source, "--unsafe")
        assert command(*words) == 130
    finally:
        signal.signal(getattr(signal, name), before)
    assert list(tmp_path.glob("grade-*")) == []


@pytest.mark.parametrize("name", ["SIGHUP"] if os.name == "posix" else [])
def test_what_nohup_has_ignored_stays_ignored(tmp_path, name):
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_IGN)
    try:
        assert command(tmp_path / "none", "--out", tmp_path / "marks") == 2
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_an_interruption_while_nbgrader_runs_is_one(source, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("nbgrader.converters.base.BaseConverter.convert_notebooks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        masters.prepare(source, "toy", tmp_path)


def test_an_interrupted_run_keeps_what_was_done(two, source, tmp_path, monkeypatch, capsys):
    def interrupted(jobs, workers):
        yield 0, grading.grade(*jobs[0])
        raise KeyboardInterrupt

    words = (two, "--out", tmp_path / "marks", "--masters", source, "--unsafe")
    with monkeypatch.context() as patch:
        patch.setattr(grade_command, "_run", interrupted)
        assert command(*words) == 130
    assert "--resume" in capsys.readouterr().err
    assert not (tmp_path / "marks" / "marks.csv").exists()
    seen = []

    def counted(jobs, workers):
        seen.extend(jobs)
        return ((number, grading.grade(*job)) for number, job in enumerate(jobs))

    monkeypatch.setattr(grade_command, "_run", counted)
    assert command(*words, "--resume") == 0
    assert [submission.student for submission, *_ in seen] == ["Bob"]
    assert len(rows(tmp_path / "marks" / "marks.csv")) == 3
