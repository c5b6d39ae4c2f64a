"""Checks of the exercises of chapter 3 about counts, exponents and shares."""

import numpy as np
import pandas as pd

from labsupport import derivation_source, fits, roofline
from labsupport.checks import NotYet, call, exercise, value


def several(name, got, n):
    """`got` as a list of `n` values; NotYet if it is no tuple, list or array of so many."""
    if isinstance(got, np.ndarray) and got.ndim and len(got) != n:
        raise NotYet(f"{name} should return {n} values, not one array.")
    if isinstance(got, np.ndarray) and got.ndim:
        got = list(got)
    if not isinstance(got, tuple | list):
        raise NotYet(f"{name} should return {n} values, not one {type(got).__name__}.")
    if len(got) != n:
        raise NotYet(f"{name} should return {n} values, not {len(got)}.")
    return list(got)


@exercise("derivation", "left_out", 3)
def left_out(function):
    """Tables of steps whose counts hold a known rest, of each of three kinds."""
    cases = (((0, 5856, 0), 96, 4), ((700, 0, 12), 32, 2), ((0, -64, 3), 8, 1))
    for rests, d_model, n_blocks in cases:
        table = counted(rests, d_model, n_blocks)
        got = several("left_out(...)", call(function, table, d_model, n_blocks), 3)
        new, kept = table["n_new"], table["n_tokens"]
        layers, pair = 12 * n_blocks * d_model**2, 2 * n_blocks * d_model
        wrong = {
            "the formula of one block, where the model has several": (
                (layers * new + pair * new * kept) / n_blocks
            ),
            "the whole count, with nothing taken off it": 0 * new,
            "n_tokens² pairs: the new tokens look, those that are kept do not": (
                layers * new + pair * kept**2
            ),
            "12 d² for each token: only the new ones go through the layers": (
                layers * kept + pair * new * kept
            ),
        }
        for at, name in enumerate(("a pass", "a new token", "a pair")):
            if isinstance(got[at], float | np.floating) and 0 < abs(got[at]) < 0.01:
                raise NotYet(
                    f"What is left for {name} is {got[at]:.1g}, which stands for a whole number: "
                    "multiplications are counted. Round before you return it."
                )
            mistakes = {words: _rest(table, formula)[at] for words, formula in wrong.items()}
            mistakes["a, b and c in the reverse order"] = rests[2 - at]
            mistakes["a number a block; the counts are of all"] = rests[at] / n_blocks
            if rests[at] and isinstance(got[at], int) and abs(got[at] - rests[at]) == 1:
                raise NotYet(f"What is left for {name} is off by one: int() cuts off; round first.")
            value(f"What is left for {name} (d_model {d_model})", got[at], rests[at], mistakes)
    return (
        "5,856 a new token, over d_model 96, is 61: a head for 61 symbols, computed at every new "
        "position. Absolute counts tell at once what the chapter had to find from ratios."
    )


def _rest(table, formula):
    """What a pass, a new token and a pair take beyond a formula, by least squares: three ints."""
    new, rest = table["n_new"], (table["multiplications"] - formula).to_numpy(float)
    columns = np.column_stack([np.ones(len(table)), new, new * table["n_tokens"]])
    return [int(x) for x in np.linalg.lstsq(columns, rest, rcond=None)[0].round()]


def counted(rests, d_model, n_blocks):
    """Counts of steps as the printed formula gives them, and `rests` a pass, a new token and a pair
    of a new token and a token: columns n_new, n_tokens, multiplications."""
    sizes = [(1, 1), (1, 64), (16, 64), (64, 64), (8, 100)]
    table = pd.DataFrame(sizes, columns=["n_new", "n_tokens"])
    new, pairs = table["n_new"], table["n_new"] * table["n_tokens"]
    printed = n_blocks * (12 * d_model**2 * new + 2 * d_model * pairs)
    return table.assign(multiplications=printed + rests[0] + rests[1] * new + rests[2] * pairs)


