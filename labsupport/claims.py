"""Claims: what a source stated, and the check that gives its verdict.

A claim is a statement with its figures and a check. The check takes the figures and the recorded
evidence and returns a `Finding`; nothing stores a verdict, so a changed figure or a changed record
changes what the page says. `ledger` lists the claims of each chapter.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
