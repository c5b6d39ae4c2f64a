"""The calculator in a browser: its answers against `memory`, by keyboard, for a screen reader."""

import random
import re
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pydata_sphinx_theme
import pytest

from labsupport import calculator, memory
from labsupport.memory import BYTES, CacheShape
from labsupport.modelcards import CARDS

THEME = Path(pydata_sphinx_theme.__file__).with_name("theme") / "pydata_sphinx_theme" / "static"
BOOK = """<!doctype html><html lang="en" data-theme="{scheme}"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>A page</title>
<style>{css}</style><body class="bd-content"><div class="cell_output">
<div class="output text_html">{html}</div></div></body></html>"""
GB, GIB = 1000**3, 1024**3
BINARY = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
DECIMAL = ["bytes", "kB", "MB", "GB", "TB", "PB", "EB"]
SIZES = ("layers", "kvHeads", "headDim", "parameters", "window", "windowed", "latent")
ANSWERS = """aToken cache weights total ratio breakEven sequencesThatFit tokensThatFit""".split()

# Sets fields as typing does, without the keys, and reads all answers.
SET = """values => {
  const root = document.querySelector(".memory-calculator");
  for (const [name, value] of Object.entries(values)) {
    const field = root.querySelector(`[name="${name}"]`);
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
  const cells = [...root.querySelectorAll("[data-answer]")];
  const text = (cell) => [...cell.childNodes].map((node) => node.textContent);
  return Object.fromEntries(cells.map((cell) => [cell.dataset.answer, text(cell)]));
}"""


@pytest.fixture(scope="module")
def visit(browser, tmp_path_factory):
    """visit(...) -> the calculator's page, whose `.complaints` must stay empty.

    Only the page's own file may be asked for.
    """
    contexts, pages = [], []

    def load(shown=None, width=1200, scheme="light", css="", **options):
        file = tmp_path_factory.mktemp("page") / "page.html"
        html = (shown or calculator.show())._repr_html_()
        file.write_text(BOOK.format(scheme=scheme, css=css, html=html), encoding="utf-8")
        viewport = {"width": width, "height": 900}
        context = browser.new_context(viewport=viewport, color_scheme=scheme, **options)
        page = context.new_page()
        page.complaints = []
        contexts.append(context)
        pages.append(page)

        def guard(route):
            if route.request.url == file.as_uri():
                return route.continue_()
            page.complaints.append(f"asks for {route.request.url}")
            return route.abort()

        page.route("**/*", guard)
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.goto(file.as_uri())
        return page

    yield load
    for context in contexts:
        context.close()
    assert [page.complaints for page in pages] == [[] for _ in pages]


@pytest.fixture(scope="module")
def page(visit):
    """One page that several tests fill in; each sets all that it looks at."""
    return visit()


def fresh(page, **values):
    """The answers of the form as it is at the start, but for these fields."""
    start = {"card": "24", "unit": str(GB), "tokens": "8192", "sequences": "1"}
    start |= {"cacheDtype": "float16", "weightDtype": "float16", "model": "Llama 3 8B"}
    return page.evaluate(SET, start | values)


def said(page):
    return page.get_by_role("status").inner_text()


def close_to(text, exact):
    """Whether a rounded number, of at least three digits, is `exact` rounded."""
    number = Decimal(text.replace(",", ""))
    digits = len(number.as_tuple().digits)
    half = Fraction(Decimal(1).scaleb(number.adjusted() - digits + 1)) / 2
    return digits >= 3 and abs(Fraction(number) - Fraction(exact)) <= half * Fraction(1.000001)


def in_units(text, n_bytes, base, units):
    """Whether such a size is `n_bytes` in the largest unit that leaves at least one."""
    number, unit = text.replace(",", "").split()
    power = units.index("bytes" if unit == "byte" else unit)
    size = Fraction(n_bytes) / base**power
    right_unit = size >= 1 or power == 0
    right_unit &= size < base or power == len(units) - 1
    same = Fraction(number) == size if power == 0 else close_to(number, size)
    return right_unit and same


