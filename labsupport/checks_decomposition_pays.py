"""Instant feedback on two exercises of chapter 2: when a store has paid, and with how much room."""

from collections import OrderedDict

import numpy as np

from labsupport.checks import NotYet, call, exercise, value

CHAPTER = "decomposition"


@exercise(CHAPTER, "pays", 3)
def pays(function):
    cases = [  # n_prefixes, fresh, hit, miss, once, in ns
        (25, 250_000, 90_000, 270_000, 365_000),
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
            "a miss that costs no more than a fresh query": queries_to_pay(
                n, fresh, hit, fresh, once
            ),
            "naming the model once for each prefix": queries_to_pay(n, fresh, hit, miss, n * once),
            "the cold starts are charged as if they were hits": once // saved + 1,
            "a hit rate where a number of queries is asked for": (miss - fresh) / (miss - hit),
        }
        value(name, got, want, mistakes, rtol=1e-9)
    return (
        "At that query the hit rate has only just passed the break-even rate; how long a store "
        "must live follows from how many prefixes it has to learn."
    )


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
    if not isinstance(got, list | tuple | np.ndarray):
        raise NotYet(f"hits_by_room should return a list; it is of the type {type(got).__name__}.")
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
            "forgets the newest, not the one that was unused longest": [
                _hits(stream, r, forget=lambda kept: None) for r in range(len(want))
            ],
            "forgets the one that was used last, not the one that was unused longest": [
                _hits(stream, r, forget=lambda kept: next(reversed(kept))) for r in range(len(want))
            ],
            "forgets the one that was used least often, not the one that was unused longest": [
                _hits(stream, r, forget=lambda kept: min(kept, key=kept.get))
                for r in range(len(want))
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
    for costs in (
        (300, 100, 500),
        (300, 100, 320),
        (300, 200, 330),
        (300, 50, 300),
        (300, 290, 400),
    ):
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
            as_fresh = next(r for r, h in enumerate(want) if h * (fresh - hit) > 0)
            mistakes = {
                "the room at which both take the same time: less is asked for": equal,
                "a miss that costs no more than a fresh query": as_fresh,
                "too few misses: one that was forgotten misses again": 0,
                "the hits, not the room": want[least],
                "the room with the most hits, not the least that pays": len(want) - 1,
            }
            name = f"smallest_room(stream, {fresh}, {hit}, {miss})"
            value(name, found, least, mistakes)
    return (
        "One pass gives every room at once, since what fits a small store fits a larger one "
        "(Mattson and others, 1970). A store that forgets the oldest has no such order."
    )


def _hits(stream, room, refresh=True, forget=lambda kept: next(iter(kept))):
    """Hits of a store with room for so many prefixes that forgets the longest unused, one by one.

    Without refresh it forgets the one that was kept first. `forget` chooses from a dict, prefix ->
    uses, the longest unused first; if it chooses none, the new prefix is not kept.
    """
    kept, hits = OrderedDict(), 0
    for prefix in stream:
        if prefix in kept:
            hits += 1
            kept[prefix] += 1
            if refresh:
                kept.move_to_end(prefix)
        elif room:
            if len(kept) == room:
                lost = forget(kept)
                if lost is None:
                    continue
                del kept[lost]
            kept[prefix] = 1
    return hits


def _within(stream, n_rooms):
    """Hits if a prefix were kept for so many queries."""
    gaps = [stream[:i][::-1].index(p) + 1 for i, p in enumerate(stream) if p in stream[:i]]
    return [sum(gap <= room for gap in gaps) for room in range(n_rooms)]
