"""The cost study's claims: each verdict follows the figures and the rows it is computed from.

Timings are checked on rows made up after the study's own table, so that another recorded run
changes no test; only the last tests read the run that is recorded.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from doctoring import check_that_it_follows

from labsupport import (
    claims,
    cost_source,
    decoder,
    decomposition_evidence,
    hitrate,
    ledger,
    profile,
)
from labsupport.claims_decomposition import PARTS, multiplications
from labsupport.decoder import Decoder, DecoderConfig, causal_mask
from labsupport.kvcache import PreallocatedCache
from labsupport.profile import SEGMENTS

CLAIMS = {claim.id.removeprefix("decomposition-"): claim for claim in
          ledger.of_chapter("decomposition")}  # fmt: skip
SOURCE = cost_source.medians_us()
HOLDS, IN_SHAPE = claims.HOLDS, claims.IN_SHAPE
CONTRADICTED, CANNOT_TELL = claims.CONTRADICTED, claims.CANNOT_TELL


def rows_like_the_study(noise=0.01):
    """3 seeds, 101 rounds, 3 paths: every part near the median that the study printed."""
    rng, rows = np.random.default_rng(1), []
    parts_us = SOURCE[PARTS].fillna(0.06)  # the cost of a stamp, where nothing is done
    parts_us["residual"] = SOURCE["total"] - parts_us.sum(axis=1)
    for seed in range(3):
        for i in range(101):
            for path in SOURCE.index:
                us = parts_us.loc[path] * (1 + noise * rng.standard_normal(len(SEGMENTS)))
                parts = dict(zip(SEGMENTS, (us * 1000).round().astype(int), strict=True))
                rows.append({"seed": seed, "round": i, "path": path, **parts, "agreed": True})
    return closed(pd.DataFrame(rows))


def closed(rows):
    """The rows with totals that their parts add up to."""
    return rows.assign(total_ns=rows[SEGMENTS].sum(axis=1))


BASE = decomposition_evidence.CostEvidence(
    SOURCE,
    rows_like_the_study(),
    {"width": 16, "layers": 2, "tokens": 12, "prefix": 8, "vocab_size": 64, "tolerance": 1e-12},
    decomposition_evidence.evidence().trials,
    pd.DataFrame(
        [
            (12, 16, 8, "slower"),
            (12, 64, 8, "slower"),
            (12, 128, 8, "cannot tell"),
            (48, 64, 32, "faster"),
        ],
        columns=["tokens", "width", "prefix", "frozen_verdict"],
    ),
)


def cells(*verdicts):
    """The map with other verdicts, of the study's own size and of three larger ones."""
    return replace(BASE, breakeven=BASE.breakeven.assign(frozen_verdict=verdicts))


def source(path, **columns):
    """Evidence in which the study printed other figures for a path."""
    table = SOURCE.copy()
    table.loc[path, list(columns)] = list(columns.values())
    return replace(BASE, source=table)


def totals_are_sums(*paths):
    table = SOURCE.copy()
    table.loc[list(paths), "total"] = table.loc[list(paths), PARTS].sum(axis=1)
    return replace(BASE, source=table)


def residuals(scale):
    """The study printed a residual, `scale` times what its columns leave."""
    left = SOURCE["total"] - SOURCE[PARTS].sum(axis=1)
    return replace(BASE, source=SOURCE.assign(residual=left * scale))


def parts(*paths, **factors):
    """Rows in which parts of these paths (or of all) took `factors` times as long."""
    rows = BASE.rows.copy()
    hit = rows["path"].isin(paths or SOURCE.index)
    for name, factor in factors.items():
        rows.loc[hit, f"{name}_ns"] = (rows.loc[hit, f"{name}_ns"] * factor).astype(int)
    return replace(BASE, rows=closed(rows))


def times(path, factor):
    return parts(path, **{name.removesuffix("_ns"): factor for name in SEGMENTS})


