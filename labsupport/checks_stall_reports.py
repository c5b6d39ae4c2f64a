"""Checks of chapter 1's exercises about reports: hidden references, statements against data.

Times are milliseconds.
"""

import numpy as np

from labsupport import evidence, stall_log
from labsupport.checks import NotYet, call, exercise
from labsupport.checks_plain import ask, told

STATES = ("cold", "warm")


def _interval(times, printed, step, sign=-1, half=0.5, low=max, high=min, none=True):
    """The references that all rows allow, or what a mistake gives; None where there are none."""
    at = [time + sign * deviation for time, deviation in zip(times, printed, strict=True)]
    bounds = [low(x - half * step for x in at), high(x + half * step for x in at)]
    return bounds if not none or bounds[0] <= bounds[1] else None


@exercise("stall", "reference", 3)
def reference(function):
    log = stall_log.read(evidence.directory("stall-log"))
    repeats = {state: rows for state, rows in log.repeats.groupby("state")}
    cases = {"two rows": ([50.6, 50.9], [1, 1], 1)}  # the wrong sign, too, has an answer here
    for state, rows in repeats.items():
        printed = rows["printed_deviation_ms"].tolist()
        cases[f"the {state} repeats"] = (rows["time_ms"].tolist(), printed, 1)
    cases["times with decimals"] = ([52.3, 50.9, 51.6, 49.8], [1, 0, 0, -2], 1)
    cases["times that share no reference"] = ([20, 24, 29], [-3, 2, 4], 1)
    for name, (times, printed, step) in cases.items():
        centre, mean = np.mean(np.subtract(times, printed)), np.mean(times)
        told(
            "reference",
            ask(function, times, printed, step),
            _interval(times, printed, step),
            {
                "the mean of the times: that is what the report claims, not what it did": [
                    mean - step / 2,
                    mean + step / 2,
                ],
                "a deviation added where it should be taken off": _interval(
                    times, printed, step, sign=1
                ),
                "rounding by up to a whole step; it moves a number by less": _interval(
                    times, printed, step, half=1
                ),
                "what any row allows, not what all rows allow": _interval(
                    times, printed, step, low=min, high=max
                ),
                "the average of what the rows say; each row is a bound of its own": [
                    centre - step / 2,
                    centre + step / 2,
                ],
                "bounds that exclude each other: the lower one is above the upper": _interval(
                    times, printed, step, none=False
                ),
            },
            of=f" of {name}",
        )
    return (
        "The warm reference is the first warm run, 1204 ms, and the mean of the five lies outside "
        "the bounds. Deviations give their reference away even where they are rounded."
    )


def _means(rounded):
    def holds(r):
        return all(rounded(float(np.mean(r[f"{s}_ms"]))) == r[f"mean_{s}_ms"] for s in STATES)

    return holds


def _spreads(*ddofs):
    def holds(r):
        return all(
            r[f"sd_{s}_ms"] in [round(float(np.std(r[f"{s}_ms"], ddof=d)), 1) for d in ddofs]
            for s in STATES
        )

    return holds


def _penalties(r):
    return np.subtract(r["warm_ms"], r["cold_ms"])


def _late(r):
    return np.subtract(r["last_token_ms"], r["elapsed_ms"])


# statement -> the test of it, and tests that people write instead
STATEMENTS = {
    "A": (
        _means(round),
        {"a mean cut off, not rounded": _means(int), "a mean that is not rounded": _means(float)},
    ),
    "B": (
        _spreads(0, 1),
        {
            "the denominator n alone": _spreads(0),
            "one denominator for both states: the denominator n - 1 alone, or the same for both": (
                _spreads(1)
            ),
        },
    ),
    "C": (
        lambda r: np.ptp(_penalties(r)) == 0,
        {"'fixed' with a tolerance": lambda r: np.ptp(_penalties(r)) <= 0.1 * _penalties(r).mean()},
    ),
    "D": (
        lambda r: min(r["warm_ms"]) > max(r["cold_ms"]),
        {
            "means, which can differ while the times overlap": lambda r: _penalties(r).mean() > 0,
            "each pair by itself, not every warm run with every cold one": lambda r: (
                min(_penalties(r)) > 0
            ),
        },
    ),
    "E": (
        lambda r: max(_late(r)) <= 0,
        {"'every token is late' for 'no token is late'": lambda r: min(_late(r)) <= 0},
    ),
    "F": (
        lambda r: np.ptp(_late(r)) == 0,
        {"distances without their sign": lambda r: np.ptp(np.abs(_late(r))) == 0},
    ),
}


@exercise("stall", "audit", 4)
def audit(function, reports):
    found = {name: call(function, report) for name, report in reports.items()}
    for name, letters in found.items():
        if not isinstance(letters, list | tuple | set | str) or not set(letters) <= set(STATEMENTS):
            raise NotYet(f"audit should return letters from A to F; for {name} it is {letters!r}.")
    for letter, (holds, mistakes) in STATEMENTS.items():
        got = [letter not in letters for letters in found.values()]
        want = [bool(holds(report)) for report in reports.values()]
        for words, wrong in mistakes.items():
            if got != want and got == [bool(wrong(report)) for report in reports.values()]:
                raise NotYet(f"Statement {letter} is not tested right. It looks like {words}.")
        if got != want:
            name = list(reports)[[g == w for g, w in zip(got, want, strict=True)].index(False)]
            raise NotYet(f"Statement {letter} is not judged right for {name}.")
    return (
        "Five of the six contradict the log's own figures, and the one that matters most, D, "
        "stands. One can reject statistics and keep the data."
    )
