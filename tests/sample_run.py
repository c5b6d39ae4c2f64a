"""A small run for the tests of recorded evidence: 3 seeds, 4 rounds, 3 paths, 36 rows."""

import csv
import io

import numpy as np
import pandas as pd

from labsupport import books, columns, evidence, jsontext, seal

PATHS = ["full", "rehash", "frozen"]
SEGMENTS = ["lookup_ns", "copy_ns", "continuation_ns", "residual_ns"]
FACTORS = {"seed": [0, 1, 2], "round": [0, 1, 2, 3], "path": PATHS}


def rows() -> pd.DataFrame:
    """Rows that close, in a shuffled order, with a column of each kind."""
    rng = np.random.default_rng(7)
    table = []
    for seed in FACTORS["seed"]:
        for i in FACTORS["round"]:
            for path in rng.permutation(PATHS):
                parts = dict(zip(SEGMENTS, rng.integers(100, 99_999, 4).tolist(), strict=True))
                row = {"seed": seed, "round": i, "path": str(path), "total_ns": sum(parts.values())}
                row |= parts | {"error": rng.random() * 1e-13, "note": f"a, {path}", "agreed": True}
                table.append(row)
    return pd.DataFrame(table)


def arguments(**changes) -> dict:
    """The keyword arguments of `evidence.write` for `rows`."""
    return {
        "command": "python -m labsupport profile",
        "config": {"seeds": [0, 1, 2], "width": 16, "check": None, "margin": 0.002},
        "factors": FACTORS,
        "total": "total_ns",
        "segments": SEGMENTS,
        "agreed": "agreed",
        "warmed": "five queries a path",
        "excluded": "the warm-ups",
        **changes,
    }


def write(out, table: pd.DataFrame | None = None, **changes):
    """Record the sample run at `out`."""
    begun = evidence.begin(out)
    return evidence.write(begun, rows() if table is None else table, **arguments(**changes))


def contents(directory) -> dict[str, bytes]:
    """Name -> content of the files directly in a directory."""
    return {file.name: file.read_bytes() for file in directory.iterdir()}


def forged(files: dict[str, bytes], raw: bytes, **manifest_changes) -> dict[str, bytes]:
    """The files with other rows, and every checksum and the summary made to agree with them."""
    manifest, _ = jsontext.parse("manifest.json", files["manifest.json"])
    manifest["sha256"] = {"raw.csv": seal.sha256(raw)}
    manifest |= manifest_changes
    out = {"raw.csv": raw, "manifest.json": jsontext.dump(manifest)}
    values, _ = columns.parse(raw, manifest["columns"])
    out["summary.json"] = jsontext.dump(books.summarise(values, manifest))
    return out | {"seal.json": seal.make(out)}


def cells(raw: bytes) -> list[list[str]]:
    """The header and the rows of a CSV file."""
    return list(csv.reader(io.StringIO(raw.decode())))


def as_csv(table: list[list[str]]) -> bytes:
    """The CSV file of a header and rows."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(table)
    return out.getvalue().encode()
