"""The built book as a reader meets it: in a browser, light and dark, wide and narrow."""

from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

import nbformat
import pytest
from lesson_inputs import executed_lessons, toc_pages
from repository import HTML, ROOT

from labsupport.modelcards import CARDS

PAGES = sorted(toc_pages(ROOT))
LESSONS = sorted(executed_lessons(ROOT))
EXTRA = {"genindex.html", "search.html"}  # pages that Sphinx adds


class Page(HTMLParser):
    """The ids of a built page and what it links to, as (address without anchor, anchor)."""

    def __init__(self, doc):
        super().__init__()
        self.address = f"{doc}.html"
        self.ids, self.links = set(), set()
        self.feed((HTML / self.address).read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids |= {attrs[name] for name in ("id", "name") if attrs.get(name)}
        for name in ("href", "src"):
            link = urlsplit(urljoin(self.address, attrs.get(name) or ""))
            if attrs.get(name) is not None and not link.scheme and not link.netloc:
                self.links.add((unquote(link.path), unquote(link.fragment)))


@pytest.fixture(scope="module")
def parsed(site):
    return {f"{doc}.html": Page(doc) for doc in PAGES}


@pytest.mark.parametrize("width", [1300, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("doc", PAGES)
def test_page_loads_without_complaint(visit, doc, scheme, width):
    page = visit(doc, width, scheme)
    assert page.locator("article h1").count() == 1
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert page.complaints == []


@pytest.mark.parametrize("doc", PAGES)
def test_no_sideways_scroll_on_a_phone(visit, doc):
    page = visit(doc, width=360)
    excess = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert excess <= 0, f"{excess} px wider than the screen"


@pytest.mark.parametrize("doc", PAGES)
def test_every_image_says_what_it_shows(visit, doc):
    for image in visit(doc).locator("article img").all():
        source = urlsplit(image.get_attribute("src")).path.rsplit("/", 1)[-1]
        alt = (image.get_attribute("alt") or "").strip()
        assert alt, f"{source} has no alt text"
        assert source.rsplit(".", 1)[0] not in alt, f"the alt text of {source} is its file name"


@pytest.mark.parametrize("doc", [doc for doc in PAGES if doc.startswith("exercises/")])
def test_an_exercise_page_opens_its_notebook_on_binder(visit, doc):
    end = f'[href$="?urlpath=lab/tree/{doc}.ipynb"]'
    assert visit(doc).locator(f'a[href^="https://mybinder.org/v2/gh/"]{end}').count() >= 1


@pytest.mark.parametrize("doc", PAGES)
def test_page_describes_itself(visit, doc):
    page = visit(doc)
    for selector in (
        'head meta[name="description"][content]',
        'head link[rel="canonical"][href^="https://"]',
        'head link[rel*="icon"]',
    ):
        assert page.locator(selector).count() >= 1, f"no {selector}"
    for button in ("source-repository", "source-edit", "source-issues"):
        assert page.locator(f".btn-{button}-button").count() == 1, f"no button {button}"


@pytest.mark.parametrize("doc", LESSONS)
def test_code_can_be_copied(visit, doc):
    cells = visit(doc).locator("article .cell_input .highlight")
    assert cells.count() > 0
    assert cells.locator("button.copybtn").count() == cells.count()


def test_the_calculator_answers_in_its_page(fresh):
    """No kernel is there and no other host; tests/test_calculator.py holds all its answers."""
    page = fresh("chapters/memory")
    form = page.locator(".memory-calculator")
    form.locator("[name=model]").select_option(label="Mistral 7B v0.1")
    for n_tokens in (1000, 5000):
        form.locator("[name=tokens]").fill(f"{n_tokens}")
        cache_bytes = CARDS["Mistral 7B v0.1"].shape("float16").bytes_at(n_tokens)
        assert f"{cache_bytes:,} bytes" in form.locator("[data-answer=cache]").inner_text()


def test_internal_links_resolve(parsed):
    broken = []
    for page in parsed.values():
        for path, anchor in page.links:
            target = path or page.address
            if not (HTML / target).is_file():
                broken.append(f"{page.address} -> {target}")
            elif anchor and target in parsed and anchor not in parsed[target].ids:
                broken.append(f"{page.address} -> {target}#{anchor}")
    assert broken == []


def test_no_page_is_an_orphan(parsed):
    built = {path.relative_to(HTML).as_posix() for path in HTML.rglob("*.html")}
    templates = {path for path in built if path.startswith("_static/")}  # of the theme
    assert built - templates == set(parsed) | EXTRA
    reached, todo = set(), {"index.html"}
    while todo:
        reached |= todo
        todo = {path for doc in todo for path, _ in parsed[doc].links if path in parsed} - reached
    assert reached == set(parsed)


@pytest.mark.parametrize("doc", LESSONS)
def test_lesson_offers_its_executed_notebook(visit, doc):
    page = visit(doc)
    href = page.locator(".btn-download-notebook-button").get_attribute("href")
    answer = page.request.get(urljoin(page.url, href))
    assert answer.ok
    notebook = nbformat.reads(answer.text(), as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any(cell.outputs for cell in code)


@pytest.mark.parametrize("doc", LESSONS)
def test_every_cell_that_draws_has_alt_text(site, doc):
    notebook = nbformat.read(HTML / "_sources" / f"{doc}.ipynb", as_version=4)
    for cell in notebook.cells:
        drawn = any("image/png" in output.get("data", {}) for output in cell.get("outputs", []))
        alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
        assert alt.strip() or not drawn, f"no mystnb image alt in the cell:\n{cell.source}"
