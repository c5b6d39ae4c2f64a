"""What a query should take: what it asks for, counted, times what each such thing costs.

    time = sum over PRICES of amount x price

The amounts are counted in a real pass (`opcounts`); the prices are measured elsewhere
(`calibrate`), on nothing that is predicted here. So a prediction has nothing fitted to it.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd

from labsupport import decoder, kvcache, opcounts, prefix, profile
from labsupport.decoder import Decoder, DecoderConfig

PRICES = {  # name: what one costs, in ns
    "instruction": "a bytecode instruction of the interpreter",
    "file": "opening a file, reading it and closing it",
    "view": "a call that makes a view",
    "elementwise": "a call of an elementwise function, without its elements",
    "broadcast": "the same with an input that is repeated",
    "reduction": "a call that reduces rows",
    "matmul": "a call of a matrix product, without its arithmetic",
    "new": "a call that makes an array from nothing or a list",
    "copy": "a call that moves numbers",
    "hash": "a call that feeds SHA-256",
    "element": "one + - * or comparison of an elementwise call",
    "slow element": "one division or root, or one number chosen by where",
    "reduced element": "one number that a reduction reads",
    "loop": "one row of a broadcast call",
    "row": "one row of a reduction",
    "exp": "one exp",
    "masked exp": "what an exp costs more if its input is infinite, as a mask makes it",
    "tanh": "one tanh",
    "flop": "one floating-point operation of a matrix product, of more rows than one",
    "row byte": "a byte of a matrix that one row is multiplied with",
    "packed byte": "a byte of a matrix that BLAS rearranges first: over PACKED multiplications",
    "far byte": "a byte of matrices that fill a near cache, for each doubling over NEAR_BYTES",
    "copied byte": "a byte read or written in a copy",
    "hashed byte": "a byte fed to SHA-256",
    "key token": "a token of the key under which a prefix is looked up",
}
NEAR_BYTES = 2**20  # about the size of the last cache that a core has to itself
SLOW = ["divide", "sqrt", "where"]
PACKED = 10**6  # OpenBLAS multiplies smaller matrices as they lie
WATCHED = (decoder, kvcache, prefix)
SEGMENTS = ["full", "signature", "lookup", "copy", "continuation"]
PATHS = {
    "full": ["full"],
    "rehash": ["signature", "lookup", "copy", "continuation"],
    "frozen": ["lookup", "copy", "continuation"],
}


def amounts(calls, steps, key_tokens=0):
    """How many of each of PRICES there are in these calls and interpreter steps: {name: amount}."""
    kinds = opcounts.by_kind(calls)
    arithmetic = calls[calls["kind"].isin(["elementwise", "broadcast"])]
    moved = calls[calls["kind"].isin(["new", "copy"]) & (calls["name"] != "where")]
    special = {name: calls["elements"][calls["name"] == name].sum() for name in ("exp", "tanh")}
    slow = calls["elements"][calls["name"].isin(SLOW)].sum()
    products = calls[calls["kind"] == "matmul"]
    of_a_row = products["name"] == "matmul of a row"
    packed = ~of_a_row & (products["flops"] > 2 * PACKED * products["loops"])
    product_bytes = products["bytes"].sum()
    return {
        "instruction": steps["instructions"],
        "file": steps["files"],
        **kinds["calls"].to_dict(),
        "element": arithmetic["elements"][~arithmetic["name"].isin([*special, *SLOW])].sum(),
        "slow element": slow,
        "reduced element": kinds.loc["reduction", "elements"],
        "loop": kinds.loc["broadcast", "loops"],
        "row": kinds.loc["reduction", "loops"],
        **special,
        "masked exp": calls["infinite"].sum(),
        "flop": products["flops"][~of_a_row].sum(),
        "row byte": products["bytes"][of_a_row].sum(),
        "packed byte": products["bytes"][packed].sum(),
        "far byte": product_bytes * max(np.log2(max(product_bytes, 1) / NEAR_BYTES), 0),
        "copied byte": moved["bytes"].sum(),
        "hashed byte": kinds.loc["hash", "bytes"],
        "key token": key_tokens,
    }


@cache
def _model(vocab_size, n_tokens, d_model, n_layers, n_heads):
    """A decoder of these sizes; the values of its weights do not matter here."""
    config = DecoderConfig(vocab_size, n_tokens, d_model, n_layers, n_heads, dtype=np.float64)
    model = Decoder(config, seed=0)
    model.identity = "counted"
    return model


def count(case):
    """What each of SEGMENTS of a query asks for: a DataFrame, SEGMENTS by PRICES.

    Each segment runs twice, on the arrays that are counted and on ordinary ones for the
    interpreter's steps; a case that was counted before is not counted again.
    """
    return _count(replace(case, seeds=1, rounds=1)).copy()


@cache
def _count(case):
    segments = {
        name: amounts(calls, steps, case.prefix if name == "lookup" else 0)
        for name, (calls, steps) in segment_calls(case).items()
    }
    return pd.DataFrame.from_dict(segments, orient="index", columns=list(PRICES)).astype(float)


def segment_calls(case):
    """The array calls and the interpreter's steps of each segment: {name: (calls, steps)}."""
    model = _model(profile.VOCAB_SIZE, case.tokens, case.width, case.layers, case.heads)
    tokens = [i % profile.VOCAB_SIZE for i in range(case.tokens)]
    known, rest = tokens[: case.prefix], tokens[case.prefix :]
    store = profile.warm_store(model, tokens, case.prefix)
    kept = store.find(profile.SCOPE, model.identity, known)

    def copies():
        return [cache.copy() for cache in kept]

    run = {  # name: (function, what makes its arguments)
        "full": (lambda: model.forward(tokens), tuple),
        "signature": (
            lambda: prefix.identity(profile.read_sources(), model.weights, model.config),
            tuple,
        ),
        "lookup": (lambda: store.find(profile.SCOPE, model.identity, known), tuple),
        "copy": (copies, tuple),
        "continuation": (lambda caches: model.forward(rest, caches), lambda: (copies(),)),
    }
    steps = {
        name: opcounts.interpreter_steps(function, *arguments())
        for name, (function, arguments) in run.items()
    }
    ordinary = model.weights
    model.weights = {name: opcounts.counted(array) for name, array in ordinary.items()}
    try:
        return {
            name: (_watched(function, arguments), steps[name])
            for name, (function, arguments) in run.items()
        }
    finally:
        model.weights = ordinary


def _watched(function, arguments):
    with opcounts.watching(*WATCHED):
        arguments = arguments()  # caches made here are counted
    return opcounts.array_calls(function, *arguments, modules=WATCHED)


def price(counts, prices):
    """The time each row of `counts` should take, in ns: a Series of amounts x prices."""
    return counts[list(PRICES)] @ pd.Series(prices)[list(PRICES)]


def predict(case, prices):
    """The time of a case's query on each path, by segment, in ns: a DataFrame like medians_us."""
    taken = price(count(case), prices)
    rows = {
        path: {"total": taken[parts].sum(), **{part: taken[part] for part in parts}}
        for path, parts in PATHS.items()
    }
    table = pd.DataFrame.from_dict(rows, orient="index").rename(columns={"full": "computed"})
    table["continuation"] = table["continuation"].fillna(table.pop("computed"))
    columns = ["total", "signature", "lookup", "copy", "continuation"]
    return table[columns].fillna(0.0)
