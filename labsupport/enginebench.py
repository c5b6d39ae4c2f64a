"""Cached and uncached ways to generate, timed in turns in one run beside what the machine allows.

    path     a way to generate: n tokens from one, the likeliest at each step, batch 1, float32
    subject  weights, the first token, and what must follow it, from a float64 model without a cache
    floor    to read the bytes that the cached steps of a loop of n read, and to multiply what the
             uncached ones multiply as written, each at the machine's best rate
    round    every path and floor once, in a random order

Every path draws its own tokens. The subject is one where they must agree: at each step the two
likeliest tokens are further apart than a path may differ, so all paths do the same work.
"""

import random
from dataclasses import dataclass
from time import perf_counter_ns

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from labsupport import arithmetic, charcache, charweights, evidence, rates
from labsupport.decoder import random_weights
from labsupport.enginepaths import PINNED
from labsupport.enginerivals import NO_CACHE, USUAL
from labsupport.pairs import ratio_of_pairs
from labsupport.timing import collector_off

TOLERANCE = 2e-5  # of a logit, against float64; logits are of size 1
GAP = 10 * TOLERANCE  # between the two likeliest tokens of every step
CACHED_FLOOR, UNCACHED_FLOOR = "floor, cached", "floor, uncached"
COLUMNS = ["round", "path", "total_ns", "agreed"]


@dataclass(frozen=True)
class Subject:
    """What all paths generate.

    weights   flat, float32
    tokens    [n + 1], the first given and n that follow
    logits    float64, after each of the first n tokens: [n, vocab_size]
    seed      of the weights
    """

    weights: dict
    tokens: list
    logits: np.ndarray
    seed: int

    @property
    def gap(self):
        """The least difference between the two largest logits of a step."""
        top = np.sort(self.logits, axis=1)[:, -2:]
        return float((top[:, 1] - top[:, 0]).min())


def subject(config, n, seed=0):
    """A Subject of this config; the first seed from `seed` on without a near-tie.

    Raises ValueError when n tokens do not fit the context, or no seed of a hundred is free of ties.
    """
    sizes = charweights.decoder_config(config, np.float32)
    for tried in range(seed, seed + 100):
        weights = random_weights(sizes, tried)
        exact = charweights.model(config, {k: w.astype(np.float64) for k, w in weights.items()})
        tokens = [1 % config.vocab_size]
        tokens += exact.generate(tokens, n, charcache.new_caches(exact))
        with torch.inference_mode():
            logits = exact(torch.tensor([tokens[:-1]]))[0].numpy()  # [n, vocab_size]
        made = Subject(weights, tokens, logits, tried)
        if made.gap > GAP:
            return made
    raise ValueError(f"no seed from {seed} to {tried} is without a near-tie in {n} tokens")


# What the machine allows


def step_bytes(config, n):
    """Bytes that a cached step of a loop of n reads on average, in float32.

    The weights without the two tables, of which it reads a row each, and half of a full cache.
    """
    first, last = (arithmetic.numbers_read(config, n_tokens) for n_tokens in (1, n))
    return 4 * (first + last) // 2  # evenly more from step to step


