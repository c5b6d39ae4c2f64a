"""The machine is described without naming a person or a place, and held at one thread."""

import getpass
import hashlib
import json
import os
import platform
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

from labsupport import machine

ROOT = Path(__file__).resolve().parents[1]


def in_a_new_process(script: str, **environment):
    """What a Python script prints as JSON."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


ONE_THREAD = """
import json, os, sys
{first}
from labsupport import machine
loaded = sorted({{"numpy", "torch"}} & set(sys.modules))
nothing = machine.use_one_thread()
pools = machine.describe()["thread_pools"]
print(json.dumps([loaded, nothing, pools, [os.environ[v] for v in machine.THREAD_VARIABLES]]))
"""
MANY = {variable: "2" for variable in machine.THREAD_VARIABLES}


def test_one_thread_before_numpy_is_loaded():
    loaded, nothing, pools, variables = in_a_new_process(ONE_THREAD.format(first=""), **MANY)
    assert (loaded, nothing) == ([], None)
    assert any(pool["api"] == "blas" for pool in pools)
    assert {pool["threads"] for pool in pools} <= {1, None}  # None: Accelerate does not say
    assert set(variables) == {"1"}


def test_one_thread_after_numpy_is_loaded():
    script = ONE_THREAD.format(first="import numpy")
    loaded, _, pools, _ = in_a_new_process(script, **MANY)
    assert loaded == ["numpy"]
    assert {pool["threads"] for pool in pools} <= {1, None}


def test_torch_is_named_without_being_imported():
    script = "import json, sys; from labsupport import machine; d = machine.describe()"
    torch, imported = in_a_new_process(
        f"{script}; print(json.dumps([d['torch'], 'torch' in sys.modules]))"
    )
    assert not imported
    assert torch == machine._version("torch")


def test_the_description_is_plain_and_says_what_it_must():
    described = machine.describe()
    assert json.loads(json.dumps(described)) == described
    assert described["python"] == platform.python_version()
    assert described["memory_bytes"] > 2**28
    assert described["logical_cores"] >= 1
    assert described["cpu"]
    assert 0 < described["clock_cost_ns"] < 1e6
    assert described["clock_smallest_step_ns"] >= 1


def test_a_slow_clock_is_seen_to_be_slow(monkeypatch):
    clock = time.perf_counter_ns
    _, cost_ns = machine._clock()

    def slow():
        until = clock() + 20_000
        while clock() < until:
            pass
        return until

    monkeypatch.setattr(time, "perf_counter_ns", slow)
    step_ns, slow_ns = machine._clock()
    assert slow_ns > max(3 * cost_ns, 15_000)
    assert step_ns >= 20_000


def test_no_person_and_no_place_is_named(monkeypatch):
    named = "a-students-laptop"
    monkeypatch.setattr(socket, "gethostname", lambda: named)
    monkeypatch.setattr(platform, "node", lambda: named)
    monkeypatch.setattr(getpass, "getuser", lambda: named)
    texts = json.dumps(machine.describe())
    assert named not in texts
    assert not re.search(r'["\s](/\w|[A-Za-z]:\\)', texts)
    assert str(Path.home()) not in texts


def test_sources_are_those_executed_with_portable_names_and_hashes(tmp_path):
    file = ROOT / "labsupport" / "machine.py"
    text = file.read_bytes().replace(b"\r\n", b"\n")
    hashes = machine.sources()
    assert hashes["labsupport/machine.py"] == hashlib.sha256(text).hexdigest()
    assert len(hashes) == len(list((ROOT / "labsupport").glob("*.py")))
    script = "import json; from labsupport import machine; print(json.dumps(machine.executed()))"
    assert in_a_new_process(script) == ["labsupport/__init__.py", "labsupport/machine.py"]
    (tmp_path / "machine.py").write_bytes(text.replace(b"\n", b"\r\n"))
    assert machine.source_hash(tmp_path / "machine.py") == hashes["labsupport/machine.py"]


def test_code_that_changed_since_is_named_where_it_was_executed(monkeypatch):
    before, git = machine.sources(), machine.commit()
    assert machine.changed_since(before, git) == []
    name = "labsupport/machine.py"
    assert machine.changed_since(before | {name: "0"}, git) == [name]
    assert machine.changed_since({n: x for n, x in before.items() if n != name}, git) == [name]
    monkeypatch.setattr(machine, "sources", lambda: {n: x for n, x in before.items() if n != name})
    assert machine.changed_since(before, git) == [name]  # gone from disk
    monkeypatch.setattr(machine, "sources", lambda: before | {"labsupport/unused.py": "1"})
    assert machine.changed_since(before, git) == []
    for other in (None, {"commit": "0" * 40, "clean": True}):
        monkeypatch.setattr(machine, "commit", lambda said=other: said)
        assert machine.changed_since(before, {"commit": "0" * 40, "clean": False})


def test_the_commit_is_told_with_whether_the_tree_was_clean(tmp_path, monkeypatch):
    root = tmp_path.resolve()
    monkeypatch.setattr(machine, "ROOT", root)
    assert machine.commit() is None

    def git(*arguments):
        settings = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *settings, *arguments], cwd=root, check=True, capture_output=True)

    git("init")
    assert machine.commit() is None  # no commit yet
    git("commit", "--allow-empty", "-m", "first")
    told = machine.commit()
    assert re.fullmatch("[0-9a-f]{40}", told["commit"])
    assert told["clean"]
    (root / "new.txt").write_text("x", encoding="utf-8")
    assert machine.commit() == {"commit": told["commit"], "clean": False}

    (root / "inside").mkdir()
    monkeypatch.setattr(machine, "ROOT", root / "inside")  # a package inside another's tree
    assert machine.commit() is None
    monkeypatch.setattr(machine, "ROOT", root)
    monkeypatch.setenv("PATH", "")
    assert machine.commit() is None  # no git
