"""The figures of chapter 4 are held to their data, by reading what was drawn."""

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
from matplotlib.collections import LineCollection
from matplotlib.colors import same_color
from sample_memory import (
    CONTEXTS,
    DRAW,
    FELT,
    FORMULA,
    HELD,
    LOOKED,
    LOSSES,
    PEAK,
    POSITION,
    RATIOS,
    SIDES,
    SINGLE,
    STORE,
    TIMES,
    TOGETHER,
    WINDOW,
    KiB,
)

from labsupport import figures, figures_memory, sharedtimes
from labsupport.charmodel import CharConfig


def labelled(ax):
    """Label -> the points of the line that carries it."""
    return {line.get_label(): line.get_xydata() for line in ax.lines}


def titles(fig):
    """What stands above each panel."""
    return [ax.get_title("left") + ax.get_title() for ax in fig.axes]


def unbroken(ax):
    """The words under a panel, each on one line."""
    return [said.replace("\n", "") for said in ticks(ax.xaxis).values()]


def test_every_figure_is_held_to_its_data_here():
    assert set(DRAW) == drawing(figures_memory)


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("storage", "tokens", "memory (KiB)"),
        ("outweighs", "tokens", "cache / weights"),
        ("bits", "bits a number", "added loss (nats a character"),
        ("channel_sizes", "channel", "largest number,\nover the median's"),
        ("reach", "position of the token", "layers passed"),
        ("windows", "caches of a sequence (KiB", "added loss\n(nats a character)"),
        ("waste", "share of the memory (%)", "policy"),
    ],
)
def test_axes_say_what_they_show_and_in_which_unit(name, x, y):
    check_labels(DRAW[name](), x, y)


def test_panels_of_different_things_are_named_each():
    said = [ax.get_ylabel() for ax in DRAW["shared_heads"]().axes]
    assert "less multi-head's\n(nats a character)" in said[0]
    assert "step, over multi-head's" in said[1]
    bar = DRAW["reach"]().axes[-1]
    assert (bar.get_label(), "(log10)" in bar.get_ylabel()) == ("<colorbar>", True)


@pytest.mark.parametrize("name", DRAW)
def test_no_text_is_cut_and_nothing_is_covered(name):
    with plt.rc_context():
        figures.use_house_style()
        check_nothing_covered(DRAW[name]())


@pytest.mark.parametrize(("name", "side"), [("outweighs", "x"), ("windows", "x"), ("bits", "y")])
def test_log_ticks_are_plain_numbers_in_sight(name, side):
    for ax in DRAW[name]().axes:
        axis = {"x": ax.xaxis, "y": ax.yaxis}[side]
        low, high = axis.get_view_interval()
        shown = {at: said for at, said in ticks(axis).items() if low <= at <= high}
        assert len(shown) >= 3
        for at, said in shown.items():
            assert float(said.replace(",", "").replace("\N{MINUS SIGN}", "-")) == pytest.approx(at)
            assert "e" not in said


def test_what_is_held_and_the_peak_stand_over_the_formula():
    fig = figures_memory.storage(HELD, PEAK, FORMULA)
    assert titles(fig) == list(HELD)
    assert list(named(fig)) == ["formula", "held", "peak"]
    assert len(set(named(fig).values())) == 3
    for ax, policy in zip(fig.axes, HELD, strict=True):
        wanted = {"formula": FORMULA, "held": HELD[policy], "peak": PEAK[policy]}
        assert list(labelled(ax)) == list(wanted)
        for name, values in wanted.items():
            points = np.column_stack([values.index, values / KiB])
            np.testing.assert_allclose(labelled(ax)[name], points)
        widths = {line.get_label(): line.get_linewidth() for line in ax.lines}
        assert widths["formula"] > 2 * widths["held"]  # else one would hide the other
        assert ax.get_ylim()[0] == 0
        assert ax.get_ylim()[1] > PEAK.max(axis=None) / KiB


def test_ratios_are_solid_to_the_makers_context_and_dotted_beyond():
    ax = figures_memory.outweighs(RATIOS, CONTEXTS).axes[0]
    assert list(named(ax)) == list(RATIOS)
    assert len(set(named(ax).values())) == RATIOS.shape[1]
    for name, color in named(ax).items():
        lines = [x for x in ax.lines if same_color(x.get_color(), color)]
        solid, dotted, marker = lines
        assert [x.get_linestyle() for x in lines] == ["-", ":", "None"]
        end, ratio = CONTEXTS[name]
        np.testing.assert_array_equal(marker.get_xydata(), [[end, ratio]])
        drawn = RATIOS[name].reset_index().to_numpy()
        for line, rows, at in (
            (solid, drawn[drawn[:, 0] < end], -1),
            (dotted, drawn[drawn[:, 0] > end], 0),
        ):
            np.testing.assert_allclose(line.get_xydata()[at], [end, ratio])
            np.testing.assert_allclose(np.delete(line.get_xydata(), at, axis=0), rows)
        low, high = ax.get_ylim()
        assert low < ratio < high
    assert [set(x.get_ydata()) for x in ax.lines if x.get_linestyle() == "--"] == [{1}]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_each_seed_is_a_point_and_the_bar_their_mean():
    left, _ = figures_memory.shared_heads(LOSSES, TIMES).axes
    assert unbroken(left) == list(LOSSES)
    dots = [x for x in left.lines if x.get_marker() == "o"]
    bars = [x for x in left.lines if x.get_color() == "black"]
    for i, kind in enumerate(LOSSES):
        np.testing.assert_array_equal(dots[i].get_xdata(), i)
        np.testing.assert_array_equal(dots[i].get_ydata(), LOSSES[kind])
        assert set(bars[i].get_ydata()) == {LOSSES[kind].mean()}
        assert np.mean(bars[i].get_xdata()) == pytest.approx(i)
    low, high = left.get_xlim()
    assert low < 0 < LOSSES.shape[1] - 1 < high


