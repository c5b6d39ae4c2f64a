"""What the rows must satisfy is checked even where every checksum has been made to agree."""

import json
import random

import pytest
import sample_run
from sample_run import as_csv, cells

from labsupport import audit, jsontext, seal

FILES = ("raw.csv", "manifest.json", "summary.json")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The files of an intact run, name -> content."""
    return sample_run.contents(sample_run.write(tmp_path_factory.mktemp("runs") / "run"))


def sealed_anew(whole, name: str, data: bytes) -> list:
    """The problems of a run with one file changed and a new seal that vouches for it."""
    files = {**{n: whole[n] for n in FILES}, name: data}
    problems = audit.examine(files | {"seal.json": seal.make(files)})
    assert {p.file for p in problems} == {name}
    return problems


def places_of(problems: list) -> list[tuple]:
    return [(p.file, p.row, p.column) for p in problems]


def altered(whole, change) -> list:
    table = cells(whole["raw.csv"])
    change(table, {name: j for j, name in enumerate(table[0])})
    files = sample_run.forged(whole, as_csv(table))
    assert seal.check(files) == []
    return audit.examine(files)


def test_a_row_that_does_not_close_is_found(whole):
    def change(table, at):
        table[6][at["total_ns"]] = str(int(table[6][at["total_ns"]]) + 2)

    (problem,) = altered(whole, change)
    assert places_of([problem]) == [("raw.csv", 7, "total_ns")]
    assert "expected no difference, found 2" in problem.message


def test_a_negative_segment_is_found_though_its_row_closes(whole):
    def change(table, at):
        row = table[9]
        moved = int(row[at["copy_ns"]]) + 1
        row[at["copy_ns"]] = "-1"
        row[at["residual_ns"]] = str(int(row[at["residual_ns"]]) + moved)

    assert places_of(altered(whole, change)) == [("raw.csv", 10, "copy_ns")]


def test_outputs_that_disagree_are_found(whole):
    def change(table, at):
        table[35][at["agreed"]] = "False"

    assert places_of(altered(whole, change)) == [("raw.csv", 36, "agreed")]


def test_combinations_held_twice_and_never_are_found(whole):
    def change(table, at):
        table[20] = table[19][: at["error"]] + table[20][at["error"] :]

    twice, never = altered(whole, change)
    assert (twice.row, never.row) == (21, None)
    assert "stands in line 20 already" in twice.message
    assert "1 of 36 expected rows are missing" in never.message


def test_a_missing_row_and_an_unknown_level_are_found(whole):
    (problem,) = altered(whole, lambda table, at: table.pop(4))
    assert "1 of 36 expected rows are missing" in problem.message

    def change(table, at):
        table[4][at["round"]] = "77"

    assert ("raw.csv", 5, "round") in places_of(altered(whole, change))


@pytest.mark.parametrize("text", ["", "1.5", "1_000", "0x1f", "nan", "9" * 19, " 7", "\u0661"])
def test_a_cell_that_is_no_integer_is_found(whole, text):
    def change(table, at):
        table[2][at["copy_ns"]] = text

    assert places_of(altered(whole, change)) == [("raw.csv", 3, "copy_ns")]


@pytest.mark.parametrize("text", ["inf", "nan", "1_0.5", "1,5", "1e999"])
def test_a_cell_that_is_no_number_is_found(whole, text):
    def change(table, at):
        table[2][at["error"]] = text

    assert places_of(altered(whole, change)) == [("raw.csv", 3, "error")]


def test_columns_renamed_added_or_lost_are_found(whole):
    def rename(table, at):
        table[0][at["copy_ns"]] = "copied_ns"

    def add(table, at):
        for row in table:
            row.append("1")

    def lose(table, at):
        for row in table:
            row.pop(at["copy_ns"])

    for change, column in ((rename, "copy_ns"), (add, "1"), (lose, "copy_ns")):
        table = cells(whole["raw.csv"])
        change(table, {name: j for j, name in enumerate(table[0])})
        problems = audit.examine({**whole, "raw.csv": as_csv(table)})
        assert {p.file for p in problems} == {"raw.csv"}
        assert ("raw.csv", 1, column) in places_of(problems)


def test_a_summary_the_rows_do_not_give_is_found_under_any_seal(whole):
    summary = json.loads(whole["summary.json"])
    summary["rows"][1]["copy_ns"]["q3"] += 0.25
    (problem,) = sealed_anew(whole, "summary.json", jsontext.dump(summary))
    assert problem.column == "rows[1].copy_ns.q3"


def test_a_file_too_many_or_too_few_is_found_under_any_seal(whole):
    files = {**{n: whole[n] for n in FILES}, "more.txt": b"x"}
    (problem,) = audit.examine(files | {"seal.json": seal.make(files)})
    assert (problem.file, problem.message) == ("more.txt", "this file does not belong here")
    del files["more.txt"], files["summary.json"]
    (problem,) = audit.examine(files | {"seal.json": seal.make(files)})
    assert (problem.file, problem.message) == ("summary.json", "this file is missing")


def test_rows_sealed_anew_still_differ_from_their_manifest(whole):
    table = cells(whole["raw.csv"])
    table[3][table[0].index("note")] = "b"
    (problem,) = sealed_anew(whole, "raw.csv", as_csv(table))
    assert "SHA-256" in problem.message


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "walk"},
        {"schema": 2},
        {"columns": []},
        {"columns": {"x": []}},
        {"columns": {"seed": {"a": 1}}},
        {"factors": {}},
        {"factors": {"seed": [[1]]}},
        {"factors": {"seed": [1, 1]}},
        {"factors": {"nowhere": [1]}},
        {"repeats": ["nowhere"]},
        {"total": "error"},
        {"segments": [["x"]]},
        {"agreed": "note"},
        {"sources": 3},
        {"sources": ["a"]},
        {"sha256": None},
    ],
)
def test_a_manifest_made_by_hand_is_answered_with_the_entry(whole, changes):
    manifest = json.loads(whole["manifest.json"]) | changes
    first, *_ = sealed_anew(whole, "manifest.json", jsontext.dump(manifest))
    assert first.column.startswith(next(iter(changes)))


ODD = [None, True, 0, 1.5, "x", "\ud800", [], {}, ["a"], [["a"]], {"a": []}, 10**400]


def places_in(value, path=()):
    """The path of each value inside a JSON value, of lists and objects too."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield (*path, key)
        if isinstance(value[key], dict | list):
            yield from places_in(value[key], (*path, key))


def with_odd_value(value, path: tuple, odd):
    """The value with what stands at the path replaced."""
    value = json.loads(json.dumps(value))
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = odd
    return value


@pytest.mark.parametrize("name", ["manifest.json", "summary.json", "seal.json"])
def test_no_value_of_another_kind_makes_the_audit_fall_over(whole, name):
    """Under a seal that vouches for it, so that the audit gets as far as it can."""
    rng, value = random.Random(19), json.loads(whole[name])
    paths = list(places_in(value))
    outer = [path for path in paths if len(path) <= 2 and path[0] != "sources"]
    drawn = [(path, odd) for path in outer for odd in ODD] if name == "manifest.json" else []
    drawn += [(rng.choice(paths), rng.choice(ODD)) for _ in range(200)]
    for path, odd in drawn:
        files = {**whole, name: jsontext.dump(with_odd_value(value, path, odd))}
        if name == "seal.json":
            body = {key: x for key, x in json.loads(files[name]).items() if key != "seal"}
            sealed_again = jsontext.dump({**body, "seal": seal._digest(body)})
            audit.examine({**files, name: sealed_again})
        else:
            files["seal.json"] = seal.make({n: x for n, x in files.items() if n != "seal.json"})
        for problem in audit.examine(files):
            str(problem)
