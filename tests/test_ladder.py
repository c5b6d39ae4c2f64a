"""The rungs: one model all the way up, and counts that can be made by hand."""

import sys

import numpy as np
import pytest
from sample_engine import reference, tokens_of, weights_of

from labsupport import ladder, libcalls
from labsupport.charmodel import CharConfig
from labsupport.compiled import CompiledEngine
from labsupport.engine import NumpyEngine

TOLERANCE = 2e-6  # of the largest logit
CONFIGS = [
    CharConfig(vocab_size=7, context=33, d_model=24, n_blocks=2, n_heads=3),
    CharConfig(vocab_size=50, context=40, d_model=48, n_blocks=3, n_heads=6, n_kv_heads=2),
]
NUMPY = [name for name in ladder.RUNGS if name.startswith("NumPy")]


@pytest.mark.parametrize("name", ladder.RUNGS)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_every_rung_gives_the_models_logits_and_so_again_after_reset(name, config, seed):
    weights, tokens = weights_of(config, seed), tokens_of(config, config.context, seed)
    wanted = reference(config, weights).forward(tokens)  # [context, vocab_size]
    rung = ladder.RUNGS[name](config, weights)
    for _ in range(2):
        rung.reset()
        for i, token in enumerate(tokens):
            logits = rung.step(token)
            assert logits.shape == (config.vocab_size,)
            assert np.abs(logits - wanted[i]).max() < TOLERANCE * max(1, np.abs(wanted).max())


def test_the_last_rungs_are_the_engines():
    assert list(ladder.RUNGS.values())[-2:] == [NumpyEngine, CompiledEngine]


def test_the_numpy_engines_calls_are_those_that_its_code_shows():
    for config in CONFIGS:
        norm = 3  # a product with itself, the scale stored, the multiplication
        attention = 1 + 2 + 7 + 2  # qkv; k, v stored; scores to division; o, added
        layers = 1 + 6 + 2  # up; gelu; down, added
        by_hand = 1 + config.n_blocks * (2 * norm + attention + layers) + norm + 1
        counted = ladder.work("NumPy, no allocation", config, weights_of(config), 5)
        assert counted["operations"] == by_hand


def test_each_numpy_rung_asks_for_fewer_calls_than_the_one_before():
    config = CONFIGS[1]
    calls = [ladder.work(name, config, weights_of(config), 5)["operations"] for name in NUMPY]
    assert calls == sorted(set(calls), reverse=True)
    assert ladder.work("compiled", config, weights_of(config), 5)["operations"] == 1


def test_torchs_own_attention_saves_the_four_calls_that_it_stands_for():
    config = CONFIGS[0]
    long, short = (
        ladder.work(f"torch, {name}", config, weights_of(config), 5)["operations"]
        for name in ("preallocated", "fused attention")
    )
    assert long - short == 3 * config.n_blocks  # matmul, division, softmax, matmul become one


def test_counts_do_not_depend_on_the_length_and_bytes_do_by_the_cache():
    config, d_kv = CONFIGS[1], 16
    weights = weights_of(config)
    n_numbers = sum(w.size for w in weights.values()) - (50 - 1 + 40 - 1) * 48  # rows not read
    row = 2 * config.n_blocks * d_kv * 4  # bytes of a token's keys and values
    for name in ladder.RUNGS:
        short, long = (ladder.work(name, config, weights, n) for n in (3, 30))
        assert short["operations"] == long["operations"]
        assert short["views"] == long["views"]
        moved = 3 if name == "torch, concatenated" else 1  # read; or read, joined and read again
        assert short["bytes"] == 4 * n_numbers + moved * 3 * row
        assert long["bytes"] == 4 * n_numbers + moved * 30 * row


@pytest.mark.parametrize("n_tokens", [0, 34])
def test_lengths_that_a_step_cannot_end_with_are_refused(n_tokens):
    config = CONFIGS[0]
    with pytest.raises(ValueError, match=f"n_tokens must be .* not {n_tokens}"):
        ladder.work("compiled", config, weights_of(config), n_tokens)


def test_a_profiler_that_runs_is_set_aside_and_put_back():
    def profiler(frame, event, arg):
        pass

    config = CharConfig(vocab_size=5, context=4, d_model=8, n_blocks=1, n_heads=2)
    engine, before = NumpyEngine(config, weights_of(config)), sys.getprofile()
    sys.setprofile(profiler)
    try:
        libcalls.numpy_calls(engine, lambda: engine.step(0))
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(before)
