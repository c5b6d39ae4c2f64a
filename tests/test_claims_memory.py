"""The claims of the memory price: each verdict follows what it is computed from.

The evidence is the repository's: sizes are exact, and the trials that weigh caches take no time.
What a check reads is doctored, one thing at a time.
"""

from dataclasses import replace

import pandas as pd
import pytest
from doctoring import check_that_it_follows, doctored

from labsupport import (
    arithmetic,
    charweights,
    claims,
    evidence,
    ledger,
    memory,
    memory_evidence,
    memory_source,
    quantize,
)
from labsupport.charcache import ConcatCache
from labsupport.charmodel import CharConfig, CharModel
from labsupport.claims_memory import in_units, outgrown
from labsupport.claims_scale import some

CLAIMS = {c.id.removeprefix("memory-"): c for c in ledger.of_chapter("memory")}
HOLDS, IN_SHAPE = claims.HOLDS, claims.IN_SHAPE
CONTRADICTED, CANNOT_TELL = claims.CONTRADICTED, claims.CANNOT_TELL
BASE = memory_evidence.evidence()


def trial(name, **changes):
    """A trial gives other values under some of its names."""
    changed = BASE.trials[name]() | changes
    return replace(BASE, trials=BASE.trials | {name: lambda: changed})


def stored(**columns):
    """The caches' storage after each length is another."""
    changed = BASE.trials["stored"]().assign(**columns)
    return replace(BASE, trials=BASE.trials | {"stored": lambda: changed})


def sharing(one=None, two=None):
    """Trials in which heads on one K and V (or on two) hold or read other bytes."""
    found = {n: dict(sizes) for n, sizes in BASE.trials["sharing"]().items()}
    found[1] |= one or {}
    found[2] |= two or {}
    return replace(BASE, trials=BASE.trials | {"sharing": lambda: found})


def cards(*names, **changes):
    """Only these real models, or all, with other sizes."""
    chosen = {name: BASE.cards[name] for name in names or BASE.cards}
    return replace(BASE, cards={name: replace(card, **changes) for name, card in chosen.items()})


def without(*names):
    return cards(*(name for name in BASE.cards if name not in names))


def stated(**figures):
    return replace(BASE, stated=BASE.stated | figures)


LATENT = ("DeepSeek-V2", "DeepSeek-V3")
WINDOWED = ("Mistral 7B v0.1", "Gemma 2 9B", "Phi-3-mini 4k")
OWN_HEADS = ("GPT-2", "GPT-2 XL", "Llama 2 7B", "MPT 7B")  # and as wide together as the model
WHOLE = BASE.trials["sharing"]()[4]["held"]  # bytes, of heads that share nothing
SPLIT = {1: 100, 2: 200, 4: 300, 8: 400}

