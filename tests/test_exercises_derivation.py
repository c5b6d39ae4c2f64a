"""The exercises of chapter 3: marks, words, and the checks' truths."""

import ast

import numpy as np
import pandas as pd
from exercise_answers_derivation import SHEET

from labsupport import (
    arithmetic,
    checks_derivation_draws,
    checks_derivation_steps,
    derivation_source,
)
from labsupport.charmodel import CharConfig


def test_the_counts_shown_are_those_of_a_model():
    cell = next(c for c in SHEET.cells if c.source.startswith("counts = "))
    shown = eval(ast.unparse(ast.parse(cell.source).body[0].value), {"pd": pd})
    config = CharConfig(vocab_size=61, d_model=96, n_blocks=4)
    for new, n_tokens, count in shown.itertuples(index=False):
        assert count == sum(arithmetic.multiplications(config, new, n_tokens).values())


def test_the_question_states_what_the_source_printed():
    text = " ".join(c.source for c in SHEET.notebook.cells if c.cell_type == "markdown")
    said = derivation_source.stated()
    for side in ("uncached", "cached"):
        assert f"{said[f'{side}_exponent']:.2f}" in text
        assert f"misses up to {said[f'{side}_miss']:.1f} %" in " ".join(text.split())
    assert f"{said['logit_difference']:.2e}" in text


def test_the_check_reads_as_the_package_does():
    q, k, v, keys, values = checks_derivation_steps.inputs(6, 2, 5)
    want, keys, values = checks_derivation_steps.step(q, k, v, keys, values)
    assert np.abs(checks_derivation_steps.read(q, keys, values) - want).max() < 1e-14
    for mistake in ({"scale": 1}, {"axis": 0}, {"dealt": True}):
        assert np.abs(checks_derivation_steps.read(q, keys, values, **mistake) - want).max() > 0.01


def test_raised_scores_are_large_and_change_nothing():
    low, high = (checks_derivation_steps.inputs(2, 2, 4, lifted) for lifted in (0, 2000))
    scores = [np.einsum("hd,htd->ht", q, keys) / 8**0.5 for q, _, _, keys, _ in (low, high)]
    np.testing.assert_allclose(scores[1] - scores[0], 2000)
    a, b = (checks_derivation_steps.step(*given)[0] for given in (low, high))
    assert np.abs(a - b).max() < 1e-9


def test_slots_behind_the_filled_ones_hold_zeros_or_old_tokens():
    for old in (0, 1):
        _, keys, values, _ = checks_derivation_steps.slots(11, held=9, old=old, dtype=float)
        assert keys[:9].all()
        assert values[:9].all()
        assert (keys[9:] != 0).all() == (values[9:] != 0).all() == bool(old)


def test_chances_are_those_of_simulated_draws():
    rng, n = np.random.default_rng(6), 200_000
    p, r = rng.dirichlet(np.ones(5)), rng.dirichlet(np.ones(5))
    running, gumbel, least = checks_derivation_draws.chances(np.log(p), np.log(r))
    u, noise = rng.random(n), rng.gumbel(size=(n, 5))
    draws = [np.searchsorted(np.cumsum(x), u, side="right") for x in (p, r)]
    races = [(np.log(x) + noise).argmax(axis=1) for x in (p, r)]
    for chance, (a, b) in ((running, draws), (gumbel, races)):
        assert abs((a != b).mean() - chance) < 5 * (chance * (1 - chance) / n) ** 0.5
    assert 0 < least < gumbel < 2 * least
    assert least < running
