"""What the rows of a run must satisfy, and the summary that follows from them.

The `plan` is the part of a run's manifest that says what the columns are for:

    columns   name -> one of columns.KINDS
    factors   name -> the levels; each combination of levels stands in exactly one row
    repeats   the factors that only repeat a measurement, such as seed and round
    total     the integer column that `segments` must add up to, or None
    segments  integer columns, the residual among them
    agreed    the true/false column that says outputs agreed, or None
"""

import math
import statistics
from collections import defaultdict
from itertools import product

from labsupport.columns import KINDS, RAW, Columns
from labsupport.places import Problem, show

MANIFEST, SUMMARY = "manifest.json", "summary.json"


def plan_problems(plan: dict) -> list[Problem]:
    """What is wrong with a plan itself; the other functions here need a plan without problems."""
    shapes = {
        "columns": dict,
        "factors": dict,
        "repeats": list,
        "segments": list,
        "total": (str, type(None)),
        "agreed": (str, type(None)),
    }
    plan = plan if isinstance(plan, dict) else {}
    if wrong := [key for key, kind in shapes.items() if not isinstance(plan.get(key, 0), kind)]:
        return [_plan(key, "this entry is missing or of the wrong kind") for key in wrong]

    problems = []
    columns, factors = plan["columns"], plan["factors"]
    integers = [name for name, kind in columns.items() if kind == "integer"]
    flags = [name for name, kind in columns.items() if kind == "true/false"]

    for name, kind in columns.items():
        if kind not in list(KINDS):  # a list, since what stands there may not be hashable
            said = f"found {show(kind)}, expected one of {show(list(KINDS))}"
            problems.append(_plan(f"columns.{name}", said))
    timed = [] if plan["total"] is None else [("total", plan["total"])]
    timed += [(f"segments[{i}]", name) for i, name in enumerate(plan["segments"])]
    for path, name in timed:
        if name not in integers:
            said = f"{show(name)} must be a column of integers, so that segments add up exactly"
            problems.append(_plan(path, said))
    if plan["agreed"] is not None and plan["agreed"] not in flags:
        problems.append(_plan("agreed", f"{show(plan['agreed'])} must be a true/false column"))

    if not factors:
        problems.append(_plan("factors", "name at least one column that tells the rows apart"))
    for name, levels in factors.items():
        if name not in columns:
            problems.append(_plan(f"factors.{name}", "there is no such column"))
        if not _are_levels(levels):
            said = "levels must be a list of numbers or texts, each of them once"
            problems.append(_plan(f"factors.{name}", said))
    for i, name in enumerate(plan["repeats"]):
        if name not in list(factors):
            problems.append(_plan(f"repeats[{i}]", f"{show(name)} is not among the factors"))
    return problems


def _are_levels(levels) -> bool:
    """A list of at least one number, text or truth value, all different."""
    plain = isinstance(levels, list) and all(isinstance(x, int | float | str) for x in levels)
    return plain and 0 < len(levels) == len(set(levels))


def _plan(path: str, said: str) -> Problem:
    return Problem(MANIFEST, None, path, said)


def row_problems(columns: Columns, plan: dict) -> list[Problem]:
    """Each row that breaks the plan: combinations, sums, signs and agreement of outputs."""
    problems = _combination_problems(columns, plan["factors"])

    total, segments = plan["total"], plan["segments"]
    for name in [total, *segments] if total else segments:
        for line, value in enumerate(columns[name], start=2):
            if value is not None and value < 0:
                said = f"found {value}: a time or a part of it cannot be negative"
                problems.append(Problem(RAW, line, name, said))

    if total and segments:
        parts = zip(*(columns[name] for name in segments), strict=True)
        for line, (whole, row) in enumerate(zip(columns[total], parts, strict=True), start=2):
            if whole is not None and None not in row and sum(row) != whole:
                said = f"the row does not close: {' + '.join(segments)} give {sum(row)}, the total "
                said += f"is {whole}; expected no difference, found {whole - sum(row)}"
                problems.append(Problem(RAW, line, total, said))

    for line, value in enumerate(columns[plan["agreed"]] if plan["agreed"] else [], start=2):
        if value is False:
            said = "found False, expected True: in this row the outputs did not agree"
            problems.append(Problem(RAW, line, plan["agreed"], said))
    return problems


def _combination_problems(columns: Columns, factors: dict[str, list]) -> list[Problem]:
    problems, seen = [], {}
    for name, levels in factors.items():
        for line, value in enumerate(columns[name], start=2):
            if value is not None and value not in levels:
                said = f"found {show(value)}, expected one of {show(levels)}"
                problems.append(Problem(RAW, line, name, said))

    for line, row in enumerate(zip(*(columns[name] for name in factors), strict=True), start=2):
        if row in seen:
            said = f"{_named(factors, row)} stands in line {seen[row]} already; expected once"
            problems.append(Problem(RAW, line, None, said))
        seen.setdefault(row, line)

    if absent := absent_combinations(columns, factors):
        said = f"{len(absent)} of {math.prod(map(len, factors.values()))} expected rows are "
        said += f"missing, the first with {_named(factors, absent[0])}"
        problems.append(Problem(RAW, None, None, said))
    return problems


def _named(factors: dict, row: tuple) -> str:
    return ", ".join(f"{name} {show(value)}" for name, value in zip(factors, row, strict=True))


def absent_combinations(columns: Columns, factors: dict[str, list]) -> list[tuple]:
    """Combinations of levels that no row holds, in the order of the levels."""
    seen = set(zip(*(columns[name] for name in factors), strict=True))
    return [row for row in product(*factors.values()) if row not in seen]


def summarise(columns: Columns, plan: dict) -> dict:
    """Count, median and quartiles of each measured column, for each combination not a repeat.

    Returns {"schema": 1, "rows": [...]}: a row holds its combination, and for each measured column
    {"n", "median", "q1", "q3"}. Quartiles interpolate linearly between order statistics
    (`statistics.quantiles`, method "inclusive": Hyndman and Fan 1996, definition 7); integers are
    interpolated exactly and rounded once.
    """
    by = {name: x for name, x in plan["factors"].items() if name not in plan["repeats"]}
    lines = defaultdict(list)  # combination -> the indices of its rows
    for i in range(len(next(iter(columns.values())))):
        lines[tuple(columns[name][i] for name in by)].append(i)

    measured = [
        name
        for name, kind in plan["columns"].items()
        if kind in ("integer", "number") and name not in plan["factors"]
    ]
    rows = []
    for combination in product(*by.values()):
        row = dict(zip(by, combination, strict=True))
        for name in measured:
            row[name] = _quartiles([columns[name][i] for i in lines[combination]])
        rows.append(row)
    return {"schema": 1, "rows": rows}


def _quartiles(values: list) -> dict:
    values = [value for value in values if value is not None]
    if len(values) < 2:
        q1 = median = q3 = values[0] if values else None
    else:
        q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive")
    return {"n": len(values), "median": median, "q1": q1, "q3": q3}
