"""The course of a command that records a run, with parts that do nothing but note their calls."""

from types import SimpleNamespace

import pytest

from labsupport import evidence, recording


@pytest.fixture
def run(tmp_path):
    """Calls `recording.run` with parts that give or raise what is given: (code, calls, args)."""

    def call(out=tmp_path / "run", **given):
        called = []

        def part(name):
            def noted(*arguments):
                called.append((name, *arguments))
                if isinstance(given.get(name), Exception):
                    raise given[name]
                return given.get(name)

            return noted

        args = SimpleNamespace(out=out)
        parts = [part(name) for name in ("options", "record", "show")]
        return recording.run(args, "weigh", *parts), called, args

    return call


def test_parts_are_called_in_turn_and_the_audit_comes_next(run, tmp_path, capsys):
    code, called, args = run(options="meant", record="found")
    (_, *asked), (_, begun, meant), (_, *shown) = called
    assert [code, asked, meant, shown] == [0, [args], "meant", ["found"]]
    assert isinstance(begun, evidence.Begun)
    assert begun.out == tmp_path / "run"
    assert f"python -m labsupport audit {begun.out}" in capsys.readouterr().out


@pytest.mark.parametrize("error", [OSError("no file"), TypeError("no int"), ValueError("no.")])
def test_wrong_options_are_2_and_nothing_is_measured(run, capsys, error):
    code, called, _ = run(options=error)
    assert [code, len(called)] == [2, 1]
    said = capsys.readouterr().err
    assert said == f"{str(error).rstrip('.')}. See: python -m labsupport weigh --help\n"


def test_a_place_that_is_taken_is_2_and_nothing_is_measured(run, tmp_path, capsys):
    code, called, _ = run(out=tmp_path)
    assert [code, [name for name, *_ in called]] == [2, ["options"]]
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [FloatingPointError, RuntimeError, ValueError])
def test_a_run_that_cannot_be_trusted_is_1_and_nothing_is_shown(run, capsys, kind):
    code, called, _ = run(record=kind("the code changed"))
    assert [code, [name for name, *_ in called]] == [1, ["options", "record"]]
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "the code changed\n")


def test_other_errors_are_not_swallowed(run):
    with pytest.raises(KeyError):
        run(record=KeyError("a slip"))
