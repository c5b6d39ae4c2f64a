"""Claims of the cost study that the run recorded here speaks to.

`ev.rows` is the recorded run in nanoseconds and `ev.paired(column)` its rounds. Figures that the
study printed are in microseconds.
"""

import numpy as np

from labsupport import timing
from labsupport.claims import Claim, Finding, decide, register, unsettled
from labsupport.claims_decomposition import NEARLY, listed
from labsupport.profile import SEGMENTS

CLAIMS: list[Claim] = []
claim = register(CLAIMS, "decomposition")

MARGIN = 0.002  # the least relative difference that matters, as in timing.compare
MORE = "more rounds, or a calmer machine"


def ratio_of(pairs, f, g):
    """time(g) / time(f) with its interval, over rounds."""
    return timing.ratio_of_pairs(pairs[f], pairs[g])


def by_clock(answer: str, claimed: str, found: str) -> Finding:
    """Whether a verdict of the clock is the one claimed; unsettled where it cannot tell."""
    return unsettled(found, MORE) if answer == "cannot tell" else decide(answer == claimed, found)


def interval(ratio: float, low: float, high: float) -> str:
    """`1.010 (1.004 to 1.017)`"""
    return f"{ratio:.3f} ({low:.3f} to {high:.3f})"


# --- the rows -----------------------------------------------------------------------------------


@claim(
    "decomposition-13",
    "All outputs agree with a fresh computation within {tolerance}.",
    how="measured",
    tolerance=1e-12,
)
def _(said, ev):
    agreed = int(ev.rows["agreed"].sum())
    found = f"{agreed} of {len(ev.rows)} queries do, within {ev.config['tolerance']}."
    return decide(agreed == len(ev.rows) and ev.config["tolerance"] <= said["tolerance"], found)


@claim(
    "decomposition-14",
    "In every row the parts and the residual add up to the total.",
    how="measured",
)
def _(said, ev):
    left = ev.rows["total_ns"] - ev.rows[SEGMENTS].sum(axis=1)
    closed = int((left == 0).sum())
    return decide(closed == len(left), f"{closed} of {len(left)} rows close, to the nanosecond.")


@claim(
    "decomposition-15",
    "The sum of the parts' medians, the residual's too, is not the median total.",
    how="measured",
)
def _(said, ev):
    medians = ev.rows.groupby("path")[["total_ns", *SEGMENTS]].median()
    left = (medians["total_ns"] - medians[SEGMENTS].sum(axis=1)).loc[ev.source.index]
    return decide(
        bool((left != 0).all()),
        f"In ns, {listed(left, '{:+.0f}')} are left, though every row closes; means would add up.",
        in_shape=bool((left != 0).any()),
    )


@claim(
    "decomposition-16",
    "The residual is bookkeeping between the segments, and small.",
    how="measured",
)
def _(said, ev):
    medians = ev.rows.groupby("path")[["residual_ns", "total_ns"]].median().loc[ev.source.index]
    share = (medians["residual_ns"] / medians["total_ns"]).max()
    us = medians["residual_ns"] / 1000
    found = f"Medians in µs: {listed(us, '{:.2f}')}; at most {share:.2%} of a query."
    return decide(share < 0.01, found, in_shape=share < NEARLY)


# --- the paths ----------------------------------------------------------------------------------


@claim("decomposition-17", "Frozen reuse is slower than fresh computation.", how="measured")
def _(said, ev):
    ratio, low, high = ratio_of(ev.paired("total_ns"), "full", "frozen")
    answer = timing.verdict(low, high, MARGIN)
    means = ev.rows.groupby("path")[SEGMENTS].mean() / 1000
    more = means.loc["frozen"] - means.loc["full"]
    overhead, computed = more.drop("continuation_ns").sum(), more["continuation_ns"]
    found = (
        f"It takes {interval(ratio, low, high)} times as long, round by round: {answer}. In means, "
        f"which add up, {overhead:+.1f} µs of overhead and {computed:+.1f} µs of computing."
    )
    return by_clock(answer, "slower", found)


@claim(
    "decomposition-18",
    "The excess of {excess_us} µs at the median is what a query loses by reuse.",
    how="measured",
    excess_us=20.9,
)
def _(said, ev):
    pairs = ev.paired("total_ns") / 1000
    apart = pairs["frozen"].median() - pairs["full"].median()
    typical = (pairs["frozen"] - pairs["full"]).median()
    return decide(
        all(abs(us / said["excess_us"] - 1) <= NEARLY for us in (apart, typical)),
        f"Here the medians lie {apart:+.1f} µs apart, and the median of the differences within a "
        f"round is {typical:+.1f} µs.",
        in_shape=min(apart, typical) > 0,
    )


