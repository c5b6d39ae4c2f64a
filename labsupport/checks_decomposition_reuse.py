"""Instant feedback on four exercises of chapter 2: who owns the rows, which model, when it pays."""

from collections import OrderedDict

import numpy as np

from labsupport import made_up
from labsupport.checks import NotYet, call, exercise, value
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
            "let a query take tokens back before it appends",
        ),
    ]
    for kind, want, words in cases:
        got = call(function, made_up.filled(kind))
        if not isinstance(got, bool | np.bool):
            raise NotYet(f"isolated should return True or False, not {type(got).__name__}.")
        if got != want:
            raise NotYet(f"Of the caches it was tried on, {words}.")
    return "You have written a test that finds bugs which no single query shows."


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
    ]
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
        if got != want:
            raise NotYet(f"{what} is not {got!r}. {_slip(got, want)}.")
    return (
        "No test of this kind shows that a name is safe: it shows which changes it was tried on. A "
        "change that is harmless for one query may be stale for the next, longer one."
    )


@exercise(CHAPTER, "pays", 3)
def pays(function):
    cases = [  # n_prefixes, fresh, hit, miss, once, in ns
        (8, 250_000, 90_000, 270_000, 365_000),
        (5, 300_000, 200_000, 320_000, 0),  # equal at a whole number of queries
        (1, 300_001, 300_000, 300_500, 0),
        (3, 250_000, 273_000, 280_000, 365_000),
        (3, 250_000, 250_000, 280_000, 0),
    ]
    for given in cases:
        name = f"queries_to_pay{given}"
        want = queries_to_pay(*given)
        try:
            got = call(function, *given) if want else function(*given)
        except ZeroDivisionError:
            raise NotYet(f"{name} divides by zero: what if a hit saves nothing?") from None
        if want is None:
            if got is not None:
                raise NotYet(f"{name} is {got}, but a hit that costs this much never pays: None.")
            continue
        n, fresh, hit, miss, once = given
        saved = fresh - hit
        mistakes = {
            "the query at which both take the same time: the store must take less": want - 1,
            "the repeats alone: the cold starts are queries, too": want - n,
            "what naming the model costs once is left out": queries_to_pay(*given[:4], 0),
            "the cold starts are charged as if they were hits": once // saved + 1,
            "a hit rate where a number of queries is asked for": (miss - fresh) / (miss - hit),
        }
        value(name, got, want, mistakes, rtol=1e-9)
    return (
        "At that query the hit rate has only just passed the break-even rate; how long a store "
        "must live follows from how many prefixes it has to learn."
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


def queries_to_pay(n_prefixes, fresh, hit, miss, once):
    """The least number of queries that take less with a store than without; None if none do.

    once + n_prefixes miss + (q - n_prefixes) hit < q fresh, in whole ns, with miss >= fresh.
    """
    if hit >= fresh:
        return None
    return (once + n_prefixes * (miss - hit)) // (fresh - hit) + 1


@exercise(CHAPTER, "room", 4)
def room(hits_by_room, smallest_room):
    stream = list("abbacabdabbecadfeabba")
    want = [_hits(stream, r) for r in range(len(set(stream)) + 1)]
    got = call(hits_by_room, stream)
    got = got.tolist() if isinstance(got, np.ndarray) else list(got)
    if got != want:
        for words, wrong in {
            "is one place off: item 0 is for a store with no room": want[1:],
            "repeats item 0: how many other prefixes came in between, if none did": [0, *want[:-1]],
            "counts first uses as hits: a store begins empty": [
                hits + len(set(stream)) if r else 0 for r, hits in enumerate(want)
            ],
            "forgets the one that came first, not the one that was unused longest": [
                _hits(stream, r, refresh=False) for r in range(len(want))
            ],
            "counts the queries in between, where the different prefixes in between count": (
                _within(stream, len(want))
            ),
        }.items():
            if got == wrong:
                raise NotYet(f"hits_by_room {words}.")
        if len(got) != len(want):
            raise NotYet(f"hits_by_room gives {len(got)} items; rooms are 0 to {len(want) - 1}.")
        at = next(r for r in range(len(want)) if got[r] != want[r])
        size = "many" if got[at] > want[at] else "few"
        raise NotYet(f"hits_by_room counts too {size} hits from room {at} on.")
    for costs in ((300, 100, 320), (300, 200, 330), (300, 50, 300), (300, 290, 400)):
        fresh, hit, miss = costs
        totals = [h * hit + (len(stream) - h) * miss for h in want]
        least = next((r for r, t in enumerate(totals) if t < len(stream) * fresh), None)
        found = smallest_room(list(stream), *costs)
        if least is None and found is not None:
            raise NotYet(
                f"smallest_room(stream, {fresh}, {hit}, {miss}) is {found}: even with "
                "room for all prefixes the stream takes no less. Then it is None."
            )
        if least is not None and found is None:
            raise NotYet(
                f"smallest_room(stream, {fresh}, {hit}, {miss}) is None: there is such a room."
            )
        if least is not None:
            equal = next(r for r, t in enumerate(totals) if t <= len(stream) * fresh)
            mistakes = {
                "the room at which both take the same time: less is asked for": equal,
                "the hits, not the room": want[least],
                "the room with the most hits, not the least that pays": len(want) - 1,
            }
            name = f"smallest_room(stream, {fresh}, {hit}, {miss})"
            value(name, found, least, mistakes)
    return (
        "One pass gives every room at once, since what fits a small store fits a larger one "
        "(Mattson and others, 1970). A store that forgets the oldest has no such order."
    )


def _hits(stream, room, refresh=True):
    """Hits of a store with room for so many prefixes that forgets the longest unused, one by one.

    Without refresh it forgets the one that was kept first.
    """
    kept, hits = OrderedDict(), 0
    for prefix in stream:
        if prefix in kept:
            hits += 1
            if refresh:
                kept.move_to_end(prefix)
        elif room:
            kept[prefix] = True
            if len(kept) > room:
                kept.popitem(last=False)
    return hits


def _within(stream, n_rooms):
    """Hits if a prefix were kept for so many queries."""
    gaps = [stream[:i][::-1].index(p) + 1 for i, p in enumerate(stream) if p in stream[:i]]
    return [sum(gap <= room for gap in gaps) for room in range(n_rooms)]
