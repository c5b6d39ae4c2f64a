"""Stands in for the checks of the chapters where submissions are graded: those hold right answers.

The sandbox places it over each `checks_*.py`. Every name is a check that takes anything and says
nothing, so a solution that asks the real one for its answer gets none.
"""


def __getattr__(name):
    """A check that does nothing, for any name; AttributeError for Python's own."""
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *answers, **named: None
