"""The figures of chapter 3 are held to their data, by reading what was drawn."""

from itertools import accumulate, pairwise

import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from figure_reading import (
    check_labels,
    check_nothing_covered,
    closed,  # noqa: F401
    color_of,
    drawing,
    intervals,
    named,
    spans,
    ticks,
)
from matplotlib.colors import same_color
from sample_derivation import (
    BENCH,
    BOUND,
    CHANGES,
    CURVE,
    DRAW,
    FITTED,
    FLOOR_US,
    LENGTHS,
    OVER_D,
    OVER_N,
    PATHS,
    PREDICTED_US,
    RIVALS,
    RUNGS,
    SIDES,
    SOURCE_D,
    SOURCE_N,
    STEPS,
    TERMS,
    TIMES_MS,
)

from labsupport import figures, figures_derivation


def lines(ax, color):
    """The lines of this colour that join points."""
    found = [line for line in ax.lines if same_color(line.get_color(), color)]
    return [line for line in found if line.get_linestyle() != "None"]


def labelled(ax):
    """Label -> the points of the line that carries it."""
    return {line.get_label(): line.get_xydata() for line in ax.lines}


def test_every_figure_is_held_to_its_data_here():
    assert set(DRAW) == drawing(figures_derivation)


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("redundancy", "activations after", "largest change of an\nearlier token"),
        ("step_terms", "predicted / measured", None),
        ("collected", "width d_model", "collected share (%)"),
        ("ladder", "time of a token (µs", None),
        ("flips", "difference of the two leading draws", "steps (%)"),
        ("losses", "training step", "loss (nats a character)"),
        ("speedups", "tokens generated", ""),
        ("growth", "tokens generated", ""),
    ],
)
def test_axes_say_what_they_show_and_in_which_unit(name, x, y):
    check_labels(DRAW[name](), x, y)


def test_panels_of_different_things_are_named_each():
    said = [ax.get_ylabel() for ax in DRAW["speedups"]().axes]
    assert ["uncached / cached" in said[0], "collected share (%)" in said[1]] == [True, True]
    said = [ax.get_ylabel() for ax in DRAW["growth"]().axes]
    assert ["time of a loop (ms" in said[0], "miss of the fit (%)" in said[1]] == [True, True]


@pytest.mark.parametrize("name", DRAW)
def test_no_text_is_cut_and_nothing_is_covered(name):
    with plt.rc_context():
        figures.use_house_style()
        check_nothing_covered(DRAW[name]())


@pytest.mark.parametrize("name", ["speedups", "growth", "collected", "ladder"])
def test_log_ticks_are_plain_numbers_in_sight(name):
    for ax in DRAW[name]().axes:
        for axis in (ax.xaxis, ax.yaxis):
            if axis.get_scale() == "log":
                low, high = axis.get_view_interval()
                shown = {at: said for at, said in ticks(axis).items() if low <= at <= high}
                assert len(shown) >= 3
                assert all(float(said) == pytest.approx(at) for at, said in shown.items())


@pytest.mark.parametrize("changes", [CHANGES, CHANGES.iloc[1:], CHANGES * 2])
def test_changes_stand_at_their_value_and_no_change_at_0(changes):
    ax = figures_derivation.redundancy(changes).axes[0]
    at = {said: place for place, said in ticks(ax.yaxis).items()}
    assert ("0" in at) == (changes == 0).any(axis=None)
    drawn = labelled(ax)
    assert list(drawn) == list(changes) == list(named(ax))
    assert len(set(named(ax).values())) == changes.shape[1]
    for name, points in drawn.items():
        wanted = [at["0"] if value == 0 else value for value in changes[name]]
        np.testing.assert_allclose(points[:, 1], wanted)
        np.testing.assert_allclose(points[:, 0], range(len(changes)), atol=0.2)
        assert all(at.get("0", 0) < value for value in changes[name] if value)
    assert list(ticks(ax.xaxis).values()) == list(changes.index)
    beside = {tuple(points[:, 0]) for points in drawn.values()}
    assert len(beside) == changes.shape[1]  # where they are equal, all can be seen


