"""The downloads page: each file that it offers is there, and is what it says."""

import re
from urllib.parse import unquote

import pytest
from bundle import NAME as ZIP
from lesson_inputs import executed_lessons
from printed import NAME as PDF
from pypdf import PdfReader
from repository import HTML, ROOT

PAGE = "pages/downloads"


@pytest.mark.parametrize(("name", "kind"), [(PDF, b"%PDF-"), (ZIP, b"PK")])
def test_a_file_is_offered_with_its_size(fresh, name, kind):
    page = fresh(PAGE)
    link = page.locator(f'article a[href$="/{name}"]')
    with page.expect_download() as started:
        link.click()
    got = started.value.path().read_bytes()
    assert got.startswith(kind)
    assert got == (HTML / name).read_bytes()
    said = page.locator(f'[data-offer="{name}"]').inner_text()
    assert f"({len(got) / 1e6:.1f} MB" in said
    if name == PDF:
        assert f", {len(PdfReader(HTML / name).pages)} pages)" in said


def test_each_lesson_is_offered_as_a_notebook(visit):
    links = visit(PAGE).locator('article a[href$=".ipynb"]')
    found = [unquote(link.get_attribute("href")) for link in links.all()]
    assert sorted(found) == sorted(f"../_sources/{doc}.ipynb" for doc in executed_lessons(ROOT))
    assert all((HTML / "pages" / href).resolve().is_file() for href in found)


def test_the_page_names_each_file_once(visit):
    text = visit(PAGE).locator("article").inner_text()
    for name in (PDF, ZIP):
        assert len(re.findall(re.escape(name), text)) == 1
