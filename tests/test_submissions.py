"""What a class hands in: which notebook is whose, what cannot be read, and tests put back."""

import json
import os
from pathlib import Path

import nbformat
import pytest
import toy_exercises as toy
from nbgrader.preprocessors import ClearHiddenTests, ClearSolutions

from labsupport import restoring, submissions
from labsupport.restoring import grade_id, is_test, restore
from labsupport.submissions import Unreadable

CHAPTERS = {"toy": list(toy.EXERCISES), "play": ["play-first", "play-first-check"]}


def released():
    """The student version of the small master."""
    notebook, _ = ClearSolutions().preprocess(toy.master(), {})
    return ClearHiddenTests().preprocess(notebook, {})[0]


@pytest.fixture
def ada(tmp_path):
    """The folder of a student, in that of a class."""
    (tmp_path / "class" / "Ada").mkdir(parents=True)
    return tmp_path / "class" / "Ada"


def found(ada, chapter="toy"):
    """What is found of Ada's."""
    rows = submissions.find(ada.parent, CHAPTERS)[0]
    (one,) = [s for s in rows if (s.student, s.chapter) == (ada.name, chapter)]
    return one


# ---- find


def test_both_layouts_are_found_and_loose_files_told(ada):
    toy.save(released(), ada)
    other = ada.parent / "Émile  =1+1"
    for name in ("toy", ".ipynb_checkpoints"):
        (other / name).mkdir(parents=True)
        toy.save(released(), other / name)
    (ada.parent / "list.csv").write_text("Ada\n", encoding="utf-8")
    (ada.parent / ".git").mkdir()
    rows, ignored = submissions.find(ada.parent, CHAPTERS)
    paths = {(s.student, s.chapter): s.path for s in rows}
    assert paths == {
        ("Ada", "toy"): ada / "toy.ipynb",
        ("Ada", "play"): None,
        (other.name, "toy"): other / "toy" / "toy.ipynb",
        (other.name, "play"): None,
    }
    assert [s.remarks for s in rows] == [[]] * 4
    assert ignored == ["list.csv"]
    assert found(ada, "play").why == "no notebook of play"


def test_a_notebook_is_known_by_its_metadata_then_its_cells_then_its_name(ada):
    notebook = released()
    path = ada / "play.ipynb"
    nbformat.write(notebook, path)
    assert submissions.chapter_of(path, ada, CHAPTERS) == "toy"
    del notebook.metadata["price_of_remembering"]
    nbformat.write(notebook, path)
    assert submissions.chapter_of(path, ada, CHAPTERS) == "toy"
    for cell in notebook.cells:
        cell.metadata.clear()
    nbformat.write(notebook, path)
    assert submissions.chapter_of(path, ada, CHAPTERS) == "play"
    path.write_text("{", encoding="utf-8")
    assert submissions.chapter_of(path, ada, CHAPTERS) == "play"


def test_another_chapters_notebook_is_no_submission_of_this_one(ada):
    (ada / "play").mkdir()
    toy.save(released(), ada / "play", "play.ipynb")
    assert found(ada, "toy").path == ada / "play" / "play.ipynb"
    assert found(ada, "play").path is None
    unknown = released()
    unknown.metadata.price_of_remembering.chapter = "work"
    toy.save(unknown, ada, "play.ipynb")
    rows, ignored = submissions.find(ada.parent, {"play": CHAPTERS["play"]})
    assert ignored == ["Ada/play.ipynb", "Ada/play/play.ipynb"]
    assert rows[0].why == "no notebook of play; not told apart: play.ipynb, play/play.ipynb"


def test_of_two_notebooks_the_one_with_the_name_is_graded(ada):
    toy.save(released(), ada, "toy-Copy1.ipynb")
    assert found(ada).path == ada / "toy-Copy1.ipynb"
    assert found(ada).remarks == []
    toy.save(released(), ada)
    assert found(ada).path == ada / "toy.ipynb"
    assert "two notebooks" in found(ada).remarks[0]
    (ada / "toy.ipynb").rename(ada / "again.ipynb")
    assert found(ada).path is None
    assert "none is called toy.ipynb" in found(ada).why


# ---- read

