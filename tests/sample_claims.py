"""Evidence for chapter 3's claims, made up after the source's own figures.

The loop without a cache and the source's cached loop take the times that it printed. Faster cached
steps collect more, and less once the weights have left the caches.
"""

import numpy as np
import pandas as pd

from labsupport import derivation_source, timing
from labsupport.arithmetic import ratio
from labsupport.charmodel import CharConfig
from labsupport.derivation_evidence import DerivationEvidence
from labsupport.loops import CACHED

LENGTH, WIDTH = derivation_source.length(), derivation_source.width()
CONFIG = CharConfig()
ROUNDS = 20
MB = 10**6


def times_ms():
    """{(d_model, n_tokens): {path: ms of a loop}}, nothing of it measured."""
    times = {}
    for n, row in LENGTH.iterrows():
        times[128, n] = {"numpy": 0.11 * n + 2e-5 * n * n, "compiled": 0.045 * n + 1e-5 * n * n}
        times[128, n] |= {"uncached": row["uncached_ms"], "concat": row["cached_ms"]}
    for d, fast in ((256, 30.0), (512, 150.0), (1024, 900.0)):
        row = WIDTH.loc[d]
        times[d, 256] = {"uncached": row["uncached_ms"], "concat": row["cached_ms"]}
        times[d, 256] |= {"numpy": 1.2 * fast, "compiled": fast}
    for cell in times.values():
        cell["preallocated"] = 0.8 * cell["concat"]
    return times


def rows_of(times, noise=0.002):
    """Rows of a sweep: every loop near its time in each of ROUNDS rounds."""
    rng, rows = np.random.default_rng(4), []
    for (d, n), cell in times.items():
        for path, ms in cell.items():
            for i, wobble in enumerate(1 + noise * rng.standard_normal(ROUNDS)):
                total_ns = round(1e6 * ms * wobble)
                rows.append((f"d{d} n{n}", d, n, i, path, total_ns, True))
    columns = ["cell", "d_model", "n_tokens", "round", "path", "total_ns", "agreed"]
    return pd.DataFrame(rows, columns=columns)


def cells_of(rows):
    """One row a cell with the columns of `sweep.table` that claims read."""
    cells = []
    for (d, n), cell in rows.groupby(["d_model", "n_tokens"], sort=False):
        pairs = cell.pivot(index="round", columns="path", values="total_ns")
        made = {"d_model": d, "n_tokens": n, "uncached_ns": pairs["uncached"].median()}
        made["arithmetic"] = ratio(CharConfig(d_model=d, context=max(128, n)), n)
        for path in CACHED:
            gain, low, high = timing.ratio_of_pairs(pairs[path], pairs["uncached"])
            made |= {f"{path}_ns": pairs[path].median(), path: gain}
            made |= {f"{path}_low": low, f"{path}_high": high}
            made[f"{path}_share"] = gain / made["arithmetic"]
        cells.append(made)
    return pd.DataFrame(cells)


def probe(name, ns, n_bytes=0, n_flops=0, n_operations=1, **at):
    amounts = {"n_bytes": n_bytes, "n_flops": n_flops, "n_operations": n_operations}
    return {"name": name, **at, **amounts, "typical_ns": ns, "best_ns": ns}


def rates(near=100e9, far=10e9, multiplies=100e9, call_ns=900.0):
    """A machine that reads at `near` bytes a second up to 4 MB and at `far` beyond 100 MB."""
    sizes = ((MB, near), (4 * MB, near), (100 * MB, far), (256 * MB, far))
    reading = [probe("read: numba sum", n / speed * 1e9, n, size=n) for n, speed in sizes]
    layers = probe("torch layers", 1e18 / multiplies, n_flops=10**9, d_model=128, rows=256)
    return {"probes": [*reading, layers, probe("steps: concat", call_ns)]}


def compared(n_loops=6, n=128, difference=2e-6, error=1e-7):
    """Rows as `agreement.measure` gives them; no draw flips."""
    rng, count = np.random.default_rng(5), n_loops * n
    return pd.DataFrame(
        {
            "prompt": np.repeat(np.arange(n_loops), n),
            "step": np.tile(np.arange(n), n_loops),
            "difference": difference * rng.uniform(0.5, 1, count),
            "gap": rng.exponential(1, count),
            "error": error * rng.standard_normal(count),
            "same": True,
        }
    )


def rounded(n=128):
    """Rows as the trial `rounded` gives them; the chance of a flip has nothing to do with gaps."""
    rng = np.random.default_rng(6)
    return pd.DataFrame(
        {
            "uncached_error": 2e-6 * rng.uniform(0.5, 1, n),
            "cached_error": 1.5e-6 * rng.uniform(0.5, 1, n),
            "variation": np.full(n, 2e-7),
            "gap": rng.uniform(0, 1, n),
        }
    )


STEPS = {"kept": 2e-6, "no keys": 3.0, "no values": 4.0, "several": 2e-6, "several, no mask": 2.0}
TRIALS = {
    "changes": {"float32": 2e-7, "float64": 4e-16, "no mask": 0.1, "slid": 0.5},
    "steps": STEPS,
    "compared": compared(),
    "rounded": rounded(),
    "doubled": compared(n_loops=1, difference=4e-15, error=2e-16),
    "kernels": {"uncached": 10, "cached": 12, "cached, all": 29},
}


def evidence(rows=None, machine=None, trials=None, **changes):
    """The evidence, with other rows, another machine, other results of trials, other tables."""
    rows = rows_of(times_ms()) if rows is None else rows
    results = TRIALS | (trials or {})
    parts = {"length": LENGTH, "width": WIDTH, "config": CONFIG, "rows": rows}
    parts |= {"cells": cells_of(rows), "rates": machine or rates()}
    parts["trials"] = {name: lambda result=result: result for name, result in results.items()}
    return DerivationEvidence(**(parts | changes))
