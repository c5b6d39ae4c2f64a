"""A cache's size in closed form, beside loops over tokens; and real models' figures, added up."""

from collections import deque
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from math import prod

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labsupport import arithmetic, charcache, kvcache, memory, modelcards
from labsupport.charmodel import CharConfig, CharModel
from labsupport.memory import BYTES, CacheShape
from labsupport.modelcards import CARDS

KIB, MIB = 2**10, 2**20


@st.composite
def shapes(draw):
    n_layers = draw(st.integers(1, 4))
    window = st.none() | st.integers(1, 12)
    layers = st.lists(window, min_size=n_layers, max_size=n_layers)
    return CacheShape(
        n_layers,
        draw(st.integers(1, 3)),
        draw(st.integers(1, 5)),
        draw(st.sampled_from(list(BYTES))),
        draw(st.none() | layers),
        draw(st.none() | st.integers(1, 7)),
    )


def growing(shape):
    """The bytes held after 0, 1, 2, ... tokens, kept one by one, as Fractions; it never ends."""
    a_layer = 2 * shape.n_kv_heads * shape.head_dim
    if shape.latent_dim is not None:
        a_layer = shape.latent_dim
    layers = [deque(maxlen=window) for window in shape.windows or [None] * shape.n_layers]
    while True:
        yield sum(len(layer) for layer in layers) * a_layer * Fraction(BYTES[shape.dtype])
        for layer in layers:
            layer.append("a token")


def first_above(shape, n_bytes, n_tokens=2000):
    """The first length with more bytes than that, or None if `n_tokens` pass without."""
    lengths = enumerate(islice(growing(shape), n_tokens))
    return next((n for n, held in lengths if held > n_bytes), None)


# Closed forms beside loops


@given(shapes(), st.integers(0, 30), st.integers(0, 5))
def test_a_size_is_the_sum_of_what_its_tokens_add(shape, n_tokens, n_sequences):
    slow = islice(growing(shape), n_tokens + 1)
    assert [shape.bytes_at(n) for n in range(n_tokens + 1)] == list(slow)
    steps = [shape.bytes_per_token_at(n) for n in range(n_tokens)]
    assert sum(steps) == shape.bytes_at(n_tokens)
    assert shape.bytes_at(n_tokens, n_sequences) == n_sequences * shape.bytes_at(n_tokens)
    assert shape.bytes_per_token == next(iter(steps), shape.bytes_at(1))


@given(shapes(), st.integers(0, 300) | st.integers(0, 600).map(lambda halves: halves / 2))
def test_break_even_is_the_first_length_that_outweighs(shape, weight_bytes):
    length = shape.break_even(weight_bytes)
    assert length == first_above(shape, weight_bytes)
    if length is not None:
        assert shape.bytes_at(length) > weight_bytes >= shape.bytes_at(length - 1)
    else:
        assert shape.most_bytes <= weight_bytes


@given(shapes(), st.integers(0, 300))
def test_the_most_that_fits_fits_and_one_more_does_not(shape, budget_bytes):
    n_tokens = shape.tokens_that_fit(budget_bytes)
    if n_tokens is None:
        assert shape.bytes_at(10**9) <= budget_bytes
        n_tokens = 10**6
    else:
        assert shape.bytes_at(n_tokens) <= budget_bytes < shape.bytes_at(n_tokens + 1)
    for length in (1, 1 + n_tokens // 3):
        fitting = shape.sequences_that_fit(budget_bytes, length)
        assert shape.bytes_at(length, fitting) <= budget_bytes
        assert shape.bytes_at(length, fitting + 1) > budget_bytes


@given(shapes(), st.integers(0, 60))
def test_the_most_bytes_are_reached_and_never_passed(shape, n_tokens):
    if shape.windows is None or None in shape.windows:
        assert shape.most_bytes is None
        assert shape.bytes_per_token_at(n_tokens) > 0
    else:
        assert shape.bytes_at(n_tokens) <= shape.most_bytes == shape.bytes_at(max(shape.windows))


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 300), st.integers(1, 10**24))
def test_without_windows_break_even_is_a_division(n_layers, n_kv_heads, head_dim, weight_bytes):
    """Also far above 2**53, where a float would round."""
    shape = CacheShape(n_layers, n_kv_heads, head_dim, "float16")
    assert shape.bytes_per_token == 4 * n_layers * n_kv_heads * head_dim
    assert shape.break_even(weight_bytes) == weight_bytes // shape.bytes_per_token + 1


