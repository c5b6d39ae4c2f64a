"""The machine and the code that made a run: threads, versions, processor, clock, sources, commit.

Nothing here names a person or a place: no host name, no user name, no path. Importing this module
loads neither NumPy nor torch, so that `use_one_thread` can come before them.
"""

import hashlib
import importlib.metadata
import itertools
import os
import platform
import re
import statistics
import subprocess
import sys
import time
import timeit
from pathlib import Path

import psutil
import threadpoolctl

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent  # the repository, when the package is installed editable

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def use_one_thread() -> None:
    """Hold every thread pool of the numeric libraries at one thread, for the rest of the process.

    Call it before NumPy is imported: some libraries read these variables only once. Pools that are
    loaded already are limited as well.
    """
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    if "numpy" in sys.modules:
        threadpoolctl.threadpool_limits(limits=1)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def threads_in_use() -> int | None:
    """1, as threadpoolctl sees it, or None where it sees no pool; RuntimeError for more threads."""
    threads = {pool["num_threads"] for pool in threadpoolctl.threadpool_info()}
    if threads - {1}:
        raise RuntimeError(
            f"A library that NumPy uses runs {max(threads)} threads though it was told to run one. "
            f"Set {THREAD_VARIABLES[1]}=1 before Python starts, and try again."
        )
    return 1 if threads else None


def describe() -> dict:
    """Describe this machine and its software in plain JSON values.

    Times are in nanoseconds (`_ns`), memory in bytes (`_bytes`); what cannot be told is None.
    Torch is named by its installed version, without importing it.
    """
    step_ns, cost_ns = _clock()
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "numpy": _version("numpy"),
        "torch": _version("torch"),
        "thread_pools": _thread_pools(),
        "cpu": _cpu(),
        "architecture": platform.machine(),
        "cores": psutil.cpu_count(logical=False),
        "logical_cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "os": platform.system(),
        "os_version": _leading_numbers(platform.mac_ver()[0] or platform.release()),
        "clock": "perf_counter_ns",
        "clock_resolution_ns": time.get_clock_info("perf_counter").resolution * 1e9,
        "clock_smallest_step_ns": step_ns,
        "clock_cost_ns": cost_ns,
    }


def sources() -> dict[str, str]:
    """SHA-256 of each source file of this package as it lies on disk, executed or not.

    Keys are names from the repository's root, such as "labsupport/timing.py".
    """
    files = sorted(file for file in PACKAGE.rglob("*.py") if file.is_file())
    return {_from_root(file): source_hash(file) for file in files}


def executed() -> list[str]:
    """The source files of this package that the running process has executed, named as above."""
    modules = [m for name, m in list(sys.modules.items()) if _is_ours(name)]
    files = {Path(m.__file__).resolve() for m in modules if getattr(m, "__file__", None)}
    return [_from_root(file) for file in sorted(files) if PACKAGE in file.parents]


def changed_since(before: dict[str, str], git: dict | None) -> list[str]:
    """What of the executed code is not as earlier `sources` and `commit` said; empty if nothing."""
    now = sources()
    changed = [name for name in executed() if name not in now or now[name] != before.get(name)]
    if not changed and commit() != git:
        return ["what git says of the commit and of uncommitted changes"]
    return changed


def source_hash(file: Path) -> str:
    """SHA-256 of a source file with LF line ends, so that a Windows checkout has the same hash."""
    return hashlib.sha256(file.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def commit() -> dict | None:
    """The repository's commit and whether its tree was clean; None where git cannot tell."""
    top = _git("rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != ROOT:  # the package lies in nobody's or another's tree
        return None
    head, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain")
    return None if head is None else {"commit": head, "clean": changes == ""}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, encoding="utf-8", timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _from_root(file: Path) -> str:
    return file.relative_to(PACKAGE.parent).as_posix()


def _is_ours(name: str) -> bool:
    return name in ("__main__", "labsupport") or name.startswith("labsupport.")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _thread_pools() -> list[dict]:
    """The loaded BLAS and OpenMP libraries; a BLAS that threadpoolctl cannot see comes from NumPy's
    own build record, its threads unknown (Accelerate on macOS)."""
    import numpy as np

    kept = {
        "user_api": "api",
        "internal_api": "name",
        "version": "version",
        "num_threads": "threads",
    }
    pools = [
        {to: pool.get(at) for at, to in kept.items()} for pool in threadpoolctl.threadpool_info()
    ]
    if not any(pool["api"] == "blas" for pool in pools):
        built = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
        name, version = built.get("name"), built.get("version")
        pools.append({"api": "blas", "name": name, "version": version, "threads": None})
    return pools


def _cpu() -> str | None:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text("utf-8", "replace"), re.M)
        if found:
            return found[1].strip()
    if platform.system() == "Darwin":
        asked = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(asked, capture_output=True, encoding="utf-8").stdout.strip() or None
    return platform.processor() or platform.machine() or None


def _leading_numbers(version: str) -> str:
    """ "6.1.0-13-amd64" -> "6.1.0": what follows names a build, not a version."""
    found = re.match(r"\d+(\.\d+)*", version)
    return found[0] if found else version


def _clock() -> tuple[int, float]:
    """Smallest step the clock was seen to make, and what one reading of it costs, both in ns."""
    clock = time.perf_counter_ns
    stamps = [clock() for _ in range(2001)]
    steps = [b - a for a, b in itertools.pairwise(stamps) if b > a]

    n = 1000
    read_s = statistics.median(timeit.repeat(clock, number=n, repeat=51))
    loop_s = statistics.median(timeit.repeat("pass", number=n, repeat=51))
    return min(steps, default=0), round((read_s - loop_s) / n * 1e9, 2)
