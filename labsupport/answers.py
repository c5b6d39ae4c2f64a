"""Answers as plain values, so that they can be marked outside the process that computed them.

A hidden test asks for answers and does not judge them: whoever wrote the solution rules over the
process that runs it, and could make any comparison in it come out true. Numbers, strings, lists and
dicts leave the process; `labsupport.marking` compares them with those of the master notebook.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from IPython.display import display

MIME = "application/vnd.price-of-remembering.answers+json"
DEEPEST = 20  # levels of lists and dicts in an answer
MOST_BITS = 1024  # of a whole number; Python writes no integer of more than 4,300 digits
DIGITS = 9  # significant digits that are kept of a float


def record(parts: Mapping[str, Callable[[], object]], rtol: float = 1e-6, atol: float = 0.0):
    """Ask for each part's answer and show them all as one output of the cell.

    `parts` maps a part's name, which the feedback shows, to a function without arguments. One that
    raises, or whose value is not plain, spoils its own part only. An exercise's points are shared
    equally between its parts. Floats of the answers may differ from the master's by
    `atol + rtol * |master|`; everything else must be equal.
    """
    told = {name: _answer(ask) for name, ask in parts.items()}
    given = {"parts": told, "order": list(told), "rtol": rtol, "atol": atol}
    words = "\n".join(f"{name}: {answer}" for name, answer in told.items())
    display({MIME: given, "text/plain": words}, raw=True)


def _answer(ask: Callable[[], object]) -> dict:
    try:
        return {"value": plain(ask())}
    except (Exception, SystemExit) as error:  # the solution's own, of any kind
        return {"refused": f"{type(error).__name__}: {error}"[:300]}


def plain(value: object, depth: int = 0) -> object:
    """`value` as JSON can carry it: None, bool, int, float, str, list, dict with string keys.

    NumPy's numbers and arrays are converted, floats rounded to 9 significant digits, floats that
    are not finite written as {"float": "nan"}. TypeError for anything else, also for subclasses: an
    object may claim to equal everything.
    """
    kind = type(value)
    if depth > DEEPEST:
        raise TypeError(f"an answer has more than {DEEPEST} levels")
    if kind is int and value.bit_length() > MOST_BITS:
        raise TypeError(f"an answer is a whole number of more than {MOST_BITS} bits")
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        finite = math.isfinite(value)
        return float(f"{value:.{DIGITS}g}") if finite else {"float": str(value)}
    if kind in (list, tuple):
        return [plain(item, depth + 1) for item in value]
    if kind is dict and all(type(key) is str for key in value):
        return {key: plain(item, depth + 1) for key, item in value.items()}
    if kind is np.ndarray and kind.tolist is np.ndarray.tolist and value.dtype.kind in "biuf":
        return plain(value.tolist(), depth)
    if kind.__module__ == "numpy" and isinstance(value, np.bool | np.integer | np.floating):
        return plain(value.item(), depth)
    raise TypeError(f"an answer is made of numbers, strings, lists and dicts, not {kind.__name__}")
