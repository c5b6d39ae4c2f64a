"""Recorded evidence: write a run, read it, audit it.

A run is a directory of four files: raw.csv (one row a measurement, in the order measured),
manifest.json (what was run, where, by which code), summary.json (derived from the rows alone) and
seal.json (checksums that say where any of them changed). `books` says what the rows must satisfy.
A run may carry attachments, files of any kind that belong to it, such as a model's weights.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from labsupport import books, columns, jsontext, machine, seal, whole
from labsupport.audit import SCHEMA, Audit, audit, examine, read_files
from labsupport.books import MANIFEST, SUMMARY
from labsupport.columns import RAW
from labsupport.seal import SEAL

__all__ = ["Audit", "Begun", "Run", "audit", "begin", "directory", "read", "seal_files", "write"]

OWN = (RAW, MANIFEST, SUMMARY, SEAL)  # the files of every run
REPEATS = ("seed", "round", "repeat")  # factors that by these names only repeat a measurement


@dataclass(frozen=True)
class Run:
    """A recorded run.

    rows      as measured, one row a measurement: columns of int64, float64, bool or text
    manifest  what was run, where, when and by which code
    summary   {"schema": 1, "rows": [...]}, a row for each combination of the factors that are not
              repeats, with {"n", "median", "q1", "q3"} under each measured column's name
    """

    rows: pd.DataFrame
    manifest: dict
    summary: dict


@dataclass(frozen=True)
class Begun:
    """A run before it is measured: where it will be written, when and with which code it began.

    sources holds every file of the package, since some are loaded only while measuring.
    """

    out: Path
    started: datetime
    sources: dict[str, str]
    git: dict | None


def begin(out: str | Path) -> Begun:
    """Note the time and the code, and see that `out` can be written. Call it before measuring.

    Raises FileExistsError when anything is at `out`, OSError when nothing can be created there.
    """
    out = whole.check(Path(out))
    return Begun(out, datetime.now(UTC), machine.sources(), machine.commit())


def write(
    begun: Begun,
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
    repeats: Sequence[str] | None = None,
    attachments: Mapping[str, bytes] | None = None,
) -> Path:
    """Write a run as the directory `begun.out`, whole or not at all, and return its path.

    rows             in the order measured; times are integers of nanoseconds. Integers are read
                     back as int64 and floats as float64, of the same value
    factors          column -> its levels; the rows must hold each combination exactly once
    total, segments  the total's column and those that add up to it, the residual among them
    agreed           the true/false column that says outputs agreed
    repeats          the factors that only repeat a measurement; by default those named seed,
                     round or repeat
    attachments      file name -> content of further files of the run, sealed and audited with it

    Raises FileExistsError when something is there by now, and ValueError when the code changed
    since `begin` or, naming line and column, when the rows do not satisfy what the arguments say
    of them. Nothing is written in either case.
    """
    if changed := machine.changed_since(begun.sources, begun.git):
        said = f"Nothing was written: the code changed while it was measured ({', '.join(changed)})"
        raise ValueError(f"{said}. Measure again, and leave this tree alone until the run ends.")
    attachments = attachments or {}
    if wrong := [x for x in attachments if x in OWN or not re.fullmatch(r"\w[\w.-]*", x)]:
        raise ValueError(f"{wrong[0]!r} cannot be an attachment: choose another plain file name")
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
        "started": begun.started.isoformat(timespec="seconds"),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "sha256": {name: seal.sha256(data) for name, data in {RAW: raw, **attachments}.items()},
        "sources": {name: begun.sources[name] for name in machine.executed()},
        "git": begun.git,
        "machine": machine.describe(),
    }
    manifest = jsontext.plain(manifest, MANIFEST)

    problems = books.plan_problems(manifest)
    if not problems:
        values, problems = columns.parse(raw, kinds)
        problems = problems or books.row_problems(values, manifest)
    if problems:
        raise ValueError(_refusal(problems))

    files = {**attachments, RAW: raw, MANIFEST: jsontext.dump(manifest)}
    files[SUMMARY] = jsontext.dump(books.summarise(values, manifest))
    files[SEAL] = seal.make(files)
    return whole.write(begun.out, files)


def read(path_or_name: str | Path) -> Run:
    """A recorded run, by its directory or by its name in the repository's evidence folder.

    A text that is such a name means the evidence, whatever the working directory holds. Raises
    FileNotFoundError for a directory that is not there or lacks a file, and ValueError for files
    that cannot be read as a run. It does not audit.
    """
    named = path_or_name in _recorded() or path_or_name == ""
    path = Path(path_or_name)
    path = path if path.is_dir() and not named else directory(str(path_or_name))
    content = {}
    for name in (MANIFEST, SUMMARY):
        content[name], problem = jsontext.parse(name, (path / name).read_bytes())
        if problem:
            raise ValueError(_unreadable(path, problem))
        if isinstance(content[name], dict) and content[name].get("kind") == "transcription":
            said = f"Its {MANIFEST} says what each file holds; open the one you need"
            raise ValueError(f"{path} is a transcription, not a run. {said}.")
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
    """The directory evidence/<name> of the repository; a name holds no separator.

    Raises FileNotFoundError, naming the remedy, when it is not there.
    """
    folder, known = machine.ROOT / "evidence", _recorded()
    if not folder.is_dir():
        raise FileNotFoundError(
            "The repository's evidence folder is not beside the labsupport package. Install the "
            "package from a clone of the course, so that both stay together: "
            "python -m pip install --editable . (in the clone's top folder)."
        )
    if name not in known:
        said = ", ".join(known) or "none"
        raise FileNotFoundError(f"There is no evidence named {name!r}. Recorded here: {said}.")
    return folder / name


def _recorded() -> list[str]:
    """The names in the evidence folder; none where there is no such folder."""
    return sorted(path.name for path in machine.ROOT.glob("evidence/*") if path.is_dir())


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


def _refusal(problems: list) -> str:
    shown = [f"  {problem}" for problem in problems[:10]]
    shown += [f"  and {len(problems) - 10} more"] if len(problems) > 10 else []
    said = "Nothing was written, for these reasons (in raw.csv the header is line 1):"
    return "\n".join([said, *shown])