# number: (doctored figures of the source or None, doctored evidence or None, the verdict then)
DOCTORED = {
    "01": ({"factor": 1}, None, CONTRADICTED),
    "02": ({"sizes": "0.39, 1.57, 3.15"}, None, HOLDS),
    "03": (None, lambda: stored(concat=[1, 4, 4096, 16129, 16384]), CONTRADICTED),
    "04": ({"megabytes": "2.55"}, None, HOLDS),
    "05": (None, lambda: trial("peak", concat=393216), HOLDS),
    "06": ({"ratio": 1.24}, None, IN_SHAPE),
    "07": ({"ratio": 1.05}, None, HOLDS),
    "08": (None, lambda: trial("full", cache=2_548_625), HOLDS),
    "09": (None, lambda: replace(BASE, trials={"splitting": lambda: SPLIT}), HOLDS),
    "10": (None, lambda: trial("int8", **{"cache, int8": 3_145_728 // 4}), HOLDS),
    "11": ({"gigabytes": "4.3"}, None, HOLDS),
    "12": (None, lambda: cards(n_kv_heads=32, window=None), HOLDS),
    "13": ({"n": 4 * 8192}, None, HOLDS),
    "14": (None, lambda: cards(*OWN_HEADS), HOLDS),
    "15": (None, lambda: without(*WINDOWED, *LATENT), HOLDS),
    "16": (None, lambda: sharing(one={"held": WHOLE}), CONTRADICTED),
    "17": (None, lambda: without("Phi-3-mini 4k", *LATENT), HOLDS),
    "18": (None, lambda: sharing(one={"read": WHOLE}), HOLDS),
}

# The same claims, a little less or a little more: (number, figures or None, evidence, verdict)
EDGES = {
    "one kind of cache takes more": (
        "01",
        None,
        lambda: stored(concat=[1, 4, 4096, 16129, 16384]),
        IN_SHAPE,
    ),
    "one size in neither unit": ("02", {"sizes": "0.38, 1.50, 3.01"}, lambda: BASE, CONTRADICTED),
    "other lengths": ("02", {"lengths": "128, 512, 1000"}, lambda: BASE, CONTRADICTED),
    "a little more a token at length": (
        "03",
        None,
        lambda: stored(concat=[3072, 6144, 196608, 390144, 395000]),
        IN_SHAPE,
    ),
    "weights of another size": ("04", {"megabytes": "2.44"}, lambda: BASE, CONTRADICTED),
    "as many megabytes, of other numbers": ("04", {"each": 2}, lambda: BASE, CONTRADICTED),
    "other parameters": (
        "04",
        {"megabytes": "2.55", "parameters": "637,157"},
        lambda: BASE,
        CONTRADICTED,
    ),
    "three copies at once": ("05", None, lambda: trial("peak", concat=3 * 393216), CONTRADICTED),
    "far from the ratio": ("06", {"ratio": 1.5}, lambda: BASE, CONTRADICTED),
    "a row that disagrees": (
        "06",
        None,
        lambda: replace(BASE, sizes=BASE.sizes + 0.1),
        IN_SHAPE,
    ),
    "more parameters": ("06", None, lambda: stated(parameters=700_000), CONTRADICTED),
    "smaller than the model": ("07", None, lambda: trial("longer", cache=3_000_000), CONTRADICTED),
    "room for more, still smaller": (
        "08",
        None,
        lambda: trial("full", n_tokens=970),
        IN_SHAPE,
    ),
    "a model of other parameters": (
        "08",
        {"parameters": "638k"},
        lambda: trial("full", cache=2_548_625),
        CONTRADICTED,
    ),
    "some splits cost": (
        "09",
        None,
        lambda: replace(BASE, trials={"splitting": lambda: {1: 100, 2: 100, 4: 150}}),
        IN_SHAPE,
    ),
    "splits save": (
        "09",
        None,
        lambda: replace(BASE, trials={"splitting": lambda: {1: 100, 2: 90}}),
        CONTRADICTED,
    ),
    "a cache of half the size": (
        "10",
        None,
        lambda: trial("int8", **{"cache, int8": 3_145_728 // 2}),
        IN_SHAPE,
    ),
    "a cache of the same size": ("10", None, lambda: trial("int8"), CONTRADICTED),
    "gigabytes of neither kind": ("11", {"gigabytes": "4.1"}, lambda: BASE, CONTRADICTED),
    "one real model of two": (
        "12",
        None,
        lambda: replace(
            BASE,
            cards=BASE.cards | {"Llama 3 8B": replace(BASE.cards["Llama 3 8B"], n_kv_heads=32)},
        ),
        IN_SHAPE,
    ),
    "none of two": ("12", None, lambda: cards(n_kv_heads=16, window=None), CONTRADICTED),
    "texts that more of them read": ("12", {"n": 4096}, lambda: BASE, IN_SHAPE),
    "texts that none reads": ("12", {"n": 10**6}, lambda: BASE, CANNOT_TELL),
    "models of a size without weights": ("13", {"d": 4097}, lambda: BASE, CANNOT_TELL),
    "just more than the weights": ("13", {"n": 25_366}, lambda: BASE, IN_SHAPE),
    "just less than the weights": ("13", {"n": 25_364}, lambda: BASE, CONTRADICTED),
    "a formula far too large for some": (
        "14",
        None,
        lambda: cards(*OWN_HEADS, "Gemma 2 9B", n_kv_heads=16, n_heads=16, head_dim=48),
        CONTRADICTED,
    ),
    "a formula less than twice off": (
        "14",
        None,
        lambda: cards("GPT-2", n_heads=10, n_kv_heads=10),
        IN_SHAPE,
    ),
    "windows alone": ("15", None, lambda: without(*LATENT), CONTRADICTED),
    "latents alone": ("15", None, lambda: without(*WINDOWED), CONTRADICTED),
    "windows longer than any text": ("15", None, lambda: cards("Gemma 2 9B", window=9000), HOLDS),
    "sharing that saves a little": (
        "16",
        None,
        lambda: sharing(two={"held": WHOLE * 2 // 3}),
        IN_SHAPE,
    ),
    "half of them share": (
        "17",
        None,
        lambda: without("Llama 3 70B"),
        CONTRADICTED,
    ),
    "latents are not shared": ("17", None, lambda: cards(*LATENT, n_kv_heads=1), CONTRADICTED),
    "no recent models": ("17", None, lambda: cards("GPT-2", "Llama 2 7B"), CONTRADICTED),
    "reading alone": ("18", None, lambda: sharing(one={"held": WHOLE}), CONTRADICTED),
}


def test_every_claim_is_doctored_once():
    assert set(DOCTORED) == set(CLAIMS)
    assert list(CLAIMS) == [f"{i:02d}" for i in range(1, len(CLAIMS) + 1)]
    assert len(CLAIMS) >= 14


@pytest.mark.parametrize("number", sorted(DOCTORED))
def test_a_doctored_figure_changes_the_verdict(number):
    check_that_it_follows(CLAIMS[number], BASE, *DOCTORED[number])


@pytest.mark.parametrize("case", EDGES)
def test_a_verdict_has_an_edge(case):
    number, figures, doctored_evidence, verdict = EDGES[case]
    found = doctored(CLAIMS[number], figures, doctored_evidence())
    assert found.verdict == verdict, found.found


def test_the_ledger_holds_several_of_each_kind():
    counts = ledger.rows("memory")["verdict"].value_counts()
    assert counts.sum() == len(CLAIMS)
    assert counts[CONTRADICTED] >= 5
    assert set(counts.index) == set(claims.VERDICTS)


# The figures


def test_figures_are_those_that_the_source_printed():
    said, sizes = memory_source.stated(), memory_source.sizes()
    figures = {number: claim.figures for number, claim in CLAIMS.items()}
    assert figures["01"] == figures["14"] == {"factor": said["cache_factor"]}
    assert figures["02"] == {
        "sizes": ", ".join(f"{size:.2f}" for size in sizes),
        "lengths": ", ".join(map(str, sizes.index)),
    }
    assert figures["04"] == {
        "megabytes": f"{said['weights']:.2f}",
        "parameters": f"{said['parameters']:,.0f}",
        "each": said["parameter_bytes"],
    }
    ratio = {"n": sizes.index[-1], "ratio": said["cache_over_weights"]}
    assert figures["06"] == figures["07"] == ratio
    assert figures["08"] == {"parameters": f"{said['parameters'] // 1000:.0f}k"}
    real = {"d": said["real_width"], "blocks": said["real_blocks"], "n": said["real_tokens"]}
    assert figures["11"] == real | {"gigabytes": str(said["real_cache"])}
    assert figures["12"] == real
    assert figures["13"] == real | {"ratio": said["cache_over_weights"]}
    assert said["real_bytes"] == memory.BYTES["float16"]


def test_the_model_is_the_one_that_the_source_described():
    said, config = memory_source.stated(), memory_evidence.evidence().config
    assert arithmetic.n_parameters(config) == said["parameters"]
    sizes = (config.d_model, config.n_blocks, config.context)
    assert sizes == tuple(said[name] for name in ("width", "blocks", "context"))


@pytest.mark.parametrize(
    ("old", "new"),
    [("n,", "d,"), ("megabytes", "mb"), ("1.50", "1.5O"), ("0.38", "-0.38"), ("512", "half")],
)
def test_a_damaged_table_is_refused_with_the_way_to_find_out(tmp_path, old, new):
    file = evidence.directory("generation-source") / "memory.csv"
    text = file.read_text(encoding="utf-8").replace(old, new, 1)
    (tmp_path / "memory.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"memory\.csv does not hold .* labsupport audit "):
        memory_source.sizes(tmp_path)


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"memory\.csv"):
        memory_source.sizes(tmp_path)


# What the sentences say


def test_units():
    assert in_units(2**20, "MiB") == in_units(10**6, "MB") == "1.00"
    assert in_units(3 * 2**29, "GiB", digits=1) == in_units(1_500_000_000, "GB", digits=1) == "1.5"


def test_some_names_stand_for_all():
    assert some([]) == "none"
    assert some("abcd") == "a, b, c, d"
    assert some("abcdef", most=2) == "a, b and 4 more"


@pytest.mark.parametrize("sizes", [{}, {"n_kv_heads": 2}, {"vocab_size": 5, "d_model": 64}])
@pytest.mark.parametrize("share", [1.0, 0.25])
def test_where_a_cache_outgrows_lighter_weights(sizes, share):
    """By trying: at that length the cache is larger, one token sooner it is not."""
    config = CharConfig(**sizes)
    n = outgrown(config, share)
    if share == 1:
        assert n == memory.own_break_even(config)

    def larger(n):
        weights = share * 4 * arithmetic.n_parameters(replace(config, context=n))
        return memory.shape_of(config).bytes_at(n) > weights

    assert larger(n)
    assert not larger(n - 1)


def test_sentences_follow_their_numbers():
    def found(number, changed):
        return CLAIMS[number].finding(changed).found

    assert "4 such texts" in found("13", BASE)
    assert "25,366 tokens" in found("13", BASE)
    assert "in 0; the most" in found("13", BASE)
    assert "in 14; the most" in found("13", cards(context=10**8, window=None))
    assert "Falcon 7B it gives 71 times" in found("14", BASE)
    assert "shared heads (7)" in found("14", BASE)
    assert "shared heads" not in found("14", cards(*OWN_HEADS))
    assert "970 tokens" in found("08", BASE)
    assert "Llama 3 8B (1.00 GiB), Mistral 7B v0.1 (0.50 GiB)" in found("12", BASE)
    assert "1.33 times" in found("05", BASE)


# Trials, on a small model


@pytest.fixture(scope="module")
def config():
    return CharConfig(vocab_size=11, context=10, d_model=24, n_blocks=2, n_heads=6)


@pytest.fixture(scope="module")
def trials(config):
    return memory_evidence.trials_of(config, 15)


A_TOKEN = 2 * 2 * 24 * 4  # bytes


def test_trials_run_once(trials):
    assert set(trials) == set(BASE.trials)
    assert all(run() is run() for run in trials.values())


def test_caches_are_weighed(trials, config):
    table = trials["stored"]()
    assert list(table.index) == [1, 2, 5, 9, 10]
    expected = pd.Series(table.index * A_TOKEN, index=table.index)
    assert table["concat"].equals(expected)
    assert table["preallocated"].equals(expected)
    weights = 4 * arithmetic.n_parameters(config)
    assert trials["full"]() == {"n_tokens": 10, "cache": 10 * A_TOKEN, "weights": weights}
    assert trials["longer"]() == {"cache": 15 * A_TOKEN, "weights": weights + 5 * 24 * 4}


def test_the_peak_is_one_block_more(trials):
    assert trials["peak"]() == {
        "concat": 10 * A_TOKEN + 9 * A_TOKEN // 2,
        "preallocated": 10 * A_TOKEN,
        "stored": 10 * A_TOKEN,
    }


def test_splitting_and_sharing(trials, config):
    assert trials["sharing"]() == {
        n: {"held": 10 * A_TOKEN * n // 6, "read": 10 * A_TOKEN * n // 6} for n in (6, 3, 2, 1)
    }
    whole = {1: 10 * A_TOKEN, 2: 10 * A_TOKEN, 4: 10 * A_TOKEN, 8: 10 * A_TOKEN}
    assert trials["splitting"]() == whole


def test_weights_in_int8_are_smaller(trials):
    found = trials["int8"]()
    assert found["cache"] == found["cache, int8"] == 15 * A_TOKEN
    assert 2 < found["weights"] / found["weights, int8"] < 4
    assert found["weights"] == trials["longer"]()["weights"]


def test_the_model_with_int8_weights_is_the_one_weighed(config, monkeypatch):
    as_doubles = {name: w.astype(float) for name, w in charweights.flat(CharModel(config)).items()}
    monkeypatch.setattr(quantize, "restored", lambda coded: as_doubles)
    found = memory_evidence.int8(CharModel(config), 4)
    assert (found["cache"], found["cache, int8"]) == (4 * A_TOKEN, 8 * A_TOKEN)


def test_a_cache_that_keeps_what_it_was_given_keeps_the_queries_too(config, monkeypatch):
    """Keys and values are views of one product, which holds the queries as well."""

    def append(self, k, v):
        self.k, self.v = k, v
        return k, v

    monkeypatch.setattr(ConcatCache, "append", append)
    assert memory_evidence.held(CharModel(config), 4, ConcatCache) == 4 * A_TOKEN * 3 // 2
