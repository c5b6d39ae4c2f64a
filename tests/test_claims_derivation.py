"""The claims of the cache's derivation: each verdict follows what it is computed from.

Times are checked on a sweep made up after the source's own tables (`sample_claims`), trials on
results made up and on a small model; only the last test reads what is recorded.
"""

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import sample_claims as sample
import torch
from doctoring import check_that_it_follows, doctored

from labsupport import (
    arithmetic,
    claims,
    claims_derivation,
    claims_width,
    derivation_evidence,
    derivation_source,
    ledger,
    roofline,
)
from labsupport.charcache import ConcatCache
from labsupport.charmodel import CharConfig, CharModel
from labsupport.claims_derivation import growth

CLAIMS = {c.id.removeprefix("derivation-"): c for c in ledger.of_chapter("derivation")}
HOLDS, IN_SHAPE = claims.HOLDS, claims.IN_SHAPE
CONTRADICTED = claims.CONTRADICTED
BASE = sample.evidence()


def trial(name, **changes):
    """One result of a trial, or one of its columns, is another."""
    result = sample.TRIALS[name]
    changed = result | changes if isinstance(result, dict) else result.assign(**changes)
    return sample.evidence(rows=BASE.rows, trials={name: changed})


def compared(column, at, value):
    rows = sample.TRIALS["compared"].copy()
    rows.loc[at, column] = value
    return sample.evidence(rows=BASE.rows, trials={"compared": rows})


def source(table, at, **columns):
    """The source printed other figures in one row of a table."""
    changed = getattr(BASE, table).astype(float)
    changed.loc[at, list(columns)] = list(columns.values())
    return replace(BASE, **{table: changed})


def lengths(**columns):
    """The source printed other columns over the length."""
    return replace(BASE, length=BASE.length.assign(**columns))


def sweep(factor, path, where=lambda d, n: True, noise=0.002):
    """A sweep in which a path took `factor` times as long where `where` says so.

    factor may be a function of d and n, or a number.
    """
    times = sample.times_ms()
    for (d, n), cell in times.items():
        if where(d, n):
            cell[path] *= factor(d, n) if callable(factor) else factor
    return sample.evidence(rows=sample.rows_of(times, noise))


def as_path(path, other, factor=1.0):
    """A sweep in which a path took `factor` times as long as another, in every cell."""
    times = sample.times_ms()
    for cell in times.values():
        cell[path] = factor * cell[other]
    return sample.evidence(rows=sample.rows_of(times))


def machine(**rates):
    return sample.evidence(rows=BASE.rows, machine=sample.rates(**rates))


def config(**sizes):
    return replace(BASE, config=replace(BASE.config, **sizes))


def by_formula():
    """The source's table, its ratios those of its printed formula."""
    changed = {
        "length": BASE.length.assign(arithmetic=[32.9, 66.1, 134.6, 277.8, 580.7]),
        "width": BASE.width.assign(arithmetic=[134.6, 131.8, 130.2, 129.4]),
    }
    return replace(BASE, **changed)


def mixed_times():
    n = BASE.length.index.to_numpy(float)
    return lengths(uncached_ms=0.01 * n**2 + 1e-6 * n**3)


def speedups_alike():
    """Every way gains 12-fold in every cell."""
    times = sample.times_ms()
    for cell in times.values():
        for path in sample.CACHED:
            cell[path] = cell["uncached"] / 12
    return sample.evidence(rows=sample.rows_of(times))