def floors(config, n):
    """{name: a call that takes as long as a loop of n must}, and what they do, for the record."""
    size = -(-step_bytes(config, n) // 1000) * 1000  # readers want whole thousands
    found = rates.measure([p for p in rates.probes([size])], rounds=5)["probes"]
    reader = min(found, key=lambda row: row["best_ns"])["name"]
    read = rates.READERS[reader](np.ones(size // 4, np.float32))

    x = np.ones((n, config.d_model), np.float32)  # the widest layer of the longest step
    w = np.ones((config.d_model, 4 * config.d_model), np.float32)
    out = x @ w
    needed = arithmetic.loop(config, n, cached=False)
    n_products = -(-needed // (x.size * w.shape[1]))

    def reading():
        for _ in range(n):
            read()

    def multiplying():
        for _ in range(n_products):
            np.matmul(x, w, out=out)

    said = {"reader": reader, "bytes_a_step": size, "products": n_products, "product": "x @ w"}
    return {CACHED_FLOOR: reading, UNCACHED_FLOOR: multiplying}, said


# The run


def differences(ways, subject):
    """Each path's largest difference to the float64 logits: {name: float}.

    Raises ValueError, naming the path, for one that is further off than TOLERANCE or not finite.
    """
    found = {}
    for name, path in ways.items():
        found[name] = float(np.abs(path.logits(subject.tokens[:-1]) - subject.logits).max())
        if not found[name] <= TOLERANCE:
            said = f"its logits differ from float64 by {found[name]:.3g}, above {TOLERANCE:g}"
            raise ValueError(f"{name!r} does not compute the same: {said}")
    return found


def measure(ways, floor_calls, subject, rounds=21, seed=0):
    """Time all paths and floors: a DataFrame of COLUMNS, a row a loop, in the order measured.

    `agreed` says whether the tokens were the subject's; a floor draws none and always agrees.
    """
    rng, rows = random.Random(seed), []
    first, wanted = subject.tokens[0], subject.tokens[1:]
    calls = {name: lambda path=path: path.run(first, len(wanted)) for name, path in ways.items()}
    calls |= floor_calls
    with collector_off():
        for call in calls.values():  # warmed: compiled, allocated
            call()
        for turn in tqdm(range(rounds), desc="rounds", disable=None):
            for name in rng.sample(list(calls), len(calls)):
                start_ns = perf_counter_ns()
                tokens = calls[name]()
                total_ns = perf_counter_ns() - start_ns
                rows.append((turn, name, total_ns, name in floor_calls or tokens == wanted))
    return pd.DataFrame(rows, columns=COLUMNS)


def table(rows, config):
    """One row a path and floor, slowest first.

    us, us_low, us_high  the median time of a token in µs, and its quartiles over rounds
    times, low, high     how many times faster than transformers' `generate` with its dynamic cache,
                         with its interval over rounds; NaN in a run without it
    of_floor             the floor's time over the path's: that of cached steps, or of uncached
    collected            for cached paths, the share of the arithmetic ratio that the clock gives,
                         against the pinned baseline; `_fastest`: against the fastest uncached path
                         of ours; `_floor`: against the uncached floor
    """
    ns = rows.pivot(index="round", columns="path", values="total_ns")
    medians = ns.median()
    uncached = [name for name in ns if name.startswith("uncached")]
    fastest = medians[uncached].idxmin()
    not_cached = {*uncached, NO_CACHE, UNCACHED_FLOOR}
    found = []
    for name in medians.sort_values(ascending=False).index:
        floor = UNCACHED_FLOOR if name in not_cached else CACHED_FLOOR
        quartiles = zip(
            ("us_low", "us", "us_high"), ns[name].quantile([0.25, 0.5, 0.75]), strict=True
        )
        row = {"path": name} | {column: x / config["n"] / 1000 for column, x in quartiles}
        if USUAL in ns:
            row |= zip(("times", "low", "high"), ratio_of_pairs(ns[name], ns[USUAL]), strict=True)
        row["of_floor"] = ratio_of_pairs(ns[name], ns[floor])[0]
        if name not in not_cached:
            against = {"": PINNED, "_fastest": fastest, "_floor": UNCACHED_FLOOR}
            for end, base in against.items():
                gained = ratio_of_pairs(ns[name], ns[base])[0]
                row[f"collected{end}"] = gained / config["arithmetic_ratio"]
        found.append(row)
    columns = ["us", "us_low", "us_high", "times", "low", "high", "of_floor"]
    columns += ["collected", "collected_fastest", "collected_floor"]
    return pd.DataFrame(found).set_index("path").reindex(columns=columns)


def load(path_or_name="engine"):
    """A recorded run: (its rows, its configuration), as `table` takes them."""
    run = evidence.read(path_or_name)
    return run.rows, run.manifest["config"]
