"""Reading figures back: which words, colours, bars, points and intervals were drawn, and where."""

import inspect
from itertools import combinations, pairwise

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import same_color, to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.legend import Legend
from matplotlib.patches import Patch
from matplotlib.text import Text


@pytest.fixture(autouse=True)
def closed():
    """No figure outlives its test, in the modules that import this."""
    yield
    plt.close("all")


def drawing(module):
    """The names of a module's functions that return a figure."""
    functions = inspect.getmembers(module, inspect.isfunction)
    return {n for n, f in functions if f.__annotations__.get("return") is plt.Figure}


def ticks(axis):
    """Tick position -> the words that stand there."""
    places = axis.get_majorticklocs()
    said = axis.get_major_formatter().format_ticks(places)
    return dict(zip(places, map(str, said), strict=True))


def words(ax):
    """(x, y) -> the text that stands there."""
    return {text.get_position(): text.get_text() for text in ax.texts}


def color_of(drawn):
    """The colour of a bar, a line, or the whiskers of an interval."""
    if isinstance(drawn, LineCollection):
        return to_hex(drawn.get_color()[0])
    return to_hex(drawn.get_facecolor() if isinstance(drawn, Patch) else drawn.get_color())


def named(panel):
    """Name in the legend of axes or of a figure -> its colour."""
    legend = panel.legends[0] if isinstance(panel, plt.Figure) else panel.get_legend()
    names = [text.get_text() for text in legend.get_texts()]
    return dict(zip(names, map(color_of, legend.legend_handles), strict=True))


def spans(ax, row, color):
    """(start, end) of the horizontal bars of this colour in the row with this name."""
    rows = ticks(ax.yaxis)
    return [
        pytest.approx((bar.get_x(), bar.get_x() + bar.get_width()))
        for bar in ax.patches
        if rows[round(bar.get_y() + bar.get_height() / 2)] == row
        and same_color(bar.get_facecolor(), color)
    ]


def intervals(ax, along="y"):
    """Name in the legend -> (colour, rows of x, y, low, high) of the points with intervals."""
    found = {}
    for drawn in (c for c in ax.containers if isinstance(c, ErrorbarContainer)):
        points, _, (whiskers,) = drawn.lines
        segments = np.array(whiskers.get_segments())  # [n_points, 2 ends, x and y]
        across = int(along == "x")
        np.testing.assert_array_equal(segments[:, 0, across], segments[:, 1, across])
        assert color_of(points) == color_of(whiskers)
        rows = np.column_stack([points.get_xydata(), segments[:, :, 1 - across]])
        found[drawn.get_label()] = color_of(points), rows
    return found


def check_labels(fig, x, y):
    """Outer axes say what they show, and "log" if and only if they are; None: ticks are words.

    "" stands for any words: panels of different things.
    """
    panels = [ax for ax in fig.axes if ax.get_label() != "<colorbar>"]
    wanted = [(ax.xaxis, x) for ax in panels if ax.get_subplotspec().is_last_row()]
    wanted += [(ax.yaxis, y) for ax in panels if ax.get_subplotspec().is_first_col()]
    for axis, words_of_label in wanted:
        said = axis.get_label_text()
        if words_of_label is None:
            assert all(text[0].isalpha() for text in ticks(axis).values())
        else:
            assert said
            assert words_of_label in said
        assert ("log" in axis.get_scale() or doubles(axis)) == ("log" in said)


def doubles(axis):
    """Whether ticks a step apart say twice what the last one says: columns on a log scale."""
    places, said = zip(*ticks(axis).items(), strict=True)
    numbers = [int(text) for text in said if text.isdecimal()]
    return (
        1 < len(numbers) == len(said)
        and all(2 * a == b for a, b in pairwise(numbers))
        and np.allclose(np.diff(places), 1)
    )


def check_nothing_covered(fig):
    """No text is cut by the figure's edge or covers another, and no legend covers a point."""
    fig.draw_without_rendering()
    hidden = {t for ax in fig.axes for axis in (ax.xaxis, ax.yaxis) for t in out_of_view(axis)}
    texts = [t for t in fig.findobj(Text) if t.get_text() and t.get_visible() and t not in hidden]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    edges = fig.bbox.padded(1)
    for text, box in boxes:
        assert all(edges.contains(*corner) for corner in box.corners()), f"{text!r} is cut"
    for (text, box), (other, box_2) in combinations(boxes, 2):
        assert not box.overlaps(box_2), f"{text!r} and {other!r} cover each other"
    for line in (line for ax in fig.axes for line in ax.lines):
        at = line.get_transform().transform(line.get_xydata())
        for legend in fig.findobj(Legend):
            assert not legend.get_window_extent().count_contains(at), f"{line} is covered"


def out_of_view(axis):
    """The labels of ticks that lie outside what the axis shows."""
    low, high = sorted(axis.get_view_interval())
    for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
        if not low <= tick.get_loc() <= high:
            yield from (tick.label1, tick.label2)
