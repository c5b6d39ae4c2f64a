"""Cold and warm requests to a small server, with what each took: time, bytes, memory, pages.

A cold request starts from empty caches and computes the whole prompt. A warm one finds the
prompt's keys and values kept from an earlier request, takes a copy of its own, and computes only
the last prompt token before it goes on. Both then decode alike and must give equal logits.
"""

import copy
import gc
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from time import perf_counter_ns

import numpy as np
import psutil

from labsupport import machine
from labsupport.decoder import Decoder, DecoderConfig
from labsupport.kvcache import ConcatCache, DoublingCache, KVCache, PreallocatedCache

try:
    import resource
except ImportError:  # Windows counts page faults elsewhere
    resource = None

N_LAYERS, N_HEADS, VOCAB_SIZE, CAPACITY = 10, 4, 100, 1024
TOLERANCE = 1e-4  # float32 logits of size about 1, over at most 12 steps
PATHS = ("cold", "warm")

CACHES = {
    "concat": (ConcatCache, {}),
    "doubling": (DoublingCache, {}),
    "preallocated": (PreallocatedCache, {"capacity": CAPACITY}),
}
HITS = {"rows": KVCache.copy, "whole storage": copy.deepcopy}


# glibc gives freed memory back to the system by two ways, each above a size of its own, and moves
# both sizes as it goes until either is set (mallopt(3)). Elsewhere the names mean nothing.
TRIM = {"MALLOC_TRIM_THRESHOLD_": str(2**30)}
MMAP = {"MALLOC_MMAP_THRESHOLD_": str(2**30)}
ALLOCATORS = {
    "default": {},
    "keeps memory": TRIM | MMAP,
    "trim threshold alone": TRIM,
    "mmap threshold alone": MMAP,
}

ALLOCATOR_VARIABLES = ("MALLOC_", "GLIBC_TUNABLES")  # how the names begin


@dataclass(frozen=True)
class Cell:
    """One set-up of server and request.

    cache      growth policy, a name of CACHES
    hit        what a warm request copies, a name of HITS: the rows held, or the storage whole
    d_model, n_prompt, n_new   width, prompt tokens, tokens to produce
    """

    cache: str = "preallocated"
    hit: str = "whole storage"
    d_model: int = 128
    n_prompt: int = 12
    n_new: int = 12


class Server:
    """A decoder of ten layers, a prompt, and the store that keeps the prompt's caches."""

    def __init__(self, cell: Cell, seed: int):
        self.cell = cell
        config = DecoderConfig(VOCAB_SIZE, CAPACITY, cell.d_model, N_LAYERS, N_HEADS)
        self.decoder = Decoder(config, seed)
        self.prompt = np.random.default_rng(seed).integers(VOCAB_SIZE, size=cell.n_prompt).tolist()
        kept = self.new_caches()
        if cell.n_prompt > 1:  # all but the last token, which gives the first logits
            self.decoder.forward(self.prompt[:-1], kept)
        self.store = {tuple(self.prompt): kept}

    def new_caches(self) -> list[KVCache]:
        """One empty cache a layer, of the cell's policy."""
        kind, options = CACHES[self.cell.cache]
        return self.decoder.new_caches(kind, **options)

    def cold(self):
        """A request that finds nothing: (stamps in ns, logits [n_new, vocab_size], caches)."""
        t0 = perf_counter_ns()
        caches = self.new_caches()
        t1 = perf_counter_ns()
        logits = [self.decoder.forward(self.prompt, caches)[-1]]
        t2 = perf_counter_ns()
        self.decode(logits, caches)
        t3 = perf_counter_ns()
        return (t0, t1, t2, t3), logits, caches

    def warm(self):
        """A request that finds its prompt: it copies what was kept and computes one token."""
        t0 = perf_counter_ns()
        kept = self.store[tuple(self.prompt)]
        caches = [HITS[self.cell.hit](cache) for cache in kept]
        t1 = perf_counter_ns()
        logits = [self.decoder.forward(self.prompt[-1:], caches)[-1]]
        t2 = perf_counter_ns()
        self.decode(logits, caches)
        t3 = perf_counter_ns()
        return (t0, t1, t2, t3), logits, caches

    def decode(self, logits: list, caches: list[KVCache]) -> None:
        """The remaining tokens, each the likeliest after those before; appends to `logits`."""
        for _ in range(self.cell.n_new - 1):
            token = int(logits[-1].argmax())
            logits.append(self.decoder.forward([token], caches)[-1])

    def full(self) -> np.ndarray:
        """The logits [n_new, vocab_size] with no cache at all: what both requests must match."""
        tokens, logits = list(self.prompt), []
        for _ in range(self.cell.n_new):
            logits.append(self.decoder.forward(tokens)[-1])
            tokens.append(int(logits[-1].argmax()))
        return np.array(logits)

    def moved(self, path: str, caches: list[KVCache]) -> tuple[int, int]:
        """Bytes copied from old storage and arrays allocated in a request, over its caches."""
        bytes_copied = sum(c.bytes_copied for c in caches)
        n_allocations = sum(c.n_allocations for c in caches)
        if path == "warm" and self.cell.hit == "whole storage":
            kept = self.store[tuple(self.prompt)]  # a deep copy takes over the counters as well
            bytes_copied += sum(c.nbytes - c.bytes_copied for c in kept)
            n_allocations += sum(2 - c.n_allocations for c in kept)
        return bytes_copied, n_allocations