def test_the_growth_falls_when_a_window_is_full():
    """By hand: 4 bytes a token and layer, windows of 2 and 5 tokens, and a layer that keeps all."""
    shape = CacheShape(3, 1, 1, "float16", windows=[2, None, 5])
    assert [shape.bytes_at(n) for n in (2, 5, 7)] == [24, 48, 56]
    assert [shape.bytes_per_token_at(n) for n in (0, 1, 2, 4, 5, 99)] == [12, 12, 8, 8, 4, 4]
    assert [shape.break_even(w) for w in (0, 24, 47, 48, 52)] == [1, 3, 5, 6, 7]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_real_storage_has_these_bytes(dtype):
    shape = CacheShape(3, 2, 5, dtype)
    caches = [kvcache.PreallocatedCache(2, 5, np.dtype(dtype), capacity=11) for _ in range(3)]
    assert sum(cache.nbytes for cache in caches) == shape.bytes_at(11)


def test_numbers_of_half_a_byte_are_exact():
    odd = CacheShape(1, 1, 1, "int4", latent_dim=3)
    assert [odd.bytes_at(n) for n in (1, 2, 3)] == [1.5, 3, 4.5]
    assert isinstance(odd.bytes_at(2), int)
    assert odd.tokens_that_fit(4.5) == 3
    assert odd.tokens_that_fit(1.5 * 2.0**1023) == 2**1023
    assert odd.tokens_that_fit(4) == odd.tokens_that_fit(np.float32(4.4)) == 2
    assert CacheShape(1, 1, 1, "int4").bytes_at(2**70 + 1) == 2**70 + 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_layers": 0}, ValueError, "n_layers must be at least 1"),
        ({"n_kv_heads": 2.0}, TypeError, "n_kv_heads must be an int"),
        ({"head_dim": -1}, ValueError, "head_dim"),
        ({"dtype": "half"}, ValueError, "one of float32, .*int4, not 'half'"),
        ({"dtype": np.float16}, ValueError, "one of float32"),
        ({"latent_dim": 0}, ValueError, "latent_dim"),
        ({"windows": 4}, TypeError, r"give \[4\] \* n_layers"),
        ({"windows": [4]}, ValueError, "1 entries for 2 layers"),
        ({"windows": [4, 0]}, ValueError, "a window"),
    ],
)
def test_shapes_that_cannot_be_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        CacheShape(**{"n_layers": 2, "n_kv_heads": 1, "head_dim": 4} | arguments)


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda shape: shape.bytes_at(-1), ValueError, "n_tokens"),
        (lambda shape: shape.bytes_at(1, -1), ValueError, "n_sequences"),
        (lambda shape: shape.bytes_per_token_at(1.0), TypeError, "n_tokens"),
        (lambda shape: shape.sequences_that_fit(9, 0), ValueError, "n_tokens must be at least 1"),
        (lambda shape: shape.break_even(-1), ValueError, "at least 0"),
        (lambda shape: shape.break_even(True), TypeError, "number of bytes"),
        (lambda shape: shape.tokens_that_fit("24 GB"), TypeError, "number of bytes"),
        (lambda shape: shape.tokens_that_fit(float("inf")), ValueError, "finite"),
        (lambda shape: memory.source_formula(1, 1, 1, "float"), ValueError, "one of float32"),
        (lambda shape: memory.weight_bytes(0), ValueError, "n_parameters"),
    ],
)
def test_questions_without_an_answer_are_refused(ask, error, message):
    with pytest.raises(error, match=message):
        ask(CacheShape(2, 1, 4))


