"""Make .venv and install the course into it. Needs Python 3.11 to 3.13 and nothing else.

    python tools/setup_env.py

Does nothing when .venv already matches requirements.txt and pyproject.toml.
"""

from __future__ import annotations  # so that an older Python gets as far as the clear message

import hashlib
import os
import platform
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
OLDEST, NEWEST = (3, 11), (3, 13)

# PyTorch's own index of builds without CUDA. On Linux the default build of torch brings CUDA.
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def check_python(version: tuple[int, int]) -> None:
    """Stop with a remedy unless this Python is one that the pinned libraries support."""
    if not OLDEST <= version <= NEWEST:
        sys.exit(
            f"This is Python {version[0]}.{version[1]}; the course needs 3.11, 3.12 or 3.13.\n"
            "Install one of them and name it: make book PYTHON=python3.12\n"
            "(without make: python3.12 tools/setup_env.py)"
        )


def wanted_stamp() -> str:
    """What .venv was made from: the Python version, then a digest of what is installed."""
    files = [ROOT / "requirements.txt", ROOT / "pyproject.toml", Path(__file__)]
    content = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()
    return f"{platform.python_version()}\n{content}\n"


def make_venv(clear: bool) -> None:
    """Create .venv, or say what is missing."""
    try:
        venv.create(VENV, with_pip=True, clear=clear)
    except subprocess.CalledProcessError:
        sys.exit("Python's venv cannot install pip. On Debian or Ubuntu: apt install python3-venv")


def pip(*args: str, timeout_s: int | None = None) -> bool:
    """Run pip of .venv; True if it succeeded. With a timeout it tries the network only once."""
    once = ["--timeout", str(timeout_s), "--retries", "0"] if timeout_s else []
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", *once, *args]
    return subprocess.run(command, cwd=ROOT).returncode == 0


def ask(code: str) -> str:
    """What `code` prints in .venv's Python; empty if it fails."""
    done = subprocess.run([str(PYTHON), "-c", code], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def install_torch(pin: str) -> None:
    """On Linux, try the build without CUDA first; elsewhere the default build is that one."""
    have = ask("from importlib.metadata import version; print(version('torch'))")
    if sys.platform != "linux" or have.split("+")[0] == pin.split("==")[1]:
        return
    print(f"{pin}: trying PyTorch's build without CUDA (about 200 MB to download)", flush=True)
    if not pip("--no-deps", "--index-url", TORCH_CPU_INDEX, pin, timeout_s=15):
        print(
            f"{pin}: PyTorch's own index cannot be reached, so the default build is taken.\n"
            "  On Linux that one may bring CUDA libraries: some 3 GB to download, more on disk.",
            flush=True,
        )


def say_torch() -> None:
    """Say which build of torch was got, and how large it is."""
    where = "import torch, pathlib; p = pathlib.Path(torch.__file__).parent;"
    size = "sum(f.stat().st_size for f in p.rglob('*') if f.is_file())"
    print(ask(f"{where} print('torch', torch.__version__, '| CUDA:', torch.version.cuda or 'none',"
              f" '|', round({size} / 1e6), 'MB on disk')"))  # fmt: skip


def open_lessons_as_notebooks() -> None:
    """Make JupyterLab of .venv open a Markdown lesson as a notebook on double click."""
    settings = VENV / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    command = ["jupytext_config", "--settings-file", str(settings), "set-default-viewer"]
    subprocess.run([str(PYTHON), "-m", *command, "markdown"], check=True)


def main() -> None:
    check_python(sys.version_info[:2])
    stamp, wanted = VENV / "course-stamp.txt", wanted_stamp()
    have = stamp.read_text(encoding="utf-8") if stamp.is_file() else ""
    if have == wanted:
        return

    print(f"Setting up {VENV} with Python {platform.python_version()}; some minutes.", flush=True)
    if have.split("\n")[0] != platform.python_version():
        make_venv(clear=VENV.exists())
    stamp.unlink(missing_ok=True)
    pin = re.search(r"^torch==\S+", (ROOT / "requirements.txt").read_text("utf-8"), re.M).group()
    install_torch(pin)
    print(
        "Installing the libraries of requirements.txt: a few minutes, without a word.", flush=True
    )
    if not (pip("-r", "requirements.txt") and pip("--no-deps", "-e", ".")):
        sys.exit("pip could not install the course; its message stands above. Then run this again.")
    say_torch()
    open_lessons_as_notebooks()
    stamp.write_text(wanted, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
