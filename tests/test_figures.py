"""Every figure is held to its data, by reading what was drawn: places, heights, colours, words."""

from fractions import Fraction
from itertools import product
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from figure_reading import check_labels, closed, drawing, named, spans, ticks, words  # noqa: F401
from matplotlib.colors import same_color

from labsupport import evidence, figures, stall_log

LOG = stall_log.read(evidence.directory("stall-log"))
PARTS = pd.Series({"before": 80.0, "layers": 160.0, "gap": -70.0, "tokens": 250.0})
SEGMENTS = pd.DataFrame(
    {"take_ns": [1e6, 2.5e6], "first_ns": [3e6, 4e6], "decode_ns": [10e6, 30e6]},
    index=["cold", "warm, copied"],
)
MARKED = {"a few": 3, "many": 3000}
LEVELS = {
    "cache": ["concat", "doubling"],
    "hit": ["own", "whole"],
    "allocator": ["default", "keeps"],
    "d_model": [16, 128],
    "n_prompt": [4, 192],
    "n_new": [1, 12],
}
GRID = pd.DataFrame(product(*LEVELS.values()), columns=list(LEVELS))
GRID["ratio"] = 1.02 ** np.arange(-30, len(GRID) - 30)  # no two cells alike
GRID["verdict"] = ["cannot tell" if i % 3 else "slower" for i in range(len(GRID))]


def bound(n):
    """Any falling function does."""
    return 1 / (n + 1)


DRAW = {
    "timeline": lambda: figures.timeline(LOG),
    "excess": lambda: figures.excess(PARTS),
    "repeats": lambda: figures.repeats(LOG),
    "ratio_grid": lambda: figures.ratio_grid(GRID),
    "segments": lambda: figures.segments(SEGMENTS, list(SEGMENTS.index)),
    "failure_bound": lambda: figures.failure_bound(bound, MARKED),
}


def test_every_figure_is_held_to_its_data_here():
    assert set(DRAW) == drawing(figures)


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("timeline", "time since the request's own start (ms)", None),
        ("excess", None, "(ms)"),
        ("repeats", "repeat", "elapsed time (ms)"),
        ("ratio_grid", "prompt (tokens)", "new tokens"),
        ("segments", "time (ms)", None),
        ("failure_bound", "clean runs", "failure rate"),
    ],
)
def test_axes_say_what_they_show_and_in_which_unit(name, x, y):
    check_labels(DRAW[name](), x, y)


def test_the_timeline_shows_each_request_in_its_own_row():
    ax = figures.timeline(LOG).axes[0]
    assert list(ticks(ax.yaxis).values()) == ["cold", "warm"]
    strokes = [np.array(drawn.get_segments()) for drawn in ax.collections]  # [n, 2 ends, x and y]
    marks = [(s[:, :, 1].mean(), sorted(s[:, 0, 0])) for s in strokes]
    for (y, row), run in zip(ticks(ax.yaxis).items(), LOG.runs["default"], strict=True):
        at = LOG.layers.loc[LOG.layers["state"] == row, "at_ms"]
        tokens = run.emissions_ms
        expected = {
            "no event": [(0, at.min()), (at.max(), tokens[0])],
            "layer stamps": [(at.min(), at.max())],
            "token stamps": [(tokens[0], tokens[-1])],
        }
        assert {name: spans(ax, row, color) for name, color in named(ax).items()} == expected
        for start, end in expected["no event"]:
            assert words(ax)[((start + end) / 2, y)] == f"{end - start:.0f} ms"
        assert [x for middle, x in marks if abs(middle - y) < 0.1] == [sorted(at), sorted(tokens)]

        timers = [x for line in ax.lines for x, at_y in [line.get_xydata()[0]] if y - 1 < at_y < y]
        assert timers == [run.elapsed_ms]
        said = [text for (x, at_y), text in words(ax).items() if y - 0.5 < at_y < y - 0.3]
        assert said == [f"timer stops, {run.elapsed_ms:.0f} ms"]
        assert max(*tokens, run.elapsed_ms) <= ax.get_xlim()[1]


def test_the_steps_of_the_excess_lead_to_its_total():
    ax = figures.excess(PARTS).axes[0]
    bars = [(b.get_y(), b.get_y() + b.get_height()) for b in ax.patches]
    assert list(ticks(ax.xaxis).values()) == [*PARTS.index, "last token"]
    assert bars == [(0, 80), (80, 240), (240, 170), (170, 420), (0, 420)]
    assert [b.get_x() + b.get_width() / 2 for b in ax.patches] == pytest.approx(list(range(5)))
    assert [text.get_text() for text in ax.texts] == ["+80", "+160", "-70", "+250", "+420"]
    assert [x for x, _ in words(ax)] == [0, 1, 2, 3, 4]

    up, down = figures.WARM, figures.GOOD
    for bar, color in zip(ax.patches, (up, up, down, up), strict=False):
        assert same_color(bar.get_facecolor(), color)


