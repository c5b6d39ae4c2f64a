"""Weights of a `charmodel` as one flat dict of NumPy arrays, in the names and layouts of `decoder`.

So the torch model, the NumPy decoder and the engines compute with the very same numbers.
"""

import numpy as np
import safetensors.numpy
import torch

from labsupport.charmodel import CharConfig, CharModel
from labsupport.decoder import Decoder, DecoderConfig
from labsupport.kvcache import whole_number


def flat(model):
    """The weights of a float32 or float64 `CharModel`: {name: array}, matrices [n_in, n_out].

    Copies: to change them does not change the model.
    """
    return {name: np.array(view.numpy(), order="C") for name, view in _views(model).items()}


def model(config, weights):
    """A `CharModel` of this config with a copy of these flat weights, in their dtype.

    Raises ValueError, naming the weight, when one is missing, left over or of another shape.
    """
    made = CharModel(config)
    views = _views(made)
    check(views, weights)
    made.to(torch.from_numpy(np.array(weights["head.w"])).dtype)
    for name, view in _views(made).items():
        view.copy_(torch.from_numpy(np.array(weights[name])))
    return made


def decoder_config(config, dtype):
    """The sizes of a `CharConfig` as those of a NumPy `Decoder`."""
    return DecoderConfig(
        vocab_size=config.vocab_size,
        n_positions=config.context,
        d_model=config.d_model,
        n_layers=config.n_blocks,
        n_heads=config.n_heads,
        n_kv_heads=config.n_kv_heads,
        dtype=dtype,
    )


def numpy_decoder(config, weights):
    """The same model as the plain NumPy `Decoder` of chapter 1; raises as `model` does."""
    dtype = next(iter(weights.values()), np.zeros(1)).dtype  # `check` names what lacks
    made = Decoder(decoder_config(config, dtype), seed=0)
    check(made.weights, weights)
    made.weights = dict(weights)
    return made


def longer(config, weights, context, seed=0):
    """The same model with room for `context` tokens: (config, weights), for timing.

    The positions beyond those it had are random and untrained, so what it writes there means
    nothing; up to there it is the same model. Raises ValueError for a shorter context.
    """
    extra = whole_number("context", context, at_least=config.context) - config.context
    had = weights["positions"]  # [context, d_model]
    fresh = np.random.default_rng(seed).normal(0, had.std(), size=(extra, config.d_model))
    positions = np.concatenate([had, fresh.astype(had.dtype)])
    sizes = {**vars(config), "context": config.context + extra}
    return CharConfig(**sizes), {**weights, "positions": positions}


def to_bytes(weights):
    """Flat weights as the content of a safetensors file."""
    return safetensors.numpy.save(weights)


def from_bytes(data):
    """The flat weights of a safetensors file's content; ValueError when it is damaged."""
    try:
        return safetensors.numpy.load(data)
    except Exception as error:  # the library has one exception of its own for all damage
        raise ValueError(f"these are not weights in safetensors: {error}") from error


def check(wanted, weights):
    """ValueError unless both hold arrays of the same names and shapes."""
    if wrong := sorted(set(wanted) ^ set(weights)):
        raise ValueError(f"weights do not fit the config: {wrong[0]!r} is missing or left over")
    for name, array in wanted.items():
        if tuple(array.shape) != tuple(weights[name].shape):
            needs = f"{list(array.shape)}, not {list(weights[name].shape)}"
            raise ValueError(f"weights do not fit the config: {name!r} must be {needs}")


def _views(model):
    """{flat name: the tensor of the model it means}, matrices seen as [n_in, n_out]."""
    c = model.config
    d_kv = c.n_kv_heads * c.head_dim
    views = {"tokens": model.tokens.weight, "positions": model.positions.weight}

    def linear(name, weight, bias):
        views[f"{name}.w"], views[f"{name}.b"] = weight.T, bias

    def norm(name, module):
        views[f"{name}.g"], views[f"{name}.b"] = module.weight, module.bias

    for i, block in enumerate(model.blocks):
        norm(f"{i}.norm_1", block.norm_1)
        rows = [c.d_model, d_kv, d_kv]
        parts = zip("qkv", block.qkv.weight.split(rows), block.qkv.bias.split(rows), strict=True)
        for name, weight, bias in parts:
            linear(f"{i}.{name}", weight, bias)
        linear(f"{i}.o", block.o.weight, block.o.bias)
        norm(f"{i}.norm_2", block.norm_2)
        linear(f"{i}.up", block.up.weight, block.up.bias)
        linear(f"{i}.down", block.down.weight, block.down.bias)
    norm("norm", model.norm)
    linear("head", model.head.weight, model.head.bias)
    return {name: view.detach() for name, view in views.items()}
