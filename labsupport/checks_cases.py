"""Checks of a reader's function that is asked about several cases, each with one right answer.

The truth is a function whose switches make the mistakes that people make. What a reader's function
answers is compared with both.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from labsupport import checks
from labsupport.checks import NotYet


def judge(name: str, function: object, cases: list, truth: Callable, mistakes: Mapping) -> None:
    """NotYet unless `function` answers each of `cases`, tuples of arguments, as `truth` does.

    `mistakes` maps words, which complete "It looks like ...", to the truth with that mistake in it.
    Of those that explain a wrong answer the one that agrees with most answers is named.
    """
    answers = [(case, checks.call(function, *case)) for case in cases]
    wrong = [(case, got) for case, got in answers if not agree(got, truth(*case))]
    if not wrong:
        return
    if len(answers) > 2 and all(agree(got, answers[0][1]) for _, got in answers):
        raise NotYet(f"{name} answers the same whatever it is asked.")
    explained = {
        words: sum(agree(got, made(*case)) for case, got in answers)
        for words, made in mistakes.items()
        if any(agree(got, made(*case)) for case, got in wrong)
    }
    if explained:
        words = max(explained, key=explained.get)
        raise NotYet(f"{name} is not right. It looks like {words}.")
    case, got = wrong[0]
    called, want = f"{name}({', '.join(map(repr, case))})", truth(*case)
    if not isinstance(want, str) and math.isfinite(want):
        checks.value(called, got, want)
    raise NotYet(f"{called} is not right, and not one of the usual mistakes.")


def agree(got: object, want: object) -> bool:
    """Whether both are the same string, or numbers that differ by rounding at most (1e-9)."""
    if isinstance(got, str) and isinstance(want, str):
        return got == want
    return _number(got) and _number(want) and math.isclose(got, want, rel_tol=1e-9)


def _number(x: object) -> bool:
    return isinstance(x, int | float | np.integer | np.floating) and not isinstance(x, bool)
