"""Instant feedback on the exercises of chapter 2: books, drift, copies, names, rates, a run."""

from itertools import permutations

import numpy as np

from labsupport import evidence, made_up, profile
from labsupport.audit import FAILED
from labsupport.checks import NotYet, call, choice, exercise, value
from labsupport.checks_decomposition_reuse import identity, isolated, pays, room
from labsupport.marking_evidence import concluded, unfit
from labsupport.profile import SEGMENTS

__all__ = ["conclude", "identity", "isolated", "left_over", "medians", "order"]
__all__ += ["own_run", "pairings", "pays", "room"]

CHAPTER = "decomposition"
VERDICTS = ("faster", "slower", "cannot tell")


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
        value(f"What is left of {name}", call(function, row), want, mistakes)
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


def _hasty(middle, over="full", under="frozen"):
    """The verdict of a single ratio without an interval."""

    def verdict(rows):
        times = rows.groupby("path")["total_ns"].agg(middle)
        return "slower" if times[under] > times[over] else "faster"

    return verdict


def _of_others(over, under):
    """The right verdict on two other paths."""
    return lambda rows: concluded(
        rows.assign(path=rows["path"].map({over: "full", under: "frozen"})).dropna()
    )


HASTY = {
    "medians of the paths are compared, without an interval: when can you not tell": _hasty(
        "median"
    ),
    "means of the paths are compared: a few slow queries decide them": _hasty("mean"),
    "the ratio is upside down: full over frozen": _of_others("frozen", "full"),
    "rehash is judged, where frozen was asked for": _of_others("full", "rehash"),
}


@exercise(CHAPTER, "conclude", 3)
def conclude(function):
    tables = [
        made_up.rounds(1.06, 0.02, 1),
        made_up.rounds(0.94, 0.02, 2, rehash=0.9),
        made_up.rounds(1.004, 0.2, 3),
        made_up.rounds(0.95, 0.02, 4, slow="frozen"),
        made_up.rounds(1.05, 0.02, 5, slow="full"),
    ]
    got = [call(function, rows) for rows in tables]
    if strange := [said for said in got if not isinstance(said, str) or said not in VERDICTS]:
        raise NotYet(f"conclude should return one of {VERDICTS}, not {strange[0]!r}.")
    if got != [concluded(rows) for rows in tables]:
        for said, rule in HASTY.items():
            if got == [rule(rows) for rows in tables]:
                raise NotYet(f"It looks like {said}.")
        wrong = [i for i, rows in enumerate(tables, start=1) if got[i - 1] != concluded(rows)]
        raise NotYet(f"Of 5 tables of made-up rows these are judged wrongly: {wrong}.")
    return "The interval, not the ratio, decides; and it needs the division within the round."


@exercise(CHAPTER, "own-run", 4)
def own_run(case, out, conclusion):
    for name, given in {"case": case, "conclusion": conclusion}.items():
        if given is None or given is ...:
            raise NotYet(f"{name} has no value yet.")
    if not isinstance(case, profile.Case) or unfit(case):
        raise NotYet(f"The case does not fit: {unfit(case)}.")
    if not out.is_dir():
        raise NotYet("There is no run in out: record one, in that directory.")
    audited = evidence.audit(out)
    if audited.status == FAILED:
        raise NotYet(f"The audit says {FAILED}. The first reason: {audited.problems[0]}")
    recorded = evidence.read(out)
    config = recorded.manifest["config"]
    sizes = {**vars(case), "seeds": list(range(case.seeds))}
    if other := [name for name, size in sizes.items() if config.get(name) != size]:
        raise NotYet(f"The recorded run is of another case: {', '.join(other)} differ.")
    if conclusion != concluded(recorded.rows):
        raise NotYet(
            "The conclusion is not what the recorded rows say. Conclude from the rows in out, by "
            "your function, and not from what was expected or from another run."
        )
    return (
        "Recorded, audited, and concluded from its own rows. Whichever way it came out, it is a "
        "result, of this case on this machine."
    )
