"""`python -m labsupport sweep --out DIR`: times the loops of `labsupport.sweep`, records the run.

To import this module is to hold the process at one thread.
"""
# ruff: noqa: E402 (the thread pools are set before NumPy, which makes them, is loaded)

from dataclasses import asdict

from labsupport import machine

machine.use_one_thread()

from labsupport import evidence, recording, sweep
from labsupport.loops import PATHS
from labsupport.sweep import QUICK, Grid


def add_arguments(parser):
    """The options of the command: --out, --quick, and those of a Grid."""
    default = Grid()
    recording.add_out(parser)
    cells = f'widths and tokens ("{default.cells[0]}" to "{default.cells[-1]}")'
    parser.add_argument("--cells", nargs="+", help=cells)
    parser.add_argument("--paths", nargs="+", help=f"of {', '.join(PATHS)} (all)")
    rounds = f"rounds; every loop once a round ({default.rounds})"
    parser.add_argument("--rounds", type=int, help=rounds)
    quick = f"few small cells ({', '.join(QUICK.cells)}), and rates at fewer sizes"
    parser.add_argument("--quick", action="store_true", help=quick)


def main(args):
    """Measure the grid that the options name, and record the run; the exit code."""
    return recording.run(args, "sweep", grid_of, record, show)


def grid_of(args):
    """The Grid that the options name; ValueError or TypeError for what is none."""
    grid = asdict(QUICK if args.quick else Grid())
    given = {name: getattr(args, name) for name in ("cells", "paths", "rounds")}
    return Grid(**grid | {name: level for name, level in given.items() if level is not None})


def record(begun, grid):
    """Measure the grid and write the run; returns its rows and the rates.

    Raises RuntimeError or ValueError, and nothing is written, if the libraries use more than one
    thread, if logits disagreed or if the code changed meanwhile.
    """
    threads = machine.threads_in_use()
    rows, rates = sweep.measure(grid)
    config = {
        **asdict(grid),
        "seed": 0,
        "dtype": "float32",
        "prelude": sweep.PRELUDE,
        "tolerance": sweep.TOLERANCE,
        "threads": threads,
        "rates": rates,
    }
    options = ["--rounds", str(grid.rounds), "--cells", *grid.cells, "--paths", *grid.paths]
    options += ["--quick"] if grid.small else []
    evidence.write(
        begun,
        rows,
        command=["python", "-m", "labsupport", "sweep", "--out", str(begun.out), *options],
        config=config,
        factors={"cell": grid.cells, "round": range(grid.rounds), "path": grid.paths},
        total="total_ns",
        segments=[],
        agreed="agreed",
        warmed=f"each loop once, of the uncached {sweep.PRELUDE} steps; {sweep.PRELUDE} steps of "
        "the same loop before each timed one",
        excluded="the warm-ups, the building of models and engines, compiling, and the rates",
    )
    return rows, rates


def show(recorded):
    """Print what was measured and how far the predictions are off."""
    percent, cells = "{:.1%}".format, sweep.table(*recorded).set_index("cell")
    cached = [path for path in PATHS if path in cells]
    print("Milliseconds a loop:\n")
    milliseconds = cells[[f"{path}_ns" for path in ("uncached", *cached)]] / 1e6
    print(
        milliseconds.rename(columns=lambda name: name[:-3]).to_string(float_format="{:.1f}".format)
    )
    print("\nTimes faster than uncached, and the ratio of multiplications:\n")
    print(cells[[*cached, "arithmetic"]].to_string(float_format="{:.2f}".format))
    print("\nThe share of that ratio that was collected:\n")
    shares = cells[[f"{path}_share" for path in cached]]
    print(shares.rename(columns=lambda name: name[:-6]).to_string(float_format=percent))
    print("\nHow far the predictions are off:\n")
    print(sweep.held_out(cells).to_string(float_format=percent))
