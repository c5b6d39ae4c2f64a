"""Chapter 2's exercises: every answer gets the marks it deserves and the words that help."""

import itertools

import numpy as np
import pytest
from exercise_code import Sheet

from labsupport import checks_decomposition_pays as paying
from labsupport import made_up, timing
from labsupport.prefix import PrefixStore
from labsupport.streams import BoundedStore

SHEET = Sheet("decomposition")
EXERCISES = SHEET.exercises()
COSTS = list(itertools.product((1, 3), (5, 9), (2, 5, 6), (9, 11), (0, 7)))


# What the checks hold to be right


@pytest.mark.parametrize("costs", COSTS)
def test_the_number_of_queries_is_the_first_that_takes_less(costs):
    n, fresh, hit, miss, once = costs
    pays = (q for q in range(n, 500) if once + n * miss + (q - n) * hit < q * fresh)
    assert paying.queries_to_pay(*costs) == next(pays, None)


def test_hits_are_those_of_the_courses_store():
    stream = np.random.default_rng(4).integers(7, size=80).tolist()
    caches = [made_up.filled(made_up.PreallocatedCache, 1)]
    for room in (1, 3, 7):
        store, hits = BoundedStore(room), 0
        for prefix in stream:
            try:
                hits += bool(store.find("", "", [prefix]))
            except LookupError:
                store.keep("", "", [prefix], caches)
        assert hits == paying._hits(stream, room)
    assert paying._hits(stream, 0) == 0
    assert isinstance(store, PrefixStore)


def test_made_up_rounds_are_far_from_where_rounding_decides(monkeypatch):
    """So their verdicts are the same on any machine."""
    tables = []

    def noted(make):
        def made(*given, **named):
            tables.append(make(*given, **named))
            return tables[-1]

        return made

    for name in ("rounds", "seeds_apart"):
        monkeypatch.setattr(made_up, name, noted(getattr(made_up, name)))
    assert SHEET.attempt("decomposition-conclude").right
    assert len(tables) >= 15  # of the check and of the hidden parts
    for rows in tables:
        pairs = rows.pivot(index=["seed", "round"], columns="path", values="total_ns")
        _, low, high = timing.ratio_of_pairs(pairs["full"], pairs["frozen"])
        assert min(abs(low - 1), abs(high - 1)) > 1e-3
