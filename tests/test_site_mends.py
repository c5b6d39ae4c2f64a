"""The steps that mend a written page, each on a page that needs it."""

from pathlib import Path

import page_mends
import pytest
import scripts
import styles
from bs4 import BeautifulSoup
from course_site import AsWritten
from PIL import Image

PAGE = """<!DOCTYPE html>
<html lang="en" data-theme="auto"><head><meta charset="utf-8"/>
<meta name="viewport" content="a"/><meta name="viewport" content="b"/>
<link href="_static/one.css?v=1" rel="stylesheet"/><link href="_static/two.css" rel="stylesheet"/>
<link rel="preload" as="script" href="_static/x.js"/>
<script src="_static/x.js"></script></head>
<body><div id="pst-primary-sidebar"></div>
<div id="jb-print-docs-body"><h1>Title</h1></div>
<main id="main-content" role="main"><article class="bd-article"><section><h1>Title</h1></section>
<button aria-label="Find">Search <b>Ctrl</b></button><button aria-label="Menu"><i></i></button>
<div class="dropdown-download-buttons"><a href="one.ipynb" target="_blank">.ipynb</a></div>
<details><summary><p>Show</p></summary></details>
<table border="1"><tr><th scope="col"></th><th halign="left" valign="top">a</th></tr></table>
<style scoped>th {}</style>
<div role="list" class="citation-list"><div role="doc-biblioentry"></div></div>
<math><mo><mrow><mi>h</mi></mrow></mo><mi>x</mi></math>
<div class="cell_output"><script>mine()</script></div>
<script type="application/json">{"a": "</b>"}</script>
<img src="wide.png" alt="A picture"/><img src="https://example.org/other.png" alt="Another"/>
<img src="b%C3%A4r.png?v=1" alt="A bear"/><img src="gone.png" alt="Gone"/>
</article><img src="wide.png" alt="Below"/></main></body></html>"""


@pytest.fixture
def site(tmp_path):
    Image.new("RGB", (30, 20)).save(tmp_path / "wide.png")
    Image.new("RGB", (7, 9)).save(tmp_path / "bär.png")
    (tmp_path / "page.html").write_text(PAGE, encoding="utf-8")
    return tmp_path


@pytest.fixture
def mended(site):
    soup = BeautifulSoup(PAGE, "html.parser")
    page_mends.mend(soup, site / "page.html")
    return soup


@pytest.mark.parametrize(
    ("selector", "count"),
    [
        ('meta[name="viewport"]', 1),
        ("h1", 1),
        ("div > h1", 1),  # no longer in a section
        ("main[role]", 0),
        ("button[aria-label]", 1),  # the one that has no text
        ('#pst-primary-sidebar[role="complementary"][aria-label]', 1),
        ("summary p", 0),
        ("summary span", 1),
        ("[border], [halign], [valign], style[scoped]", 0),
        ("th", 1),
        ("td", 1),  # the header that headed nothing
        ('[role="list"], [role="doc-biblioentry"]', 0),
        ("mo *", 0),
        ("math > mi", 1),
        ("td[scope]", 0),
        ('img[width="30"][height="20"][loading="lazy"]', 1),
        ('img[width="7"][height="9"]', 1),  # its address is encoded and has a query
        ("img[width]", 3),
        ("a[download]:not([target])", 1),
        ("img[loading]", 4),  # not the one beside the article
    ],
)
def test_a_mend(mended, selector, count):
    assert len(mended.select(selector)) == count


def test_an_operator_keeps_its_text(mended):
    assert mended.find("mo").get_text() == "h"


def test_a_drawing_has_the_size_of_its_view_box(tmp_path):
    drawing = tmp_path / "a.svg"
    drawing.write_text('<svg viewBox="0 0 44.4 64"></svg>', encoding="utf-8")
    assert page_mends.size(drawing) == (44, 64)


def test_what_is_not_mended_is_written_as_it_was():
    text = '<p class="b" id="a">1 &lt; 2<br>&amp; é</p><pre>\n  x\n</pre>'
    assert BeautifulSoup(text, "html.parser").decode(formatter=AsWritten()) == text


# Scripts


@pytest.mark.parametrize(
    ("name", "root", "search"),
    [("page.html", "", False), ("a/b/page.html", "../../", False), ("search.html", "", True)],
)
def test_scripts_are_fetched_from_where_they_are(tmp_path, name, root, search):
    asked = scripts.sources(tmp_path / name, tmp_path)
    assert all(
        address.startswith((f"{root}_static/course/", f"{root}searchindex")) for address in asked
    )
    assert (f"{root}searchindex.js" in asked) == search
    assert (f"{root}_static/course/search.js" in asked) == search
    assert asked.index(f"{root}_static/course/sphinx.js") == 0


def test_a_page_keeps_data_and_what_a_cell_brought_and_no_other_script(site):
    soup = BeautifulSoup(PAGE, "html.parser")
    scripts.put_off(soup, site / "page.html", site)
    texts = [script.get_text() for script in soup.find_all("script")]
    assert not soup.select("script[src], link[rel=preload]")
    assert sum("mine()" in text for text in texts) == 1
    assert sum('{"a"' in text for text in texts) == 1
    assert len(texts) == 4  # with the colours and the loader
    assert soup.head.find_all(True)[1].string == scripts.COLOURS  # after the encoding
    assert soup.html["data-theme"] == "light"  # where scripts are off


def static_files(site, **changed):
    for name in {name for names in scripts.BUNDLES.values() for name in names}:
        path = site / "_static" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(changed.get(path.stem, f"/* {name} */"), encoding="utf-8")


OWN = Path(scripts.__file__).parent / "static"
THEME = {
    "sphinx_highlight": 'querySelectorAll("div.body")',
    "searchtools": """q('[role="main"]', [".headerlink", "style"],
      {files: terms[word]}, {files: titleTerms[word]}, parseFromString(htmlString, 'text/html'))""",
    "pydata-sphinx-theme": f"f(),{scripts.MEASURES_ALL},t.blur()",
}


def test_bundles_join_their_files_in_order(tmp_path):
    static_files(tmp_path, **THEME)
    scripts.write(tmp_path, OWN)
    copy = (tmp_path / "_static/course/copy.js").read_text(encoding="utf-8")
    assert copy == "/* clipboard.min.js */\n;\n/* copybutton.js */\n"
    search = (tmp_path / "_static/course/search.js").read_text(encoding="utf-8")
    assert "role=" not in search
    theme = (tmp_path / "_static/course/theme.js").read_text(encoding="utf-8")
    assert theme.endswith("f(),void 0,void 0\n")


def test_a_theme_that_changed_is_refused(tmp_path):
    static_files(tmp_path, **THEME | {"pydata-sphinx-theme": "t.blur()"})
    with pytest.raises(ValueError, match=r"theme\.js: no .*_ext/scripts\.py"):
        scripts.write(tmp_path, OWN)


def test_a_source_map_is_not_asked_for():
    assert scripts.without_source_map("a()\n//# sourceMappingURL=a.js.map") == "a()"


def test_their_sheets_are_replaced_by_ours(site):
    soup = BeautifulSoup(PAGE, "html.parser")
    assert styles.link(soup, site / "page.html", site) == ["_static/one.css", "_static/two.css"]
    assert [sheet["href"] for sheet in soup.select("link[rel=stylesheet]")] == [styles.SHEET]