# The course's own model


def test_the_formula_of_the_source_on_its_own_model():
    """Its rows are in MiB; 4.0 at real scale are GiB."""
    config = CharConfig()
    for n_tokens in (128, 512, 1024):
        n_bytes = memory.source_formula(config.n_blocks, n_tokens, config.d_model, "float32")
        assert n_bytes == n_tokens * 3072 == memory.shape_of(config).bytes_at(n_tokens)
    assert memory.source_formula(32, 8192, 4096, "float16") == 4 * 2**30


@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
def test_the_shape_of_a_model_is_that_of_its_caches(n_kv_heads):
    config = CharConfig(11, context=9, d_model=24, n_blocks=2, n_heads=4, n_kv_heads=n_kv_heads)
    capacity = config.context
    caches = charcache.new_caches(CharModel(config), charcache.PreallocatedCache, capacity=capacity)
    nothing = torch.zeros(1, n_kv_heads, 0, config.head_dim)
    views = [view for cache in caches for view in cache.append(nothing, nothing)]
    held = sum(view.untyped_storage().nbytes() for view in views)
    assert memory.shape_of(config).bytes_at(capacity) == held


configs = st.builds(
    lambda vocab, context, n_blocks, n_kv_heads, groups, head_dim: CharConfig(
        vocab, context, n_kv_heads * groups * head_dim, n_blocks, n_kv_heads * groups, n_kv_heads
    ),
    *(st.integers(1, most) for most in (300, 300, 6, 4, 4, 24)),
)


@given(configs)
def test_a_model_with_a_position_a_token_is_outgrown_at_its_own_break_even(config):
    def outgrown(n):
        return memory.shape_of(config, "int8").bytes_at(n) > arithmetic.n_parameters(
            replace(config, context=n)
        )

    length = memory.own_break_even(config)
    if length is None:
        assert not outgrown(10**12)
    else:
        assert outgrown(length)
        assert not outgrown(length - 1)


def test_without_the_ends_a_gpt_is_outgrown_at_six_tokens_a_dimension():
    """12 d² numbers a block, 2 d a token: 6 d, or 2 L / (2 L - 1) times that with positions."""
    config = CharConfig(vocab_size=1, context=1, d_model=4096, n_blocks=64, n_heads=32)
    weight_bytes = memory.weight_bytes(arithmetic.n_parameters(config), "float32")
    fixed = memory.shape_of(config).break_even(weight_bytes)
    assert fixed == pytest.approx(6 * 4096, rel=1e-3)
    assert memory.own_break_even(config) == pytest.approx(6 * 4096 * 128 / 127, rel=1e-3)


# Real models

KIB_PER_TOKEN = {
    "GPT-2": 36,
    "GPT-2 XL": 300,
    "Llama 2 7B": 512,
    "Llama 2 70B": 320,
    "Llama 3 8B": 128,
    "Llama 3 70B": 320,
    "Mistral 7B v0.1": 128,
    "Qwen2.5 7B": 56,
    "Gemma 2 9B": 336,
    "Phi-3-mini 4k": 384,
    "Falcon 7B": 8,
    "MPT 7B": 512,
    "DeepSeek-V2": 67.5,
    "DeepSeek-V3": 68.625,
}
SIZES = {  # vocabulary, and the width of the feed-forward layer, of the same configurations
    "GPT-2": (50257, 4 * 768),
    "GPT-2 XL": (50257, 4 * 1600),
    "Llama 2 7B": (32000, 11008),
    "Llama 2 70B": (32000, 28672),
    "Llama 3 8B": (128256, 14336),
    "Llama 3 70B": (128256, 28672),
    "Mistral 7B v0.1": (32000, 14336),
    "Qwen2.5 7B": (152064, 18944),
    "Gemma 2 9B": (256000, 14336),
    "Phi-3-mini 4k": (32064, 8192),
    "Falcon 7B": (65024, 4 * 4544),
    "MPT 7B": (50432, 4 * 4096),
}