# number: (doctored figures of the source or None, doctored evidence or None, the verdict then)
DOCTORED = {
    "01": ({"old": 98}, None, CONTRADICTED),
    "02": (None, lambda: trial("changes", slid=2e-7), HOLDS),
    "03": (None, lambda: trial("changes", **{"no mask": 2e-7}), CONTRADICTED),
    "04": (None, lambda: trial("steps", **{"no keys": 2e-6}), IN_SHAPE),
    "05": (None, lambda: trial("steps", kept=0.5), CONTRADICTED),
    "06": (None, lambda: compared("same", 700, False), IN_SHAPE),
    "07": ({"difference": 2e-6}, None, HOLDS),
    "08": (None, lambda: trial("doubled", difference=1e-6), CONTRADICTED),
    "09": (None, lambda: trial("rounded", cached_error=0.1), CONTRADICTED),
    "10": (None, lambda: trial("compared", difference=0.0), CONTRADICTED),
    "11": (None, lambda: trial("compared", error=0.0), CONTRADICTED),
    "12": (None, lambda: only_ties_flip(1.0), HOLDS),
    "13": ({"pair": 1}, None, CONTRADICTED),
    "16": ({"ratio": 134.6}, None, HOLDS),
    "17": (None, by_formula, HOLDS),
    "18": ({"n": 128}, None, HOLDS),
    "19": (None, lambda: source("width", 512, measured=7.65), IN_SHAPE),
    "20": (None, lambda: source("width", 128, uncached_ms=582, cached_ms=198), HOLDS),
    "21": ({"times": 6.0}, None, IN_SHAPE),
    "22": ({"percent": 2.3}, None, CONTRADICTED),
    "23": (None, lambda: machine(multiplies=50e9), HOLDS),
    "24": (None, lambda: as_path("compiled", "concat"), HOLDS),
    "25": (None, lambda: machine(multiplies=1e12), HOLDS),
    "26": ({"operations": 10}, lambda: trial("kernels", cached=10), HOLDS),
    "27": (None, lambda: lengths(uncached_ms=[40, 79, 160, 320, 640]), HOLDS),
    "28": ({"growth": 6.7}, None, CONTRADICTED),
    "29": (None, lambda: sweep(2, "concat", lambda d, n: n == 1024), IN_SHAPE),
    "30": ({"uncached": 1.79}, None, IN_SHAPE),
    "31": ({"cached": 12.0}, None, IN_SHAPE),
    "32": (None, mixed_times, HOLDS),
    "33": ({"uncached": 2.5}, None, IN_SHAPE),
    "34": (None, lambda: as_path("concat", "uncached"), claims.CANNOT_TELL),
    "35": (None, lambda: lengths(cached_ms=BASE.length["uncached_ms"] * 2), CONTRADICTED),
    "36": (None, lambda: as_path("compiled", "concat"), IN_SHAPE),
    "37": (None, lambda: as_path("concat", "uncached"), HOLDS),
    "38": (None, lambda: sweep(12, "concat", lambda d, n: n == 1024), IN_SHAPE),
    "39": ({"last": 8.0}, None, IN_SHAPE),
    "40": ({"ratio": 150}, None, CONTRADICTED),
    "41": ({"first": 3.5}, None, IN_SHAPE),
    "42": (None, lambda: sweep(5, "concat", lambda d, n: d == 1024), CONTRADICTED),
    "43": ({"d": 1024}, None, CONTRADICTED),
    "44": ({"d": 64}, None, CONTRADICTED),
    "45": (None, lambda: machine(far=100e9), IN_SHAPE),
    "46": (None, speedups_alike, CONTRADICTED),
}


def only_ties_flip(share):
    """The tenth of the steps with the closest candidates holds this share of the chance."""
    gaps = sample.TRIALS["rounded"]["gap"]
    close = gaps <= gaps.quantile(0.1)
    return trial(
        "rounded", variation=np.where(close, share / close.sum(), (1 - share) / (~close).sum())
    )


