"""The figures that the derivation of the cache printed, from evidence/generation-source/."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from labsupport import evidence

BOTH = ["uncached_ms", "cached_ms", "measured", "arithmetic"]
HALF_MS = 0.5  # its times are whole milliseconds, so the true ones are within this of them


def length(directory: str | Path | None = None) -> pd.DataFrame:
    """Its table over the length, a row a number of tokens `n`: BOTH.

    uncached_ms, cached_ms   of a loop of n, each the least of three or more runs
    measured                 the speed-up
    arithmetic               the ratio of multiplications

    Raises FileNotFoundError for a missing file and ValueError for a table of another form.
    """
    return _table(directory, "length.csv", "n", BOTH)


def width(directory: str | Path | None = None) -> pd.DataFrame:
    """Its table over the width, a row a `d` at 256 tokens: BOTH and collected_percent.

    Raises FileNotFoundError for a missing file and ValueError for a table of another form.
    """
    return _table(directory, "width.csv", "d", [*BOTH, "collected_percent"])


def stated(directory: str | Path | None = None) -> dict[str, float]:
    """The figures that its text states, by name; stated.csv gives their units.

    Raises FileNotFoundError for a missing file and ValueError for a table of another form.
    """
    table = _table(directory, "stated.csv", "figure", ["value", "unit"], ["value"])
    return table["value"].to_dict()


def ratios(directory: str | Path | None = None) -> list[tuple[int, int, float]]:
    """Its ratios of multiplications, those of both tables: (d, n, ratio), without repeats."""
    return ratios_in(length(directory), width(directory))


def ratios_in(length, width) -> list[tuple[int, int, float]]:
    """The same of tables as `length` and `width` give them."""
    by_length = [(128, n, r) for n, r in length["arithmetic"].items()]
    by_width = [(d, 256, r) for d, r in width["arithmetic"].items()]
    return list(dict.fromkeys(by_length + by_width))


def over_rounding(times_ms, of) -> tuple[float, float]:
    """The least and the largest `of(times)` when each time is anywhere within HALF_MS.

    All combinations of ends are tried, so times_ms are ten or so. `of` is continuous: what lies
    between the two is reached as well.
    """
    ends = product(*((t - HALF_MS, t + HALF_MS) for t in times_ms))
    values = [of(np.array(times)) for times in ends]
    return float(min(values)), float(max(values))


def _table(directory, name, index, columns, numeric=None):
    file = (
        evidence.directory("generation-source") if directory is None else Path(directory)
    ) / name
    table = pd.read_csv(file, index_col=0)
    wanted = numeric or columns
    numbers = list(table) == columns and all(table[c].dtype.kind in "if" for c in wanted)
    positive = numbers and bool((table[wanted] > 0).all(axis=None))
    if table.index.name != index or not positive or not table.index.is_unique or table.empty:
        said = f"{file} does not hold positive numbers under {wanted} for each {index!r}"
        raise ValueError(
            f"{said}. To see what changed in it: python -m labsupport audit {file.parent}"
        )
    return table