def attention(card):
    """The matrices that make q, k, v and the output."""
    q, kv = card.n_heads * card.head_dim, card.n_kv_heads * card.head_dim
    return card.d_model * (q + 2 * kv) + q * card.d_model


def gpt2(card, vocab, d_ff):
    d = card.d_model
    biases, norms = 3 * d + d + d_ff + d, 2 * 2 * d
    a_layer = attention(card) + 2 * d * d_ff + biases + norms
    return (vocab + card.n_positions) * d + card.n_layers * a_layer + 2 * d


def llama(card, vocab, d_ff, biases=0, norms=2, ends=2):
    d = card.d_model
    a_layer = attention(card) + 3 * d * d_ff + biases + norms * d
    return ends * vocab * d + card.n_layers * a_layer + d


def falcon(card, vocab, d_ff, norms=2):
    """One layer norm a layer, of a gain and a bias, and no other bias; one matrix at both ends."""
    d = card.d_model
    return vocab * d + card.n_layers * (attention(card) + 2 * d * d_ff + norms * d) + 2 * d


def mpt(card, vocab, d_ff):
    """Two norms a layer, of a gain alone."""
    return falcon(card, vocab, d_ff) - card.d_model


def qwen(card, vocab, d_ff):
    biases = (card.n_heads + 2 * card.n_kv_heads) * card.head_dim
    return llama(card, vocab, d_ff, biases=biases)


def gemma(card, vocab, d_ff):
    return llama(card, vocab, d_ff, norms=4, ends=1)


def deepseek(card, vocab, d_ff, n_dense, d_expert, n_routed, n_shared, gate_biases):
    d, n_heads, rank = card.d_model, card.n_heads, 1536
    queries = d * rank + rank + rank * n_heads * (128 + 64)
    latent = d * (512 + 64) + 512 + 512 * n_heads * (128 + 128)
    a_layer = queries + latent + n_heads * 128 * d + 2 * d
    dense = 3 * d * d_ff
    sparse = (n_routed + n_shared) * 3 * d * d_expert + n_routed * (d + gate_biases)
    feed_forward = n_dense * dense + (card.n_layers - n_dense) * sparse
    return 2 * vocab * d + card.n_layers * a_layer + feed_forward + d


FAMILIES = {"GPT-2": gpt2, "GPT-2 XL": gpt2, "Qwen2.5 7B": qwen, "Gemma 2 9B": gemma}
FAMILIES |= {"Falcon 7B": falcon, "MPT 7B": mpt}


@pytest.mark.parametrize("name", SIZES)
def test_parameters_add_up(name):
    assert FAMILIES.get(name, llama)(CARDS[name], *SIZES[name]) == CARDS[name].n_parameters


def test_parameters_add_up_with_all_experts():
    v2, v3 = CARDS["DeepSeek-V2"], CARDS["DeepSeek-V3"]
    assert deepseek(v2, 102400, 12288, 1, 1536, 160, 2, 0) == v2.n_parameters
    assert deepseek(v3, 129280, 18432, 3, 2048, 256, 1, 1) == v3.n_parameters


def test_gemma_has_the_parameters_its_report_counts_outside_the_embedding():
    """arXiv:2408.00118, table 2: 8,324,201,984."""
    assert CARDS["Gemma 2 9B"].n_parameters - 256000 * 3584 == 8_324_201_984


def test_the_bytes_a_token_are_those_known():
    known = {name: kib * KIB for name, kib in KIB_PER_TOKEN.items()}
    assert {name: card.shape().bytes_per_token for name, card in CARDS.items()} == known


def test_windows_cap_or_halve_the_growth():
    assert CARDS["Mistral 7B v0.1"].shape().most_bytes == 512 * MIB
    gemma, phi = CARDS["Gemma 2 9B"].shape(), CARDS["Phi-3-mini 4k"].shape()
    assert gemma.windows[:2] == (4096, None)
    assert [gemma.bytes_per_token_at(n) for n in (4095, 4096)] == [336 * KIB, 168 * KIB]
    assert gemma.most_bytes is None
    assert phi.most_bytes == phi.bytes_at(4096) == 2047 * 384 * KIB


