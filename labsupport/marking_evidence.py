"""Marks for a run that a reader recorded: its audit, its case, and what was concluded from it.

Never whether reuse won. The files arrive as texts from a process that nobody can trust, so they are
audited here again. What they ask for is bounded before any work is done on it, and whatever they
hold is an answer: no exception leaves a judge, for one submission must not stop the others.
"""

import functools
from collections.abc import Callable

import pandas as pd

from labsupport import audit, columns, jsontext, profile, seal, timing
from labsupport.books import MANIFEST
from labsupport.seal import SEAL

SOURCE_PREFIX = 8  # tokens that the source's queries reuse
ROUNDS = (30, 400)  # of all seeds together: enough for an interval, few enough to send
MOST_CHARACTERS = 400_000  # of all files; a run of 400 rounds has about 100,000
TIMES = ["total_ns", *profile.SEGMENTS]
COLUMNS = {  # of the rows of `profile.measure`
    **{"seed": "integer", "round": "integer", "path": "text"},
    **dict.fromkeys(TIMES, "integer"),
    "agreed": "true/false",
}


def concluded(rows: pd.DataFrame) -> str:
    """'faster', 'slower' or 'cannot tell', of frozen against full, divided within rounds.

    rows  the columns seed, round, path and total_ns, as in chapter 2's records. ValueError where a
          round lacks a path, or where there are too few rounds for an interval.
    """
    pairs = rows.pivot(index=["seed", "round"], columns="path", values="total_ns")
    _, low, high = timing.ratio_of_pairs(pairs["full"], pairs["frozen"])
    return timing.verdict(low, high, timing.MARGIN)


def unfit(case: object) -> str | None:
    """Why a case is not the one that the exercise asks for, in words; None if it is."""
    if not isinstance(case, profile.Case):
        return f"case should be a profile.Case; it is of the type {type(case).__name__}"
    if case.prefix <= SOURCE_PREFIX:
        return f"it reuses {case.prefix} tokens, which is no longer prefix than the source's"
    if not ROUNDS[0] <= case.seeds * case.rounds <= ROUNDS[1]:
        return f"seeds times rounds should be from {ROUNDS[0]} to {ROUNDS[1]}"
    return None


def _judge(function: Callable[[object], bool]) -> Callable[[object, object], bool]:
    """A judge of `marking` from a function of what was given; an exception means not right."""

    @functools.wraps(function)
    def judge(given: object, of_the_master: object) -> bool:
        try:
            return function(given) is True
        except Exception:
            return False

    return judge


@_judge
def is_intact(files: dict[str, str]) -> bool:
    """Whether these are the files of a run of the profiler, just as it wrote them."""
    if sum(map(len, files.values())) > MOST_CHARACTERS:
        return False
    held = {name: text.encode("utf-8") for name, text in files.items()}
    told = held.pop(SEAL)
    if seal.make(held) != told:  # to find out where they differ can take for ever
        return False
    return is_of_profiler(_manifest(files[MANIFEST])) and not audit.examine({**held, SEAL: told})


@_judge
def is_longer(manifest: str) -> bool:
    """Whether a manifest is of the profiler and its case is one that the exercise asks for."""
    content = _manifest(manifest)
    return is_of_profiler(content) and unfit(_case(content)) is None


@_judge
def follows(given: list[str]) -> bool:
    """Whether what was concluded, the second text, is what the rows say, the first: a raw.csv."""
    raw, said = given
    if len(raw) > MOST_CHARACTERS:
        return False
    values, problems = columns.parse(raw.encode("utf-8"), COLUMNS)
    return not problems and said == concluded(pd.DataFrame(values))


def _manifest(text: str) -> dict:
    content, problem = jsontext.parse(MANIFEST, text.encode("utf-8"))
    if problem or not isinstance(content, dict):
        raise ValueError("this is no manifest")
    return content


def _case(manifest: dict) -> profile.Case:
    """The case of a run, from its configuration."""
    config = manifest["config"]
    sizes = {name: config[name] for name in profile.Case.__dataclass_fields__}
    return profile.Case(**{**sizes, "seeds": len(config["seeds"])})


def is_of_profiler(manifest: dict) -> bool:
    """Whether a manifest says of its rows what the profiler says, for no more rounds than allowed.

    So the rows that the audit looks for are as few as the configuration says.
    """
    case = _case(manifest)
    if case.seeds * case.rounds > ROUNDS[1]:
        return False
    wanted = {
        "kind": "run",
        "columns": COLUMNS,
        "factors": {
            "seed": list(range(case.seeds)),
            "round": list(range(case.rounds)),
            "path": list(profile.PATHS),
        },
        "repeats": ["seed", "round"],
        "total": "total_ns",
        "segments": profile.SEGMENTS,
        "agreed": "agreed",
    }
    return all(manifest[name] == value for name, value in wanted.items())


# The judge of each part of the exercise decomposition-own-run.
JUDGES = {
    "its audit": is_intact,
    "its case": is_longer,
    "what you concluded": follows,
}