# The same claims, a little less or a little more: (number, figures or None, evidence, verdict)
EDGES = {
    "activations that move": ("01", None, lambda: trial("changes", float32=1e-3), CONTRADICTED),
    "outputs that move": ("02", None, lambda: trial("changes", float32=1e-3), CONTRADICTED),
    "no finer in float64": ("02", None, lambda: trial("changes", float64=2e-7), CONTRADICTED),
    "moving with the mask": ("03", None, lambda: trial("changes", float32=1e-4), CONTRADICTED),
    "nothing moves at all": ("03", None, lambda: trial("changes", float32=0.0), HOLDS),
    "a cache that is wrong": ("04", None, lambda: trial("steps", kept=0.01), CONTRADICTED),
    "values not needed": ("04", None, lambda: trial("steps", **{"no values": 2e-6}), IN_SHAPE),
    "many draws apart": (
        "06",
        None,
        lambda: compared("same", range(0, 700, 7), False),
        CONTRADICTED,
    ),
    "shorter loops": ("06", {"characters": 129}, lambda: BASE, IN_SHAPE),
    "a wrong path": ("07", None, lambda: trial("compared", difference=0.1), CONTRADICTED),
    "one path rougher": ("09", None, lambda: trial("rounded", cached_error=2e-5), IN_SHAPE),
    "some chance in ties": ("12", None, lambda: only_ties_flip(0.5), IN_SHAPE),
    "another width": ("13", {"linear": 8}, lambda: BASE, CONTRADICTED),
    "far from the formula": ("16", {"ratio": 150.0}, lambda: BASE, CONTRADICTED),
    "another table": (
        "17",
        None,
        lambda: source("length", 64, arithmetic=64.0),
        CONTRADICTED,
    ),
    "room, but other parameters": ("18", None, lambda: config(context=1024), CONTRADICTED),
    "other parameters": ("18", {"n": 128, "parameters": "637,157"}, lambda: BASE, CONTRADICTED),
    "no ratio right": ("19", None, lambda: lengths(measured=1.0), CONTRADICTED),
    "almost the same cell": (
        "20",
        None,
        lambda: source("width", 128, uncached_ms=582, cached_ms=198.5, measured=2.935),
        IN_SHAPE,
    ),
    "no gain": ("21", None, lambda: as_path("concat", "uncached"), CONTRADICTED),
    "most of the promise": ("21", None, lambda: as_path("concat", "compiled"), CONTRADICTED),
    "a little from software": ("24", None, lambda: as_path("compiled", "concat", 0.8), IN_SHAPE),
    "slow compiled steps": ("25", None, lambda: as_path("compiled", "concat"), CONTRADICTED),
    "as many kernels, but ten": ("26", None, lambda: trial("kernels", cached=10), IN_SHAPE),
    "twice the kernels": ("26", None, lambda: trial("kernels", cached=20), CONTRADICTED),
    "another number of blocks": (
        "26",
        {"blocks": 4, "operations": 10},
        lambda: trial("kernels", cached=10),
        IN_SHAPE,
    ),
    "half of it launching": (
        "27",
        None,
        lambda: lengths(uncached_ms=[70, 150, 300, 600, 1200]),
        IN_SHAPE,
    ),
    "other ends": ("28", {"last": 11.28}, lambda: BASE, CONTRADICTED),
    "other lengths": ("28", {"longer": 8}, lambda: BASE, CONTRADICTED),
    "a gain that falls": (
        "29",
        None,
        lambda: sweep(5, "concat", lambda d, n: n == 1024),
        CONTRADICTED,
    ),
    "slopes alike": (
        "30",
        {"uncached": 1.2},
        lambda: lengths(uncached_ms=BASE.length["cached_ms"]),
        CONTRADICTED,
    ),
    "misses far off": ("31", {"uncached": 40.0}, lambda: BASE, CONTRADICTED),
    "no cubic term": ("32", None, lambda: lengths(uncached_ms=[1.0, 2, 4, 8, 16]), CONTRADICTED),
    "one slope": ("33", None, lambda: as_path("concat", "uncached"), CONTRADICTED),
    "the exponent alone": ("35", None, lambda: exponent_alone(), HOLDS),
    "a small constant": ("36", None, lambda: as_path("compiled", "concat", 0.8), CONTRADICTED),
    "a slope as promised, its constant eaten": ("36", None, lambda: as_promised(1.0), HOLDS),
    "a slope as promised, its constant collected": ("36", None, lambda: as_promised(0.1), IN_SHAPE),
    "a gain too noisy to say": (
        "21",
        None,
        lambda: sweep(1, "concat", noise=0.3),
        claims.CANNOT_TELL,
    ),
    "slopes too noisy to say": (
        "33",
        None,
        lambda: sweep(1, "concat", noise=0.3),
        claims.CANNOT_TELL,
    ),
    "next to nothing": ("37", None, lambda: as_path("concat", "uncached", 0.8), IN_SHAPE),
    "a width unlike the others": (
        "39",
        None,
        lambda: source("width", 512, measured=2.0),
        CONTRADICTED,
    ),
    "the source's gains": ("41", {"first": 2.94}, lambda: BASE, HOLDS),
    "no gain from width": (
        "41",
        None,
        lambda: sweep(5, "concat", lambda d, n: d == 1024),
        CONTRADICTED,
    ),
    "nothing at first, but for noise": ("37", None, lambda: noisy_start(), CONTRADICTED),
    "every share rises": ("42", None, lambda: shares_rise(), HOLDS),
    "no share moves": ("42", None, lambda: shares_stay(), CONTRADICTED),
    "models twice as wide": ("43", {"d": 2048}, lambda: BASE, IN_SHAPE),
    "some overhead": ("44", {"d": 256}, lambda: BASE, IN_SHAPE),
    "free calls": ("44", {"d": 64}, lambda: machine(call_ns=0.01), HOLDS),
    "one way alike": ("46", None, lambda: as_path("numpy", "uncached", 0.1), IN_SHAPE),
}


