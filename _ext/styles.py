"""One style sheet for all pages, with only the rules that some page can use.

The theme and the extensions bring eight sheets, 400 kB, most of it for things that this book has
not, and icon fonts of 270 kB for some twenty icons. A phone has to fetch and read all that before
it shows a word. Here the sheets are joined in their order; rules whose classes, ids or tags occur
on no page and in no script are left out, and so are variables that no rule reads; each icon font is
cut down to the icons that are left.
"""

import hashlib
import logging
import posixpath
import re
from pathlib import Path, PurePosixPath

import tinycss2
from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont

logging.getLogger("fontTools.subset").setLevel(logging.WARNING)  # it tells each table it drops

SHEET = "_static/course/site.css"

ATTRIBUTE = re.compile(r"\s(?:class|id)=\"([^\"]*)\"")
TAG = re.compile(r"<([a-zA-Z][\w-]*)")
WORD = re.compile(r"[A-Za-z_][\w-]*")
URL = re.compile(r"url\((['\"]?)(?!data:|#)([^)'\"]+)\1\)")
IMPORT = re.compile(r"@import\s*(['\"])([^'\"]+)\1\s*;")
ICON = re.compile(r"[\ue000-\uf8ff]")  # where Unicode leaves room for a font's own

# Rules that hold rules. Those of keyframes are steps of an animation, no selectors.
NESTING = {"media", "supports", "layer", "keyframes", "-webkit-keyframes"}

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


def parsed(css: str) -> list:
    """The rules of a style sheet, as (head, content): content is a list of such rules, or a list of
    (property, value), or None where the rule is one line such as @charset."""
    return [taken_apart(rule) for rule in tinycss2.parse_stylesheet(css, True, True)]


def taken_apart(rule) -> tuple:
    """One rule as `parsed` describes it."""
    if rule.type == "error":
        raise ValueError(f"A style sheet has an error in line {rule.source_line}: {rule.message}")
    head = tinycss2.serialize(rule.prelude).strip()
    if rule.type == "at-rule":
        head = f"@{rule.at_keyword} {head}".strip()
        if rule.content is None:
            return head, None
        if rule.lower_at_keyword in NESTING:
            inner = tinycss2.parse_rule_list(rule.content, True, True)
            return head, [taken_apart(each) for each in inner]
    declarations = tinycss2.parse_blocks_contents(rule.content, True, True)
    return head, [each.serialize().strip() for each in declarations]


def used_rules(rules: list, names: set[str]) -> list:
    """Those of the rules, and of each list of selectors those, that can match something."""
    kept = []
    for head, content in rules:
        if content and isinstance(content[0], tuple):
            content = (
                used_rules(content, names) if not head.split()[0].endswith("keyframes") else content
            )
        elif not head.startswith("@"):
            head = ",".join(s for s in selectors(head) if can_match(s, names))
        if head and content != []:
            kept.append((head, content))
    return kept


def selectors(head: str) -> list[str]:
    """The selectors of a rule: its head, taken apart at the commas outside of brackets."""
    parts, depth = [""], 0
    for sign in head:
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def without(rules: list, unread: set[str]) -> list:
    """The rules without the declarations of these custom properties."""
    kept = []
    for head, content in rules:
        if content and isinstance(content[0], tuple):
            content = without(content, unread)
        elif content:
            content = [line for line in content if line.split(":")[0] not in unread]
        if content != []:
            kept.append((head, content))
    return kept


def written(rules: list) -> str:
    """The rules as a style sheet, one a line."""
    lines = []
    for head, content in rules:
        if content is None:
            lines.append(f"{head};")
        elif isinstance(content[0], tuple):
            lines.append(f"{head}{{\n{written(content)}\n}}")
        else:
            lines.append(f"{head}{{{';'.join(content)}}}")
    return "\n".join(lines)


def without_unread(rules: list, outside: set[str]) -> list:
    """The rules without the custom properties that nothing reads, however indirectly; `outside`:
    those that pages or scripts read."""
    while True:
        css = written(rules)
        read = outside | set(re.findall(r"var\(\s*(--[\w-]+)", css))
        unread = set(re.findall(r"(--[\w-]+)\s*:", css)) - read
        if not unread:
            return rules
        rules = without(rules, unread)


def text_of(sheet: str, site: Path) -> str:
    """A sheet with those that it imports, its addresses written as seen from the folder of ours."""
    css = (site / sheet).read_text(encoding="utf-8")
    folder = PurePosixPath(sheet).parent

    def imported(found):
        return text_of(posixpath.normpath(folder / found[2]), site)

    def address(found):
        return f"url({posixpath.relpath(folder / found[2], PurePosixPath(SHEET).parent)})"

    return IMPORT.sub(imported, URL.sub(address, css))


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
    texts = [text_of(sheet, site) for sheet in sheets]
    shown = "\n".join(path.read_text(encoding="utf-8") for path in [*pages, *scripts])
    outside = set(re.findall(r"--[\w-]+", shown))

    # An edit of a text seldom brings a name that is new: the sheet of the last build then stays.
    made_of = hashlib.sha256(repr((texts, sorted(names), sorted(outside))).encode()).hexdigest()
    mark = site.parent / "style_sheet_made_of"
    if (site / SHEET).is_file() and mark.is_file() and mark.read_text("utf-8") == made_of:
        return
    rules = used_rules([rule for text in texts for rule in parsed(text)], names)
    css = cut_icon_fonts(written(without_unread(rules, outside)), site)
    (site / SHEET).write_text(css + "\n", encoding="utf-8", newline="\n")
    mark.write_text(made_of, encoding="utf-8")
