"""Every recorded or transcribed directory of evidence/ is what it was when it was sealed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jupytext
import pytest

from labsupport.audit import audit

ROOT = Path(__file__).parents[1]
SHIPPED = sorted(path for path in (ROOT / "evidence").iterdir() if path.is_dir())
sys.path.insert(0, str(ROOT / "tools"))
from lesson_inputs import executed_lessons  # noqa: E402


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_evidence_is_what_was_sealed(path):
    answer = audit(path)
    assert answer.status != "failed", f"run: python -m labsupport audit {path}\n{answer.problems}"


def test_no_book_is_built_from_changed_evidence(tmp_path):
    for folder in ("evidence", "labsupport", "tools"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    table = tmp_path / "evidence" / "stall-log" / "repeats.txt"
    table.write_text(table.read_text(encoding="utf-8").replace("841", "842"), encoding="utf-8")
    command = [sys.executable, tmp_path / "tools" / "build.py"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8")
    assert done.returncode == 1
    assert "repeats.txt:5" in done.stderr
    assert not (tmp_path / "_build").exists()


@pytest.mark.parametrize("lesson", executed_lessons(ROOT).values(), ids=lambda path: path.stem)
def test_a_lesson_is_saved_by_jupyterlab_as_it_is(lesson):
    """Else opening it as a notebook rewrites it, and saving shows changes nobody made."""
    text = lesson.read_text(encoding="utf-8")
    saved = jupytext.writes(jupytext.reads(text, fmt="md:myst"), fmt="md:myst")
    assert saved == text, f"run: jupytext --to md:myst {lesson.relative_to(ROOT)}"
