"""Figures to explore, in a browser: nothing is loaded before one is opened, and then it works."""

import json
import re
from urllib.parse import urlsplit

import pytest
from node_tools import fetch
from playwright.sync_api import expect

from labsupport.modelcards import CARDS
from pages import LESSONS, soup

# A lesson -> its figure, and how many marks of its rows are drawn at first.
FIGURES = {
    "chapters/stall": ("timeline", "rect", 44),  # two requests of ten layers and twelve tokens
    "chapters/decomposition": ("map", "symbol", 25),  # five shares at five widths
    "chapters/derivation": ("sweep", "symbol", 15),  # three loops at five lengths
    "chapters/memory": ("caches", "symbol", 14),  # models
}
EACH = pytest.mark.parametrize("doc", FIGURES)
EXCESS = "document.documentElement.scrollWidth - window.innerWidth"


def block_of(page, doc):
    return page.locator(f"#explore-{FIGURES[doc][0]}")


def opened(page, doc):
    """The block of this page, opened by a click, with its chart drawn."""
    block = block_of(page, doc)
    block.locator("summary").click()
    expect(block.locator("svg")).to_have_count(1)
    return block


def marks(block, kind):
    """The marks of rows: no legend's."""
    return block.locator(f".mark-{kind}.role-mark path")


def libraries(page):
    """The requests for the library file that this page has made."""
    return [each.url for each in page.asked if urlsplit(each.url).path.endswith("/vega.js")]


def field(block, name):
    """The form field whose label begins with this name."""
    return block.locator("label").filter(has_text=re.compile(rf"^{name}")).locator("select, input")


def choose(block, name, option):
    field(block, name).select_option(label=option)


def told_at(page, mark):
    """What the page tells at a mark under the pointer: name -> value."""
    page.mouse.move(0, 0)
    mark.hover(force=True)  # a line may lie across it
    told = page.locator("#vg-tooltip-element.visible")
    expect(told).to_be_visible()
    names, values = (told.locator(f".{part}").all_inner_texts() for part in ("key", "value"))
    return {name.rstrip(": "): value for name, value in zip(names, values, strict=True)}


def test_each_chapter_has_one_figure_to_explore():
    found = {doc: [block["id"] for block in soup(doc).select("details.explore")] for doc in LESSONS}
    expected = {doc: [f"explore-{name}"] for doc, (name, _, _) in FIGURES.items()}
    assert {doc: ids for doc, ids in found.items() if ids} == expected


@EACH
def test_the_library_is_loaded_when_a_figure_is_opened(fresh, doc):
    page = fresh(doc)
    assert not libraries(page)
    block = opened(page, doc)
    _, kind, count = FIGURES[doc]
    assert marks(block, kind).count() == count
    block.locator("svg").evaluate("svg => { svg.dataset.drawn = 'once'; }")
    block.locator("summary").click()
    block.locator("summary").click()
    assert len(libraries(page)) == 1
    expect(block.locator("svg")).to_have_attribute("data-drawn", "once")


@EACH
def test_a_mark_tells_its_row(fresh, doc):
    page = fresh(doc)
    block = opened(page, doc)
    data = json.loads(block.locator("script").text_content())
    rows = data["datasets"][data["data"]["name"]]
    _, kind, _ = FIGURES[doc]
    facts = told_at(page, marks(block, kind).last)
    first = {"timeline": "request", "map": "share", "sweep": "loop", "caches": "model"}
    assert facts[first[FIGURES[doc][0]]] in {value for row in rows for value in row.values()}
    assert not {"undefined", "NaN", "null"} & set(facts.values())


def test_the_time_line_counts_from_what_is_chosen(fresh):
    block = opened(fresh("chapters/stall"), "chapters/stall")
    bars = block.locator(".mark-rect.role-mark path")
    start = bars.evaluate_all("bars => bars.map(bar => bar.getBoundingClientRect().width)")
    choose(block, "Count from", "its first layer")
    choose(block, "Show", "300 ms")
    zoomed = bars.evaluate_all("bars => bars.map(bar => bar.getBoundingClientRect().width)")
    assert zoomed[1] / start[1] == pytest.approx(1400 / 300, rel=0.1)  # a layer of the cold request
    assert zoomed[23] / zoomed[1] == pytest.approx(25 / 7, rel=0.15)  # and one of the warm


@EACH
def test_the_legend_names_all_that_is_drawn(fresh, doc):
    block = opened(fresh(doc), doc)
    named = set(block.locator(".role-legend-label text").all_text_contents())
    expected = {
        "timeline": {"no event", "layer", "token", "timer stops"},
        "map": {"1/3", "1/2", "2/3", "5/6", "11/12"},
        "sweep": {"concat", "numpy", "compiled"},
        "caches": {"multi-head", "grouped-query", "multi-query", "latent"},
    }
    assert named == expected[FIGURES[doc][0]]


def test_the_map_shows_the_tokens_and_the_path_that_are_chosen(fresh):
    block = opened(fresh("chapters/decomposition"), "chapters/decomposition")
    points = marks(block, "symbol")
    before = points.evaluate_all("points => points.map(point => point.getAttribute('aria-label'))")
    choose(block, "Tokens", "192")
    after = points.evaluate_all("points => points.map(point => point.getAttribute('aria-label'))")
    assert len(before) == len(after) == 25
    assert not set(before) & set(after)
    choose(block, "Path", "rehash")
    other = points.evaluate_all("points => points.map(point => point.getAttribute('aria-label'))")
    assert not set(after) & set(other)


