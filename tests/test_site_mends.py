"""The steps that mend a written page, each on a page that needs it; and the style sheet."""

import re
import shutil
from pathlib import Path

import page_mends
import pydata_sphinx_theme
import pytest
import scripts
import styles
import tinycss2
from bs4 import BeautifulSoup
from course_site import AsWritten
from fontTools.ttLib import TTFont
from PIL import Image

PAGE = """<!DOCTYPE html>
<html lang="en" data-theme="auto"><head><meta charset="utf-8"/>
<meta name="viewport" content="a"/><meta name="viewport" content="b"/>
<link href="_static/one.css?v=1" rel="stylesheet"/><link href="_static/two.css" rel="stylesheet"/>
<link rel="preload" as="script" href="_static/x.js"/>
<script src="_static/x.js"></script></head>
<body><div id="pst-primary-sidebar"></div>
<div id="jb-print-docs-body"><h1>Title</h1></div>
<main id="main-content" role="main"><article class="bd-article"><h1>Title</h1>
<button aria-label="Find">Search <b>Ctrl</b></button><button aria-label="Menu"><i></i></button>
<details><summary><p>Show</p></summary></details>
<table border="1"><tr><th></th><th halign="left" valign="top">a</th></tr></table>
<style scoped>th {}</style>
<div role="list" class="citation-list"><div role="doc-biblioentry"></div></div>
<math><mo><mrow><mi>h</mi></mrow></mo><mi>x</mi></math>
<div class="cell_output"><script>mine()</script></div>
<script type="application/json">{"a": "</b>"}</script>
<img src="wide.png" alt="A picture"/><img src="https://example.org/other.png" alt="Another"/>
</article></main></body></html>"""


@pytest.fixture
def site(tmp_path):
    Image.new("RGB", (30, 20)).save(tmp_path / "wide.png")
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
        ('img[width="30"][height="20"][loading="lazy"]', 1),
        ("img[width]", 1),
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
    assert asked.index(f"{root}_static/course/sphinx.js") == 0


def test_a_page_keeps_data_and_what_a_cell_brought_and_no_other_script(site):
    soup = BeautifulSoup(PAGE, "html.parser")
    scripts.put_off(soup, site / "page.html", site)
    texts = [script.get_text() for script in soup.find_all("script")]
    assert not soup.select("script[src], link[rel=preload]")
    assert sum("mine()" in text for text in texts) == 1
    assert sum('{"a"' in text for text in texts) == 1
    assert len(texts) == 4  # with the colours and the loader
    assert soup.html["data-theme"] == "light"  # where scripts are off


def static_files(site, **changed):
    for name in {name for names in scripts.BUNDLES.values() for name in names}:
        path = site / "_static" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(changed.get(path.stem, f"/* {name} */"), encoding="utf-8")


OWN = Path(scripts.__file__).parent / "static"
THEME = {
    "searchtools": """q('[role="main"]')""",
    "pydata-sphinx-theme": f"f(),{scripts.MEASURES_ALL},t.blur()",
}


def test_bundles_join_their_files_in_order(tmp_path):
    static_files(tmp_path, **THEME)
    scripts.write(tmp_path, OWN)
    copy = (tmp_path / "_static/course/copy.js").read_text(encoding="utf-8")
    assert copy.index("clipboard.min.js") < copy.index("copybutton.js")
    theme = (tmp_path / "_static/course/theme.js").read_text(encoding="utf-8")
    assert theme.endswith("f(),void 0,void 0\n")


def test_a_theme_that_changed_is_refused(tmp_path):
    static_files(tmp_path, **THEME | {"pydata-sphinx-theme": "t.blur()"})
    with pytest.raises(ValueError, match=r"theme\.js: no .*_ext/scripts\.py"):
        scripts.write(tmp_path, OWN)


def test_a_source_map_is_not_asked_for():
    assert scripts.without_source_map("a()\n//# sourceMappingURL=a.js.map") == "a()"


# The style sheet

NAMES = {"html", "p", "on", "here", "svg"}


