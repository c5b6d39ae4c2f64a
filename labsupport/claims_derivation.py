"""Claims of the cache's derivation: what need not be computed again, what arithmetic promises.

Each check takes what the source said (`said`) and the evidence; `ev.trials` run the recorded model.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np

from labsupport import arithmetic
from labsupport.claims import Claim, decide, register

CLAIMS: list[Claim] = []
claim = register(CLAIMS, "derivation")

ROUNDING = 1e-5  # relative: float32 sums of hundreds of numbers stay well below
BROKEN = 100  # so many times what rounding does is another answer
NEARLY = 0.05  # two figures as far apart as this, relatively, are called the same


# --- what need not be computed again ----------------------------------------------------------


@claim(
    "derivation-01",
    "Drawing token {drawn} again computes the {old} that the step before computed.",
    how="derived",
    drawn=100,
    old=99,
)
def _(said, ev):
    step = arithmetic.multiplications(ev.config, said["drawn"], said["drawn"])
    before = arithmetic.multiplications(ev.config, said["drawn"] - 1, said["drawn"] - 1)
    again = sum(before.values()) / sum(step.values())
    moved = ev.trials["changes"]()["float32"]
    return decide(
        said["old"] == said["drawn"] - 1 and moved <= ROUNDING,
        f"From one token, step {said['drawn']} feeds {said['drawn']}, all but the last as before: "
        f"{again:.1%} of its multiplications give numbers that were there, but for {moved:.0e}.",
    )


@claim(
    "derivation-02",
    "An earlier token's output does not change, whatever is appended.",
    how="measured",
)
def _(said, ev):
    moved = ev.trials["changes"]()
    still = moved["float32"] <= ROUNDING and moved["float64"] <= moved["float32"] / BROKEN
    return decide(
        still and moved["slid"] <= ROUNDING,
        f"Within the context of {ev.config.context} it moves by {moved['float32']:.0e} in float32 "
        f"and {moved['float64']:.0e} in float64: rounding. But the loop crops: once the context is "
        f"full the window slides, every token gets another position and a first one is lost, and "
        f"outputs move by {moved['slid']:.0%}.",
        in_shape=still,
    )


@claim("derivation-03", "It is the causal mask that guarantees this.", how="measured")
def _(said, ev):
    moved = ev.trials["changes"]()
    times = moved["no mask"] / moved["float32"] if moved["float32"] else np.inf
    found = f"Without the mask, appending moves earlier outputs by {moved['no mask']:.0e}"
    return decide(
        times >= BROKEN and moved["float32"] <= ROUNDING,
        f"{found}, {times:,.0f} times as far as with it.",
    )


@claim(
    "derivation-04",
    "Of earlier tokens exactly two things are needed in a block: keys and values.",
    how="measured",
)
def _(said, ev):
    off = ev.trials["steps"]()
    enough = off["kept"] <= BROKEN * ROUNDING
    each = min(off["no keys"], off["no values"]) >= BROKEN * off["kept"]
    return decide(
        enough and each,
        f"With both, logits are within {off['kept']:.0e}; without the old keys they are "
        f"{off['no keys']:.1g} off, without the old values {off['no values']:.1g}.",
        in_shape=enough,
    )


@claim("derivation-05", "A new token needs no mask: no key follows its query.", how="measured")
def _(said, ev):
    off = ev.trials["steps"]()
    one = off["kept"] <= BROKEN * ROUNDING
    return decide(
        one,
        f"One token without a mask: within {off['kept']:.0e}. It is true of one alone: four at "
        f"once are {off['several, no mask']:.1g} off without a mask, within {off['several']:.0e} "
        "with one aligned to the last key.",
    )


# --- what the arithmetic promises -------------------------------------------------------------


@claim(
    "derivation-13",
    "At step t a block multiplies {linear}·t·d² + {pair}·t²·d times without a cache, "
    "{linear}·d² + {pair}·t·d with one.",
    how="derived",
    linear=12,
    pair=2,
)
def _(said, ev):
    d, blocks = ev.config.d_model, ev.config.n_blocks
    off, head = [], 0
    for t in (1, 64, 256):
        for n_new in (t, 1):
            parts = arithmetic.multiplications(ev.config, n_new, t)
            head = max(head, parts.pop("head") / sum(parts.values()))
            formula = blocks * (said["linear"] * n_new * d * d + said["pair"] * n_new * t * d)
            off.append(abs(sum(parts.values()) - formula))
    return decide(
        not any(off),
        f"As the products of the model are written; torch counts the same. The output head, up to "
        f"{head:.1%} more, is in neither formula.",
    )


def growth(n, d):
    """Each term of the two sums over steps: {term: (without a cache, with one)}, exact."""
    tokens, squares = Fraction(n * (n + 1), 2), Fraction(n * (n + 1) * (2 * n + 1), 6)
    return {
        "linear layers": (12 * d * d * tokens, 12 * d * d * Fraction(n)),
        "attention": (2 * d * squares, 2 * d * tokens),
    }


@claim(
    "derivation-14",
    "Summed over n steps, that is d²n² and dn³ against d²n and dn².",
    how="derived",
)
def _(said, ev):
    n, d = 2**20, ev.config.d_model
    names = (("d²n²", "d²n"), ("dn³", "dn²"))
    leading = ((d * d * n**2, d * d * n), (d * n**3, d * n**2))
    times = [
        [float(exact / power) for exact, power in zip(sums, powers, strict=True)]
        for sums, powers in zip(growth(n, d).values(), leading, strict=True)
    ]
    said_terms = ", ".join(
        f"{factor:.3g} {name}" for pair, which in zip(times, names, strict=True)
        for factor, name in zip(pair, which, strict=True)
    )  # fmt: skip
    powers_right = all(0.1 <= factor <= 100 for pair in times for factor in pair)
    return decide(
        bool(np.allclose(times, 1, rtol=0.01)),
        f"The powers are right; with their factors the leading terms are {said_terms}.",
        in_shape=powers_right,
    )


@claim("derivation-15", "Every term drops by a factor of n.", how="derived")
def _(said, ev):
    n = 256
    drops = {name: float(a / b) for name, (a, b) in growth(n, ev.config.d_model).items()}
    twice = {name: float(a / b) for name, (a, b) in growth(2 * n, ev.config.d_model).items()}
    return decide(
        all(abs(drop / n - 1) <= NEARLY for drop in drops.values()),
        f"At n = {n} linear layers drop {drops['linear layers']:.1f}-fold, (n + 1) / 2, and "
        f"attention {drops['attention']:.1f}-fold, (2n + 1) / 3: in proportion to n, not by n.",
        in_shape=all(1.9 <= twice[name] / drops[name] <= 2.1 for name in drops),
    )


@claim(
    "derivation-16",
    "At d = {d} and n = {n} that formula gives {ratio}.",
    how="derived",
    d=128,
    n=256,
    ratio=134.5,
)
def _(said, ev):
    by_formula = arithmetic.printed(said["d"], said["n"])
    with_head = arithmetic.with_head(said["d"], said["n"], ev.config.vocab_size, ev.config.n_blocks)
    return decide(
        round(by_formula, 1) == said["ratio"],
        f"It gives {by_formula:.2f}; with the output head at every position, {with_head:.2f}.",
        in_shape=abs(by_formula / said["ratio"] - 1) <= NEARLY,
    )


@claim("derivation-17", "The printed ratios are those of the printed formula.", how="derived")
def _(said, ev):
    table, c = ev.ratios(), ev.config
    formula = [round(arithmetic.printed(d, n), 1) == ratio for d, n, ratio in table]
    head = [
        round(arithmetic.with_head(d, n, c.vocab_size, c.n_blocks), 1) == ratio
        for d, n, ratio in table
    ]
    fit = arithmetic.vocabularies_that_fit(table, n_blocks=c.n_blocks)
    which = f"with {fit[0]} to {fit[-1]} symbols" if fit else "whatever the vocabulary"
    return decide(
        all(formula),
        f"{sum(formula)} of {len(table)} are. With the output head counted at every position "
        f"{sum(head)} are, for {c.vocab_size} symbols; {'all' if fit else 'not all'} {which}.",
        in_shape=all(abs(arithmetic.printed(d, n) / r - 1) <= NEARLY for d, n, r in table),
    )


@claim(
    "derivation-18",
    "The lengths to {n} were measured on the one model, of {parameters} parameters.",
    how="derived",
    n=1024,
    parameters="637,156",
)
def _(said, ev):
    here = arithmetic.n_parameters(ev.config)
    same = f"{here:,}" == said["parameters"]
    longer = replace(ev.config, context=max(said["n"], ev.config.context))
    counting = {"vocab_size": ev.config.vocab_size, "context": ev.config.context}
    cropped, printed = arithmetic.summed(128, 256, **counting), ev.length.loc[256, "arithmetic"]
    return decide(
        same and said["n"] <= ev.config.context,
        f"{here:,} parameters have room for {ev.config.context} positions; a loop of {said['n']} "
        f"needs {arithmetic.n_parameters(longer):,}. Cropped to that context, 256 steps would have "
        f"a ratio of {cropped:.1f}, not {printed}.",
    )