@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS)
def test_every_card_is_whole_and_says_where_its_figures_stand(card):
    assert card.n_heads % card.n_kv_heads == 0
    assert card.n_positions in (None, card.context)
    assert card.config_url in card.citation
    assert card.config_url.startswith("https://huggingface.co/")
    assert "arXiv:" in card.paper or "(20" in card.paper
    assert card.weight_bytes("float32") == 4 * card.n_parameters


# Where the source's formula fails

RIGHT = ["GPT-2", "GPT-2 XL", "Llama 2 7B", "MPT 7B"]


@pytest.mark.parametrize("n_tokens", [None, 1, 2048, 8192])
def test_the_reasons_make_up_the_ratio(n_tokens):
    table = modelcards.formula_misses(n_tokens)
    for name, row in table.iterrows():
        factors = modelcards.factors(CARDS[name], row["n_tokens"])
        assert row["ratio"] == pytest.approx(prod(factors.values()), rel=1e-12)
        assert {reason for reason, times in factors.items() if times != 1} == {
            reason.split(" (")[0] for reason in row["why"].split(", ") if reason
        }


def test_the_formula_is_right_where_heads_are_whole_and_all_is_kept():
    table = modelcards.formula_misses()
    right = table[table["why"] == ""]
    assert list(right.index) == RIGHT
    assert (right["formula_bytes"] == right["true_bytes"]).all()
    assert (table["ratio"] == 1).sum() == len(RIGHT)


def test_the_ratios_by_hand():
    ratio = modelcards.formula_misses(8192)["ratio"]
    assert ratio[["Llama 2 70B", "Qwen2.5 7B", "Falcon 7B"]].to_list() == [8, 7, 71]
    assert ratio["Mistral 7B v0.1"] == 4 * 2  # 32 heads on 8, and 8192 tokens of which 4096 stay
    assert ratio["Gemma 2 9B"] == pytest.approx(2 * 3584 / 4096 * 8192 / 6144)
    assert ratio["DeepSeek-V3"] == pytest.approx(2 * 7168 / 576)


def test_the_reason_follows_the_card(monkeypatch):
    name = "Llama 2 7B"
    for change, why in [
        ({"n_kv_heads": 16}, "shared heads (x 2)"),
        ({"head_dim": 256}, "head_dim x n_heads is not d_model (x 0.5)"),
        ({"window": 1024}, "window (x 4)"),
        ({"window": 1024, "window_every": 2}, "window (x 1.6)"),
        ({"latent_dim": 1024, "n_kv_heads": 1}, "latent (x 8)"),
    ]:
        monkeypatch.setitem(CARDS, name, replace(CARDS[name], **change))
        assert modelcards.formula_misses().loc[name, "why"] == why
        monkeypatch.undo()


def test_no_tokens_have_no_ratio():
    with pytest.raises(ValueError, match="n_tokens must be at least 1"):
        modelcards.formula_misses(0)


def test_lengths_at_which_a_cache_outgrows_its_model():
    """By hand: the weights of Llama 2 7B over 2**18 numbers a token. Two windows are too small."""
    table = modelcards.break_evens()
    assert list(table.index[table["break_even"].isna()]) == ["Mistral 7B v0.1", "Phi-3-mini 4k"]
    assert table.loc["Llama 2 7B", "break_even"] == 6_738_415_616 // 2**18 + 1
    for name, row in table.dropna().iterrows():
        shape = CARDS[name].shape()
        assert shape.bytes_at(row["break_even"]) > row["weight_bytes"]
        assert shape.bytes_at(row["break_even"] - 1) <= row["weight_bytes"]
    assert modelcards.break_evens("float32")["break_even"].equals(table["break_even"])


def test_layers_without_windows_are_not_gone_through_one_by_one():
    assert CacheShape(10**18, 1, 1, "int8").break_even(10**20) == 51
