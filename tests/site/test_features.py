"""What a reader does on a page beside reading it: search, colours, copies, keys, downloads."""

import re
from urllib.parse import urljoin

import nbformat
import pytest

from labsupport.modelcards import CARDS
from pages import HTML, LESSONS, TOC, soup

CHAPTER = LESSONS[0]
PAST_SIDEBARS = 90  # key presses that must reach the article, over all that stands before it

# The element in focus: what it is, whether it can be seen, and whether it shows its focus.
FOCUS = """async () => {
  await new Promise(requestAnimationFrame);  // what slides in at focus has to arrive
  const timed = document.getAnimations().filter((it) => it.timeline === document.timeline);
  await Promise.allSettled(timed.map((moving) => moving.finished));
  const it = document.activeElement;
  const box = it.getBoundingClientRect(), style = getComputedStyle(it);
  const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
  return {
    html: it.outerHTML.slice(0, 120),
    text: it.innerText || it.ariaLabel || it.title || "",
    article: it.closest("article") !== null,
    seen: it.checkVisibility({ opacityProperty: true, visibilityProperty: true })
      && box.width > 1 && box.height > 1 && box.right > 0 && box.left < innerWidth
      && box.bottom > 0 && box.top < innerHeight,
    marked: outlined || style.boxShadow !== "none",
  };
}"""


def pressed(page, key="Tab"):
    """The element in focus after a key."""
    page.keyboard.press(key)
    return page.evaluate(FOCUS)


def test_search_by_keyboard(fresh):
    page = fresh(CHAPTER)
    page.keyboard.press("Control+k")
    assert page.evaluate("document.activeElement.closest('dialog').open")
    page.keyboard.type("residual")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/search\.html\?q=residual$"))
    results = page.locator("#search-results li")
    results.locator(".context").first.wait_for()
    assert results.count() >= 2
    assert "residual" in " ".join(results.locator(".context").all_inner_texts()).lower()
    for link in results.locator("a").all():
        assert page.request.get(urljoin(page.url, link.get_attribute("href"))).ok
    results.locator("a").first.click()
    page.locator("article").wait_for()
    marked = page.locator("article span.highlighted")
    marked.first.wait_for(state="attached")
    assert "residual" in " ".join(marked.all_text_contents()).lower()
    assert page.locator("span.highlighted:not(article *)").count() == 0


def test_search_shows_a_term_apart_from_its_meaning(fresh):
    entry = soup(CHAPTER).select_one("article dt")
    term, meaning = entry.get_text(), entry.find_next("dd").get_text().split()
    page = fresh(f"search?q={term}")
    chapter = page.locator("#search-results li").filter(has_text=soup(CHAPTER).h1.find(string=True))
    shown = chapter.locator(".context").first.inner_text()
    assert f"{term} {' '.join(meaning[:5])}" in " ".join(shown.split())


def test_search_shows_cells_of_a_table_apart(fresh):
    found = next(td for td in soup("ledger").select("table.claims td") if "slides" in td.get_text())
    words, verdict = found.get_text().split(), found.find_next("td").get_text().split()
    page = fresh("search?q=slides")
    ledger = page.locator("#search-results li").filter(has_text=soup("ledger").h1.find(string=True))
    shown = ledger.locator(".context").first.inner_text()
    assert f"{words[-1]} {verdict[0]}" in " ".join(shown.split())


def test_search_shows_sentences_and_no_code(fresh):
    page = fresh("search?q=ring")  # of which "training" is one, in a line of imports
    results = page.locator("#search-results li")
    results.filter(has_text="4 · The memory price").locator(".context").wait_for()
    shown = " ".join(results.locator(".context").all_inner_texts())
    assert "ring" in shown
    assert not re.search(r"\bimport\b|Link to the row", shown)


@pytest.mark.parametrize("word", ["xylophone", "constructor", "__proto__"])
def test_search_has_an_answer_for_a_word_that_is_nowhere(fresh, word):
    page = fresh(f"search?q={word}")
    page.get_by_text("did not match any documents").wait_for()


