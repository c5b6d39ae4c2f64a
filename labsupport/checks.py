"""Instant feedback on exercises: what kind of mistake an answer looks like, not the answer.

A chapter's checks (`checks_stall` and so on) are functions that take the reader's answer. They
return a remark for a right one, and raise `NotYet` for any other, with words that help. `value`
and `call` recognise the mistakes that people make everywhere; a check adds those of its exercise.
"""

import copy
import functools
import reprlib
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from labsupport import tracebacks

RTOL = 1e-6

# What a number looks like when it is this many times the right one.
FACTORS = {
    1e3: "1,000 times too large: are the units right (ms for s, µs for ms, ns for µs)?",
    1e-3: "1,000 times too small: are the units right (s for ms, ms for µs, µs for ns)?",
    1e6: "a million times too large: are the units right?",
    1e-6: "a million times too small: are the units right?",
    1024.0: "1,024 times too large: bytes or KiB?",
    1 / 1024: "1,024 times too small: bytes or KiB?",
    1024.0**2: "1,024² times too large: bytes or MiB?",
    1 / 1024**2: "1,024² times too small: bytes or MiB?",
    100.0: "100 times too large: a share, or per cent?",
    0.01: "100 times too small: a share, or per cent?",
    2.0: "twice what it should be: is something counted twice?",
    0.5: "half of what it should be: is one of two things left out (keys and values, say)?",
    -1.0: "right but for its sign.",
}


class NotYet(AssertionError):
    """An answer that is not right yet; a notebook shows the words alone."""

    def _render_traceback_(self):
        return [f"Not yet. {self}"]


RESULTS: dict[
    tuple[str, str], tuple[float, float]
] = {}  # (chapter, exercise) -> points, of how many
POINTS: dict[tuple[str, str], float] = {}  # every exercise whose checks are loaded


def exercise(chapter: str, name: str, points: float):
    """Make a function that returns a remark, or raises `NotYet`, the check of an exercise.

    The check notes the result for `marks` and prints "Right" with the remark. What a reader's code
    raises reaches the reader, but for NotImplementedError, which means that it is not written. Its
    traceback leaves out the frames of this package: the lines around them compute the answer.
    """
    POINTS[chapter, name] = points

    def checked(function: Callable[..., str]) -> Callable[..., None]:
        @functools.wraps(function)
        def check(*answers):
            __tracebackhide__ = True  # IPython leaves this frame out
            RESULTS[chapter, name] = (0.0, points)
            try:
                remark = function(*answers)
            except NotImplementedError:
                raise NotYet("This exercise is still to be written: see YOUR CODE HERE.") from None
            except NotYet:
                raise
            except Exception as error:
                if not (frames := tracebacks.of_the_reader(error.__traceback__)):
                    words = f"{type(error).__name__}: {error}"
                    raise NotYet(
                        f"The answer is not of the kind that is asked for. {words}"
                    ) from None
                raise error.with_traceback(frames) from None
            RESULTS[chapter, name] = (points, points)
            print(f"Right ({points:g} {'point' if points == 1 else 'points'}). {remark}")

        check.exercise = (chapter, name, points)
        return check

    return checked


def marks() -> pd.DataFrame:
    """The exercises checked in this session: a row each, with `points` and `of`, as the visible
    checks see them. `marks().to_csv("marks.csv", index=False)` exports them."""
    rows = [
        {"chapter": chapter, "exercise": name, "points": got, "of": points}
        for (chapter, name), (got, points) in RESULTS.items()
    ]
    return pd.DataFrame(rows, columns=["chapter", "exercise", "points", "of"])


def number(name: str, got: object) -> float:
    """`got` if it is one plain number; NotYet says what it is instead."""
    if got is None or got is ...:
        raise NotYet(f"{name} has no value yet.")
    if isinstance(got, np.ndarray) and got.size == 1:
        got = got.item()
    if isinstance(got, bool | np.bool) or not isinstance(got, int | float | np.number):
        raise NotYet(f"{name} should be one number; it is of the type {type(got).__name__}.")
    if not np.isfinite(got):
        raise NotYet(f"{name} is {got}: look for a division by zero or an empty selection.")
    return got


def value(
    name: str,
    got: object,
    want: float,
    mistakes: Mapping[str, float] | None = None,
    *,
    rtol: float = RTOL,
) -> None:
    """NotYet unless `got` is the number `want` (to `rtol`).

    `mistakes` maps words to the number that the mistake gives. Words complete "It looks like ...".
    Those of the exercise are tried first, then wrong units, a lost sign and one more or less.
    """
    got = number(name, got)
    if _close(got, want, rtol):
        return
    for words, wrong in (mistakes or {}).items():
        if _close(got, wrong, rtol):
            raise NotYet(f"{name} is not right. It looks like {words}.")
    whole = float(want).is_integer() and float(got).is_integer()
    if whole and abs(got - want) == 1:
        raise NotYet(f"{name} is off by one: count the ends once more.")
    for factor, words in FACTORS.items():
        if want and _close(got, want * factor, rtol):
            raise NotYet(f"{name} is {words}")
    if got in (round(want), int(want)) and not float(want).is_integer():
        raise NotYet(f"{name} is a whole number: is it rounded, or cut off?")
    raise NotYet(
        f"{name} is not right, and not one of the usual mistakes. It is {_size(got, want)}."
    )


