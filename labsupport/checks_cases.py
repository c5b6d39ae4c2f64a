"""Checks of a reader's function that is asked about several cases, each with one right answer.

The truth is a function whose switches make the mistakes that people make. What a reader's function
answers is compared with both.
"""

import functools
import math
import numbers
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from labsupport import checks
from labsupport.checks import NotYet


def judge(
    name: str,
    function: object,
    cases: list,
    truth: Callable,
    mistakes: Mapping,
    *,
    slips: Sequence[tuple] = (),
    shown: Callable | None = None,
) -> None:
    """NotYet unless `function` answers each of `cases`, tuples of arguments, as `truth` does.

    mistakes  maps words, which complete "It looks like ...", to the truth with that mistake in it;
              of those that explain a wrong answer the one that agrees with most answers is named
    slips     (kinds of exceptions, for which cases, words) of what is easily overlooked; any other
              exception reaches the reader
    shown     a case in words, where its arguments are long
    """
    shown = shown or (lambda *case: ", ".join(map(repr, case)))
    answers = [(case, _asked(name, function, case, truth(*case), slips)) for case in cases]
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
    called, want = f"{name}({shown(*case)})", truth(*case)
    if isinstance(want, str):
        if not isinstance(got, str):
            raise NotYet(f"{called} returns {got!r}: return a text, {str(got)!r}.")
    elif math.isfinite(want):
        checks.value(called, got, want)
    elif _number(got):
        raise NotYet(f"{called} is {got}, but there is no such number: return math.inf.")
    raise NotYet(f"{called} is not right, and not one of the usual mistakes.")


def _asked(name: str, function: object, case: tuple, want: object, slips: Sequence[tuple]):
    """What `function` answers; NotYet with the words of the slip, if it raises for one."""
    if want == math.inf and callable(function):
        function = _told_of_none(name, function)
    try:
        return checks.call(function, *case)
    except Exception as error:
        for kinds, occurs, words in slips:
            if isinstance(error, kinds) and occurs(*case):
                raise NotYet(f"{words} ({type(error).__name__}: {error})") from None
        raise


def _told_of_none(name: str, function: Callable) -> Callable:
    @functools.wraps(function)
    def asked(*case):
        if (got := function(*case)) is None:
            raise NotYet(f"{name} returns None where there is no such number: return math.inf.")
        return got

    return asked


def agree(got: object, want: object) -> bool:
    """Whether both are the same string, or numbers that differ by rounding at most (1e-9)."""
    if isinstance(got, str) and isinstance(want, str):
        return got == want
    return _number(got) and _number(want) and math.isclose(got, want, rel_tol=1e-9)


def _number(x: object) -> bool:
    return isinstance(x, numbers.Real) and not isinstance(x, bool | np.bool)