def is_size(cell, n_bytes):
    """Whether an answer gives so many bytes: in both kinds of unit, and exactly."""
    both, exact = cell
    binary, decimal = re.fullmatch(r"([^()]*?)(?: \((.*)\))?", both).groups()
    shown = Fraction(exact.split(" byte")[0].replace(",", ""))
    assert (decimal is None) == (n_bytes < 1000)
    right = in_units(binary, n_bytes, 1024, BINARY)
    right &= decimal is None or in_units(decimal, n_bytes, 1000, DECIMAL)
    return right and shown == n_bytes


# The answers


def random_shape(rng, dtype):
    """A shape, what the form's fields say of it, and a number of parameters."""

    def some(most):
        return int(most ** rng.random())  # small and large alike

    layers, windows = some(200), None
    if rng.random() < 0.5:
        window, windowed = some(10**5), rng.choice([layers, rng.randint(0, layers)])
        windows = [window] * windowed + [None] * (layers - windowed)
    latent = some(2000) | 1 if rng.random() < 0.3 else None  # odd: half bytes with int4
    shape = CacheShape(layers, some(128), some(512), dtype, windows, latent)
    parameters = some(10 ** rng.choice([3, 9, 13]))
    typed = [layers, shape.n_kv_heads, shape.head_dim, parameters]
    typed += [window, windowed] if windows else ["", ""]
    fields = dict(zip(SIZES, map(str, [*typed, latent or ""]), strict=True))
    return shape, fields, parameters


