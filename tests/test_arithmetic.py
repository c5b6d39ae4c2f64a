"""Multiplications in closed form, beside the sums they stand for and what torch counts."""

import contextlib
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from labsupport import arithmetic, derivation_source
from labsupport.charcache import ConcatCache, PreallocatedCache, new_caches
from labsupport.charmodel import CharConfig, CharModel

SMALL = CharConfig(vocab_size=11, context=24, d_model=24, n_blocks=2, n_heads=4, n_kv_heads=2)
TABLE = derivation_source.ratios()
sizes = st.builds(
    lambda heads, groups, head_dim, blocks, vocab: CharConfig(
        vocab_size=vocab,
        d_model=heads * groups * head_dim,
        n_blocks=blocks,
        n_heads=heads * groups,
        n_kv_heads=heads,
    ),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 32),
    st.integers(1, 4),
    st.integers(1, 200),
)


# Closed forms


@given(sizes, st.integers(1, 60), st.booleans(), st.sampled_from(arithmetic.HEADS))
def test_a_loop_is_the_sum_of_its_steps(config, n, cached, head):
    steps = 0
    for t in range(1, n + 1):
        n_new = 1 if cached else t
        rows = {"every": None, "last": 1, "none": 0}[head]
        steps += sum(arithmetic.multiplications(config, n_new, t, rows).values())
    assert arithmetic.loop(config, n, cached, head) == steps


@given(
    st.integers(1, 64), st.integers(1, 300), st.integers(0, 300), st.sampled_from(["every", "last"])
)
def test_both_ways_to_the_ratio_agree_to_the_last_bit(d, n, vocab_size, head):
    counted = arithmetic.with_head(d, n, vocab_size, 3, head)
    assert arithmetic.summed(d, n, vocab_size, 3, head if vocab_size else "none") == counted


def test_by_hand():
    """Two tokens, d = 2, one block, no head: 12·d² = 48 a token, 2·d = 4 a pair."""
    config = CharConfig(vocab_size=3, d_model=2, n_blocks=1, n_heads=1)
    assert arithmetic.loop(config, 2, False, "none") == 3 * 48 + (1 + 4) * 4
    assert arithmetic.loop(config, 2, True, "none") == 2 * 48 + (1 + 2) * 4
    assert arithmetic.loop(config, 2, False) - arithmetic.loop(config, 2, False, "none") == 3 * 6
    assert arithmetic.printed(2, 2) == 164 / 108
    assert arithmetic.ratio(config, 1) == 1


@pytest.mark.parametrize(
    ("sizes", "message"),
    [((0, 1), "n_new"), ((2, 1), "n_tokens"), ((1, 1, 2), "head_rows"), ((1, 1, -1), "head_rows")],
)
def test_passes_that_cannot_be_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        arithmetic.multiplications(SMALL, *sizes)


def test_loops_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        arithmetic.loop(SMALL, 0, True)
    with pytest.raises(ValueError, match="every, last, none"):
        arithmetic.loop(SMALL, 1, True, "first")


# What torch counts


def counted(function, written=True):
    """Multiplications that torch's counter reports, which counts two operations for each.

    It knows no attention kernel of the CPU, so it counts none of what is inside; written out as
    products of matrices (`SDPBackend.MATH`) all of it, masked scores too.
    """
    kernel = sdpa_kernel(SDPBackend.MATH) if written else contextlib.nullcontext()
    with torch.no_grad(), kernel, FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops() / 2


@pytest.mark.parametrize("config", [SMALL, CharConfig()], ids=["grouped heads", "the source's"])
@pytest.mark.parametrize("t", [1, 2, 17])
def test_torch_counts_the_same(config, t):
    model, tokens = CharModel(config), torch.arange(24)[None] % config.vocab_size
    uncached = counted(lambda: model(tokens[:, :t]))
    assert uncached == sum(arithmetic.multiplications(config, t, t).values())
    for kind, options in ((ConcatCache, {}), (PreallocatedCache, {"capacity": 24})):
        caches = new_caches(model, kind, **options)
        if t > 1:
            model(tokens[:, : t - 1], caches)
        cached = counted(partial(model, tokens[:, t - 1 : t], caches))
        assert cached == sum(arithmetic.multiplications(config, 1, t).values())


def test_torch_counts_a_whole_loop():
    model, n = CharModel(SMALL), 9
    assert counted(lambda: model.generate([1], n)) == arithmetic.loop(SMALL, n, cached=False)
    caches = new_caches(model)
    assert counted(lambda: model.generate([1], n, caches)) == arithmetic.loop(SMALL, n, cached=True)


def test_torch_does_not_count_its_attention_kernel_on_the_cpu():
    model, tokens = CharModel(SMALL), torch.arange(9)[None]
    by_kind = arithmetic.multiplications(SMALL, 9, 9)
    inside = by_kind["scores"] + by_kind["values"]
    assert counted(lambda: model(tokens), written=False) == sum(by_kind.values()) - inside


# Parameters


@given(sizes)
def test_parameters_are_those_of_the_model(config):
    assert arithmetic.n_parameters(config) == CharModel(config).n_parameters()
    assert arithmetic.vocabulary_of(arithmetic.n_parameters(config), config) == config.vocab_size


def test_the_count_of_parameters_settles_the_vocabulary():
    n_numbers = int(derivation_source.stated()["parameters"])
    assert arithmetic.vocabulary_of(n_numbers, CharConfig(vocab_size=1)) == 100
    for more in (1, -1, 256, -100 * 257, -n_numbers):  # 257 numbers a symbol
        with pytest.raises(ValueError, match="no vocabulary"):
            arithmetic.vocabulary_of(n_numbers + more, CharConfig())
    longer = CharConfig(context=1024)
    assert arithmetic.n_parameters(longer) == n_numbers + (1024 - 128) * 128


# The puzzle of the printed ratios


def test_the_printed_formula_misses_four_of_the_printed_ratios():
    ours = [round(arithmetic.printed(d, n), 1) for d, n, _ in TABLE]
    assert ours == [32.9, 66.1, 134.6, 277.8, 580.7, 131.8, 130.2, 129.4]
    assert sum(a != printed for a, (_, _, printed) in zip(ours, TABLE, strict=True)) == 4


def test_the_head_at_every_position_gives_all_of_them():
    for d, n, printed in TABLE:
        assert round(arithmetic.with_head(d, n, 100), 1) == printed
    assert arithmetic.vocabularies_that_fit(TABLE) == [96, 97, 98, 99, 100, 101]


@pytest.mark.parametrize(
    "counting",
    [
        {"head": "last"},
        {"head": "none"},
        {"first": 0},
        {"first": 2},
        {"triangle": True},
        {"triangle": True, "head": "last"},
        {"context": 128},
    ],
    ids=str,
)
def test_no_other_count_does(counting):
    assert arithmetic.vocabularies_that_fit(TABLE, **counting) == []
