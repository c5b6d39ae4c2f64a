"""The text that the character model learns, and the 100 characters that it knows.

The text is this course's own: the prose of its pages and the docstrings of its modules. `prose` and
`docstrings` say what of a file is text; `training` reads the files and keeps what they gave, since
the course is edited later and recorded weights must stay explained.
"""

import ast
import re
from collections import Counter
from dataclasses import dataclass

HELD_OUT = 0.1  # of the text, from its end: never trained on
VOCAB_SIZE = 100
ALWAYS = "\n" + "".join(map(chr, range(32, 127)))  # a line end and printable ASCII: 96 characters
ELSE = "\N{REPLACEMENT CHARACTER}"  # stands for every character that is not known
COMPUTED = "\N{HORIZONTAL ELLIPSIS}"  # stands for what only the built page shows

OPENS = re.compile(r"\s*(`{3,}|~{3,})")  # a fence of code, or of a directive written as code
LEFT_OUT = re.compile(
    r"\s*(:{3,}|:[\w-]+:|\([\w-]+\)=$|%|<!--|\+\+\+)"
)  # directives, labels, notes
ROLE = re.compile(r"\{[\w:-]+\}`[^`]*`")  # {glue:text}`ratio`: a value the page computes
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


def prose(markdown):
    """The prose of a MyST page: no front matter, no code, no lines that only direct the layout.

    What stands inside a directive of colons is kept. A role becomes an ellipsis, a link its text.
    """
    markdown = re.sub(r"\A---\n.*?\n---\n", "", markdown, flags=re.DOTALL)
    kept, fence = [], None
    for line in markdown.splitlines():
        if fence is None and (opened := OPENS.match(line)):
            fence = opened[1]
        elif fence is not None:
            if line.strip() and set(line.strip()) == {fence[0]} and len(line.strip()) >= len(fence):
                fence = None
        elif not LEFT_OUT.match(line):
            kept.append(LINK.sub(r"\1", ROLE.sub(COMPUTED, line)).rstrip())
    return _tidy("\n".join(kept))


def docstrings(source):
    """The docstrings of a Python source file, in its order, a paragraph each."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    nodes.sort(key=lambda node: getattr(node, "lineno", 0))
    return _tidy("\n\n".join(filter(None, map(ast.get_docstring, nodes))))


def _tidy(text):
    """No more than one empty line at a time, and one line end at the end."""
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


def split(text):
    """The text to train on, and the last tenth of it, held out."""
    cut = len(text) - int(HELD_OUT * len(text))
    return text[:cut], text[cut:]


@dataclass(frozen=True)
class Alphabet:
    """Characters in the order of their ids; the last, `ELSE`, stands for all others."""

    characters: str

    def __post_init__(self):
        if len(set(self.characters)) != len(self.characters) or self.characters[-1:] != ELSE:
            raise ValueError(f"an alphabet holds each character once, and {ELSE!r} last")

    @classmethod
    def of(cls, text, size=VOCAB_SIZE):
        """Printable ASCII, the line end, and of the others those most frequent in `text`.

        Where too few others are there, code points from U+00A0 on fill the places, so that there
        are `size` characters for any text.
        """
        others = Counter(c for c in text if c not in ALWAYS and c != ELSE)
        ranked = sorted(others, key=lambda c: (-others[c], c))
        spare = (c for c in map(chr, range(0xA0, 0xA0 + size)) if c not in others)
        return cls("".join([*ALWAYS, *ranked, *spare][: size - 1]) + ELSE)

    def __len__(self):
        return len(self.characters)

    def encode(self, text):
        """The id of each character, a list; a character that is not known gets the last id."""
        ids = {c: i for i, c in enumerate(self.characters)}
        return [ids.get(c, len(ids) - 1) for c in text]

    def decode(self, ids):
        """The text of ids. `decode(encode(text))` is `text`, unknown characters become `ELSE`.

        Raises ValueError for an id that is not in 0..len - 1.
        """
        if strangers := [i for i in ids if not 0 <= i < len(self)]:
            raise ValueError(f"id {strangers[0]} is not in 0..{len(self) - 1}")
        return "".join(self.characters[i] for i in ids)
