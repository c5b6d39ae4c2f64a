"""The built book as a reader meets it: served on loopback, every other host unreachable.

Modules here share their names with none of tests/: neither folder is a package.
"""

import re
from collections import OrderedDict
from contextlib import ExitStack, contextmanager

import pytest
from repository import HTML, ROOT
from serving import base_path, serve

ELSEWHERE = re.compile(r"^(?!http://127\.0\.0\.1[:/]|data:|blob:|about:)")
LAY_OUT_ALL = """() => {
  for (const section of document.querySelectorAll(".bd-article section")) {
    section.style.contentVisibility = "visible";
  }
}"""
ALL_LAID_OUT = """() => [...document.querySelectorAll(".bd-article section")].every((section) =>
  getComputedStyle(section).contentVisibility === "visible")"""
SCRIPTS_RUN = "document.documentElement.dataset.scripts === 'run'"  # as _ext/scripts.py says
KEPT = 12  # pages that stay open: some two for each way to look at one


@pytest.fixture(scope="session")
def site():
    """The address of the built book, as it is on the web: compressed and below its path."""
    if not (ROOT / "_build" / "passed").is_file():
        pytest.fail("There is no book that was built without error. Run: make book")
    with serve(HTML, base_path(ROOT)) as address:
        yield address


def watched(context):
    """A new page of this context: `.complaints` lists what goes wrong, `.asked` its requests."""
    page = context.new_page()
    page.complaints, page.asked = [], []

    def refuse(route):
        page.complaints.append(f"asks another host: {route.request.url}")
        route.abort()

    def failed(request):
        later = page.asked[page.asked.index(request) + 1 :]
        left = any(one.is_navigation_request() for one in later)
        if left and request.failure == "net::ERR_ABORTED":
            return  # the reader left while a figure was still coming: no fault of the page
        if not ELSEWHERE.match(request.url):
            page.complaints.append(f"{request.failure}: {request.url}")

    def answered(response):
        if response.status >= 400:
            page.complaints.append(f"{response.status}: {response.url}")

    def said(message):
        if message.type in ("error", "warning"):
            page.complaints.append(f"console: {message.text}")

    page.route(ELSEWHERE, refuse)
    page.on("request", lambda request: page.asked.append(request))
    page.on("requestfailed", failed)
    page.on("response", answered)
    page.on("console", said)
    page.on("pageerror", lambda error: page.complaints.append(f"script: {error}"))
    return page


@pytest.fixture(scope="session")
def opening(site, browser):
    """opening(doc, ...) -> a new page in a context of its own, for as long as the block lasts."""

    @contextmanager
    def opened(doc, width=1300, scheme="light", scripts=True, **options):
        """`doc` is a document's name, with a query or an anchor where that is wanted."""
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            java_script_enabled=scripts,
            **options,
        )
        page = watched(context)
        name, rest = re.fullmatch(r"([^?#]*)(.*)", doc).groups()
        try:
            page.goto(f"{site}/{name}.html{rest}", wait_until="load")
            if scripts:
                page.wait_for_function(SCRIPTS_RUN)
            page.at_first = [*page.asked]  # what a reader opens later may ask for more
            yield page
        finally:
            context.close()

    return opened


@pytest.fixture(scope="session")
def laid_out():
    """laid_out(page) waits until the page's script has laid out all sections."""
    return lambda page: page.wait_for_function(ALL_LAID_OUT)


@pytest.fixture(scope="session")
def visit(opening, laid_out):
    """visit(doc, width=1300, scheme="light", scripts=True) -> the loaded page, to look at.

    Its scripts have laid out all sections, and have seen that; without them, it is as if the reader
    had scrolled through the page. Its `.complaints` lists what went wrong: messages on the console,
    failed and foreign requests.
    A page is shared by the tests that only look at it; one that changes a page takes `fresh`.
    """
    pages = OrderedDict()

    def look(doc, width=1300, scheme="light", scripts=True):
        key = (doc, width, scheme, scripts)
        if key not in pages:
            block = opening(*key)
            page = block.__enter__()
            if scripts:
                laid_out(page)
                page.wait_for_timeout(100)
            else:
                page.evaluate(LAY_OUT_ALL)
            pages[key] = (page, block)
        pages.move_to_end(key)
        if len(pages) > KEPT:
            _, (_, oldest) = pages.popitem(last=False)
            oldest.__exit__(None, None, None)
        return pages[key][0]

    yield look
    for _, block in pages.values():
        block.__exit__(None, None, None)


@pytest.fixture
def fresh(opening):
    """fresh(doc, ...) -> as `visit`, but a page and a device of this test's own, to change.

    Takes Playwright's options of a browser context besides. No page may end with a complaint.
    """
    pages = []
    with ExitStack() as blocks:

        def load(doc, *how, **options):
            pages.append(blocks.enter_context(opening(doc, *how, **options)))
            return pages[-1]

        yield load
        assert [page.complaints for page in pages] == [[] for _ in pages]
