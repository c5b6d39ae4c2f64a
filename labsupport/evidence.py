"""Recorded evidence: write a run, read it, audit it.

A run is a directory of four files: raw.csv (one row a measurement, in the order measured),
manifest.json (what was run, where, by which code), summary.json (derived from the rows alone) and
seal.json (checksums that say where any of them changed). `books` says what the rows must satisfy.
"""

import json
import os
import shlex
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from labsupport import books, columns, jsontext, machine, seal
from labsupport.audit import SCHEMA, Audit, audit, examine, read_files
from labsupport.books import MANIFEST, SUMMARY
from labsupport.columns import RAW
from labsupport.seal import SEAL

__all__ = ["Audit", "Run", "audit", "directory", "read", "refuse_existing", "seal_files", "write"]

REPEATS = ("seed", "round", "repeat")  # factors that by these names only repeat a measurement


@dataclass(frozen=True)
class Run:
    """A recorded run.

    rows      as measured, one row a measurement, with the column types they were written with
    manifest  what was run, where, when and by which code
    summary   {"schema": 1, "rows": [...]}, a row for each combination of the factors that are not
              repeats, with {"n", "median", "q1", "q3"} under each measured column's name
    """

    rows: pd.DataFrame
    manifest: dict
    summary: dict


def refuse_existing(out: str | Path) -> Path:
    """`out` as a path; raises FileExistsError if anything is there. Ask before measuring."""
    if os.path.lexists(out):
        said = (
            "exists already and is left as it is. Choose another directory, or move this one away"
        )
        raise FileExistsError(f"{out} {said}.")
    return Path(out)


def write(
    out: str | Path,
    rows: pd.DataFrame,
    *,
    command: str | Sequence[str],
    config: dict,
    factors: dict[str, Iterable],
    total: str | None,
    segments: Sequence[str],
    agreed: str | None,
    warmed: str,
    excluded: str,
    started: datetime,
    ended: datetime,
    repeats: Sequence[str] | None = None,
) -> Path:
    """Write a run as the directory `out`, whole or not at all, and return its path.

    rows             in the order measured; times are integers of nanoseconds
    factors          column -> its levels; the rows must hold each combination exactly once
    total, segments  the total's column and those that add up to it, the residual among them
    agreed           the true/false column that says outputs agreed
    started, ended   with a time zone
    repeats          the factors that only repeat a measurement; by default those named seed,
                     round or repeat

    Raises FileExistsError when `out` exists, and ValueError, naming line and column, when the rows
    do not satisfy what the arguments say of them. Nothing is written in either case.
    """
    out = refuse_existing(out)
    kinds, raw = columns.write(rows)
    factors = {name: list(levels) for name, levels in factors.items()}
    manifest = {
        "schema": SCHEMA,
        "kind": "run",
        "command": command if isinstance(command, str) else shlex.join(command),
        "config": config,
        "seeds": config.get("seeds", config.get("seed")),
        "columns": kinds,
        "factors": factors,
        "repeats": [f for f in factors if f in REPEATS] if repeats is None else list(repeats),
        "total": total,
        "segments": list(segments),
        "agreed": agreed,
        "warmed": warmed,
        "excluded": excluded,
        "started": _utc(started, "started"),
        "ended": _utc(ended, "ended"),
        "sha256": {RAW: seal.sha256(raw)},
        "sources": machine.sources(),
        "git": machine.commit(),
        "machine": machine.describe(),
    }
    manifest = _plain(manifest)

    problems = books.plan_problems(manifest)
    if not problems:
        values, problems = columns.parse(raw, kinds)
        problems = problems or books.row_problems(values, manifest)
    if problems:
        raise ValueError(_refusal(problems))

    files = {RAW: raw, MANIFEST: jsontext.dump(manifest)}
    files[SUMMARY] = jsontext.dump(books.summarise(values, manifest))
    files[SEAL] = seal.make(files)
    return _write_whole(out, files)


