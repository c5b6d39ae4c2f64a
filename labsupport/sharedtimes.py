"""What shared key/value heads do to the time of a cached step, beside what they save.

subject   one multi-query model, and the same with its heads copied out (`sharedheads`): every
          kind computes the same logits, and only what it reads differs
filled    a step reads its cache whatever stands there, so the cache holds random numbers
round     each kind once, in a random order, after an untimed step of the same kind
"""

import random
from time import perf_counter_ns

import numpy as np
import pandas as pd

from labsupport import arithmetic, charweights, sharedheads, sharing
from labsupport.charmodel import CharConfig
from labsupport.compiled import CompiledEngine
from labsupport.decoder import random_weights
from labsupport.kvcache import whole_number
from labsupport.pairs import ratio_of_pairs
from labsupport.timing import collector_off

TOLERANCE = 1e-4  # of a logit between kinds, which add up in one order; logits are of size 1
LONG = 16_384  # tokens: of the multi-head model the cache is then 20 times its weights
TOKEN = 1


class FilledEngine(CompiledEngine):
    """A compiled engine that can be told to hold keys and values that it did not compute."""

    def fill(self, keys, values):
        """Hold keys [n_blocks, n_kv_heads, head_dim, n_tokens], values [.., n_tokens, head_dim].

        What has one head is given to all.
        """
        n_tokens = values.shape[2]
        self._check_room(n_tokens - len(self))
        _, _, _, own_keys, own_values, *_ = self._state
        own_keys[..., :n_tokens], own_values[:, :, :n_tokens] = keys, values
        self._n_tokens = n_tokens

    def peek(self, token):
        """The logits after one more token, [vocab_size], which is forgotten again."""
        logits = self.step(token)
        self.truncate(len(self) - 1)
        return logits


def engines(config, n_tokens, seed=0):
    """One engine a kind that all hold the same `n_tokens` tokens, with room for one: a list.

    Raises ValueError unless they all give the same logits for the next token.
    """
    rng = np.random.default_rng(seed)
    kinds = sharing.kinds(CharConfig(**{**vars(config), "context": n_tokens + 1}))
    shared = kinds[-1]  # multi-query
    weights = random_weights(charweights.decoder_config(shared, np.float32), seed)
    room = (shared.n_blocks, 1, shared.head_dim, n_tokens)
    keys = rng.standard_normal(room, np.float32)
    values = rng.standard_normal(room, np.float32).swapaxes(2, 3)
    made = []
    for kind in kinds:
        engine = FilledEngine(*sharedheads.expanded(shared, weights, kind.n_kv_heads))
        engine.fill(keys, values)
        made.append(engine)

    logits = [engine.peek(TOKEN).copy() for engine in made]
    apart = max(np.abs(one - logits[0]).max() for one in logits)
    if not apart <= TOLERANCE:
        raise ValueError(f"the kinds do not compute the same: logits differ by {apart:.3g}")
    return made


def measure(config, n_tokens, rounds=101, seed=0):
    """Time the cached step after `n_tokens` of each kind: a DataFrame, a row a step.

    round, n_kv_heads, step_ns. Raises what `engines` raises.
    """
    whole_number("rounds", rounds, at_least=1)
    made = engines(config, whole_number("n_tokens", n_tokens, at_least=1), seed)
    rng, rows = random.Random(seed), []
    with collector_off():
        for turn in range(rounds):
            for engine in rng.sample(made, len(made)):
                engine.peek(TOKEN)  # what it reads is as near as it can be
                start_ns = perf_counter_ns()
                engine.step(TOKEN)
                taken_ns = perf_counter_ns() - start_ns
                engine.truncate(n_tokens)
                rows.append((turn, engine.config.n_kv_heads, taken_ns))
    return pd.DataFrame(rows, columns=["round", "n_kv_heads", "step_ns"])


def step_times(n_tokens=LONG, config=None, rounds=101):
    """Time a step of each kind after `n_tokens`, here and now: one row a kind.

    us                   the median step in µs
    ratio, low, high     to multi-head's in the same round: the median, and its interval
    bytes                of the weights and the cache that it reads, the ratio to multi-head
    multiplications      the same ratio: shared keys are still met by every query head

    A step that only waited for memory would take `bytes` as long, one that only multiplied
    `multiplications`. The interval is over the rounds of this call: in another one the arrays lie
    elsewhere, which moved ratios by up to 0.05.

    Raises ValueError or TypeError for numbers that are no counts.
    """
    config = config or CharConfig()
    return table(measure(config, n_tokens, rounds), config, n_tokens)


def table(rows, config, n_tokens):
    """What `step_times` gives, from the rows of `measure`."""
    ns = rows.pivot(index="round", columns="n_kv_heads", values="step_ns")
    kinds = sharing.kinds(config)
    several = config.n_heads
    read = {c.n_kv_heads: arithmetic.numbers_read(c, n_tokens + 1) for c in kinds}
    multiplied = {
        c.n_kv_heads: sum(arithmetic.multiplications(c, 1, n_tokens + 1).values()) for c in kinds
    }
    found = []
    for n in read:
        ratio, low, high = ratio_of_pairs(ns[several], ns[n]) if n != several else (1, 1, 1)
        found.append(
            {
                "kind": sharing.name(several, n),
                "n_kv_heads": n,
                "us": ns[n].median() / 1000,
                "ratio": ratio,
                "low": low,
                "high": high,
                "bytes": read[n] / read[several],
                "multiplications": multiplied[n] / multiplied[several],
            }
        )
    return pd.DataFrame(found).set_index("kind")
