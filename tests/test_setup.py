"""Set-up: which Python it takes, which torch, and when it has nothing to do."""

import ast
import sys
from pathlib import Path

import pytest
import setup_env


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13)])
def test_supported_versions_pass(version):
    setup_env.check_python(version)


@pytest.mark.parametrize("version", [(3, 10), (3, 14)])
def test_other_versions_are_refused_with_a_remedy(version):
    with pytest.raises(SystemExit, match=r"needs 3\.11, 3\.12 or 3\.13[\s\S]*PYTHON=python3"):
        setup_env.check_python(version)


def test_an_older_python_gets_as_far_as_that_remedy():
    source = Path(setup_env.__file__).read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 7))
    assert "from __future__ import annotations" in source


@pytest.fixture
def calls(monkeypatch):
    """The arguments of each pip call, none of which is made; every one fails."""
    made = []
    monkeypatch.setattr(setup_env, "pip", lambda *args, **options: made.append((args, options)))
    return made


def test_on_linux_the_small_torch_is_tried_once_and_its_absence_is_told(monkeypatch, capsys, calls):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(setup_env, "ask", lambda code: "")
    setup_env.install_torch("torch==2.13.0")
    (args, options), *more = calls
    assert not more
    assert setup_env.TORCH_CPU_INDEX in args
    assert options["timeout_s"] <= 15
    assert "cannot be reached" in capsys.readouterr().out


@pytest.mark.parametrize(("platform", "have"), [("linux", "2.13.0+cpu"), ("darwin", "")])
def test_torch_is_left_alone_where_it_is_right(monkeypatch, calls, platform, have):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(setup_env, "ask", lambda code: have)
    setup_env.install_torch("torch==2.13.0")
    assert calls == []


@pytest.fixture
def done(monkeypatch, tmp_path, calls):
    """A course whose .venv matches its requirements."""
    for name in ("requirements.txt", "pyproject.toml"):
        (tmp_path / name).write_text("torch==2.13.0\n", encoding="utf-8")
    monkeypatch.setattr(setup_env, "ROOT", tmp_path)
    monkeypatch.setattr(setup_env, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(setup_env, "ask", lambda code: "2.13.0")
    stamp = tmp_path / ".venv" / "course-stamp.txt"
    stamp.parent.mkdir()
    stamp.write_text(setup_env.wanted_stamp(), encoding="utf-8")
    return tmp_path


def test_nothing_is_done_twice(done, calls, capsys):
    setup_env.main()
    assert calls == []
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["requirements.txt", "pyproject.toml"])
def test_a_change_of_what_is_installed_installs_again(done, calls, name):
    (done / name).write_text("torch==2.13.0\n# changed\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="pip could not install"):  # our stand-in always fails
        setup_env.main()
    assert ("-r", "requirements.txt") in [args for args, _ in calls]
    assert not (done / ".venv" / "course-stamp.txt").exists()  # so that the next run tries again
