"""A sandbox for programs that nobody has read: what a submission's kernel may see, use and do.

Bubblewrap gives it namespaces of its own (processes, network, IPC, host name, users) and a view of
the files that holds the system's programs, Python, `labsupport` and `evidence`, all read-only, and
a scratch folder in memory. Nothing on the host's disk can be written. `prlimit` sets the limits of
a process; those of the whole (memory, time, output) are watched from outside by `sandbox_execute`.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from labsupport import machine
from labsupport.machine import PACKAGE, THREAD_VARIABLES

MB = 10**6
GIB = 2**30
SCRATCH = "/tmp"  # home, working directory and the only place to write, besides /dev/shm
OPEN_FILES = 256
PROGRAMS = ("bwrap", "prlimit", "setpriv")
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin")
LOADER = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/etc/fonts")
PROCESSORS = "/sys/devices/system/cpu"  # numeric libraries look up the processor there


@dataclass(frozen=True)
class Limits:
    """What one submission may use.

    - `memory_bytes`: resident memory of all its processes together, without the scratch folder
    - `address_bytes`: address space of a process
    - `processes`: processes and threads at a time
    - `scratch_bytes`: the scratch folder, and as much again for shared memory
    - `file_bytes`: a file
    - `output_bytes`: what all cells together send, pictures and echoed sources included
    - `cell_s`, `total_s`: seconds on the clock that a cell, and all of them with the kernel's
      start, may take
    """

    memory_bytes: int = 3 * GIB
    address_bytes: int = 16 * GIB
    processes: int = 64
    scratch_bytes: int = 256 * 2**20
    file_bytes: int = 256 * 2**20
    output_bytes: int = 4 * MB
    cell_s: float = 60
    total_s: float = 300


def refusal() -> str | None:
    """Why no sandbox works here, with the remedy; None if one does (it is tried)."""
    if not sys.platform.startswith("linux"):
        return "The sandbox needs Linux: grade there, in a virtual machine or a container."
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        return (
            f"The sandbox needs {' and '.join(missing)}, which cannot be found. "
            "On Debian and Ubuntu: apt install bubblewrap util-linux."
        )
    if shows(machine.ROOT / "exercises"):
        return (
            "Python's folder, or one of the system's, holds the course: move the course, or make a "
            "virtual environment in a folder of its own."
        )
    try:
        line = command([sys.executable, "-c", ""], Limits())
        done = subprocess.run(line, capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"A sandbox does not start here ({type(error).__name__})."
    if not done.returncode:
        return None
    why = done.stderr.decode(errors="replace").strip().splitlines() or ["it says nothing"]
    return (
        f"A sandbox does not start here ({why[-1][:200]}). User namespaces may be switched off: "
        "see the settings kernel.unprivileged_userns_clone, user.max_user_namespaces and "
        "kernel.apparmor_restrict_unprivileged_userns, and those of the container."
    )


def shows(path: Path) -> bool:
    """Whether what lies at a path can be read in a sandbox."""
    seen = (*SYSTEM, *_pythons(), PACKAGE, machine.ROOT / "evidence")
    return any(path.resolve().is_relative_to(Path(folder).resolve()) for folder in seen)


def command(program: list[str], limits: Limits, given: dict[str, int] | None = None) -> list[str]:
    """The command line that runs `program` in a sandbox.

    `given` maps paths in the sandbox to descriptors, open in the process that starts it, whose
    content becomes a read-only file there. A process limit does not hold for root, in whatever
    namespace. So root first takes on another user's id, and Python may lie where that user cannot
    go; hence two sandboxes then: an outer one that places the files, an inner one for the users.
    """
    users = ["--unshare-user", "--disable-userns"]
    held = ["prlimit", *_limits(limits), *program]
    if os.geteuid():
        return ["bwrap", *users, *_rooms(), *_files(limits, given or {}), "--", *held]
    someone = str(20_000 + os.getpid() % 40_000)
    drop = ["setpriv", "--reuid", someone, "--regid", someone, "--clear-groups", "--no-new-privs"]
    may = ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    outer = ["bwrap", *may, *_rooms(), *_files(limits, given or {}), "--", *drop]
    return [*outer, "bwrap", *users, "--dev-bind", "/", "/", "--", *held]


def _limits(limits: Limits) -> list[str]:
    return [
        f"--as={limits.address_bytes}",
        f"--fsize={limits.file_bytes}",
        f"--nproc={limits.processes}",
        f"--nofile={OPEN_FILES}",
        "--core=0",
    ]


def _rooms() -> list[str]:
    """Namespaces, and an end together with the process that started it all."""
    rooms = [f"--unshare-{kind}" for kind in ("pid", "net", "ipc", "uts")]
    return [*rooms, "--hostname", "sandbox", "--new-session", "--die-with-parent"]


def _files(limits: Limits, given: dict[str, int]) -> list[str]:
    """The files to be seen and the environment, in the order in which bubblewrap places them."""
    room = ["--perms", "1777", "--size", str(limits.scratch_bytes), "--tmpfs"]
    words = ["--proc", "/proc", "--dev", "/dev", *room, "/dev/shm", "--remount-ro", "/dev"]
    words += [*room, SCRATCH]
    for path in (*SYSTEM, *LOADER, PROCESSORS):
        words += ["--ro-bind-try", path, path]
    course = [str(path) for path in (PACKAGE, machine.ROOT / "evidence") if path.exists()]
    for path in [*_pythons(), *course]:
        words += [*_ways(path), "--ro-bind", path, path]
    for path in sorted(PACKAGE.glob("checks_*.py")):  # they hold right answers
        words += ["--ro-bind", str(PACKAGE / "unchecked.py"), str(path)]
    if (compiled := PACKAGE / "__pycache__").is_dir():  # so do their compiled forms
        words += ["--tmpfs", str(compiled), "--remount-ro", str(compiled)]
    for path, descriptor in given.items():
        words += ["--perms", "0444", "--ro-bind-data", str(descriptor), path]
    words += ["--remount-ro", "/", "--chdir", SCRATCH, "--clearenv"]
    for name, value in environment().items():
        words += ["--setenv", name, value]
    return words


def _ways(path: str) -> list[str]:
    """The empty folders that lead to a path, open to all as bubblewrap's own would not be."""
    return [word for way in reversed(Path(path).parents) for word in ("--dir", str(way))]


def _pythons() -> list[str]:
    """The folders that this Python and its packages lie in: its own and those it was made from."""
    binary = Path(sys.executable).resolve().parent
    home = binary.parent if binary.name == "bin" else binary
    return list(dict.fromkeys(map(str, (sys.base_prefix, home, sys.prefix))))


def environment() -> dict[str, str]:
    """All environment variables in the sandbox."""
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"]),
        "PYTHONPATH": str(PACKAGE.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
        "USER": "student",
        "HOME": SCRATCH,
        "MPLCONFIGDIR": f"{SCRATCH}/matplotlib",
        "IPYTHONDIR": f"{SCRATCH}/ipython",
        "NUMBA_CACHE_DIR": f"{SCRATCH}/numba",
        **dict.fromkeys(THREAD_VARIABLES, "1"),
    }
