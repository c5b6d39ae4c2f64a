"""`python -m labsupport breakeven --out DIR`: measures the map of `labsupport.breakeven`.

To import this module is to hold the process at one thread.
"""

from dataclasses import asdict

from labsupport.profile_command import BOOKS, protocol  # first: it sets the threads

from labsupport import breakeven, costmodel, evidence, profile, recording  # isort: skip
from labsupport.breakeven import CELL, Grid  # isort: skip


def add_arguments(parser):
    """The options of the command: --out, and those of a Grid."""
    default = Grid()
    recording.add_out(parser)
    for name, kind, said in (
        ("widths", int, "numbers a token is held in"),
        ("tokens", int, "tokens of a query"),
        ("shares", str, "how much of them is reused, as fractions"),
    ):
        levels = getattr(default, name)
        said = f"{said} ({' '.join(map(str, levels))})"
        parser.add_argument(f"--{name}", type=kind, nargs="+", default=levels, help=said)
    for name, kind, said in (
        ("seeds", int, "visits to each cell, each with weights and tokens of its own"),
        ("rounds", int, "rounds a visit; every path once a round"),
        ("calibration_s", float, "seconds of calibration for each seed"),
    ):
        level = getattr(default, name)
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=kind, default=level, help=f"{said} ({level})")


def main(args):
    """Measure the grid that the options name, and record the run; the exit code."""

    def grid(args):
        return Grid(**{name: getattr(args, name) for name in asdict(Grid())})

    return recording.run(args, "breakeven", grid, record, show)


def show(recorded):
    """Print the map, and how far the predictions are off."""
    cells = breakeven.table(*recorded)
    print("Time with the prefix reused (frozen) over time without (full):\n")
    shown = cells.pivot_table(
        index=["tokens", "share"], columns="width", values="frozen", sort=False
    )
    print(shown.to_string(float_format="{:.2f}".format))
    print("\nHow far the predictions are off:\n")
    print(breakeven.held_out(cells).to_string(float_format="{:.1%}".format))


def record(begun, grid):
    """Measure the grid and write the run; returns its rows and the prices.

    Raises RuntimeError or ValueError, and nothing is written, if the libraries use more than one
    thread, if outputs disagreed or if the code changed meanwhile.
    """
    config = {
        **asdict(grid),
        "seeds": list(range(grid.seeds)),
        "layers": profile.Case().layers,
        "heads": profile.Case().heads,
        **protocol(),
    }
    rows, calibration = breakeven.measure(grid)
    config["calibration"] = {**calibration, "meaning": costmodel.PRICES}
    options = []
    for name, value in asdict(grid).items():
        values = value if isinstance(value, list) else [value]
        options += [f"--{name.replace('_', '-')}", *map(str, values)]
    evidence.write(
        begun,
        rows,
        command=["python", "-m", "labsupport", "breakeven", "--out", str(begun.out), *options],
        config=config,
        factors={
            **dict(zip(CELL, (grid.tokens, grid.shares, grid.widths), strict=True)),
            "seed": range(grid.seeds),
            "round": range(grid.rounds),
            "path": profile.PATHS,
        },
        **BOOKS,
        warmed=f"{profile.WARMUPS} queries of each path at each visit to a cell, before its rounds",
        excluded="the warm-ups, the building of models and stores, and the calibration",
    )
    return rows, calibration["prices_ns"]
