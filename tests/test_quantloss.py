"""The pass over codes against the real cache; errors and losses against sums written out; why."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labsupport import charweights, outliers, quantloss
from labsupport.charmodel import CharConfig, CharModel
from labsupport.codeddecoder import CodedDecoder, by_groups
from labsupport.decoder import Decoder, DecoderConfig
from labsupport.int8cache import Int8Cache
from labsupport.quantize import quantize
from labsupport.window import WindowDecoder

LAYOUTS = [(k, v) for k in ("token", "channel") for v in ("token", "channel")]
CONFIG = CharConfig(vocab_size=13, context=12, d_model=16, n_blocks=2, n_heads=4)


def weights_of(config=CONFIG, seed=0):
    """Larger than untrained ones are, so that attention is not flat."""
    weights = charweights.flat(CharModel(config, seed))
    return {n: w * np.float32(8) if w.ndim == 2 else w for n, w in weights.items()}


def some_windows(n=5, config=CONFIG, seed=0):
    return np.random.default_rng(seed).integers(0, config.vocab_size, (n, config.context + 1))


# The pass


@pytest.mark.parametrize(("keys", "values"), LAYOUTS)
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_kv_heads=st.sampled_from([1, 2, 4]),
    group=st.sampled_from([None, 1, 3, 5, 40]),
    bits=st.integers(2, 8),
    n=st.integers(1, 20),
)
def test_one_pass_gives_what_the_real_caches_give(keys, values, seed, n_kv_heads, group, bits, n):
    """In float64: no code hangs on how a sum was rounded."""
    config = DecoderConfig(17, 20, 16, 2, n_heads=4, n_kv_heads=n_kv_heads, dtype="float64")
    model, tokens = Decoder(config, seed), np.random.default_rng(seed).integers(0, 17, n)
    options = {"keys": keys, "values": values, "group": group, "bits": bits}

    caches = model.new_caches(Int8Cache, capacity=n, **options)
    singly = np.concatenate([model.forward([token], caches) for token in tokens])
    found = CodedDecoder(model, **options).forward(tokens)
    np.testing.assert_allclose(found, singly, rtol=0, atol=1e-9)

    caches = model.new_caches(Int8Cache, capacity=n, **options)
    at_once = model.forward(tokens, caches)
    found = CodedDecoder(model, **options, fed="at once").forward(tokens)
    np.testing.assert_allclose(found, at_once, rtol=0, atol=1e-9)


def test_the_recorded_model_agrees_too_but_for_codes_that_rounding_tips():
    config, weights, tests = quantloss.recorded(2)
    model = charweights.numpy_decoder(config, weights)
    caches = model.new_caches(Int8Cache, capacity=70)
    singly = np.concatenate([model.forward([token], caches) for token in tests[0, :70]])
    off = np.abs(CodedDecoder(model).forward(tests[0, :70]) - singly)
    cost = np.abs(model.forward(tests[0, :70]) - singly)
    assert np.sqrt((off**2).mean()) < 0.1 * np.sqrt((cost**2).mean())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"fed": "twice"}, r"fed must be one of \('singly', 'at once'\), not 'twice'"),
        ({"keys": "head"}, "keys must be one of"),
        ({"bits": 1}, "bits must be at least 2"),
        ({"group": 0}, "group must be at least 1"),
    ],
)
def test_options_that_no_cache_has_are_refused(options, says):
    model = charweights.numpy_decoder(CONFIG, weights_of())
    with pytest.raises(ValueError, match=says):
        CodedDecoder(model, **options)


def test_the_pass_takes_no_caches():
    model = CodedDecoder(charweights.numpy_decoder(CONFIG, weights_of()))
    with pytest.raises(ValueError, match="give it no caches"):
        model.forward([1, 2], model.new_caches(Int8Cache, capacity=4))


# Errors and losses


class Given:
    """A model whose logits are given, window by window."""

    def __init__(self, logits):
        self.logits, self.asked = logits, []

    def forward(self, tokens):
        self.asked.append(list(tokens))
        return self.logits[len(self.asked) - 1]


def test_a_row_is_the_sums_written_out():
    tests = np.array([[0, 1, 2], [2, 1, 0], [1, 1, 1]])
    rng = np.random.default_rng(4)
    plain, other = rng.normal(size=(2, 3, 2, 3))  # [n_windows, n_tokens, vocab_size]
    model = Given(plain)
    row = quantloss.compare(model, [({"named": "x"}, Given(other))], tests).iloc[0]
    assert model.asked == [[0, 1], [2, 1], [1, 1]]  # the last character is only told

    def loss(logits, window):
        told = [
            math.log(sum(math.exp(x) for x in logits[i])) - logits[i][window[i + 1]]
            for i in range(2)
        ]
        return sum(told) / 2

    losses = [(loss(a, w), loss(b, w)) for a, b, w in zip(plain, other, tests, strict=True)]
    more = [b - a for a, b in losses]
    off = [b - a for a, b in zip(plain.ravel(), other.ravel(), strict=True)]
    places = zip(plain.reshape(6, 3), other.reshape(6, 3), strict=True)
    flips = [a.tolist().index(max(a)) != b.tolist().index(max(b)) for a, b in places]
    assert row["named"] == "x"
    assert row["loss"] == pytest.approx(sum(b for _, b in losses) / 3)
    assert row["more"] == pytest.approx(sum(more) / 3)
    assert row["largest"] == max(map(abs, off))
    assert row["rms"] == pytest.approx(math.sqrt(sum(x * x for x in off) / 18))
    assert row["flips"] == sum(flips) / 6

    t = 4.302652729749464  # Student's t, two degrees of freedom, 95 %
    half = t * np.std(more, ddof=1) / math.sqrt(3)
    assert row["low"] == pytest.approx(row["more"] - half)
    assert row["high"] == pytest.approx(row["more"] + half)


def test_intervals_of_a_table_are_wider_the_more_rows_it_has():
    rng = np.random.default_rng(5)
    plain, other = rng.normal(size=(2, 4, 12, 13))
    tests = some_windows(4)
    one = quantloss.compare(Given(plain), [({}, Given(other))], tests).iloc[0]
    ten = quantloss.compare(Given(plain), [({}, Given(other)) for _ in range(10)], tests).iloc[0]
    assert ten["more"] == one["more"]
    wider = quantloss.paired(_differences(plain, other, tests), 0.995)
    assert (ten["low"], ten["high"]) == pytest.approx((wider["low"], wider["high"]))
    assert wider["low"] < one["low"]


def _differences(plain, other, tests):
    return quantloss.nats(other, tests) - quantloss.nats(plain, tests)


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([0.1, 0.11, 0.09, 0.1], "worse"),
        ([-0.1, -0.11, -0.09, -0.1], "better"),
        ([-0.1, 0.2, 0.1, -0.15], "cannot tell"),
        ([0.0, 0.0, 0.0], "cannot tell"),
    ],
)
def test_the_verdict_is_that_of_the_interval(differences, verdict):
    found = quantloss.paired(np.array(differences))
    assert found["verdict"] == verdict
    assert found["low"] <= found["more"] <= found["high"]


def test_variants_of_the_cache_and_of_the_weights():
    weights, tests = weights_of(), some_windows()
    cache = quantloss.of_cache(CONFIG, weights, tests, bits=(8, 2))
    assert cache[["keys", "values", "bits"]].to_numpy().tolist() == [
        [keys, values, bits] for keys, values in quantloss.LAYOUTS for bits in (8, 2)
    ]
    assert set(quantloss.LAYOUTS) == set(LAYOUTS)
    assert cache["bits_a_number"].tolist() == [16, 10] * 4  # 32 bits of scale for 4 numbers
    assert (cache["rms"] > 0).all()
    assert (cache["rms"][1::2].to_numpy() > 3 * cache["rms"][::2].to_numpy()).all()

    coded = quantloss.of_weights(CONFIG, weights, tests, bits=(8, 2))
    assert coded["rms"][1] > 3 * coded["rms"][0] > 0
    n = sum(array.size for array in weights.values())
    matrices = {name: array for name, array in weights.items() if array.ndim == 2}
    n_coded = sum(array.size for array in matrices.values())
    scales = sum(
        w.shape[0 if name in ("tokens", "positions") else 1] for name, w in matrices.items()
    )
    for bits, found in zip((8, 2), coded["bits_a_number"], strict=True):
        assert found == pytest.approx((n_coded * bits + (n - n_coded + scales) * 32) / n)


@pytest.mark.parametrize("fed", ["singly", "at once"])
def test_each_row_is_of_the_layouts_and_bits_that_it_names(fed):
    weights, tests = weights_of(), some_windows(2)
    model = charweights.numpy_decoder(CONFIG, weights)
    for row in quantloss.of_cache(CONFIG, weights, tests, bits=(4, 3), fed=fed).to_dict("records"):
        logits = []
        for window in tests:
            options = {name: row[name] for name in ("keys", "values", "bits")}
            caches = model.new_caches(Int8Cache, capacity=CONFIG.context, **options)
            pieces = [window[:-1]] if fed == "at once" else window[:-1, None]
            logits.append(np.concatenate([model.forward(piece, caches) for piece in pieces]))
        plain = [model.forward(window[:-1]) for window in tests]
        rms = np.sqrt(((np.array(logits) - plain) ** 2).mean())
        assert row["rms"] == pytest.approx(rms, rel=1e-3)


def test_windows_are_spread_from_the_first_character_to_the_last():
    found = quantloss.windows(list(range(100)), 9, 4)
    assert found.shape == (4, 10)
    assert found[:, 0].tolist() == [0, 30, 60, 90]
    assert (np.diff(found, axis=1) == 1).all()
    with pytest.raises(ValueError, match="a window needs 10 characters, the text has 9"):
        quantloss.windows(list(range(9)), 9)
    with pytest.raises(ValueError, match="n_windows must be at least 2"):
        quantloss.windows(list(range(99)), 9, 1)


def test_the_recorded_windows_are_of_the_text_that_was_held_out():
    from labsupport import training

    config, _, tests = quantloss.recorded(3)
    alphabet, text = training.recorded_text()
    assert tests.shape == (3, config.context + 1)
    for window in tests:
        at = text.find(alphabet.decode(window))
        assert at < 0 or at >= len(text) - int(0.1 * len(text))
    assert text.endswith(alphabet.decode(tests[-1]))


# Why


def test_outliers_change_the_keys_and_nothing_that_the_model_says():
    config = CharConfig(vocab_size=13, context=12, d_model=16, n_blocks=2, n_heads=4, n_kv_heads=2)
    weights, window = weights_of(config), some_windows(1, config)[0]
    before = {name: array.copy() for name, array in weights.items()}
    changed = outliers.with_outliers(config, weights, n_channels=1, factor=32)
    logits = [charweights.numpy_decoder(config, w).forward(window[:-1]) for w in (weights, changed)]
    np.testing.assert_array_equal(*logits)

    rows = [outliers.rows_of(config, w, [window]) for w in (weights, changed)]
    np.testing.assert_array_equal(rows[1]["keys"][..., 0], 32 * rows[0]["keys"][..., 0])
    np.testing.assert_array_equal(rows[1]["keys"][..., 1:], rows[0]["keys"][..., 1:])
    np.testing.assert_array_equal(rows[1]["values"], rows[0]["values"])
    for name, array in weights.items():
        np.testing.assert_array_equal(array, before[name])


def test_a_scale_a_channel_does_not_see_outliers_and_a_scale_a_token_suffers():
    weights, tests = weights_of(), some_windows()
    changed = outliers.with_outliers(CONFIG, weights, n_channels=1)
    columns = ["largest", "rms", "flips", "loss", "more", "low", "high"]
    layouts = [("channel", "token"), ("token", "token")]
    for fed in ("singly", "at once"):
        before, after = (
            quantloss.of_cache(CONFIG, w, tests, (6,), layouts, fed) for w in (weights, changed)
        )
        assert after[columns].iloc[0].tolist() == before[columns].iloc[0].tolist()
        assert after["rms"][1] > 3 * before["rms"][1]


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"n_channels": 5}, ValueError, "n_channels must be at most head_dim, 4"),
        ({"n_channels": 0}, ValueError, "n_channels must be at least 1"),
        ({"factor": 0}, ValueError, "factor must be above 0 and finite"),
        ({"factor": math.inf}, ValueError, "factor must be above 0 and finite"),
    ],
)
def test_outliers_that_cannot_be(options, error, says):
    with pytest.raises(error, match=says):
        outliers.with_outliers(CONFIG, weights_of(), **options)


def test_the_spread_written_out():
    weights, tests = weights_of(), some_windows(3)
    found = outliers.spread(CONFIG, weights, tests, bits=4)
    assert len(found) == 2 * 2 * 4
    rows = outliers.rows_of(CONFIG, weights, tests)
    for (side, layer, head), row in found.set_index(["side", "layer", "head"]).iterrows():
        own = rows[side][:, layer, head]  # [n_windows, n_tokens, head_dim]
        channels = [np.abs(own[:, :, i]).max() for i in range(4)]
        tokens = [np.abs(own[i, j]).max() for i in range(3) for j in range(12)]
        assert row["over_channels"] == pytest.approx(max(channels) / np.median(channels))
        assert row["over_tokens"] == pytest.approx(max(tokens) / np.median(tokens))
        token = np.array([quantize(w, 1, 4).dequantize() for w in own])
        groups = own.reshape(9, 4, 4)
        channel = np.array([quantize(g, 0, 4).dequantize() for g in groups]).reshape(own.shape)
        for name, coded in {"token": token, "channel": channel}.items():
            off = math.sqrt(((coded - own) ** 2).sum() / (own**2).sum())
            assert row[f"error_{name}"] == pytest.approx(off, rel=1e-4)

    sizes = outliers.largest(rows["keys"])
    assert sizes["channel"].shape == (2, 4, 4)
    assert sizes["token"].shape == (2, 4, 36)
    assert sizes["token"][1, 2, 12] == np.abs(rows["keys"][1, 1, 2, 0]).max()


def test_tokens_that_fill_no_group_stay_as_they_are():
    rows = np.random.default_rng(0).normal(size=(2, 7, 3)).astype(np.float32)
    coded = by_groups(rows, 3, 2)
    np.testing.assert_array_equal(coded[:, 6:], rows[:, 6:])
    np.testing.assert_array_equal(coded[:, 3:6], quantize(rows[:, 3:6], 1, 2).dequantize())
    np.testing.assert_array_equal(by_groups(rows, 8), rows)


def test_a_model_with_an_attention_of_its_own_is_refused():
    sizes = {"vocab_size": 9, "n_positions": 12, "d_model": 8, "n_layers": 2, "n_heads": 2}
    windowed = WindowDecoder(DecoderConfig(**sizes), 0, [2, 2])
    with pytest.raises(TypeError, match="WindowDecoder attends in a way of its own"):
        CodedDecoder(windowed)


def test_windows_that_overlap_are_refused():
    assert np.unique(quantloss.windows(np.arange(20), 4, 4)).size == 20
    with pytest.raises(ValueError, match="5 windows would overlap; this text has room for 4"):
        quantloss.windows(np.arange(20), 4, 5)
