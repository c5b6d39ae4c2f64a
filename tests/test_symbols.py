"""The index of symbols: every letter of a formula is in it, and its links lead to the first use."""

import json
import re

import pytest
from lesson_inputs import toc_pages
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from repository import ROOT, read

INDEX = "pages/symbols"
CHAPTERS = {
    "refresher": "pages/refresher",
    "chapter 1": "chapters/stall",
    "chapter 2": "chapters/decomposition",
    "chapter 3": "chapters/derivation",
    "chapter 4": "chapters/memory",
}
# Letters that need no row, and why.
LOCAL = {
    "i": "counts tokens, calls or sequences within one formula",
    "j": "counts tokens within one formula",
}
# And letters of a single exercise, which says itself what they are.
OF_AN_EXERCISE = {
    "decomposition": {"d": "the degree of a drift"},
    "memory": {
        "W": "bytes of the weights",
        "b": "bytes of a token in a layer",
        "b_i": "the same of layer i",
        "w_i": "window of layer i",
        "o": "tokens of an answer",
        "p": "tokens of a prompt",
        "e": "the base of exponentials",
        "s_j": "score of token j",
    },
}

markdown = MarkdownIt("commonmark").use(dollarmath_plugin).enable("table")

GROUP = r"(?:\\bar\s*)?(?:\\alpha|[A-Za-z])"
TEXT = r"\\(?:text|mathrm)\{[^{}]*\}"
BELOW = rf"_(?:\{{(?:{TEXT}|[^{{}}])*\}}|{TEXT}|[A-Za-z])"
ABOVE = r"\^(?:\{[^{}]*\}|\*|\\alpha|\\top|[A-Za-z0-9])"
SYMBOL = re.compile(rf"(?P<base>{GROUP})(?P<marks>(?:{BELOW}|{ABOVE})*)")
MARK = re.compile(rf"(?P<below>{BELOW})|(?P<above>{ABOVE})")


def symbols(latex):
    """The symbols of a formula: letters with what stands below them, and those in exponents."""
    found = set()
    latex = re.sub(rf"(?<!_)(?<!_\{{){TEXT}", " ", latex.replace(r"\top", ""))
    latex = re.sub(r"\\(?!bar|alpha|text|mathrm)(?:[A-Za-z]+|.)", " ", latex)
    latex = re.sub(
        rf"(?<=[\s}}])_(?:\{{{TEXT}\}}|{TEXT})", " ", latex
    )  # words below a sum or brace
    for match in SYMBOL.finditer(latex):
        base = re.sub(r"\s+", " ", match["base"])
        marks = list(MARK.finditer(match["marks"]))
        below = "".join(mark["below"] or "" for mark in marks)
        word = re.search(r"\\(?:text|mathrm)\{([^{}]*)\}", below)
        letters = word[1] if word else re.sub(r"[_{}\s]", "", below)
        above = [mark["above"] for mark in marks if mark["above"]]
        star = "^*" if "^*" in above else ""
        found.add(base + (f"_{letters}" if letters else "") + star)
        for exponent in above:
            found |= symbols(exponent.strip("^{}").replace("*", ""))
    return found


def formulas(text):
    """The formulas of a Markdown text; those of directives with colons are text like other."""
    tokens = markdown.parse(re.sub(r"^:{3,}.*$", "", text, flags=re.MULTILINE))
    todo = list(tokens)
    while todo:
        token = todo.pop(0)
        todo[:0] = token.children or []
        if token.type.startswith("math"):
            yield token.content


def sections(doc):
    """(address of a section as the index writes it, its text) for each section of a page."""
    path, code = f"{doc}.md", False
    here = path.removeprefix("pages/") if path.startswith("pages/") else f"../{path}"
    found, label = [("", [])], None
    for line in read(path).splitlines():
        code ^= line.startswith("```")
        if mark := re.fullmatch(r"\(([\w-]+)\)=", line):
            label = mark[1]
        elif (heading := re.match(r"## +(.*)", line)) and not code:
            slug = re.sub(r"[^\w -]", "", heading[1].lower()).replace(" ", "-")
            found.append((f"#{label}" if label else f"{here}#{slug}", []))
            label = None
        found[-1][1].append(line)
    return [(address, "\n".join(lines)) for address, lines in found]


def rows():
    """(first cell, {chapter: address}) of each row of the tables."""
    for line in read(f"{INDEX}.md").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and not line.startswith(("| symbol", "| name", "| ---")):
            yield cells[0], dict(re.findall(r"\[([^\]]+)\]\(([^)]+)\)", cells[-1]))


