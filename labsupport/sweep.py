"""How long generation takes with and without a cache, over the width and the length.

    python -m labsupport sweep --out outputs/my-sweep

    cell    a width and a number of tokens, as "d128 n256": a model, and the loops of `loops` on it
    round   every cell in a random order, and in it every path once, in a random order, so that a
            slow stretch of the machine falls on all alike; then a round of the rates

What a cell should take follows from the rates (`roofline`), which no loop of a cell is part of.
"""

import random
import re
from dataclasses import dataclass, field
from time import perf_counter_ns

import pandas as pd
from tqdm import tqdm

from labsupport import arithmetic, evidence, loops, rates, roofline, stepwork, timing
from labsupport.charmodel import CharConfig
from labsupport.kvcache import whole_number
from labsupport.loops import PATHS

CELLS = [f"d128 n{n}" for n in (64, 128, 256, 512, 1024)]
CELLS += [f"d{d} n256" for d in (192, 256, 384, 512, 768, 1024)]
TOLERANCE = 1e-4  # of the last step's logits, relative to the largest
MIN_ROUNDS = 6  # fewer pairs have no 95 % interval (timing.ratio_of_pairs)
PRELUDE = 8  # untimed steps before each loop, whose weights another cell drove from the caches


def config_of(cell):
    """The CharConfig of a cell like "d128 n256", and its number of tokens.

    Its context is that of the source, 128, or as long as the loop. ValueError for other texts.
    """
    if not (found := re.fullmatch(r"d([1-9]\d*) n([1-9]\d*)", cell)):
        raise ValueError(f"a cell is written like 'd128 n256', not {cell!r}")
    d_model, n_tokens = map(int, found.groups())
    return CharConfig(d_model=d_model, context=max(CharConfig().context, n_tokens)), n_tokens


@dataclass(frozen=True)
class Grid:
    """What is measured; ValueError or TypeError if it cannot be.

    cells   texts like "d128 n256"
    paths   names in `loops.PATHS`, "uncached" among them: the others are held against it
    rounds  how often each loop is timed, MIN_ROUNDS at least
    small   rates at fewer sizes, which is enough for widths up to 256
    """

    cells: list[str] = field(default_factory=lambda: list(CELLS))
    paths: list[str] = field(default_factory=lambda: list(PATHS))
    rounds: int = 7
    small: bool = False

    def __post_init__(self):
        for name, known in (("cells", None), ("paths", PATHS)):
            levels = getattr(self, name)
            if not levels or len(set(levels)) < len(levels):
                raise ValueError(f"{name} must be one or more that differ, not {levels}")
            if strangers := [level for level in levels if known and level not in known]:
                raise ValueError(f"{name} are among {', '.join(known)}, not {strangers[0]!r}")
        if "uncached" not in self.paths:
            raise ValueError("paths must hold 'uncached', which the others are held against")
        whole_number("rounds", self.rounds, at_least=MIN_ROUNDS)
        for cell in self.cells:
            config_of(cell)

    def probes(self):
        """The probes of `rates` that go with the cells."""
        if self.small:
            sizes = {"widths": [64, 128, 256], "rows": [1, 4, 16, 64, 256]}
            pieces = stepwork.probes(**sizes, tokens=[1, 16, 64, 256], elements=[2**10, 2**17])
            return pieces + rates.probes([2**k * rates.MB for k in range(5)])
        return stepwork.probes() + rates.probes()


QUICK = Grid(cells=["d64 n64", "d128 n32", "d128 n64", "d128 n128"], small=True)


def measure(grid):
    """The rows in the order measured, and the machine's rates; prints what it will take.

    A row is a timed loop: cell, d_model, n_tokens, round, path, total_ns, agreed.
    Raises RuntimeError, before anything is timed, where a path's logits differ from those of a
    pass over all tokens by more than TOLERANCE.
    """
    visits = {cell: _Visits(cell, grid.paths) for cell in grid.cells}
    minutes = grid.rounds * sum(each.round_s for each in visits.values()) / 60
    print(f"The loops take about {minutes:.1f} minutes, the rates one more.", flush=True)
    timer = rates.Timer(grid.probes())
    rng, rows = random.Random(0), []
    steps = tqdm(total=grid.rounds * len(visits), desc="sweep", disable=None)
    with timing.collector_off():
        for i in range(grid.rounds):
            for cell in rng.sample(grid.cells, len(grid.cells)):
                rows += [{**row, "round": i} for row in visits[cell].round(rng)]
                steps.update()
            timer.round()
    steps.close()
    measured = timer.rates()
    measured["operations"] = loops.operations(config_of(grid.cells[0])[0], grid.paths)
    columns = ["cell", "d_model", "n_tokens", "round", "path", "total_ns", "agreed"]
    return pd.DataFrame(rows)[columns], measured


