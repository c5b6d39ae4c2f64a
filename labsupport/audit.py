"""Is recorded evidence still what was measured? What is not, with its place, in words."""

from dataclasses import dataclass, replace
from pathlib import Path

from labsupport import books, jsontext, machine, places, seal
from labsupport.books import MANIFEST, SUMMARY
from labsupport.columns import RAW, parse
from labsupport.places import Problem, show
from labsupport.seal import SEAL

INTACT = "intact"
OTHER_CODE = "intact; made by other code than this tree's"
FAILED = "failed"

OTHER_HASH = f"its SHA-256 is not the one in {MANIFEST}"

SCHEMA = 1
STRAY = (".DS_Store", "Thumbs.db", "desktop.ini")  # left by file managers, no one's doing


@dataclass(frozen=True)
class Audit:
    """The answer: `status` is one of INTACT, OTHER_CODE and FAILED.

    problems         what is wrong and where; empty when intact
    changed_sources  source files that made the run and differ, or are gone, in this tree
    """

    status: str
    problems: list[Problem]
    changed_sources: list[str]


def audit(path: str | Path) -> Audit:
    """Audit a recorded run, or a transcription, in a directory.

    Raises FileNotFoundError when `path` is no directory. Any damage inside is an answer, not an
    exception.
    """
    files, problems = read_files(Path(path))
    problems += examine(files)
    if problems:
        return Audit(FAILED, problems, [])
    changed = _changed_sources(jsontext.parse(MANIFEST, files[MANIFEST])[0].get("sources", {}))
    return Audit(OTHER_CODE if changed else INTACT, [], changed)


def read_files(directory: Path) -> tuple[dict[str, bytes], list[Problem]]:
    """Every file below `directory` by its name from there (with /), and those unreadable."""
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory} is not a directory")
    files, problems = {}, []
    for file in sorted(directory.rglob("*")):
        name = file.relative_to(directory).as_posix()
        if file.is_dir() or file.name in STRAY:
            continue
        try:
            files[name] = file.read_bytes()
        except OSError as error:
            problems.append(
                Problem(name, None, None, f"the file cannot be opened: {error.strerror}")
            )
    return files, problems


def examine(files: dict[str, bytes]) -> list[Problem]:
    """Everything wrong with the files (name -> content) of a run or a transcription."""
    problems = seal.check(files)
    if MANIFEST not in files or any(p.file == MANIFEST for p in problems):
        return problems  # a manifest that cannot be trusted must not accuse the rows
    manifest, problem = jsontext.parse(MANIFEST, files[MANIFEST])
    if problem:
        return [*problems, problem]
    kind = manifest.get("kind") if isinstance(manifest, dict) else None
    if kind not in ("run", "transcription"):
        said = f'found {show(kind)}, expected "run" or "transcription"'
        return [*problems, Problem(MANIFEST, None, "kind", said)]
    if manifest.get("schema") != SCHEMA:
        said = f"found {show(manifest.get('schema'))}; this tree reads {SCHEMA} (is it up to date?)"
        return [*problems, Problem(MANIFEST, None, "schema", said)]
    return (_examine_run if kind == "run" else _examine_transcription)(files, manifest, problems)


def _examine_transcription(files: dict, manifest: dict, problems: list[Problem]) -> list[Problem]:
    listed = manifest.get("files")
    if not isinstance(listed, dict):
        return [*problems, Problem(MANIFEST, None, "files", "must name each file of the directory")]
    if "sources" in manifest:
        problems = problems + _record_problems(manifest, {"sources": set()})
    return problems + _membership(files, {*listed, MANIFEST, SEAL}, problems)


