"""raw.csv: rows written and read exactly, each column of one kind.

Rows are held as columns: name -> list of values in the order measured, None where a cell is empty
or unreadable.
"""

import math
import re

from labsupport import places
from labsupport.places import Problem, show

RAW = "raw.csv"
KINDS = {"integer": "int64", "number": "float64", "true/false": "bool", "text": "str"}  # and dtype

Columns = dict[str, list]

_BY_DTYPE = {"b": "true/false", "i": "integer", "u": "integer", "f": "number"}
_WORDS = {"integer": "a whole number", "number": "a number", "true/false": "True or False"}
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")


def write(rows) -> tuple[dict[str, str], bytes]:
    """The kind of each column of a DataFrame, and the file: UTF-8, LF, no index.

    Integers stay integers; a float is written as the shortest text that gives it back as float64,
    so narrower floats become float64 first, which changes no value. Raises ValueError for columns
    without a name of their own or of no recordable kind.
    """
    rows = rows.infer_objects()
    if not rows.columns.is_unique or not all(isinstance(name, str) for name in rows.columns):
        raise ValueError(f"Columns need names that are texts and differ: {list(rows.columns)}.")
    kinds = {name: _kind(rows[name]) for name in rows.columns}
    rows = rows.astype({name: "float64" for name, kind in kinds.items() if kind == "number"})
    return kinds, rows.to_csv(index=False, lineterminator="\n").encode("utf-8")


def _kind(column) -> str:
    if column.dtype.kind in _BY_DTYPE and column.dtype.itemsize <= 8:  # no text for long doubles
        return _BY_DTYPE[column.dtype.kind]
    if all(isinstance(value, str) and not {"\n", "\r"} & set(value) for value in column):
        return "text"
    raise ValueError(
        f"Column {column.name!r} ({column.dtype}) cannot be recorded: use integers, numbers, "
        "True/False, or texts of one line without missing values."
    )


def parse(data: bytes, kinds: dict[str, str]) -> tuple[Columns, list[Problem]]:
    """The columns of the file, and a problem for each cell that is not of its column's kind.

    No columns at all when the header is not the one that `kinds` names.
    """
    header, _, cells = places.parse_csv(data)
    if header != list(kinds):
        return {}, places.header_changes(RAW, list(kinds), header)
    columns, problems = {name: [] for name in header}, []
    for line, row in enumerate(cells, start=2):
        if len(row) != len(header):
            said = f"this row has {len(row)} values where the header names {len(header)} columns"
            problems.append(Problem(RAW, line, None, said))
            for values in columns.values():
                values.append(None)
            continue
        for (name, kind), cell in zip(kinds.items(), row, strict=True):
            value = read_cell(cell, kind)
            columns[name].append(value)
            if value is None and not (kind == "number" and cell == ""):
                said = f"found {show(cell)}, expected {_WORDS.get(kind, kind)}"
                problems.append(Problem(RAW, line, name, said))
    return columns, problems


def read_cell(cell: str, kind: str):
    """The value of one cell, or None where it is empty or not of the kind."""
    if kind == "text":
        return cell
    if kind == "true/false":
        return {"True": True, "False": False}.get(cell)
    if kind == "integer":
        value = int(cell) if _INTEGER.fullmatch(cell) else None
        return value if value is not None and -(2**63) <= value < 2**63 else None
    value = float(cell) if _NUMBER.fullmatch(cell) else math.nan
    return value if math.isfinite(value) else None
