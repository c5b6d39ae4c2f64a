"""The claims ledger: every claim of every chapter with what was found and its computed verdict."""

import html
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pandas as pd

from labsupport import (
    claims_causes,
    claims_clock,
    claims_decomposition,
    claims_derivation,
    claims_growth,
    claims_measured,
    claims_memory,
    claims_repeats,
    claims_reuse,
    claims_safeguards,
    claims_sameness,
    claims_scale,
    claims_stall,
    claims_width,
    decomposition_evidence,
    derivation_evidence,
    memory_evidence,
    stall_evidence,
)
from labsupport.claims import HOW, VERDICTS, Claim


@dataclass(frozen=True)
class Chapter:
    """A chapter's title, its page, the modules that hold its claims, and what their checks read."""

    title: str
    page: str
    modules: tuple[ModuleType, ...]
    evidence: Callable[[], Any]


CHAPTERS = {
    "stall": Chapter(
        "The stall puzzle",
        "chapters/stall.html",
        (claims_stall, claims_repeats, claims_causes, claims_measured),
        stall_evidence.evidence,
    ),
    "decomposition": Chapter(
        "Where the time goes",
        "chapters/decomposition.html",
        (claims_decomposition, claims_reuse, claims_safeguards),
        decomposition_evidence.evidence,
    ),
    "derivation": Chapter(
        "Deriving the cache",
        "chapters/derivation.html",
        (claims_derivation, claims_sameness, claims_clock, claims_growth, claims_width),
        derivation_evidence.evidence,
    ),
    "memory": Chapter(
        "The memory price",
        "chapters/memory.html",
        (claims_memory, claims_scale),
        memory_evidence.evidence,
    ),
}


def of_chapter(chapter: str) -> list[Claim]:
    """The claims of a chapter, in the order of their ids."""
    return sorted((c for m in CHAPTERS[chapter].modules for c in m.CLAIMS), key=lambda c: c.id)


def evidence_of(chapter: str):
    """The recorded evidence that the chapter's checks read."""
    return CHAPTERS[chapter].evidence()


def rows(chapter: str, ids: Iterable[str] | None = None) -> pd.DataFrame:
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
        how = (
            ""
            if row.how == HOW["recomputed"]
            else f" <span class='how'>({html.escape(row.how)})</span>"
        )
        kind = row.verdict.replace(" ", "-")
        return (
            f"<tr{own}><th scope='row'><a href='{href}'>{row.id}</a></th>"
            f"<td>{html.escape(row.claim)}</td>"
            f"<td>{html.escape(row.found)}{how}</td>"
            f"<td><span class='verdict {kind}'>{row.verdict}</span></td></tr>"
        )

    def __repr__(self) -> str:
        return self.rows[["id", "verdict", "found"]].to_string(index=False)


def listed(chapter: str) -> Table:
    """All rows of a chapter, each linked to the place that shows its check: the ledger's page."""
    return Table(rows(chapter), page=CHAPTERS[chapter].page)


def show(chapter: str, *numbers: int) -> Table:
    """The rows of a chapter with these numbers, for the page that makes the checks."""
    return Table(rows(chapter, [f"{chapter}-{n:02d}" for n in numbers]))


def counts() -> pd.DataFrame:
    """How many claims of each chapter got each verdict: one row a chapter."""
    tables = {c.title: rows(name)["verdict"].value_counts() for name, c in CHAPTERS.items()}
    return pd.DataFrame(tables).T.reindex(columns=list(VERDICTS)).fillna(0).astype(int)
