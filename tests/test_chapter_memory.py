"""Chapter 4 shows its key steps in full; here they are held to the package's own."""

import inspect
import re

import numpy as np
import pandas as pd
import pytest
from lesson_code import Lesson, run, value

from labsupport import (
    arithmetic,
    charmodel,
    decoder,
    latent,
    memory,
    memory_source,
    mixes,
    modelcards,
    outliers,
    paged,
    quantize,
    quantloss,
    reservation,
    resident,
    sharedtimes,
    training,
    window,
    windowloss,
)
from labsupport.blockpool import BlockPool
from labsupport.memory import CacheShape
from labsupport.modelcards import CARDS
from labsupport.ring import RingCache

KiB, GiB = 2**10, 2**30
LESSON = Lesson(
    "memory",
    np=np,
    decoder=decoder,
    quantize=quantize,
    window=window,
    CARDS=CARDS,
    KiB=KiB,
    GiB=GiB,
)
shown, solution, PROSE = LESSON.shown, LESSON.solution, LESSON.prose
LLAMA = CARDS["Llama 2 7B"]
CLOSE = 1e-12  # of sums of float64 numbers of size 1, in another order


def normals(seed, *shape):
    """Standard normals of this shape."""
    return np.random.default_rng(seed).standard_normal(shape)


def off(ours, theirs):
    """The largest difference between arrays of one shape."""
    assert np.shape(ours) == np.shape(theirs)
    return np.abs(np.subtract(ours, theirs)).max()


# The functions of the page


@pytest.mark.parametrize("seed", range(5))
def test_the_pages_formula_is_the_packages(seed):
    n_layers, n_kv_heads, head_dim, n_tokens = np.random.default_rng(seed).integers(1, 100, 4)
    for dtype in ("float32", "float16", "int8"):
        shape = CacheShape(n_layers, n_kv_heads, head_dim, dtype)
        sizes = (n_layers, n_kv_heads, head_dim, n_tokens, memory.BYTES[dtype])
        assert shown("cache_bytes")(*sizes) == shape.bytes_at(n_tokens)


def grouped_wrongly(source):
    """The page's attention with query heads dealt out in turns."""
    wrong = source.replace("head // (n_heads // len(k))", "head % len(k)")
    assert wrong != source
    return run(wrong, LESSON.names)["shared_attention"]


@pytest.mark.parametrize("n_kv_heads", [1, 2, 3, 6])
def test_shared_attention_of_the_page_is_the_packages(n_kv_heads):
    q = normals(n_kv_heads, 6, 5)
    k, v = normals(7, 2, n_kv_heads, 11, 5)
    packages = decoder.attention(q[:, None], k, v)[:, 0]
    assert off(shown("shared_attention")(q, k, v), packages) < CLOSE
    wrong = grouped_wrongly(LESSON.source_of("shared_attention"))
    assert (off(wrong(q, k, v), packages) > 0.01) == (n_kv_heads in (2, 3))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_codes_of_the_page_are_the_packages(axis):
    x = normals(axis, 5, 6, 7).astype(np.float32)
    codes, scale = shown("to_codes")(x, axis)
    packages = quantize.quantize(x, axis)
    assert codes.dtype == np.int8
    np.testing.assert_array_equal(codes, packages.codes)
    np.testing.assert_allclose(scale, packages.scales, rtol=1e-6)
    assert (np.abs(codes).max(axis=axis) == 127).all()


def test_one_token_through_a_ring_reads_what_is_in_its_window():
    """The page's function and the package's are one; both are held to attention over all."""
    q, (k, v) = normals(0, 4, 30, 8), normals(1, 2, 2, 30, 8)
    cache = RingCache(2, 8, np.float64, window=5)
    read = [shown("attend_one")(q[:, t], k[:, t], v[:, t], cache) for t in each(30)]
    assert off(np.concatenate(read, axis=1), window.window_attention(q, k, v, 5)) < CLOSE


def each(n):
    """Slices of one position."""
    return [slice(t, t + 1) for t in range(n)]


@pytest.mark.parametrize("n_new", [1, 2, 7, 8])
def test_a_chunk_stored_first_reads_what_is_overwritten(n_new):
    chunk_off = shown("chunk_off")
    assert chunk_off(window.attend_chunk, n_new) < CLOSE
    wrong = chunk_off(shown("windowed_chunk_store_first"), n_new)
    assert wrong < CLOSE if n_new == 1 else wrong > 1e-3