@exercise("derivation", "power_fit", 3)
def power_fit(function):
    """The source's two columns: the largest miss is below one of them and above the other."""
    source = derivation_source.length()
    n = source.index.to_numpy(float)
    columns = {name: source[name].to_numpy(float) for name in ("uncached_ms", "cached_ms")}
    for name, times in columns.items():
        exponent, miss = several("power_fit(...)", call(function, n, times), 2)
        fit = fits.power_law(n, times)
        ends = np.log(times[-1] / times[0]) / np.log(n[-1] / n[0])
        mistakes = {
            "a line through log(time) over n: take the logarithm of both": _slope(n, np.log(times)),
            "a line through the numbers: take logarithms first": _slope(n, times),
            "the slope of log(n) over log(time)": _slope(np.log(times), np.log(n)),
            "the slope between the first and the last point: a fit uses all": ends,
        }
        value(f"The exponent ({name})", exponent, fit.exponent, mistakes)
        logs = np.log(fit.fitted / times)
        inverse, off_ms = np.abs(times / fit.fitted - 1), np.abs(fit.fitted - times)
        mistakes = {
            "measured over fitted: the chapter's misses are fitted over measured": inverse.max(),
            "a difference of logarithms; take it back with exp": np.abs(logs).max(),
            "the largest without the absolute value: a line may miss below, too": fit.misses.max(),
            "the mean of the misses, not the largest": np.abs(fit.misses).mean(),
            "milliseconds: a miss is a share of what was measured": off_ms.max(),
        }
        value(f"The largest miss ({name})", miss, fit.worst, mistakes)
    uncached, cached = (_misses(n, times) for times in columns.values())
    return (
        f"The misses come out as {uncached} and {cached}. So the source's fits can be what it "
        "prints. They say nothing about whether a power is the right curve."
    )


def _misses(n, times_ms):
    """The largest miss of whole milliseconds, and between which two the true times' lies."""

    def worst(times):
        return 100 * fits.power_law(n, times).worst

    low, high = derivation_source.over_rounding(times_ms, worst)
    return f"{worst(times_ms):.1f} % ({low:.1f} to {high:.1f} by half a millisecond)"


def _slope(x, y):
    return np.polyfit(x, y, 1)[0]


@exercise("derivation", "collected_share", 3)
def collected_share(function):
    """Quantized weights, shared heads, long texts; and a machine that no step saturates."""
    model = {
        "n_weights": 8.0e9,
        "weight_bytes": 0.5,
        "n_layers": 32,
        "n_heads": 32,
        "n_kv_heads": 2,
        "head_dim": 128,
        "kv_bytes": 2,
    }
    fast, slow = ({"flops_per_s": f, "bytes_per_s": 2e12} for f in (3e14, 3e12))
    for n_tokens, machine in ((100_000, fast), (100, fast), (100_000, slow)):
        got = call(function, model, n_tokens, machine)
        share = _share(model, n_tokens, machine)
        mistakes = {
            words: _share({**model, **changed(model)}, n_tokens, machine, **options)
            for words, (changed, options) in SHARES.items()
        }
        flops, n_bytes = _step_work(model, n_tokens)
        uncapped = flops / n_bytes / (machine["flops_per_s"] / machine["bytes_per_s"])
        mistakes["more than all of the promise"] = uncapped
        mistakes["the quotient upside down"] = min(1.0, 1 / uncapped)
        case = f"The share at {n_tokens:,} tokens and {machine['flops_per_s']:.0e} FLOP/s"
        value(case, got, share, mistakes)
    return (
        "Fewer bytes a weight raise the share, and so do shared heads in long texts: they make as "
        "many FLOPs of fewer bytes. Neither changes what the arithmetic promises."
    )


SHARES = {  # words -> (what of the model is changed, options): what a mistake computes
    "multiplications, where machines are rated in FLOPs: two for each": (
        lambda m: {},
        {"flops": 1},
    ),
    "keys without values: both are read": (lambda m: {"n_kv_heads": m["n_kv_heads"] / 2}, {}),
    "keys and values of every query head: they are kept once for each key/value head": (
        lambda m: {"n_kv_heads": m["n_heads"]},
        {},
    ),
    "only n_kv_heads heads multiplying: every query head does": (lambda m: {}, {"shared": True}),
    "keys and values of weight_bytes bytes": (lambda m: {"kv_bytes": m["weight_bytes"]}, {}),
    "the keys and values left out: in long texts they weigh": (lambda m: {"n_layers": 0}, {}),
    "half of attention's FLOPs: head_dim for the score and for the value, two FLOPs each": (
        lambda m: {},
        {"attention": 0.5},
    ),
    "one layer, where the model has several": (lambda m: {"n_layers": 1}, {}),
}


def _step_work(model, n_tokens, flops=2, shared=False, attention=1):
    """FLOPs and bytes of a cached step; `shared` counts the multiplications of n_kv_heads only."""
    m = model
    pairs = 2 * m["n_layers"] * m["head_dim"] * n_tokens  # keys and values, of one head
    heads = m["n_kv_heads"] if shared else m["n_heads"]
    n_bytes = m["n_weights"] * m["weight_bytes"] + pairs * m["n_kv_heads"] * m["kv_bytes"]
    return flops * (m["n_weights"] + attention * pairs * heads), n_bytes


def _share(model, n_tokens, machine, **options):
    flops, n_bytes = _step_work(model, n_tokens, **options)
    return roofline.bound(flops / n_bytes, machine["flops_per_s"], machine["bytes_per_s"])
