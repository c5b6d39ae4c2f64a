"""What the checks of chapter 3's claims read: printed figures, the recorded sweep, and trials.

A trial runs the recorded model and says what came out; it takes at most seconds, once a process.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pandas as pd
import torch

from labsupport import agreement, charweights, derivation_source, libcalls, sweep, training
from labsupport import evidence as recorded
from labsupport.charcache import ConcatCache, new_caches
from labsupport.charmodel import CharConfig

SWEEP = "sweep"  # the run in evidence/ that holds the times
N_PROMPTS = 6  # one character each, the most frequent of the text


@dataclass(frozen=True)
class DerivationEvidence:
    """What the checks of chapter 3 read.

    length, width  the source's tables, as `derivation_source` reads them
    config         sizes of the model that it describes, CharConfig
    trials         the functions of this module that end in a trial, by name, without arguments
    rows           the recorded sweep: one row a timed loop
    cells          the same, one row a cell, as `sweep.table` makes it
    rates          what its machine was measured to do
    """

    length: pd.DataFrame
    width: pd.DataFrame
    config: CharConfig
    trials: dict[str, Callable]
    rows: pd.DataFrame
    cells: pd.DataFrame
    rates: dict

    def ratios(self) -> list[tuple[int, int, float]]:
        """The source's ratios of multiplications: (d, n, ratio), without repeats."""
        return derivation_source.ratios_in(self.length, self.width)

    def over_length(self) -> pd.DataFrame:
        """The recorded cells of the source's width, by n_tokens, ascending."""
        cells = self.cells[self.cells["d_model"] == self.config.d_model]
        return cells.set_index("n_tokens").sort_index()

    def over_width(self) -> pd.DataFrame:
        """The recorded cells of 256 tokens, by d_model, ascending."""
        return self.cells[self.cells["n_tokens"] == 256].set_index("d_model").sort_index()

    def rounds_ns(self, path: str) -> pd.DataFrame:
        """Times of a path at the source's width: one row a round, one column a number of tokens."""
        rows = self.rows[
            (self.rows["d_model"] == self.config.d_model) & (self.rows["path"] == path)
        ]
        return rows.pivot(index="round", columns="n_tokens", values="total_ns")


# --- trials: what changes, what is needed -----------------------------------------------------


@torch.no_grad()
def changes(model, tokens):
    """How far activations of the same tokens move, relative to the largest: {case: number}.

    float32, float64   one more token is appended
    no mask            the same without the causal mask
    slid               the window of a full context moves on by one token
    """
    double, n = copy.deepcopy(model).double(), model.config.context

    def moved(model, before, after, shift=0, causal=True):
        old, new = (model.activations([t], causal)[1:] for t in (before, after))
        kept = len(before) - shift
        pairs = [(a[:, shift:], b[:, :kept]) for a, b in zip(old, new, strict=True)]
        return max(float((a - b).abs().max() / a.abs().max()) for a, b in pairs)

    return {
        "float32": moved(model, tokens[: n - 1], tokens[:n]),
        "float64": moved(double, tokens[: n - 1], tokens[:n]),
        "no mask": moved(model, tokens[: n - 1], tokens[:n], causal=False),
        "slid": moved(model, tokens[:n], tokens[1 : n + 1], shift=1),
    }


@torch.no_grad()
def steps(model, tokens, n_held=60, n_new=4):
    """How far the logits of a cached step are from those without a cache: {case: number}.

    kept          one token on a cache
    no keys       the same, the keys of earlier tokens lost; `no values` likewise
    several       `n_new` tokens at once; `several, no mask` without one
    """
    all_logits = model([tokens[: n_held + n_new]])[0]  # [n_tokens, vocab_size]

    def off(n_new, causal=True, lost=None):
        caches = new_caches(model)
        model([tokens[:n_held]], caches)
        for one in caches if lost else ():
            setattr(one, lost, torch.zeros_like(getattr(one, lost)))
        logits = model([tokens[n_held : n_held + n_new]], caches, causal)[0]
        return float((logits - all_logits[n_held : n_held + n_new]).abs().max())

    return {
        "kept": off(1, causal=False),
        "no keys": off(1, lost="k"),
        "no values": off(1, lost="v"),
        "several": off(n_new),
        "several, no mask": off(n_new, causal=False),
    }


