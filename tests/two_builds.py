"""A second build of the book, elsewhere and from nothing; and what differs between two builds."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
from bs4 import BeautifulSoup
from repository import ROOT

LIVE = "live"  # the tag of a cell whose outputs are measured while the book is built


def copy_tree(to: Path) -> Path:
    """The files of the repository as they stand now, with nothing that was built from them."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, os.fsdecode(listed).split("\0")):
        if (ROOT / name).is_file():  # neither deleted nor a folder of its own
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def build(root: Path) -> float:
    """Build the book of that tree with its own code; the seconds it took.

    Where other work shares the machine, waiting for a core is not the build's: the seconds are
    those of the clock or of the processor, whichever are fewer.
    """
    start, worked = time.perf_counter(), processor_s()
    done = subprocess.run(
        [sys.executable, "tools/build.py"],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    took_s, worked_s = time.perf_counter() - start, processor_s() - worked
    return min(took_s, worked_s or took_s)  # Windows counts no processor's seconds of children


def processor_s() -> float:
    """Processor seconds of all processes that this one has started and seen end."""
    times = os.times()
    return times.children_user + times.children_system


def cells(html: Path, doc: str):
    """The cells of a lesson as it was executed."""
    return nbformat.read(html / "_sources" / f"{doc}.ipynb", as_version=4).cells


def is_live(cell) -> bool:
    """Whether the cell says that it shows a measurement made while the book is built."""
    return LIVE in cell.metadata.get("tags", [])


def shown(cell) -> list:
    """The outputs of a cell. What was printed is one: a kernel may send it in pieces."""
    outputs = cell.get("outputs", [])
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    return [printed, *(output for output in outputs if output.output_type != "stream")]


def differing_cells(first: list, second: list) -> list[str]:
    """Cells whose outputs differ though they show no live measurement."""
    assert [cell.source for cell in first] == [cell.source for cell in second]
    return [
        one.source
        for one, other in zip(first, second, strict=True)
        if not is_live(one) and shown(one) != shown(other)
    ]


def lasting(page: Path) -> list[str]:
    """A page's lines without its live parts: live outputs, glued values, what is marked live."""
    soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    for part in soup.select(f".tag_{LIVE} .cell_output, .pasted-text, .{LIVE}"):
        part.clear()
    return soup.decode().splitlines()


def differing_lines(first: Path, second: Path) -> list[tuple[str, str]]:
    """The lines that differ between two builds of a page, after its live parts were removed."""
    one, other = lasting(first), lasting(second)
    assert len(one) == len(other), f"{first.name}: {len(one)} lines, then {len(other)}"
    return [pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]]