def _close(got: float, want: float, rtol: float) -> bool:
    return bool(abs(got - want) <= rtol * abs(want))


def _size(got: float, want: float) -> str:
    if got * want < 0:
        return "of the wrong sign"
    return "too large" if abs(got) > abs(want) else "too small"


def array(
    name: str,
    got: object,
    want: np.ndarray,
    mistakes: Mapping[str, np.ndarray] | None = None,
    *,
    atol: float = 1e-8,
) -> None:
    """NotYet unless `got` is an array like `want` (to `atol` relative to its largest element).

    Recognised beside `mistakes`: another shape, transposed axes, a reversed order, a shift by one
    place along an axis.
    """
    if got is None or got is ...:
        raise NotYet(f"{name} has no value yet.")
    got = np.asarray(got)
    if got.dtype.kind not in "biuf":
        raise NotYet(f"{name} should hold numbers; its dtype is {got.dtype}.")
    if _same(got, want, atol):
        return
    for words, wrong in (mistakes or {}).items():
        if _same(got, wrong, atol):
            raise NotYet(f"{name} is not right. It looks like {words}.")
    if want.ndim > 1 and _same(got, np.swapaxes(want, -1, -2), atol):
        raise NotYet(f"{name} has its last two axes transposed.")
    if got.shape != want.shape:
        raise NotYet(f"{name} has the shape {list(got.shape)}; it should be {list(want.shape)}.")
    for axis in range(want.ndim):
        if _same(got, np.flip(want, axis), atol):
            raise NotYet(f"{name} is in reverse order along axis {axis}.")
        if any(_same(got, np.roll(want, by, axis), atol) for by in (-1, 1)):
            raise NotYet(f"{name} is shifted by one place along axis {axis}.")
    wrong = ~np.isclose(got, want, rtol=0, atol=atol * max(1.0, float(np.abs(want).max())))
    at = [int(i) for i in np.argwhere(wrong)[0]]
    raise NotYet(
        f"{name}: {int(wrong.sum())} of {want.size} elements are wrong, the first at {at}."
    )


def _same(got: np.ndarray, want: np.ndarray, atol: float) -> bool:
    if got.shape != want.shape:
        return False
    scale = max(1.0, float(np.abs(want).max(initial=0.0)))
    return bool(np.allclose(got, want, rtol=0, atol=atol * scale))


def call(function: object, *arguments: object, **named: object) -> object:
    """What the reader's function returns. NotYet if it is no function, returns nothing, or changes
    an argument (it is given copies)."""
    if not callable(function):
        raise NotYet(f"This should be a function; it is of the type {type(function).__name__}.")
    name = getattr(function, "__name__", "the function")
    given, given_named = copy.deepcopy((arguments, named))
    try:
        got = function(*given, **given_named)
    except NotYet:
        raise
    except Exception as error:
        error.add_note(f"The check had called {name}({', '.join(map(reprlib.repr, arguments))}).")
        raise
    for before, after in zip(
        (*arguments, *named.values()), (*given, *given_named.values()), strict=True
    ):
        if not _unchanged(before, after):
            raise NotYet(f"{name} changes an argument that it was given. Work on a copy.")
    if got is None:
        raise NotYet(f"{name} returns nothing: is there a `return`?")
    return got


def _unchanged(before: object, after: object) -> bool:
    if isinstance(before, np.ndarray):
        return np.array_equal(before, after, equal_nan=before.dtype.kind == "f")
    if isinstance(before, pd.DataFrame | pd.Series):
        return before.equals(after)
    if isinstance(before, list | tuple):
        return len(before) == len(after) and all(map(_unchanged, before, after))
    if isinstance(before, dict):
        return list(before) == list(after) and all(_unchanged(before[k], after[k]) for k in before)
    if isinstance(before, int | float | str | bool | None):
        return before == after
    return True  # an object of another kind: the exercise's own check looks at it


def choice(name: str, got: object, right: object, options: Mapping[object, str]) -> None:
    """NotYet unless `got` is the option `right`. `options` maps each option to the words that help
    whoever chose it wrongly; they must not name the right one."""
    if got is None or got is ...:
        raise NotYet(f"{name} has no value yet. Choose one of: {', '.join(map(str, options))}.")
    if got not in options:
        raise NotYet(f"{name} should be one of: {', '.join(map(str, options))}.")
    if got != right:
        raise NotYet(f"{name}: {options[got]}")
