"""What fewer key/value heads cost: one model in several kinds, each trained for the same budget.

    kind    how many query heads share a key/value head: none (multi-head), some (grouped-query,
            arXiv:2305.13245), all (multi-query, arXiv:1911.02150)
    budget  the same steps, learning rates and batches: training draws the windows of a seed alike
            for every kind, so kinds are compared in pairs, seed by seed
    seed    also of the weights at the start; those differ, since their shapes do

A kind with fewer key/value heads has fewer parameters. Nothing is given back for them elsewhere.
"""

import math
from dataclasses import asdict, replace
from time import perf_counter

import pandas as pd
from scipy import stats
from tqdm import tqdm

from labsupport import charcache, evidence, training
from labsupport.charmodel import CharModel
from labsupport.kvcache import whole_number

RECORD = "sharing"  # the run in evidence/
CONFIDENCE = 0.95  # of each interval by itself
COLUMNS = ["n_kv_heads", "seed", "step", "training", "held_out"]


def name(n_heads, n_kv_heads):
    """The name in the papers for attention of these heads."""
    if n_kv_heads == n_heads:
        return "multi-head"
    return "multi-query" if n_kv_heads == 1 else "grouped-query"


def kinds(config):
    """Configs that differ in their key/value heads alone: n_heads, half of it, and so on to 1."""
    counts = [config.n_heads]
    while counts[-1] % 2 == 0:
        counts.append(counts[-1] // 2)
    return [replace(config, n_kv_heads=count) for count in dict.fromkeys([*counts, 1])]


def sizes(config):
    """What one kind weighs: its name, parameters, and the bytes that a token adds to its caches.

    The bytes are those of the tensors that the caches hold after one token, in float32.
    """
    model = CharModel(config)
    caches = charcache.new_caches(model)
    model([[0]], caches)
    return {
        "kind": name(config.n_heads, config.n_kv_heads),
        "n_kv_heads": config.n_kv_heads,
        "parameters": model.n_parameters(),
        "cache_bytes": sum(cache.k.nbytes + cache.v.nbytes for cache in caches),
    }


def seconds(config, text, plan, seeds):
    """How long `measure` will take here, from a dozen steps of the largest kind: seconds."""
    taken_s = []
    for steps in (1, 1, 11):  # each takes both losses twice; the first warms up
        start_s = perf_counter()
        training.train(config, text, replace(plan, steps=steps, every=steps))
        taken_s.append(perf_counter() - start_s)
    step_s = max(0, taken_s[2] - taken_s[1]) / 10
    evaluation_s = taken_s[1] / 2
    one_s = plan.steps * step_s + len(plan.evaluated()) * evaluation_s
    return len(kinds(config)) * seeds * one_s


def measure(config, text, plan, seeds):
    """Train every kind from `seeds` seeds: a DataFrame of COLUMNS, a row an evaluation.

    Losses are in nats a character. Seeds are 0, 1, ... whatever the plan's is, and each is given to
    all kinds before the next. Raises what `training.train` raises, and ValueError for fewer than
    two seeds, whose spread nothing shows.
    """
    seeds = range(whole_number("seeds", seeds, at_least=2))
    trainings = [(seed, kind) for seed in seeds for kind in kinds(config)]
    found = []
    for seed, kind in tqdm(trainings, desc="trainings", disable=None):
        rows, _ = training.train(kind, text, replace(plan, seed=seed))
        found.append(rows.assign(n_kv_heads=kind.n_kv_heads, seed=seed))
    return pd.concat(found, ignore_index=True)[COLUMNS]


def table(rows, config):
    """One row a kind, most key/value heads first, from a run's rows and configuration.

    parameters, cache_bytes    of the model; that a token adds to its caches
    loss                       held-out, in nats a character, at the end: the mean over seeds
    among_seeds                the standard deviation of that loss from seed to seed
    difference, low, high      of the loss to multi-head's with the same seed: mean and interval
                               (Student's t over seeds, each at CONFIDENCE); NaN for multi-head
    verdict                    'better', 'worse', or 'cannot tell' where the interval holds 0

    Raises ValueError unless each kind has the same two seeds or more.
    """
    at_end = rows[rows["step"] == rows["step"].max()]
    losses = at_end.pivot(index="seed", columns="n_kv_heads", values="held_out")
    losses = losses.reindex(columns=[told["n_kv_heads"] for told in config["kinds"]])
    if len(losses) < 2 or losses.isna().any(axis=None):
        raise ValueError("rows need each kind trained with the same seeds, two or more")
    several = config["model"]["n_heads"]
    found = []
    for told in config["kinds"]:
        own = losses[told["n_kv_heads"]]
        row = {**told, "loss": own.mean(), "among_seeds": own.std()}
        if told["n_kv_heads"] != several:
            row |= _judged(own - losses[several])
        found.append(row)
    columns = ["n_kv_heads", "parameters", "cache_bytes", "loss", "among_seeds"]
    columns += ["difference", "low", "high", "verdict"]
    return pd.DataFrame(found).set_index("kind").reindex(columns=columns)


def _judged(differences):
    """What differences over seeds tell, [n_seeds]."""
    n, mean = len(differences), differences.mean()
    apart = stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * differences.std() / math.sqrt(n)
    low, high = mean - apart, mean + apart
    verdict = "worse" if low > 0 else "better" if high < 0 else "cannot tell"
    return {"difference": mean, "low": low, "high": high, "verdict": verdict}


def load(path_or_name=RECORD):
    """A recorded run: (its rows, its configuration), as `table` takes them."""
    run = evidence.read(path_or_name)
    return run.rows, run.manifest["config"]


def described(config, plan, seeds):
    """The configuration of a run, for its manifest."""
    return {
        "model": {k: v for k, v in asdict(config).items() if k != "n_kv_heads"},
        "plan": {k: v for k, v in asdict(plan).items() if k != "seed"},
        "kinds": [sizes(kind) for kind in kinds(config)],
        "seeds": list(range(seeds)),
        "threads": 1,
        "dtype": "float32",
    }
