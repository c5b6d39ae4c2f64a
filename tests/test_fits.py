"""Fits of times over lengths: what they find where the answer is known, and what they refuse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labsupport import derivation_source, fits

N = np.array([64, 128, 256, 512, 1024])


@given(st.floats(-3, 4), st.floats(1e-6, 1e6))
def test_a_power_law_is_found(exponent, constant):
    fit = fits.power_law(N, constant * N**exponent)
    assert fit.exponent == pytest.approx(exponent, abs=1e-9)
    assert fit.terms[fit.exponent] == pytest.approx(constant, rel=1e-6)
    assert fit.worst < 1e-9
    assert fits.local_exponents(N, constant * N**exponent) == pytest.approx(
        [exponent] * 4, abs=1e-9
    )


@given(st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=3))
def test_a_sum_of_powers_is_found(coefficients):
    wanted = dict(zip((1, 2, 3), (coefficients / 64.0 ** np.arange(3)).tolist(), strict=True))
    times = sum(c * N.astype(float) ** p for p, c in wanted.items())
    fit = fits.sum_of_powers(N, times, (1, 2, 3))
    assert fit.worst < 1e-6
    assert fit.terms == pytest.approx(wanted, rel=1e-4)


def test_a_coefficient_is_never_negative():
    fit = fits.sum_of_powers(N, 3.0 * N**2 - 2 * N, (1, 2))
    assert fit.terms[1] == 0
    assert fit.terms[2] == pytest.approx(3, rel=0.05)


def test_misses_are_relative_to_what_was_measured():
    """By hand, in powers of two: slopes 1 and 2 make 1.5, and the line lies 1/6, -1/3, 1/6 off."""
    fit = fits.power_law([1, 2, 4], [1, 2, 8])
    assert fit.exponent == pytest.approx(1.5)
    assert fit.misses == pytest.approx(2 ** np.array([-1 / 6, 1 / 3, -1 / 6]) - 1)
    assert fit.worst == pytest.approx(2 ** (1 / 3) - 1)


def test_a_sum_has_no_exponent():
    with pytest.raises(ValueError, match="unpack"):
        _ = fits.sum_of_powers(N, N**2).exponent


def noisy(spread, n_rounds=40, slow=None):
    rng = np.random.default_rng(3)
    rounds = 5.0 * N**1.5 * (1 + spread * rng.standard_normal((n_rounds, len(N))))
    if slow is not None:
        rounds[slow] *= 3
    return rounds


def test_an_interval_holds_the_exponent_and_narrows_with_rounds():
    low, high = fits.interval(N, noisy(0.05))
    assert low < 1.5 < high
    wide = fits.interval(N, noisy(0.05, n_rounds=5))
    assert high - low < 0.7 * (wide[1] - wide[0])


def test_an_interval_of_equal_rounds_is_a_point():
    low, high = fits.interval(N, noisy(0))
    assert low == pytest.approx(high, abs=1e-12) == pytest.approx(1.5)


def test_a_round_is_drawn_as_a_whole():
    """What slows all lengths of a round leaves the exponent where it is."""
    low, high = fits.interval(N, noisy(0) * np.linspace(1, 3, 40)[:, None])
    assert high - low < 1e-9


def test_an_interval_of_another_statistic():
    low, high = fits.interval(N, noisy(0.01), of=lambda n, times: times[-1] / times[0])
    assert low < 64 < high
    assert high / low < 1.05


@pytest.mark.parametrize(
    ("n", "times", "message"),
    [
        ([1, 2], [1], "one time for each"),
        ([[1, 2]], [[1, 2]], "one time for each"),
        ([2, 2], [1, 2], "2 different lengths"),
        ([1, 2], [1, 0], "positive"),
        ([0, 2], [1, 1], "positive"),
        ([1, 2], [1, float("nan")], "positive and finite"),
        ([1, 2], [1, float("inf")], "positive and finite"),
    ],
)
def test_what_cannot_be_fitted_is_refused(n, times, message):
    with pytest.raises(ValueError, match=message):
        fits.power_law(n, times)


def test_as_many_lengths_as_powers_are_needed():
    with pytest.raises(ValueError, match="3 different lengths"):
        fits.sum_of_powers([1, 2], [1, 2], (1, 2, 3))


@pytest.mark.parametrize("rounds", [np.ones((1, 5)), np.ones(5)])
def test_one_round_has_no_interval(rounds):
    with pytest.raises(ValueError, match="two or more"):
        fits.interval(N, rounds)


# The source's own table


def test_the_sources_exponents_and_misses():
    table = derivation_source.length()
    uncached, cached = (
        fits.power_law(table.index, table[f"{p}_ms"]) for p in ("uncached", "cached")
    )
    assert (round(uncached.exponent, 2), round(cached.exponent, 2)) == (1.80, 1.15)
    assert uncached.worst == pytest.approx(0.2335, abs=1e-4)
    assert cached.worst == pytest.approx(0.1076, abs=1e-4)


def test_its_uncached_side_needs_a_term_for_each_step():
    """n² and n³ alone miss what every step costs whatever its length."""
    table = derivation_source.length()
    pair = fits.sum_of_powers(table.index, table["uncached_ms"], (2, 3))
    three = fits.sum_of_powers(table.index, table["uncached_ms"], (1, 2, 3))
    assert pair.worst > 0.3
    assert three.worst < 0.07
    assert all(c > 0 for c in three.terms.values())
