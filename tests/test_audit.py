"""The audit finds whatever changed in recorded evidence, and says where."""

import json
import random

import pytest
import sample_run
from sample_run import as_csv, cells

from labsupport import audit, evidence, jsontext, seal

FILES = ("raw.csv", "manifest.json", "summary.json", "seal.json")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The files of an intact run, name -> content."""
    return sample_run.contents(sample_run.write(tmp_path_factory.mktemp("runs") / "run"))


def found_in(files: dict, name: str) -> list:
    """The problems of damaged files, after checking that they name `name` and no other file."""
    problems = audit.examine(files)
    assert {p.file for p in problems} == {name}
    return problems


def another(value, rng: random.Random):
    """Another plausible value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice([-1, 1, 10, 1000])
    if isinstance(value, float):
        return value * (1 + rng.choice([1e-12, -1e-3, 1.0])) or 0.5
    if value is None:
        return 0
    if isinstance(value, list | dict):  # only empty ones stand as values
        return {} if isinstance(value, list) else []
    at = rng.randrange(len(value)) if value else 0
    letters = "0123456789abcdef" if value[at : at + 1].isdigit() else "aeinrstx"
    return value[:at] + rng.choice(letters.replace(value[at : at + 1] or " ", "")) + value[at + 1 :]


def another_cell(text: str, rng: random.Random) -> str:
    if text in ("True", "False"):
        return {"True": "False", "False": "True"}[text]
    if text in sample_run.PATHS:
        return rng.choice([path for path in sample_run.PATHS if path != text])
    for kind in (int, float):
        try:
            return str(another(kind(text), rng))
        except ValueError:
            pass
    return another(text, rng)


