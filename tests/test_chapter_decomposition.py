"""Chapter 2 shows its key steps in full; here they are held to the package's own."""

import inspect

import numpy as np
import pandas as pd
import pytest
from lesson_code import Lesson, run

from labsupport import costmodel, hitrate, opcounts, profile, timing
from labsupport.decoder import Decoder, DecoderConfig
from labsupport.kvcache import PreallocatedCache
from labsupport.prefix import FrozenDecoder

LESSON = Lesson("decomposition", np=np, pd=pd, profile=profile, timing=timing)
shown, source_of, solution = LESSON.shown, LESSON.source_of, LESSON.solution


@pytest.mark.parametrize("path", list(profile.PATHS))
def test_a_path_is_the_packages_to_the_letter(path):
    assert source_of(path) == inspect.getsource(profile.PATHS[path]).rstrip()


@pytest.mark.parametrize("stamps", [(0, 1, 3, 6, 10, 15), (7, 7, 7, 9, 9, 1000)])
def test_the_decomposition_is_the_packages(stamps):
    assert shown("decompose")(stamps) == profile.decompose(stamps)


@pytest.fixture(scope="module")
def rows():
    """Made-up rows that close: 4 rounds of 2 seeds, each column with values of its own."""
    rng = np.random.default_rng(0)
    made = [
        {"seed": s, "round": r, "path": p}
        for s in range(2)
        for r in range(4)
        for p in profile.PATHS
    ]
    table = pd.DataFrame(made)
    for segment in profile.SEGMENTS:
        table[segment] = rng.integers(100, 100_000, len(table))
    table["total_ns"] = table[profile.SEGMENTS].sum(axis=1)
    return table


def test_the_middle_half_adds_up_and_is_chosen_by_the_total(rows):
    table = shown("middle")(rows)
    parts = table.drop(columns="total").sum(axis=1)
    assert np.allclose(parts, table["total"])
    own = rows[rows["path"] == "full"].sort_values("total_ns").iloc[2:6]  # 8 rows: without 2 and 2
    assert table.loc["full", "total"] == pytest.approx(own["total_ns"].mean() / 1000)


def test_what_medians_leave_open_is_their_total_less_their_sum(rows):
    medians = profile.medians_us(rows)
    gaps = shown("unclosed")(medians)
    for path in profile.PATHS:
        own = rows[rows["path"] == path]
        parts = sum(own[segment].median() for segment in profile.SEGMENTS)
        assert gaps[path] == pytest.approx((own["total_ns"].median() - parts) / 1000)
    assert gaps.abs().max() > 1


def test_ratios_are_taken_within_rounds(rows):
    table = shown("against_full")(rows)
    keyed = rows.set_index(["path", "seed", "round"])["total_ns"]
    for path in ("rehash", "frozen"):
        assert table.loc[path, "ratio"] == pytest.approx(
            np.exp(np.median(np.log(keyed[path] / keyed["full"])))
        )


def test_the_terms_add_up_to_the_prediction():
    prices = {name: float(i + 1) for i, name in enumerate(costmodel.PRICES)}
    cell = LESSON.cell("TERMS = {")
    names = {"costmodel": costmodel, "opcounts": opcounts, "pd": pd}
    by_term = run(cell[: cell.index("\n\npredicted")], names)["by_term"]
    table = by_term(profile.Case(), prices)
    predicted = costmodel.predict(profile.Case(), prices)
    assert table.loc["full"].sum() == pytest.approx(predicted.loc["full", "total"] / 1000)
    parts = table.loc[["lookup", "copy", "continuation"]].to_numpy().sum()
    assert parts == pytest.approx(predicted.loc["frozen", "total"] / 1000)


CONFIG = DecoderConfig(64, 12, 16, 2, 2, dtype=np.float64)


def test_a_counter_sees_what_goes_through_its_door_only():
    model = shown("CountedDecoder", Decoder=Decoder)(CONFIG, 0)
    before = model.identity
    model.weights["0.k.w"][0, 0] += 1
    assert model.identity == before
    model.replace("0.k.w", model.weights["0.k.w"])
    assert model.identity != before


def test_the_one_door_of_the_solution_holds():
    counted = shown("CountedDecoder", Decoder=Decoder)
    one_door = run(solution("One door"), {"CountedDecoder": counted})["OneDoor"]
    model = one_door(CONFIG, 0)
    before, kept = model.identity, model.weights["0.k.w"].copy()
    with pytest.raises(ValueError, match="read-only"):
        model.weights["0.k.w"][:] *= 1.5
    assert np.array_equal(model.weights["0.k.w"], kept)
    model.replace("0.k.w", kept * 2)
    assert model.identity != before
    assert np.array_equal(model.weights["0.k.w"], kept * 2)
    with pytest.raises(ValueError, match="read-only"):
        model.weights["0.k.w"][:] *= 1.5
    model.weights["0.v.w"].flags.writeable = True  # the page says that this still goes past


def test_the_prices_are_of_the_three_ways_that_the_page_names():
    names = {"Decoder": Decoder, "FrozenDecoder": FrozenDecoder, "config": CONFIG}
    names |= {"identity": None, "read_sources": profile.read_sources}
    assert list(run(LESSON.cell("NAMES = {"), names)["NAMES"]) == ["hash", "counter", "frozen"]


def test_sharing_rows_fails_only_when_queries_interleave():
    model = Decoder(DecoderConfig(64, 64, 16, 2, 2, dtype=np.float64), seed=0)
    tokens = np.random.default_rng(0).integers(64, size=12).tolist()
    names = {"long": model, "tokens": tokens, "PreallocatedCache": PreallocatedCache}
    names |= {"keep_prefix": shown("keep_prefix", **names), "off_by": shown("off_by", **names)}
    two = shown("two_queries", **names)
    shared, copied = two(shown("share")), two(PreallocatedCache.copy)
    assert max(copied) < 1e-12
    assert max(shared[:2]) < 1e-12
    assert shared[2] > 0.01


def test_medians_of_the_solution_add_up_to_more_than_the_total():
    toy = pd.DataFrame({"lookup": [9, 9, 1], "copy": [1, 9, 9]})
    assert solution("Medians on the other side").startswith(
        'toy = pd.DataFrame({"lookup": [9, 9, 1], "copy": [1, 9, 9]})'
    )
    assert toy.median().sum() == 18
    assert toy.sum(axis=1).median() == 10


def test_the_helpdesks_figures():
    rate = hitrate.breakeven(300, 90, 320)
    assert f"{rate:.1%}" == "8.7%"
    assert "= 8.7$ %" in LESSON.text
    assert 1000 * hitrate.expected(0.96, 90, 320) == pytest.approx(99_200)
    assert "99.2 s" in LESSON.text
    assert 1000 * hitrate.expected(0.48, 90, 320) == pytest.approx(209_600)
    assert "209.6 s" in LESSON.text


def test_the_smudged_copy():
    assert 181340 - 90 - 1570 - 170650 - 440 == 8590
    assert "= 8590 ns" in LESSON.text


def test_every_claim_of_the_ledger_is_shown_in_the_chapter():
    assert LESSON.claims_shown() == LESSON.claims_of_ledger()


def test_twenty_trials_without_an_alarm_leave_this_much_possible():
    assert f"{1 - 0.05 ** (1 / 20):.0%}" == "14%"
    assert "leave a rate of 14 % possible" in LESSON.prose