def random_case(rng, name):
    """What to type for a card (None: for own sizes), and what `memory` says of it."""
    cache_dtype, weight_dtype = rng.choices(list(BYTES), [1, 1, 1, 1, 1, 3], k=2)
    if name is None:
        shape, fields, parameters = random_shape(rng, cache_dtype)
    else:
        shape, fields = CARDS[name].shape(cache_dtype), {"model": name}
        parameters = CARDS[name].n_parameters
    n_tokens, n_sequences = (int(10 ** rng.uniform(0, most)) for most in (6, 3))
    thousandths, unit = int(10 ** rng.uniform(0, 7)), rng.choice([GB, GIB])
    fields |= {
        "tokens": rng.choice([f"{n_tokens}", f" {n_tokens:,} "]),
        "sequences": str(n_sequences),
        "cacheDtype": cache_dtype,
        "weightDtype": weight_dtype,
        "memory": str(Decimal(thousandths).scaleb(-3)),
        "unit": str(unit),
    }
    weights = memory.weight_bytes(parameters, weight_dtype)
    room = max(0, thousandths * unit // 1000 - weights)
    return fields, {
        "weights": weights,
        "memory": thousandths * unit // 1000,
        "aToken": shape.bytes_per_token,
        "cache": shape.bytes_at(n_tokens, n_sequences),
        "total": weights + shape.bytes_at(n_tokens, n_sequences),
        "breakEven": shape.break_even(weights),
        "sequencesThatFit": shape.sequences_that_fit(room, n_tokens),
        "tokensThatFit": shape.tokens_that_fit(room),
    }


CASES = [(seed, name) for seed, name in enumerate([*CARDS] * 2 + [None] * 60)]


@pytest.fixture(scope="module")
def answered(page):
    """For each case: its fields, what is expected, what the page answers and says."""

    def one(seed, name):
        fields, expected = random_case(random.Random(seed), name)
        return fields, expected, fresh(page, **fields), said(page)

    return [one(seed, name) for seed, name in CASES]


def test_answers_are_those_of_memory(answered):
    for fields, expected, found, _ in answered:
        for key in ("aToken", "cache", "weights", "total"):
            assert is_size(found[key], expected[key]), (key, fields, found[key], expected[key])
        ratio = Fraction(expected["cache"]) / Fraction(expected["weights"])
        assert close_to(found["ratio"][0], ratio), (fields, found["ratio"], float(ratio))

        n = expected["breakEven"]
        breaks = f"{n:,} token{'s' * (n != 1)}" if n else "never: its windows end before"
        most = expected["tokensThatFit"]
        any_number = "any number: all layers have a window"
        assert found["breakEven"] == [breaks], fields
        assert found["sequencesThatFit"][0] == f"{expected['sequencesThatFit']:,}", fields
        assert found["tokensThatFit"][0] == (any_number if most is None else f"{most:,}"), fields


def test_the_verdict_is_that_of_the_sum(answered):
    for fields, expected, _, sentence in answered:
        left = expected["memory"] - expected["total"]
        start = "Fits." if left >= 0 else "Does not fit."
        rest = re.search(r"; (\S+ \S+) (left|missing)\.", sentence)
        assert sentence.startswith(start), fields
        assert rest[2] == ("left" if left >= 0 else "missing"), fields
        assert in_units(rest[1], abs(left), 1024, BINARY), (fields, sentence)


def test_the_cases_reach_what_can_go_wrong(answered):
    """Otherwise the two tests above would show little."""
    expected = [case[1] for case in answered]
    fields = [case[0] for case in answered]
    assert len(answered) >= 60
    assert any(case["total"] > case["memory"] >= case["weights"] for case in expected)
    assert any(case["weights"] > case["memory"] for case in expected)
    assert any(case["total"] <= case["memory"] for case in expected)
    for key in ("aToken", "weights"):
        assert any(case[key] % 1 for case in expected), f"no half byte in {key}"
    for key in ("breakEven", "tokensThatFit"):
        assert {case[key] is None for case in expected} == {True, False}
    for name in ("latent", "window"):
        assert {bool(case.get(name)) for case in fields} == {True, False}
    for name in ("cacheDtype", "weightDtype"):
        assert {case[name] for case in fields} == set(BYTES)


def test_a_card_is_full_to_the_last_byte(page):
    smallest = dict.fromkeys(("layers", "kvHeads", "headDim", "tokens"), "1")
    smallest |= {"cacheDtype": "int8", "weightDtype": "int8", "memory": "0.001"}  # of 10**6 bytes
    found = fresh(page, **smallest, parameters="999998")
    assert said(page).startswith("Fits.")
    assert said(page).endswith("; 0 bytes left.")
    assert [found["sequencesThatFit"], found["tokensThatFit"]] == [["1"], ["1"]]

    found = fresh(page, **smallest, parameters="999999")
    assert said(page).startswith("Does not fit.")
    assert said(page).endswith("; 1 byte missing.")
    assert [found["sequencesThatFit"], found["tokensThatFit"]] == [["0"], ["0"]]

    found = fresh(page, **smallest, parameters="1000001")
    alone = ["0", "the weights alone do not fit"]
    assert [found["sequencesThatFit"], found["tokensThatFit"]] == [alone, alone]


def test_known_models_cost_what_is_known_of_them(page):
    """At two bytes a number, in KiB a token."""
    known = [36, 300, 512, 320, 128, 320, 128, 56, 336, 384, 8, 512, 67.5, 68.6]
    for name, kib in zip(CARDS, known, strict=True):
        first, *more = fresh(page, model=name)["aToken"]
        assert first.split()[1] == "KiB"
        assert float(first.split()[0]) == kib, name
        if name == "Gemma 2 9B":
            assert more[0].endswith("; 168 KiB (172 kB) once the windows are full")
        elif name == "Mistral 7B v0.1":
            assert more[0].endswith("; nothing once the windows are full, at 512 MiB (537 MB)")


# The form


def test_a_card_fills_the_memory_and_a_memory_finds_its_card(page):
    fresh(page, card="80")
    assert page.get_by_label("Memory", exact=True).input_value() == "80"
    for typed, card in (("141", "141 GB"), ("23.5", "another memory")):
        fresh(page, memory=typed)
        assert page.get_by_label("Sold as").evaluate("e => e.selectedOptions[0].text") == card


def test_a_model_fills_the_sizes_and_a_changed_size_is_ones_own_model(page):
    before = fresh(page, model="Gemma 2 9B")
    values = [page.locator(f"[name={name}]").input_value() for name in SIZES]
    assert values == ["42", "8", "256", "9,241,705,984", "4,096", "21", ""]
    assert page.locator(".about a").get_attribute("href") == CARDS["Gemma 2 9B"].config_url

    after = page.evaluate(SET, {"kvHeads": "4"})
    assert page.get_by_role("combobox", name="Model").input_value() == ""
    assert "Your own model" in said(page)
    assert page.locator(".about").inner_text() == ""
    assert int(after["aToken"][1].split()[0].replace(",", "")) * 2 == int(
        before["aToken"][1].split()[0].replace(",", "")
    )


def test_a_length_beyond_the_model_is_named(page):
    fresh(page, model="GPT-2", tokens="1025")
    assert said(page).endswith("Its position table ends at 1,024 tokens.")
    fresh(page, model="Llama 3 8B", tokens="8193")
    assert said(page).endswith("Its makers state at most 8,192 tokens.")
    for model in ("GPT-2", "Llama 3 8B"):
        fresh(page, model=model, tokens="1024")
        assert said(page).endswith("left.")


def test_a_position_table_may_end_before_what_the_makers_state(visit, monkeypatch):
    card = type(CARDS["GPT-2"])(**{**vars(CARDS["GPT-2"]), "context": 4096})
    monkeypatch.setattr(calculator.modelcards, "CARDS", {card.name: card})
    page = visit(calculator.show(card.name))
    page.evaluate(SET, {"tokens": "2000"})
    assert said(page).endswith("Its position table ends at 1,024 tokens.")


WHOLE = "a whole number from 1 to 1,000,000"
BAD = [
    ("layers", "", f"Give {WHOLE}."),
    ("layers", "0", f"“0” is not {WHOLE}."),
    ("layers", "-1", f"“-1” is not {WHOLE}."),
    ("layers", "1.5", f"“1.5” is not {WHOLE}."),
    ("layers", "2.0", f"“2.0” is not {WHOLE}."),
    ("layers", "1,5", f"“1,5” is not {WHOLE}."),
    ("kvHeads", "1e99", f"“1e99” is not {WHOLE}."),
    ("headDim", "many", f"“many” is not {WHOLE}."),
    ("headDim", "1000001", f"“1000001” is not {WHOLE}."),
    ("parameters", "7B", "“7B” is not a whole number from 1 to 1,000,000,000,000,000."),
    ("window", "x", "“x” is not a whole number from 0 to 1,000,000,000."),
    ("latent", "-0", "“-0” is not a whole number from 0 to 1,000,000."),
    ("tokens", " ", "Give a whole number from 1 to 1,000,000,000."),
    ("tokens", "9" * 50, f"“{'9' * 20}…” is not a whole number from 1 to 1,000,000,000."),
    ("sequences", "NaN", "“NaN” is not a whole number from 1 to 1,000,000,000."),
    ("memory", "", "Give a number from 0.001 to 1,000,000, with at most 3 decimals."),
    ("memory", "0", "“0” is not a number from 0.001 to 1,000,000, with at most 3 decimals."),
    ("memory", "0.0001", "“0.0001” is not a number from 0.001 to 1,000,000, with at most 3"),
    ("memory", "1000000.001", "“1000000.001” is not a number from 0.001 to 1,000,000, with"),
    ("memory", ".5", "“.5” is not a number from 0.001 to 1,000,000, with at most 3 decimals."),
]
CLASHES = [
    ({"window": "512", "windowed": ""}, "windowed", "Say how many layers have the window."),
    ({"window": "", "windowed": "3"}, "window", "Give the window of these layers, in tokens."),
    ({"window": "512", "windowed": "33"}, "windowed", "There are only 32 layers."),
]


@pytest.mark.parametrize(
    ("values", "name", "message"),
    [({name: text}, name, message) for name, text, message in BAD] + CLASHES,
)
def test_bad_input_gets_one_message_at_its_field_and_no_answer(page, values, name, message):
    fresh(page)
    found = page.evaluate(SET, values)
    field = page.locator(f"[name={name}]")
    described = field.get_attribute("aria-describedby").split()
    [shown] = page.locator(".error:not(:empty)").all()

    assert shown.inner_text().startswith(message)
    assert shown.get_attribute("id") in described
    assert shown.is_visible()
    invalid = page.locator("[aria-invalid=true]").evaluate_all("all => all.map(e => e.name)")
    assert invalid == [name]
    assert found == {key: [] for key in ANSWERS}
    label = field.evaluate("e => e.labels[0].textContent")
    assert said(page) == f"No answer. To correct: {label}."
    assert not page.locator(".picture").is_visible()

    assert all(fresh(page).values())
    assert page.locator(".error:not(:empty)").count() == 0
    assert page.locator("[aria-invalid=true]").count() == 0
    assert said(page).startswith("Fits.")
    assert page.locator(".picture").is_visible()


@pytest.mark.parametrize("values", [{"windowed": "0"}, {"window": "0"}, {"latent": "0"}])
def test_no_window_and_no_latent_may_be_written_as_0(page, values):
    assert fresh(page) == page.evaluate(SET, values)


# Whoever uses no mouse, no eyes, no script


def test_by_keyboard_alone(visit):
    page = visit()
    keys = page.keyboard
    down = "i" if sys.platform == "darwin" else "ArrowDown"  # there an arrow opens a menu
    stops = []

    def tab(*pressed):
        keys.press("Tab")
        focus = "e => [e.name || e.tagName, getComputedStyle(e).outlineStyle]"
        stops.append(page.evaluate(f"({focus})(document.activeElement)"))
        for key in pressed:
            keys.press(key)

    tab(*"Gemma")
    tab()
    tab("Space")
    tab(*"40", "ArrowLeft", "Backspace", "2")  # typing replaces what is there: 40, 0, 20
    tab(*"16")
    tab()
    tab(*"1000000000")
    tab(*"409")
    tab("Home", "Delete", "ArrowRight", "4")  # 21 layers, 1, 14
    tab(*"512", *3 * ["Backspace"])
    tab(*"4096")
    tab(*"2")
    tab(*"int8")
    tab("Home", *"bf")
    tab(*"8")
    tab("End", *".25")
    tab(down if down == "ArrowDown" else "G")
    names = "model A SUMMARY layers kvHeads headDim parameters window windowed latent"
    names += " tokens sequences cacheDtype weightDtype card memory unit"
    assert [name for name, _ in stops] == names.split()
    assert all(outline not in ("none", "") for _, outline in stops), stops

    values = "els => els.map(e => e.value)"
    assert page.locator("input, select").evaluate_all(values) == [
        *("", "20", "16", "256", "1000000000", "409", "14", ""),
        *("4096", "2", "int8", "bfloat16", "", "80.25", str(GIB)),
    ]
    shape = CacheShape(20, 16, 256, "int8", [409] * 14 + [None] * 6)
    assert is_size(page.evaluate(SET, {})["cache"], shape.bytes_at(4096, 2))
    assert said(page).startswith("Fits. Your own model, 2 sequences of 4,096 tokens: 2.33 GiB.")


LABELS = {
    "Model": {
        "combobox": ["Model"],
        "textbox": [
            *("Layers", "Key/value heads", "Head dimension", "Parameters"),
            *("Window in tokens", "Layers with that window", "Latent dimension"),
        ],
    },
    "Use": {
        "textbox": ["Tokens a sequence", "Sequences at once"],
        "combobox": ["Dtype of the cache", "Dtype of the weights"],
    },
    "Card": {"combobox": ["Sold as", "Unit"], "textbox": ["Memory"]},
}


def test_every_part_has_a_role_and_a_name(visit):
    page = visit()
    page.locator("summary").click()
    region = page.get_by_role("region", name="Memory calculator")
    for group, roles in LABELS.items():
        box = region.get_by_role("group", name=group, exact=True)
        for role, names in roles.items():
            assert box.get_by_role(role).count() == len(names)
            for name in names:
                assert box.get_by_role(role, name=name, exact=True).count() == 1, name
                assert box.get_by_label(name, exact=True).count() == 1, name
    status = region.get_by_role("status")
    assert status.evaluate("e => [e.tagName, e.ariaLive]") == ["OUTPUT", "polite"]
    assert status.locator("table, input").count() == 0  # else every key is answered at length

    rows = region.get_by_role("row")
    heads = region.get_by_role("rowheader")
    assert heads.count() == region.get_by_role("cell").count() == rows.count() - 1 == len(ANSWERS)
    assert page.locator(".picture").get_attribute("aria-hidden") == "true"  # the table says it all

    latent = page.get_by_label("Latent dimension")
    page.evaluate(SET, {"latent": "x"})
    described = """e => e.getAttribute("aria-describedby").split(" ")
      .map(id => document.getElementById(id).textContent).join(" ")"""
    assert re.fullmatch(r".*Empty: none\. “x” is not .*\.", latent.evaluate(described))


def test_what_is_said_already_is_not_said_again(page):
    """A screen reader speaks whenever the sentence is written, be it the same."""
    written = f"""all => {{
      const observer = new MutationObserver(() => {{}});
      observer.observe(document.querySelector("output"), {{ childList: true }});
      return all.map(values => [({SET})(values), observer.takeRecords().length][1]);
    }}"""
    fresh(page)
    assert page.evaluate(written, [{"tokens": "x"}, {"tokens": "xy"}]) == [1, 0]


def test_without_scripts_it_says_what_to_use_instead(visit):
    page = visit(java_script_enabled=False)
    [text] = page.locator(".memory-calculator > p").all()
    assert "needs JavaScript" in text.inner_text()
    assert not page.locator("form").is_visible()

    shape, *methods, cards = text.locator("code").all_inner_texts()
    assert (shape, cards) == ("labsupport.memory.CacheShape", "labsupport.modelcards.CARDS")
    assert methods == ["bytes_at", "break_even", "tokens_that_fit", "sequences_that_fit"]
    assert all(callable(getattr(CacheShape, method)) for method in methods)


def test_with_scripts_that_sentence_is_gone(page):
    assert "needs JavaScript" not in page.locator("body").inner_text()


# Where it stands


def test_an_output_shown_twice_is_two_calculators(visit):
    """As JupyterLab shows outputs: the HTML first, then its scripts are put in anew."""
    page = visit()
    page.evaluate(
        """html => {
          const output = document.createElement("div");
          output.innerHTML = html;
          for (const old of output.querySelectorAll("script")) {
            const script = document.createElement("script");
            for (const { name, value } of old.attributes) script.setAttribute(name, value);
            script.textContent = old.textContent;
            old.replaceWith(script);
          }
          document.body.append(output);
        }""",
        calculator.show("Falcon 7B", "int8")._repr_html_(),
    )
    first, second = page.locator("section").all()
    assert second.locator("[data-answer=aToken]").inner_text().startswith("4.00 KiB")
    second.get_by_label("Sequences at once").fill("3")
    assert "Falcon 7B, 3 sequences of 8,192" in second.get_by_role("status").inner_text()
    assert "Llama 3 8B, 1 sequence of 8,192" in first.get_by_role("status").inner_text()

    ids = page.locator("[id]").evaluate_all("all => all.map(e => e.id)")
    assert len(ids) == len(set(ids)) > 20
    used = page.locator("[for], [aria-describedby]").evaluate_all(
        "all => all.flatMap(e => (e.htmlFor ?? e.getAttribute('aria-describedby')).split(' '))"
    )
    assert set(used) <= set(ids)


def test_jupyterlab_leaves_the_keys_to_the_form(page):
    """Its own commands skip an element with this attribute; it looks at what has the focus."""
    stops = [page.get_by_label("Model", exact=True), page.locator("summary")]
    for stop in [*stops, page.get_by_label("Unit"), page.get_by_label("Memory", exact=True)]:
        stop.focus()
        assert stop.get_attribute("data-lm-suppress-shortcuts") == "true"


def test_enter_leaves_the_page_where_it_is(visit):
    page = visit()
    page.get_by_label("Sequences at once").fill("2")
    before = page.url
    page.keyboard.press("Enter")
    page.locator("form").evaluate("form => form.requestSubmit()")
    assert page.url == before
    assert "2 sequences" in said(page)


def test_nothing_is_stored_and_nothing_is_global(page):
    fresh(page, model="GPT-2", tokens="9")
    kept = "[localStorage.length, sessionStorage.length, document.cookie, location.search]"
    assert page.evaluate(kept) == [0, 0, "", ""]
    assert page.evaluate("[typeof prices, typeof start, typeof FIELDS]") == ["undefined"] * 3


WIDEST = {
    **dict.fromkeys(("layers", "kvHeads", "headDim"), "1000000"),
    **dict.fromkeys(("window", "tokens", "sequences"), "1000000000"),
    **{"parameters": "1" + 15 * "0", "windowed": "999999", "cacheDtype": "float32"},
}


@pytest.mark.parametrize("width", [320, 360])
def test_no_sideways_scroll_on_a_phone(visit, width):
    page = visit(width=width)
    spilling = """all => all.filter(e => {
      const [cell, form] = [e, e.closest("form")].map(x => x.getBoundingClientRect());
      return cell.right > form.right + 1 || e.scrollWidth > e.clientWidth + 1;
    }).map(e => e.outerHTML)"""
    page.locator("details").evaluate("e => { e.open = true; }")
    for values in ({}, WIDEST, {"tokens": "9" * 60, "layers": "x" * 60}):
        page.evaluate(SET, values)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("form :is(td, th, p, label, output)").evaluate_all(spilling) == []


def luminance(colour):
    """Of `rgb(...)`, as WCAG 2 defines it."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (int(digits) / 255 for digits in re.findall(r"\d+", colour)[:3])
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


COLOURS = """([selector, property]) => {
  let e = document.querySelector(selector);
  const colour = getComputedStyle(e)[property];
  const clear = "rgba(0, 0, 0, 0)";
  if (property !== "color") e = e.parentElement;
  while (e.parentElement && getComputedStyle(e).backgroundColor === clear) e = e.parentElement;
  return [colour, getComputedStyle(e).backgroundColor];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_on_the_theme_s_ground(visit, scheme):
    """In the colours of the book's theme: 4.5 to 1 for text, 3 to 1 for the edge of a field."""
    css = (THEME / "styles" / "pydata-sphinx-theme.css").read_text(encoding="utf-8")
    css += "body { background: var(--pst-color-background); }"
    page = visit(scheme=scheme, css=css)
    page.evaluate(SET, {"tokens": "x"})
    texts = "legend label input select summary .hint .error output th .about caption .key a"
    seen = [(f".memory-calculator {part}", "color", 4.5) for part in texts.split()]
    seen += [(f"[name={name}]", "borderTopColor", 3) for name in ("tokens", "memory", "unit")]
    for selector, what, least in seen:
        a, b = map(luminance, page.evaluate(COLOURS, [selector, what]))
        contrast = (max(a, b) + 0.05) / (min(a, b) + 0.05)
        assert contrast >= least, f"{selector}: {contrast:.2f}"
    ground = luminance(page.evaluate(COLOURS, [".memory-calculator", "color"])[1])
    assert (ground < 0.1) == (scheme == "dark")


# From Python


def test_what_a_card_says_is_text_and_never_markup(visit, monkeypatch):
    evil = "</script><img src=x onerror=alert(1)><!--<script>"
    card = CARDS["GPT-2"]
    changed = type(card)(**{**vars(card), "name": evil, "note": evil, "paper": evil})
    monkeypatch.setattr(calculator.modelcards, "CARDS", {evil: changed})
    page = visit(calculator.show(evil))
    assert page.locator("img").count() == 0
    assert page.get_by_label("Model", exact=True).input_value() == evil
    assert page.locator(".about").inner_text().count(evil) == 2
    assert evil in said(page)


def test_show_starts_where_it_is_told(visit):
    page = visit(calculator.show("DeepSeek-V2", "int8"))
    assert page.get_by_label("Latent dimension").input_value() == "576"
    weights = CARDS["DeepSeek-V2"].weight_bytes("int8")
    found = page.evaluate(SET, {})
    assert is_size(found["weights"], weights)
    assert is_size(found["cache"], CARDS["DeepSeek-V2"].shape("int8").bytes_at(8192))


@pytest.mark.parametrize("asked", [("GPT-5",), ("GPT-2", "float12")])
def test_show_refuses_what_it_does_not_know(asked):
    with pytest.raises(ValueError, match=f"'{asked[-1]}' is not known; choose one of .*"):
        calculator.show(*asked)


def test_as_text_it_says_how_to_ask_in_python():
    text = repr(calculator.show("GPT-2", "int8"))
    assert "labsupport.modelcards.CARDS['GPT-2'].shape('int8')" in text
    assert f"{len(CARDS)} models" in text
    for method in re.findall(r"\w+_\w+(?=[,.])", text.splitlines()[-1]):
        assert callable(getattr(CacheShape, method))
