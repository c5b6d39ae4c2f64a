"""`python -m labsupport sweep --out DIR`: times the loops of `labsupport.sweep`, records the run.

To import this module is to hold the process at one thread.
"""

import sys
from dataclasses import asdict

from labsupport.profile_command import threads_in_use  # first: it sets the threads

from labsupport import evidence, sweep  # isort: skip
from labsupport.loops import PATHS  # isort: skip
from labsupport.sweep import QUICK, Grid  # isort: skip


def add_arguments(parser):
    """The options of the command: --out, --quick, and those of a Grid."""
    default = Grid()
    parser.add_argument("--out", required=True, help="a directory that does not exist yet")
    cells = f'widths and tokens ("{default.cells[0]}" to "{default.cells[-1]}")'
    parser.add_argument("--cells", nargs="+", help=cells)
    parser.add_argument("--paths", nargs="+", help=f"of {', '.join(PATHS)} (all)")
    rounds = f"rounds; every loop once a round ({default.rounds})"
    parser.add_argument("--rounds", type=int, help=rounds)
    quick = f"few small cells ({', '.join(QUICK.cells)}), and rates at fewer sizes"
    parser.add_argument("--quick", action="store_true", help=quick)


def main(args):
    """Measure, then write the run whole: 0, or 1 if it cannot be trusted, 2 for wrong options."""
    grid = asdict(QUICK if args.quick else Grid())
    for name in ("cells", "paths", "rounds"):
        if getattr(args, name) is not None:
            grid[name] = getattr(args, name)
    try:
        grid = Grid(**grid)
    except ValueError as error:
        print(f"{error}. See: python -m labsupport sweep --help", file=sys.stderr)
        return 2
    try:
        begun = evidence.begin(args.out)
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        cells = sweep.table(*record(begun, grid))
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    show(cells, [path for path in grid.paths if path != "uncached"])
    print(f"\nWritten to {begun.out}. Next: python -m labsupport audit {begun.out}")
    return 0


def record(begun, grid):
    """Measure the grid and write the run; returns its rows and the rates.

    Raises RuntimeError or ValueError, and nothing is written, if the libraries use more than one
    thread, if logits disagreed or if the code changed meanwhile.
    """
    rows, rates = sweep.measure(grid)
    config = {
        **asdict(grid),
        "seed": 0,
        "dtype": "float32",
        "prelude": sweep.PRELUDE,
        "tolerance": sweep.TOLERANCE,
        "threads": threads_in_use(),
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


def show(cells, cached):
    """Print what was measured and how far the predictions are off."""
    percent, cells = "{:.1%}".format, cells.set_index("cell")
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
