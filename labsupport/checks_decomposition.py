"""Instant feedback on chapter 2's exercises: books and drift; those beside it are passed on."""

from itertools import permutations

import numpy as np

from labsupport import made_up
from labsupport.checks import NotYet, call, choice, exercise, value
from labsupport.checks_decomposition_pays import pays, room
from labsupport.checks_decomposition_reuse import identity, isolated
from labsupport.checks_decomposition_run import conclude, own_run
from labsupport.profile import SEGMENTS

__all__ = ["conclude", "identity", "isolated", "left_over", "medians", "order"]
__all__ += ["own_run", "pairings", "pays", "room"]

CHAPTER = "decomposition"


@exercise(CHAPTER, "left-over", 2)
def left_over(function):
    cases = {
        "a row that closes": (made_up.row(181_340, 90, 1_570, 8_590, 170_650, 440), 0),
        "a row whose total is 7 ns too long": (
            made_up.row(90_407, 50, 1_000, 9_000, 80_000, 350),
            7,
        ),
        "a row whose parts overlap": (made_up.row(1_960, 500, 500, 500, 450, 50), -40),
    }
    for name, (row, want) in cases.items():
        parts = int(row[SEGMENTS].sum())
        mistakes = {
            "the residual is left out: it is one of the parts": want + row["residual_ns"],
            "the total is counted among the parts": want - row["total_ns"],
            "`agreed` is counted as a part (True is 1 in a sum)": want - 1,
            "a sum of the parts, not what they leave": parts,
            "what is left has lost its sign": abs(want),
            "a residual of your own making, which closes any row: use the recorded one": 0,
        }
        got = call(function, row)
        if isinstance(got, np.ndarray):
            raise NotYet("left_over should return one number, not an array.")
        value(f"What is left of {name}", got, want, mistakes)
    return (
        "A row that does not close names an error of the clock or of the record; closed books "
        "only say that no time is hidden."
    )


@exercise(CHAPTER, "medians", 2)
def medians(function, why):
    rows = made_up.parts_of_queries(21, seed=5)
    parts = rows.groupby("path")[SEGMENTS]
    total = rows.groupby("path")["total_ns"]
    want = (total.median() - parts.median().sum(axis=1)) / 1000
    together = (rows["total_ns"].median() - rows[SEGMENTS].median().sum()) / 1000
    measured = rows.groupby("path")[SEGMENTS[:-1]].median().sum(axis=1)
    got = call(function, rows)
    try:
        got = dict(got)
    except (TypeError, ValueError):
        raise NotYet("median_gaps should return a dict, path -> µs.") from None
    if set(got) != set(want.index):
        raise NotYet(f"The paths in these rows are {list(want.index)}; yours: {list(got)}.")
    for path in want.index:
        mistakes = {
            "a gap of zero. Means always add up, and so do sums that are taken row by row; take "
            "the median of each column first": 0.0,
            "all paths are thrown together": together,
            "the residual is left out of the parts": (total.median() - measured)[path] / 1000,
            "the total is counted among the parts": want[path] - total.median()[path] / 1000,
        }
        value(f"The gap of {path}", got[path], want[path], mistakes, rtol=1e-9)
    choice(
        "why",
        why,
        "C",
        {
            "A": "each of these rows closes, residual included, and yet there is a gap.",
            "B": "rounding to 0.1 µs explains five times 0.05 µs at most, and these are exact.",
            "C": "",
            "D": "medians hardly move for slow queries; that is what they are good for.",
        },
    )
    return "So a gap in a table of medians says nothing about the residual."


@exercise(CHAPTER, "pairings", 3)
def pairings(closing, extremes):
    lookup, copy = np.array([40, 90, 10, 30, 20]), np.array([60, 5, 70, 15, 25])
    middle = np.median(lookup) + np.median(copy)
    got = np.asarray(call(closing, lookup, copy))
    if got.shape != copy.shape or sorted(got.tolist()) != sorted(copy.tolist()):
        raise NotYet("closing should return the same numbers as copy, in another order.")
    if np.median(lookup + got) != middle:
        ranks = lookup.argsort().argsort()
        for words, wrong in {
            "returns copy as it came": copy,
            "sorts copy, but lookup is not sorted": np.sort(copy),
            "puts the longest copies to the shortest lookups": np.sort(copy)[::-1][ranks],
            "sorts by argsort where ranks are needed: argsort says which row comes first, not "
            "which place a row has": np.sort(copy)[lookup.argsort()],
        }.items():
            if np.array_equal(got, wrong):
                raise NotYet(f"It looks like closing {words}.")
        raise NotYet(
            f"With closing the median total is {np.median(lookup + got):g}, not {middle:g}."
        )
    totals = [float(np.median(lookup + other)) for other in permutations(copy)]
    least, greatest = min(totals), max(totals)
    ends = call(extremes, lookup, copy)
    if not isinstance(ends, tuple | list | np.ndarray) or len(ends) != 2:
        raise NotYet("extremes should return two numbers, the least and the greatest.")
    opposite = float(np.median(np.sort(lookup) + np.sort(copy)[::-1]))
    alike = {
        "the median of one order alone: longest to shortest in all rows": opposite,
        "the median of one order alone: the one that adds up": middle,
    }
    shortest, longest = float(min(lookup) + min(copy)), float(max(lookup) + max(copy))
    mistakes = {"the greatest, in the place of the least": greatest}
    mistakes |= {"the shortest row, not a median": shortest, **alike}
    value("The least median total", ends[0], least, mistakes)
    mistakes = {"the longest row, not a median": longest, **alike}
    value("The greatest median total", ends[1], greatest, mistakes)
    return (
        "All these orders give the same medians of the parts. No search is needed: pair the upper "
        "half of one, longest with shortest, with the upper half of the other."
    )


@exercise(CHAPTER, "order", 3)
def order(function):
    for degree in range(5):
        calls = call(function, degree)
        if not isinstance(calls, str) or set(calls) - {"f", "g"}:
            raise NotYet("order should return a text of the letters f and g, such as 'fg'.")
        if len(calls) != 2 ** (degree + 1):
            raise NotYet(
                f"order({degree}) has {len(calls)} calls; it should have {2 ** (degree + 1)}."
            )
        if calls.count("f") != calls.count("g"):
            raise NotYet(f"In order({degree}) f and g are not called equally often.")
        left = [_seems_longer(calls, d) for d in range(degree + 1)]
        if any(left):
            n, d = len(calls), next(d for d in range(degree + 1) if left[d])
            habits = {
                "one path runs after the other, and drift becomes an effect": "f" * (n // 2)
                + "g" * (n // 2),
                "the paths alternate, and the same one always comes second": "fg" * (n // 2),
                "the same four calls are repeated, and each four leave a rest of the same sign": (
                    "fggf" * (n // 4)
                ),
            }
            plain = calls if calls[0] == "f" else calls.translate(str.maketrans("fg", "gf"))
            for words, habit in habits.items():
                if plain == habit:
                    raise NotYet(f"order({degree}): {words}.")
            raise NotYet(
                f"order({degree}): under drift of degree {d} g seems to take {left[d]} more than f."
            )
    return (
        "It is the Thue-Morse sequence. Drift that is no polynomial is left to the toss of a coin "
        "and the median."
    )


def _seems_longer(calls, degree):
    """By how much the calls of g together take longer than those of f if call i takes i**degree."""
    return sum((i**degree) * (1 if call == "g" else -1) for i, call in enumerate(calls))
