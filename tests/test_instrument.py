"""The bench of timing tools: its noise, its questions, the tools asked, the counts, the command."""

import argparse
import itertools
import math
import shlex
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import psutil
import pyperf
import pytest
from repository import ROOT

from labsupport import (
    bench_command,
    evidence,
    instrument,
    instrument_command,
    noise,
    questions,
    rivals,
)
from labsupport.instrument import NOT_ASKED, OURS, TOOLS
from labsupport.noise import NOISES, neighbours
from labsupport.questions import QUESTIONS, Asked

PATIENCE_S = 30  # for a process to end or to do something, on however busy a machine


# ---------------------------------------------------------------- noise


def first(n, turns):
    return np.array([next(turns) for _ in range(n)])  # [n, (work, rest)]


def test_bursts_are_random_within_their_bounds_and_fixed_by_the_seed():
    rng = noise.random.Random(1)
    turns = first(500, noise.bursts(rng, 2.0))
    shortest, longest = noise.BURST_S
    assert turns.min() >= shortest
    assert turns.max() <= longest
    assert turns.std() > 0.2 * (longest - shortest)
    again = first(500, noise.bursts(noise.random.Random(1), 2.0))
    assert (turns == again).all()
    assert not (turns == first(500, noise.bursts(rng, 2.0))).any()


def test_a_ramp_grows_from_no_work_to_no_rest_in_its_span():
    work, rest = first(200, noise.ramp(None, 2.0)).T
    assert work + rest == pytest.approx(noise.SLICE_S)
    assert (work[0], work[-1]) == (0, noise.SLICE_S)
    elapsed = np.arange(200) * noise.SLICE_S
    assert work == pytest.approx(noise.SLICE_S * np.minimum(elapsed / 2.0, 1))


def test_the_load_never_rests():
    assert (first(10, noise.loaded(None, 2.0))[:, 1] == 0).all()


@pytest.mark.parametrize("name", [name for name in NOISES if name != "quiet"])
def test_a_noise_is_one_neighbour_a_core_at_work_until_the_context_ends(name):
    with neighbours(name, seed=1, span_s=0.1) as started:
        processes = [psutil.Process(process.pid) for process in started]
        waited_s = time.monotonic() + PATIENCE_S
        before = [sum(process.cpu_times()[:2]) for process in processes]
        while time.monotonic() < waited_s and not all(
            sum(p.cpu_times()[:2]) > start + 0.1 for p, start in zip(processes, before, strict=True)
        ):
            time.sleep(0.05)
        worked = [
            sum(p.cpu_times()[:2]) - start for p, start in zip(processes, before, strict=True)
        ]
        if hasattr(noise.os, "sched_getaffinity"):
            held = [process.cpu_affinity() for process in processes]
            assert held == [[core] for core in sorted(noise.os.sched_getaffinity(0))]
    assert min(worked) > 0.1
    assert not any(process.is_running() for process in processes)


def test_quiet_has_no_neighbour_and_unknown_noise_is_refused():
    with neighbours("quiet") as started:
        assert started == []
    with pytest.raises(ValueError, match="unknown noise 'loud'; there are quiet, bursts"):
        neighbours("loud").__enter__()


def test_neighbours_end_when_what_they_disturb_fails():
    with pytest.raises(ZeroDivisionError), neighbours("loaded") as started:
        raise ZeroDivisionError
    assert all(process.poll() is not None for process in started)


def test_a_neighbour_that_ended_by_itself_makes_the_trial_fail():
    context = neighbours("loaded")
    started = context.__enter__()
    started[0].kill()
    started[0].wait(PATIENCE_S)
    with pytest.raises(RuntimeError, match="'loaded' ended before"):
        context.__exit__(None, None, None)
    assert all(process.poll() is not None for process in started)


def test_a_neighbour_that_does_not_start_is_reported(monkeypatch):
    monkeypatch.setattr(noise, "_cores", lambda: ["no number"])
    with pytest.raises(RuntimeError, match="did not start"):
        neighbours("loaded").__enter__()