# --- trials: is it the same answer ------------------------------------------------------------


def compared(model, starts, n):
    """Loops of `n` from one token each, drawn with a seed each: rows of `agreement.measure`."""
    return agreement.measure(model, [[start] for start in starts], n, seeds=range(len(starts)))


def doubled(model, starts, n):
    """The same in float64, from the first start alone."""
    return compared(copy.deepcopy(model).double(), starts[:1], n)


@torch.no_grad()
def rounded(model, tokens):
    """The logits of both ways after each of `tokens`, held against float64: one row a step.

    uncached_error, cached_error  the largest, of the logits
    variation                     half the sum of the differences of probabilities: how probably
                                  one random number draws two tokens
    gap                           between the two largest probabilities
    """
    caches = new_caches(model)
    cached = torch.cat([model([[token]], caches)[0] for token in tokens])  # [n_tokens, vocab_size]
    uncached = model([tokens])[0]
    exact = copy.deepcopy(model).double()([tokens])[0]
    p, q = (logits.double().softmax(dim=1) for logits in (uncached, cached))
    first, second = p.topk(2, dim=1).values.T
    return pd.DataFrame(
        {
            "uncached_error": (uncached - exact).abs().amax(dim=1),
            "cached_error": (cached - exact).abs().amax(dim=1),
            "variation": (p - q).abs().sum(dim=1) / 2,
            "gap": first - second,
        }
    )


# --- a trial: what is launched ----------------------------------------------------------------


@torch.no_grad()
def kernels(model, n_tokens=64):
    """Operations that a block launches in a step: {"uncached": ..., "cached": ..., ...}.

    Views are not counted but in "cached, all".
    """
    block, d = model.blocks[0], model.config.d_model
    (held, *_) = new_caches(model, ConcatCache)
    block(torch.zeros(1, n_tokens - 1, d), held)
    counts = {}
    for path, x, one in (
        ("uncached", torch.zeros(1, n_tokens, d), None),
        ("cached", torch.zeros(1, 1, d), held),
    ):
        with libcalls.TorchCalls() as launched:
            block(x, one)
        counts[path] = launched.operations
    return counts | {"cached, all": launched.calls}


# --- the evidence -----------------------------------------------------------------------------


def trials_of(model, tokens, starts) -> dict[str, Callable]:
    """The trials on a model, by name, each run at most once; tokens: more than its context."""
    n = model.config.context
    runs = {
        "changes": lambda: changes(model, tokens),
        "steps": lambda: steps(model, tokens),
        "compared": lambda: compared(model, starts, n),
        "rounded": lambda: rounded(model, tokens[:n]),
        "doubled": lambda: doubled(model, starts, n),
        "kernels": lambda: kernels(model),
    }
    return {name: cache(run) for name, run in runs.items()}


def complete(rows):
    """The rows of a sweep; ValueError, naming what it lacks, unless they hold all that is read."""
    lacks = [cell for cell in sweep.CELLS if cell not in set(rows["cell"])]
    if lacks := lacks + [path for path in sweep.PATHS if path not in set(rows["path"])]:
        said = f"python -m labsupport sweep --out evidence/{SWEEP}"
        raise ValueError(f"evidence/{SWEEP} lacks {', '.join(lacks)}; record all of it: {said}")
    return rows


@cache
def evidence() -> DerivationEvidence:
    """The evidence recorded in the repository."""
    config, weights = training.recorded()
    alphabet, text = training.recorded_text()
    tokens = alphabet.encode(text[-2 * config.context :])  # held out from training
    starts = pd.Series(alphabet.encode(text)).value_counts().index[:N_PROMPTS].tolist()
    rows, (cells, rates) = complete(recorded.read(SWEEP).rows), sweep.load(SWEEP)
    return DerivationEvidence(
        derivation_source.length(),
        derivation_source.width(),
        config,
        trials_of(charweights.model(config, weights), tokens, starts),
        rows,
        cells,
        rates,
    )