def exponent_alone():
    n = BASE.length.index.to_numpy(float)
    return lengths(uncached_ms=0.3 * n**1.8, cached_ms=0.3 * n**1.15)


def shares_rise():
    """Each way gains in proportion to the source's loop."""
    times = sample.times_ms()
    for cell in times.values():
        for path, factor in (("preallocated", 0.8), ("numpy", 0.2), ("compiled", 0.1)):
            cell[path] = factor * cell["concat"]
    return sample.evidence(rows=sample.rows_of(times))


def as_promised(constant):
    """Times that follow the multiplications, and compiled ones a constant from the others."""
    times = sample.times_ms()
    for (d, n), cell in times.items():
        config = CharConfig(d_model=d, context=max(128, n))
        for path, cached in (("uncached", False), ("concat", True)):
            cell[path] = arithmetic.loop(config, n, cached) / 1e6
        cell["compiled"] = constant * cell["concat"]
    return sample.evidence(rows=sample.rows_of(times))


def shares_stay():
    """Each way collects the same share at every width."""
    times = sample.times_ms()
    for (d, n), cell in times.items():
        promised = arithmetic.ratio(CharConfig(d_model=d, context=max(128, n)), n)
        for path, share in zip(sample.CACHED, (0.02, 0.03, 0.2, 0.5), strict=True):
            cell[path] = cell["uncached"] / (share * promised)
    return sample.evidence(rows=sample.rows_of(times))


def noisy_start():
    """At n = 64 the source's loop gains 8.5-fold and 0.85-fold in turns."""
    rows = BASE.rows.copy()
    at = (rows["path"] == "concat") & (rows["n_tokens"] == 64)
    times = rows.loc[at, "total_ns"]
    rows.loc[at, "total_ns"] = times.where(rows["round"] % 2 == 0, 10 * times) // 5
    return sample.evidence(rows=rows)


def test_a_share_that_falls_by_and_by_has_fallen():
    low = np.array([0.50, 0.46, 0.42, 0.38])  # each within the interval of the one before
    cells = pd.DataFrame({"concat_low": low, "concat_high": low + 0.06, "arithmetic": 1.0})
    assert claims_width.moves(cells, "concat") == (False, True)
    assert claims_width.moves(cells[::-1], "concat") == (True, False)


@pytest.mark.parametrize("column", ["cell", "path"])
def test_a_sweep_that_lacks_what_claims_read_is_told(column):
    rows = derivation_evidence.evidence().rows
    assert derivation_evidence.complete(rows) is rows
    last = rows[column].iloc[-1]
    with pytest.raises(ValueError, match=f"lacks {last}; .* sweep --out"):
        derivation_evidence.complete(rows[rows[column] != last])


def test_every_claim_is_doctored_once():
    on_sums_alone = {"14", "15"}  # see test_claims_on_sums_follow_the_sums
    assert set(DOCTORED) == set(CLAIMS) - on_sums_alone
    assert len(CLAIMS) >= 40
    assert list(CLAIMS) == [f"{i:02d}" for i in range(1, len(CLAIMS) + 1)]


@pytest.mark.parametrize("number", sorted(DOCTORED))
def test_a_doctored_figure_changes_the_verdict(number):
    check_that_it_follows(CLAIMS[number], BASE, *DOCTORED[number])