def test_the_colours_that_a_reader_chose_stay(fresh):
    page = fresh(CHAPTER)
    theme = "document.documentElement.dataset.theme"
    grounds = {}
    for _ in range(3):
        page.locator(".theme-switch-button:visible").click()
        mode = page.evaluate("document.documentElement.dataset.mode")
        grounds[mode] = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert set(grounds) == {"light", "dark", "auto"}
    assert grounds["auto"] == grounds["light"] != grounds["dark"]  # the device is light
    while page.evaluate("document.documentElement.dataset.mode") != "dark":
        page.locator(".theme-switch-button:visible").click()
    page.locator("a.right-next").click()
    page.wait_for_load_state("networkidle")
    assert page.evaluate(theme) == "dark"
    page.reload(wait_until="networkidle")
    assert page.evaluate(theme) == "dark"


@pytest.mark.parametrize("doc", LESSONS)
def test_each_cells_code_can_be_copied(fresh, doc):
    page = fresh(doc, permissions=["clipboard-read", "clipboard-write"])
    page.evaluate("document.querySelectorAll('details').forEach((it) => { it.open = true; })")
    notebook = nbformat.read(HTML / "_sources" / f"{doc}.ipynb", as_version=4)
    sources = {cell.source.strip() for cell in notebook.cells if cell.cell_type == "code"}
    cells = page.query_selector_all("article .cell_input .highlight")
    assert cells
    for cell in cells:
        cell.hover()
        cell.query_selector("button.copybtn").click()
        copied = page.evaluate("navigator.clipboard.readText()").replace("\r\n", "\n").strip()
        assert copied in sources
        sources.discard(copied)


