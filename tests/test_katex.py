"""Formulas are typeset while the book is built, by the node that the pins bring."""

import re
import socket
from subprocess import Popen
from types import SimpleNamespace

import katex
import pytest
import sphinxcontrib.katex
from repository import ROOT


@pytest.fixture
def typeset(monkeypatch):
    """typeset(latex) -> HTML, with the settings of the book; what was set is set back after it."""
    for name in ("NODEJS_BINARY", "STARTUP_TIMEOUT", "RENDER_TIMEOUT", "KATEX_DEFAULT_OPTIONS"):
        monkeypatch.setattr(sphinxcontrib.katex, name, getattr(sphinxcontrib.katex, name))
    server = sphinxcontrib.katex.KaTeXServer
    monkeypatch.setattr(server, "start_server_process", server.start_server_process)
    monkeypatch.setattr(server, "katex_server", None)
    monkeypatch.setenv("PATH", "")  # no other node is found
    katex.setup(SimpleNamespace(setup_extension=lambda name: None))
    return sphinxcontrib.katex.render_latex


def test_a_formula_is_drawn_and_read_aloud(typeset):
    html = typeset(r"\frac{1}{d}")
    assert 'class="katex-html"' in html
    assert "<mfrac>" in html


@pytest.mark.parametrize("latex", [r"\fracc{1}{d}", r"\frac{1", "ü"])
def test_what_cannot_be_read_is_an_error(typeset, latex):
    with pytest.raises(sphinxcontrib.katex.KaTeXError):
        typeset(latex)


def test_a_server_that_does_not_listen_yet_is_asked_again(typeset, monkeypatch):
    left = [ConnectionRefusedError()] * 3
    connect = socket.socket.connect

    class Late(socket.socket):
        def connect(self, address):
            if left:
                raise left.pop()
            return connect(self, address)

    started = []
    monkeypatch.setattr(socket, "socket", Late)
    monkeypatch.setattr(
        sphinxcontrib.katex, "Popen", lambda *a, **k: started.append(Popen(*a, **k)) or started[-1]
    )
    server = sphinxcontrib.katex.KaTeXServer.start()
    assert not left
    assert len(started) == 1  # none is left behind; this one ends with the tests
    assert "html" in server.render({"latex": "x", "katex_options": {}})


def test_the_style_sheet_is_of_the_version_that_typesets():
    css = (ROOT / "_static/katex/katex.min.css").read_text(encoding="utf-8")
    assert re.search(r'content:"([\d.]+)"', css)[1] == sphinxcontrib.katex.katex_version


def test_every_font_of_the_style_sheet_is_there():
    folder = ROOT / "_static/katex"
    named = re.findall(r"url\(([^)]*)\)", (folder / "katex.min.css").read_text(encoding="utf-8"))
    assert {folder / name for name in named} == set((folder / "fonts").iterdir())
