"""When not every query hits: what a query costs on average, expected from its parts and measured.

    fresh   every token is computed, nothing is kept
    hit     lookup, copy of the kept prefix, computing the rest
    miss    lookup in vain, computing every token, keeping the prefix (a copy)

The expected cost of a stream comes from streams of its own, never from the one it is compared with.
"""

import numpy as np
import pandas as pd

from labsupport import streams, timing

COSTS_AT = 0.5  # the hit rate of the streams that give the costs: as many hits as misses


def expected(hit_rate, hit, miss):
    """The mean cost of a query, in the unit of `hit` and `miss`: h hit + (1 - h) miss.

    ValueError for a rate outside 0 to 1.
    """
    if not 0 <= hit_rate <= 1:
        raise ValueError(f"hit_rate must be from 0 to 1, not {hit_rate}")
    return hit_rate * hit + (1 - hit_rate) * miss


def breakeven(fresh, hit, miss):
    """The hit rate above which reuse costs less than fresh; None when no rate is enough.

    0 when even a miss costs less. ValueError when a cost is not positive.
    """
    if not all(cost > 0 for cost in (fresh, hit, miss)):
        raise ValueError(f"costs must be positive, not {fresh}, {hit}, {miss}")
    if hit >= fresh:
        return None
    return max(0.0, (miss - fresh) / (miss - hit)) if miss > hit else 0.0


def combine(costs, shares):
    """One figure for several workloads, made in four ways that need not agree.

    costs   a row a workload, the columns `fresh` and `reuse`: what a query costs without and with
    shares  how many of the queries belong to each workload; relative weights

    Returns ratio_of_totals (what all queries together take, reuse / fresh: the only one that is a
    time), mean_of_ratios (reuse / fresh), mean_of_speedups (fresh / reuse) and geometric_mean (of
    reuse / fresh), all weighted by shares. ValueError for weights that do not fit.
    """
    shares = np.asarray(shares, dtype=float)
    if shares.shape != (len(costs),) or not (shares >= 0).all() or not shares.sum() > 0:
        raise ValueError(f"shares needs a weight of 0 or more for each of {len(costs)} workloads")
    shares, ratios = shares / shares.sum(), costs["reuse"] / costs["fresh"]
    return pd.Series(
        {
            "ratio_of_totals": (shares * costs["reuse"]).sum() / (shares * costs["fresh"]).sum(),
            "mean_of_ratios": (shares * ratios).sum(),
            "mean_of_speedups": (shares / ratios).sum(),
            "geometric_mean": np.exp((shares * np.log(ratios)).sum()),
        }
    )


def measure(case, hit_rates, n_queries=40, n_streams=7, seed=0):
    """Rows of `streams.run` with two columns more, hit_rate and held_out.

    In turns, `n_streams` streams at each of `hit_rates`, and as many at COSTS_AT for the costs of
    a hit and a miss: those are not held out.
    """
    kinds = [(COSTS_AT, False), *((rate, True) for rate in hit_rates)]
    plan = pd.DataFrame(kinds * n_streams, columns=["hit_rate", "held_out"])
    seeds = np.random.SeedSequence(seed).spawn(len(plan))
    asked = [
        streams.stream(case, rate, n_queries, child)
        for rate, child in zip(plan["hit_rate"], seeds, strict=True)
    ]
    return streams.run(case, asked, seed=seed).join(plan, on="stream")


def costs(rows):
    """The mean cost in ns of a query computed fresh, of a hit and of a miss, for `expected`.

    From the rows of `measure` that are not held out: means, since costs of queries are to be added
    up; of these the median over streams, since some streams are disturbed. ValueError without both
    hits and misses.
    """
    rows = rows[~rows["held_out"]]
    reuse = rows.groupby(["hit", "stream"])["reuse_ns"].mean().groupby("hit").median()
    if set(reuse.index) != {False, True}:
        raise ValueError("these rows hold no hit or no miss; ask for more queries a stream")
    fresh = rows.groupby("stream")["fresh_ns"].mean().median()
    return pd.Series({"fresh": fresh, "hit": reuse[True], "miss": reuse[False]})


def against_expected(rows):
    """What the held-out streams of `measure` took against what was expected, a row a hit rate.

    hits                               the share of queries that did hit
    fresh_us, reuse_us, expected_us    a query's mean cost: medians over streams, and `expected`
    ratio, low, high                   of whole streams, reuse / fresh, with its interval
    expected_ratio                     expected_us over the cost of a fresh query
    """
    cost, table = costs(rows), {}
    for rate, own in rows[rows["held_out"]].groupby("hit_rate"):
        means = own.groupby("stream")[["hit", "fresh_ns", "reuse_ns"]].mean()  # [n_streams, 3]
        hits = means["hit"].mean()
        expected_ns = expected(hits, cost["hit"], cost["miss"])
        ratio, low, high = timing.ratio_of_pairs(means["fresh_ns"], means["reuse_ns"])
        table[rate] = {
            "hits": hits,
            "fresh_us": means["fresh_ns"].median() / 1000,
            "reuse_us": means["reuse_ns"].median() / 1000,
            "expected_us": expected_ns / 1000,
            "ratio": ratio,
            "low": low,
            "high": high,
            "expected_ratio": expected_ns / cost["fresh"],
        }
    return pd.DataFrame(table).T.rename_axis("hit_rate")