@pytest.mark.parametrize(
    ("cells", "source", "by"), [(OVER_N, SOURCE_N, "n_tokens"), (OVER_D, SOURCE_D, "d_model")]
)
def test_speedups_stand_beside_the_promise_and_the_source(cells, source, by):
    above, below = figures_derivation.speedups(cells, source, by, PATHS).axes
    drawn = intervals(above)
    assert list(drawn) == PATHS
    for path, (color, points) in drawn.items():
        columns = [by, path, f"{path}_low", f"{path}_high"]
        np.testing.assert_allclose(points, cells[columns])
        (share,) = lines(below, color)
        np.testing.assert_allclose(share.get_xdata(), cells[by])
        np.testing.assert_allclose(share.get_ydata(), 100 * cells[path] / cells["arithmetic"])
        assert same_color(named(above)[path], color)
    assert len({color for color, _ in drawn.values()}) == len(PATHS)
    np.testing.assert_allclose(labelled(above)["multiplications"], cells[[by, "arithmetic"]])
    theirs = labelled(above)["source's clock"]
    np.testing.assert_allclose(theirs, source["measured"].reset_index())
    (crosses,) = (line for line in below.lines if line.get_marker() == "x")
    shares = 100 * source["measured"] / source["arithmetic"]
    np.testing.assert_allclose(crosses.get_xydata(), shares.reset_index())
    assert set(ticks(below.xaxis)) == {*cells[by], *source.index}
    assert below.get_ylim()[0] == 0
    word = {"n_tokens": "tokens", "d_model": "width"}[by]
    assert word in below.get_xlabel()


def test_growth_shows_times_curves_and_by_how_much_these_miss():
    above, below = figures_derivation.growth(LENGTHS, TIMES_MS, FITTED).axes
    colors = named(above)
    for side, times in TIMES_MS.items():
        color = colors[f"{side}, measured"]
        np.testing.assert_allclose(
            labelled(above)[f"{side}, measured"], np.column_stack([LENGTHS, times])
        )
        misses = lines(below, color)
        assert len(misses) == len(FITTED[side])
        for line, (name, fit) in zip(misses, FITTED[side].items(), strict=True):
            curve = labelled(above)[f"{side}, {name}"]
            assert (curve[0, 0], curve[-1, 0]) == pytest.approx((LENGTHS[0], LENGTHS[-1]))
            for end in (0, -1):
                assert curve[end, 1] == pytest.approx(fit.fitted[end])
            np.testing.assert_allclose(line.get_xdata(), LENGTHS)
            np.testing.assert_allclose(line.get_ydata(), 100 * (fit.fitted / times - 1))
            assert same_color(colors[f"{side}, {name}"], color)
            (above_line,) = (x for x in above.lines if x.get_label() == f"{side}, {name}")
            assert above_line.get_linestyle() == line.get_linestyle()
    assert len(set(colors.values())) == len(TIMES_MS)
    assert set(ticks(below.xaxis)) == set(LENGTHS)


@pytest.mark.parametrize("factor", [1.0, 1.2])
def test_terms_are_stacked_over_what_was_measured(factor):
    sides = {side: (terms, factor * measured) for side, (terms, measured) in SIDES.items()}
    fig = figures_derivation.step_terms(sides)
    assert list(named(fig)) == TERMS
    assert len(set(named(fig).values())) == len(TERMS)
    for ax, (side, (terms, measured)) in zip(fig.axes, sides.items(), strict=True):
        assert ax.get_title("left") + ax.get_title() == side
        written = [text.get_text() for text in ax.texts]
        assert written == [f"{measured[cell] / 1000:,.0f} µs" for cell in terms.index]
        for cell, ns in terms.iterrows():
            ends = [0.0, *accumulate(ns / measured[cell])]
            found = [spans(ax, cell, color) for color in named(fig).values()]
            assert found == [[pair] for pair in pairwise(ends)]
            assert ends[-1] < ax.get_xlim()[1]
        (one,) = (line for line in ax.lines if set(line.get_xdata()) == {1})
        assert one.get_color() == "black"
    assert fig.axes[0].yaxis_inverted()  # the first cell on top


