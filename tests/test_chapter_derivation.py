"""Chapter 3 shows its key steps in full; here they are held to the package's own."""

import numpy as np
import pandas as pd
import pytest
import torch
from lesson_code import Lesson, run, value
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from labsupport import (
    arithmetic,
    charcache,
    charmodel,
    charweights,
    derivation_source,
    roofline,
    training,
)

LESSON = Lesson(
    "derivation",
    np=np,
    torch=torch,
    F=F,
    arithmetic=arithmetic,
    charcache=charcache,
    charmodel=charmodel,
    SDPBackend=SDPBackend,
    sdpa_kernel=sdpa_kernel,
    FlopCounterMode=FlopCounterMode,
)
shown, source_of, solution = LESSON.shown, LESSON.source_of, LESSON.solution
PROSE = LESSON.prose
CONFIG = charmodel.CharConfig(vocab_size=30, context=24, d_model=16, n_blocks=2, n_heads=4)


@pytest.fixture(scope="module")
def model():
    return charmodel.CharModel(CONFIG, seed=1)


@pytest.fixture(scope="module")
def tokens():
    return np.random.default_rng(2).integers(CONFIG.vocab_size, size=CONFIG.context).tolist()


def test_the_pages_step_is_the_packages(model, tokens):
    step = shown("cached_step")
    assert shown("steps_agree", cached_step=step)(model, tokens) < 1e-5

    def without_values(model, token, keys, values):
        values[:] = [torch.zeros_like(v) for v in values]
        return step(model, token, keys, values)

    assert shown("steps_agree", cached_step=without_values)(model, tokens) > 1e-4


def test_both_loops_of_the_page_draw_what_the_package_draws(model):
    noises = torch.from_numpy(np.random.default_rng(0).gumbel(size=(20, CONFIG.vocab_size)))
    sample = shown("sample")
    again = shown("generate_again", sample=sample)
    cached = shown("generate_cached", sample=sample, cached_step=shown("cached_step"))
    steps = iter(noises)
    wanted = model.generate([3, 4], 20, choose=lambda logits: (logits + next(steps)).argmax())
    assert again(model, [3, 4], noises)[2:] == wanted
    assert cached(model, [3, 4], noises)[2:] == wanted


def test_a_draw_has_the_probabilities_of_softmax():
    logits = torch.tensor([0.0, 1.0, 2.0])
    noises = torch.from_numpy(np.random.default_rng(0).gumbel(size=(20_000, 3)))
    drawn = np.bincount([shown("sample")(logits, noise) for noise in noises], minlength=3)
    assert drawn / len(noises) == pytest.approx(logits.softmax(0).tolist(), abs=0.015)


def test_only_the_mask_keeps_earlier_rows(model, tokens):
    change = shown("change")
    assert max(change(model, tokens)) < 1e-5
    assert max(change(model, tokens, causal=False)) > 1e-4


@pytest.mark.parametrize("sizes", [[24], [1] * 24, [7, 3, 14]])
def test_chunks_of_the_page_equal_one_piece(model, tokens, sizes):
    whole = model(torch.tensor([tokens]))
    assert (shown("chunked")(model, tokens, sizes) - whole).abs().max() < 1e-5


@pytest.mark.parametrize(("d", "n"), [(128, 64), (256, 256), (1024, 256)])
def test_the_pages_formula_is_the_printed_one(d, n):
    assert shown("by_formula")(d, n) == pytest.approx(arithmetic.printed(d, n))


def test_only_a_head_at_every_position_gives_the_printed_table():
    candidate = shown("candidate")
    cell = LESSON.cell("tries = {")
    names = {"candidate": candidate, "cases": [], "printed": {"the source printed": []}}
    tries = run(cell[cell.index("tries = {") :], names)["tries"]
    fits = {
        name: all(round(float(candidate(d, n, **options)), 1) == r for d, n, r in TABLE)
        for name, options in tries.items()
    }
    assert [name for name, fit in fits.items() if fit] == ["head at every position, V = 100"]
    for d, n, _ in TABLE:
        sized = charmodel.CharConfig(context=max(n, 128), d_model=d)
        assert candidate(d, n, V=100) == pytest.approx(arithmetic.ratio(sized, n))


TABLE = derivation_source.ratios()


@pytest.mark.parametrize(("n_new", "n_tokens"), [(24, 24), (1, 24), (5, 24)])
def test_torch_counts_what_the_closed_form_says(model, n_new, n_tokens):
    by_form = sum(arithmetic.multiplications(CONFIG, n_new, n_tokens).values())
    assert shown("counted")(model, n_new, n_tokens) == by_form


def test_the_mask_of_the_solution_is_the_packages():
    chunk_mask = run(solution("The mask of a chunk"), LESSON.names)["chunk_mask"]
    for n_tokens in range(1, 21):
        for n_new in range(1, n_tokens + 1):
            ours = chunk_mask(n_new, n_tokens)
            assert np.array_equal(ours, charmodel.causal_mask(n_new, n_tokens).numpy())
            top_left = np.tri(n_new, n_tokens, dtype=bool)
            assert np.array_equal(ours, top_left) == (n_new == n_tokens)


def test_a_position_off_by_one_shows_in_the_logits_of_the_recorded_model():
    right = source_of("cached_step")
    wrong = right.replace("shape[1]]", "shape[1] + 1]")
    assert wrong != right
    assert 'right.replace("shape[1]]", "shape[1] + 1]")' in solution("Off by one")
    model = charweights.model(*training.recorded())
    off = shown("steps_agree", cached_step=run(wrong, LESSON.names)["cached_step"])
    assert off(model, [5]) > 0.1  # from the first step on


def test_the_head_of_gpt2():
    factor, every, only_last = value(solution("The head of a real model"), LESSON.names)
    for figure in (f"factor of {factor:.2f}", f"from {only_last:.0f} to {every:.0f}"):
        assert figure in PROSE
    assert f"{768 * 50257 / 1e6:.1f} million multiplications a row" in PROSE
    assert f"together {12 * 12 * 768**2 / 1e6:.1f}" in PROSE


def test_the_batch_that_collects_half():
    a100 = roofline.ACCELERATORS[0]
    ridge = a100.flops_per_s / a100.bytes_per_s
    assert f"ridge point is {ridge:.0f} FLOPs" in PROSE
    assert f"$B \\approx {ridge / 2:.0f}$" in PROSE
    assert roofline.bound(ridge / 2, a100.flops_per_s, a100.bytes_per_s) == pytest.approx(0.5)


def test_texts_part_with_probability_one_half():
    flips = pd.DataFrame({"observed": [11], "steps": [3200]}, index=["bfloat16"])
    n = value(solution("When do two texts part?"), {"flips": flips, "np": np})
    assert (1 - 11 / 3200) ** n == pytest.approx(0.5, rel=0.01)


def test_every_claim_of_the_ledger_is_shown_in_the_chapter():
    assert LESSON.claims_shown() == LESSON.claims_of_ledger()