@pytest.mark.parametrize("doc", LESSONS)
def test_a_lesson_offers_its_executed_notebook_and_its_source(visit, doc):
    page = visit(doc)
    menu = ".dropdown-download-buttons"
    source = page.locator(f"{menu} a.btn-download-source-button").get_attribute("href")
    assert page.request.get(urljoin(page.url, source)).text().startswith("---\njupytext:")
    href = page.locator(f"{menu} a.btn-download-notebook-button").get_attribute("href")
    notebook = nbformat.reads(page.request.get(urljoin(page.url, href)).text(), as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any(cell.outputs for cell in code)
    for cell in code:
        drawn = any("image/png" in output.get("data", {}) for output in cell.outputs)
        alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
        assert alt.strip() or not drawn, f"no mystnb image alt in the cell:\n{cell.source}"


@pytest.mark.parametrize("kind", ["notebook", "source"])
def test_the_pages_download_buttons_save_a_file(fresh, kind):
    """A browser that can show the text of a notebook must not take the reader there."""
    page = fresh(CHAPTER)
    page.locator(".dropdown-download-buttons > button").click()
    with page.expect_download() as started:
        page.locator(f"a.btn-download-{kind}-button").click()
    name = started.value.suggested_filename
    assert name == CHAPTER.split("/")[-1] + {"notebook": ".ipynb", "source": ".md"}[kind]
    assert started.value.path().read_bytes() == (HTML / "_sources/chapters" / name).read_bytes()


@pytest.mark.parametrize("doc", LESSONS)
def test_a_cell_unfolds_and_folds_by_key(fresh, doc):
    page = fresh(doc)
    folded = page.locator("article details:not([open])").first
    if not folded.count():
        assert not page.query_selector("article .tag_hide-input"), "tagged, but not folded"
        return
    details = folded.element_handle()
    summary = details.query_selector("summary")
    for expected in (True, False):
        summary.focus()
        page.keyboard.press("Enter")
        assert details.evaluate("it => it.open") is expected


def test_the_first_key_offers_to_skip_to_the_text(fresh):
    page = fresh(CHAPTER)
    first = pressed(page)
    assert "Skip to main content" in first["text"]
    assert first["seen"]
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main-content"
    landed = pressed(page)
    assert page.evaluate("document.activeElement.closest('main') !== null"), landed


@pytest.mark.parametrize("width", [1300, 360])
def test_keys_reach_the_article_over_what_can_be_seen(fresh, width):
    page = fresh(CHAPTER, width)
    steps = [pressed(page)]
    while not steps[-1]["article"] and len(steps) < PAST_SIDEBARS:
        steps.append(pressed(page))
    steps += [pressed(page) for _ in range(15)]
    assert any(step["article"] for step in steps)
    assert [step["html"] for step in steps if not step["seen"]] == []
    assert [step["html"] for step in steps if not step["marked"]] == []


def test_the_pages_menu_opens_by_key_on_a_phone(fresh):
    page = fresh(CHAPTER, 360)
    menu = page.locator(".bd-sidebar-primary .bd-links").first
    assert not menu.is_visible()
    while "primary-toggle" not in pressed(page)["html"]:
        assert not page.evaluate("document.activeElement.closest('article') !== null")
    page.keyboard.press("Enter")
    menu.wait_for(state="visible")
    page.keyboard.press("Escape")
    menu.wait_for(state="hidden")


def test_the_sidebar_folds_by_key_on_a_wide_screen(fresh):
    page = fresh(CHAPTER)
    menu, toggle = page.locator(".bd-sidebar-primary .bd-links"), page.locator(".primary-toggle")
    assert menu.is_visible()
    toggle.focus()
    for state in ("hidden", "visible"):  # the switch keeps the focus
        page.keyboard.press("Enter")
        menu.wait_for(state=state)


@pytest.mark.parametrize("doc", TOC)
def test_formulas_are_typeset_and_read_aloud(visit, doc):
    """Each formula is drawn, and holds MathML for those who hear it."""
    formulas = visit(doc).evaluate(
        """[...document.querySelectorAll("article .math, article .katex")].map((it) => ({
          text: it.textContent.slice(0, 60),
          math: it.querySelector("math") !== null,
          box: it.getBoundingClientRect().height > 0 || !it.checkVisibility(),
        }))"""
    )
    assert [it["text"] for it in formulas if not (it["math"] and it["box"])] == []


def test_the_calculator_answers_in_its_page(fresh):
    """No kernel is there and no other host; tests/test_calculator.py holds all its answers."""
    form = fresh("chapters/memory").locator(".memory-calculator")
    form.locator("[name=model]").select_option(label="Mistral 7B v0.1")
    for n_tokens in (1000, 5000):
        form.locator("[name=tokens]").fill(f"{n_tokens}")
        cache_bytes = CARDS["Mistral 7B v0.1"].shape("float16").bytes_at(n_tokens)
        assert f"{cache_bytes:,} bytes" in form.locator("[data-answer=cache]").inner_text()


@pytest.mark.parametrize(
    ("doc", "box"),
    [
        ("chapters/decomposition", ".cell_output figure"),
        ("chapters/decomposition", ".output:has(table.dataframe)"),
        ("chapters/derivation", ".katex-display"),
        ("pages/status", ".status-scroll"),
        ("pages/symbols", ".pst-scrollable-table-container"),
    ],
)
def test_what_goes_on_beside_a_phones_screen_fades_out_there(fresh, doc, box):
    page = fresh(doc, 360)
    beside = page.locator(box).evaluate_all("all => all.map((b) => b.scrollWidth - b.clientWidth)")
    wide = page.locator(box).nth(next(i for i, width in enumerate(beside) if width > 20))
    wide.scroll_into_view_if_needed()
    masks = [
        wide.evaluate(
            """async (box, share) => {
              box.scrollLeft = share * (box.scrollWidth - box.clientWidth);
              for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
              return getComputedStyle(box).maskImage;
            }""",
            share,
        )
        for share in (0, 0.5, 1)
    ]
    clear = "rgba(0, 0, 0, 0)"
    assert [mask.count(clear) for mask in masks] == [1, 2, 1]
    assert masks[0].startswith(f"linear-gradient(to left, {clear}")  # it goes on to the right
    assert masks[2].startswith(f"linear-gradient(to right, {clear}")


def test_what_fits_or_has_the_focus_does_not_fade(fresh):
    page = fresh("chapters/decomposition", 360)
    figure = page.locator(".cell_output figure").first
    mask = "box => getComputedStyle(box).maskImage"
    figure.scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    assert figure.evaluate(mask) != "none"
    page.keyboard.press("Tab")  # from here on, the focus shows
    figure.focus()
    assert figure.evaluate(mask) == "none"  # it would cut the outline off
    figure.evaluate("box => box.blur()")
    page.set_viewport_size({"width": 1300, "height": 900})
    page.wait_for_timeout(200)
    assert figure.evaluate(mask) == "none"
