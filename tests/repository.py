"""What tests share of the repository: its files, the built book, and its commands."""

import os
import subprocess
import sys
from pathlib import Path

from labsupport import machine

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "_build" / "html"


def read(name):
    """The text of a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def course(*words, python=("-m", "labsupport")):
    """A command of the course, `python -m labsupport` with these words, run; it must succeed.

    The libraries are told to use two threads: a command that needs one has to say so itself.
    """
    two = dict.fromkeys(machine.THREAD_VARIABLES, "2")
    done = subprocess.run(
        [sys.executable, *python, *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env=os.environ | two,
    )
    assert done.returncode == 0, done.stderr
    return done
