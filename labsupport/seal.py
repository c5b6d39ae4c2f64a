"""A seal over the files of a directory: checksums that say whether anything changed, and where.

seal.json holds, for every other file, its SHA-256 and marks: a CRC-32 of each row and each column
of a CSV file, of each line of a text file, of each value of a JSON file, of each tensor of a
safetensors file. SHA-256 decides whether a
file changed; the marks say where, because one changed cell disturbs one row's and one column's
mark. The seal's own SHA-256, under "seal", tells a changed seal from changed files.

A seal guards against accident and careless editing. Someone who alters a run and then makes a new
seal is not found by it: that takes another copy, such as the repository's history.
"""

import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterable

from labsupport import jsontext, places
from labsupport.places import Problem

SEAL = "seal.json"
SCHEMA = 1
HEADER = "its header"  # of a safetensors file: the names, shapes and places of its tensors


def sha256(data: bytes) -> str:
    """SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def make(files: dict[str, bytes]) -> bytes:
    """The content of seal.json for these files (name -> content).

    Raises ValueError for a JSON file that cannot be read.
    """
    body = _body(files)
    if unreadable := [name for name, marks in body["files"].items() if marks is None]:
        raise ValueError(f"{', '.join(unreadable)}: not valid JSON, so it cannot be sealed")
    return jsontext.dump({**body, "seal": _digest(body)})


def check(files: dict[str, bytes]) -> list[Problem]:
    """Compare files (seal.json among them) with their seal; an empty list when nothing changed."""
    if SEAL not in files:
        return [Problem(SEAL, None, None, "this file is missing, so nothing can be compared to it")]
    stored, problem = jsontext.parse(SEAL, files[SEAL])
    if problem:
        return [problem]
    if not isinstance(stored, dict) or not isinstance(stored.get("files"), dict):
        return [Problem(SEAL, None, None, "this is not a seal: it names no files")]

    others = {name: data for name, data in files.items() if name != SEAL}
    actual = _body(others)
    kept = {key: value for key, value in stored.items() if key != "seal"}
    if stored.get("seal") == _digest(actual) or kept == actual:
        return _changes_of_the_seal(files[SEAL], stored, {**actual, "seal": _digest(actual)})

    problems = []
    if stored.get("seal") != _digest(kept):
        said = (
            "the seal was changed, and other files differ from it: what follows may be the seal's"
        )
        problems.append(Problem(SEAL, None, None, said + " fault. Restore seal.json first"))
    for name in sorted(stored["files"].keys() | others.keys()):
        problems += _changes_of_a_file(name, others.get(name), stored["files"].get(name))
    return problems


def row_marks(files: dict[str, bytes], name: str) -> list[str]:
    """The seal's marks of a CSV file's rows, the first of them line 2; empty where there are none.

    A mark is the `crc` of a row's bytes without the line end.
    """
    stored, _ = jsontext.parse(SEAL, files.get(SEAL, b""))
    try:
        return _split(stored["files"][name]["rows"])
    except (KeyError, TypeError):  # no seal, or a damaged one
        return []


def _body(files: dict[str, bytes]) -> dict:
    return {"schema": SCHEMA, "files": {name: _marks(name, files[name]) for name in sorted(files)}}


def _digest(body: dict) -> str:
    return sha256(json.dumps(body, sort_keys=True).encode())


def crc(data: bytes) -> str:
    """CRC-32 of bytes, in eight hexadecimal digits."""
    return f"{zlib.crc32(data):08x}"


def _marks(name: str, data: bytes) -> dict | None:
    whole = {"sha256": sha256(data), "bytes": len(data)}
    if name.endswith(".json"):
        value, problem = jsontext.parse(name, data)
        return None if problem else {**whole, "values": _joined(_value_marks(value))}
    if name.endswith(".csv"):
        header, lines, cells = places.parse_csv(data)
        columns = [_column_mark(cells, j) for j in range(len(header))]
        rows = _joined(map(crc, lines))
        return {**whole, "header": header, "columns": columns, "rows": rows}
    if name.endswith(".safetensors"):
        return {**whole, "tensors": {tensor: crc(part) for tensor, part in _tensors(data)}}
    return {**whole, "lines": _joined(map(crc, data.split(b"\n")))}


def _tensors(data: bytes) -> list[tuple[str, bytes]]:
    """Each tensor of a safetensors file with its bytes, after its header with those of its own."""
    start = 8 + int.from_bytes(data[:8], "little")
    header, _ = jsontext.parse("header", data[8:start])
    parts = [(HEADER, data[:start])]
    try:
        spans = {
            tensor: entry["data_offsets"] for tensor, entry in header.items() if tensor[0] != "_"
        }
        parts += [(tensor, data[start + a : start + b]) for tensor, (a, b) in spans.items()]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):  # a damaged header
        pass
    return parts


def _value_marks(value) -> list[str]:
    return [crc(f"{path}={json.dumps(leaf)}".encode()) for path, leaf in jsontext.leaves(value)]


def _column_mark(cells: list[list[str]], j: int) -> str:
    column = "\n".join(row[j] if j < len(row) else "" for row in cells)
    return crc(column.encode("utf-8", "surrogateescape"))


def _joined(marks: Iterable[str]) -> list[str]:
    """Marks of eight characters, eleven to a string: a line of seal.json."""
    text = "".join(marks)
    return [text[i : i + 88] for i in range(0, len(text), 88)]


def _split(joined: list[str]) -> list[str]:
    text = "".join(joined)
    return [text[i : i + 8] for i in range(0, len(text), 8)]


def _changes_of_the_seal(data: bytes, stored: dict, right: dict) -> list[Problem]:
    """The files agree with one another; whatever differs is the seal's."""
    said = "found {}, expected {}: the other files agree, it is the seal that was changed"
    changes = [
        Problem(SEAL, None, path, said.format(*_contrast(found, wanted)))
        for path, found, wanted in jsontext.differing(stored, right)
    ]
    if not changes and data != jsontext.dump(right):
        changes = [Problem(SEAL, None, None, places.REFORMATTED)]
    return changes