@pytest.mark.parametrize("case", EDGES)
def test_a_verdict_has_an_edge(case):
    number, figures, evidence, verdict = EDGES[case]
    found = doctored(CLAIMS[number], figures, evidence())
    assert found.verdict == verdict, found.found


def test_figures_are_those_that_the_source_printed():
    stated, length, width = (
        getattr(derivation_source, name)() for name in ("stated", "length", "width")
    )
    figures = {number: claim.figures for number, claim in CLAIMS.items()}
    assert figures["06"]["characters"] == stated["identical_characters"]
    assert figures["07"]["difference"] == stated["logit_difference"]
    assert figures["16"]["ratio"] == length.loc[256, "arithmetic"] == width.loc[128, "arithmetic"]
    assert figures["18"] == {"n": length.index[-1], "parameters": f"{stated['parameters']:,.0f}"}
    assert figures["20"]["runs"] == stated["least_runs"]
    assert figures["21"]["times"] == length.loc[256, "measured"]
    assert figures["22"]["percent"] == figures["39"]["first"] == stated["collected"]
    assert figures["23"]["times"] == figures["40"]["ratio"] == stated["promise"]
    assert figures["26"] == {name: stated[name] for name in ("blocks", "operations")}
    ends = {"first": length["measured"].iloc[0], "last": length["measured"].iloc[-1]}
    growth = {"growth": stated["measured_growth"], "longer": stated["length_growth"]}
    assert figures["28"] == ends | growth
    assert figures["29"] == {"growth": stated["measured_growth"]}
    for number, what in (("30", "exponent"), ("33", "exponent"), ("31", "miss")):
        wanted = {side: stated[f"{side}_{what}"] for side in ("uncached", "cached")}
        assert figures[number] == wanted
    assert figures["39"]["last"] == stated["collected_wide"]
    assert figures["41"] == {
        "first": width["measured"].iloc[0],
        "narrow": width.index[0],
        "last": width["measured"].iloc[-1],
        "wide": width.index[-1],
    }
    assert {figures[number]["d"] for number in ("43", "44", "45")} == {stated["real_width"]}


def test_the_model_that_the_source_described_is_the_default_one():
    stated, config = derivation_source.stated(), CharConfig()
    assert (config.d_model, config.n_blocks, config.context) == tuple(
        stated[name] for name in ("width", "blocks", "context")
    )


# Claims that rest on sums alone


def test_terms_are_those_of_the_sums_over_steps():
    n, d = 9, 4
    linear, attention = growth(n, d).values()
    assert linear == (sum(12 * t * d * d for t in range(1, n + 1)), 12 * d * d * n)
    squares = sum(2 * t * t * d for t in range(1, n + 1))
    assert attention == (squares, sum(2 * t * d for t in range(1, n + 1)))
    assert sum(a for a, _ in growth(256, 128).values()) / sum(
        b for _, b in growth(256, 128).values()
    ) == pytest.approx(arithmetic.printed(128, 256))


@pytest.mark.parametrize(
    ("number", "sums", "verdict"),
    [
        ("14", lambda n, d: {"a": (d * d * n**2, d * d * n), "b": (d * n**3, d * n**2)}, HOLDS),
        (
            "14",
            lambda n, d: {"a": (d * d * n**3, d * d * n), "b": (d * n**3, d * n**2)},
            CONTRADICTED,
        ),
        ("15", lambda n, d: {"linear layers": (n, 1), "attention": (n, 1)}, HOLDS),
        ("15", lambda n, d: {"linear layers": (n * n, 1), "attention": (n, 1)}, CONTRADICTED),
    ],
)
def test_claims_on_sums_follow_the_sums(monkeypatch, number, sums, verdict):
    assert CLAIMS[number].finding(BASE).verdict == IN_SHAPE
    monkeypatch.setattr(claims_derivation, "growth", sums)
    assert CLAIMS[number].finding(BASE).verdict == verdict


def test_a_ratio_that_does_not_rise_need_not_win(monkeypatch):
    monkeypatch.setattr(arithmetic, "ratio", lambda config, n: 1.0)
    assert CLAIMS["38"].finding(BASE).verdict == CONTRADICTED