BROKEN = {
    "": "is empty",
    "{": "JSON",
    "[" * 100_000: "nested too deeply",
    "[1, 2]": "no notebook",
    '{"cells": 3, "nbformat": 4}': "no list of cells",
    '{"cells": [], "nbformat": 3}': "version 4",
    '{"cells": [], "nbformat": [4]}': "version 4",
    "\x00\x01": "JSON",
}


@pytest.mark.parametrize("content", BROKEN, ids=BROKEN.values())
def test_what_is_no_notebook_is_refused_with_words(ada, content):
    (ada / "toy.ipynb").write_text(content, encoding="utf-8")
    with pytest.raises(Unreadable, match=BROKEN[content]):
        submissions.read(ada / "toy.ipynb", ada)


def test_bytes_that_are_no_text_are_refused(ada):
    (ada / "toy.ipynb").write_bytes(b'{"a": "\xff\xfe"}')
    with pytest.raises(Unreadable, match="JSON"):
        submissions.read(ada / "toy.ipynb", ada)


def test_a_file_too_large_is_not_read(ada, monkeypatch):
    toy.save(released(), ada)
    monkeypatch.setattr(submissions, "LARGEST", 1000)
    with pytest.raises(Unreadable, match="MB"):
        submissions.digest(ada / "toy.ipynb", ada)


def test_a_folder_or_a_pipe_named_like_a_notebook_is_refused(ada):
    (ada / "toy.ipynb").mkdir()
    assert "is no file" in refused(ada / "toy.ipynb", ada)
    if hasattr(os, "mkfifo"):
        os.mkfifo(ada / "play.ipynb")
        assert "is no file" in refused(ada / "play.ipynb", ada)


def refused(path, folder):
    """The words with which a file is refused."""
    with pytest.raises(Unreadable) as error:
        submissions.read(path, folder)
    return str(error.value)


def test_what_macos_lays_beside_a_notebook_is_none(ada):
    folder = ada / "toy"
    folder.mkdir()
    toy.save(released(), folder, "mine.ipynb")
    (folder / "._mine.ipynb").write_bytes(b"\0\5\26\7")
    assert found(ada).path == folder / "mine.ipynb"
    assert found(ada).remarks == []


def test_a_folder_that_cannot_be_opened_fails_its_student_only(ada, monkeypatch):
    toy.save(released(), ada)
    (ada.parent / "Bob" / "toy").mkdir(parents=True)
    iterdir = Path.iterdir

    def locked(path):
        if path.parent.name == "Bob":
            raise PermissionError(13, "Permission denied", str(path))
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", locked)
    rows, _ = submissions.find(ada.parent, {"toy": []})
    assert [(row.student, row.path is None) for row in rows] == [("Ada", False), ("Bob", True)]
    assert "cannot be opened" in rows[1].why


def test_a_link_may_stay_in_the_students_folder_but_not_lead_out(ada):
    other = ada.parent / "Bob"
    other.mkdir()
    toy.save(released(), other)
    (ada / "toy.ipynb").symlink_to(other / "toy.ipynb")
    assert "leads out" in refused(ada / "toy.ipynb", ada)
    assert found(ada).path == ada / "toy.ipynb"  # a row of its own says so

    toy.save(released(), ada, "mine.ipynb")
    (ada / "latest.ipynb").symlink_to(ada / "mine.ipynb")
    assert submissions.read(ada / "latest.ipynb", ada).cells
    (ada / "play.ipynb").symlink_to(ada / "play.ipynb")
    assert refused(ada / "play.ipynb", ada)


def test_what_is_not_well_formed_is_left_out(ada):
    told = json.loads(nbformat.writes(released()))
    cells = told["cells"]
    cells[0]["metadata"] = ["nbgrader"]
    cells[1]["metadata"] = {"nbgrader": {"grade_id": ["toy-rows"], "points": "many"}}
    cells[2]["source"] = {"a": 1}
    cells[3]["id"] = {"x": "y" * 10_000}
    cells[4]["id"] = cells[5]["id"] = "same"
    cells[4]["outputs"] = {"output_type": "none"}
    told["cells"] = [3, None, {"cell_type": ["code"]}, {"cell_type": "widget"}, *cells]
    told["metadata"] = {"price_of_remembering": {"chapter": {}, "version": "x"}, "kernelspec": 3}
    (ada / "toy.ipynb").write_text(json.dumps(told), encoding="utf-8")
    notebook = submissions.read(ada / "toy.ipynb", ada)
    assert len(notebook.cells) == len(cells) == len({cell.id for cell in notebook.cells})
    nbformat.validate(notebook)  # which would mend ids
    assert [cell.metadata for cell in notebook.cells[:2]] == [{}, {}]
    assert notebook.cells[2].source == ""
    assert notebook.metadata.version is None
    assert submissions.chapter_of(ada / "toy.ipynb", ada, CHAPTERS) == "toy"