def _examine_run(files: dict, manifest: dict, problems: list[Problem]) -> list[Problem]:
    touched = {p.file for p in problems}
    wrong = books.plan_problems(manifest)
    wrong += _record_problems(manifest, {"sha256": {RAW}, "sources": set()})
    sealed = manifest.get("sha256")
    attached = set(sealed) - {RAW} if isinstance(sealed, dict) else set()
    problems = problems + _membership(files, {RAW, MANIFEST, SUMMARY, SEAL, *attached}, problems)
    for name in sorted(attached & files.keys() - {p.file for p in problems}):
        if sealed[name] != seal.sha256(files[name]):
            problems.append(Problem(name, None, None, f"{OTHER_HASH}: it was exchanged"))
    if wrong or RAW not in files:
        return problems + wrong

    columns, misread = parse(files[RAW], manifest["columns"])
    known = {(p.file, p.row, p.column) for p in problems}
    problems += [p for p in misread if (p.file, p.row, p.column) not in known]
    if columns:
        problems = _with_originals(problems, files, columns, manifest)
        problems += books.row_problems(columns, manifest)
    if RAW in touched or misread:
        return problems  # the summary must not be accused for the rows' sake
    if manifest["sha256"][RAW] != seal.sha256(files[RAW]):
        said = f"{OTHER_HASH}: rows changed after the run was written"
        return [*problems, Problem(RAW, None, None, said)]
    if SUMMARY in files:
        problems = _examine_summary(files, books.summarise(columns, manifest), problems)
    return problems


def _record_problems(manifest: dict, entries: dict[str, set]) -> list[Problem]:
    """Entries that this module reads and that a manifest made by hand may lack."""
    wrong = []
    for entry, needed in entries.items():
        held = manifest.get(entry)
        if not isinstance(held, dict) or not needed <= held.keys():
            wrong.append(Problem(MANIFEST, None, entry, "must give a SHA-256 for each file name"))
    return wrong


def _membership(files: dict, expected: set[str], known: list[Problem]) -> list[Problem]:
    """Files too few or too many by the manifest, unless the seal said so already."""
    said = {p.file for p in known}
    absent = [Problem(name, None, None, "this file is missing") for name in expected - files.keys()]
    extra = [
        Problem(name, None, None, "this file does not belong here")
        for name in files.keys() - expected
    ]
    return sorted((p for p in absent + extra if p.file not in said), key=lambda p: p.file)


def _examine_summary(files: dict, derived: dict, problems: list[Problem]) -> list[Problem]:
    """Compare the summary with one made from the rows; that says more than its seal can."""
    stored, unreadable = jsontext.parse(SUMMARY, files[SUMMARY])
    if unreadable:
        return problems if unreadable in problems else [*problems, unreadable]
    differing = {
        path: f"found {show(found)}, but the rows of {RAW} give {show(wanted)}"
        for path, found, wanted in jsontext.differing(stored, derived)
    }
    kept = [p for p in problems if p.file != SUMMARY or p.column not in differing]
    return kept + [Problem(SUMMARY, None, path, said) for path, said in differing.items()]


def _with_originals(problems: list, files: dict, columns: dict, manifest: dict) -> list[Problem]:
    """Add what a changed cell was, where the row's other values tell it and its mark confirms."""
    _, _, cells = places.parse_csv(files[RAW])
    marks, names = seal.row_marks(files, RAW), list(columns)
    told = []
    for problem in problems:
        name, line = problem.column, problem.row or 0
        if problem.file == RAW and name in columns and _is_whole(cells, line - 2, len(names)):
            for candidate in _candidates(name, line - 2, columns, manifest):
                row = list(cells[line - 2])
                row[names.index(name)] = str(candidate)
                if [seal.crc(places.csv_line(row))] == marks[line - 2 : line - 1]:
                    said = f"{problem.message}; expected {show(str(candidate))}"
                    problem = replace(problem, message=said)
                    break
        told.append(problem)
    return told


def _is_whole(cells: list[list[str]], i: int, n_columns: int) -> bool:
    return 0 <= i < len(cells) and len(cells[i]) == n_columns


def _candidates(name: str, i: int, columns: dict, manifest: dict) -> list:
    """Values that a cell may have held: what closes the row, the missing level, the other truth."""
    total, segments = manifest["total"], manifest["segments"]
    parts = {part: columns[part][i] for part in ([total] if total else []) + segments}
    others = [parts[part] for part in segments if part != name]
    if name == total and None not in others:
        return [sum(others)]
    if name in segments and total and None not in [parts[total], *others]:
        return [parts[total] - sum(others)]
    if name == manifest["agreed"]:
        return [True, False]
    return manifest["factors"].get(name, [])


def _changed_sources(recorded: dict[str, str]) -> list[str]:
    """The recorded source files that are gone from this tree or have other content in it."""

    def unchanged(name: str, digest: str) -> bool:
        file = machine.ROOT / name
        try:
            return file.is_file() and machine.source_hash(file) == digest
        except OSError:  # no name of a file, or not ours to read
            return False

    return sorted(name for name, digest in recorded.items() if not unchanged(name, digest))
