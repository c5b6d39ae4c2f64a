"""Other timing tools, each put the same question and used as its users do: first f, then g.

Every function takes an `Asked` and the seconds of timed calls for both paths together, and returns
{tool: (ratio of g to f, verdict)}. What starting a tool's processes takes is not counted.
"""

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import timeit
from pathlib import Path

from labsupport.machine import ROOT, THREAD_VARIABLES
from labsupport.pairs import verdict

RULE = 0.02  # the customary 2 %: a smaller difference is taken for noise
CALIBRATION = 100  # calls that tell how many fit into the budget
REPEATS = 5
PROCESSES, WARMUPS, VALUES = 3, 1, 3  # of pyperf, a path
PYTEST_FILE = Path(__file__).with_name("rival_pytest.py")


def missing():
    """The packages of tools that are not installed, by the names that pip knows."""
    modules = {"pyperf": "pyperf", "pytest": "pytest", "pytest_benchmark": "pytest-benchmark"}
    return [name for module, name in modules.items() if not importlib.util.find_spec(module)]


def by_rule(ratio):
    """The ratio and what the customary rule makes of it."""
    return ratio, verdict(ratio, ratio, RULE)


def calls_in(path, seconds):
    """How many calls of a path fit into so many seconds as the machine is now, one at least."""
    return max(1, round(seconds * CALIBRATION / timeit.timeit(path, number=CALIBRATION)))


def timeit_twice(asked, budget_s):
    """Five repeats of each path, judged by their mean and by their best."""
    times = []
    for path in asked.paths():
        number = calls_in(path, budget_s / 2 / REPEATS)
        times.append([s / number for s in timeit.repeat(path, number=number, repeat=REPEATS)])
    f, g = times
    return {
        "timeit mean": by_rule(statistics.mean(g) / statistics.mean(f)),
        "timeit best": by_rule(min(g) / min(f)),
    }


def pyperf_test(asked, budget_s):
    """Samples from several processes of pyperf, judged by pyperf's own t-test."""
    import pyperf
    from pyperf._utils import is_significant  # what `python -m pyperf compare_to` goes by

    value_s = budget_s / 2 / (PROCESSES * (WARMUPS + VALUES))
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        for i, path in enumerate(asked.paths()):
            file = Path(folder) / f"{i}.json"
            options = {
                "processes": PROCESSES,
                "warmups": WARMUPS,
                "values": VALUES,
                "loops": calls_in(path, value_s),
                "inherit-environ": ",".join(THREAD_VARIABLES),
                "output": file,
                "setup": f"from labsupport.questions import Asked; path = {asked}.paths()[{i}]",
            }
            words = [f"--{name}={value}" for name, value in options.items()]
            _run("pyperf", "timeit", "--quiet", *words, "path()")
            samples.append(pyperf.Benchmark.load(str(file)).get_values())
    f, g = samples
    ratio = statistics.mean(g) / statistics.mean(f)
    differ, _ = is_significant(f, g)
    return {"pyperf": (ratio, verdict(ratio, ratio, 0.0) if differ else "cannot tell")}


def pytest_median(asked, budget_s):
    """One run of pytest with a benchmark of each path, judged by their medians."""
    options = ["--capture=no", f"--rootdir={ROOT}", f"--benchmark-max-time={budget_s / 2}"]
    words = f"{asked.question} {asked.noise} {asked.trial}"
    options += ["-p", "no:cacheprovider", "-p", "pytest_benchmark.plugin"]
    printed = _run("pytest", *options, PYTEST_FILE, asked=words)
    f, g = (float(line.split()[1]) for line in printed.splitlines() if line.startswith("median "))
    return {"pytest-benchmark": by_rule(g / f)}


def _run(module, *arguments, asked=""):
    """What `python -m module` prints; RuntimeError with its last words if it fails."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    told = {"LABSUPPORT_ASKED": asked, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONUTF8": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **told}, capture_output=True,
        encoding="utf-8", errors="replace",
    )  # fmt: skip
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise RuntimeError(f"{module} failed in a trial: {' '.join(said)}")
    return done.stdout


RIVALS = [timeit_twice, pyperf_test, pytest_median]
TOOLS = ["timeit mean", "timeit best", "pyperf", "pytest-benchmark"]
