"""`python -m labsupport bench instrument --out DIR`: timing tools side by side under named noise.

To import this module is to hold the process at one thread.
"""
# ruff: noqa: E402 (the thread pools are set before NumPy, which makes them, is loaded)

import importlib
import importlib.metadata
import math

from labsupport import machine

machine.use_one_thread()

from labsupport import evidence, instrument, pairs, questions, recording, rivals, timing
from labsupport.noise import NOISES


def add_arguments(parser):
    """The options of the command."""
    recording.add_out(parser)
    said = "times compare is asked each question under each noise (60)"
    parser.add_argument("--trials", type=int, default=60, help=said)
    said = "times each other tool is asked (10)"
    parser.add_argument("--rival-trials", type=int, default=10, help=said)
    parser.add_argument("--budget", type=float, default=2.0, help="seconds a decision (2)")
    parser.add_argument("--noise", nargs="+", choices=list(NOISES), default=list(NOISES))
    parser.add_argument("--seed", type=int, default=0, help="of the order of trials (0)")


def main(args):
    """Ask all tools, and record the run; the exit code."""
    return recording.run(args, "bench instrument", _check, record, show)


def show(rows):
    """Print how often each tool was right, and what each said of reuse."""
    print("Share of trials; power is the share of right verdicts on a true effect:\n")
    print(shares(rows).to_string(float_format="{:.0%}".format, na_rep="-"))
    print("\nIs reuse slower? Shares of the answers, and the ratio to full computation:\n")
    print(instrument.answers_on_reuse(rows).round(3).to_string(index=False))


def _check(args):
    if not 0 < args.rival_trials <= args.trials:
        found = f"{args.rival_trials} and {args.trials}"
        raise ValueError(f"--rival-trials must be 1 or more, and not above --trials; found {found}")
    if not 0 < args.budget < math.inf:
        raise ValueError(f"--budget must be a positive number of seconds, not {args.budget}")
    if len(set(args.noise)) < len(args.noise):
        raise ValueError(f"--noise must name each noise once, not {' '.join(args.noise)}")
    if missing := rivals.missing():
        said = f"python -m pip install {' '.join(missing)}"
        raise ValueError(f"{' and '.join(missing)} must be installed to be compared with: {said}")
    return args


def shares(rows):
    """`instrument.summary` as a table to print: measures beside each other."""
    summary = instrument.summary(rows)
    table = summary.pivot(index=["noise", "tool"], columns="measure", values="share")
    order = [(n, t) for n in NOISES for t in instrument.TOOLS if (n, t) in table.index]
    return table.reindex(order, columns=["false alarm", "power", "wrong way", "coverage"])


def record(begun, args):
    """Ask all tools and write the run; returns its rows.

    Raises RuntimeError when a tool failed, ValueError when the rows are no evidence, for instance
    since the code changed meanwhile; nothing is written then.
    """
    rows = instrument.trials(args.noise, args.trials, args.rival_trials, args.budget, args.seed)
    options = {
        "out": begun.out,
        "trials": args.trials,
        "rival-trials": args.rival_trials,
        "budget": args.budget,
        "seed": args.seed,
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    importlib.import_module("labsupport.rival_pytest")  # pytest ran it: it is recorded and checked
    evidence.write(
        begun,
        rows,
        command=[
            "python",
            "-m",
            "labsupport",
            "bench",
            "instrument",
            *words,
            "--noise",
            *args.noise,
        ],
        config={
            "trials": args.trials,
            "rival_trials": args.rival_trials,
            "budget_s": args.budget,
            "seed": args.seed,
            "counts": {noise: list(questions.COUNTS[noise]) for noise in args.noise},
            "margin": pairs.MARGIN,
            "floor": pairs.PLACEMENT_FLOOR,
            "looks": [[share, risk] for share, risk in timing.LOOKS.items()],
            "rule": rivals.RULE,
            "timeit": {"repeats": rivals.REPEATS},
            "pyperf": {
                "processes": rivals.PROCESSES,
                "warmups": rivals.WARMUPS,
                "values": rivals.VALUES,
                "version": importlib.metadata.version("pyperf"),
            },
            "pytest-benchmark": {"version": importlib.metadata.version("pytest-benchmark")},
        },
        factors={
            "noise": args.noise,
            "question": questions.QUESTIONS,
            "tool": instrument.TOOLS,
            "repeat": range(args.trials),
        },
        total=None,
        segments=[],
        agreed=None,
        warmed="by each tool in its own way",
        excluded="trials beyond --rival-trials of the other tools, whose verdict is 'not asked'",
    )
    return rows
