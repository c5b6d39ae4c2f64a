"""`python -m labsupport profile --out DIR`: times the paths of `labsupport.profile`, records them.

To import this module is to hold the process at one thread.
"""
# ruff: noqa: E402 (the thread pools are set before NumPy, which makes them, is loaded)

from dataclasses import asdict, fields

from labsupport import machine

machine.use_one_thread()

from labsupport import evidence, profile, recording, timing
from labsupport.profile import Case

# What `evidence.write` is told of the rows of `profile.measure`.
BOOKS = {"total": "total_ns", "segments": profile.SEGMENTS, "agreed": "agreed"}
HELP = {
    "width": "numbers a token is held in",
    "layers": "layers of the decoder",
    "heads": "heads of a layer; the width is a multiple",
    "tokens": "tokens of a query",
    "prefix": "how many of them, from the first, are reused",
    "seeds": "models, each with weights and tokens of its own",
    "rounds": "rounds a seed; every path once a round",
}


def add_arguments(parser):
    """The options of the command: --out, and one for each field of a Case."""
    recording.add_out(parser)
    for field in fields(Case):
        said = f"{HELP[field.name]} ({field.default})"
        parser.add_argument(f"--{field.name}", type=int, default=field.default, help=said)


def main(args):
    """Measure the case that the options name, and record the run; the exit code."""

    def case(args):
        return Case(**{field.name: getattr(args, field.name) for field in fields(Case)})

    return recording.run(args, "profile", case, record, show)


def show(recorded):
    """Print the medians, and what the clock's stamps cost."""
    rows, config = recorded
    medians = profile.medians_us(rows)
    print("Medians in µs; those of the parts need not add up to the median total:\n")
    print(medians.to_string(float_format="{:.1f}".format))
    cost_us = config["stamps"] * config["stamp_cost_ns"] / 1000
    share = cost_us / medians["total"].min()
    print(f"\nThe stamps cost a query about {cost_us:.2f} µs, {share:.2%} of the fastest path.")


def record(begun, case):
    """Measure the case and write the run: its rows and its configuration.

    Raises RuntimeError or ValueError, and nothing is written, if the libraries use more than one
    thread, if outputs disagreed or if the code changed meanwhile.
    """
    config = {
        **asdict(case),
        "seeds": list(range(case.seeds)),
        **protocol(),
    }
    rows = profile.measure(case)
    options = [f"--{name}={value}" for name, value in asdict(case).items()]
    evidence.write(
        begun,
        rows,
        command=["python", "-m", "labsupport", "profile", f"--out={begun.out}", *options],
        config=config,
        factors={
            "seed": range(case.seeds),
            "round": range(case.rounds),
            "path": profile.PATHS,
        },
        **BOOKS,
        warmed=f"{profile.WARMUPS} queries of each path for each seed, before its rounds",
        excluded="the warm-ups, and the building of models and stores",
    )
    return rows, config


def protocol():
    """What stays the same for all cases, for the configuration of a run: {name: value}.

    Raises RuntimeError if the libraries use more than one thread.
    """
    return {
        "vocab_size": profile.VOCAB_SIZE,
        "dtype": "float64",
        "warmups": profile.WARMUPS,
        "tolerance": profile.TOLERANCE,
        "threads": machine.threads_in_use(),
        "stamps": profile.N_STAMPS,
        "stamp_cost_ns": timing.clock_cost_ns(),
    }