def _contrast(a, b) -> tuple[str, str]:
    """Both values as text, long ones from where they begin to differ."""
    if isinstance(a, str) and isinstance(b, str) and len(a + b) > 80:
        k = next(
            (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
        )
        return tuple(f"{places.show(x[k : k + 8])} from character {k + 1}" for x in (a, b))
    return places.show(a), places.show(b)


def _changes_of_a_file(name: str, data: bytes | None, marks: dict | None) -> list[Problem]:
    if data is None:
        return [Problem(name, None, None, "this file is missing; the seal names it")]
    if marks is None:
        return [
            Problem(name, None, None, "this file does not belong here; the seal has no such file")
        ]
    try:
        if sha256(data) == marks["sha256"]:
            return []
        if conversion := places.conversion(data, lambda undone: sha256(undone) == marks["sha256"]):
            return [Problem(name, None, None, conversion)]
        if "values" in marks:
            found = _json_changes(name, data, marks)
        elif "tensors" in marks:
            found = _tensor_changes(name, data, marks)
        elif "rows" in marks:
            found = _csv_changes(name, data, marks)
        else:
            lines = [crc(line) for line in data.split(b"\n")]
            found = places.line_changes(name, _split(marks["lines"]), lines, 1)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):  # marks of a damaged seal
        found = [Problem(name, None, None, "differs from a seal too damaged to say where")]
    return found or [Problem(name, None, None, places.REFORMATTED)]


def _json_changes(name: str, data: bytes, marks: dict) -> list[Problem]:
    value, problem = jsontext.parse(name, data)
    if problem:
        return [problem]
    leaves = list(jsontext.leaves(value))
    old, new = _split(marks["values"]), _value_marks(value)
    if Counter(old) == Counter(new):
        return []  # the order of names, or spaces
    problems = []
    for i, j in places.pair(old, new):
        if j is None:
            path = leaves[min(i, len(leaves) - 1)][0]
            said = "a value that stood at or just before this place when the run was sealed is gone"
        else:
            path, leaf = leaves[j]
            said = f"found {places.show(leaf)}; this name with this value "
            said += "is not what was sealed" if i is not None else "was added after sealing"
        problems.append(Problem(name, None, path, said))
    return problems


def _tensor_changes(name: str, data: bytes, marks: dict) -> list[Problem]:
    said = "its bytes are not what was sealed"
    now = {tensor: crc(part) for tensor, part in _tensors(data)}
    if now[HEADER] != marks["tensors"][HEADER]:
        return [Problem(name, None, HEADER, said)]  # the others cannot be told apart without it
    changed = [tensor for tensor in now if now[tensor] != marks["tensors"][tensor]]
    if not changed:
        return [Problem(name, None, None, "bytes that belong to no tensor were added or changed")]
    return [Problem(name, None, tensor, said) for tensor in changed]


def _csv_changes(name: str, data: bytes, marks: dict) -> list[Problem]:
    header, lines, cells = places.parse_csv(data)
    problems = places.header_changes(name, marks["header"], header)
    if len(header) != len(marks["header"]):
        return problems  # every row differs then, and says nothing more
    old, new = _split(marks["rows"]), [crc(line) for line in lines]
    explain = None
    if len(old) == len(new):  # otherwise every column is disturbed
        pairs = enumerate(marks["columns"])
        disturbed = [j for j, mark in pairs if _column_mark(cells, j) != mark]
        explain = places.cell_changes(name, marks["header"], cells, disturbed)
    return problems + places.line_changes(name, old, new, 2, explain)
