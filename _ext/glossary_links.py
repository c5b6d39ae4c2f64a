"""The first use of each glossary term on a page becomes a link to its entry.

Authors write plain words, so chapters stay readable as notebooks, and an entry that is added later
is linked everywhere. Sphinx's own `term` role asks for a mark at every place; it still works, and a
page that uses it for an entry gets no other link to that entry.

The links are made in the resolved document, after numbers were glued into the prose. Documents that
were read before are therefore as good as new: when entries change, pages are written again and not
read again, and when a page changes, only that page is.

Linked is running text: no heading, caption, link, code, formula, head of a table, output of a cell
or number that a cell computed. What is folded comes after what is open, so that a first use can be
seen. A word with a capital letter is matched as it is; any other may begin a sentence. Longer
names go first: in "residual stream" there is no "residual".
"""

import re
from dataclasses import dataclass

from docutils import nodes
from sphinx import addnodes
from sphinx.errors import ExtensionError
from sphinx_design.dropdown import dropdown_main, dropdown_title

GLOSSARY = "pages/glossary"
LINK_CLASS = "term-link"

NOT_LINKED = {  # entries whose name also stands for something else in the course's prose
    "block": "of a model, of tokens, and of the allocator",
    "cannot tell": "also plain words, as in 'cannot tell them apart'",
    "evidence": "also in its everyday sense",
    "floor": "of an interval in chapter 2, of a time in chapter 3",
    "hit": "also a verb",
    "miss": "also how far a fit is off",
    "query": "in attention, and a request in chapter 2",
    "scale": "also in 'at real scale'",
    "width": "also of a head and of a number",
}

CLOSED = (  # no links below these
    nodes.Titular,
    nodes.Invisible,
    nodes.FixedTextElement,
    nodes.caption,
    nodes.citation,
    nodes.footnote,
    nodes.legend,
    nodes.literal,
    nodes.math,
    nodes.raw,
    nodes.reference,
    nodes.term,
    nodes.thead,
    addnodes.glossary,
    addnodes.toctree,
    dropdown_title,
)
CLOSED_CLASSES = {"cell_input", "cell_output", "pasted-text"}
FOLDED_CLASSES = {"dropdown", "toggle"}


@dataclass(frozen=True)
class Name:
    """One name of an entry: the entry's number, its place on the page, and a tooltip or ""."""

    entry: int
    anchor: str
    tip: str


def first_sentence(definition: nodes.Element) -> str:
    """The definition's first sentence if it is plain text, else ""."""
    before_any_markup = definition.next_node(nodes.Text)
    sentence = re.match(r"(.+?\.)(?=\s|$)", " ".join(before_any_markup.split()))
    return sentence[1] if sentence else ""


def names_of(glossary: nodes.document) -> dict[str, Name]:
    """Every name that is to be linked, from the glossary's document.

    Raises ExtensionError if `NOT_LINKED` names something that is no entry.
    """
    names, all_names = {}, set()
    items = [i for g in glossary.findall(addnodes.glossary) for i in g[0]]
    for number, item in enumerate(items):
        tip = first_sentence(item.next_node(nodes.definition))
        terms = {term.astext(): term["ids"][0] for term in item.children[:-1]}
        all_names |= set(terms)
        if not NOT_LINKED.keys() & terms.keys():
            names |= {text: Name(number, anchor, tip) for text, anchor in terms.items()}
    if unknown := set(NOT_LINKED) - all_names:
        raise ExtensionError(f"NOT_LINKED: no entry of the glossary: {sorted(unknown)}")
    return names


def pattern_of(name: str) -> str:
    """A regular expression for a name, in the singular or plural, perhaps at a sentence's start."""
    words = [re.escape(word) for word in name.split()]
    words[-1] = re.sub(r"(?<=[^aeiou])y$", "(?:y|ies)", words[-1])
    if not words[-1].endswith(")"):
        words[-1] += "(?:s|es)?"
    if name[0].islower():
        words[0] = f"[{name[0]}{name[0].upper()}]" + words[0][1:]
    return r"\s+".join(words)