def test_only_the_last_of_a_chunk_that_was_stored_first_is_right():
    """A test that looks at the last logits of a chunk only would never find it."""
    q, k, v = normals(0, 4, 12, 8), *normals(1, 2, 2, 12, 8)
    cache = RingCache(2, 8, np.float64, window=8)
    cache.append(k[:, :9], v[:, :9])
    new = slice(9, None)
    read = shown("windowed_chunk_store_first")(q[:, new], k[:, new], v[:, new], cache)
    wanted = window.window_attention(q, k, v, 8)[:, new]
    assert off(read[:, -1], wanted[:, -1]) < CLOSE
    assert min(off(read[:, t], wanted[:, t]) for t in (0, 1)) > 1e-3


def test_a_step_on_latents_is_the_packages():
    """With a rotary part of zeros the package's scores are the page's, but for their scale."""
    q, c = normals(0, 3, 8), normals(1, 20, 16)
    up = {"uk": normals(2, 3, 16, 8), "uv": normals(3, 3, 16, 8)}
    none = np.zeros((3, 1, 2)), np.zeros((20, 2))
    for attend in (latent.attend_absorbed, latent.attend_expanded):
        rescaled = q[:, None] * np.sqrt((8 + 2) / 8)
        packages = attend(rescaled, none[0], c, none[1], up)[:, 0]
        ours = [shown("on_latents")(q[h], c, up["uk"][h], up["uv"][h]) for h in range(3)]
        assert off(ours, packages) < 1e-10


@pytest.mark.parametrize("n_tokens", [1, 4, 11])
@pytest.mark.parametrize("rising", [False, True])  # with each block a larger score, or none
@pytest.mark.parametrize(("spread", "close"), [(40, CLOSE), (4000, 1e-9)])  # e^4000 is too large
def test_blocks_of_the_page_read_what_one_piece_does(n_tokens, rising, spread, close):
    pool = BlockPool(4, 4, 2, 8, np.float64)
    cache = paged.PagedCache(2, 8, np.float64, pool=pool)
    q = np.abs(normals(0, 2, 1, 8))
    rows = shown("some_rows")(n_tokens, 1)
    rows[0] *= np.linspace(1, spread, n_tokens)[:: 1 if rising else -1, None]
    cache.append(*rows)
    ours = [
        shown("attend_blocks")(q[h, 0], [(k[h], v[h]) for k, v in cache.blocks()]) for h in (0, 1)
    ]
    assert off(ours, decoder.attention(q, *rows)[:, 0]) < close
    assert off(ours, paged.attend_blocks(q, cache)[:, 0]) < close


def test_rows_are_keys_and_values_of_two_heads_and_follow_their_seed():
    rows = shown("some_rows")
    assert rows(5).shape == (2, 2, 5, 8)
    assert (rows(5, 1) == rows(5, 1)).all()
    assert (rows(5, 1) != rows(5, 2)).any()


def test_what_is_picked_is_of_the_layout_asked_for():
    layouts = [(b, k, v) for b in (8, 3) for k, v in quantloss.LAYOUTS]
    rows = pd.DataFrame(layouts, columns=["bits", "keys", "values"])
    for layout in layouts:
        assert tuple(shown("pick")(rows, *layout)) == layout


# Solutions


def test_qwens_token():
    assert value(solution("By hand"), LESSON.names) == 56
    assert "= 57,344 bytes = 56 KiB" in PROSE
    card = CARDS["Qwen2.5 7B"]
    assert card.shape().bytes_per_token == 2 * 28 * 4 * 128 * 2 == 57_344
    misses = modelcards.formula_misses(1000)
    assert misses.loc["Qwen2.5 7B", "ratio"] == 7 == card.n_heads / card.n_kv_heads
    sizes = "28 layers, 28 query heads, 4 key/value heads, width 3584, head width 128"
    given = (card.n_layers, card.n_heads, card.n_kv_heads, card.d_model, card.head_dim)
    assert tuple(map(int, re.findall(r"\d+", sizes))) == given
    assert sizes in PROSE


def test_sequences_on_a_card_of_either_unit(capsys):
    run(solution("Gigabytes"), LESSON.names)
    assert capsys.readouterr().out.split() == ["5", "4"]
    assert "Five, and four." in PROSE