def test_a_third_kind_of_shared_heads_is_in_sight():
    more = LOSSES.assign(third=0.03)
    left, _ = figures_memory.shared_heads(more, TIMES).axes
    assert left.get_xlim()[1] > 2


@pytest.mark.parametrize("factor", [1.0, 1.9])
def test_steps_stand_beside_their_bytes_and_products(factor):
    columns = ["ratio", "low", "high"]
    times = TIMES.assign(**factor * TIMES[columns])
    _, right = figures_memory.shared_heads(LOSSES, times).axes
    assert unbroken(right) == list(times.index)
    (color, points) = intervals(right)["measured"]
    np.testing.assert_allclose(points[:, 1:], times[columns])
    np.testing.assert_array_equal(points[:, 0], range(len(times)))
    drawn = labelled(right)
    np.testing.assert_array_equal(drawn["bytes read"][:, 1], times["bytes"])
    np.testing.assert_array_equal(drawn["products"][:, 1], times["multiplications"])
    assert set(named(right)) == {"measured", "bytes read", "products"}
    assert same_color(named(right)["measured"], color)
    assert len(set(named(right).values())) == 3
    low, high = right.get_ylim()
    assert low == 0
    assert high > times["high"].max()


@pytest.mark.parametrize("n_rounds", [101, 5])  # of 5 the intervals reach from 0 to infinity
def test_the_figure_of_shared_heads_takes_what_is_measured(n_rounds):
    rows = pd.DataFrame(
        [(r, n, 1000 * n + 7 * r) for r in range(n_rounds) for n in (4, 2, 1)],
        columns=["round", "n_kv_heads", "step_ns"],
    )
    measured = sharedtimes.table(rows, CharConfig(), 64)
    _, right = figures_memory.shared_heads(LOSSES, measured).axes
    (points,) = (container.lines[0] for container in right.containers)
    np.testing.assert_array_equal(points.get_ydata(), measured["ratio"])


def test_losses_of_fewer_bits_are_hollow_where_they_cannot_be_told_from_0():
    fig = figures_memory.bits(SINGLE, TOGETHER)
    assert titles(fig) == ["fed singly", "fed at once"]
    names = named(fig)
    assert len(set(names.values())) == len(names)
    for ax, rows in zip(fig.axes, (SINGLE, TOGETHER), strict=True):
        wanted = rows.groupby(["keys", "values"], sort=False)
        assert [f"keys by {k}, values by {v}" for k, v in wanted.groups] == list(names)
        low, high = ax.get_ylim()
        for (name, color), (_, part) in zip(names.items(), wanted, strict=True):
            own = [x for x in ax.lines if same_color(x.get_color(), color) and len(x.get_xdata())]
            (joined,) = (x for x in own if x.get_linestyle() == "-")
            np.testing.assert_array_equal(joined.get_ydata(), part["more"])
            assert np.abs(joined.get_xdata() - part["bits"]).max() < 0.3
            marks = {"none": {}, "full": {}}
            for line in (x for x in own if x.get_linestyle() == "None"):
                full = same_color(line.get_markerfacecolor(), color)
                marks["full" if full else "none"] |= dict(line.get_xydata().round(9))
            at = dict(zip(part["bits"], joined.get_xdata().round(9), strict=True))
            for kind, chosen in {
                "none": part["verdict"] == "cannot tell",
                "full": part["verdict"] != "cannot tell",
            }.items():
                drawn = {at[bits]: more for bits, more in part[chosen][["bits", "more"]].to_numpy()}
                assert marks[kind] == pytest.approx(drawn), name
            (bars,) = (
                c for c in ax.collections
                if isinstance(c, LineCollection) and same_color(color_of(c), color)
            )  # fmt: skip
            segments = np.array(bars.get_segments())
            np.testing.assert_allclose(segments[:, 0, 1], part["low"])
            np.testing.assert_allclose(segments[:, 1, 1], part["high"])
            np.testing.assert_allclose(segments[:, :, 0].T, [joined.get_xdata()] * 2)
            assert low < part["low"].min()  # a loss below 0 is in sight, too
            assert part["high"].max() < high
        beside = [x.get_xdata()[0] for x in ax.lines if len(x.get_xdata()) > 3]
        assert len(set(beside)) == len(names)  # so that none hides another
        assert set(ticks(ax.xaxis).values()) == {"8", "6", "4", "2"}