def as_path(path, other, factor=1):
    """Rows in which one path took `factor` times as long as another, part by part."""
    rows = BASE.rows.copy()
    of = {p: (rows["path"] == p).to_numpy() for p in (path, other)}
    rows.loc[of[path], SEGMENTS] = (rows.loc[of[other], SEGMENTS].to_numpy() * factor).astype(int)
    return replace(BASE, rows=closed(rows))


def steady(*paths):
    """Rows in which these paths took their median parts every time."""
    rows = BASE.rows.copy()
    for path in paths:
        hit = rows["path"] == path
        rows.loc[hit, SEGMENTS] = rows.loc[hit, SEGMENTS].median().astype(int).to_numpy()
    return replace(BASE, rows=closed(rows))


def medians_alone():
    """Frozen takes 1 µs more in all rounds but one, and the medians lie 20.9 µs apart."""
    rows = BASE.rows.assign(**dict.fromkeys(SEGMENTS, 0))
    for path, more_ns, n_slow in (("full", 0, 151), ("frozen", 1_000, 152)):  # of 303 rounds
        slow = np.arange(303) < n_slow
        rows.loc[rows["path"] == path, "continuation_ns"] = 250_000 + more_ns + 19_900 * slow
    return replace(BASE, rows=closed(rows))


def cell(column, value):
    rows = BASE.rows.copy()
    rows.loc[100, column] = value
    return replace(BASE, rows=rows)


def config(**changes):
    return replace(BASE, config=BASE.config | changes)


def trial(name, result):
    return replace(BASE, trials=BASE.trials | {name: lambda **_: result})


def changed_weight(**flags):
    return trial("changed_weight", dict.fromkeys(("same_identity", "found", "old_moved"), False)
                 | flags)  # fmt: skip


def reused(bare, copied):
    names = ("kept_tokens", "then_tokens", "right")
    both = {False: dict(zip(names, bare, strict=True)), True: dict(zip(names, copied, strict=True))}
    return replace(BASE, trials=BASE.trials | {"reused": lambda copied: both[copied]})


ONLY_COMPUTED = {"signature": 0, "lookup": 0, "copy": 0, "residual": 0}

# number: (doctored figures of the study or None, doctored evidence or None, the verdict then)
DOCTORED = {
    "01": ({"queries": 910}, None, CONTRADICTED),
    "02": ({"excess_us": 21.9}, None, CONTRADICTED),
    "03": (None, lambda: totals_are_sums("full", "rehash", "frozen"), CONTRADICTED),
    "04": (None, lambda: residuals(1), HOLDS),
    "05": (None, lambda: source("rehash", signature=425.0), HOLDS),
    "06": (None, lambda: source("rehash", signature=405.0), HOLDS),
    "07": (None, lambda: source("rehash", lookup=2.2, copy=9.1, compute=260.0), HOLDS),
    "08": ({"copy_us": 18.1}, None, HOLDS),
    "09": (None, lambda: source("frozen", compute=100.0), CONTRADICTED),
    "10": ({"prefix": 6}, None, CONTRADICTED),
    "11": (None, lambda: config(tokens=1200, prefix=800), CONTRADICTED),
    "12": (None, lambda: config(width=128), HOLDS),
    "13": (None, lambda: cell("agreed", False), CONTRADICTED),
    "14": (None, lambda: cell("copy_ns", BASE.rows.loc[100, "copy_ns"] + 1), CONTRADICTED),
    "15": (None, lambda: steady("full", "rehash", "frozen"), CONTRADICTED),
    "16": (None, lambda: parts(residual=10), CONTRADICTED),
    "17": (None, lambda: times("frozen", 0.9), CONTRADICTED),
    "18": (None, lambda: times("frozen", 0.9), CONTRADICTED),
    "19": (None, lambda: times("rehash", 0.3), CONTRADICTED),
    "20": (None, lambda: as_path("rehash", "frozen"), CONTRADICTED),
    "21": (None, lambda: as_path("rehash", "frozen"), HOLDS),
    "22": (None, lambda: parts("frozen", continuation=0.4), CONTRADICTED),
    "23": (None, lambda: parts("frozen", copy=10), CONTRADICTED),
    "24": (None, lambda: parts("frozen", signature=100), CONTRADICTED),
    "25": (None, lambda: parts("frozen", copy=0), CANNOT_TELL),
    "26": (None, lambda: parts(**ONLY_COMPUTED), CONTRADICTED),
    "27": (None, lambda: trial("writes_refused", (37, 38)), CONTRADICTED),
    "28": (None, lambda: changed_weight(same_identity=True), CONTRADICTED),
    "29": (None, lambda: trial("forced_write", (False, 1.0)), CONTRADICTED),
    "30": (None, lambda: reused((8, 8, 20), (8, 8, 20)), CONTRADICTED),
    "31": (None, lambda: trial("other_keys", {"scope": False, "identity": True}), CONTRADICTED),
    "32": (
        None,
        lambda: replace(BASE, rows=as_path("frozen", "full").rows.assign(lookup_ns=0, copy_ns=0)),
        CONTRADICTED,
    ),
    "33": (None, lambda: cells("slower", "faster", "faster", "faster"), CONTRADICTED),
}

