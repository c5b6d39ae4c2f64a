"""When, on what machine and from which commit each lesson was last executed.

A page that comes from the execution cache was made earlier, perhaps elsewhere and from other code
than the rest of the build. The cache keeps when a lesson ran and how long it took. The machine and
the commit are noted here, when a lesson has been executed, in `_build/lesson_runs.json`.
"""

import json
from datetime import UTC, datetime
from pathlib import Path

import nbformat
from jupyter_cache import get_cache
from myst_nb.sphinx_ import NbMetadataCollector

from labsupport import machine


def executed(app, doc: str) -> bool:
    """Whether a page is one that the build executes."""
    return NbMetadataCollector.get_exec_data(app.env, doc) is not None


def begin(app) -> None:
    """What holds for the whole build: its start, the machine, the commit."""
    app.course_start = datetime.now(UTC).replace(tzinfo=None)  # as the cache counts: naive, in UTC
    app.course_machine, app.course_git = machine.describe(), machine.commit()


def cached_run(app, doc: str):
    """The record of a lesson's run in the execution cache; None where there is none."""
    nb = app.env.mystnb_config
    written = Path(nb.output_folder) / f"{doc}.ipynb"
    try:
        return get_cache(nb.execution_cache_path).match_cache_notebook(
            nbformat.read(written, as_version=4)
        )
    except (FileNotFoundError, KeyError):
        return None


def run_notes(app) -> Path:
    """The file that keeps machine and commit of each lesson's run."""
    return Path(app.env.mystnb_config.execution_cache_path).parent / "lesson_runs.json"


def read_notes(file: Path) -> dict:
    """Document name -> note of its last run."""
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def note_run(app, doctree) -> None:
    """Keep machine and commit of a lesson that this build has executed."""
    doc = app.env.docname
    run = cached_run(app, doc) if executed(app, doc) else None
    if run and run.created >= app.course_start:
        notes = read_notes(run_notes(app))
        here = {key: app.course_machine[key] for key in ("cpu", "cores", "os", "os_version")}
        here["python"] = app.course_machine["python"]
        notes[doc] = {"ran": run.created.isoformat(), "machine": here, "git": app.course_git}
        run_notes(app).write_text(json.dumps(notes, indent=1), encoding="utf-8", newline="\n")


def noted(app, doc: str, run) -> dict:
    """Machine and commit of this very run of a lesson; None each where they were not noted."""
    note = read_notes(run_notes(app)).get(doc, {})
    if note.get("ran") != run.created.isoformat():  # the note is of another run
        return {"machine": None, "git": None}
    return note


def setup(app):
    """Note each run as soon as it has ended, since the build may fail later."""
    app.connect("builder-inited", begin)
    app.connect("doctree-read", note_run)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
