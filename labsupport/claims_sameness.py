"""Claims of the cache's derivation on whether both loops give the same answer.

`ev.trials["compared"]` runs them over the same tokens, one row a step; see `agreement.measure`.
"""

import numpy as np

from labsupport import agreement
from labsupport.claims import Claim, decide, register
from labsupport.claims_derivation import BROKEN, ROUNDING

CLAIMS: list[Claim] = []
claim = register(CLAIMS, "derivation")

MOST = 0.8  # a part that explains most of a whole
TIES = 0.1  # the share of the steps with the closest candidates


@claim(
    "derivation-06",
    "Both loops generate the same {characters} characters from the same seed.",
    how="measured",
    characters=128,
)
def _(said, ev):
    rows = ev.trials["compared"]()
    loops = rows.groupby("prompt")["same"].agg(["all", "size"])
    return decide(
        bool(loops["all"].all() and (loops["size"] >= said["characters"]).all()),
        f"{loops['all'].sum()} of {len(loops)} loops of {loops['size'].min()} do, each with "
        "another seed.",
        in_shape=rows["same"].mean() > 0.99,
    )


@claim(
    "derivation-07",
    "The final logits differ by {difference} at most.",
    how="measured",
    difference=9.06e-06,
)
def _(said, ev):
    rows = ev.trials["compared"]()
    last = rows[rows["step"] == rows["step"].max()]["difference"].max()
    return decide(
        0.5 <= last / said["difference"] <= 2,
        f"Here {last:.2e} in the last step of all loops, {rows['difference'].max():.2e} in any "
        "step; it depends on the weights and on the kernels.",
        in_shape=0.01 <= last / said["difference"] <= 10,
    )


@claim("derivation-08", "The order of additions makes that difference.", how="measured")
def _(said, ev):
    single = ev.trials["compared"]()["difference"].median()
    double = ev.trials["doubled"]()["difference"].median()
    shrinks = single / double if double else np.inf
    finer = float(np.finfo(np.float32).eps / np.finfo(np.float64).eps)
    return decide(
        finer / BROKEN <= shrinks <= finer * BROKEN,
        f"In float64 it shrinks {shrinks:.1e}-fold, where roundings are {finer:.1e} times finer: a "
        "mistake would not shrink.",
    )


@claim("derivation-09", "Neither is wrong: they are two roundings of one value.", how="measured")
def _(said, ev):
    rows = ev.trials["rounded"]()
    errors = {path: rows[f"{path}_error"].max() for path in ("uncached", "cached")}
    least, most = sorted(errors.values())
    right = most <= BROKEN * ROUNDING
    return decide(
        right and most <= 3 * least,
        f"Against float64 logits without a cache are {errors['uncached']:.1e} off at most, those "
        f"with a cache {errors['cached']:.1e}.",
        in_shape=right,
    )


@claim("derivation-10", "The two are not bit-identical.", how="measured")
def _(said, ev):
    rows = ev.trials["compared"]()
    differ = rows["difference"] > 0
    return decide(bool(differ.any()), f"In {differ.sum()} of {len(rows)} steps some logit differs.")


@claim("derivation-11", "The difference could flip the character that is drawn.", how="derived")
def _(said, ev):
    rows = ev.trials["compared"]()
    flips = agreement.expected_flips(rows)
    return decide(
        flips["a_million"] > 0,
        f"From the errors and the gaps, {flips['a_million']:.2g} flips are expected in a million "
        f"draws; of {flips['steps']} draws here {flips['observed']} did.",
    )


@claim(
    "derivation-12",
    "A draw flips where two candidates have nearly equal probabilities.",
    how="derived",
)
def _(said, ev):
    rows = ev.trials["rounded"]()
    close = rows["gap"] <= rows["gap"].quantile(TIES)
    chance = rows["variation"].sum()
    share = rows["variation"][close].sum() / chance if chance else 0.0
    return decide(
        share >= MOST,
        f"The most probable character does only there. A drawn one flips when its random number "
        f"falls between the two sums of probabilities, wherever that is: the {TIES:.0%} of the "
        f"steps with the closest candidates hold {share:.0%} of the chance, {chance:.1e} in "
        f"{len(rows)} steps.",
        in_shape=share >= 2 * TIES,
    )
