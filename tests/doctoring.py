"""A verdict follows what it is computed from: one figure or record is doctored, and it changes."""

from dataclasses import replace


def doctored(claim, figures, evidence):
    """What the check finds with these figures in the place of the source's; None: with its own."""
    return replace(claim, figures=claim.figures | (figures or {})).finding(evidence)


def check_that_it_follows(claim, base, figures, evidence, verdict):
    """`verdict` is found when doctored, by `figures` or by `evidence()`, and another one before."""
    before = claim.finding(base)
    after = doctored(claim, figures, evidence() if evidence else base)
    assert after.verdict == verdict, after.found
    assert before.verdict != after.verdict, before.found
    assert before.found != after.found or figures
