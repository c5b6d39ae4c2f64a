"""Where reuse starts to win: the paths of `profile` over width x tokens x share of the prefix.

    python -m labsupport breakeven --out outputs/my-map

measures the whole grid once for every seed, in an order of its own each time, so that a slow
stretch of the machine falls on all cells alike, and calibrates `costmodel` in between. What a cell
should take follows from the recorded prices and from counts made anew where it is read: the number
of bytecode instructions is that of the reader's Python (2,643 in 3.11, 2,328 in 3.13 for a query
of the source's size, 2.5 % of its predicted time).
"""

import math
import random
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product

import numpy as np
import pandas as pd
from tqdm import tqdm

from labsupport import calibrate, costmodel, evidence, profile, timing
from labsupport.kvcache import whole_number
from labsupport.profile import PATHS, Case

MARGIN = 0.005  # an interval within half a per cent is no verdict; the floor makes most wider
MIN_PAIRS = 6  # fewer pairs have no 95 % interval (timing.ratio_of_pairs)
CELL = ["tokens", "share", "width"]
REUSING = ["rehash", "frozen"]


def prefix_of(share, tokens):
    """How many of `tokens` a share like "2/3" is; ValueError if it is no whole number of them."""
    try:
        prefix = Fraction(share) * tokens
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"a share is written as a fraction like 2/3, not {share!r}") from None
    if prefix.denominator != 1 or not 0 < prefix < tokens:
        said = f"{share} of {tokens} tokens are {float(prefix):g}"
        raise ValueError(f"{said}; choose a whole number of them, from 1 to {tokens - 1}")
    return int(prefix)


@dataclass(frozen=True)
class Grid:
    """The cells: every width with every number of tokens and every share; ValueError if it cannot.

    shares         of the tokens, as texts like "2/3", each a whole number of tokens
    seeds, rounds  so many visits to each cell, and rounds a visit
    calibration_s  seconds of calibration for each seed
    """

    widths: list[int] = field(default_factory=lambda: [16, 32, 64, 128, 256])
    tokens: list[int] = field(default_factory=lambda: [12, 48, 192])
    shares: list[str] = field(default_factory=lambda: ["1/3", "1/2", "2/3", "5/6", "11/12"])
    seeds: int = 9
    rounds: int = 9
    calibration_s: float = 1.5

    def __post_init__(self):
        for name in ("widths", "tokens", "shares"):
            levels = getattr(self, name)
            if not levels or len(set(levels)) < len(levels):
                raise ValueError(f"{name} must be one or more different values, not {levels}")
        pairs = whole_number("seeds", self.seeds, 1) * whole_number("rounds", self.rounds, 1)
        if pairs < MIN_PAIRS:
            raise ValueError(f"seeds x rounds must be at least {MIN_PAIRS}, not {pairs}")
        if not 0 < self.calibration_s < math.inf:
            raise ValueError(f"calibration_s must be above 0, not {self.calibration_s}")
        self.cases()
        if len({Fraction(share) for share in self.shares}) < len(self.shares):
            raise ValueError(f"shares must be different, not {' and '.join(self.shares)}")

    def cases(self):
        """The Case of each cell: {(tokens, share, width): Case}."""
        return {
            (tokens, share, width): Case(
                width=width, tokens=tokens, prefix=prefix_of(share, tokens), rounds=self.rounds
            )
            for tokens, share, width in product(self.tokens, self.shares, self.widths)
        }


QUICK = Grid(tokens=[12], shares=["2/3"], seeds=5, rounds=15, calibration_s=1.0)


def measure(grid):
    """The rows in the order measured, and the calibration: {"prices_ns": ..., "call_ns": ...}.

    A row is one of `profile.measure` behind its cell: tokens, share, width, prefix.
    """
    cases, rows, turns = grid.cases(), [], []
    with calibrate.prepared() as (pieces, counts), timing.collector_off():
        steps = tqdm(total=grid.seeds * len(cases), desc="break-even", disable=None)
        for seed in range(grid.seeds):
            turns.append(calibrate.time_in_turns(pieces, grid.calibration_s, seed))
            for cell in random.Random(seed).sample(list(cases), len(cases)):
                named = {**dict(zip(CELL, cell, strict=True)), "prefix": cases[cell].prefix}
                rows += [
                    {**named, **row} for row in profile.measure_seed(cases[cell], seed, quiet=True)
                ]
                steps.update()
        steps.close()
    taken_ns = calibrate.typical_ns(*turns)
    calibrated = {
        "prices_ns": calibrate.fit(counts, taken_ns),
        "call_ns": calibrate.call_price(counts, taken_ns),
    }
    return pd.DataFrame(rows), calibrated


