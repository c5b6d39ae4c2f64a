"""The five loops that a sweep times, and how many library calls a step of each makes.

    loop    n steps from one token; step t sees t tokens and takes the argmax of its logits
    path    uncached feeds all t tokens again and computes the logits of each, as a plain call of
            the model does; the others keep keys and values and feed the last one

A loop is fed a fixed sequence, not what it chose: a near-tie cannot send two paths different ways.
"""

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from labsupport import charcache, charweights, opcounts
from labsupport.charmodel import CharModel
from labsupport.compiled import CompiledEngine
from labsupport.engine import NumpyEngine


def _uncached(model, _):
    @torch.inference_mode()
    def loop(tokens):
        fed = torch.tensor([tokens])  # [1, n]
        for t in range(1, len(tokens) + 1):
            logits = model(fed[:, :t])[0, -1]  # [vocab_size], of the last position
            logits.argmax().item()
        return logits.numpy()

    return loop


def _torch_cached(new_caches):
    def make(model, _):
        @torch.inference_mode()
        def loop(tokens):
            caches, fed = new_caches(model), torch.tensor([tokens])  # [1, n]
            for t in range(1, len(tokens) + 1):
                logits = model(fed[:, t - 1 : t], caches)[0, -1]  # [vocab_size]
                logits.argmax().item()
            return logits.numpy()

        return loop

    return make


def _concat(model):
    return charcache.new_caches(model, charcache.ConcatCache)


def _preallocated(model):
    capacity = model.config.context
    return charcache.new_caches(model, charcache.PreallocatedCache, capacity=capacity)


def _engine(kind):
    def make(model, weights):
        engine = kind(model.config, weights)

        def loop(tokens):
            engine.reset()
            for token in tokens:
                logits = engine.step(token)  # [vocab_size]
                logits.argmax()
            return logits

        loop.engine = engine
        return loop

    return make


PATHS = {  # name: make(model, flat weights) -> loop(tokens) -> the logits of the last step
    "uncached": _uncached,
    "concat": _torch_cached(_concat),
    "preallocated": _torch_cached(_preallocated),
    "numpy": _engine(NumpyEngine),
    "compiled": _engine(CompiledEngine),
}
CACHED = [path for path in PATHS if path != "uncached"]


def make(config, paths=PATHS, seed=0):
    """The loops of one model with random weights that follow from `seed`: {path: loop}."""
    model = CharModel(config, seed)
    weights = charweights.flat(model)
    return {path: PATHS[path](model, weights) for path in paths}


def tokens_of(config, n_tokens, seed=0):
    """What the loops of a config are fed: `n_tokens` token ids, a list."""
    return np.random.default_rng(seed).integers(config.vocab_size, size=n_tokens).tolist()


def one_pass(config, seed=0):
    """A call that gives for tokens, in one pass, the logits that end a loop: [vocab_size]."""
    model = CharModel(config, seed)

    @torch.inference_mode()
    def call(tokens):
        return model(torch.tensor([tokens]))[0, -1].numpy()

    return call


def difference(logits, wanted):
    """The largest difference of two vectors of logits over the largest of those wanted."""
    return float(np.abs(np.asarray(logits) - wanted).max() / np.abs(wanted).max())


def operations(config, paths=PATHS):
    """Library calls that a step of each path makes: {path: int}, counted while a step runs.

    Of a torch path the operations that torch dispatches, views among them; of the NumPy engine
    the calls on arrays, indexing among them. The compiled step is one call from Python.
    """
    counted = {}
    for path, loop in make(config, paths).items():
        count = _array_calls if path == "numpy" else _dispatched
        once, twice = (count(loop, tokens_of(config, n)) for n in (1, 2))
        counted[path] = twice - once  # of the second step: what begins a loop is not in it
    return counted | ({"compiled": 1} if "compiled" in counted else {})


class _Dispatched(TorchDispatchMode):
    """Counts the operations that torch dispatches within."""

    count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.count += 1
        return operation(*args, **(kwargs or {}))


def _dispatched(loop, tokens):
    with _Dispatched() as mode:
        loop(tokens)
    return mode.count


class _Watched(opcounts.Counted):
    """A counted array whose products by method are counted too."""

    def dot(self, other, out=None):
        return np.matmul(self, other) if out is None else np.matmul(self, other, out)


def _array_calls(loop, tokens):
    engine = loop.engine
    before = dict(vars(engine))
    try:
        vars(engine).update({name: _watched(value) for name, value in before.items()})
        with opcounts.watching() as noted:
            loop(tokens)
    finally:
        vars(engine).update(before)
    return len(noted)


def _watched(value):
    if isinstance(value, np.ndarray):
        return value.view(_Watched)
    if isinstance(value, (list, tuple)):
        return type(value)(map(_watched, value))
    return value
