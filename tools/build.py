"""Build the book into _build/html, executing only the lessons whose inputs changed.

    python tools/build.py

Five things are added to `jupyter-book build`. Before it, recorded evidence is audited: no page may
show figures from evidence that was altered. Lessons whose labsupport modules or evidence changed
are dropped from the execution cache, which does not see such changes. After it, the build fails if
a page of _toc.yml is missing, and each lesson's download becomes the notebook with its outputs.
These are packed, and all pages are printed to one PDF. At the end it says what ran, what came from
the cache, and how long each took.
"""

# ruff: noqa: E402 (a module is kept out before what would load it)

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

# jsonschema would load a grammar of web addresses, a second for each process, for a check that
# nothing here asks for.
sys.modules["rfc3987_syntax"] = None

import nbformat
from downloads import offer_downloads
from jupyter_cache import get_cache
from lesson_inputs import executed_lessons, files_in, lesson_digests, toc_pages

from labsupport import audit_command
from labsupport.audit import FAILED, audit

# Through this same interpreter, and again without that grammar.
JUPYTER_BOOK = """
import sys
sys.modules["rfc3987_syntax"] = None
from jupyter_book.cli.main import main
main()
"""


def drop_outdated(build: Path, lessons: dict[str, Path], digests: dict[str, str]) -> None:
    """Forget the results of every lesson whose inputs differ from those of its last run.

    What is kept has to be safe: a record stays only if it belongs to a lesson of the book at this
    very place whose digest is unchanged. The digests are stored before anything runs: from here
    on each record that exists was made from these inputs, or from later ones.
    """
    store = build / "inputs.json"
    last = json.loads(store.read_text(encoding="utf-8")) if store.is_file() else {}
    unchanged = {doc for doc in lessons if last.get(doc) == digests[doc]}

    keep = {str(lessons[doc].absolute()) for doc in unchanged}
    cache = get_cache(build / ".jupyter_cache")
    for record in cache.list_cache_records():
        if record.uri not in keep:
            cache.remove_cache(record.pk)
    for doc in set(lessons) - unchanged:
        (build / ".doctrees" / f"{doc}.doctree").unlink(missing_ok=True)  # so Sphinx reads it again
    store.write_text(json.dumps(digests, indent=1), encoding="utf-8", newline="\n")


def whole_book_mark(root: Path) -> str:
    """SHA-256 over what concerns every page: contents, settings, static files, pinned versions."""
    files = [root / name for name in ("_toc.yml", "_config.yml", "requirements.txt")]
    for folder in ("_static", "_ext"):
        files += files_in(root / folder)
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(files))).hexdigest()


def drop_unfinished(stamp: Path, mark: str) -> None:
    """Start the pages afresh unless the last build passed with this same mark.

    Sphinx does not repeat the warnings of pages that it has read, so a second run would pass where
    the first one failed. It leaves pages in place that have left the book, and it does not copy
    static files when no page changed. Executed results stay cached.
    """
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != mark:
        for name in ("html", ".doctrees", "jupyter_execute"):
            shutil.rmtree(stamp.parent / name, ignore_errors=True)
    stamp.unlink(missing_ok=True)


def missing_pages(build: Path, pages: dict[str, Path]) -> list[str]:
    """Pages of _toc.yml that have no HTML file."""
    return [doc for doc in pages if not (build / "html" / f"{doc}.html").is_file()]


def offer_executed_notebooks(build: Path, lessons: dict[str, Path]) -> dict[str, tuple[int, float]]:
    """Put each lesson's outputs into the notebook that its page offers for download.

    The theme offers the notebook that MyST-NB wrote, which has no outputs when they came from the
    cache. Returns document name -> (record in the cache, seconds the run took).
    """
    cache, runs = get_cache(build / ".jupyter_cache"), {}
    for doc in lessons:
        written = nbformat.read(build / "jupyter_execute" / f"{doc}.ipynb", as_version=4)
        pk, executed = cache.merge_match_into_notebook(written, cell_meta=())  # keep ours
        for number, cell in enumerate(executed.cells):  # MyST-NB's ids are random
            cell["id"] = f"cell-{number}"
        download = build / "html" / "_sources" / f"{doc}.ipynb"
        download.parent.mkdir(parents=True, exist_ok=True)
        download.write_text(nbformat.writes(executed), encoding="utf-8", newline="\n")
        runs[doc] = (pk, cache.get_cache_record(pk).data["execution_seconds"])
    return runs


def report(runs: dict[str, tuple[int, float]], before: set[int], build: Path, took_s: float) -> str:
    """What was executed, what came from the cache, and where to open the book."""
    lines = []
    for doc, (pk, seconds) in runs.items():
        how = "from the cache; its run took" if pk in before else "executed in"
        lines.append(f"  {doc:<24} {how} {seconds:.1f} s")
    ran = sum(pk not in before for pk, _ in runs.values())
    lines.append(f"{ran or 'Nothing'} executed; {len(runs) - ran} of {len(runs)} from the cache.")
    lines.append(f"Built in {took_s:.0f} s. Open {(build / 'html' / 'index.html').as_uri()}")
    lines.append("or run `make serve`, over which search and downloads work as on the web.")
    return "\n".join(lines)


def build_book(root: Path, audits: dict[str, list]) -> int:
    """Build the book at `root`; returns the exit code. See the module's docstring.

    `audits` has what `audit_evidence` found, for the status page.
    """
    start, build = time.perf_counter(), root / "_build"
    build.mkdir(exist_ok=True)
    pages, lessons = toc_pages(root), executed_lessons(root)
    drop_outdated(build, lessons, lesson_digests(root))
    stamp, mark = build / "passed", whole_book_mark(root)
    drop_unfinished(stamp, mark)
    before = {record.pk for record in get_cache(build / ".jupyter_cache").list_cache_records()}

    command = [sys.executable, "-c", JUPYTER_BOOK, "build", str(root), "-W", "-n", "--keep-going"]
    told = {
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # else the kernel's debugger warns on each start
        "COURSE_AUDITS": json.dumps(audits),
    }
    code = subprocess.run(command, env=os.environ | told).returncode
    if code:
        print("The book was not built: the cause stands above.", file=sys.stderr)
        return code
    if missing := missing_pages(build, pages):
        print(f"Pages of _toc.yml without HTML: {', '.join(missing)}", file=sys.stderr)
        return 1

    runs = offer_executed_notebooks(build, lessons)
    notes = offer_downloads(root)
    stamp.write_text(mark, encoding="utf-8")
    print(report(runs, before, build, time.perf_counter() - start), *notes, sep="\n")
    return 0


def audit_evidence(root: Path) -> dict[str, list]:
    """Audit each directory of evidence/, printing what fails.

    Returns name -> [the audit's answer, source files changed since].
    """
    answers = {}
    for path in sorted(path for path in (root / "evidence").iterdir() if path.is_dir()):
        answer = audit(path)
        answers[path.name] = [answer.status, list(answer.changed_sources)]
        if answer.status == FAILED:
            print(audit_command.report(path.relative_to(root).as_posix(), answer), file=sys.stderr)
    return answers


if __name__ == "__main__":
    ROOT = Path(__file__).resolve().parent.parent
    audits = audit_evidence(ROOT)
    failed = any(status == FAILED for status, _ in audits.values())
    sys.exit(1 if failed else build_book(ROOT, audits))