def load(path_or_name):
    """The table of a recorded run and its calibration, by directory or name of evidence."""
    run = evidence.read(path_or_name)
    config = run.manifest["config"]
    calibrated = config["calibration"]
    shape = {"layers": config["layers"], "heads": config["heads"]}
    return table(run.rows, calibrated["prices_ns"], **shape), calibrated


def table(rows, prices_ns, **shape):
    """One row a cell, measured and predicted; shape: layers and heads, if not those of a Case.

    full_ns, rehash_ns, frozen_ns      medians, with ..._predicted_ns
    frozen (rehash)                    the ratio to full over paired rounds, its interval
    frozen_low, frozen_high,               and the verdict
    frozen_verdict
    frozen_predicted                   the predicted ratio
    frozen_error                       predicted / measured - 1, of the ratio
    """
    cells = [_cell(named, cell, prices_ns, shape) for named, cell in rows.groupby(CELL, sort=False)]
    shares = {share: float(Fraction(share)) for share in rows["share"].unique()}
    return pd.DataFrame(cells).sort_values(
        CELL, key=lambda c: c.map(shares) if c.name == "share" else c, ignore_index=True
    )


def _cell(named, rows, prices_ns, shape):
    tokens, share, width = named
    prefix = prefix_of(share, tokens)
    case = Case(width=width, tokens=tokens, prefix=prefix, **shape)
    predicted = costmodel.predict(case, prices_ns)
    pairs = rows.pivot(index=["seed", "round"], columns="path", values="total_ns")
    cell = {"tokens": tokens, "share": share, "width": width, "prefix": prefix}
    for path in PATHS:
        cell[f"{path}_ns"] = pairs[path].median()
        cell[f"{path}_predicted_ns"] = predicted.loc[path, "total"]
    for path in REUSING:
        ratio, low, high = timing.ratio_of_pairs(pairs["full"], pairs[path])
        expected = predicted.loc[path, "total"] / predicted.loc["full", "total"]
        cell |= {
            path: ratio,
            f"{path}_low": low,
            f"{path}_high": high,
            f"{path}_verdict": timing.verdict(low, high, MARGIN),
            f"{path}_predicted": expected,
            f"{path}_error": expected / ratio - 1,
        }
    return cell


def held_out(cells):
    """How far predictions are off, of each path's time and each ratio: one row each.

    median and worst are absolute relative errors over the cells of `table`; within_20 the share
    of the cells that are off by 20 % at most.
    """
    errors = {
        f"{path} time": cells[f"{path}_predicted_ns"] / cells[f"{path}_ns"] - 1 for path in PATHS
    }
    errors |= {f"{path} / full": cells[f"{path}_error"] for path in REUSING}
    return pd.DataFrame(
        {
            name: {
                "median": e.abs().median(),
                "worst": e.abs().max(),
                "within_20": (e.abs() <= 0.2).mean(),
            }
            for name, e in errors.items()
        }
    ).T


def crossings(cells, along="width", path="frozen"):
    """Where a path's ratio to full passes 1 on each line of the grid: one row a line.

    along is "width" (interpolated in its logarithm) or "share". measured is the least width or
    share from which on the path is faster than full up to the end of the line, low and high the
    same for the interval's ends, predicted for the prediction; 0 if it is faster on the whole
    line, infinite if it is not at its end.
    """
    if along not in ("width", "share"):
        raise ValueError(f"along must be 'width' or 'share', not {along!r}")
    lines = []
    others = [name for name in CELL if name != along]
    for levels, line in cells.groupby(others, sort=False):
        at = line["width"] if along == "width" else line["share"].map(lambda s: float(Fraction(s)))
        line = line.assign(at=at.astype(float)).sort_values("at")
        scale = (np.log, np.exp) if along == "width" else (np.asarray, float)
        found = {
            name: _crossing(scale[0](line["at"]), np.log(line[column]), scale[1])
            for name, column in {
                "measured": path,
                "low": f"{path}_low",
                "high": f"{path}_high",
                "predicted": f"{path}_predicted",
            }.items()
        }
        lines.append({**dict(zip(others, levels, strict=True)), **found})
    return pd.DataFrame(lines)


def _crossing(at, log_ratio, back):
    at, log_ratio = np.asarray(at), np.asarray(log_ratio)
    lost = np.flatnonzero(log_ratio >= 0)  # not faster there
    if not lost.size:
        return 0.0
    if (i := lost[-1]) == len(at) - 1:
        return math.inf
    part = log_ratio[i] / (log_ratio[i] - log_ratio[i + 1])
    return float(back(at[i] + part * (at[i + 1] - at[i])))


def one_case(case, prices_ns):
    """A case of your own, measured now, and predicted: its row of `table`, a Series."""
    calibrate.keep_memory()
    share = f"{case.prefix}/{case.tokens}"
    rows = profile.measure(case).assign(tokens=case.tokens, share=share, width=case.width)
    return table(rows, prices_ns, layers=case.layers, heads=case.heads).iloc[0]
