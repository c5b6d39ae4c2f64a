"""On the built pages: each term is linked once, where it is used first, and every entry is used.

Words are found here in another way than the extension finds them, by comparing word by word.
"""

import re
from functools import cache
from itertools import pairwise

import glossary_links
import pytest
from bs4 import BeautifulSoup, NavigableString
from lesson_inputs import toc_pages
from repository import HTML, ROOT

GLOSSARY = glossary_links.GLOSSARY
PAGES = sorted(set(toc_pages(ROOT)) - {GLOSSARY})

# Where no link may stand: headings, what is linked already, code, formulas, outputs and so on.
NO_LINKS = (
    "h1, h2, h3, h4, a:not(.term-link), code, pre, .math, .katex, figcaption, caption, thead, dt, "
    "summary, .admonition-title, .cell_input, .cell_output, .pasted-text, div.sd-card, .citation, "
    ".toctree-wrapper, script, style, .prev-next-footer, .visually-hidden, .rubric, "
    "[class*='status-']"  # what the build fills in
)
FOLDED = "details, .dropdown, .toggle"


@cache
def article(doc):
    """The text of a page as parsed HTML."""
    soup = BeautifulSoup((HTML / f"{doc}.html").read_text(encoding="utf-8"), "html.parser")
    return soup.find("article")


@cache
def entries():
    """Number of entry -> its names; every name's anchor -> number of entry."""
    names, anchors, last = [], {}, None
    for element in article(GLOSSARY).select("dl.glossary > dt, dl.glossary > dd"):
        if element.name == "dt":
            if last != "dt":
                names.append([])
            for mark in element.select(".headerlink"):
                mark.extract()
            names[-1].append(" ".join(element.get_text().split()))
            anchors[element["id"]] = len(names) - 1
        last = element.name
    return names, anchors


def linked_names():
    """Words of a name -> number of its entry, for all that are to be linked."""
    opted_out = set(glossary_links.NOT_LINKED)
    return {
        tuple(name.split()): number
        for number, names in enumerate(entries()[0])
        if not opted_out & set(names)
        for name in names
    }


def singulars(word):
    """What a word may be the plural of, and itself."""
    ends = {"s": "", "es": "", "ies": "y"}
    return {word, *(word[: -len(e)] + to for e, to in ends.items() if word.endswith(e))}


def used(text, known):
    """Numbers of the entries whose names stand in a text, longer names first, in order."""
    found, words, place = [], list(re.finditer(r"[\w/-]+", text)), 0
    longest = max(map(len, known))
    while place < len(words):
        for size in range(longest, 0, -1):
            group = words[place : place + size]
            joined = all(text[a.end() : b.start()].isspace() for a, b in pairwise(group))
            if len(group) == size and joined and (names := read_as(group, text) & known.keys()):
                found.append(known[names.pop()])
                place += size - 1
                break
        place += 1
    return found


def read_as(group, text):
    """What these words may be read as: in the singular; in small letters at a sentence's start."""
    *firsts, last = (word[0] for word in group)
    said = {(*firsts, one) for one in singulars(last)}
    before = text[max(0, group[0].start() - 4) : group[0].start()]
    if not before or before.rstrip().endswith(tuple('.?!:(“"')):
        said |= {(name[0][0].lower() + name[0][1:], *name[1:]) for name in said if name[0]}
    return said


def running_text(doc):
    """(text, entry that it is linked to or None), what is open first and then what is folded."""
    anchors, parts = entries()[1], {False: [], True: []}
    refused = {id(element) for element in article(doc).select(NO_LINKS)}
    folded = {id(element) for element in article(doc).select(FOLDED)}
    for string in article(doc).find_all(string=True):
        above = list(string.parents)
        if type(string) is NavigableString and not any(id(p) in refused for p in above):
            link = string.find_parent("a", class_="term-link")
            entry = anchors[link["href"].partition("#")[2]] if link else None
            parts[any(id(p) in folded for p in above)].append((str(string), entry))
    return parts[False] + parts[True]


@pytest.mark.parametrize("doc", PAGES)
def test_each_term_is_linked_once_at_its_first_use(site, doc):
    known, names = linked_names(), entries()[0]
    marked = [a["href"] for a in article(doc).select("a:has(.std-term):not(.term-link)")]
    done = {entries()[1][href.partition("#")[2]] for href in marked}  # by a `term` role
    for text, entry in running_text(doc):
        if entry is not None:
            assert entry not in done, f"linked again: {text!r}"
            assert entry in used(text, known), f"{text!r} is no name of {names[entry]}"
            done.add(entry)
        else:
            missed = [names[number] for number in used(text, known) if number not in done]
            assert missed == [], f"used before it is linked, or never linked: {text!r}"


@pytest.mark.parametrize("doc", PAGES)
def test_links_stand_in_running_text_alone(site, doc):
    inside = article(doc).select(", ".join(f"{part} a.term-link" for part in NO_LINKS.split(", ")))
    assert inside == []
    in_text = {entry for _, entry in running_text(doc) if entry is not None}
    assert len(article(doc).select("a.term-link")) == len(in_text)


def test_every_entry_is_used_in_the_course(site):
    """An entry that no page links must at least be written somewhere, in a list's head perhaps."""
    links = {
        a["href"].partition("#")[2] for doc in PAGES for a in article(doc).select(".term-link")
    }
    linked = {entries()[1][anchor] for anchor in links}
    course = [doc for doc in PAGES if doc != "pages/symbols"]
    said = " ".join(article(doc).get_text(" ") for doc in course)
    for number, names in enumerate(entries()[0]):
        if number not in linked:
            assert used(said, {tuple(name.split()): number for name in names}), names


def test_every_entry_leads_to_the_section_that_treats_it(site):
    for definition in article(GLOSSARY).select("dl.glossary > dd"):
        assert definition.select("a.internal"), definition.get_text()


def test_entries_are_sorted(site):
    firsts = [names[0].lower() for names in entries()[0]]
    assert firsts == sorted(firsts)
    assert len(firsts) >= 50


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_term_can_be_told_from_text_without_colour(visit, scheme):
    link = visit("chapters/memory", scheme=scheme).locator("article a.term-link").first
    style = link.evaluate(
        "a => { const s = getComputedStyle(a), p = getComputedStyle(a.closest('p, li'));"
        "return [s.textDecorationLine, s.textDecorationStyle, s.color === p.color]; }"
    )
    assert style == ["underline", "dotted", True]


def test_a_term_leads_to_its_entry(fresh):
    page = fresh("pages/errata")
    page.locator("article a.term-link", has_text="audits").click()
    page.wait_for_url("**/pages/glossary.html#term-audit")
    assert page.locator("dt:target").inner_text().startswith("audit")