def test_what_is_near_0_and_what_is_large_can_both_be_seen():
    ax = figures_memory.bits(SINGLE, TOGETHER).axes[0]
    below, zero, near, large = ax.transData.transform([(0, y) for y in (-2e-4, 0, 2e-4, 1)])[:, 1]
    assert large - zero > 100
    assert zero - below == pytest.approx(near - zero)
    assert near - zero > 2


def test_channels_are_sorted_over_their_heads_median():
    fig = figures_memory.channel_sizes(SIDES)
    assert titles(fig) == list(SIDES)
    for ax, sizes in zip(fig.axes, SIDES.values(), strict=True):
        assert len(ax.lines) == len(sizes)
        for line, head in zip(ax.lines, sizes, strict=True):
            np.testing.assert_array_equal(line.get_xdata(), range(1, head.size + 1))
            np.testing.assert_allclose(line.get_ydata(), sorted(head / np.median(head)))
        assert ax.get_yscale() == "log"
    assert len({ax.get_ylim() for ax in fig.axes}) == 1


def test_what_is_not_felt_is_white_and_the_steps_end_each_layer():
    ax = figures_memory.reach(FELT, POSITION, WINDOW).axes[0]
    (image,) = ax.images
    drawn = image.get_array()
    np.testing.assert_array_equal(np.ma.getmaskarray(drawn), FELT == 0)
    np.testing.assert_allclose(drawn.compressed(), np.log10(FELT[FELT > 0]))
    assert same_color(image.get_cmap().get_bad()[:3], "white") or image.get_cmap().get_bad()[3] == 0
    assert image.origin == "lower"
    assert list(ticks(ax.yaxis).values()) == ["0", "1", "2"]
    (line,) = ax.lines
    path = line.get_path().vertices  # the corners as drawn
    for depth, row in enumerate(FELT):
        last = np.flatnonzero(row).max()  # its cell ends half a step further on
        sides = [
            (a[0], sorted((a[1], b[1]))) for a, b in pairwise(path) if a[0] == b[0] and a[1] != b[1]
        ]
        assert (last + 0.5, [depth - 0.5, depth + 0.5]) in sides
    assert ax.get_xlim() == (-0.5, FELT.shape[1] - 0.5)
    assert ax.get_ylim() == (-0.5, len(FELT) - 0.5)


def test_steps_that_lead_past_the_last_token_do_not_widen_the_map():
    ax = figures_memory.reach(FELT[:, :8], POSITION, WINDOW).axes[0]
    assert ax.lines[0].get_xdata().max() > 8
    assert ax.get_xlim() == (-0.5, 7.5)


def test_windows_stand_beside_the_bytes_that_they_keep():
    ax = figures_memory.windows(LOOKED).axes[0]
    ((_, points),) = intervals(ax).values()
    kib = LOOKED["cache_bytes"] / KiB
    wanted = np.column_stack([kib, LOOKED[["more", "least", "most"]]])
    np.testing.assert_allclose(points, wanted)
    said = {text.xy: text.get_text() for text in ax.texts}
    assert said == {(k, m): n for k, m, n in zip(kib, LOOKED["most"], LOOKED.index, strict=True)}
    assert set(ticks(ax.xaxis)) == set(kib)
    assert ax.get_xscale() == "log"


def test_a_stores_memory_is_stacked_in_order_and_adds_up():
    fig = figures_memory.waste(STORE)
    assert titles(fig) == ["ShareGPT", "Alpaca"]
    kinds = {
        "tokens": "tokens",
        "reserved": "reserved, used later",
        "internal": "reserved, never used",
        "external": "given to nobody",
    }
    colors = named(fig)
    assert list(colors) == list(kinds.values())
    assert len(set(colors.values())) == len(kinds)
    for ax, mix in zip(fig.axes, titles(fig), strict=True):
        for policy, row in STORE.loc[mix].iterrows():
            ends = [0.0, *accumulate(row[list(kinds)])]
            found = [spans(ax, policy, colors[name]) for name in kinds.values()]
            assert found == [[pair] for pair in pairwise(ends)]
        assert ax.get_xlim() == (0, 100)
    assert fig.axes[0].yaxis_inverted()  # the first policy on top


def test_more_models_than_can_be_told_apart_are_refused():
    more = pd.DataFrame({f"model {i}": RATIOS["GPT-2"] for i in range(9)})
    contexts = dict.fromkeys(more, CONTEXTS["GPT-2"])
    eight = more.iloc[:, :8]
    assert len(named(figures_memory.outweighs(eight, contexts).axes[0])) == 8
    with pytest.raises(ValueError, match=r"at most 8 can be told apart, not .*model 8"):
        figures_memory.outweighs(more, contexts)


def test_a_model_without_its_context_is_refused():
    with pytest.raises(KeyError):
        figures_memory.outweighs(RATIOS, {"GPT-2": CONTEXTS["GPT-2"]})
