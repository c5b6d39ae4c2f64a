"""Figures to explore: the same rows in chart and table, true to their source, twice the same."""

import json
import os
import re
import subprocess
import sys
import warnings

import altair as alt
import explore as extension  # _ext/explore.py
import jsonschema
import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from matplotlib import rc_params_from_file
from repository import ROOT

from labsupport import (
    breakeven,
    evidence,
    explore,
    explore_decomposition,
    explore_derivation,
    explore_memory,
    explore_stall,
    stall_log,
    sweep,
)
from labsupport.modelcards import CARDS

LOG = stall_log.read(evidence.directory("stall-log"))
CELLS, _ = breakeven.load("break-even")
SWEPT = sweep.load("sweep")[0].assign(bound=0.4)
PATHS = ["concat", "numpy", "compiled"]
DRAW = {
    "timeline": lambda: explore_stall.timeline(LOG),
    "map": lambda: explore_decomposition.breakeven_map(CELLS),
    "sweep": lambda: explore_derivation.collected(SWEPT, PATHS),
    "caches": lambda: explore_memory.caches(CARDS),
}
SCHEMA = jsonschema.Draft7Validator(alt.load_schema())
EACH = pytest.mark.parametrize("name", DRAW)

# A figure made in a process of its own; prints its HTML.
ALONE = """
import altair, pandas
from labsupport import explore
data = pandas.DataFrame({"x": [1, 2], "y": [0.1, 0.2], "kind": list("ab")})
look = explore.look("kind", data["kind"])
chart = altair.Chart().mark_point().encode(x="x:Q", y="y:Q", **look)
chart = chart.add_params(explore.choice("n", "N", {"one": 1}))
print(explore.Figure("f", data, chart, {"x": "x"}, "label", "task").html())
"""


def made_up(name="f", rows=3, label="what it shows", task="what to try", value="a", heading="x"):
    """A figure of so many rows; any text may be hostile."""
    data = pd.DataFrame({"x": range(rows), "word": [value] * rows})
    chart = alt.Chart().mark_point().encode(x="x:Q", tooltip=explore.tooltips(word_N="word"))
    return explore.Figure(name, data, chart, {"x": heading, "word": "word"}, label, task)


def drawn_rows(figure):
    """The rows that the chart draws, as the page gets them."""
    spec = json.loads(BeautifulSoup(figure.html(), "html.parser").script.string)
    return spec["datasets"][spec["data"]["name"]]


