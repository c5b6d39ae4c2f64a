"""JSON files as text and as values: written one way, read strictly, compared value by value.

A value is named by its path as Python would index it: `machine.cpu`, `segments[2]`,
`sources["labsupport/timing.py"]`.
"""

import json
from collections import Counter
from collections.abc import Iterator

from labsupport.places import NOTHING, Problem, show

WIDTH = 100
DEPTH = 100  # lists and objects inside one another; nothing recorded comes near


def dump(value) -> bytes:
    """JSON in UTF-8 with LF, no NaN; what fits on a line is on one, long lists are filled."""
    text = _dump(value, 0) + "\n"
    return text.encode("utf-8", "backslashreplace")  # half a surrogate pair: as JSON escapes it


def _dump(value, depth: int) -> str:
    flat = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if depth + len(flat) <= WIDTH or not isinstance(value, dict | list):
        return flat
    pad, closing = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {_dump(inner, depth + 1)}" for key, inner in value.items()]
        return "{" + pad + ("," + pad).join(items) + closing + "}"
    lines = [""]
    for item in (_dump(inner, depth + 1) + ", " for inner in value):
        if lines[-1] and len(lines[-1]) + len(item) > WIDTH - depth:
            lines.append("")
        lines[-1] += item
    return "[" + pad + pad.join(line.rstrip(" ") for line in lines)[:-1] + closing + "]"


def parse(name: str, data: bytes) -> tuple[object, Problem | None]:
    """The value of a file's content, or the problem that says at which line reading failed."""

    def unique(pairs):
        repeated = [key for key, n in Counter(key for key, _ in pairs).items() if n > 1]
        if repeated:
            raise ValueError(f"the name {show(repeated[0])} stands twice in one object")
        return dict(pairs)

    def refuse(constant):
        raise ValueError(f"{constant} is not a JSON value")

    try:
        text = data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
        if _is_deeper(value, DEPTH):
            raise ValueError(f"more than {DEPTH} lists and objects lie inside one another")
        return value, None
    except json.JSONDecodeError as error:
        return None, _unreadable(name, error.lineno, error.msg)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        return None, _unreadable(name, line, "a byte that is not UTF-8 text")
    except (ValueError, RecursionError) as error:
        return None, _unreadable(name, None, str(error))


def _is_deeper(value, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_is_deeper(x, depth - 1) for x in inner)


def plain(value, name: str):
    """A value as the file `name` gives it back: NumPy's become Python's, tuples become lists.

    Raises ValueError for what JSON cannot hold.
    """

    def numpy_value(x):
        if not hasattr(x, "tolist"):
            raise ValueError(f"{x!r} cannot be recorded in {name}: use numbers and texts.")
        return x.tolist()

    return json.loads(json.dumps(value, allow_nan=False, default=numpy_value))


def _unreadable(name: str, line: int | None, why: str) -> Problem:
    return Problem(name, line, None, f"this is not readable as JSON: {why}")


def leaves(value, path: str = "") -> Iterator[tuple[str, object]]:
    """Every value inside a JSON value with its path; an empty list or object counts as a value."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            plain = key.isascii() and key.isidentifier()
            step = ("." if path else "") + key if plain else f"[{json.dumps(key)}]"
            yield from leaves(inner, path + step)
    elif isinstance(value, list) and value:
        for i, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{i}]")
    else:
        yield path, value


def differing(found, wanted) -> list[tuple[str, object, object]]:
    """(path, found, wanted) of each value that differs; 1, 1.0, "1" and true all differ."""
    found, wanted = dict(leaves(found)), dict(leaves(wanted))
    pairs = [
        (path, found.get(path, NOTHING), wanted.get(path, NOTHING))
        for path in dict.fromkeys([*wanted, *found])
    ]
    return [(path, a, b) for path, a, b in pairs if _exact(a) != _exact(b)]


def _exact(leaf) -> str:
    return "" if leaf is NOTHING else json.dumps(leaf)
