"""Instant feedback on two exercises of chapter 2: how to judge a run, and a run of your own."""

from labsupport import evidence, made_up, profile
from labsupport.audit import FAILED
from labsupport.checks import NotYet, call, exercise
from labsupport.marking_evidence import concluded, unfit

CHAPTER = "decomposition"
VERDICTS = ("faster", "slower", "cannot tell")


def _hasty(middle, over="full", under="frozen"):
    """The verdict of a single ratio without an interval."""

    def verdict(rows):
        times = rows.groupby("path")["total_ns"].agg(middle)
        return "slower" if times[under] > times[over] else "faster"

    return verdict


def _without_seed(rows):
    """The verdict if the same rounds of all seeds are thrown together."""
    means = rows.groupby(["round", "path"], as_index=False)["total_ns"].mean()
    return concluded(means.assign(seed=0))


def _as_they_stand(rows):
    """The verdict if the first total of each path is divided, then the second, whatever rounds."""
    nth = rows.groupby("path").cumcount()
    return concluded(rows.assign(seed=0, round=nth))


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
    "round 5 of one seed is mixed with round 5 of the others": _without_seed,
    "rows are paired as they stand: they stand in any order": _as_they_stand,
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
        made_up.seeds_apart(0.95, 1.06, 6),
    ]
    try:
        got = [call(function, rows) for rows in tables]
    except ValueError as error:
        if "duplicate" not in str(error):
            raise
        raise NotYet(
            f"A round has the same number in each seed: what tells rounds apart is both. ({error})"
        ) from None
    if strange := [said for said in got if not isinstance(said, str) or said not in VERDICTS]:
        raise NotYet(f"conclude should return one of {VERDICTS}, not {strange[0]!r}.")
    if got != [concluded(rows) for rows in tables]:
        for words, rule in HASTY.items():
            if got == [rule(rows) for rows in tables]:
                raise NotYet(f"It looks like {words}.")
        wrong = [i for i, rows in enumerate(tables, start=1) if got[i - 1] != concluded(rows)]
        raise NotYet(f"Of {len(tables)} tables of made-up rows these are judged wrongly: {wrong}.")
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
