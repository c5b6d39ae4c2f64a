"""What tests share: the repository's files, the built book on loopback, and a browser."""

import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from playwright.sync_api import Error, sync_playwright

from labsupport import machine, sandbox

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "_build" / "html"
ON_PATH = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

NO_BROWSER = """No browser could be started. The site tests need one. Do one of these:
  - install Chromium or Chrome, so that it is on the PATH (Debian: apt-get install chromium);
  - let Playwright fetch its own: python -m playwright install chromium"""

# Submissions are graded in a sandbox that only Linux has. Where there is none its tests are left
# out, and the header says so; on Linux in CI they run, and fail.
NO_SANDBOX = sandbox.refusal()
if NO_SANDBOX and not (sys.platform.startswith("linux") and os.environ.get("CI") == "true"):
    collect_ignore = ["test_sandbox.py", "test_grading_class.py"]


def pytest_report_header():
    """What is left out here, and why."""
    return f"left out, the tests of grading in a sandbox: {NO_SANDBOX}" if NO_SANDBOX else ""


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


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files and writes no log."""

    def log_message(self, *args):
        pass


@pytest.fixture(scope="session")
def site():
    """The address of the built book, served on loopback for as long as the tests run."""
    if not (ROOT / "_build" / "passed").is_file():
        pytest.fail("There is no book that was built without error. Run: make book")
    handler = functools.partial(QuietHandler, directory=HTML)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def launch(chromium):
    """The first browser that starts: the one on the PATH, Playwright's own, or Chrome."""
    flags = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    flags += ["--disable-background-networking", "--disable-component-update"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags.append("--no-sandbox")  # Chromium's sandbox refuses to run as root

    found = next(filter(None, map(shutil.which, ON_PATH)), None)
    choices = [{"executable_path": found}] if found else []
    for choice in [*choices, {}, {"channel": "chrome"}]:
        try:
            return chromium.launch(args=flags, **choice)
        except Error:
            continue
    return None


@pytest.fixture(scope="session")
def browser():
    """Chromium. A missing browser is an error, never a skip; only outside CI is one fetched."""
    with sync_playwright() as playwright:
        started = launch(playwright.chromium)
        if not started and not os.environ.get("CI"):
            subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"])
            started = launch(playwright.chromium)
        if not started:
            pytest.fail(NO_BROWSER)
        yield started
        started.close()


@pytest.fixture
def disagreeing(monkeypatch):
    """One path of `labsupport.profile` gives outputs that differ by more than the tolerance."""
    from labsupport import profile  # here, so that collecting the tests does not load NumPy

    def spoiled(*asked):
        outputs, stamps = profile.full(*asked)
        return outputs + 1e-9, stamps

    monkeypatch.setitem(profile.PATHS, "frozen", spoiled)