def indexed():
    """Symbol -> [{chapter: address}], a dict for each meaning."""
    table = {}
    for cell, places in rows():
        for formula in re.findall(r"\$([^$]+)\$", cell):
            symbol = max(symbols(formula), key=len)
            table.setdefault(symbol, []).append(places)
    return table


def test_symbols_are_taken_apart():
    assert symbols(r"a_{tj}\, v_j + \frac{F_u}{n_\text{kv heads}}") == {
        *("a_tj", "v_j", "F_u", "n_kv heads")
    }
    assert symbols(r"n^* \cdot d^2, \bar x, k_j^h, W_{DKV}, \text{no} \ln q^\top") == {
        *("n^*", "d", r"\bar x", "k_j", "h", "W_DKV", "q")
    }
    assert symbols(r"\sum_\text{kinds} e^{s_j} + \underbrace{2}_{K,\,V}") == {"e", "s_j", "K", "V"}


def reduced(symbol):
    """A symbol without running letters below it."""
    base, _, below = symbol.partition("_")
    return base if below and set(below) <= set(LOCAL) else symbol


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_symbol_of_a_chapter_is_indexed_for_it(chapter):
    table = indexed()
    text = read(f"{CHAPTERS[chapter]}.md")
    for symbol in set().union(*map(symbols, formulas(text))) - set(LOCAL):
        meanings = table.get(symbol, []) + table.get(reduced(symbol), [])
        assert any(chapter in places for places in meanings), f"{symbol} is not indexed"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_links_lead_to_the_first_section_that_uses_the_symbol(chapter):
    places = sections(CHAPTERS[chapter])
    where = [(at, set().union(*map(symbols, formulas(text)), set())) for at, text in places]
    linked = {}  # symbol -> the places that its rows name in this chapter
    for cell, links in rows():
        meant = {max(symbols(f), key=len) for f in re.findall(r"\$([^$]+)\$", cell)}
        if meant and chapter in links:
            using = [at for at, used in where if meant & used]
            assert links[chapter] in using, f"{cell} is not used there"
            for symbol in meant:
                linked.setdefault(symbol, set()).add(links[chapter])
    for symbol, places in linked.items():
        using = [at for at, used in where if symbol in used]
        assert not using or using[0] in places, f"{symbol} is used before, in {using[0]}"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_names_in_code_are_linked_to_their_first_use(chapter):
    places = sections(CHAPTERS[chapter])
    for cell, links in rows():
        if (name := re.fullmatch(r"`(\w+)`", cell)) and chapter in links:
            use = rf"\b{name[1]}\b" if "_" in name[1] else rf"\b{name[1]}=|`{name[1]}`"
            using = [at for at, text in places if re.search(use, text)]
            assert links[chapter] == using[0], name[1]


SIZES = re.compile(r"\b(?:n_\w+|d_\w+|\w+_dim|\w+_size)\b")
OF_ONE_CELL = {"n_all": "tokens held and new", "n_filled": "slots of a ring that hold a row"}


def test_the_sizes_in_shapes_are_indexed():
    """Whatever stands in the shape of an array, as in `[n_tokens, head_dim]`, is a size."""
    names = {name for cell, _ in rows() for name in re.findall(r"`(\w+)`", cell)}
    for doc in CHAPTERS.values():
        shapes = re.findall(r"\[((?:\w+, ?)+\w+)\]", read(f"{doc}.md"))
        sizes = {size for shape in shapes for size in SIZES.findall(shape)}
        assert sizes - set(OF_ONE_CELL) <= names, (
            f"{doc}: {sorted(sizes - set(OF_ONE_CELL) - names)}"
        )


@pytest.mark.parametrize("chapter", ["stall", "decomposition", "derivation", "memory"])
def test_exercises_use_the_symbols_of_their_chapter(chapter):
    cells = json.loads(read(f"exercises/student/{chapter}/{chapter}.ipynb"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    used = set().union(*(symbols(f) for text in texts for f in formulas(text)), set())
    own = set(OF_AN_EXERCISE.get(chapter, ()))
    assert own <= used, f"not used any more: {own - used}"
    number = {doc.rpartition("/")[2]: name for name, doc in CHAPTERS.items()}[chapter]
    known = {s for s, meanings in indexed().items() if any(number in m for m in meanings)}
    left = {s for s in used - own - set(LOCAL) if s not in known and reduced(s) not in known}
    assert left == set()


def test_exceptions_are_needed():
    text = "\n".join(read(f"{doc}.md") for doc in CHAPTERS.values())
    used = set().union(*map(symbols, formulas(text)))
    assert set(LOCAL) <= used
    assert set(LOCAL).isdisjoint(indexed())


def test_the_index_is_in_the_book():
    assert INDEX in toc_pages(ROOT)