@claim(
    "decomposition-19",
    "Re-hashing reuse takes {times} times as long as fresh computation.",
    how="measured",
    times=2.7,
)
def _(said, ev):
    ratio, low, high = ratio_of(ev.paired("total_ns"), "full", "rehash")
    found = f"Here {interval(ratio, low, high)} times."
    return decide(low <= said["times"] <= high, found, in_shape=low > 1 + MARGIN)


@claim(
    "decomposition-20",
    "Removing the hashing from each query reduces its cost substantially.",
    how="measured",
)
def _(said, ev):
    ratio, low, high = ratio_of(ev.paired("total_ns"), "rehash", "frozen")
    printed = ev.source.loc["frozen", "total"] / ev.source.loc["rehash", "total"]
    return decide(
        high < 0.9,
        f"What is left is {interval(ratio, low, high)} of it; printed, {printed:.2f}.",
        in_shape=high < 1 / (1 + MARGIN),
    )


@claim(
    "decomposition-21",
    "The same continuation costs the same, hashed before or not.",
    how="measured",
)
def _(said, ev):
    ratio, low, high = ratio_of(ev.paired("continuation_ns"), "frozen", "rehash")
    found = f"After hashing it takes {interval(ratio, low, high)} times as long"
    return decide(
        max(high, 1 / low) <= 1 + NEARLY,
        f"{found}, by the same code on the same rows.",
        in_shape=low <= 1 <= high,
    )


@claim(
    "decomposition-22",
    "Computing {rest} rows takes as long as computing {tokens}.",
    how="measured",
    rest=4,
    tokens=12,
)
def _(said, ev):
    ratio, low, high = ratio_of(ev.paired("continuation_ns"), "full", "frozen")
    share = said["rest"] / said["tokens"]
    return decide(
        max(high, 1 / low) <= 1 + NEARLY,
        f"It takes {interval(ratio, low, high)} of the time, for {share:.2f} of the rows.",
        in_shape=low >= 2 * share,
    )


@claim(
    "decomposition-23",
    "Of a frozen query, looking up takes {lookup_us} µs and copying {copy_us} µs.",
    how="measured",
    lookup_us=2.2,
    copy_us=9.0,
)
def _(said, ev):
    frozen = ev.rows[ev.rows["path"] == "frozen"].median(numeric_only=True) / 1000
    here = {"lookup": frozen["lookup_ns"], "copy": frozen["copy_ns"]}
    ratios = [here[name] / said[f"{name}_us"] for name in here]
    return decide(
        all(abs(r - 1) <= NEARLY for r in ratios),
        f"Here {here['lookup']:.1f} and {here['copy']:.1f} µs.",
        in_shape=all(1 / 3 <= r <= 3 for r in ratios),
    )


@claim(
    "decomposition-24",
    "Reading an identity computed before takes {signature_us} µs.",
    how="measured",
    signature_us=0.6,
)
def _(said, ev):
    signature = ev.paired("signature_ns").median() / 1000
    us, empty = signature["frozen"], signature["full"]
    return decide(
        abs(us / said["signature_us"] - 1) <= NEARLY,
        f"Here {us:.2f} µs, of which two readings of the clock alone take {empty:.2f}.",
        in_shape=us <= 0.01 * ev.paired("total_ns")["frozen"].median() / 1000,
    )


@claim("decomposition-25", "Leaving out the copy would buy a smaller timing.", how="measured")
def _(said, ev):
    total, copy = ev.paired("total_ns"), ev.paired("copy_ns")
    without = total["frozen"] - copy["frozen"]
    ratio, low, high = timing.ratio_of_pairs(total["frozen"], without)
    against_full = interval(*timing.ratio_of_pairs(total["full"], without))
    frozen, full = ev.source.loc["frozen"], ev.source.loc["full"]
    printed = (frozen["total"] - frozen["copy"]) / full["total"]
    answer = timing.verdict(low, high, MARGIN)
    found = (
        f"It would save {1 - ratio:.1%} of a frozen query and leave {against_full} of fresh "
        f"computation's time (printed, {printed:.3f}); for wrong answers."
    )
    return by_clock(answer, "faster", found)


@claim(
    "decomposition-26",
    "Total timings alone cannot identify the cause of a difference.",
    how="derived",
)
def _(said, ev):
    medians = ev.rows.groupby("path")[SEGMENTS].median()
    unknown = medians.gt(0)  # [n_paths, n_segments]: parts that take time
    sums = np.zeros((len(medians), int(unknown.to_numpy().sum())))  # a row a total: what it adds
    sums[np.nonzero(unknown.to_numpy())[0], np.arange(sums.shape[1])] = 1
    free = sums.shape[1] - np.linalg.matrix_rank(sums)
    return decide(
        free > 0,
        f"{len(medians)} totals are {len(medians)} equations for {sums.shape[1]} parts: {free} of "
        "them can be chosen at will, and the totals stay.",
    )