def slots(value):
    """(container, key) of each value inside a JSON value, in the order of `jsontext.leaves`."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        if isinstance(value[key], dict | list) and value[key]:
            yield from slots(value[key])
        else:
            yield value, key


def fields(files: dict) -> list[tuple]:
    """Every field of all four files: (file, line, column) or (file, None, JSON path)."""
    header, *rows = cells(files["raw.csv"])
    places = [("raw.csv", 1, name) for name in header]
    places += [("raw.csv", i, name) for i in range(2, len(rows) + 2) for name in header]
    for name in FILES[1:]:
        places += [(name, None, path) for path, _ in jsontext.leaves(json.loads(files[name]))]
    return places


def with_another_value(files: dict, place: tuple, rng: random.Random) -> dict:
    name, line, column = place
    if line is None:
        value = json.loads(files[name])
        paths = [path for path, _ in jsontext.leaves(value)]
        container, key = list(slots(value))[paths.index(column)]
        container[key] = another(container[key], rng)
        return {**files, name: jsontext.dump(value)}
    table = cells(files[name])
    j = table[0].index(column)
    table[line - 1][j] = another_cell(table[line - 1][j], rng)
    return {**files, name: as_csv(table)}


def test_an_untouched_run_has_no_problem(whole):
    assert audit.examine(whole) == []


def test_any_single_changed_value_is_found_and_placed(whole):
    rng, places = random.Random(11), fields(whole)
    assert as_csv(cells(whole["raw.csv"])) == whole["raw.csv"]  # only the mutation changes bytes
    drawn = [rng.choice(places) for _ in range(2000)]
    assert {name for name, _, _ in drawn} == set(FILES)
    for place in drawn:
        damaged = with_another_value(whole, place, rng)
        problems = found_in(damaged, place[0])
        assert place in [(p.file, p.row, p.column) for p in problems], place


def test_a_time_a_level_and_a_truth_are_given_back(whole):
    rng, table = random.Random(3), cells(whole["raw.csv"])
    for column in ("total_ns", *sample_run.SEGMENTS, *sample_run.FACTORS, "agreed"):
        line = rng.randrange(2, len(table) + 1)
        was = table[line - 1][table[0].index(column)]
        problems = found_in(with_another_value(whole, ("raw.csv", line, column), rng), "raw.csv")
        placed = next(p for p in problems if (p.row, p.column) == (line, column))
        assert placed.message.endswith(f'expected "{was}"')


def test_any_flipped_byte_is_found_in_its_file(whole):
    rng = random.Random(5)
    for name in FILES * 250:
        data = bytearray(whole[name])
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)
        problems = found_in({**whole, name: bytes(data)}, name)
        if name == "raw.csv":
            line = whole[name][:at].count(b"\n") + 1
            assert {line, line + (whole[name][at : at + 1] == b"\n")} & {p.row for p in problems}


def test_any_renamed_entry_of_a_json_file_is_found(whole):
    for name in FILES[1:]:
        text = whole[name].decode()
        for at in [i for i in range(len(text)) if text.startswith('":', i)]:
            found_in({**whole, name: (text[:at] + "s" + text[at:]).encode()}, name)


def test_an_entry_renamed_or_two_values_swapped_are_placed(whole):
    manifest = json.loads(whole["manifest.json"])
    renamed = {("warned" if key == "warmed" else key): x for key, x in manifest.items()}
    (problem,) = found_in({**whole, "manifest.json": jsontext.dump(renamed)}, "manifest.json")
    assert problem.column == "warned"
    swapped = {**manifest, "warmed": manifest["excluded"], "excluded": manifest["warmed"]}
    problems = found_in({**whole, "manifest.json": jsontext.dump(swapped)}, "manifest.json")
    assert [p.column for p in problems] == ["warmed", "excluded"]


def test_values_written_in_another_way_are_called_so(whole):
    rewritten = {name: json.dumps(json.loads(whole[name])).encode() for name in FILES[1:]}
    rewritten["raw.csv"] = whole["raw.csv"].replace(b"full", b'"full"', 1)
    for name, data in rewritten.items():
        (problem,) = found_in({**whole, name: data}, name)
        assert problem.message.startswith("every value reads as it was sealed")
    ordered = jsontext.dump(dict(sorted(json.loads(whole["manifest.json"]).items())))
    (problem,) = found_in({**whole, "manifest.json": ordered}, "manifest.json")
    assert problem.message.startswith("every value reads as it was sealed")


@pytest.mark.parametrize(
    ("data", "line", "word"),
    [
        (b'{"a": 1,\n "a": 1}', None, 'the name "a" stands twice'),
        (b'{"a":\n NaN}', None, "NaN is not a JSON value"),
        (b'{"a": 1,\n\n b}', 3, "property name"),
        (b'{"a":\n "\xff"}', 2, "not UTF-8"),
        (b"[" * 102 + b"]" * 102, None, "more than 100 lists and objects"),
    ],
)
def test_json_that_cannot_be_read_is_answered_with_the_line(whole, data, line, word):
    (problem,) = found_in({**whole, "summary.json": data}, "summary.json")
    assert problem.row == line
    assert word in problem.message


def lines_of(problems: list) -> set[int]:
    return {p.row for p in problems}


def test_rows_removed_doubled_swapped_or_moved_are_named(whole):
    rng = random.Random(13)
    header, *rows = whole["raw.csv"].splitlines(keepends=True)

    def with_rows(new: list[bytes]) -> list:
        return found_in({**whole, "raw.csv": header + b"".join(new)}, "raw.csv")

    for _ in range(60):
        i, j = sorted(rng.sample(range(len(rows)), 2))
        assert i + 2 in lines_of(with_rows(rows[:i] + rows[i + 1 :]))
        assert j + 2 in lines_of(with_rows([*rows[:j], rows[i], *rows[j:]]))
        invented = rows[j].replace(b",", b",1", 1)
        assert j + 2 in lines_of(with_rows([*rows[:j], invented, *rows[j:]]))
        swapped = list(rows)
        swapped[i], swapped[j] = rows[j], rows[i]
        assert {i + 2, j + 2} <= lines_of(with_rows(swapped))
        assert f"lines {i + 2} and {j + 2} have changed" in with_rows(swapped)[0].message
        moved = rows[:i] + rows[i + 1 : j + 1] + [rows[i]] + rows[j + 1 :]
        assert {i + 2, j + 2} <= lines_of(with_rows(moved))
    for i, j in [(0, 1), (20, 3), (34, 35), (35, 34)]:  # one row replaced by a copy of another
        copied = list(rows)
        copied[i] = rows[j]
        first, *_ = with_rows(copied)
        assert first.row == i + 2
        assert first.column  # not a line that went and another that came


def test_a_file_cut_short_anywhere_is_found(whole):
    for name in FILES:
        for length in range(0, len(whole[name]), 17):
            found_in({**whole, name: whole[name][:length]}, name)
    cut = whole["raw.csv"][: whole["raw.csv"].index(b"\n", 800) + 1]
    (problem, *_) = found_in({**whole, "raw.csv": cut}, "raw.csv")
    assert problem.row == cut.count(b"\n") + 1
    assert "ends too early: it was sealed with 37 lines" in problem.message


def test_conversions_by_editors_are_called_so(whole):
    crlf, bom = whole["raw.csv"].replace(b"\n", b"\r\n"), b"\xef\xbb\xbf"
    for data, word in [
        (crlf, "CRLF"),
        (bom + whole["raw.csv"], "BOM"),
        (bom + crlf, "BOM"),
        (whole["raw.csv"][:-1], "last line end"),
        (whole["raw.csv"] + b"\n", "empty line"),
    ]:
        (first, *_) = found_in({**whole, "raw.csv": data}, "raw.csv")
        assert "no value changed" in first.message
        assert word in first.message


@pytest.mark.parametrize("name", FILES)
def test_missing_and_foreign_files_are_named(whole, name):
    without = {n: data for n, data in whole.items() if n != name}
    assert "missing" in found_in(without, name)[0].message
    assert "does not belong" in found_in({**whole, "b.csv": b"1\n"}, "b.csv")[0].message


GARBAGE = [b"", b"\n", b"\0\xff\xfe", b"[" * 100_000, b"{}", b"[]", b"null", b"1", b'{"a": NaN}']
GARBAGE += [
    b'{"files": {"raw.csv": 5}}',
    b'{"a": 1, "a": 1}',
    b'"' * 7,
    b"a,b\r\n1\r,2\n",
    b"9" * 9999,
    b"[" * 500 + b"]" * 500,
    b'{"a": "\\ud800", "b": 1e999}',
]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_no_content_makes_the_audit_fall_over(whole, name, garbage):
    files = {**whole, name: garbage}
    named = {p.file for p in audit.examine(files)}
    assert name in named
    assert named == {name} or name == "seal.json"  # such a seal may accuse others as well
    if name != "seal.json":  # the same content under a seal that vouches for it
        others = {n: data for n, data in files.items() if n != "seal.json"}
        try:
            files["seal.json"] = seal.make(others)
        except ValueError:
            return
        assert audit.examine(files)


def test_two_damaged_files_are_both_named(whole):
    rng, places = random.Random(17), fields(whole)
    for _ in range(300):
        a, b = rng.choice(places), rng.choice(places)
        if a[0] != b[0]:
            damaged = with_another_value(with_another_value(whole, a, rng), b, rng)
            assert {a[0], b[0]} <= {p.file for p in audit.examine(damaged)}


def test_a_header_that_is_not_utf8_is_answered_under_a_seal_that_vouches_for_it(whole):
    others = {n: x for n, x in whole.items() if n != "seal.json"}
    others["raw.csv"] = whole["raw.csv"].replace(b"agreed", b"agr\xff", 1)
    problems = audit.examine(others | {"seal.json": seal.make(others)})
    assert {p.file for p in problems} == {"raw.csv"}
    assert any(p.row == 1 for p in problems)


# --- on disk ------------------------------------------------------------------------------------


def test_a_directory_is_audited_with_what_lies_below_it(tmp_path):
    run = sample_run.write(tmp_path / "run")
    assert evidence.audit(run) == audit.Audit(audit.INTACT, [], [])
    (run / ".DS_Store").write_bytes(b"of the Finder, no one's doing")
    assert evidence.audit(run).status == audit.INTACT
    (run / "sub").mkdir()
    (run / "sub" / "more.txt").write_text("x", encoding="utf-8")
    answer = evidence.audit(run)
    assert (answer.status, [(p.file, p.row, p.column) for p in answer.problems]) == (
        audit.FAILED,
        [("sub/more.txt", None, None)],
    )
    with pytest.raises(FileNotFoundError, match="not a directory"):
        evidence.audit(tmp_path / "nowhere")
