"""The figures that the derivation printed of its cache's size, from evidence/generation-source/."""

from pathlib import Path

import pandas as pd

from labsupport import derivation_source, evidence

stated = derivation_source.stated  # figures of its text, those on memory among them


def sizes(directory: str | Path | None = None) -> pd.Series:
    """Its rows of the cache's size: number of tokens `n` -> what it prints as megabytes.

    Raises FileNotFoundError for a missing file and ValueError for a table of another form.
    """
    folder = evidence.directory("generation-source") if directory is None else Path(directory)
    file = folder / "memory.csv"
    table = pd.read_csv(file, index_col=0)
    as_numbers = table.reset_index()
    numbers = all(kind.kind in "if" for kind in as_numbers.dtypes)
    if list(as_numbers) != ["n", "megabytes"] or not numbers or not (as_numbers > 0).all(axis=None):
        said = f"{file} does not hold positive numbers under n and megabytes"
        raise ValueError(f"{said}. To see what changed in it: python -m labsupport audit {folder}")
    return table["megabytes"]