# The same claims, a little less or a little more.
EDGES = {
    "a row too few": ("01", lambda: replace(BASE, rows=BASE.rows[1:]), CONTRADICTED),
    "one path adds up": ("03", lambda: totals_are_sums("full"), IN_SHAPE),
    "residuals of another size": ("04", lambda: residuals(0.5), CONTRADICTED),
    "a small signature": ("05", lambda: source("rehash", signature=300.0), CONTRADICTED),
    "a signature past the excess": ("05", lambda: source("rehash", signature=600.0), CONTRADICTED),
    "a small saving": ("06", lambda: source("rehash", signature=300.0), CONTRADICTED),
    "one part differs": ("07", lambda: source("rehash", lookup=2.2, copy=9.0), CONTRADICTED),
    "four rows somewhat cheaper": ("09", lambda: source("frozen", compute=200.0), IN_SHAPE),
    "rows that were not saved": (
        "10",
        lambda: trial("projected_rows", {"full": 12, "frozen": 12}),
        CONTRADICTED,
    ),
    "a width that hides the scores": ("11", lambda: config(width=4096), HOLDS),
    "a looser comparison": ("13", lambda: config(tolerance=1e-9), CONTRADICTED),
    "one path in steady time": ("15", lambda: steady("full"), IN_SHAPE),
    "a residual of a thousandth": ("16", lambda: parts(residual=0.1), HOLDS),
    "just as fast": ("17", lambda: as_path("frozen", "full"), CANNOT_TELL),
    "slower within the margin": ("17", lambda: as_path("frozen", "full", 1.001), CANNOT_TELL),
    "twice as slow": ("17", lambda: times("frozen", 2), HOLDS),
    "another excess": ("18", lambda: times("frozen", 2), IN_SHAPE),
    "twice the re-hashing": ("19", lambda: times("rehash", 2), IN_SHAPE),
    "little to remove": ("20", lambda: as_path("rehash", "frozen", 1.05), IN_SHAPE),
    "cheaper after hashing": ("21", lambda: parts("rehash", continuation=0.5), CONTRADICTED),
    "fewer rows, less time": ("22", lambda: parts("frozen", continuation=0.8), IN_SHAPE),
    "twice the copy": ("23", lambda: parts("frozen", copy=2), IN_SHAPE),
    "another clock": ("24", lambda: parts("frozen", signature=0.2), IN_SHAPE),
    "an old prefix found": ("28", lambda: changed_weight(found=True), CONTRADICTED),
    "an old model moved": ("28", lambda: changed_weight(old_moved=True), CONTRADICTED),
    "a write without effect": ("29", lambda: trial("forced_write", (True, 0.0)), CONTRADICTED),
    "wrong, though not longer": ("30", lambda: reused((8, 8, 19), (8, 8, 20)), HOLDS),
    "workloads within the margin": ("32", lambda: as_path("frozen", "full"), CONTRADICTED),
    "no larger input wins": (
        "33",
        lambda: cells("faster", "slower", "cannot tell", "slower"),
        CONTRADICTED,
    ),
    "nothing can be told": (
        "33",
        lambda: cells("slower", "cannot tell", "cannot tell", "cannot tell"),
        CANNOT_TELL,
    ),
    "a map of small cells": (
        "12",
        lambda: replace(BASE, breakeven=BASE.breakeven.head(1)),
        CONTRADICTED,
    ),
    "slower only where less is reused": (
        "33",
        lambda: replace(
            BASE,
            breakeven=BASE.breakeven.assign(
                prefix=[8, 4, 8, 32], frozen_verdict=["slower", "slower", "faster", "faster"]
            ),
        ),
        IN_SHAPE,
    ),
    "an excess of medians alone": ("18", medians_alone, IN_SHAPE),
    "a copy that does not help": ("30", lambda: reused((8, 12, 1), (8, 12, 1)), CONTRADICTED),
}