def test_repeats_show_their_mean_and_what_the_printed_deviations_refer_to():
    for ax, state in zip(figures.repeats(LOG).axes, ("cold", "warm"), strict=True):
        rows = LOG.repeats[LOG.repeats["state"] == state]
        dots, *_ = ax.lines
        lines = {line.get_label(): line.get_ydata() for line in ax.lines[1:]}
        assert ax.get_title(loc="left") + ax.get_title() == state
        np.testing.assert_array_equal(dots.get_xydata(), rows[["run", "time_ms"]])
        mean, reference = lines["mean of the five"], lines["printed deviations' reference"]
        assert mean == pytest.approx([sum(rows["time_ms"]) / 5] * 2)
        for y in reference:
            assert list(rows["time_ms"] - y) == list(rows["printed_deviation_ms"])
        assert set(named(ax)) == set(lines)


def test_each_cell_of_the_grid_stands_at_its_levels():
    fig = figures.ratio_grid(GRID)
    *panels, bar = fig.axes
    assert len(panels) == 4
    shown = []
    for ax in panels:
        hit, allocator = (ax.get_title(loc="left") + ax.get_title()).split(", ")
        mesh, columns, rows = ax.collections[0], ticks(ax.xaxis), ticks(ax.yaxis)
        middle = ax.lines[0].get_xdata()[0]
        assert middle == len(columns) / 2
        color = mesh.get_array().reshape(len(rows), len(columns))
        for (x, y), text in words(ax).items():
            cache, n_new = rows[y].removesuffix(" new").split(", ")
            width = 16 if x < middle else 128
            levels = (cache, hit, allocator, width, int(columns[x]), int(n_new))
            shown.append((*levels, color[int(y), int(x)], text))

    table = pd.DataFrame(shown, columns=[*LEVELS, "color", "text"])
    both = GRID.merge(table, on=list(LEVELS), validate="one_to_one")
    assert len(both) == len(GRID) == len(table)
    np.testing.assert_allclose(2.0 ** both["color"], both["ratio"])
    for ratio, verdict, text in both[["ratio", "verdict", "text"]].itertuples(index=False):
        assert text == (f"({ratio:.2f})" if verdict == "cannot tell" else f"{ratio:.2f}")
    assert "d_model 16 | 128" in panels[-1].get_xlabel()

    for place, said in ticks(bar.yaxis).items():
        assert Fraction(said) == Fraction(2) ** int(place)
    assert "warm time / cold time (log scale)" in bar.get_ylabel()
    red, _, blue, _ = mesh.cmap(mesh.norm(2))
    assert red > blue  # slower warm is orange
    np.testing.assert_allclose(mesh.norm(0), 0.5)


def test_segments_are_stacked_in_milliseconds():
    ax = figures.segments(SEGMENTS, list(SEGMENTS.index)).axes[0]
    got = {
        row: [spans(ax, row, color) for color in named(ax).values()]
        for row in ticks(ax.yaxis).values()
    }
    assert list(named(ax)) == ["take the caches", "first token", "further tokens"]
    assert got == {
        "cold": [[(0, 1)], [(1, 4)], [(4, 14)]],
        "warm, copied": [[(0, 2.5)], [(2.5, 6.5)], [(6.5, 36.5)]],
    }
    assert ax.yaxis_inverted()  # the first row of the table on top


def test_marked_points_lie_on_the_bound():
    ax = figures.failure_bound(bound, MARKED).axes[0]
    curve, *points = ax.lines
    n, rate = curve.get_xydata().T
    assert (n.min(), n.max()) == (1, 10_000)
    np.testing.assert_allclose(rate, 1 / (n + 1))
    assert [tuple(*point.get_xydata()) for point in points] == [(3, 1 / 4), (3000, 1 / 3001)]
    assert {text.get_text(): text.xy for text in ax.texts} == {
        "a few: 0.25": (3, 1 / 4),
        "many: 0.00033": (3000, 1 / 3001),
    }


def test_the_house_style_is_applied_whole():
    file = Path(figures.__file__).with_name("house.mplstyle")
    style = matplotlib.rc_params_from_file(file, use_default_template=False)
    with plt.rc_context():
        plt.rcdefaults()
        figures.use_house_style()
        assert {key: plt.rcParams[key] for key in style} == dict(style)
