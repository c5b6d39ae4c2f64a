"""When is a warm request slower than a cold one? A search over a grid of set-ups.

    python -m labsupport warmcold --out outputs/my-search

times every cell of the grid twice, each time in a new process: in the phase `search`, from which
candidates are picked, and in the phase `confirm`, which alone decides whether they stand.
"""

import itertools

import numpy as np
import pandas as pd
from tqdm import tqdm

from labsupport import evidence, machine, recording, timing
from labsupport.serving import (
    CACHES,
    CAPACITY,
    HITS,
    N_HEADS,
    N_LAYERS,
    PATHS,
    TOLERANCE,
    VOCAB_SIZE,
    in_fresh_process,
    serve,
)

MARGIN = 0.02  # effects below 2 % are not looked for
PHASES = ("search", "confirm")
MIN_ROUNDS = 6  # fewer pairs have no 95 % interval (timing.ratio_of_pairs)

GRID = {
    "cache": list(CACHES),
    "hit": list(HITS),
    "allocator": ["default", "keeps memory"],
    "d_model": [16, 128],
    "n_prompt": [4, 12, 48, 192],
    "n_new": [1, 12],
}


def _times(phase: str, rounds: int, seed: int, grid: dict) -> list[dict]:
    """Every cell of the grid, in random order, each in a process of its own."""
    rng = np.random.default_rng([seed, PHASES.index(phase)])
    cells = [dict(zip(grid, levels, strict=True)) for levels in itertools.product(*grid.values())]
    rows = []
    for i in tqdm(rng.permutation(len(cells)), desc=phase, disable=None):
        levels = dict(cells[i])
        allocator = levels.pop("allocator")
        timed = in_fresh_process(
            serve, allocator, cell=levels, rounds=rounds, seed=int(rng.integers(2**31))
        )
        rows += [{"phase": phase, **cells[i], **row} for row in timed]
    return rows


def compare(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a cell: warm time over cold time, its 95 % interval and verdict, by paired rounds.

    Beside it the medians, over the rounds, of each path's segments, bytes, allocations and faults.
    """
    names = [name for name in ("phase", *GRID) if name in rows]
    counted = ["total_ns", "take_ns", "first_ns", "decode_ns"]
    counted += ["bytes_copied", "n_allocations", "page_faults"]
    table = []
    for levels, cell in rows.groupby(names, sort=False):
        pairs = cell.pivot(index="round", columns="path", values="total_ns")
        ratio, low, high = timing.ratio_of_pairs(pairs["cold"], pairs["warm"])
        medians = cell.groupby("path")[counted].median()
        table.append(
            {
                **dict(zip(names, levels, strict=True)),
                "ratio": ratio,
                "low": low,
                "high": high,
                "verdict": timing.verdict(low, high, MARGIN),
                **{f"{path}_{c}": medians.loc[path, c] for path in PATHS for c in counted},
            }
        )
    return pd.DataFrame(table)


def searched(rows: pd.DataFrame) -> pd.DataFrame:
    """The whole grid as the search saw it, sorted by its levels."""
    return compare(rows[rows["phase"] == "search"]).sort_values(list(GRID), ignore_index=True)


def confirmed(rows: pd.DataFrame) -> pd.DataFrame:
    """The cells that looked slower warm in the search, judged by the fresh rows alone."""
    picked = searched(rows).query("verdict == 'slower'")[list(GRID)]
    fresh = rows[rows["phase"] == "confirm"].merge(picked, on=list(GRID))
    if fresh.empty:
        return searched(rows).iloc[:0]
    return compare(fresh).sort_values("ratio", ascending=False, ignore_index=True)


def add_arguments(parser) -> None:
    """The options of `python -m labsupport warmcold`."""
    recording.add_out(parser)
    parser.add_argument("--rounds", type=int, default=21, help="rounds a cell and phase (21)")
    parser.add_argument("--seed", type=int, default=0)


def main(args) -> int:
    """Search, confirm, and record the run; the exit code. Nothing is written when interrupted."""
    return recording.run(args, "warmcold", _checked, _measured, show)


def _checked(args):
    if args.rounds < MIN_ROUNDS:
        raise ValueError(f"--rounds must be at least {MIN_ROUNDS}, not {args.rounds}")
    if args.seed < 0:
        raise ValueError(f"--seed must be 0 or more, not {args.seed}")
    return args


def _measured(begun, args) -> pd.DataFrame:
    machine.use_one_thread()
    rows = [row for phase in PHASES for row in _times(phase, args.rounds, args.seed, GRID)]
    table = pd.DataFrame(rows)
    record(begun, table, args)
    return table


def show(table: pd.DataFrame) -> None:
    """Print what the search found, and how much of it was measured again."""
    print(f"search: {searched(table)['verdict'].value_counts().to_dict()}")
    print(f"slower in the search, measured again: {len(confirmed(table))} cells")


def record(begun: evidence.Begun, rows: pd.DataFrame, args) -> None:
    """Write the run; raises ValueError, and writes nothing, if the rows are no evidence."""
    options = ["--out", args.out, "--rounds", args.rounds, "--seed", args.seed]
    evidence.write(
        begun,
        rows,
        command=["python", "-m", "labsupport", "warmcold", *map(str, options)],
        config={
            "rounds": args.rounds,
            "seed": args.seed,
            "n_layers": N_LAYERS,
            "n_heads": N_HEADS,
            "vocab_size": VOCAB_SIZE,
            "capacity": CAPACITY,
            "tolerance": TOLERANCE,
        },
        factors={
            "phase": list(PHASES),
            **GRID,
            "round": list(range(args.rounds)),
            "path": list(PATHS),
        },
        repeats=["round"],
        total="total_ns",
        segments=["take_ns", "first_ns", "decode_ns"],
        agreed="agreed",
        warmed="two requests of each path in each cell, untimed",
        excluded="nothing",
    )
