"""Generation with a cache beside generation without: measured, counted, expected."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from labsupport import agreement, charweights
from labsupport.charcache import ConcatCache
from labsupport.charmodel import CharConfig, CharModel

SMALL = CharConfig(vocab_size=31, context=48, d_model=24, n_blocks=2, n_heads=6)


def small(dtype=torch.float32):
    """With larger weights than at the start of training, so that tokens differ in chance."""
    model = CharModel(SMALL, 1)
    with torch.no_grad():
        for weight in model.parameters():
            weight *= 3
    return model.to(dtype)


def some_prompts(n=6, longest=16):
    ids = np.random.default_rng(5).integers(0, 31, size=400).tolist()
    return agreement.prompts_from(ids, n, longest)


def test_prompts_are_pieces_of_the_text():
    ids = list(range(300))
    prompts = agreement.prompts_from(ids, 200, longest=20)
    assert {len(prompt) for prompt in prompts} == set(range(1, 21))
    assert all(prompt == ids[prompt[0] : prompt[0] + len(prompt)] for prompt in prompts)
    assert agreement.prompts_from(ids, 200, longest=20) == prompts
    assert agreement.prompts_from(ids, 200, longest=20, seed=1) != prompts


def test_the_largest_of_logits_and_noise_is_a_draw_from_their_softmax():
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0], dtype=torch.float64)
    drawn = (logits + agreement.noise(0, 20_000, 4)).argmax(1)
    counts = torch.bincount(drawn, minlength=4).numpy()
    assert stats.chisquare(counts, 20_000 * logits.softmax(0).numpy()).pvalue > 1e-4
    assert torch.equal(agreement.noise(0, 5, 4), agreement.noise(0, 5, 4))
    assert not torch.equal(agreement.noise(0, 5, 4), agreement.noise(1, 5, 4))
    assert not agreement.noise(None, 5, 4).any()


@pytest.mark.parametrize("seeds", [None, range(6)])
def test_each_row_is_what_two_fresh_computations_give(seeds):
    model, prompts = small(), some_prompts()
    rows = agreement.measure(model, prompts, 5, seeds)
    assert rows[["prompt", "step"]].values.tolist() == [[p, s] for p in range(6) for s in range(5)]
    for i, prompt in enumerate(prompts):
        added = agreement.noise(None if seeds is None else seeds[i], 5, 31)
        sequence = list(prompt)
        for step in range(5):
            row = rows[(rows["prompt"] == i) & (rows["step"] == step)].iloc[0]
            with torch.no_grad():
                scores = model([sequence])[0, -1].double() + added[step]
            largest, second = scores.sort(descending=True).values[:2]
            assert row["gap"] == pytest.approx(float(largest - second), abs=1e-12)
            sequence.append(int(scores.argmax()))
    assert 0 < rows["difference"].max() < 1e-5
    assert (rows["error"].abs() <= 2 * rows["difference"]).all()
    assert rows["same"].all()


def test_float64_differs_far_less_than_float32_and_bfloat16_far_more():
    weights = charweights.flat(small())
    rows = agreement.across(SMALL, weights, some_prompts(), 6, range(6))
    assert list(rows.columns) == ["dtype", "prompt", "step", "difference", "gap", "error", "same"]
    largest = rows.groupby("dtype")["difference"].max()
    assert 0 < largest["float64"] < 1e-13
    assert 1e-8 < largest["float32"] < 1e-5
    assert 1e-4 < largest["bfloat16"] < 1

    told = agreement.summary(rows)
    assert told.index.tolist() == ["float64", "float32", "bfloat16"]
    assert told["difference"].to_dict() == largest.to_dict()
    assert (told["steps"] + told["ties"]).tolist() == [36] * 3
    assert told["a_million"].is_monotonic_increasing


@pytest.fixture
def noisy_cache(monkeypatch):
    """The cached path is wrong by some hundredths, so that draws flip now and then."""
    generator = torch.Generator().manual_seed(3)
    append = ConcatCache.append

    def rounded(self, k, v):
        shift = 0.4 * torch.randn(v.shape, generator=generator)
        return append(self, k, v + shift.to(v.dtype))

    monkeypatch.setattr(ConcatCache, "append", rounded)


def test_flips_are_where_the_error_exceeds_the_gap(noisy_cache, monkeypatch):
    model, whole, cached, forward = small(), [], [], CharModel.forward

    def seen(self, tokens, caches=None):
        if caches is None:
            whole.append(tokens[0])
        else:
            cached.extend(tokens[0] if len(caches[0]) else [None, *tokens[0]])
        return forward(self, tokens, caches)

    monkeypatch.setattr(CharModel, "forward", seen)
    rows = agreement.measure(model, some_prompts(60), 20, range(60))
    fed = [token for tokens in whole[19::20] for token in [None, *tokens]]
    assert cached == fed  # both paths are given the same tokens, also after a flip

    beaten = rows["gap"] + rows["error"] < 0
    assert beaten.sum() > 3
    assert not rows.loc[beaten, "same"].any()
    apart = ~rows["same"] & ~beaten  # a third token overtook both
    assert (rows.loc[apart, "gap"] < 2 * rows.loc[apart, "difference"]).all()
    assert apart.sum() < beaten.sum()
    told = agreement.expected_flips(rows)
    assert told["observed"] == (~rows["same"]).sum()
    assert told["low"] < told["expected"] < told["high"]


@pytest.mark.parametrize("scale", [0.0, 0.5])
def test_texts_part_exactly_where_a_forced_step_flips(scale, monkeypatch):
    """Each path left to itself gives the same text if, and only if, no forced step flips."""
    append = ConcatCache.append

    def shifted(self, k, v):
        places = torch.arange(len(self), len(self) + v.shape[2])[:, None]  # the same in any chunk
        return append(self, k, v + scale * torch.sin(places * 37.0))

    monkeypatch.setattr(ConcatCache, "append", shifted)
    model, prompts = small(), some_prompts(25)
    rows = agreement.measure(model, prompts, 12, range(25))
    agreed = rows.groupby("prompt")["same"].all()
    for i, prompt in enumerate(prompts):
        uncached, cached, _ = agreement.generate_twice(model, prompt, 12, i)
        assert (uncached == cached) == agreed[i]
        if not agreed[i]:
            first = rows[(rows["prompt"] == i) & ~rows["same"]]["step"].iloc[0]
            assert uncached[:first] == cached[:first]
            assert uncached[first] != cached[first]
    assert agreed.all() if scale == 0 else 0 < agreed.sum() < 25


def table(gaps, errors, same=True):
    return pd.DataFrame({"gap": gaps, "error": errors, "difference": np.abs(errors), "same": same})


def test_the_expected_number_counted_by_hand():
    """Step 0: 2 of the other 3 errors exceed 0.1; step 1: 1 of 3 exceeds 0.3; the rest: none."""
    told = agreement.expected_flips(table([0.1, 0.3, 2.0, 3.0], [0.9, -0.2, 0.4, 0.05]))
    assert told["expected"] == pytest.approx((2 / 3 + 2 / 3) / 2)
    equal = agreement.expected_flips(table([0.5, 2.0, 3.0], [0.5, 0.5, 0.25]))
    assert equal["expected"] == pytest.approx((1 / 2) / 2 / 2)  # step 0: one of two, and it ties
    alone = agreement.expected_flips(table([0.1, 3.0], [0.9, 0.05]))
    assert alone["expected"] == 0  # the step's own error has no say


def test_the_expected_number_is_right_for_draws_whose_law_is_known():
    rng = np.random.default_rng(0)
    gaps, errors = rng.exponential(1.0, 40_000), rng.normal(0, 0.05, 40_000)
    told = agreement.expected_flips(table(gaps, errors, gaps + errors >= 0))
    exact = 40_000 * 0.05 / math.sqrt(2 * math.pi)  # n f(0) E|e| / 2, for small errors
    assert told["expected"] == pytest.approx(exact, rel=0.05)
    assert told["a_million"] == pytest.approx(exact * 25, rel=0.1)
    assert told["low"] < told["expected"] < told["high"]
    assert told["steps"] == 40_000


def test_the_interval_is_the_exact_one_of_a_poisson_count():
    told = agreement.expected_flips(table([1.0] * 9, [0.0] * 9, [False] * 4 + [True] * 5))
    assert told["observed"] == 4
    assert stats.poisson.sf(3, told["low"]) == pytest.approx(0.025)
    assert stats.poisson.cdf(4, told["high"]) == pytest.approx(0.025)
    none = agreement.expected_flips(table([1.0, 1.0], [0.0, 0.0]))
    assert (none["observed"], none["low"]) == (0, 0)
    assert none["high"] == pytest.approx(-math.log(0.025))


def test_ties_stand_apart():
    rows = table([0.0, 0.0, 1.0, 2.0], [0.1, 0.0, 0.1, 0.1], [False, True, True, True])
    told = agreement.expected_flips(rows)
    assert (told["ties"], told["tied_flips"], told["steps"], told["observed"]) == (2, 1, 2, 0)


def test_of_tied_logits_the_first_is_drawn():
    model = small()
    with torch.no_grad():
        model.head.weight[7], model.head.weight[19] = 0.0, 0.0
        model.head.bias[7] = model.head.bias[19] = 50.0
    rows = agreement.measure(model, [[1, 2]], 3)
    assert rows["gap"].tolist() == [0, 0, 0]
    assert rows["same"].all()
    assert model.generate([1, 2], 3) == [7, 7, 7]


def test_the_source_s_experiment():
    uncached, cached, difference = agreement.generate_twice(small(), [3], 40, seed=2)
    assert uncached == cached
    assert len(uncached) == 40
    assert 0 < difference < 1e-5
    model = small(torch.float64)
    *_, drawn = model.generate([3], 40, choose=lambda logits: logits.argmax())
    assert agreement.generate_twice(model, [3], 40)[0][-1] == drawn


def test_the_final_logits_are_those_that_drew_the_last_token(monkeypatch):
    seen = []

    class Model(CharModel):
        def generate(self, prompt, n_new, caches=None, choose=None):
            for step in range(n_new):
                wrong = step / 8 + (0.5 if caches else 0) * (step == n_new - 1)
                seen.append(wrong)
                choose(torch.full((31,), wrong))
            return []

    assert agreement.generate_twice(Model(SMALL), [1], 4)[2] == 0.5
    assert len(seen) == 8


def test_what_cannot_be_compared():
    model = small()
    with pytest.raises(ValueError, match="2 prompts need as many seeds, not 3"):
        agreement.measure(model, [[1], [2]], 3, range(3))
    with pytest.raises(ValueError, match="n_new must be at least 1"):
        agreement.measure(model, [[1]], 0)
    with pytest.raises(ValueError, match="pass the context of 48"):
        agreement.measure(model, [[1] * 47], 3)
    with pytest.raises(ValueError, match="text has 3"):
        agreement.prompts_from([1, 2, 3], 2, longest=4)
    with pytest.raises(ValueError, match="two steps or more"):
        agreement.expected_flips(table([1.0], [0.0]))
    with pytest.raises(ValueError, match="n_new must be at least 1"):
        agreement.generate_twice(model, [1], 0)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_not_compared(monkeypatch, wrong):
    model = small()
    model.head.bias.data[3] = wrong
    with pytest.raises(FloatingPointError, match=r"prompt 0, step 0: .* check the weights"):
        agreement.measure(model, [[1]], 3)
    monkeypatch.setattr(ConcatCache, "append", lambda self, k, v: (k, v * wrong))
    with pytest.raises(FloatingPointError, match="not finite"):  # of the cached path alone
        agreement.measure(small(), [[1]], 3)
