"""Instant feedback on two exercises of chapter 2: who owns the rows, and which model it is."""

import numpy as np

from labsupport import made_up
from labsupport.checks import NotYet, call, exercise
from labsupport.kvcache import DoublingCache, PreallocatedCache

CHAPTER = "decomposition"


@exercise(CHAPTER, "isolated", 3)
def isolated(function):
    cases = [  # what a cache of this kind is, its function's right answer, words for the wrong one
        (PreallocatedCache, True, "one whose copies are independent is called unsafe"),
        (DoublingCache, True, "one whose copies are independent is called unsafe"),
        (
            made_up.Lent,
            False,
            "one whose copies share all rows is called safe. The kept rows are the same "
            "afterwards, and so is each query that runs alone: let two queries append different "
            "rows, then look at what each of them reads",
        ),
        (
            made_up.ValuesLent,
            False,
            "one whose copies share the values is called safe: compare both",
        ),
        (
            made_up.CopiedLater,
            True,
            "one that copies when it is first written is called unsafe. To share memory is no "
            "fault as long as nobody writes: judge by what is read",
        ),
        (
            made_up.OneForAll,
            False,
            "one whose copies are apart from the kept rows, but not from one another, is called "
            "safe: take two copies, and let them append different rows",
        ),
        (
            made_up.CopiedIfLonger,
            False,
            "one is called safe that copies only when a query has grown past what it was given: "
            "let a query take tokens back before its first append, and append no more than it took "
            "back",
        ),
    ]
    for kind, want, words in cases:
        try:
            got = call(function, made_up.filled(kind))
        except NotYet:
            raise
        except AssertionError:
            raise NotYet("isolated raised AssertionError: return False instead.") from None
        if not isinstance(got, bool | np.bool):
            raise NotYet(f"isolated should return True or False, not {type(got).__name__}.")
        if got != want:
            raise NotYet(f"Of the caches it was tried on, {words}.")
    return "You have written a test that finds bugs which no single query shows."


SMALL = {  # where a tolerance decides
    made_up.scale_slightly: "The outputs differ by more than 1e-12 here: they are not the same",
    made_up.scale_hardly: "The outputs differ by less than 1e-12 here: they are the same",
}
WORDS = ("refused", "seen", "needless", "stale", "harmless")


@exercise(CHAPTER, "identity", 3)
def identity(function):
    tokens = [3, 1, 4, 1, 5, 9, 2, 6]  # of 12 positions 8 are read
    cases = [  # builds a model, names it, changes it; the right word
        (made_up.plain, made_up.whole_hash, made_up.scale_in_place, "seen"),
        (made_up.counted, made_up.version, made_up.scale_in_place, "stale"),
        (made_up.counted, made_up.version, made_up.write_unused, "harmless"),
        (made_up.counted, made_up.version, made_up.replace_by_equal, "needless"),
        (made_up.plain, made_up.weights_hash, made_up.more_heads, "stale"),
        (made_up.frozen, made_up.whole_hash, made_up.scale_in_place, "refused"),
        (made_up.counted, made_up.version, made_up.scale_slightly, "stale"),
        (made_up.counted, made_up.version, made_up.scale_hardly, "harmless"),
    ]
    said = []
    for build, name, change, want in cases:
        what = f"after({build.__name__}, {name.__name__}, {change.__name__}, tokens)"
        try:
            got = call(function, build, name, change, tokens)
        except (AttributeError, TypeError, ValueError) as error:
            if want != "refused":
                raise
            raise NotYet(f"{what} lets the model's refusal through: {error}.") from None
        if not isinstance(got, str) or got not in WORDS:
            raise NotYet(f"{what} should be one of {WORDS}, not {got!r}.")
        said.append((what, got, want, change))
    turned = {"stale": "needless", "needless": "stale"}
    if any(got != want for _, got, want, _ in said):
        if all(turned.get(got, got) == want for _, got, want, _ in said):
            raise NotYet("The words stale and needless are interchanged: see the table.")
    for what, got, want, change in said:
        if got != want:
            raise NotYet(f"{what} is not {got!r}. {SMALL.get(change) or _slip(got, want)}.")
    return (
        "No test of this kind shows that a name is safe: it shows which changes it was tried on. A "
        "change that is harmless for one query may be stale for the next, longer one."
    )


def _slip(got, want):
    """What went wrong where `got` stands for `want`, two different of WORDS."""
    if "refused" in (got, want):
        return "See whether the change raises one of the three errors, and only the change"
    differ = {"seen": True, "stale": True, "needless": False, "harmless": False}
    if differ[got] and not differ[want]:
        return "This change leaves the outputs of these tokens as they are: compare outputs"
    if differ[want] and not differ[got]:
        return "Outputs differ here: take them before and after the change, for all tokens"
    return "Compare the name from before the change with one taken after it, by =="
