"""Checks of answers that are lists, dicts, None or several numbers at once."""

import functools
from collections.abc import Mapping

from labsupport.answers import plain
from labsupport.checks import RTOL, NotYet, call, value
from labsupport.marking import equal

ATOL = 1e-9
KINDS = {list: "a list or a tuple", dict: "a dict", str: "a string", bool: "True or False"}


def ask(function: object, *arguments: object) -> object:
    """`checks.call` for a function that may answer None: what it returns. NotYet as there."""
    if not callable(function):
        return call(function)

    @functools.wraps(function)
    def boxed(*given):
        return [function(*given)]

    return call(boxed, *arguments)[0]


def told(
    name: str,
    got: object,
    want: object,
    mistakes: Mapping[str, object] | None = None,
    *,
    of: str = "",
) -> None:
    """NotYet unless `got` is `want`, both plain values (`answers.plain`), numbers to 1e-6.

    `mistakes` maps words to what the mistake gives; words complete "It looks like ...". If none of
    them fits, the first item that differs is named, and looked at like any single number. `of` is
    what stands behind the name, and behind its items: " of the log".
    """
    try:
        got, want = plain(got), plain(want)
    except TypeError as error:
        raise NotYet(f"{name}{of}: {error}.") from None
    if _same(got, want):
        return
    for words, wrong in (mistakes or {}).items():
        if _same(got, plain(wrong)):
            raise NotYet(f"{name}{of} is not right. It looks like {words}.")
    _differs(name, got, want, of)


def _same(got: object, want: object) -> bool:
    return equal(got, want, RTOL, ATOL)


def _differs(name: str, got: object, want: object, of: str) -> None:
    """NotYet with the first item in which plain values differ."""
    kind, called = type(want), f"{name}{of}"
    if want is None:
        raise NotYet(f"{called} should be None: here is a case that has no answer.")
    if got is None:
        raise NotYet(f"{called} is None, but this case has an answer. Is there a `return`?")
    if kind in KINDS and type(got) is not kind:
        raise NotYet(f"{called} should be {KINDS[kind]}; its type is {type(got).__name__}.")
    if kind is list:
        if len(got) != len(want):
            raise NotYet(f"{called} has {len(got)} items; it should have {len(want)}.")
        items = [(f"{name}[{i}]", a, b) for i, (a, b) in enumerate(zip(got, want, strict=True))]
    elif kind is dict:
        if got.keys() != want.keys():
            raise NotYet(f"{called} has the keys {sorted(got)}; it should have {sorted(want)}.")
        items = [(f"{name}[{key!r}]", got[key], want[key]) for key in want]
    elif kind in (int, float):
        if type(got) is dict and "float" in got:  # how `plain` writes what is not finite
            got = float(got["float"])
        value(called, got, want)
        raise NotYet(f"{called} should be a whole number.")
    else:
        raise NotYet(f"{called} is {got!r}, which is not right.")
    for where, a, b in items:
        if not _same(a, b):
            _differs(where, a, b, of)
