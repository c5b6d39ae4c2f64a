"""One style sheet for all pages, with only the rules that some page can use.

The theme and the extensions bring eight sheets, 400 kB, most of it for things that this book has
not, and icon fonts of 270 kB for some twenty icons. A phone has to fetch and read all that before
it shows a word. Here the sheets are joined in their order; rules whose classes, ids or tags occur
on no page and in no script are left out, and so are variables that no rule reads; each icon font is
cut down to the icons that are left.
"""

import re
from functools import partial
from pathlib import Path, PurePosixPath

import tinycss2
from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont

SHEET = "_static/course/site.css"

ATTRIBUTE = re.compile(r"\s(?:class|id)=\"([^\"]*)\"")
TAG = re.compile(r"<([a-zA-Z][\w-]*)")
WORD = re.compile(r"[A-Za-z_][\w-]*")
URL = re.compile(r"url\((['\"]?)(?!data:|#)([^)'\"]+)\1\)")
ICON = re.compile(r"[\ue000-\uf8ff]")  # where Unicode leaves room for a font's own

# What Bootstrap's script makes: menus and tooltips. Its other words name parts that no page has.
BOOTSTRAP = {"show", "fade", "collapsing", "tooltip", "tooltip-inner", "tooltip-arrow"}
BOOTSTRAP |= {"bs-tooltip-auto", "bs-tooltip-top", "bs-tooltip-bottom", "bs-tooltip-start"}
BOOTSTRAP |= {"bs-tooltip-end", "dropdown-menu-dark", "dropdown-menu-end", "modal-open"}


def is_linked(page: Path) -> bool:
    """Whether the page has our style sheet already: an earlier build mended it."""
    return SHEET in page.read_text(encoding="utf-8")


def link(soup, page: Path, site: Path) -> list[str]:
    """Replace the page's style sheets by ours; returns theirs, relative to the site's root."""
    found = soup.select('link[rel="stylesheet"]')
    root = "../" * len(page.relative_to(site).parents[1:])
    found[0].insert_before(soup.new_tag("link", rel="stylesheet", href=root + SHEET))
    paths = [(page.parent / sheet["href"].split("?")[0]).resolve() for sheet in found]
    for sheet in found:
        sheet.decompose()
    return [path.relative_to(site.resolve()).as_posix() for path in paths]


def names_in_use(pages: list[Path], scripts: list[Path]) -> set[str]:
    """Every class, id and tag of the pages, and every word of the scripts."""
    names = {"html", "body", "root", *BOOTSTRAP}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        names |= {name for value in set(ATTRIBUTE.findall(text)) for name in value.split()}
        names |= set(TAG.findall(text))
    for script in scripts:
        names |= set(WORD.findall(script.read_text(encoding="utf-8")))
    return names


def can_match(selector: str, names: set[str]) -> bool:
    """Whether each class, id and tag that a selector asks for is in use.

    What stands in brackets (attributes, :not, :is) is not looked at, so a doubt keeps the rule.
    """
    plain = re.sub(r"\[[^\]]*\]", "", selector)
    while "(" in plain:
        plain, before = re.sub(r"\([^()]*\)", "", plain), plain
        if plain == before:
            return True
    plain = re.sub(r"::?[\w-]+", "", plain).replace("\\", "")
    return all(name in names for name in WORD.findall(re.sub(r"(?<=[.#\s>+~])-+", "", plain)))


def split_selectors(prelude: list) -> list[str]:
    """The selectors of a rule: its prelude, taken apart at the commas outside of brackets."""
    parts = [[]]
    for token in prelude:
        if token.type == "literal" and token.value == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    return [tinycss2.serialize(part).strip() for part in parts]


def used_rules(rules: list, names: set[str]) -> str:
    """The style sheet of those rules that can match something."""
    kept = []
    for rule in rules:
        if rule.type == "qualified-rule":
            selectors = [s for s in split_selectors(rule.prelude) if can_match(s, names)]
            if selectors:
                kept.append(f"{','.join(selectors)}{{{tinycss2.serialize(rule.content).strip()}}}")
        elif rule.type == "at-rule":
            head = f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}"
            if rule.lower_at_keyword in ("media", "supports", "layer") and rule.content:
                inner = tinycss2.parse_rule_list(rule.content, True, True)
                if body := used_rules(inner, names):
                    kept.append(f"{head}{{{body}}}")
            elif rule.content:
                kept.append(f"{head}{{{tinycss2.serialize(rule.content).strip()}}}")
            elif rule.lower_at_keyword != "charset":
                kept.append(f"{head};")
    return "\n".join(kept)


def without_unread_variables(css: str, elsewhere: str) -> str:
    """The style sheet without the custom properties that nothing reads, however indirectly."""
    declaration = re.compile(r"(?<=[{;])\s*(--[\w-]+)\s*:[^;{}]*(?:;|(?=\}))")
    while True:
        read = set(re.findall(r"var\(\s*(--[\w-]+)", css)) | set(re.findall(r"--[\w-]+", elsewhere))
        unread = {name for name in declaration.findall(css) if name not in read}
        if not unread:
            return re.sub(r"(?m)^[^{}@]*\{\s*\}\n?", "", css)
        css = declaration.sub(partial(unless_in, unread), css)


def unless_in(names: set[str], found: re.Match) -> str:
    """The match as it is, or nothing if its first group is one of `names`."""
    return "" if found[1] in names else found[0]


def moved(sheet: str, css: str) -> str:
    """A sheet's text with its addresses written as seen from the folder of ours."""

    def address(found):
        path = PurePosixPath(sheet).parent / found[2]
        parts = []
        for part in path.parts:
            parts = parts[:-1] if part == ".." else [*parts, part]
        return f"url(../{'/'.join(parts[1:])})"  # theirs lie below _static, as ours does

    return URL.sub(address, css)


def cut_icon_fonts(css: str, site: Path) -> str:
    """Replace each icon font by one that has the icons of this style sheet alone."""
    icons = set(map(ord, ICON.findall(css)))

    def cut(found):
        source = re.search(r"url\(\.\./([^)]*/(fa-[\w-]+))\.ttf\)", found[0])
        if not source:
            return found[0]
        font = TTFont(site / "_static" / f"{source[1]}.ttf", recalcTimestamp=False)
        options = Options(flavor="woff", layout_features=[], hinting=False, notdef_outline=False)
        subsetter = Subsetter(options)
        subsetter.populate(unicodes=icons & set(font.getBestCmap()))
        subsetter.subset(font)
        font.flavor = "woff"
        font.save(site / "_static" / "course" / f"{source[2]}.woff")
        return re.sub(r"src:[^;}]*", f'src:url({source[2]}.woff) format("woff")', found[0])

    return re.sub(r"@font-face\{[^}]*\}", cut, css)


def write(site: Path, pages: list[Path], sheets: list[str]) -> None:
    """Write the one style sheet and the fonts that it names, for all pages of the site."""
    scripts = sorted((site / "_static" / "course").glob("*.js"))
    scripts = [path for path in scripts if path.name not in ("menus.js", "vega.js")]
    names = names_in_use(pages, scripts)
    joined = "\n".join(moved(s, (site / s).read_text(encoding="utf-8")) for s in sheets)
    css = used_rules(tinycss2.parse_stylesheet(joined, True, True), names)
    elsewhere = "\n".join(path.read_text(encoding="utf-8") for path in [*pages, *scripts])
    css = cut_icon_fonts(without_unread_variables(css, elsewhere), site)
    (site / SHEET).write_text(css + "\n", encoding="utf-8", newline="\n")
