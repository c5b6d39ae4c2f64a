"""Marks, from the answers that a submission's kernel sent and those stored in the master notebook.

Runs outside the process that a submission rules over, and touches nothing of it but plain values.
"""

import builtins
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from labsupport import marking_evidence
from labsupport.answers import MIME, MOST_BITS

Judge = Callable[[object, object], bool]

# Parts that are not compared with the master's: exercise -> name of the part -> judge.
JUDGES: dict[str, dict[str, Judge]] = {"decomposition-own-run": marking_evidence.JUDGES}


@dataclass(frozen=True)
class Mark:
    """The marks of one exercise: points, of how many, which parts were right, and for parts
    without an answer the name of the error, if it is one of Python's own."""

    points: float
    of: float
    right: dict[str, bool]
    errors: dict[str, str] = field(default_factory=dict)

    def words(self) -> str:
        """What a reader is told: the parts by name, no answer."""
        lines = [f"{self.points:g} of {self.of:g} points"]
        for name, right in self.right.items():
            error = f" ({self.errors[name]})" if name in self.errors else ""
            lines.append(f"right: {name}" if right else f"not yet: {name}{error}")
        if not any(self.right.values()):
            lines.append("Its check, in your notebook, says what kind of mistake it looks like.")
        return "\n".join(lines)


def answers(outputs: list) -> dict | None:
    """The recorded answers among a cell's outputs: the last ones, or None where there are none."""
    for output in reversed(outputs):
        if output.get("output_type") == "display_data":
            told = output.get("data", {}).get(MIME)
            if isinstance(told, dict) and isinstance(told.get("parts"), dict):
                return told
    return None


def mark(
    outputs: list, master: dict, points: float, judges: dict[str, Judge] | None = None
) -> Mark:
    """Compare the answers in `outputs` with the master's, part by part.

    `master` is what `answers` finds in the master's cell; its tolerances count. `judges` maps the
    name of a part to another comparison, called with the given and the master's value.
    """
    given = (answers(outputs) or {"parts": {}})["parts"]
    right, errors = {}, {}
    for name in master.get("order", master["parts"]):  # a notebook sorts the keys of a dict
        answer = master["parts"][name]
        judge = (judges or {}).get(name)
        got = given.get(name)
        if not isinstance(got, dict) or "value" not in got:
            right[name] = False
            errors |= {name: error} if (error := _error(got)) else {}
        elif judge:
            right[name] = judge(got["value"], answer["value"]) is True
        else:
            right[name] = equal(got["value"], answer["value"], master["rtol"], master["atol"])
    share = sum(right.values()) / len(right)
    return Mark(round(points * share, 2), points, right, errors)


def _error(got: object) -> str | None:
    """The error that came in the place of an answer, if it is one of Python's own."""
    words = got.get("refused") if isinstance(got, dict) else None
    name = words.split(":")[0] if isinstance(words, str) else ""
    kind = getattr(builtins, name, None)
    return name if isinstance(kind, type) and issubclass(kind, BaseException) else None


def equal(got: object, want: object, rtol: float, atol: float) -> bool:
    """Whether plain values agree: numbers to the tolerance, everything else exactly.

    True and False are no numbers. An int may be given as a float of the same value.
    """
    if isinstance(want, list):
        same = isinstance(got, list) and len(got) == len(want)
        return same and all(equal(a, b, rtol, atol) for a, b in zip(got, want, strict=True))
    if isinstance(want, dict):  # a notebook's dicts are of a kind of their own
        same = isinstance(got, dict) and got.keys() == want.keys()
        return same and all(equal(got[key], want[key], rtol, atol) for key in want)
    if type(want) in (int, float):
        if type(got) not in (int, float):
            return False
        if type(want) is int:
            return got == want
        if type(got) is int and got.bit_length() > MOST_BITS:
            return False  # no float is that large
        return math.isfinite(got) and abs(got - want) <= atol + rtol * abs(want)
    return type(got) is type(want) and got == want
