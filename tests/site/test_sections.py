"""A chapter's sections are laid out in idle moments, and the reader sees nothing of it."""

import pytest

from pages import soup

CHAPTER = "chapters/memory"
LAST = "further-reading"

# How many sections were laid out at once, each time.
COUNT = """
window.batches = [];
new MutationObserver((changes) => {
  const sections = changes.filter(({ target }) => target.matches("section"));
  if (sections.length) window.batches.push(sections.length);
}).observe(document, { subtree: true, attributes: true, attributeFilter: ["style"] });
"""


def test_each_section_is_laid_out_in_a_task_of_its_own(fresh, laid_out):
    page = fresh(CHAPTER)
    page.add_init_script(COUNT)
    page.reload()
    laid_out(page)
    sections = soup(CHAPTER).select(".bd-article > div section")
    assert len(sections) > 5
    assert page.evaluate("window.batches") == [1] * len(sections)


@pytest.mark.parametrize("width", [1300, 360])
def test_what_the_reader_looks_at_stays_where_it_is(fresh, laid_out, width):
    page = fresh(f"{CHAPTER}#{LAST}", width)
    laid_out(page)
    page.wait_for_timeout(200)
    top = page.evaluate(f"document.getElementById('{LAST}').getBoundingClientRect().top")
    assert 0 <= top < 450, "the section that the link names has left the upper half of the screen"