class _Visits:
    """The loops of a cell, warmed and known to agree; `round_s` is about what a round takes."""

    def __init__(self, cell, paths):
        self.config, self.n_tokens = config_of(cell)
        self.named = {"cell": cell, "d_model": self.config.d_model, "n_tokens": self.n_tokens}
        self.loops = loops.make(self.config, paths)
        self.tokens = loops.tokens_of(self.config, self.n_tokens)
        one_pass = loops.one_pass(self.config)
        self.wanted = one_pass(self.tokens)  # [vocab_size]
        start_ns = perf_counter_ns()
        one_pass(self.tokens)
        pass_ns = perf_counter_ns() - start_ns  # of the longest step; the mean is about half
        self.round_s = 0.0
        for path, loop in self.loops.items():
            # The whole loop without a cache would take as long as a round.
            fed = self.tokens[:PRELUDE] if path == "uncached" else self.tokens
            start_ns = perf_counter_ns()
            off = loops.difference(loop(fed), one_pass(fed))
            taken_ns = perf_counter_ns() - start_ns
            if not off <= TOLERANCE:
                said = f"differ by {off:.1e} of the largest; {TOLERANCE:.0e} is allowed"
                raise RuntimeError(f"{cell}, {path}: the logits {said}. Nothing was measured.")
            self.round_s += 1e-9 * (self.n_tokens * pass_ns / 2 if path == "uncached" else taken_ns)

    def round(self, rng):
        """Time every path once, in a random order: rows without their round."""
        rows = []
        for path in rng.sample(list(self.loops), len(self.loops)):
            loop = self.loops[path]
            loop(self.tokens[:PRELUDE])
            start_ns = perf_counter_ns()
            logits = loop(self.tokens)
            total_ns = perf_counter_ns() - start_ns
            agreed = loops.difference(logits, self.wanted) <= TOLERANCE
            rows.append({**self.named, "path": path, "total_ns": total_ns, "agreed": agreed})
        return rows


def load(path_or_name):
    """The table of a recorded run and its rates, by directory or name of evidence."""
    run = evidence.read(path_or_name)
    measured = run.manifest["config"]["rates"]
    return table(run.rows, measured), measured


def table(rows, rates):
    """One row a cell, measured and predicted, in the order of width and tokens.

    d_model, n_tokens
    uncached_ns            the median time of a loop; P_ns of each cached path P that was measured
    P, P_low, P_high       uncached / P over paired rounds, and its interval
    arithmetic             the ratio of multiplications; P_share is P / arithmetic
    uncached_predicted_ns  what the rates predict, P_predicted_ns likewise; P_predicted the ratio
    """
    cells = [_cell(cell, each, rates) for cell, each in rows.groupby("cell", sort=False)]
    return pd.DataFrame(cells).sort_values(["d_model", "n_tokens"], ignore_index=True)


def _cell(cell, rows, rates):
    config, n = config_of(cell)
    pairs = rows.pivot(index="round", columns="path", values="total_ns")
    operations = {path: calls for path, calls in rates["operations"].items() if path in pairs}
    predicted_ns = roofline.loop(config, n, rates, operations)["total"]
    row = {"cell": cell, "d_model": config.d_model, "n_tokens": n}
    row["arithmetic"] = arithmetic.ratio(config, n)
    for path in operations:
        row[f"{path}_ns"] = pairs[path].median()
        row[f"{path}_predicted_ns"] = predicted_ns[path]
    for path in [path for path in operations if path != "uncached"]:
        ratio, low, high = timing.ratio_of_pairs(pairs[path], pairs["uncached"])
        row |= {
            path: ratio,
            f"{path}_low": low,
            f"{path}_high": high,
            f"{path}_share": ratio / row["arithmetic"],
            f"{path}_predicted": predicted_ns["uncached"] / predicted_ns[path],
        }
    return row


def held_out(cells):
    """How far predictions are off, of each path's time and each speed-up: one row each.

    median and worst are absolute relative errors over the cells of `table`; within_25 the share
    of the cells that are off by 25 % at most.
    """
    paths = [path for path in PATHS if f"{path}_ns" in cells]
    errors = {f"{p} time": cells[f"{p}_predicted_ns"] / cells[f"{p}_ns"] - 1 for p in paths}
    cached = [path for path in paths if path != "uncached"]
    errors |= {f"uncached / {p}": cells[f"{p}_predicted"] / cells[p] - 1 for p in cached}
    return pd.DataFrame(
        {
            name: {
                "median": off.abs().median(),
                "worst": off.abs().max(),
                "within_25": (off.abs() <= 0.25).mean(),
            }
            for name, off in errors.items()
        }
    ).T
