"""The stall log: its raw texts under evidence/stall-log/, and the tidy tables made from them.

The texts are the evidence; the tables are derived from them by `tables` and committed beside
them, so that a reader can open them in any program. A test makes them again and compares.
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pandas as pd

from labsupport import traces

TRACES = ("default", "preallocated", "history-off")  # in the order they were run
TABLES = ("events", "requests", "layers", "repeats", "write_path")


@dataclass(frozen=True)
class StallLog:
    """Everything the machine printed.

    runs        trace name -> its two runs, first and second request
    requests    one row a request of the opening summary; time_ms
    layers      state, layer, mark, at_ms: the layer table
    repeats     run, state, time_ms, printed_deviation_ms: the five repeats
    printed     the statistics printed below the repeats: mean_cold_ms, stddev_warm_ms, ...
    write_path  depth, step: what the write path reported at each history depth
    """

    runs: dict[str, list[traces.Run]]
    requests: pd.DataFrame
    layers: pd.DataFrame
    repeats: pd.DataFrame
    printed: dict[str, float]
    write_path: pd.DataFrame

    def run(self, trace: str, which: int) -> traces.Run:
        """The first (1) or second (2) request of a trace."""
        return self.runs[trace][which - 1]

    def times_ms(self, state: str) -> pd.Series:
        """The five repeated times of a cache state, in milliseconds."""
        return self.repeats.loc[self.repeats["state"] == state, "time_ms"].reset_index(drop=True)

    def layer_stamps_ms(self, state: str) -> pd.Series:
        """The ten stamps of the layer table for a cache state, in milliseconds."""
        return self.layers.loc[self.layers["state"] == state, "at_ms"].reset_index(drop=True)


def _requests(text: str) -> pd.DataFrame:
    found = _matched("request-summary", text, r"([A-Z]+(?:_[A-Za-z]+)*)=(\w+)", r"")
    pairs = [m.groups() for m in found]
    starts = [i for i, (key, _) in enumerate(pairs) if key == "REQUEST_ID"] + [len(pairs)]
    table = pd.DataFrame([dict(pairs[a:b]) for a, b in pairwise(starts)]).rename(columns=str.lower)
    table = table.rename(columns={"time_elapsed_ms": "time_ms", "kv_cache_state": "state"})
    return table.astype({"tokens_processed": int, "time_ms": int, "exit_code": int})


def _matched(name: str, text: str, row: str, others: str) -> list[re.Match]:
    """The lines of `text` that match `row`; each other line must match `others`, its headings."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        match = re.fullmatch(row, line)
        if match:
            found.append(match)
        elif not re.fullmatch(others, line):
            raise traces.TraceError(
                f"{name}.txt, line {number}: cannot read {line!r}. Was the line cut or changed? "
                "Compare it with the lines around it."
            )
    return found


def _layers(text: str) -> pd.DataFrame:
    row = r"layer_(\d+) (ENTRY) (\d\.\d{3})s (STALL) (\d\.\d{3})s"
    found = [m.groups() for m in _matched("layer-table", text, row, r"cold state .*|[- ]+")]
    cold = [("cold", int(n), mark, round(float(at) * 1000)) for n, mark, at, _, _ in found]
    warm = [("warm", int(n), mark, round(float(at) * 1000)) for n, _, _, mark, at in found]
    return pd.DataFrame(cold + warm, columns=["state", "layer", "mark", "at_ms"])


def _repeats(text: str) -> tuple[pd.DataFrame, dict[str, float]]:
    row = r"(\d+),(cold|warm),(\d+),(-?\d+)"
    statistic = r"((?:MEAN|STDDEV)_(?:cold|warm)): ([\d.]+)ms"
    found = _matched("repeats", text, row, rf"ENV \w+=\w+|RUN_ID,.*|{statistic}")
    table = pd.DataFrame(
        [m.groups() for m in found], columns=["run", "state", "time_ms", "printed_deviation_ms"]
    )
    table = table.astype({"run": int, "time_ms": int, "printed_deviation_ms": int})
    printed = {f"{m[1].lower()}_ms": float(m[2]) for m in re.finditer(statistic, text)}
    return table, printed


def _write_path(text: str) -> pd.DataFrame:
    rows, depth = [], None
    for m in _matched("write-path", text, r"depth=(\w+)|\[CACHE_WRITE\] (.+)", r"(?!)"):
        depth = m[1] or depth
        if m[2]:
            rows.append((depth, m[2]))
    return pd.DataFrame(rows, columns=["depth", "step"])


def read(directory: str | Path) -> StallLog:
    """The stall log from the raw texts in `directory`.

    Raises FileNotFoundError for a missing text and traces.TraceError for a damaged line of any.
    """
    directory = Path(directory)

    def text(name: str) -> str:
        return (directory / f"{name}.txt").read_text(encoding="utf-8")

    repeats, printed = _repeats(text("repeats"))
    return StallLog(
        runs={name: traces.read(directory / f"{name}.txt") for name in TRACES},
        requests=_requests(text("request-summary")),
        layers=_layers(text("layer-table")),
        repeats=repeats,
        printed=printed,
        write_path=_write_path(text("write-path")),
    )


def tables(log: StallLog) -> dict[str, pd.DataFrame]:
    """The tidy tables of the log, by the name of their CSV file."""
    return {
        "events": traces.events_table(log.runs),
        "requests": log.requests,
        "layers": log.layers,
        "repeats": log.repeats,
        "write_path": log.write_path,
    }


def write_tables(directory: str | Path) -> None:
    """Write `tables` of the raw texts in `directory` beside them, as CSV."""
    for name, table in tables(read(directory)).items():
        table.to_csv(Path(directory) / f"{name}.csv", index=False, lineterminator="\n")
