"""The marks of a class as files: tables for a spreadsheet, a summary, a page for each student.

MARKS/marks.csv       a row for each student and chapter
MARKS/exercises.csv   a row for each student and exercise
MARKS/summary.md      for the instructor
MARKS/feedback/<student>/<chapter>.html
MARKS/state/<student>/<chapter>.json   what `--resume` reads
"""

import csv
import hashlib
import json
import os
import re
import unicodedata
from collections import Counter, defaultdict
from dataclasses import asdict
from pathlib import Path

from labsupport.grading import ABSENT, FAILED, LOOK, STATUSES, Result

TABLES = {
    "marks": ("student", "chapter", "status", "why", "points", "of", "seconds"),
    "exercises": ("student", "chapter", "exercise", "points", "of", "right_parts", "parts"),
}
RUNS = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet takes a cell that begins so for a formula
MADE = re.compile(r"-[0-9a-f]{8}$")  # the end of a name that `safe` has made of another
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # names on Windows


def safe(name: str) -> str:
    """A file name for a student: their own where every system takes it, else one made of it."""
    kept = re.sub(r"[^\w.-]", "_", unicodedata.normalize("NFC", name)).strip(".")[:60]
    if kept == name and not RESERVED.fullmatch(name) and not MADE.search(name):
        return name
    kept = f"_{kept}" if RESERVED.fullmatch(kept) else kept
    return f"{kept}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:8]}"


def keep(marks: Path, result: Result) -> None:
    """Write a result's page and then its state, each whole. One that failed has no page."""
    told = asdict(result)
    page = told.pop("page")
    path = _page(marks, result.student, result.chapter)
    if page:
        _write(path, page)
    else:
        path.unlink(missing_ok=True)  # that of an earlier submission
    _write(_state(marks, result.student, result.chapter), json.dumps(told, indent=1))


def kept(marks: Path, student: str, chapter: str, sha256: tuple[str, str]) -> Result | None:
    """The result of an earlier run: of the same files, and not a failed one."""
    try:
        told = json.loads(_state(marks, student, chapter).read_text(encoding="utf-8"))
        result = Result(**told | {"sha256": tuple(told["sha256"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    same = (result.student, result.chapter, result.sha256) == (student, chapter, sha256)
    return result if same and _page(marks, student, chapter).is_file() else None


def _page(marks: Path, student: str, chapter: str) -> Path:
    return marks / "feedback" / safe(student) / f"{chapter}.html"


def _state(marks: Path, student: str, chapter: str) -> Path:
    return marks / "state" / safe(student) / f"{chapter}.json"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.partial")
    beside.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    beside.replace(path)


def write(marks: Path, results: list[Result], ignored: list[str], about: list[str]) -> None:
    """Write the tables and the summary. `about` are lines on how the class was graded."""
    rows = [[getattr(result, name) for name in TABLES["marks"]] for result in results]
    _table(marks / "marks.csv", TABLES["marks"], rows)
    rows = [
        [
            *(result.student, result.chapter, told["exercise"], told["points"], told["of"]),
            *(sum(told["right"].values()), len(told["right"])),
        ]
        for result in results
        for told in result.exercises
    ]
    _table(marks / "exercises.csv", TABLES["exercises"], rows)
    _write(marks / "summary.md", summary(results, ignored, about))


def _table(path: Path, names: tuple[str, ...], rows: list[list]) -> None:
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([names, *(map(_defused, row) for row in rows)])


def _defused(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(RUNS) else value


def summary(results: list[Result], ignored: list[str], about: list[str]) -> str:
    """The summary, Markdown: counts, exercises, and what needs a person."""
    counts = Counter(result.status for result in results)
    lines = ["# Marks", "", *about, "", "| status | submissions |", "| --- | --- |"]
    lines += [f"| {status} | {counts[status]} |" for status in STATUSES]
    lines += ["", "## Exercises", "", *_exercises(results)]
    for status in (LOOK, FAILED, ABSENT):
        these = [result for result in results if result.status == status]
        lines += ["", f"## {status.capitalize()}", ""]
        lines += [f"- {_name(r.student)}, {r.chapter}: {_line(r.why)}" for r in these] or ["None."]
    lines += ["", "## Not read", "", *(f"- {_name(name)}" for name in ignored)]
    return "\n".join(lines + (["Nothing."] if not ignored else [])) + "\n"


def _exercises(results: list[Result]) -> list[str]:
    shares, right, n = defaultdict(float), defaultdict(Counter), Counter()
    for result in results:
        for told in result.exercises:
            name = told["exercise"]
            n[name] += 1
            shares[name] += told["points"] / told["of"] if told["of"] else 0.0
            right[name].update({part: int(was) for part, was in told["right"].items()})
    head = ["| exercise | mean share of the points | parts: how many had them right |"]
    return [
        *head,
        "| --- | --- | --- |",
        *(
            f"| {name} | {shares[name] / n[name]:.0%} | "
            + "; ".join(f"{part}: {m} of {n[name]}" for part, m in right[name].items())
            + " |"
            for name in n
        ),
    ]


def _name(name: str) -> str:
    fence = "`" * (1 + max(map(len, re.findall("`+", name)), default=0))
    return f"{fence}{_line(name)}{fence}"


def _line(text: str) -> str:
    return " ".join(text.split())