def test_half_a_surrogate_pair_can_be_written(ada):
    notebook = json.loads(nbformat.writes(released()))
    notebook["cells"][1]["source"] = ["x = '\ud800'\n", "y = 2"]
    (ada / "toy.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    source = submissions.read(ada / "toy.ipynb", ada).cells[1].source
    assert source == "x = '?'\ny = 2"


# ---- restore


def handed(ada, change=lambda notebook: None):
    """Ada's notebook, solved and changed, as it is read."""
    notebook = toy.solve(released())
    change(notebook)
    toy.save(notebook, ada)
    return submissions.read(ada / "toy.ipynb", ada)


def restored(ada, change=lambda notebook: None):
    """Ada's notebook as it will run."""
    done = restore(handed(ada, change), toy.master(), released())
    assert len({cell.id for cell in done.notebook.cells}) == len(done.notebook.cells)
    nbformat.validate(done.notebook)  # which would mend ids
    return done


def names(done):
    """The grade_ids of what runs, in order; None for other code."""
    return [grade_id(cell) for cell in done.notebook.cells if cell.cell_type == "code"]


ORDER = [None, *(name + end for name in toy.EXERCISES for end in ("", "-check"))]


def assert_whole(done, order=ORDER):
    """The master's tests, once each, with its points, and the student's solutions."""
    assert names(done) == order
    for cell in toy.master().cells:
        if is_test(cell):
            (kept,) = [c for c in done.notebook.cells if grade_id(c) == grade_id(cell)]
            assert kept.source == cell.source
            assert kept.metadata.nbgrader == cell.metadata.nbgrader
            assert kept.cell_type == "code"
    for name, source in toy.RIGHT.items():
        assert toy.cell_of(done.notebook, name).source == source


def at(notebook, name):
    """Where a cell is."""
    return notebook.cells.index(toy.cell_of(notebook, name))


def test_an_untouched_notebook_needs_no_repair(ada):
    done = restored(ada)
    assert_whole(done)
    assert (done.looks, done.remarks) == ([], [])
    assert done.notebook.metadata.kernelspec.name == "python3"


def test_trailing_spaces_are_no_change(ada):
    def change(notebook):
        toy.cell_of(notebook, "toy-rows-check").source += "  \n"

    assert restored(ada, change).looks == []


def test_edited_tests_are_the_masters_again(ada):
    def change(notebook):
        toy.cell_of(notebook, "toy-rows-check").source = "assert True"

    done = restored(ada, change)
    assert_whole(done)
    assert done.looks == ["the test toy-rows-check was changed: the released one was run"]


def test_a_test_turned_into_text_is_code_again(ada):
    def change(notebook):
        cell = toy.cell_of(notebook, "toy-rows-check")
        cell.cell_type = "markdown"
        del cell["outputs"], cell["execution_count"]

    done = restored(ada, change)
    assert_whole(done)
    assert "was changed" in done.looks[0]


def test_deleted_tests_stand_behind_their_solutions_again(ada):
    def change(notebook):
        notebook.cells = [cell for cell in notebook.cells if not is_test(cell)]

    done = restored(ada, change)
    assert_whole(done)
    assert len(done.looks) == 3
    assert "put back" in done.looks[0]


def test_a_deleted_exercise_gets_its_test_and_a_word(ada):
    def change(notebook):
        gone = at(notebook, "toy-rows")
        del notebook.cells[gone : gone + 2]

    done = restored(ada, change)
    assert names(done) == [name for name in ORDER if name != "toy-rows"]
    assert done.looks == ["the exercise toy-rows is not in it"]


def test_tests_of_a_notebook_with_nothing_else_come_last(ada):
    def change(notebook):
        notebook.cells = [nbformat.v4.new_code_cell("largest = 41")]

    done = restored(ada, change)
    assert names(done) == [None, *(f"{name}-check" for name in toy.EXERCISES)]


def test_a_copy_of_a_test_does_not_run(ada):
    def change(notebook):
        copy = nbformat.from_dict(toy.cell_of(notebook, "toy-twice-check"))
        copy.id, copy.source = "copy", "print('mine')"
        notebook.cells.append(copy)

    done = restored(ada, change)
    assert_whole(done)
    assert done.notebook.cells[-1].cell_type == "raw"
    assert "twice" in done.looks[0]


def test_a_test_in_front_of_its_exercise_moves_behind_it(ada):
    def change(notebook):
        for name in toy.EXERCISES:
            cell = notebook.cells.pop(at(notebook, f"{name}-check"))
            notebook.cells.insert(1, cell)

    done = restored(ada, change)
    assert_whole(done)
    assert len(done.looks) == 3


def test_points_and_other_marks_of_nbgrader_are_the_masters(ada):
    def change(notebook):
        told = toy.cell_of(notebook, "toy-rows-check").metadata.nbgrader
        told.points, told.grade, told.solution = 1000, False, True
        toy.cell_of(notebook, "toy-rows").metadata.nbgrader |= {"grade": True, "points": 50}

    done = restored(ada, change)
    assert_whole(done)
    assert done.looks == [
        "the points of the test toy-rows-check were changed, which changes nothing"
    ]
    assert toy.cell_of(done.notebook, "toy-rows").metadata.nbgrader.grade is False


@pytest.mark.parametrize("ids", [True, False], ids=["cell ids kept", "cell ids lost"])
def test_stripped_metadata_is_put_back(ada, ids):
    def change(notebook):
        for number, cell in enumerate(notebook.cells):
            cell.metadata.clear()
            if not ids:
                cell.id = f"n{number}"

    handed_in = handed(ada, change)
    done = restore(handed_in, toy.master(), released())
    assert done.looks == []
    assert [name for name in names(done) if name and name.endswith("-check")] == ORDER[2::2]
    assert len(done.remarks) == (6 if ids else 3 + 3)
    assert all("lost its name" in remark for remark in done.remarks)
    if ids:
        assert_whole(done)


def test_ids_stay_distinct_where_a_cell_has_that_of_a_missing_test(ada):
    def change(notebook):
        toy.cell_of(notebook, "toy-rows-check").metadata.nbgrader.grade_id = "toy-twice-check"
        del notebook.cells[at(notebook, "toy-twice-check")]  # the first, so the second is taken

    done = restored(ada, change)
    assert names(done)[1:3] == ["toy-twice", "toy-rows"]
    assert sorted(filter(None, names(done))) == sorted(ORDER[1:])


def test_own_cells_stay_in_their_places(ada):
    def change(notebook):
        notebook.cells.insert(
            at(notebook, "toy-rows-check"), nbformat.v4.new_code_cell("helper = 1")
        )
        notebook.cells.append(nbformat.v4.new_markdown_cell("my notes"))

    done = restored(ada, change)
    here = ORDER.index("toy-rows-check")
    assert_whole(done, [*ORDER[:here], None, *ORDER[here:]])
    assert done.notebook.cells[-1].source == "my notes"
    assert done.looks == []


def test_an_older_version_is_told(ada):
    def change(notebook):
        notebook.metadata.price_of_remembering.version = 1

    assert restored(ada, change).looks == ["this is version 1; the master is 2"]


def test_a_master_whose_cells_have_any_ids_serves_as_well(ada):
    master, student = toy.master(), released()
    for number, pair in enumerate(zip(master.cells, student.cells, strict=True)):
        for cell in pair:
            cell.id = f"id-{number}"
    handed_in = handed(ada, lambda notebook: None)  # which has others
    done = restore(handed_in, master, student)
    assert_whole(done)
    assert done.looks == []
    handed_in.cells = [cell for cell in handed_in.cells if "check" not in cell.id]
    done = restore(handed_in, master, student)
    assert_whole(done)
    assert "toy-twice-check" in done.looks[0]
    assert restoring.TESTS == "-check"