@pytest.mark.parametrize(
    ("selector", "kept"),
    [
        ("p", True),
        ("p.on", True),
        ("p.off", False),
        ("#here > p::before", True),
        ("#gone", False),
        ("table", False),
        ("p:not(.off)", True),
        ("p:is(.off, .on:not(.x))", True),
        ('html[data-theme="dark"] .on', True),
        ("[class*=off]", True),
        (".on+.off", False),
        ("*", True),
    ],
)
def test_a_rule_stays_if_it_can_match(selector, kept):
    assert styles.can_match(selector, NAMES) == kept


def sheet(css, names=NAMES, outside=()):
    return styles.written(
        styles.without_unread(styles.used_rules(styles.parsed(css), names), set(outside))
    )


def test_selectors_leave_one_by_one():
    assert sheet("p, .off, .on:is(a, b) { color: red; }") == "p,.on:is(a, b){color: red}"


def test_rules_in_rules():
    css = "@media print { .off { top: 0 } .on { top: 1px } } @media screen { .off { top: 0 } }"
    assert sheet(css) == "@media print{\n.on{top: 1px}\n}"


def test_an_address_with_a_semicolon_stays_whole():
    icon = 'url("data:image/svg+xml;charset=utf8,%3Csvg%3E;{}")'
    css = f".on {{ --icon: {icon}; color: var(--icon) }} p {{ top: 0 }}"
    rules = tinycss2.parse_stylesheet(sheet(css), True, True)
    assert [rule.type for rule in rules] == ["qualified-rule"] * 2


def test_variables_that_nothing_reads_leave_in_turn():
    css = "html { --a: 1px; --b: var(--a); --c: var(--b); --d: 2px } p { top: var(--d) }"
    assert sheet(css) == "html{--d: 2px}\np{top: var(--d)}"
    assert "--b: var(--a)" in sheet(css, outside={"--b"})


def test_steps_of_an_animation_are_no_selectors():
    assert sheet("@keyframes k { from { top: 0 } to { top: 1px } }").count("top") == 2


def test_a_broken_sheet_is_an_error():
    with pytest.raises(ValueError, match="error in line"):
        styles.parsed("p { } }")


def test_addresses_are_seen_from_our_sheet(tmp_path):
    (tmp_path / "_static/styles").mkdir(parents=True)
    (tmp_path / "_static/basic.css").write_text("i { background: url(file.png) }", encoding="utf-8")
    (tmp_path / "_static/styles/a.css").write_text(
        '@import "../basic.css";p { background: url("../f/x.woff2"), url(data:a) }',
        encoding="utf-8",
    )
    text = styles.text_of("_static/styles/a.css", tmp_path)
    assert re.findall(r"url\(([^)]*)\)", text) == ["../file.png", "../f/x.woff2", "data:a"]
    assert "@import" not in text


def test_an_icon_font_has_the_icons_in_use_alone(tmp_path):
    theme = Path(pydata_sphinx_theme.__file__).parent / "theme/pydata_sphinx_theme/static"
    font = "vendor/fontawesome/webfonts/fa-solid-900.ttf"
    static = tmp_path / "_static"
    (static / font).parent.mkdir(parents=True)
    shutil.copy(theme / font, static / font)
    (static / "course").mkdir()
    css = f'@font-face{{font-family: F;src:url(../{font})}}\n.fa-rocket:before{{content: "\uf135"}}'
    cut = styles.cut_icon_fonts(css, tmp_path)
    assert 'src:url(fa-solid-900.woff) format("woff")' in cut
    with TTFont(static / "course/fa-solid-900.woff") as small:
        assert set(small.getBestCmap()) == {0xF135}


def test_their_sheets_are_replaced_by_ours(site):
    soup = BeautifulSoup(PAGE, "html.parser")
    assert styles.link(soup, site / "page.html", site) == ["_static/one.css", "_static/two.css"]
    assert [sheet["href"] for sheet in soup.select("link[rel=stylesheet]")] == [styles.SHEET]