def test_collected_shares_stand_beside_prediction_and_bound():
    ax = figures_derivation.collected(OVER_D, BOUND, PATHS).axes[0]
    drawn = intervals(ax)
    assert list(drawn) == [f"{path}, measured" for path in PATHS]
    for path in PATHS:
        color, points = drawn[f"{path}, measured"]
        shares = [
            100 * OVER_D[f"{path}{end}"] / OVER_D["arithmetic"] for end in ("", "_low", "_high")
        ]
        np.testing.assert_allclose(points, np.column_stack([OVER_D["d_model"], *shares]))
        (line,) = (x for x in ax.lines if x.get_label() == f"{path}, predicted")
        assert (line.get_linestyle(), same_color(line.get_color(), color)) == ("--", True)
        predicted = 100 * OVER_D[f"{path}_predicted"] / OVER_D["arithmetic"]
        np.testing.assert_allclose(line.get_ydata(), predicted)
    np.testing.assert_allclose(labelled(ax)["bound"][:, 1], 100 * np.array(BOUND))
    assert set(ticks(ax.xaxis)) == set(OVER_D["d_model"])
    assert ax.get_ylim()[0] == 0


def test_each_rung_and_rival_has_a_row_beside_the_floor():
    ax = figures_derivation.ladder(BENCH, RUNGS, RIVALS, PREDICTED_US, FLOOR_US).axes[0]
    assert list(ticks(ax.yaxis).values()) == [*RUNGS, *RIVALS]
    assert ax.yaxis_inverted()  # the first rung on top
    drawn = intervals(ax, along="x")
    rows = {"ours": RUNGS, "others": RIVALS}
    assert set(drawn) == set(rows)
    for label, (color, points) in drawn.items():
        found = [ticks(ax.yaxis)[round(y)] for y in points[:, 1]]
        assert found == rows[label]
        wanted = BENCH.loc[found, ["us", "us_low", "us_high"]]
        np.testing.assert_allclose(points[:, [0, 2, 3]], wanted)
        assert same_color(named(ax)[label], color)
    predicted = {ticks(ax.yaxis)[y]: us for us, y in labelled(ax)["predicted"]}
    assert predicted == PREDICTED_US.to_dict()
    assert set(labelled(ax)["floor"][:, 0]) == {FLOOR_US}
    assert ax.get_xlim()[0] < FLOOR_US


def test_errors_and_gaps_are_counted_whole_a_panel_a_dtype():
    fig = figures_derivation.flips(STEPS)
    assert list(named(fig)) == ["error", "gap"]
    (zero,) = (at for at, said in ticks(fig.axes[-1].xaxis).items() if said == "0")
    for ax, (dtype, part) in zip(fig.axes, STEPS.groupby("dtype", sort=False), strict=True):
        n_flips = (~part["same"]).sum()
        title = f"{dtype}: {n_flips} of {len(part)} steps flip"
        assert ax.get_title("left") + ax.get_title() == title
        for name, values in (("error", part["error"].abs()), ("gap", part["gap"])):
            color = named(fig)[name]
            bars = [bar for bar in ax.patches if same_color(color_of(bar), color)]
            assert sum(bar.get_height() for bar in bars) == pytest.approx(100)
            for bar in bars:
                left, right = bar.get_x(), bar.get_x() + bar.get_width()
                held = values.replace(0, zero).between(left, right, inclusive="left")
                assert bar.get_height() == pytest.approx(100 * held.mean())


def test_the_losses_are_those_of_the_curve():
    ax = figures_derivation.losses(CURVE).axes[0]
    for label, column in {"training": "training", "held out": "held_out"}.items():
        np.testing.assert_array_equal(labelled(ax)[label], CURVE[["step", column]])
    assert list(named(ax)) == ["training", "held out"]
    assert ax.get_ylim()[0] == 0


def test_more_names_than_can_be_told_apart_are_refused():
    more = CHANGES.assign(fourth=1.0, fifth=2.0)
    assert len(named(figures_derivation.redundancy(more).axes[0])) == 5
    with pytest.raises(ValueError, match=r"at most 5 can be told apart, not .*sixth"):
        figures_derivation.redundancy(more.assign(sixth=3.0))
    four = {"uncached": {f"{i}": FITTED["uncached"]["power law"] for i in range(4)}}
    with pytest.raises(ValueError, match="at most 3"):
        figures_derivation.growth(LENGTHS, {"uncached": TIMES_MS["uncached"]}, four)


def test_a_row_without_its_cell_is_refused():
    terms, measured = SIDES["cached"]
    with pytest.raises(KeyError):
        figures_derivation.step_terms({"cached": (terms, measured.iloc[1:])})
    assert isinstance(measured, pd.Series)
