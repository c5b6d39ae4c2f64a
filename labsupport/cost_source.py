"""The figures that the cost study printed, from evidence/cost-source/: it published no raw rows."""

from pathlib import Path

import pandas as pd

from labsupport import evidence

PATHS = ["full", "rehash", "frozen"]
COLUMNS = ["total", "signature", "lookup", "copy", "compute"]


def medians_us(directory: str | Path | None = None) -> pd.DataFrame:
    """Its table: a row a path, each column's own median in microseconds, NaN where none is printed.

    Raises FileNotFoundError for a missing file and ValueError for a table of another form.
    """
    file = _directory(directory) / "medians.csv"
    table = pd.read_csv(file, index_col="path")
    numbers = all(kind.kind == "f" for kind in table.dtypes)
    if list(table.index) != PATHS or list(table) != COLUMNS or not numbers:
        raise ValueError(_damaged(file, f"rows {PATHS} of numbers under {COLUMNS}"))
    return table


def stated(directory: str | Path | None = None) -> dict[str, float]:
    """The figures that its text states, by name; stated.csv gives their units.

    Raises FileNotFoundError for a missing file and ValueError for a table of another form.
    """
    file = _directory(directory) / "stated.csv"
    table = pd.read_csv(file, index_col="figure")
    if list(table) != ["value", "unit"] or table["value"].dtype.kind != "f":
        raise ValueError(_damaged(file, "a number and a unit for each figure"))
    return table["value"].to_dict()


def _directory(directory: str | Path | None) -> Path:
    return evidence.directory("cost-source") if directory is None else Path(directory)


def _damaged(file: Path, needed: str) -> str:
    said = f"{file} does not hold {needed}. To see what changed in it"
    return f"{said}: python -m labsupport audit {file.parent}"
