"""A Chromium: for the tests of the site, and to print the course."""

import os
import shutil
import subprocess
import sys
from contextlib import suppress

from playwright.sync_api import Error

ON_PATH = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def launch(chromium):
    """The first browser that starts: the one on the PATH, Playwright's own, or Chrome; or None."""
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


def fetch(*options: str, patience_s: float | None = None) -> None:
    """Let Playwright download its own Chromium; quietly, and not for long, if patience is limited.

    A download that is still running then goes on by itself, so that the next call finds it.
    """
    command = [sys.executable, "-m", "playwright", "install", *options, "chromium"]
    if patience_s is None:
        subprocess.run(command)
        return
    quick = {"PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT": "3000"}  # ms, for each of its five attempts
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(command, env=os.environ | quick, timeout=patience_s, **silent)
