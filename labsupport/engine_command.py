"""`python -m labsupport bench engine --out DIR`: cached steps side by side, beside the floor.

To import this module is to hold the process at one thread.
"""
# ruff: noqa: E402 (the thread pools are set before NumPy, which makes them, is loaded)

import importlib.metadata

from labsupport import machine

machine.use_one_thread()

from labsupport import arithmetic, enginebench, enginepaths, enginerivals, evidence, recording
from labsupport.charmodel import CharConfig

OPTIONS = {  # name: (default, what it is)
    "n": (256, "tokens that a loop generates, from one"),
    "rounds": (21, "rounds; every path once a round"),
    "d-model": (128, "numbers a token is held in"),
    "blocks": (3, "blocks of the model"),
    "heads": (4, "heads of a block; d-model is a multiple"),
    "vocab": (100, "different tokens"),
    "seed": (0, "of the weights and of the order"),
}


def add_arguments(parser):
    """The options of the command."""
    recording.add_out(parser)
    for name, (default, said) in OPTIONS.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{said} ({default})")
    said = "measure the course's own paths alone"
    parser.add_argument("--without-rivals", action="store_true", help=said)


def main(args):
    """Check and time all paths, and record the run; the exit code."""

    def measured(begun, config):
        return record(begun, args, config)

    return recording.run(args, "bench engine", _check, measured, show)


def show(recorded):
    """Print the table, and what was left out of it."""
    rows, config = recorded
    said = f"{config['n']} tokens from one, a token in µs, medians of {config['rounds']} rounds"
    print(f"{said}; `times` is")
    print(f"against {enginerivals.USUAL!r}, `collected` the share of the arithmetic ratio of")
    print(f"{config['arithmetic_ratio']:.1f}:\n")
    table = enginebench.table(rows, config).drop(columns=["us_low", "us_high"])
    print(table.round(3).to_string(na_rep="-"))
    for name, reason in config["left_out"].items():
        print(f"\nLeft out: {name}, since {reason}.")


def _check(args):
    if args.rounds < 1 or args.n < 1:
        raise ValueError(f"--n and --rounds must be 1 or more, not {args.n} and {args.rounds}")
    if args.seed < 0 or args.vocab < 2:
        said = "--seed must be 0 or more and --vocab 2 or more, so that there is a choice"
        raise ValueError(f"{said}; not {args.seed} and {args.vocab}")
    if not args.without_rivals and (absent := enginerivals.missing()):
        raise ValueError(f"{enginerivals.advice(absent)}; or measure --without-rivals")
    return CharConfig(
        vocab_size=args.vocab,
        context=max(128, args.n),
        d_model=args.d_model,
        n_blocks=args.blocks,
        n_heads=args.heads,
    )


def record(begun, args, model_config):
    """Check all paths, time them and write the run: its rows and its configuration.

    Raises ValueError for a path that computes something else, or when the rows are no evidence,
    for instance since the code changed meanwhile, and RuntimeError if the libraries use more than
    one thread; nothing is written then.
    """
    subject = enginebench.subject(model_config, args.n, args.seed)
    ways = enginepaths.paths(model_config, subject.weights)
    left_out, versions = {}, {}
    if not args.without_rivals:
        rivals, left_out = enginerivals.paths(model_config, subject.weights)
        ways |= rivals
        versions = {name: importlib.metadata.version(name) for name in enginerivals.PINS}
    off = enginebench.differences(ways, subject)
    floors, said = enginebench.floors(model_config, args.n)
    threads = machine.threads_in_use()
    rows = enginebench.measure(ways, floors, subject, args.rounds, args.seed)
    config = {
        **{name.replace("-", "_"): getattr(args, name.replace("-", "_")) for name in OPTIONS},
        "context": model_config.context,
        "dtype": "float32",
        "threads": threads,
        "weights_seed": subject.seed,
        "smallest_gap": subject.gap,
        "tolerance": enginebench.TOLERANCE,
        "largest_difference": off,
        "left_out": left_out,
        "versions": versions,
        "floors": said,
        "arithmetic_ratio": arithmetic.ratio(model_config, args.n),
    }
    options = [f"--{name}={getattr(args, name.replace('-', '_'))}" for name in OPTIONS]
    options += ["--without-rivals"] if args.without_rivals else []
    evidence.write(
        begun,
        rows,
        command=["python", "-m", "labsupport", "bench", "engine", f"--out={begun.out}", *options],
        config=config,
        factors={"round": range(args.rounds), "path": [*ways, *floors]},
        total="total_ns",
        segments=[],
        agreed="agreed",
        warmed="every path and floor once, before the rounds; its logits before that",
        excluded="the making and compiling of models",
    )
    return rows, config
