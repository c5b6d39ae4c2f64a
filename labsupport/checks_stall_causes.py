"""Checks of chapter 1's exercises about causes: order, rivals, clean runs, clocks.

Times are milliseconds.
"""

import math

import numpy as np
import pandas as pd

from labsupport.checks import call, exercise
from labsupport.checks_plain import ask, told

# first state, first time, second time: two kinds of pair, not equally many
PAIRS = [
    ("cold", 200.0, 231.0),
    ("warm", 224.0, 209.0),
    ("cold", 203.0, 230.0),
    ("cold", 199.0, 237.0),
    ("warm", 221.0, 212.0),
]


def _effects(pairs, centre=np.mean):
    """What being warm and what coming second adds, or None where no pairs tell them apart."""
    steps = {"cold": [], "warm": []}
    for state, before, after in pairs:
        steps[state].append(after - before)
    if not all(steps.values()):
        return None
    cold_first, warm_first = (centre(found) for found in steps.values())
    return [(cold_first - warm_first) / 2, (cold_first + warm_first) / 2]


@exercise("stall", "order", 3)
def order(function, repeats):
    for name, pairs in {"the log's repeats": repeats, "pairs in both orders": PAIRS}.items():
        steps = np.array([after - before for _, before, after in pairs])
        signs = np.array([1 if state == "cold" else -1 for state, *_ in pairs])
        right = _effects(pairs)
        pooled = [float((signs * steps).mean()), float(steps.mean())]
        told(
            "two_effects",
            ask(function, pairs),
            right,
            {
                "an answer from pairs in one order, in which warm and second are one": (
                    right or pooled
                ),
                "the two effects in the other order": (right or pooled)[::-1],
                "one average over all pairs, which leans to the order that was run more often": (
                    pooled
                ),
                "medians, where means are asked for": _effects(pairs, np.median),
            },
            of=f" of {name}",
        )
    return (
        "Five repeats in one order cannot tell warm from second; pairs in both orders can. "
        "The design decides what data can say, before the first run."
    )


def _alive(table, observed, agree=all, unmeasured=None):
    seen = observed if unmeasured is None else dict.fromkeys(table.index, unmeasured) | observed
    return [
        name
        for name in table
        if agree(bool(table.loc[run, name]) == stalls for run, stalls in seen.items())
    ]


def _next(table, observed, names=None, best=min, none=True):
    names = _alive(table, observed) if names is None else names
    left = {
        run: max(sum(table.loc[run, names]), len(names) - sum(table.loc[run, names]))
        for run in table.index
        if run not in observed
    }
    run = best(left, key=left.get, default=None)
    return run if run is not None and (left[run] < len(names) or not none) else None


MADE_UP = pd.DataFrame(
    {
        "P": [True, True, True, True, False],
        "Q": [True, True, False, True, False],
        "R": [True, True, False, False, False],
        "S": [True, True, False, False, False],
        "T": [True, True, False, False, True],
        "U": [False, True, True, False, False],
    },
    index=["run 1", "run 2", "run 3", "run 4", "run 5"],
)


@exercise("stall", "rivals", 4)
def rivals(alive, next_run, predictions, observed):
    told(
        "alive",
        call(alive, predictions, observed),
        _alive(predictions, observed),
        {
            "rivals that agree with some measured run; one failure is enough to go": _alive(
                predictions, observed, agree=any
            ),
            "runs that nobody made, counted as runs without a stall, or `is` for ==": _alive(
                predictions, observed, unmeasured=False
            ),
            "the rivals that are excluded": [
                name for name in predictions if name not in _alive(predictions, observed)
            ],
        },
        of=" of the log",
    )
    first = {"run 1": True}
    settled = first | {"run 3": False, "run 4": False, "run 5": False}
    for name, table, seen in (
        ("a table of five runs of which one was made", MADE_UP, first),
        ("the log", predictions, observed),
        ("a table in which R and S are left", MADE_UP, settled),
    ):
        told(
            "next_run",
            ask(next_run, table, seen),
            _next(table, seen),
            {
                "the last of several runs that are as good; the first is asked for": _next(
                    table.iloc[::-1], seen
                ),
                "all rivals, those too that are already excluded": _next(table, seen, list(table)),
                "a run that splits no one off, though nothing is gained by it": _next(
                    table, seen, none=False
                ),
                "the run on which those left agree most": _next(table, seen, best=max, none=False),
            },
            of=f" of {name}",
        )
    return (
        "Three rivals are left, and the author's interventions cannot choose among them. A run is "
        "worth making where those left disagree; all three settings at once is no such run."
    )


