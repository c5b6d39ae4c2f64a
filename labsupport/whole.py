"""Write a directory whole or not at all, and never over anything."""

import os
import shutil
from pathlib import Path


def check(out: Path) -> Path:
    """`out` itself, once it is known that a directory can be written there.

    Raises FileExistsError when anything is at `out`, OSError when nothing can be created there.
    """
    _refuse_existing(out)
    parent = next(parent for parent in out.absolute().parents if os.path.lexists(parent))
    trial = parent / _partial(out).name
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        said = f"nothing can be created in {parent} ({error.strerror}). Choose another directory"
        raise OSError(f"{out} cannot be written: {said}.") from error
    return out


def write(out: Path, files: dict[str, bytes]) -> Path:
    """Write the files (name -> content) as the directory `out`; FileExistsError if it is there.

    They are written beside it and renamed, so that an interrupted run never looks whole.
    """
    partial = _partial(out)
    partial.mkdir(parents=True)
    try:
        for name, data in files.items():
            (partial / name).write_bytes(data)
        _refuse_existing(out)
        partial.rename(out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return out


def _partial(out: Path) -> Path:
    return out.with_name(f".{out.name}.partial-{os.getpid()}")


def _refuse_existing(out: Path) -> None:
    if os.path.lexists(out):
        said = "exists already and is left as it is. Choose another directory, or move it away"
        raise FileExistsError(f"{out} {said}.")