def test_one_loop_can_be_shown_alone(fresh):
    block = opened(fresh("chapters/derivation"), "chapters/derivation")
    points = marks(block, "symbol")
    choose(block, "Loop", "numpy")
    expect(points).to_have_count(5)
    choose(block, "Along the", "width, at 256 tokens")
    expect(points).to_have_count(7)
    share = points.first.get_attribute("aria-label")
    choose(block, "Show", "speed-up")
    assert points.first.get_attribute("aria-label") != share


def test_the_page_weighs_caches_as_the_package_does(fresh):
    page = fresh("chapters/memory")
    block = opened(page, "chapters/memory")
    sequences = field(block, "Sequences")
    sequences.focus()
    for _ in range(2):
        sequences.press("ArrowRight")
    choose(block, "A weight has", "4 bits")
    for name in ("GPT-2", "Mistral 7B v0.1", "Gemma 2 9B", "DeepSeek-V3"):
        choose(block, "Model", name)
        point = marks(block, "symbol")
        expect(point).to_have_count(1)
        card = CARDS[name]
        held = 3 * card.shape("float16").bytes_at(card.context)
        facts = told_at(page, point)
        assert facts["model"] == name
        weights = card.weight_bytes("int4")
        for title, value in (("cache, GB", held / 1e9), ("cache / weights", held / weights)):
            assert float(facts[title].replace(",", "")) == pytest.approx(value, rel=1e-3)


@EACH
def test_colours_follow_the_page_and_choices_stay(fresh, doc):
    page = fresh(doc)
    block = opened(page, doc)
    fields = block.locator(".explore-choices").locator("select, input")
    n_fields, chosen = fields.count(), block.locator("select").first
    chosen.select_option(index=1)
    label = block.locator("svg .role-axis-label text").first
    light, _ = (
        label.get_attribute("fill"),
        page.evaluate("document.documentElement.dataset.theme = 'dark'"),
    )
    expect(label).not_to_have_attribute("fill", light)
    text = page.evaluate(
        "getComputedStyle(document.documentElement).getPropertyValue('--pst-color-text-base').trim()"
    )
    assert label.get_attribute("fill") == text
    assert chosen.evaluate("select => select.selectedIndex") == 1
    assert fields.count() == n_fields > 1


@EACH
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_an_open_chart(fresh, doc, scheme):
    page = fresh(doc, scheme=scheme)
    opened(page, doc)
    page.evaluate((fetch() / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate(
        """async () => (await axe.run("details.explore", { resultTypes: ["violations"],
          rules: { "label-content-name-mismatch": { enabled: true } } })).violations.flatMap(
          (rule) => rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 200)}`))"""
    )
    assert found == []


@EACH
def test_it_fits_a_narrow_phone(fresh, doc):
    page = fresh(doc, width=320)
    block = opened(page, doc)
    assert page.evaluate(EXCESS) <= 0
    chart, svg = block.locator(".explore-chart").bounding_box(), block.locator("svg").bounding_box()
    assert svg["width"] <= chart["width"] + 1
    assert svg["width"] > 200
    for word in block.locator(".role-legend text").all():
        box = word.bounding_box()
        assert box["x"] + box["width"] <= svg["x"] + svg["width"]


@EACH
def test_without_scripts_there_are_the_task_and_the_table(fresh, doc):
    block = block_of(fresh(doc, scripts=False), doc)
    block.locator("summary").click()
    expect(block.locator("p").first).to_be_visible()
    expect(block.locator("table")).to_be_visible()
    expect(block.locator("tbody tr")).not_to_have_count(0)


@EACH
def test_without_the_library_a_line_says_so_and_the_table_stays(opening, doc):
    with opening(doc) as page:
        page.route("**/vega.js", lambda route: route.abort())
        block = block_of(page, doc)
        block.locator("summary").click()
        status = block.get_by_role("status")
        expect(status).to_contain_text("The chart could not be drawn.")
        expect(block.locator("table")).to_be_visible()
        page.unroute("**/vega.js")  # and a reader who comes back later gets it
        block.locator("summary").click()
        block.locator("summary").click()
        expect(block.locator("svg")).to_have_count(1)
        expect(status).to_be_hidden()


@EACH
def test_the_keyboard_reaches_all_of_it(fresh, doc):
    page = fresh(doc)
    block = block_of(page, doc)
    block.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(block.locator("svg")).to_have_count(1)
    fields = block.locator("select, input")
    for i in range(fields.count()):
        page.keyboard.press("Tab")
        expect(fields.nth(i)).to_be_focused()
        assert fields.nth(i).evaluate("field => field.labels[0].innerText").strip()
    before = block.locator("svg").inner_html()
    fields.first.focus()
    page.keyboard.press("ArrowDown")
    assert block.locator("svg").inner_html() != before
    fields.last.focus()
    page.keyboard.press("Tab")
    expect(block.get_by_role("region")).to_be_focused()
