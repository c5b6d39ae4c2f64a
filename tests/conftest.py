"""What tests share: which of them can run here, a browser, and a doctored measurement."""

import os
import sys

import pytest
from browser import fetch, launch
from playwright.sync_api import sync_playwright

from labsupport import sandbox

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


@pytest.fixture(scope="session")
def browser():
    """Chromium. A missing browser is an error, never a skip; only outside CI is one fetched."""
    with sync_playwright() as playwright:
        started = launch(playwright.chromium)
        if not started and not os.environ.get("CI"):
            fetch()
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