def test_an_accelerator_that_reads_as_fast_as_it_multiplies_would_collect(monkeypatch):
    even = roofline.Accelerator("even one", 1e12, 1e12, "made up")
    monkeypatch.setattr(roofline, "ACCELERATORS", [even])
    assert CLAIMS["45"].finding(machine(far=100e9)).verdict == HOLDS
    assert CLAIMS["45"].finding(BASE).verdict == CONTRADICTED


# Trials, on a small model with weights of some size


@pytest.fixture(scope="module")
def model():
    made = CharModel(CharConfig(vocab_size=17, context=70, d_model=16, n_blocks=2))
    with torch.no_grad():
        for weight in made.parameters():
            weight.mul_(8 if weight.dim() == 2 else 1)
    return made


@pytest.fixture(scope="module")
def trials(model):
    tokens = np.random.default_rng(1).integers(17, size=80).tolist()
    return derivation_evidence.trials_of(model, tokens, [3, 5])


def test_the_trials_give_what_the_sample_has(trials):
    assert set(trials) == set(sample.TRIALS)
    for name, run in trials.items():
        assert list(run()) == list(sample.TRIALS[name])
        assert run() is run()  # once a process


def test_trials_find_what_the_text_says(trials):
    moved, off = trials["changes"](), trials["steps"]()
    assert max(moved["float32"], 1e9 * moved["float64"]) < 1e-5
    assert min(moved["no mask"], moved["slid"]) > 1e-3
    assert max(off["kept"], off["several"]) < 1e-5
    assert min(off["no keys"], off["no values"], off["several, no mask"]) > 1e-3


def test_a_window_that_slides_compares_the_same_tokens(model):
    """Without positions and with one block, only the lost token moves outputs, not the place."""
    still = copy.deepcopy(model)
    with torch.no_grad():
        still.positions.weight.zero_()
        for block in still.blocks:
            block.o.weight.zero_()
    tokens = np.random.default_rng(1).integers(17, size=80).tolist()
    assert derivation_evidence.changes(still, tokens)["slid"] < 1e-5
    assert derivation_evidence.changes(still, tokens)["no mask"] < 1e-5


def test_a_wrong_cache_shows_in_the_trials(model, monkeypatch):
    monkeypatch.setattr(ConcatCache, "append", lambda self, k, v: (k, v))
    tokens = list(range(17)) * 5
    assert derivation_evidence.steps(model, tokens)["kept"] > 1e-2
    assert not derivation_evidence.compared(model, [3, 5], 40)["same"].all()
    assert derivation_evidence.rounded(model, tokens[:70])["cached_error"].max() > 1e-2


def test_chances_of_two_draws(trials):
    rows = trials["rounded"]()
    assert rows["variation"].between(0, 1e-4).all()
    assert rows["variation"].max() > 0
    assert rows["gap"].between(0, 1).all()
    assert len(rows) == 70


def test_kernels_are_counted_in_a_block(model):
    counts = derivation_evidence.kernels(model)
    assert counts["cached"] == counts["uncached"] + 2  # keys joined, and values
    assert counts["cached, all"] > 2 * counts["cached"]  # more than half of them are views


# The evidence


def test_tables_go_over_the_length_and_the_width():
    assert BASE.over_length().index.tolist() == [64, 128, 256, 512, 1024]
    assert BASE.over_width().index.tolist() == [128, 256, 512, 1024]
    assert BASE.rounds_ns("concat").shape == (sample.ROUNDS, 5)
    row = BASE.rows.query("d_model == 128 and n_tokens == 512 and round == 3 and path == 'concat'")
    assert BASE.rounds_ns("concat").loc[3, 512] == row["total_ns"].item()
    assert BASE.ratios() == derivation_source.ratios()


def test_every_claim_is_checked_on_what_is_recorded():
    rows = ledger.rows("derivation")
    assert list(rows["id"]) == [claim.id for claim in ledger.of_chapter("derivation")]
    counts = ledger.counts().loc["Deriving the cache"]
    assert counts.sum() == len(CLAIMS)
    assert counts["contradicted"] >= 5