def page_faults() -> int:
    """How often this process has touched a page of memory that was not mapped yet.

    Minor faults where the system tells them apart from reads from disk; all of them on Windows.
    """
    if resource:
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    return psutil.Process().memory_info().num_page_faults


def measure(server: Server, rounds: int, seed: int, warmup: int = 2) -> list[dict]:
    """`rounds` rounds of both requests in random order, one row a request; the collector is off.

    Raises AssertionError, before anything is timed, if a request's logits are not those computed
    without a cache.
    """
    rng = np.random.default_rng(seed)
    reference = server.full()
    collecting = gc.isenabled()
    gc.disable()
    try:
        for path in PATHS * warmup:
            row = _timed(server, path, reference)
            if not row["agreed"]:  # no assert: that is gone under PYTHONOPTIMIZE
                said = f"a {path} request differs from full recomputation: {server.cell}"
                raise AssertionError(said)
        return [
            {"round": i, **_timed(server, str(path), reference)}
            for i in range(rounds)
            for path in rng.permutation(PATHS)
        ]
    finally:
        if collecting:
            gc.enable()


def _timed(server: Server, path: str, reference: np.ndarray) -> dict:
    """One request's row. Its caches are let go on return: the next one finds nothing held."""
    before = page_faults()
    (t0, t1, t2, t3), logits, caches = getattr(server, path)()
    faults = page_faults() - before
    bytes_copied, n_allocations = server.moved(path, caches)
    return {
        "path": path,
        "total_ns": t3 - t0,
        "take_ns": t1 - t0,
        "first_ns": t2 - t1,
        "decode_ns": t3 - t2,
        "bytes_copied": bytes_copied,
        "n_allocations": n_allocations,
        "page_faults": faults,
        "agreed": bool(np.abs(np.array(logits) - reference).max() <= TOLERANCE),
    }


def fill(cache: str, n_tokens: int, n_kv_heads: int = 4, head_dim: int = 32) -> dict:
    """What it costs to append tokens one by one to an empty cache with room for CAPACITY."""
    kind, options = CACHES[cache]
    cache = kind(n_kv_heads, head_dim, **options)
    row = np.ones((n_kv_heads, 1, head_dim), np.float32)  # [n_kv_heads, n_new, head_dim]
    before, start = page_faults(), perf_counter_ns()
    for _ in range(n_tokens):
        cache.append(row, row)
    return {
        "total_ns": perf_counter_ns() - start,
        "page_faults": page_faults() - before,
        "bytes_copied": cache.bytes_copied,
        "n_allocations": cache.n_allocations,
        "bytes_held": cache.nbytes,
    }


def serve(cell: dict, rounds: int, seed: int) -> list[dict]:
    """`measure` for a cell given as a dict of its fields."""
    return measure(Server(Cell(**cell), seed), rounds, seed)


def in_fresh_process(task, allocator: str = "default", **arguments):
    """`serve` or `fill` in a new process that does nothing else, with the allocator as named.

    What an allocator does depends on what the process has asked of it before; here that is nothing.
    It runs this package, whatever lies in the working directory (-P), and its allocator is set by
    nothing else. Raises RuntimeError with the process's own message if it fails.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(ALLOCATOR_VARIABLES)}
    path = [str(machine.PACKAGE.parent), *filter(None, [inherited.get("PYTHONPATH")])]
    inherited["PYTHONPATH"] = os.pathsep.join(path)
    done = subprocess.run(
        [sys.executable, "-P", "-c", "from labsupport import serving; serving.answer()"],
        input=json.dumps({"task": task.__name__, "arguments": arguments}),
        capture_output=True,
        text=True,
        env=inherited | dict.fromkeys(machine.THREAD_VARIABLES, "1") | ALLOCATORS[allocator],
    )
    if done.returncode:
        raise RuntimeError(f"the new process failed on {arguments}:\n{done.stderr}")
    return json.loads(done.stdout)


def answer() -> None:
    """The other side of `in_fresh_process`: a task on stdin, its result on stdout."""
    asked = json.load(sys.stdin)
    json.dump({"serve": serve, "fill": fill}[asked["task"]](**asked["arguments"]), sys.stdout)