class Finder:
    """Finds names in texts; `names` as from `names_of`."""

    def __init__(self, names: dict[str, Name]):
        longest_first = sorted(names, key=lambda name: (-len(name), name))
        self.names = [names[name] for name in longest_first]
        self.lower = [name[0].islower() for name in longest_first]
        choices = "|".join(f"({pattern_of(name)})" for name in longest_first)
        self.pattern = re.compile(rf"(?<![\w/-])(?:{choices})(?![\w/-])") if names else None

    def find(self, text: str):
        """Yields (start, end, Name) for each name in the text."""
        for match in self.pattern.finditer(text) if self.pattern else ():
            number = match.lastindex - 1
            proper = match[0][0].isupper() and self.lower[number]
            if not proper or begins_sentence(text, match.start()):
                yield match.start(), match.end(), self.names[number]


def begins_sentence(text: str, place: int) -> bool:
    """Whether a capital letter at this place is due to a sentence's start."""
    return place == 0 or text[:place].rstrip().endswith((".", "?", "!", ":", "(", "“", '"'))


def join_lines(node: nodes.Element) -> None:
    """Make one text of neighbours: MyST starts a new one at each line's end."""
    joined = []
    for child in node.children:
        if joined and isinstance(child, nodes.Text) and isinstance(joined[-1], nodes.Text):
            joined[-1] = nodes.Text(joined[-1] + child)
        else:
            joined.append(child)
    node.children = []
    node.extend(joined)


def readable(doctree: nodes.document) -> list[nodes.Text]:
    """The texts of a document that may carry links: the open ones, then those that are folded."""
    folded = {False: [], True: []}

    def visit(node, inside):
        classes = set(node.get("classes", ()))
        whole_card_links = node.get("design_component") == "card"
        if isinstance(node, CLOSED) or classes & CLOSED_CLASSES or whole_card_links:
            return
        if isinstance(node, nodes.TextElement) and any(isinstance(c, nodes.raw) for c in node):
            return  # a sentence with HTML of its own, a link perhaps
        join_lines(node)
        inside = inside or isinstance(node, dropdown_main) or bool(classes & FOLDED_CLASSES)
        for child in node.children:
            if isinstance(child, nodes.Text):
                folded[inside].append(child)
            else:
                visit(child, inside)

    visit(doctree, False)
    return folded[False] + folded[True]


def link(doctree: nodes.document, finder: Finder, address: str) -> None:
    """Put a link at the first use of each name; `address` is that of the glossary's page."""
    entry_at = {f"{address}#{name.anchor}": name.entry for name in finder.names}
    marked = (entry_at.get(node.get("refuri")) for node in doctree.findall(nodes.reference))
    done = {entry for entry in marked if entry is not None}  # by a `term` role
    for text in readable(doctree):
        pieces, end = [], 0
        for start, stop, name in finder.find(text):
            if name.entry in done:
                continue
            done.add(name.entry)
            words = nodes.inline("", text[start:stop], classes=["std", "std-term"])
            to = {"refuri": f"{address}#{name.anchor}", "internal": True, "classes": [LINK_CLASS]}
            tip = {"reftitle": name.tip} if name.tip else {}
            pieces += [nodes.Text(text[end:start]), nodes.reference("", "", words, **to, **tip)]
            end = stop
        if pieces:
            pieces = [piece for piece in (*pieces, nodes.Text(text[end:])) if piece.astext()]
            text.parent.replace(text, pieces)


def renew(app, env):
    """Pages to write again because the glossary's names have changed: all, or none."""
    names = names_of(env.get_doctree(GLOSSARY)) if GLOSSARY in env.found_docs else {}
    before, env.glossary_names = getattr(env, "glossary_names", None), names
    app.glossary_finder = Finder(names)
    return sorted(env.found_docs - {GLOSSARY}) if names != before else []


def link_page(app, doctree, docname):
    """Link a page that is about to be written."""
    if docname != GLOSSARY:
        link(doctree, app.glossary_finder, app.builder.get_relative_uri(docname, GLOSSARY))


def setup(app):
    """Connect both steps."""
    app.connect("env-updated", renew)
    app.connect("doctree-resolved", link_page, priority=900)  # after whatever adds text
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 1}