def read(path_or_name: str | Path) -> Run:
    """A recorded run, by its directory or by its name in the repository's evidence folder.

    Raises FileNotFoundError for a directory that is not there or lacks a file, and ValueError for
    files that cannot be read as a run. It does not audit.
    """
    path = Path(path_or_name)
    path = path if path.is_dir() else directory(str(path_or_name))
    content = {}
    for name in (MANIFEST, SUMMARY):
        content[name], problem = jsontext.parse(name, (path / name).read_bytes())
        if problem:
            raise ValueError(_unreadable(path, problem))
    problems = books.plan_problems(content[MANIFEST])
    if not problems:
        kinds = content[MANIFEST]["columns"]
        values, problems = columns.parse((path / RAW).read_bytes(), kinds)
    if problems:
        raise ValueError(_unreadable(path, problems[0]))
    series = {name: pd.Series(values[name], dtype=columns.KINDS[kinds[name]]) for name in kinds}
    return Run(pd.DataFrame(series), content[MANIFEST], content[SUMMARY])


def _unreadable(path: Path, problem) -> str:
    said = f"{path} cannot be read as a recorded run. {problem}"
    return f"{said}. For everything that is wrong: python -m labsupport audit {path}"


def directory(name: str) -> Path:
    """The directory evidence/<name> of the repository.

    Raises FileNotFoundError, naming the remedy, when it is not there.
    """
    folder = machine.ROOT / "evidence"
    if not folder.is_dir():
        raise FileNotFoundError(
            "The repository's evidence folder is not beside the labsupport package. Install the "
            "package from a clone of the course, so that both stay together: "
            "python -m pip install --editable . (in the clone's top folder)."
        )
    if not (folder / name).is_dir():
        known = ", ".join(sorted(p.name for p in folder.iterdir() if p.is_dir())) or "none"
        raise FileNotFoundError(f"There is no evidence named {name!r}. Recorded here: {known}.")
    return folder / name


def seal_files(path: str | Path) -> Path:
    """Seal a transcription: write seal.json beside the files its manifest.json lists.

    Raises FileExistsError when there is a seal already, and ValueError when the manifest is not
    that of a transcription or does not list exactly the files that are there.
    """
    target = Path(path) / SEAL
    if target.exists():
        raise FileExistsError(f"{target} exists already. To seal anew on purpose, delete it first.")
    files, problems = read_files(Path(path))
    manifest, _ = jsontext.parse(MANIFEST, files.get(MANIFEST, b""))
    if not isinstance(manifest, dict) or manifest.get("kind") != "transcription":
        raise ValueError(f'{path} needs a {MANIFEST} of "kind": "transcription" to be sealed.')
    files[SEAL] = seal.make(files)
    if problems := problems + examine(files):
        raise ValueError(_refusal(problems))
    target.write_bytes(files[SEAL])
    return target


def _utc(moment: datetime, name: str) -> str:
    if moment.tzinfo is None:
        raise ValueError(f"{name} needs a time zone: datetime.now(timezone.utc), for example.")
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def _plain(value):
    """As JSON would give it back: NumPy's numbers and arrays become Python's, tuples lists."""

    def numpy_value(x):
        if not hasattr(x, "tolist"):
            raise ValueError(f"{x!r} cannot be recorded in {MANIFEST}: use numbers and texts.")
        return x.tolist()

    return json.loads(json.dumps(value, allow_nan=False, default=numpy_value))


def _refusal(problems: list) -> str:
    shown = [f"  {problem}" for problem in problems[:10]]
    shown += [f"  and {len(problems) - 10} more"] if len(problems) > 10 else []
    said = "Nothing was written, for these reasons (in raw.csv the header is line 1):"
    return "\n".join([said, *shown])


def _write_whole(out: Path, files: dict[str, bytes]) -> Path:
    """Write beside the final name and rename, so that an interrupted run never looks whole."""
    partial = out.with_name(f".{out.name}.partial-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        for name, data in files.items():
            (partial / name).write_bytes(data)
        refuse_existing(out)
        partial.rename(out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return out