def test_every_claim_is_doctored_once():
    assert set(DOCTORED) == set(CLAIMS)
    assert len(CLAIMS) >= 22


@pytest.mark.parametrize("number", sorted(DOCTORED))
def test_a_doctored_figure_changes_the_verdict(number):
    check_that_it_follows(CLAIMS[number], BASE, *DOCTORED[number])


@pytest.mark.parametrize("case", EDGES)
def test_a_verdict_has_an_edge(case):
    number, evidence, verdict = EDGES[case]
    found = CLAIMS[number].finding(evidence())
    assert found.verdict == verdict, found.found


@pytest.mark.parametrize(
    ("number", "figures", "verdict"),
    [
        ("08", {"copy_us": 15.0}, IN_SHAPE),
        ("13", {"tolerance": 1e-13}, CONTRADICTED),
        ("18", {"excess_us": 2.0}, IN_SHAPE),
        ("19", {"times": 2.2}, IN_SHAPE),
        ("24", {"signature_us": 6.0}, IN_SHAPE),
    ],
)
def test_a_figure_has_an_edge(number, figures, verdict):
    claim = CLAIMS[number]
    assert replace(claim, figures=claim.figures | figures).finding(BASE).verdict == verdict


def test_figures_are_those_that_the_study_printed():
    stated = cost_source.stated()
    figures = {number: claim.figures for number, claim in CLAIMS.items()}
    assert figures["01"] == {name: stated[name] for name in ("seeds", "rounds", "queries")}
    assert figures["02"]["excess_us"] == figures["18"]["excess_us"] == stated["excess"]
    assert figures["10"] == {name: stated[name] for name in ("prefix", "tokens")}
    assert figures["09"] == {"rest": stated["outputs"], "tokens": stated["tokens"]}
    assert figures["09"] == figures["22"]
    assert figures["13"]["tolerance"] == stated["tolerance"] == profile.TOLERANCE
    assert figures["32"]["requests"] == f"{stated['earlier_requests']:,.0f}"
    frozen = SOURCE.loc["frozen"]
    for number in ("08", "23", "24"):
        for name, value in figures[number].items():
            assert value == frozen[name.removesuffix("_us")]
    ratio = SOURCE.loc["rehash", "total"] / SOURCE.loc["full", "total"]
    assert figures["19"]["times"] == round(ratio, 1)


def test_the_protocol_that_the_study_stated_is_the_one_measured_here():
    stated, case = cost_source.stated(), profile.Case()
    for name in ("width", "layers", "tokens", "prefix", "seeds", "rounds"):
        assert getattr(case, name) == stated[name]
    assert profile.WARMUPS == stated["warmups"]
    assert case.tokens - case.prefix == stated["outputs"]