HOST = """
import signal
from time import sleep
from labsupport.noise import neighbours
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
with neighbours("loaded") as started:
    print(*[process.pid for process in started], flush=True)
    sleep(600)
"""
WAYS = ["SIGINT", "SIGTERM", "SIGKILL"] if sys.platform != "win32" else ["SIGTERM"]


@pytest.mark.parametrize("way", WAYS)
def test_neighbours_end_with_their_host_however_that_ends(way):
    host = subprocess.Popen(
        [sys.executable, "-c", HOST],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    processes = [psutil.Process(int(pid)) for pid in host.stdout.readline().split()]
    assert processes
    if way == "SIGINT":  # from a terminal it reaches the neighbours, too
        waited_s = time.monotonic() + PATIENCE_S
        while processes[0].num_threads() < 2 and time.monotonic() < waited_s:
            time.sleep(0.01)  # until it watches for the end of its host
        processes[0].send_signal(signal.SIGINT)
        psutil.wait_procs(processes[:1], timeout=PATIENCE_S)
    host.send_signal(getattr(signal, way))
    _, running = psutil.wait_procs(processes, timeout=PATIENCE_S)
    _, said = host.communicate(timeout=PATIENCE_S)
    assert running == []
    assert "Fatal" not in said


# ---------------------------------------------------------------- questions


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("trial", [0, 1])
@pytest.mark.parametrize("question", ["identical", "effect"])
def test_the_true_ratio_is_a_count_of_operations(monkeypatch, question, name, trial):
    made = []
    fake = SimpleNamespace(add=lambda *_, out: made.append(None))
    monkeypatch.setattr(questions, "np", fake)
    counts = []
    asked = Asked(question, name, trial)
    for path in asked.paths():
        made.clear()
        path()
        counts.append(len(made))
    assert asked.true_ratio == counts[1] / counts[0]
    if question == "identical":
        assert asked.true_ratio == 1
    else:
        assert (asked.true_ratio > 1) is (trial == 0)


@pytest.mark.parametrize(
    ("name", "effect"), [("quiet", 0.005), ("bursts", 0.005), ("ramp", 0.0065), ("loaded", 0.013)]
)
def test_effects_have_the_stated_sizes(name, effect):
    assert Asked("effect", name, 0).true_ratio - 1 == pytest.approx(effect, rel=1e-3)


def test_copies_share_their_code_and_arrays():
    f, g = Asked("identical", "quiet", 0).paths()
    assert f is not g
    assert f.__code__ is g.__code__
    assert f.__globals__ is g.__globals__


def test_reuse_asks_about_two_ways_to_the_same_outputs():
    asked = Asked("reuse", "quiet", 1)
    (full, _), (reused, _) = (path() for path in asked.paths())
    assert math.isnan(asked.true_ratio)
    assert full.shape[0] == 4
    assert np.abs(full - reused).max() <= 1e-12


# ---------------------------------------------------------------- the other tools


@pytest.mark.parametrize(
    ("f_s", "g_s", "mean", "best"),
    [
        ([1, 1, 1, 1, 1], [1.03, 1.03, 1.03, 1.03, 1.03], "slower", "slower"),
        ([1, 1, 1, 1, 1], [1, 1, 1, 1, 2], "slower", "cannot tell"),
        ([1, 1, 1, 1, 2], [1.01, 1.01, 1.01, 1.01, 0.9], "faster", "faster"),
        ([1, 1, 1, 1, 1], [1.01, 1.01, 1.01, 1.01, 1.01], "cannot tell", "cannot tell"),
    ],
)
def test_timeit_is_judged_by_its_mean_and_by_its_best(monkeypatch, f_s, g_s, mean, best):
    asked_for = []

    def repeat(path, number, repeat):
        asked_for.append((number, repeat))
        return [number * s for s in (f_s, g_s)[len(asked_for) > 1]]

    monkeypatch.setattr(rivals.timeit, "repeat", repeat)
    monkeypatch.setattr(rivals.timeit, "timeit", lambda path, number: number * 0.01)
    found = rivals.timeit_twice(Asked("identical", "quiet", 0), budget_s=2.0)
    assert asked_for == [(20, 5)] * 2  # 5 x 20 calls of 10 ms: half the budget for each path
    assert {tool: answer for tool, (_, answer) in found.items()} == {
        "timeit mean": mean,
        "timeit best": best,
    }
    assert found["timeit mean"][0] == pytest.approx(sum(g_s) / sum(f_s))
    assert found["timeit best"][0] == pytest.approx(min(g_s) / min(f_s))


def benchmark(values):
    return pyperf.Benchmark([pyperf.Run(values, metadata={"name": "path"}, collect_metadata=False)])


@pytest.mark.parametrize(
    ("gain", "expected"), [(1.02, "slower"), (1.0, "cannot tell"), (0.9, "faster")]
)
def test_pyperf_answers_as_its_own_command_does(monkeypatch, tmp_path, gain, expected):
    f = [1.0, 1.01, 0.99, 1.005, 0.995, 1.0, 1.002, 0.998, 1.001]
    samples = [f, [gain * value * 1.0005 for value in f]]
    started = []

    def fake_run(*arguments):
        written = dict(word.split("=", 1) for word in arguments if "--output=" in word)["--output"]
        benchmark(samples[len(started)]).dump(written)
        started.append(arguments)

    monkeypatch.setattr(rivals, "_run", fake_run)
    asked = Asked("effect", "ramp", 3)
    ratio, answer = rivals.pyperf_test(asked, 0.01)["pyperf"]
    assert (ratio, answer) == (pytest.approx(gain * 1.0005), expected)
    for i, arguments in enumerate(started):
        told = dict(word.removeprefix("--").split("=", 1) for word in arguments if "=" in word)
        assert [told[name] for name in ("processes", "warmups", "values")] == ["3", "1", "3"]
        assert set(told["inherit-environ"].split(",")) == set(rivals.THREAD_VARIABLES)
        (setup,) = [word for word in arguments if "--setup=" in word]
        assert setup.endswith(
            f"path = Asked(question='effect', noise='ramp', trial=3).paths()[{i}]"
        )

    for name, sample in zip("fg", samples, strict=True):
        benchmark(sample).dump(str(tmp_path / f"{name}.json"))
    compared = subprocess.run(
        [sys.executable, "-m", "pyperf", "compare_to", "f.json", "g.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ("not significant" in compared.stdout.lower()) is (answer == "cannot tell")


@pytest.mark.parametrize(
    ("tool", "ask"), [("pyperf", rivals.pyperf_test), ("pytest-benchmark", rivals.pytest_median)]
)
def test_tools_with_processes_of_their_own_answer_for_real(tool, ask):
    ratio, answer = ask(Asked("identical", "quiet", 0), 0.05)[tool]
    assert 0.01 < ratio < 100
    assert answer in ("slower", "faster", "cannot tell")


def test_the_median_of_each_path_is_compared(monkeypatch):
    told = {}

    def fake_run(*arguments, asked):
        told.update(words=arguments, asked=asked)
        return "..\nmedian 0.5\n.\nmedian 0.6\n.\n2 passed"

    monkeypatch.setattr(rivals, "_run", fake_run)
    found = rivals.pytest_median(Asked("reuse", "loaded", 7), 3.0)
    assert found == {"pytest-benchmark": (pytest.approx(1.2), "slower")}
    assert told["asked"] == "reuse loaded 7"
    assert "--benchmark-max-time=1.5" in told["words"]


def test_a_tool_that_fails_is_no_answer():
    with pytest.raises(RuntimeError, match=r"pyperf failed in a trial: .+"):
        rivals._run("pyperf", "no such thing")
    with pytest.raises(RuntimeError, match=r"pytest failed in a trial"):
        rivals._run("pytest", rivals.PYTEST_FILE, "--no-such-option")


# ---------------------------------------------------------------- trials


@pytest.fixture
def two_tools(monkeypatch):
    """Instead of real tools: ours gives an interval, the only rival none; each notes questions."""
    asked = []

    def ours(question, budget_s):
        asked.append(("ours", question, budget_s))
        return {OURS: (1.5, 1.25, 1.75, "slower")}

    def rival(question, budget_s):
        asked.append(("rival", question, budget_s))
        return dict.fromkeys(rivals.TOOLS, (0.5, "faster"))

    monkeypatch.setattr(instrument, "our_answer", ours)
    monkeypatch.setattr(rivals, "RIVALS", [rival])
    return asked


def test_every_tool_is_asked_every_question_and_rivals_less_often(two_tools):
    rows = instrument.trials(["quiet", "bursts"], n_ours=3, n_rivals=2, budget_s=0.5, seed=1)
    cells = rows.set_index(["noise", "question", "tool", "repeat"])
    assert cells.index.is_unique
    assert len(cells) == 2 * len(QUESTIONS) * len(TOOLS) * 3
    silent = (rows.tool != OURS) & (rows["repeat"] == 2)
    assert (silent == (rows.verdict == NOT_ASKED)).all()
    numbers = ["ratio", "low", "high", "true_ratio", "span_s"]
    assert rows.loc[silent, numbers].isna().all(axis=None)

    said = cells.loc[("bursts", "effect", OURS, 1)]
    truth = Asked("effect", "bursts", 1).true_ratio
    assert tuple(said[numbers[:4]]) == (1.5, 1.25, 1.75, truth)
    said = cells.loc[("quiet", "reuse", "pyperf", 0)]
    assert (said.ratio, said.verdict) == (0.5, "faster")
    assert said[["low", "high", "true_ratio"]].isna().all()

    assert {budget_s for *_, budget_s in two_tools} == {0.5}
    questions_put = {
        name: [q for who, q, _ in two_tools if who == name] for name in ("ours", "rival")
    }
    assert {name: len(set(q)) for name, q in questions_put.items()} == {"ours": 18, "rival": 12}
    assert [len(q) for q in questions_put.values()] == [18, 12]
    turns = [who for who, *_ in two_tools]
    assert sum(a != b for a, b in itertools.pairwise(turns)) > 5  # tools take turns, at random
    assert instrument.plan(["quiet"], 3, 2, seed=1) == instrument.plan(["quiet"], 3, 2, seed=1)
    assert instrument.plan(["quiet"], 3, 2, seed=1) != instrument.plan(["quiet"], 3, 2, seed=2)


def test_a_tool_is_asked_while_the_named_noise_is_at_work(two_tools, monkeypatch):
    entered = []

    class Noise:
        def __init__(self, *arguments):
            entered.append([*arguments, len(two_tools)])

        def __enter__(self):
            pass

        def __exit__(self, *_):
            entered[-1].append(len(two_tools))

    monkeypatch.setattr(instrument, "neighbours", Noise)
    instrument.trials(["ramp", "loaded"], 1, 1, 0.5)
    for (_, question, budget_s), (name, trial, span_s, before, after) in zip(
        two_tools, entered, strict=True
    ):
        assert (name, trial, span_s) == (question.noise, question.trial, budget_s)
        assert after == before + 1


def test_our_answer_is_that_of_compare_and_infinite_ends_are_left_open(monkeypatch):
    found = SimpleNamespace(ratio=2.0, low=0.0, high=math.inf, verdict="cannot tell")
    monkeypatch.setattr(instrument.timing, "compare", lambda f, g, budget_s, seed: found)
    ratio, low, high, answer = instrument.our_answer(Asked("effect", "quiet", 0), 1.0)[OURS]
    assert (ratio, answer) == (2.0, "cannot tell")
    assert math.isnan(low)
    assert math.isnan(high)


# ---------------------------------------------------------------- counting


def answers(tool, question, true_ratio, said, name="quiet", low=None, high=None):
    """Rows of one tool's answers to one question, trial after trial."""
    nothing = [math.nan] * len(said)
    return pd.DataFrame(
        {
            "noise": name,
            "question": question,
            "tool": tool,
            "repeat": range(len(said)),
            "ratio": 1.0,
            "low": low or nothing,
            "high": high or nothing,
            "true_ratio": true_ratio,
            "verdict": said,
            "span_s": 1.0,
        }
    )


def counted(rows):
    table = instrument.summary(rows)
    return {(row.noise, row.tool, row.measure): (row.k, row.n) for row in table.itertuples()}


def test_false_alarms_power_and_wrong_ways_are_counted_against_the_truth():
    unsure, up, down = "cannot tell", "slower", "faster"
    rows = pd.concat(
        [
            answers("pyperf", "identical", 1.0, [unsure, up, down, unsure, up]),
            answers("pyperf", "effect", [1.01, 0.99, 1.01, 0.99], [up, up, unsure, down]),
            answers("pyperf", "reuse", math.nan, [up, up]),
            answers("timeit mean", "effect", 1.01, [down, NOT_ASKED], name="ramp"),
        ],
        ignore_index=True,
    )
    assert counted(rows.sample(frac=1, random_state=1)) == {
        ("quiet", "pyperf", "false alarm"): (3, 5),
        ("quiet", "pyperf", "power"): (2, 4),
        ("quiet", "pyperf", "wrong way"): (1, 4),
        ("ramp", "timeit mean", "power"): (0, 1),
        ("ramp", "timeit mean", "wrong way"): (1, 1),
    }


def test_coverage_counts_the_intervals_that_hold_the_truth():
    said = ["cannot tell"] * 3
    rows = pd.concat(
        [
            answers(OURS, "identical", 1.0, said, low=[0.9, 1.01, 0.9], high=[1.1, 1.1, 0.99]),
            answers(OURS, "effect", 1.05, said, low=[0.9, 1.01, 0.9], high=[1.1, 1.1, 0.99]),
            answers(OURS, "reuse", math.nan, said, low=[0.9] * 3, high=[1.1] * 3),
        ],
        ignore_index=True,
    )
    assert counted(rows)["quiet", OURS, "coverage"] == (1 + 2, 6)


def test_shares_have_exact_binomial_intervals():
    rows = answers("pyperf", "identical", 1.0, ["cannot tell"] * 12)
    (row,) = instrument.summary(rows).itertuples()
    assert (row.share, row.low) == (0, 0)
    assert row.high == pytest.approx(1 - 0.025 ** (1 / 12))  # (1 - p)^12 = 2.5 %


def test_what_tools_say_of_reuse_is_told_by_noise_and_tool():
    rows = pd.concat(
        [
            answers(
                tool, "reuse", math.nan, ["slower", "slower", "faster", "cannot tell"], name=name
            ).assign(ratio=[1.1, 1.3, 0.9, 1.0])
            for tool, name in ((rivals.TOOLS[0], "ramp"), (OURS, "ramp"), ("pyperf", "quiet"))
        ]
        + [answers("pyperf", "identical", 1.0, ["slower"])],
        ignore_index=True,
    )
    table = instrument.answers_on_reuse(rows)
    order = [("quiet", "pyperf"), ("ramp", OURS), ("ramp", rivals.TOOLS[0])]
    assert list(zip(table.noise, table.tool, strict=True)) == order
    for row in table.drop(columns=["noise", "tool"]).to_dict("records"):
        assert row == {
            "n": 4,
            "slower": 0.5,
            "cannot tell": 0.25,
            "faster": 0.25,
            "median": pytest.approx(1.05),
            "min": 0.9,
            "max": 1.3,
        }


# ---------------------------------------------------------------- the command


def bench(*words):
    parser = argparse.ArgumentParser()
    bench_command.add_arguments(parser)
    return bench_command.main(parser.parse_args(["instrument", *words]))


SMALL = ["--trials", "2", "--rival-trials", "1", "--budget", "0.01", "--noise", "quiet", "bursts"]


def test_a_run_is_written_audits_and_is_summed_up(two_tools, tmp_path, capsys):
    out = tmp_path / "run"
    assert bench("--out", str(out), *SMALL) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1].endswith(f"python -m labsupport audit {out}")
    assert evidence.audit(out).status == "intact", evidence.audit(out).problems[:3]

    run = evidence.read(out)
    assert run.manifest["factors"] == {
        "noise": ["quiet", "bursts"],
        "question": QUESTIONS,
        "tool": TOOLS,
        "repeat": [0, 1],
    }
    assert run.manifest["repeats"] == ["repeat"]
    config = run.manifest["config"]
    assert config == config | {"trials": 2, "rival_trials": 1, "budget_s": 0.01, "seed": 0}
    assert config["counts"] == {"quiet": [1200, 6], "bursts": [1200, 6]}
    assert config["pyperf"]["version"] == pyperf.__version__
    assert "labsupport/rival_pytest.py" in run.manifest["sources"]
    counts = counted(run.rows)
    assert counts["quiet", OURS, "false alarm"] == (2, 2)
    assert counts["bursts", "pyperf", "wrong way"] == (1, 1)

    words = shlex.split(run.manifest["command"])
    assert words[:5] == ["python", "-m", "labsupport", "bench", "instrument"]
    parser = argparse.ArgumentParser()
    instrument_command.add_arguments(parser)
    args = parser.parse_args(words[5:])
    assert vars(args) == vars(parser.parse_args(["--out", str(out), *SMALL]))


def test_compare_itself_is_asked_under_noise(monkeypatch, tmp_path):
    monkeypatch.setattr(rivals, "RIVALS", [lambda *_: dict.fromkeys(rivals.TOOLS, (1.0, "faster"))])
    assert bench("--out", str(tmp_path / "run"), *SMALL) == 0
    rows = evidence.read(tmp_path / "run").rows
    ours = rows[rows.tool == OURS]
    assert ours.ratio.between(0.01, 100).all()
    assert set(ours.verdict) <= {"slower", "faster", "cannot tell"}


def never(*_):
    raise AssertionError("nothing may be asked")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--trials", "0"], "--rival-trials"),
        (["--rival-trials", "0"], "--rival-trials"),
        (["--trials", "3", "--rival-trials", "4"], "--rival-trials"),
        (["--budget", "0"], "--budget"),
        (["--budget", "nan"], "--budget"),
        (["--noise", "ramp", "ramp"], "--noise"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_asked(
    monkeypatch, tmp_path, capsys, options, said
):
    monkeypatch.setattr(instrument, "trials", never)
    assert bench("--out", str(tmp_path / "run"), *options) == 2
    assert capsys.readouterr().err.startswith(said)
    assert list(tmp_path.iterdir()) == []


def test_what_exists_is_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(instrument, "trials", never)
    assert bench("--out", str(tmp_path)) == 2
    assert "exists already" in capsys.readouterr().err


def test_tools_that_are_not_installed_are_named_with_the_remedy(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(instrument, "trials", never)
    found = rivals.importlib.util.find_spec
    monkeypatch.setattr(
        rivals.importlib.util, "find_spec", lambda name: name != "pytest_benchmark" and found(name)
    )
    assert bench("--out", str(tmp_path / "run")) == 2
    assert "pip install pytest-benchmark" in capsys.readouterr().err


@pytest.mark.parametrize("error", [RuntimeError("pyperf failed"), KeyboardInterrupt()])
def test_a_run_that_ends_early_leaves_nothing(two_tools, monkeypatch, tmp_path, capsys, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(rivals, "RIVALS", [fail])
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            bench("--out", str(tmp_path / "run"), *SMALL)
    else:
        assert bench("--out", str(tmp_path / "run"), *SMALL) == 1
        assert "pyperf failed" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