@EACH
def test_a_figure_obeys_the_schema_and_warns_of_nothing(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = DRAW[name]()
    assert list(SCHEMA.iter_errors(figure.spec)) == []
    assert not SCHEMA.is_valid(figure.spec | {"height": "tall"})
    assert figure.name == name


@EACH
def test_chart_and_table_have_the_same_rows(name):
    figure = DRAW[name]()
    rows = drawn_rows(figure)
    assert len(rows) == len(figure.data) <= explore.MOST_ROWS
    table = BeautifulSoup(figure.table(), "html.parser")
    assert [th.string for th in table.select("thead th[scope=col]")] == [*figure.labels.values()]
    for row, tr in zip(rows, table.select("tbody tr"), strict=True):
        for column, td in zip(figure.labels, tr.select("td"), strict=True):
            value = row[column]
            if isinstance(value, str):
                assert td.text == value
            elif value is None:
                assert td.text == ""
            else:
                assert float(td.text.replace(",", "")) == value


@EACH
def test_two_builds_give_the_same_bytes(name):
    first, second = DRAW[name](), DRAW[name]()
    assert first.html() == second.html()
    assert first.spec == second.spec


def test_two_processes_give_the_same_bytes():
    answers = {
        subprocess.run(
            [sys.executable, "-c", ALONE],
            capture_output=True, check=True, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    (html,) = answers
    assert b'id="explore-f"' in html


@EACH
def test_ids_are_names_and_no_counters(name):
    spec = json.dumps(DRAW[name]().spec)
    assert "param_" not in spec
    assert "view_" not in spec
    assert f'id="explore-{name}"' in DRAW[name]().html()


@EACH
def test_a_figure_is_small(name):
    assert len(DRAW[name]().html().encode()) < explore.MOST_BYTES


def test_a_figure_too_large_for_a_page_is_refused():
    assert len(made_up(rows=explore.MOST_ROWS).data) == explore.MOST_ROWS
    with pytest.raises(ValueError, match="f has 101 rows, but 100 at most fit"):
        made_up(rows=explore.MOST_ROWS + 1)
    with pytest.raises(ValueError, match=r"f takes \d+ bytes, but 60000 at most fit"):
        made_up(value="long " * 10_000)


def test_no_text_ends_its_element():
    evil = '</script><script>alert("1")</script><img src=x onerror=alert(1)>"\'&'
    figure = made_up(evil, label=evil, task=evil, value=evil, heading=evil)
    soup = BeautifulSoup(figure.html(), "html.parser")
    assert len(soup.select("script")) == 1
    assert not soup.select("img")
    assert soup.details["id"] == f"explore-{evil}"
    assert soup.select_one(".explore-table")["aria-label"] == f"Table: {evil}"
    assert soup.select_one("details > p").text == evil
    assert {th.text for th in soup.select("th")} == {evil, "word"}
    assert {td.text for td in soup.select("td.words")} == {evil}
    assert drawn_rows(figure)[0]["word"] == evil


def test_the_table_can_be_read_without_the_chart():
    soup = BeautifulSoup(made_up().html(), "html.parser")
    region = soup.select_one(".explore-table")
    assert (region["tabindex"], region["role"]) == ("0", "region")
    assert soup.select_one(".explore-status")["role"] == "status"
    assert soup.details.summary.text == "Explore these points"
    assert not soup.details.has_attr("open")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (12_345, "12,345"), (np.int64(7), "7"), (0.00012, "0.00012"), (1234.0, "1,234"),
        (100.0, "100"), (2.5, "2.5"), (float("nan"), ""), (None, ""), ("word", "word"),
    ],
)  # fmt: skip
def test_values_read_as_text(value, shown):
    assert explore.text(value) == shown


def test_numbers_are_rounded_and_integers_are_not():
    data = explore.rounded(pd.DataFrame({"a": [1.23456, np.nan], "b": [123_456, 1]}, index=[5, 6]))
    assert data["a"].tolist()[0] == 1.235
    assert np.isnan(data["a"][1])
    assert data["b"].tolist() == [123_456, 1]


def test_jupyterlab_gets_a_chart_that_it_can_draw(monkeypatch):
    figure, outputs = made_up(), []
    monkeypatch.setattr(explore, "display", lambda data, raw: outputs.append(data))
    figure._ipython_display_()
    chart, block = outputs
    (kind, spec), *others = chart.items()
    assert not others  # JupyterLab would prefer HTML beside it, and the book text
    assert kind == "application/vnd.vegalite.v5+json"
    assert spec["$schema"].endswith("/v5.json")
    assert spec["width"] == explore.LAB_WIDTH  # a cell's output has no width to fill
    assert figure.spec["width"] == "container"
    assert json.loads(json.dumps(spec)) == spec
    assert block == {"text/html": figure.html(), "text/plain": repr(figure)}


def test_charts_have_the_colours_of_still_figures():
    style = rc_params_from_file(ROOT / "labsupport/house.mplstyle", use_default_template=False)
    colors = style["axes.prop_cycle"].by_key()["color"]
    assert made_up().spec["config"]["range"]["category"] == colors
    assert all(color.startswith("#") and len(color) == 7 for color in colors)


def test_stamps_follow_each_other_to_the_last_token():
    stamps = explore_stall.stamps(LOG)
    for state, run in zip(("cold", "warm"), LOG.runs["default"], strict=True):
        rows = stamps[(stamps["state"] == state) & (stamps["what"] != "timer")]
        assert rows["wait"].sum() == run.emissions_ms[-1]
        assert rows["at"].tolist() == [*LOG.layer_stamps_ms(state), *run.emissions_ms]
        assert rows.loc[rows["what"] == "no event", "event"].tolist() == ["layer 0", "token 0"]
        assert (rows["token"] == run.emissions_ms[0]).all()
        timer = stamps[(stamps["state"] == state) & (stamps["what"] == "timer")]
        assert timer["at"].tolist() == [run.elapsed_ms]


def test_the_map_shows_each_cell_as_it_was_measured():
    data = DRAW["map"]().data
    assert len(data) == len(CELLS)
    for column in set(data) - {"share"}:
        np.testing.assert_allclose(data[column], CELLS[column], rtol=1e-3)
    assert data["share"].tolist() == CELLS["share"].tolist()


def test_the_sweep_shows_each_path_and_cell():
    data = explore_derivation.by_path(SWEPT, PATHS)
    for path, rows in data.groupby("path"):
        share = rows["measured"] / rows["arithmetic"]
        np.testing.assert_allclose(share, SWEPT[f"{path}_share"])
        np.testing.assert_array_equal(rows["low"], SWEPT[f"{path}_low"])
        np.testing.assert_array_equal(rows["predicted"], SWEPT[f"{path}_predicted"])
        np.testing.assert_allclose(rows["bound"] / rows["arithmetic"], SWEPT["bound"])
    assert set(data["path"]) == set(PATHS)


@pytest.mark.parametrize("n", [0, 1, 100, 2047, 4096, 4097, 10_000, 1_000_000])
def test_a_row_of_sizes_gives_the_bytes_of_its_card(n):
    for row in explore_memory.sizes(CARDS).itertuples():
        card = CARDS[row.model]
        held = row.always * n + row.windowed * min(n, row.window)
        assert held == card.shape("float16").bytes_at(n), row.model
        assert row.weights == card.weight_bytes("float16")


def test_a_model_without_a_window_has_none():
    table = BeautifulSoup(DRAW["caches"]().table(), "html.parser")
    place = [th.text for th in table.select("th")].index("window (tokens)")
    shown = {tr.td.text: tr.select("td")[place].text for tr in table.select("tbody tr")}
    expected = {c.name: f"{c.window:,}" if c.window else "none" for c in CARDS.values()}
    assert shown == expected
    assert "none" in shown.values()


# The library file


def test_the_library_is_made_once_and_again_for_another_version(tmp_path, monkeypatch):
    path = extension.write_library(tmp_path / "course")
    code = path.read_text(encoding="utf-8")
    assert code.startswith(extension.banner() + "(() => {")
    assert code.endswith("})();\n")  # no name of the bundle is global
    assert "window.vegaEmbed=" in code

    monkeypatch.setattr(extension.vl_convert, "javascript_bundle", lambda: "other")
    extension.write_library(tmp_path / "course")
    assert path.read_text(encoding="utf-8") == code
    monkeypatch.setattr(extension, "BANNER", "/*! newer */\n")
    extension.write_library(tmp_path / "course")
    assert path.read_text(encoding="utf-8") == "/*! newer */\n(() => {other})();\n"


def test_the_head_names_versions_and_licence():
    head = extension.banner()
    assert "BSD-3-Clause" in head
    for part in (r"Vega \d", r"Vega-Lite \d", r"Vega-Embed \d", r"vl-convert \d"):
        assert re.search(part, head), part
