"""Weights of a `charmodel` as one flat dict of NumPy arrays, in the names and layouts of `decoder`.

So the torch model, the NumPy decoder and the engines compute with the very same numbers.
"""

import numpy as np
import torch

from labsupport.charmodel import CharModel
from labsupport.decoder import Decoder, DecoderConfig


def flat(model):
    """The weights of a float32 or float64 `CharModel`: {name: array}, matrices [n_in, n_out]."""
    c = model.config
    d_kv = c.n_kv_heads * c.head_dim
    weights = {"tokens": model.tokens.weight, "positions": model.positions.weight}

    def linear(name, weight, bias):
        weights[f"{name}.w"], weights[f"{name}.b"] = weight.T, bias

    def norm(name, module):
        weights[f"{name}.g"], weights[f"{name}.b"] = module.weight, module.bias

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
    return {name: np.array(w.detach().numpy(), order="C") for name, w in weights.items()}


def model(config, weights):
    """A `CharModel` of this config with these flat weights, in their dtype.

    Raises ValueError, naming the weight, when one is missing, left over or of another shape.
    """
    made = CharModel(config).to(torch.from_numpy(weights["head.w"]).dtype)
    check(flat(made), weights)
    with torch.no_grad():
        for name, array in weights.items():
            _place(made, name).copy_(torch.from_numpy(array.T if array.ndim == 2 else array))
    return made


def check(wanted, weights):
    """ValueError unless both hold arrays of the same names and shapes."""
    if wrong := sorted(set(wanted) ^ set(weights)):
        raise ValueError(f"weights do not fit the config: {wrong[0]!r} is missing or left over")
    for name, array in wanted.items():
        if array.shape != weights[name].shape:
            needs = f"{list(array.shape)}, not {list(weights[name].shape)}"
            raise ValueError(f"weights do not fit the config: {name!r} must be {needs}")


def _place(made, name):
    """The tensor of a model that a flat name means, rows of `qkv` for q, k and v."""
    if name in ("tokens", "positions"):
        return getattr(made, name).weight.T  # as all matrices: [n_in, n_out] is its transpose
    *path, leaf = name.split(".")
    module = made.blocks[int(path[0])] if len(path) == 2 else made
    kind = {"w": "weight", "g": "weight", "b": "bias"}[leaf]
    if path[-1] not in ("q", "k", "v"):
        return getattr(getattr(module, path[-1]), kind)
    c = made.config
    d_kv = c.n_kv_heads * c.head_dim
    parts = getattr(module.qkv, kind).split([c.d_model, d_kv, d_kv])
    return parts["qkv".index(path[-1])]


def numpy_decoder(config, weights):
    """The same model as the plain NumPy `Decoder` of chapter 1."""
    made = Decoder(
        DecoderConfig(
            vocab_size=config.vocab_size,
            n_positions=config.context,
            d_model=config.d_model,
            n_layers=config.n_blocks,
            n_heads=config.n_heads,
            n_kv_heads=config.n_kv_heads,
            dtype=weights["head.w"].dtype,
        ),
        seed=0,
    )
    check(made.weights, weights)
    made.weights = dict(weights)
    return made
