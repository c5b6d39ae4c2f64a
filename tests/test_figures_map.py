"""The map of chapter 2 is held to its data: each cell's place, colour and words, and the lines."""

from math import inf, log2

import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("Agg")

from figure_reading import closed, named, ticks  # noqa: F401
from matplotlib.colors import to_rgb
from sample_costs import CELLS, CROSSINGS, SHARES, TOKENS, WIDTHS

from labsupport import figures_costs


def test_the_map_holds_each_cell_at_its_levels():
    fig = figures_costs.breakeven_map(CELLS, CROSSINGS)
    *panels, bar = fig.axes
    furthest = max(abs(log2(ratio)) for ratio in CELLS["frozen"])
    shown = []
    for ax, n in zip(panels, TOKENS, strict=True):
        assert ax.get_ylabel().endswith(f"\n{n} tokens")
        (mesh,), columns, rows = ax.collections, ticks(ax.xaxis), ticks(ax.yaxis)
        assert (mesh.norm.vmin, mesh.norm.vmax) == pytest.approx((-furthest, furthest))
        assert mesh.norm(0) == pytest.approx(0.5)
        assert mesh.cmap(0.9)[0] > mesh.cmap(0.9)[2]  # slower is orange, faster is violet
        assert mesh.cmap(0.1)[0] < mesh.cmap(0.1)[2]
        logs = mesh.get_array().reshape(len(rows), len(columns))
        for text in ax.texts:
            x, y = text.get_position()
            log = logs[int(y), int(x)]
            assert contrast(text.get_color(), mesh.to_rgba(log)) > 4.5  # WCAG 2.1, 1.4.3
            assert text.get_path_effects()  # a line behind it is kept off
            shown.append((n, rows[y], int(columns[x]), log, text.get_text()))
    table = pd.DataFrame(shown, columns=["tokens", "share", "width", "log", "text"])
    both = CELLS.merge(table, on=["tokens", "share", "width"], validate="one_to_one")
    assert len(both) == len(CELLS) == len(table)
    np.testing.assert_allclose(2.0 ** both["log"], both["frozen"])
    for ratio, verdict, text in both[["frozen", "frozen_verdict", "text"]].itertuples(index=False):
        assert text == (f"({ratio:.2f})" if verdict == "cannot tell" else f"{ratio:.2f}")

    places = ticks(bar.yaxis)
    assert len(places) >= 3
    assert all(float(said) == 2.0**place for place, said in places.items())
    assert bar.get_ylim() == pytest.approx((-furthest, furthest))
    assert bar.get_ylabel() == "frozen / full (log scale)"


def contrast(*colors):
    """The contrast of two colours, 1 to 21, as WCAG 2.1 defines it."""
    weights = (0.2126, 0.7152, 0.0722)
    linear = [np.power((np.array(to_rgb(c)) + 0.055) / 1.055, 2.4) for c in colors]
    low, high = sorted(float(rgb @ weights) + 0.05 for rgb in linear)
    return high / low


def test_break_even_lines_stand_where_the_ratio_passes_one():
    fig = figures_costs.breakeven_map(CELLS, CROSSINGS)
    (legend,) = fig.legends
    styles = [handle.get_linestyle() for handle in legend.legend_handles]
    assert list(named(fig)) == ["break-even, measured", "predicted"]
    for ax, n in zip(fig.axes, TOKENS, strict=False):
        lines = {line.get_linestyle(): line.get_xydata() for line in ax.lines}
        assert list(lines) == styles
        for xy, column in zip(lines.values(), ("measured", "predicted"), strict=True):
            at = CROSSINGS[CROSSINGS["tokens"] == n].set_index("share")[column]
            for row, step in enumerate(xy.reshape(len(SHARES), 2, 2)):  # [n_rows, ends, x and y]
                width = at[ticks(ax.yaxis)[row + 0.5]]
                edges = {0: 0, inf: len(WIDTHS)}  # all columns win, or none does
                x = edges[width] if width in edges else 0.5 + log2(width / 16)  # widths double
                np.testing.assert_allclose(step, [(x, row), (x, row + 1)])


def test_a_crossing_that_rounds_beyond_the_last_width_stays_in_its_column():
    beyond = CROSSINGS.replace({"measured": {128.0: np.nextafter(128, inf)}})
    lines = figures_costs.breakeven_map(CELLS, beyond).axes[1].lines
    assert lines[0].get_xdata()[0] == pytest.approx(3.5)
