"""The claims ledger: what a source stated, what we found, and a verdict that is computed.

A claim is a statement with its figures and a check. The check takes the figures and the recorded
evidence and returns a `Finding`; nothing here stores a verdict, so a changed figure or a changed
record changes what the page says.
"""

import html
import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

HOLDS = "holds"
IN_SHAPE = "holds in shape"  # the direction or the exponent, not the number
CONTRADICTED = "contradicted"
CANNOT_TELL = "cannot tell"
VERDICTS = (HOLDS, IN_SHAPE, CONTRADICTED, CANNOT_TELL)

HOW = {
    "recomputed": "recomputed from the source's own figures",
    "measured": "measured here",
    "derived": "derived",
}

# chapter -> the modules that hold its claims, and `evidence()` that loads what their checks read
CHAPTERS = {
    "stall": (
        "labsupport.claims_stall",
        "labsupport.claims_repeats",
        "labsupport.claims_causes",
    )
}
PAGES = {"stall": ("The stall puzzle", "chapters/stall.html")}


@dataclass(frozen=True)
class Finding:
    """A verdict and the sentence that gives its figures."""

    verdict: str
    found: str

    def __post_init__(self):
        if self.verdict not in VERDICTS:
            raise ValueError(f"no such verdict: {self.verdict!r}; one of {', '.join(VERDICTS)}")


@dataclass(frozen=True)
class Claim:
    """One row of the ledger; `statement` is ours, with the source's `figures` filled in."""

    id: str
    chapter: str
    statement: str
    figures: dict[str, Any]
    how: str
    check: Callable[[dict, Any], Finding]

    def text(self) -> str:
        """The statement with its figures."""
        return self.statement.format(**self.figures)

    def finding(self, evidence) -> Finding:
        """What the check finds in `evidence`."""
        return self.check(self.figures, evidence)


def register(claims: list[Claim], chapter: str):
    """A decorator factory: `@claim("stall-01", "...", how=..., warm_ms=1204)` adds a row."""

    def claim(id: str, statement: str, *, how: str = "recomputed", **figures):
        if how not in HOW:
            raise ValueError(f"{id}: no such way to check: {how!r}; one of {', '.join(HOW)}")

        def add(check):
            claims.append(Claim(id, chapter, statement, figures, how, check))
            return check

        return add

    return claim


def decide(holds: bool, found: str, in_shape: bool = False) -> Finding:
    """`holds`, else `holds in shape` where `in_shape`, else `contradicted`."""
    return Finding(HOLDS if holds else IN_SHAPE if in_shape else CONTRADICTED, found)


def unsettled(found: str, would_settle: str) -> Finding:
    """`cannot tell`, with what would settle it."""
    return Finding(CANNOT_TELL, f"{found} What would settle it: {would_settle}.")


def of_chapter(chapter: str) -> list[Claim]:
    """The claims of a chapter, in the order of their ids."""
    modules = [importlib.import_module(name) for name in CHAPTERS[chapter]]
    return sorted((c for m in modules for c in m.CLAIMS), key=lambda c: c.id)


def evidence_of(chapter: str):
    """The recorded evidence that the chapter's checks read."""
    return importlib.import_module(CHAPTERS[chapter][0]).evidence()


def ledger(chapter: str, ids: Iterable[str] | None = None) -> pd.DataFrame:
    """Rows id, claim, how, found, verdict for a chapter, or for some of its ids in that order.

    Raises KeyError for an id that the chapter does not have.
    """
    claims = {c.id: c for c in of_chapter(chapter)}
    if ids is not None:
        claims = {i: claims[i] for i in ids}
    evidence = evidence_of(chapter)
    findings = [c.finding(evidence) for c in claims.values()]
    return pd.DataFrame(
        {
            "id": list(claims),
            "claim": [c.text() for c in claims.values()],
            "how": [HOW[c.how] for c in claims.values()],
            "found": [f.found for f in findings],
            "verdict": [f.verdict for f in findings],
        }
    )


class Table:
    """A ledger as HTML; with `page`, each id links to the row of that page which shows the check.

    Without `page` each row carries the anchor that such links lead to, `claim-<id>`.
    """

    def __init__(self, rows: pd.DataFrame, page: str | None = None):
        self.rows, self.page = rows, page

    def _repr_html_(self) -> str:
        head = "".join(f"<th scope='col'>{name}</th>" for name in ("", "Claim", "Found", "Verdict"))
        body = "".join(self._row(row) for row in self.rows.itertuples())
        return f"<table class='claims'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _row(self, row) -> str:
        anchor = f"claim-{row.id}"
        href = f"{self.page}#{anchor}" if self.page else f"#{anchor}"
        own = "" if self.page else f" id='{anchor}'"
        kind = row.verdict.replace(" ", "-")
        return (
            f"<tr{own}><th scope='row'><a href='{href}'>{row.id}</a></th>"
            f"<td>{html.escape(row.claim)}</td>"
            f"<td>{html.escape(row.found)} <span class='how'>{row.how.capitalize()}.</span></td>"
            f"<td><span class='verdict {kind}'>{row.verdict}</span></td></tr>"
        )

    def __repr__(self) -> str:
        return self.rows[["id", "verdict", "found"]].to_string(index=False)


def show(chapter: str, *numbers: int) -> Table:
    """The rows of a chapter's ledger with these numbers, for the page that makes the checks."""
    return Table(ledger(chapter, [f"{chapter}-{n:02d}" for n in numbers]))


def counts() -> pd.DataFrame:
    """How many claims of each chapter got each verdict: one row a chapter."""
    tables = {PAGES[chapter][0]: ledger(chapter)["verdict"].value_counts() for chapter in CHAPTERS}
    return pd.DataFrame(tables).T.reindex(columns=list(VERDICTS)).fillna(0).astype(int)