def test_break_even_with_shared_heads():
    shape, weights = CacheShape(32, 32, 128), 2 * 12 * 32 * 4096**2
    assert shape.break_even(weights) == 6 * 4096 + 1
    for g in (1, 4, 32):
        half, eight = (CacheShape(32, 32 // g, 128, dtype) for dtype in ("float16", "int8"))
        assert half.break_even(weights) == 6 * 4096 * g + 1
        assert eight.break_even(weights) == 2 * 6 * 4096 * g + 1
        assert half.break_even(weights // 2) == 6 * 4096 * g / 2 + 1
    llama_3 = CARDS["Llama 3 8B"]
    assert llama_3.n_heads // llama_3.n_kv_heads == 4
    assert r"$6 \cdot 4096 \cdot 4 \approx 98{,}000$" in PROSE
    assert round(6 * 4096 * 4, -3) == 98_000
    assert llama_3.shape().break_even(llama_3.weight_bytes()) > 98_000  # wider and more words


class TurnedRing(RingCache):
    """Position p in slot (p + 1) % window."""

    def append(self, k, v):
        """One token; the rows move on by a slot for a moment, so that it goes where it should."""
        for rows in (self._keys, self._values):
            rows[:] = np.roll(rows, -1, axis=1)
        super().append(k, v)
        for rows in (self._keys, self._values):
            rows[:] = np.roll(rows, 1, axis=1)


def test_a_turned_ring_shows_in_chunks_only():
    q, k, v = normals(0, 4, 22, 8), *normals(1, 2, 2, 22, 8)
    wanted = window.window_attention(q, k, v, 8)
    cache = TurnedRing(2, 8, np.float64, window=8)
    apart = [
        off(window.attend_one(q[:, t], k[:, t], v[:, t], cache), wanted[:, t]) for t in each(20)
    ]
    assert max(apart[7:]) < CLOSE  # once every slot is filled: until then, the first are read
    assert (cache._keys[:, (19 + 1) % 8] == k[:, 19]).all()  # it does lie there
    new = slice(20, None)
    read = window.attend_chunk(q[:, new], k[:, new], v[:, new], cache)
    assert off(read, wanted[:, new]) > 1e-3


def test_a_large_channel_spoils_the_others_by_token_only(capsys):
    run(solution("Which scale?"), LESSON.names)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    errors = {(int(factor), name): float(error) for factor, name, error in rows}
    assert errors[50, "channel"] == errors[1, "channel"]
    assert 17 < errors[50, "token"] / errors[1, "token"] < 20
    assert "nearly 20-fold" in PROSE
    K = np.random.default_rng(0).standard_normal((100, 32))
    largest = np.abs(K).max(axis=1).mean()
    assert f"where the largest was about {largest:.1f}" in PROSE


def test_all_cuts_at_once():
    assert value(solution("All at once"), LESSON.names) == (1, 3, 3, 3, 13)
    assert "One; three; three; three; and thirteen with all." in PROSE


# What the text says


def test_every_claim_of_the_ledger_is_shown_once():
    assert LESSON.claims_shown() == LESSON.claims_of_ledger()


def test_models_that_are_named_have_a_card():
    keys = re.findall(r'CARDS\["([^"]+)"\]', LESSON.text)
    keys += re.findall(r"(?:per_token\[|table\.loc\[)'([^']+)'", LESSON.text)
    assert len(keys) >= 9
    assert set(keys) <= set(CARDS)
    families = sorted({re.match(r"[A-Za-z]+", name)[0] for name in CARDS})
    named = re.findall(rf"\b(?:{'|'.join(families)})[- ]?V?\d[\w.]*(?: XL| \d+B)?", PROSE)
    assert {"Llama 2 7B", "Gemma 2", "Mistral 7B", "DeepSeek-V3"} <= set(named)
    for name in set(named):
        assert any(card.startswith(name.rstrip(".")) for card in CARDS), name


def test_the_figure_draws_models_that_have_cards_and_the_courses_own():
    lines = re.findall(r"^drawn .*", "\n".join(LESSON.cells), re.M)
    drawn = run("\n".join(lines), {})["drawn"]
    assert set(drawn) <= set(CARDS)
    assert len(drawn) + 1 == 8
    assert "for eight models" in PROSE


def test_the_cards_are_as_many_as_the_text_says():
    assert f"`modelcards` holds {['fourteen', 'fifteen'][len(CARDS) - 14]} models" in PROSE


def test_the_model_at_real_scale_is_llamas():
    assert "Llama 2 7B (width 4096, 32 blocks, 32 heads)" in PROSE
    assert (LLAMA.d_model, LLAMA.n_layers, LLAMA.n_heads, LLAMA.n_kv_heads) == (4096, 32, 32, 32)
    assert "a model of width 4096 with 32 blocks, after 8,192 tokens, in half precision" in PROSE
    share = LLAMA.shape().bytes_at(8192) / LLAMA.weight_bytes()
    assert 0.3 < share < 0.36  # "A third of it"


def test_the_tutorials_model_is_that_of_chapter_3():
    config = charmodel.CharConfig()
    assert f"Its model has {arithmetic.n_parameters(config):,} parameters" in PROSE
    assert f"learned position for {config.context} tokens" in PROSE
    ratio = memory_source.sizes()[1024] * 2**20 / (4 * arithmetic.n_parameters(config))
    assert f"1,024 tokens the cache, it says, is {ratio:.2f} times" in PROSE
    assert (config.n_blocks, config.n_heads, config.d_model) == (3, 4, 128)


def test_six_widths():
    for d, said in {128: "768", 4096: "24,576"}.items():
        assert f"At $d = {d}$ it is some {said}" in PROSE
        assert int(said.replace(",", "")) == 6 * d
        assert CacheShape(7, d // 32, 32).break_even(2 * 12 * 7 * d**2) == 6 * d + 1


def test_gemmas_heads_are_wider_than_the_model():
    card = CARDS["Gemma 2 9B"]
    assert "In Gemma 2 9B it is more" in PROSE
    assert card.n_heads * card.head_dim > card.d_model
    assert "a layer that looks back 4,096 tokens keeps no more" in PROSE
    assert {CARDS["Mistral 7B v0.1"].window, card.window} == {4096}
    assert card.windows[:2] == (4096, None)  # "every other layer"


def test_latents_have_the_sizes_of_deepseek_v2():
    names = {"latent": latent}
    cell = LESSON.cell("^v2 = ")
    config = run(cell[: cell.index("steps = ")], names)["v2"]
    card = CARDS["DeepSeek-V2"]
    assert config.cached_numbers == card.latent_dim
    given = (config.d_model, config.n_heads, config.head_dim)
    assert given == (card.d_model, card.n_heads, card.head_dim)
    for heads in (128, 1):
        assert f"CacheShape({card.n_layers}, {heads}, {card.head_dim})" in LESSON.text


def test_published_waste():
    tokens = reservation.PUBLISHED["tokens"]
    assert f"`max` fills {tokens['max']} % of its memory" in PROSE
    reserved = 100 - tokens.drop("16")
    assert (reserved.min().round(-1), reserved.max().round(-1)) == (60, 80)
    assert "60 to 80 %" in PROSE
    assert f"{tokens.min()} to {tokens.drop('16').max()} % held tokens" in PROSE
    assert 3 < 100 - tokens["16"] < 4  # "under 4 %"
    assert len(reservation.POLICIES) == 11
    assert "for eleven policies" in PROSE


def test_the_means_of_the_mixes():
    (asked, told), (asked_2, told_2) = (np.round(mixes.MEANS[m]) for m in ("ShareGPT", "Alpaca"))
    said = f"ShareGPT's prompts have {asked:.0f} tokens and answers {told:.0f}, Alpaca's"
    assert f"{said} {asked_2:.0f} and {told_2:.0f}" in PROSE
    assert f"`max` reserves {mixes.MAX_TOKENS:,} tokens" in PROSE


def test_half_a_block():
    """Where every filling is as likely, (B - 1) / 2 are empty; where all are short, it fails."""
    long = np.column_stack([np.full(3, 16), [16, 160, 16_000]])
    assert mixes.mean_unfilled(long, 16) == pytest.approx(7.5)
    assert f"empty each, not {(128 - 1) / 2}" in PROSE


def test_sizes_of_what_is_measured():
    assert f"in time at {sharedtimes.LONG:,} tokens (live)" in PROSE
    assert "a cache of about 200 MB" in PROSE
    assert defaults(resident.resident)["n_bytes"] == 200_000_000
    assert "in all four layouts" in PROSE
    assert len(quantloss.LAYOUTS) == 4
    assert defaults(outliers.with_outliers) == {"n_channels": 2, "factor": 32}
    assert "multiply two key channels of each head by 32 and divide" in PROSE


def defaults(function):
    """Name -> default of a function's parameters that have one."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def test_windows_of_the_recorded_model():
    config, _ = training.recorded()
    assert "for windows of 8, 16, 32, 64 and 128 tokens" in PROSE
    assert {8, 16, 32, 64, 128} == {w for w in windowloss.WINDOWS if w}
    assert config.context == 128
    assert "Half the cache costs {glue:text}`half_window` nats here, a sixteenth" in PROSE
    for name, width in {"half": config.context // 2, "least": config.context // 16}.items():
        assert f"glue(\"{name}_window\", f\"{{looked.loc['{width}', 'more']" in LESSON.text


def test_what_three_blocks_can_tell():
    config, _ = training.recorded()
    assert "Ours has three blocks of width 128, four heads to share among" in PROSE
    assert (config.n_blocks, config.d_model, config.n_heads) == (3, 128, 4)


def test_a_window_reaches_seven_tokens_further_with_each_layer():
    assert "the reach ends exactly at the drawn line, seven tokens further" in PROSE
    assert window.receptive_field((8,) * 3) == 1 + 3 * 7