def _bound(n_clean, seen, confidence):
    return min(1.0, (1 - (1 - confidence) ** (1 / n_clean)) / seen)


def _needed(rate, seen, confidence):
    """The smallest number of runs whose bound is below the rate; one that rounds to it is not."""
    return math.floor(_equal(rate, seen, confidence) + 1e-9) + 1


def _equal(rate, seen, confidence):
    """How many runs, not whole, leave just this rate possible: none if all damage is seen."""
    looks_wrong = rate * seen
    return math.log(1 - confidence) / math.log1p(-looks_wrong) if looks_wrong < 1 else 0.0


@exercise("stall", "hashes", 3)
def hashes(still_possible, runs_needed):
    for n, seen, sure in ((100, 0.5, 0.95), (10, 1.0, 0.9), (2, 0.3, 0.9)):
        told(
            f"still_possible({n}, {seen}, {sure})",
            call(still_possible, n, seen, sure),
            _bound(n, seen, sure),
            {
                "every damage seen by the hash: the share `seen` is left out": _bound(n, 1, sure),
                "a hash that sees more than all damage: `seen` on the wrong side": (
                    _bound(n, 1, sure) * seen
                ),
                "n_clean * seen runs that see all: near, but `seen` belongs to the rate": (
                    min(1.0, 1 - (1 - sure) ** (1 / (n * seen)))
                ),
                "a probability above 1": (1 - (1 - sure) ** (1 / n)) / seen,
                "the rule of three, which is near for many runs only, and for 95 %": 3 / n / seen,
                "the confidence, where the chance of being fooled belongs": (
                    min(1.0, (1 - sure ** (1 / n)) / seen)
                ),
            },
        )
    for rate, seen, sure in ((0.01, 0.2, 0.95), (0.001, 1.0, 0.95), (0.75, 1.0, 0.75)):
        needed = _needed(rate, seen, sure)
        told(
            f"runs_needed({rate}, {seen}, {sure})",
            call(runs_needed, rate, seen, sure),
            needed,
            {
                "one run too few: with it the bound is not yet below the rate": needed - 1,
                "a number of runs that is not whole": _equal(rate, seen, sure),
                "every damage seen by the hash: the share `seen` is left out": _needed(
                    rate, 1, sure
                ),
                "the rule of three, which is near, not exact": math.ceil(3 / rate / seen),
                "the confidence, where the chance of being fooled belongs": _needed(
                    rate, seen, 1 - sure
                ),
            },
        )
    return (
        "A check that sees half of the damage needs about twice the runs. The guard of the chapter "
        "sees every damaged row at the first try: better eyes beat more runs."
    )


def _rescue(runs, worst=min, own=False, zero=True):
    """Rate and shift of the fastest clock that keeps all stamps within their timers."""
    earliest = min(first for first, _, _ in runs)
    zeros = [(first if own else earliest) if zero else 0.0 for first, _, _ in runs]
    rates = [
        elapsed / (last - start) for (_, last, elapsed), start in zip(runs, zeros, strict=True)
    ]
    rate = worst(rates)
    return [rate, -rate * zeros[rates.index(rate)]]


@exercise("stall", "clocks", 4)
def clocks(function, log_runs):
    made_up = [(30.0, 180.0, 140.0), (20.0, 150.0, 150.0), (60.0, 230.0, 210.0)]
    for name, runs in {"three made-up runs": made_up, "the log": log_runs}.items():
        rate, shift = _rescue(runs)
        told(
            "rescue",
            call(function, runs),
            [rate, shift],
            {
                "a shift of its own for each run; they share one": _rescue(runs, own=True),
                "the least of the rates of the single runs; they share one shift": [
                    min(elapsed / (last - first) for first, last, elapsed in runs),
                    -min(elapsed / (last - first) for first, last, elapsed in runs)
                    * min(first for first, _, _ in runs),
                ],
                "clocks that start together, without any shift": _rescue(runs, zero=False),
                "a rate that keeps one run within its timer and not the others": _rescue(
                    runs, worst=max
                ),
                "the other clock's rate: ms of the stamps for one of the timer": [1 / rate, shift],
                "a shift in ms of the stamps; it is added to ms of the timer": [rate, shift / rate],
            },
            of=f" of {name}",
        )
    return (
        f"For the log the fastest rate is {rate:.4f}: even with any shift, its two clocks would "
        f"have to differ by {1e6 * (1 - rate):,.0f} parts per million. Quartz clocks differ by "
        "tens. So no steady pair of clocks gave these stamps, or the layer table's zero is another."
    )
