"""What a cache adds to the memory of its process, as the operating system counts it.

Resident memory is what the process has in RAM: the pages that were written or read. A page that
was only allocated is lent at its first use, and freed memory may stay with the process for a while.
Each measurement has a process of its own, which starts without anybody else's leftovers.
"""

import json
import os
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import psutil

from labsupport import kvcache, machine
from labsupport.kvcache import whole_number

KINDS = {
    "concat": kvcache.ConcatCache,
    "doubling": kvcache.DoublingCache,
    "preallocated": kvcache.PreallocatedCache,
}
STAGES = ["before", "allocated", "filled", "released"]
HEADS, HEAD_DIM = 8, 128  # a token's keys and values take 8 KiB
TOKEN_BYTES = 2 * HEADS * HEAD_DIM * 4
N_APPENDS = 16


def resident(kind="preallocated", n_bytes=200_000_000):
    """One cache of about `n_bytes` in a fresh process, filled in 16 appends: a row a stage.

    stage          before; allocated (made, nothing appended); filled; released (forgotten)
    stored_bytes   what the cache's arrays hold
    rss_bytes      resident memory of the process
    most_bytes     the most of it seen since the stage before; a glance each 2 ms can miss more

    Raises ValueError for another kind or less than 16 tokens' bytes, RuntimeError, with what it
    printed, if that process fails: where memory is short, say.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    n_bytes = whole_number("n_bytes", n_bytes, at_least=N_APPENDS * TOKEN_BYTES)
    paths = [str(machine.PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    ran = subprocess.run(  # -P: this package, whatever lies in the working directory
        [sys.executable, "-P", "-m", "labsupport.resident", kind, str(n_bytes)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    if ran.returncode != 0:
        raise RuntimeError(f"the process that held the cache failed:\n{ran.stderr[-2000:]}")
    return pd.DataFrame(json.loads(ran.stdout)).set_index("stage")


def stages(kind, n_bytes):
    """The rows of `resident`, measured in this process."""
    n_new = n_bytes // TOKEN_BYTES // N_APPENDS
    rows = np.ones((HEADS, n_new, HEAD_DIM), np.float32)
    options = {"capacity": N_APPENDS * n_new} if kind == "preallocated" else {}
    table = []

    def note(stage, stored_bytes):
        rss, most = seen.take()
        row = {"stage": stage, "stored_bytes": stored_bytes, "rss_bytes": rss, "most_bytes": most}
        table.append(row)

    with _Glances() as seen:
        note("before", 0)
        cache = KINDS[kind](HEADS, HEAD_DIM, **options)
        note("allocated", cache.nbytes)
        for _ in range(N_APPENDS):
            cache.append(rows, rows)
        note("filled", cache.nbytes)
        del cache
        note("released", 0)
    return table


class _Glances:
    """Looks at the resident memory of this process every 2 ms, in a thread, while it is entered."""

    def __enter__(self):
        self._process, self._most = psutil.Process(), 0
        self._end, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._end.set()
        self._thread.join()

    def _look(self):
        while not self._end.wait(0.002):
            with self._lock:  # else a glance of the stage before could land in the next
                self._most = max(self._most, self._process.memory_info().rss)

    def take(self):
        """Resident bytes now, and the most since the last time: (now, most)."""
        with self._lock:
            now = self._process.memory_info().rss
            most, self._most = max(self._most, now), 0
        return now, most


if __name__ == "__main__":
    print(json.dumps(stages(sys.argv[1], int(sys.argv[2]))))