def test_findings_state_what_can_be_added_up_by_hand():
    assert "20.9 µs, 8.3%" in CLAIMS["02"].finding(BASE).found
    assert "full 1.8, rehash 12.3, frozen 4.7" in CLAIMS["03"].finding(BASE).found
    assert "365.2 of 430.0 µs, 85%" in CLAIMS["05"].finding(BASE).found
    assert "364.6 of 409.1 µs, 89%" in CLAIMS["06"].finding(BASE).found
    assert (
        "compute 33.3, copy 3.0, lookup 0.6, in no column 7.6" in CLAIMS["06"].finding(BASE).found
    )
    assert "lookup +27%, copy +33%, compute +13%" in CLAIMS["07"].finding(BASE).found
    assert "11.8 of 20.9 µs, 56%" in CLAIMS["08"].finding(BASE).found


@pytest.mark.parametrize(("width", "layers", "tokens", "prefix"), [(16, 2, 12, 8), (8, 1, 5, 2)])
def test_multiplications_are_those_the_decoder_makes(monkeypatch, width, layers, tokens, prefix):
    model = Decoder(DecoderConfig(64, tokens, width, layers, 2, dtype=np.float64), 0)
    made, linear, attention = [], Decoder._linear, decoder.attention

    def counted_linear(self, x, name):
        made.append(x.size * self.weights[f"{name}.w"].shape[1])
        return linear(self, x, name)

    def counted_attention(q, k, v):
        made.append(q.size * k.shape[1] + q.size * v.shape[1])
        return attention(q, k, v)

    monkeypatch.setattr(Decoder, "_linear", counted_linear)
    monkeypatch.setattr(decoder, "attention", counted_attention)
    sizes = {"width": width, "layers": layers, "vocab_size": 64}
    caches = model.new_caches(PreallocatedCache, capacity=tokens)
    for n_new, n_tokens in ((prefix, prefix), (tokens - prefix, tokens)):
        made.clear()
        model.forward(list(range(n_new)), caches)
        counted = multiplications(sizes, n_new, n_tokens)
        assert sum(made) == counted["written"]
        masked = n_new * n_tokens - causal_mask(n_new, n_tokens).sum()
        assert counted["written"] - counted["needed"] == masked * 2 * layers * width


# The evidence


def test_every_claim_is_checked_on_the_recorded_run():
    rows = ledger.rows("decomposition")
    assert list(rows["id"]) == [f"decomposition-{i:02d}" for i in range(1, len(CLAIMS) + 1)]
    assert set(rows["verdict"]) <= set(claims.VERDICTS)
    counts = ledger.counts().loc["Where the time goes"]
    assert counts.sum() == len(CLAIMS)
    assert counts["contradicted"] >= 3


def test_rounds_are_paired():
    pairs = BASE.paired("total_ns")
    assert pairs.shape == (303, 3)
    row = BASE.rows.query("seed == 1 and round == 7").set_index("path")["total_ns"]
    assert pairs.loc[(1, 7)].to_dict() == row.to_dict()


def test_expected_costs_follow_the_rows():
    means = BASE.rows.groupby("path")[["total_ns", "lookup_ns", "copy_ns"]].mean()
    fresh, frozen = means.loc["full", "total_ns"], means.loc["frozen"]
    miss = fresh + frozen["lookup_ns"] + frozen["copy_ns"]
    half = hitrate.expected(0.5, frozen["total_ns"], miss) / fresh
    assert f"{half:.3f}" in CLAIMS["32"].finding(BASE).found


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("medians", "frozen,", "thawed,"),
        ("medians", "lookup", "look-up"),
        ("medians", "290.4", "29O.4"),
        ("stated", "value", "values"),
        ("stated", "20.9", "about 20"),
    ],
)
def test_a_damaged_table_is_refused_with_the_way_to_find_out(tmp_path, name, old, new):
    directory = decomposition_evidence.recorded.directory("cost-source")
    text = (directory / f"{name}.csv").read_text(encoding="utf-8")
    damaged = tmp_path / f"{name}.csv"
    damaged.write_text(text.replace(old, new), encoding="utf-8")
    read = {"medians": cost_source.medians_us, "stated": cost_source.stated}[name]
    with pytest.raises(ValueError, match=rf"{name}\.csv does not hold .* labsupport audit "):
        read(tmp_path)
