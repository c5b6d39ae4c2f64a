"""Where files differ: lines, rows and columns, named as a reader finds them in an editor.

A row is named by its line in the file; a CSV file's header is line 1.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

NOTHING = object()  # stands for a value that is not there

CHANGED = "found {}, which is not what was sealed (its checksum differs)"
REFORMATTED = (
    "every value reads as it was sealed, but the text around it (spaces, quotes, order) changed"
)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: the file, the line, the column or JSON path, and words."""

    file: str
    row: int | None  # line in the file, from 1
    column: str | None  # CSV column or JSON path
    message: str

    def __str__(self) -> str:
        parts = [self.file, self.row, self.column]
        return ":".join(str(part) for part in parts if part is not None) + ": " + self.message


def show(value) -> str:
    """A value in printable ASCII, cut short when long."""
    text = "nothing" if value is NOTHING else json.dumps(value)
    return text if len(text) <= 70 else text[:67] + "..."


def parse_csv(data: bytes) -> tuple[list[str], list[bytes], list[list[str]]]:
    """Header, the rows as raw lines, and the rows as cells. Reads anything; raises nothing."""
    header, *lines = data.removesuffix(b"\n").split(b"\n")
    return _cells(header), lines, [_cells(line) for line in lines]


def _cells(line: bytes) -> list[str]:
    text = line.decode("utf-8", "surrogateescape")
    try:
        return next(csv.reader([text]), [])
    except csv.Error:
        return [text]


def csv_line(cells: list[str]) -> bytes:
    """A row as it stands in a CSV file, without the line end."""
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(cells)
    return out.getvalue().encode("utf-8", "surrogateescape")


def conversion(data: bytes, is_sealed: Callable[[bytes], bool]) -> str | None:
    """Words for a harmless conversion by another program, if undoing one restores the file."""
    bom, lf = b"\xef\xbb\xbf", data.replace(b"\r\n", b"\n")
    undone = {
        "its line ends were turned into Windows' (CRLF)": lf,
        "an editor put a byte order mark (BOM) in front of it": data.removeprefix(bom),
        "an editor put a byte order mark (BOM) in front of it and CRLF at its line ends": (
            lf.removeprefix(bom)
        ),
        "its last line end is missing": data + b"\n",
        "an empty line was added at its end": data.removesuffix(b"\n"),
    }
    for words, original in undone.items():
        if original != data and is_sealed(original):
            return f"no value changed, but {words}; some editor or git setting rewrote the file"
    return None


def line_changes(
    name: str,
    old: list[str],
    new: list[str],
    first: int,
    explain: Callable[[int, bool], list[Problem]] | None = None,
) -> list[Problem]:
    """Which lines changed, went, came or moved, from the marks of the old and the new lines.

    `first` is the line number of the first mark. `explain(i, alone)` gives the problems of the
    changed line at index i; `alone` says that no other line changed.
    """
    moved = [i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b]
    if moved and Counter(old) == Counter(new):
        a, b = moved[0] + first, moved[-1] + first
        said = f"lines {a} and {b} have changed places"
        if len(moved) > 2:
            said = f"{len(moved)} lines from {a} to {b} stand in another order than was sealed"
        return [Problem(name, line, None, said) for line in (a, b)]

    pairs, problems = pair(old, new), []
    cut_short = (len(old) - 1, None) in pairs
    at = {mark: j for j, mark in reversed(list(enumerate(new)))}  # first place of each mark
    for i, j in pairs:
        if i is None:
            said = "this line was added after sealing"
            said += f"; it is a copy of line {at[new[j]] + first}" if at[new[j]] != j else ""
            problems.append(Problem(name, j + first, None, said))
        elif j is None:
            said = "the line that stood here when the run was sealed is gone"
            if cut_short and i >= len(new):
                said = f"the file ends too early: it was sealed with {len(old) - 1 + first} lines"
                return [*problems, Problem(name, i + first, None, said)]
            problems.append(Problem(name, i + first, None, said))
        elif explain:
            problems += explain(j, len(pairs) == 1)
        else:
            problems.append(Problem(name, j + first, None, "this line was changed after sealing"))
    return problems


def pair(old: list[str], new: list[str]) -> list[tuple[int | None, int | None]]:
    """The differing lines as (old index, new index), None for a line without a partner."""
    in_place = [(i, i) for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b]
    if len(old) == len(new) and len(in_place) == 1:
        return in_place  # even where the changed line became a copy of its neighbour
    aligned = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            aligned += zip_longest(range(i1, i2), range(j1, j2))
    return aligned


def header_changes(name: str, old: list[str], new: list[str]) -> list[Problem]:
    """Columns that were renamed, moved, added or removed, by the first line of a CSV file."""
    if len(old) == len(new):
        return [
            Problem(name, 1, a, f"the column at place {j} was {show(a)} and is now {show(b)}")
            for j, (a, b) in enumerate(zip(old, new, strict=True), start=1)
            if a != b
        ]
    gone, come = [c for c in old if c not in new], [c for c in new if c not in old]
    said = f"the header names {len(new)} columns where {len(old)} were sealed"
    return (
        [Problem(name, 1, c, f"{said}; this one is missing") for c in gone]
        + [Problem(name, 1, c, f"{said}; this one was not there") for c in come]
    ) or [Problem(name, 1, None, said)]


def cell_changes(
    name: str, header: list[str], cells: list[list[str]], disturbed: list[int]
) -> Callable[[int, bool], list[Problem]]:
    """For `line_changes`: which cells of a changed row changed, from the disturbed columns."""
    several = ", ".join(header[j] for j in disturbed)

    def explain(i: int, alone: bool) -> list[Problem]:
        line, row = i + 2, cells[i]
        if len(row) != len(header):
            said = f"this row has {len(row)} values where the header names {len(header)} columns"
            return [Problem(name, line, None, said)]
        if not disturbed:
            return [Problem(name, line, None, REFORMATTED)]
        if not alone and len(disturbed) > 1:
            said = f"this row was changed after sealing, in one or more of: {several}"
            return [Problem(name, line, None, said)]
        return [Problem(name, line, header[j], CHANGED.format(show(row[j]))) for j in disturbed]

    return explain
