"""The one style sheet: what of the theme's and the extensions' sheets stays in it."""

import re
import shutil
from pathlib import Path

import pydata_sphinx_theme
import pytest
import styles
import tinycss2
from fontTools.ttLib import TTFont

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


def test_the_sheet_is_written_for_all_pages_and_again_when_what_it_is_made_of_changed(tmp_path):
    site, course = tmp_path / "html", tmp_path / "html/_static/course"
    course.mkdir(parents=True)
    (site / "one.html").write_text('<p class="on">', encoding="utf-8")
    (site / "two.html").write_text('<table id="here" style="top: var(--t)">', encoding="utf-8")
    (course / "course.js").write_text('add("made"); get("--s")', encoding="utf-8")
    (course / "vega.js").write_text('"unmade"', encoding="utf-8")
    theirs = site / "_static/a.css"

    def sheet(css):
        theirs.write_text(css, encoding="utf-8")
        styles.write(site, sorted(site.glob("*.html")), ["_static/a.css"])
        return (site / styles.SHEET).read_text(encoding="utf-8")

    used = ["p.on", "table", "#here", ".made"]
    css = "".join(f"{selector}{{top: 0}}" for selector in [*used, ".unmade", "ol"])
    variables = "html{--s: 0;--t: 0}\n"
    first = sheet("html{--s: 0;--t: 0;--u: 0}" + css)
    assert first == variables + "\n".join(f"{selector}{{top: 0}}" for selector in used) + "\n"

    (site / styles.SHEET).write_text("kept", encoding="utf-8")
    assert sheet(theirs.read_text(encoding="utf-8")) == "kept"
    (site / "one.html").write_text('<p class="on"><ol>', encoding="utf-8")
    assert "ol{" in sheet(theirs.read_text(encoding="utf-8"))
    (site / "one.html").write_text('<ol class="on" style="top: var(--u)"><p>', encoding="utf-8")
    assert "--u: 0" in sheet(theirs.read_text(encoding="utf-8"))
    assert "ol{top: 1px}" in sheet("ol{top: 1px}")
    (site / styles.SHEET).unlink()
    assert "ol{top: 1px}" in sheet("ol{top: 1px}")
