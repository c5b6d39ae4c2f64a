"""The five loops that a sweep times, and how many library calls a step of each makes.

    loop    n steps from one token; step t sees t tokens and takes the argmax of its logits
    path    uncached feeds all t tokens again and computes the logits of each, as a plain call of
            the model does; the others keep keys and values and feed the last one

A loop is fed a fixed sequence, not what it chose: a near-tie cannot send two paths different ways.
"""

import numpy as np
import torch

from labsupport import charcache, charweights, libcalls
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
    """Library calls that a step of each path makes, views among them: {path: int}, counted.

    Of torch those that it dispatches, of the NumPy engine those on arrays. The compiled step is
    one call from Python.
    """
    counted = {path: _torch_calls(loop, config) for path, loop in make(config, paths).items()}
    if "numpy" in counted:
        engine = NumpyEngine(config, charweights.flat(CharModel(config)))
        counted["numpy"] = sum(libcalls.numpy_calls(engine, lambda: engine.step(0)).values())
    return counted | ({"compiled": 1} if "compiled" in counted else {})


def _torch_calls(loop, config):
    """Those of a loop's second step: what begins a loop is not in it."""
    once, twice = libcalls.TorchCalls(), libcalls.TorchCalls()
    for n, counting in ((1, once), (2, twice)):
        with counting:
            loop(tokens_of(config, n))
    return twice.calls - once.calls
