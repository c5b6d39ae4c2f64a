"""Named noise: neighbour processes that take the machine away from what is being timed.

    quiet    no neighbour; what else the machine does, it does
    bursts   a neighbour on each core, all at work and all at rest in turns, for random times
    ramp     the same, at work for a share of the time that grows from none to all
    loaded   the same, at work without a pause

A neighbour copies memory: it takes time on a core, room in the caches, and bandwidth. Where the
system allows it is held to its core, or else the scheduler would keep it out of the way. It is
this module, run as a program, and ends when what started it does, however that one ends.
"""

import os
import random
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from itertools import count
from time import perf_counter, sleep

from labsupport.machine import ROOT

N_BYTES = 1 << 20  # in each of the two blocks that a neighbour copies between
BURST_S = 0.02, 0.4  # a burst, or the rest after it, lasts from .. to .. seconds
SLICE_S = 0.02  # of a ramp; a neighbour works for the first part of each


def bursts(rng, span_s):
    """Yield (seconds of work, seconds of rest) without end."""
    while True:
        yield rng.uniform(*BURST_S), rng.uniform(*BURST_S)


def ramp(rng, span_s):
    """Yield (work, rest): from no work to no rest in `span_s` seconds, then no rest."""
    for i in count():
        share = min(i * SLICE_S / span_s, 1.0)
        yield share * SLICE_S, (1 - share) * SLICE_S


def loaded(rng, span_s):
    """Yield (work, rest) of work alone."""
    while True:
        yield 1.0, 0.0


NOISES = {"quiet": None, "bursts": bursts, "ramp": ramp, "loaded": loaded}


@contextmanager
def neighbours(noise, seed=0, span_s=2.0):
    """Within this context the neighbours of the named noise are at work; yields their processes.

    All of them begin together when the context is entered. `span_s` is the length of a ramp.
    Raises ValueError for an unknown name, and RuntimeError if one did not start or has ended.
    """
    if noise not in NOISES:
        raise ValueError(f"unknown noise {noise!r}; there are {', '.join(NOISES)}")
    with ExitStack() as stack:
        started = []
        for core in _cores() if NOISES[noise] else []:
            command = [sys.executable, "-m", __name__, *map(str, (noise, seed, span_s, core))]
            process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            stack.callback(_end, process)
            started.append(process)
        if not all([process.stdout.readline() for process in started]):  # waits for all of them
            raise RuntimeError(f"a neighbour for the noise {noise!r} did not start")
        for process in started:
            process.stdin.write(b"go\n")
            process.stdin.flush()
        yield started
        if any(process.poll() is not None for process in started):
            raise RuntimeError(f"a neighbour of the noise {noise!r} ended before it was told to")


def _end(process):
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def _cores():
    """The numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _be_a_neighbour(noise, seed, span_s, core):
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    print("ready", flush=True)
    if not sys.stdin.buffer.readline():
        return
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    source, target = bytearray(N_BYTES), bytearray(N_BYTES)
    for work_s, rest_s in NOISES[noise](random.Random(seed), span_s):
        end_s = perf_counter() + work_s
        while perf_counter() < end_s:
            target[:] = source
        sleep(rest_s)


def _end_with_the_parent():
    """The pipe from the parent closes when the parent is gone."""
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    try:
        _be_a_neighbour(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
    except KeyboardInterrupt:  # Ctrl-C reaches neighbours too
        os._exit(130)  # an orderly exit aborts: a thread still holds the lock on stdin
