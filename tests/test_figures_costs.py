"""The figures of chapter 2 are held to their data, by reading what was drawn."""

from itertools import accumulate, pairwise
from statistics import median

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
from sample_costs import (
    ANSWERS,
    CELLS,
    DRAW,
    LIVE,
    MEASURED,
    MEDIANS,
    NOISES,
    PATHS,
    RATES,
    RECORDED,
    RUNS,
    TERMS,
    TOOLS,
    WIDTHS,
    expected,
)

from labsupport import figures, figures_costs


def flat(ax, y):
    """Whether there is a line right across the panel at this height."""
    return ({0, 1}, {y}) in [(set(line.get_xdata()), set(line.get_ydata())) for line in ax.lines]


def test_every_figure_is_held_to_its_data_here():
    assert set(DRAW) == drawing(figures_costs)


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("totals", "total time of a query (µs", "share of queries"),
        ("decomposition", "time of a query (µs)", None),
        ("hit_rates", "share of queries that hit", "time with reuse /\ntime without"),
        ("terms", "time (µs)", None),
        ("predictions", "measured median time of a query (µs", "predicted / measured"),
        ("breakeven_map", "width", "share of"),
        ("cut", "width", "frozen / full"),
        ("instruments", "share of trials", None),
    ],
)
def test_axes_say_what_they_show_and_in_which_unit(name, x, y):
    check_labels(DRAW[name](), x, y)


@pytest.mark.parametrize("name", DRAW)
def test_no_text_is_cut_and_nothing_is_covered(name):
    with plt.rc_context():
        figures.use_house_style()
        check_nothing_covered(DRAW[name]())


@pytest.mark.parametrize("name", ["totals", "predictions"])
def test_log_ticks_are_plain_numbers_in_sight(name):
    ax = DRAW[name]().axes[0]
    low, high = ax.get_xlim()
    shown = {place: said for place, said in ticks(ax.xaxis).items() if low <= place <= high}
    assert len(shown) >= 3
    assert all(float(said) == place for place, said in shown.items())


def test_each_step_curve_counts_the_queries_that_took_at_most_so_long():
    ax = figures_costs.totals(RUNS).axes[0]
    assert list(named(ax)) == PATHS
    for path, color in named(ax).items():
        us = [ns / 1000 for other, ns in RUNS.itertuples(index=False) if other == path]
        curve, dot = (line for line in ax.lines if same_color(line.get_color(), color))
        assert curve.get_drawstyle() == "steps-post"
        assert dict(curve.get_xydata()) == {t: sum(u <= t for u in us) / len(us) for t in us}
        assert (dot.get_marker(), *dot.get_xydata()[0]) == ("o", median(us), 0.5)
    assert flat(ax, 0.5)


@pytest.mark.parametrize("tables", [MEDIANS, {"theirs": MEDIANS["theirs"]}])
def test_the_parts_of_a_query_are_stacked_in_order(tables):
    ax = figures_costs.decomposition(tables).axes[0]
    parts = ["signature", "lookup", "copy", "continuation", "residual"]
    assert list(named(ax)) == parts
    assert len(set(named(ax).values())) == len(parts)
    rows = {f"{o}, {path}": t.loc[path] for o, t in tables.items() for path in t.index}
    assert list(ticks(ax.yaxis).values()) == list(rows)
    assert ax.yaxis_inverted()  # the first row on top
    for row, us in rows.items():
        widths = [0.0 if pd.isna(us.get(part)) else us[part] for part in parts]
        ends = [0.0, *accumulate(widths)]
        drawn = [spans(ax, row, color) for color in named(ax).values()]
        assert drawn == [[pair] for pair in pairwise(ends)]
    assert ax.get_xlim()[0] == 0 < 301 < ax.get_xlim()[1]


def test_hit_rates_show_what_was_expected_beside_what_was_measured():
    ax = figures_costs.hit_rates(expected, RATES).axes[0]
    curves = {line.get_label(): line for line in ax.lines}
    for case, (cost, table) in RATES.items():
        color, points = intervals(ax)[f"{case}, measured"]
        np.testing.assert_allclose(points, table)
        x, y = curves[f"{case}, expected"].get_xydata().T
        assert (x.min(), x.max()) == (0, 1)
        wanted = [(cost["miss"] - r * r * (cost["miss"] - cost["hit"])) / cost["fresh"] for r in x]
        np.testing.assert_allclose(y, wanted)
        for kind in ("expected", "measured"):
            assert same_color(named(ax)[f"{case}, {kind}"], color)
        assert same_color(curves[f"{case}, expected"].get_color(), color)
    assert len(set(named(ax).values())) == 2
    assert len(named(ax)) == 4
    assert flat(ax, 1)
    assert ax.get_ylim()[0] == 0


