"""The command line: one readable answer, an exit code, and no module loaded that is not called."""

import importlib
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
import sample_run

from labsupport import __main__ as cli
from labsupport import audit, machine, profile

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def run(tmp_path):
    """The directory of an intact run."""
    return sample_run.write(tmp_path / "run")


def change(file: Path, old: bytes, new: bytes) -> None:
    content = file.read_bytes()
    assert old in content
    file.write_bytes(content.replace(old, new, 1))


def test_an_intact_run(run, capsys):
    assert cli.main(["audit", str(run)]) == 0
    assert capsys.readouterr().out == f"{run}: intact\n"


def test_other_code_is_told_from_damage(run, tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(machine.PACKAGE, tree / "labsupport")
    changed, same = tree / "labsupport" / "books.py", tree / "labsupport" / "places.py"
    changed.write_bytes(changed.read_bytes() + b"# changed\n")
    same.write_bytes(same.read_bytes().replace(b"\n", b"\r\n"))  # as a Windows checkout has it
    command = [sys.executable, "-m", "labsupport", "audit", str(run)]
    done = subprocess.run(command, cwd=tree, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{run}: {audit.OTHER_CODE}\n  labsupport/books.py\n")
    assert "places.py" not in done.stdout


def test_a_damaged_run_is_answered_with_the_place_and_what_to_do(run, capsys):
    change(run / "raw.csv", b"True", b"False")
    assert cli.main(["audit", str(run)]) == 1
    status, place, *_ = capsys.readouterr().out.splitlines()
    assert status == f"{run}: failed"
    assert place.startswith('  raw.csv:2:agreed: found "False"')
    assert place.endswith('expected "True"')


def test_the_answer_ends_with_the_next_step(run, capsys):
    change(run / "manifest.json", b'"width": 16', b'"width": 32')
    assert cli.main(["audit", str(run)]) == 1
    out = capsys.readouterr().out
    assert "  manifest.json:config.width: found 32" in out
    assert "was not checked" in out
    assert f"git restore --source=HEAD --staged --worktree -- {run}" in out


def test_a_long_list_is_cut_and_counted(run, capsys):
    raw = run / "raw.csv"
    raw.write_bytes(raw.read_bytes().replace(b"True", b"False"))
    assert cli.main(["audit", str(run)]) == 1
    assert "\n  and 52 more\n" in capsys.readouterr().out  # 36 changed, 36 disagree, 20 shown


def test_several_runs_fail_when_one_does(run, tmp_path, capsys):
    other = sample_run.write(tmp_path / "other")
    change(other / "summary.json", b'"n": 12', b'"n": 13')
    assert cli.main(["audit", str(run), str(other)]) == 1
    out = capsys.readouterr().out
    assert f"{run}: intact" in out
    assert "summary.json:rows[0].total_ns.n: found 13, but the rows of raw.csv give 12" in out


def test_what_is_no_run_is_a_usage_error(run, tmp_path, capsys):
    assert cli.main(["audit", str(tmp_path / "nowhere")]) == 2
    assert "is not a directory" in capsys.readouterr().err
    assert cli.main(["audit", str(tmp_path)]) == 2
    assert f"Did you mean {run}?" in capsys.readouterr().err
    for wrong in ([], ["audit"], ["no-such-command"], ["audit", "--no-such-option"]):
        with pytest.raises(SystemExit) as stopped:
            cli.main(wrong)
        assert stopped.value.code == 2


def test_characters_of_any_kind_can_be_printed(run):
    change(run / "raw.csv", b"agreed\n", "agreed,\u0444\u2713".encode() + b"\xff\x07\n")
    command = [sys.executable, "-X", "utf8=0", "-m", "labsupport", "audit", str(run)]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONIOENCODING": "ascii"}, capture_output=True)
    assert done.returncode == 1, done.stderr
    assert b"raw.csv:" in done.stdout


def test_no_command_is_imported_before_it_is_called():
    script = "import sys; from labsupport import __main__ as cli\ntry: cli.main(['--help'])\n"
    script += "except SystemExit: pass\nprint(*sorted(m for m in sys.modules), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, encoding="utf-8"
    )
    loaded = set(done.stdout.splitlines())
    assert {name for name in loaded if name.startswith("labsupport")} == {
        "labsupport",
        "labsupport.__main__",
    }
    assert not {"numpy", "pandas"} & loaded
    assert all(f"  {name}" in done.stdout for name in cli.COMMANDS)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_each_command_has_what_the_table_needs(name, capsys):
    module = importlib.import_module(cli.COMMANDS[name]["module"])
    assert callable(module.main)
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])
    assert stopped.value.code == 0
    assert f"python -m labsupport {name}" in capsys.readouterr().out


def test_a_command_is_added_in_one_line(monkeypatch, capsys, tmp_path):
    added = types.ModuleType("added")
    added.add_arguments = lambda parser: parser.add_argument("--out")

    def main(args):
        if args.out == "interrupted":
            raise KeyboardInterrupt
        raise FileExistsError(f"{args.out} exists already")

    added.main = main
    monkeypatch.setitem(sys.modules, "added", added)
    monkeypatch.setitem(cli.COMMANDS, "added", {"module": "added", "purpose": "does it"})
    assert cli.main(["added", "--out", "x"]) == 2
    assert capsys.readouterr().err == "x exists already\n"
    assert cli.main(["added", "--out", "interrupted"]) == 130


def test_sizes_that_do_not_fit_into_memory_are_one_clear_error(tmp_path, monkeypatch, capsys):
    def too_large(case):
        raise MemoryError("Unable to allocate 58.2 TiB")

    monkeypatch.setattr(profile, "measure", too_large)
    assert cli.main(["profile", "--out", str(tmp_path / "run")]) == 2
    assert "58.2 TiB. Choose smaller ones." in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
