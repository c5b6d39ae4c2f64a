"""The rocket of every page: which notebook it opens, from which repository and branch."""

import pytest
import yaml
from lesson_inputs import executed_lessons, toc_pages
from repository import ROOT, read

PAGES = toc_pages(ROOT)
CONFIG = yaml.safe_load(read("_config.yml"))
LESSONS = executed_lessons(ROOT)
FIRST_CHAPTER = next(doc for doc in PAGES if doc.startswith("chapters/"))
ROCKET = ".dropdown-launch-buttons"


def notebook(doc):
    """The file that the page's rocket should open: itself, if it has code; else chapter 1."""
    own = doc in LESSONS or PAGES[doc].suffix == ".ipynb"
    return PAGES[doc if own else FIRST_CHAPTER].relative_to(ROOT).as_posix()


@pytest.mark.parametrize("doc", PAGES)
def test_binder_opens_the_pages_notebook(visit, doc):
    slug = CONFIG["repository"]["url"].removeprefix("https://github.com/")
    where = f"https://mybinder.org/v2/gh/{slug}/{CONFIG['repository']['branch']}"
    (link,) = visit(doc).locator(f"{ROCKET} a").all()
    assert link.get_attribute("href") == f"{where}?urlpath=lab/tree/{notebook(doc)}"
    assert (ROOT / notebook(doc)).is_file()


@pytest.mark.parametrize("doc", ["index", FIRST_CHAPTER])
def test_the_rocket_opens_by_keyboard(fresh, doc):
    page = fresh(doc)
    rocket, link = page.locator(f"{ROCKET} > button"), page.locator(f"{ROCKET} a")
    assert not link.is_visible()
    rocket.focus()
    page.keyboard.press("Enter")
    link.wait_for(state="visible")
    assert "Binder" in link.inner_text()