def test_terms_are_stacked_and_marked_with_what_was_measured():
    ax = figures_costs.terms(TERMS, MEASURED).axes[0]
    colors = named(ax)
    assert list(colors) == [*TERMS, "measured"]
    assert len(set(colors.values())) == 5
    for row, us in TERMS.iterrows():
        ends = [0.0, *accumulate(us)]
        assert [spans(ax, row, colors[term]) for term in TERMS] == [
            [pair] for pair in pairwise(ends)
        ]
    (marks,) = ax.collections
    assert color_of(marks) == colors["measured"]
    for y, mark in enumerate(marks.get_segments()):
        assert set(mark[:, 0]) == {MEASURED[ticks(ax.yaxis)[y]]}
        assert mark[:, 1].mean() == y
        assert 0.3 < np.ptp(mark[:, 1]) / 2 < 0.5  # longer than the bar is wide, within its row
    assert ax.yaxis_inverted()
    assert ax.get_xlim()[0] == 0 < max(MEASURED) < ax.get_xlim()[1]


def test_predictions_are_shown_over_measurements_however_far_off():
    ax = figures_costs.predictions(CELLS).axes[0]
    (band,) = ax.patches
    assert (band.get_y(), band.get_y() + band.get_height()) == pytest.approx((0.8, 1.2))
    assert flat(ax, 1)
    assert list(named(ax)) == ["within 20 %", *PATHS]
    assert same_color(band.get_facecolor(), named(ax)["within 20 %"])
    markers = set()
    for path in PATHS:
        (points,) = (p for p in ax.lines if same_color(p.get_color(), named(ax)[path]))
        at_us, ratio = points.get_xydata().T
        np.testing.assert_allclose(at_us * 1000, CELLS[f"{path}_ns"])
        np.testing.assert_allclose(ratio * CELLS[f"{path}_ns"], CELLS[f"{path}_predicted_ns"])
        assert ax.get_ylim()[0] < min(ratio) < 0.5
        assert 1.5 < max(ratio) < ax.get_ylim()[1]
        markers.add(points.get_marker())
    assert len(markers) == 3


def test_the_cut_shows_both_runs_side_by_side_and_the_prediction():
    ax = figures_costs.cut(LIVE, RECORDED).axes[0]
    columns = ["frozen", "frozen_low", "frozen_high"]
    x = {}
    for name, table in {"live": LIVE, "recorded": RECORDED}.items():
        color, points = intervals(ax)[name]
        np.testing.assert_allclose(points[:, 1:], table[columns])
        np.testing.assert_allclose(points[:, 0], WIDTHS, rtol=0.03)
        assert same_color(named(ax)[name], color)
        x[name] = points[:, 0]
    assert (x["live"] < x["recorded"]).all()
    (predicted,) = (line for line in ax.lines if line.get_linestyle() == "--")
    assert predicted.get_label() == "predicted, live prices"
    np.testing.assert_array_equal(predicted.get_xydata(), LIVE[["width", "frozen_predicted"]])
    assert named(ax)["predicted, live prices"] == named(ax)["live"] != named(ax)["recorded"]
    assert flat(ax, 1)
    assert ticks(ax.xaxis) == {width: str(width) for width in WIDTHS}


def test_each_tool_has_a_row_and_in_it_a_place_for_each_noise():
    fig = figures_costs.instruments(ANSWERS)
    table = ANSWERS.set_index(["measure", "noise", "tool"])
    for ax, measure, target in zip(fig.axes, ("false alarm", "power"), (0.05, 0.95), strict=True):
        title = ax.get_title() + ax.get_title("left")
        assert ("false alarms" in title, "found" in title) == (target < 0.5, target > 0.5)
        assert any(set(line.get_xdata()) == {target} for line in ax.lines)
        drawn = intervals(ax, along="x")
        assert list(drawn) == list(named(fig)) == NOISES
        for noise, (color, points) in drawn.items():
            assert same_color(named(fig)[noise], color)
            tools = [ticks(ax.yaxis)[round(y)] for y in points[:, 1]]
            assert sorted(tools) == sorted(TOOLS)
            wanted = [table.loc[(measure, noise, tool), ["share", "low", "high"]] for tool in tools]
            np.testing.assert_allclose(points[:, [0, 2, 3]], np.array(wanted, dtype=float))
        beside = [points[:, 1] % 1 for _, points in drawn.values()]
        assert len({round(y, 6) for y in np.concatenate(beside)}) == len(NOISES)
    assert fig.axes[0].yaxis_inverted()  # the first tool on top
    assert len(set(named(fig).values())) == len(NOISES)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: figures_costs.hit_rates(expected, {**RATES, "third": RATES["much"]}),
        lambda: figures_costs.terms(TERMS.assign(fifth=1.0, sixth=2.0), MEASURED),
        lambda: figures_costs.instruments(
            pd.concat([ANSWERS, *(ANSWERS.assign(noise=n) for n in ("fourth", "fifth"))])
        ),
    ],
)
def test_more_names_than_colours_are_refused(draw):
    with pytest.raises(ValueError, match=r"at most \d can be told apart, not .*th"):
        draw()
