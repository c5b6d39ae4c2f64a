"""What the checks of chapter 2's claims read: printed figures, recorded rows, safeguards to try."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pandas as pd

from labsupport import breakeven, cost_source, reuse_trials
from labsupport import evidence as recorded


@dataclass(frozen=True)
class CostEvidence:
    """What the checks of chapter 2 read.

    source     the study's table of medians, in microseconds: a row a path
    rows       the recorded run: one row a query, times in nanoseconds
    config     that run's configuration, from its manifest
    trials     the safeguards of reuse, by the names of the functions of `reuse_trials`
    breakeven  the recorded map of larger inputs: one row a cell, as `breakeven.table` makes it
    """

    source: pd.DataFrame
    rows: pd.DataFrame
    config: dict
    trials: dict[str, Callable]
    breakeven: pd.DataFrame

    def paired(self, column: str) -> pd.DataFrame:
        """A column in nanoseconds, one row a round and one column a path: [n_rounds, n_paths]."""
        return self.rows.pivot(index=["seed", "round"], columns="path", values=column)


TRIALS = (
    reuse_trials.projected_rows,
    reuse_trials.writes_refused,
    reuse_trials.forced_write,
    reuse_trials.changed_weight,
    reuse_trials.reused,
    reuse_trials.other_keys,
)


@cache
def evidence() -> CostEvidence:
    """The evidence recorded in the repository."""
    run = recorded.read("cost-decomposition")
    trials = {trial.__name__: trial for trial in TRIALS}
    cells, _ = breakeven.load("break-even")
    return CostEvidence(cost_source.medians_us(), run.rows, run.manifest["config"], trials, cells)
