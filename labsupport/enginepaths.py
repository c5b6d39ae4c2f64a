"""Ways to generate from one token, as the engine bench runs them: the ladder's, and uncached loops.

A `Path` generates greedily and tells its logits, batch 1. Cached paths take one token a step;
uncached ones get the whole sequence at every step, and differ in what they leave uncomputed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from labsupport import charweights
from labsupport.charmodel import attention
from labsupport.engine import NumpyEngine
from labsupport.ladder import RUNGS

PINNED = "uncached, all positions"  # the baseline of every collected share


@dataclass(frozen=True)
class Path:
    """A way to generate.

    run(token, n_new) -> the n_new ids that follow the one token, greedily: a list
    logits(tokens)    -> the logits after each of the ids, by the same code: [n_tokens, vocab_size]
    """

    run: Callable
    logits: Callable


def paths(config, weights):
    """Every rung of the ladder and our uncached loops: {name: Path}."""
    cached = {name: stepping(make(config, weights)) for name, make in RUNGS.items()}
    model = charweights.model(config, weights)
    whole = NumpyEngine(config, weights)

    def prefilled(tokens):
        whole.reset()
        return whole.prefill(tokens)

    uncached = {
        PINNED: refeeding(lambda tokens: model(torch.tensor([tokens]))[0, -1]),
        "uncached, last row only": refeeding(lambda tokens: _last_row(model, tokens)),
        "uncached, last query only": refeeding(lambda tokens: _last_query(model, tokens)),
        "uncached, NumPy": refeeding(prefilled),
    }
    return uncached | cached


def stepping(engine):
    """The Path of what has step(token) -> logits [vocab_size] and reset().

    It generates by its own generate(prompt, n_new), when it has one.
    """

    @torch.inference_mode()
    def run(token, n_new):
        engine.reset()
        if hasattr(engine, "generate"):
            return engine.generate([token], n_new)
        new = []
        for _ in range(n_new):
            token = int(engine.step(token).argmax())
            new.append(token)
        return new

    @torch.inference_mode()
    def logits(tokens):
        engine.reset()
        return np.stack([_copied(engine.step(token)) for token in tokens])

    return Path(run, logits)


def refeeding(last_logits):
    """The Path of a loop that gives all tokens so far to `last_logits` at every step."""

    @torch.inference_mode()
    def run(token, n_new):
        sequence = [token]
        for _ in range(n_new):
            sequence.append(int(last_logits(sequence).argmax()))
        return sequence[1:]

    @torch.inference_mode()
    def logits(tokens):
        return np.stack([_copied(last_logits(tokens[: i + 1])) for i in range(len(tokens))])

    return Path(run, logits)


def _copied(logits):
    """An array or tensor as an array of its own: the next step may overwrite it."""
    return torch.as_tensor(logits).numpy().copy()


def _last_row(model, tokens):
    """The head at the last position alone: nothing else of it is used."""
    x = model.embed(torch.tensor([tokens]))
    for block in model.blocks:
        x = block(x)
    return model.head(model.norm(x[0, -1]))  # [vocab_size]


def _last_query(model, tokens):
    """So too in the last block: keys and values at every position, all else at the last."""
    c = model.config
    x = model.embed(torch.tensor([tokens]))
    *blocks, last = model.blocks
    for block in blocks:
        x = block(x)

    h = last.norm_1(x)  # [1, n_tokens, d_model]
    (w_q, w_kv), (b_q, b_kv) = (t.tensor_split([c.d_model]) for t in last.qkv.parameters())
    q = F.linear(h[:, -1:], w_q, b_q)  # [1, 1, d_model]
    k, v = F.linear(h, w_kv, b_kv).chunk(2, dim=2)  # [1, n_tokens, n_kv_heads * head_dim]
    q, k, v = (t.unflatten(2, (-1, c.head_dim)).transpose(1, 2) for t in (q, k, v))
    read = attention(q, k, v)  # [1, n_heads, 1, head_dim]

    x = x[:, -1:] + last.o(read.transpose(1, 2).flatten(2))
    x = x + last.down(F.gelu(last.up(last.norm_2(x)), approximate="tanh"))
    return model.head(model.norm(x[0, 0]))  # [vocab_size]
