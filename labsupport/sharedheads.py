"""Weights of a `charmodel` with more or fewer key/value heads, in the layout of `charweights.flat`.

Query head h reads key/value head h // (n_heads // n_kv_heads): neighbours share one. So copies of a
shared head stand next to each other, and heads that are pooled are neighbours.
"""

from dataclasses import replace

import numpy as np

from labsupport import charweights
from labsupport.kvcache import whole_number


def expanded(config, weights, n_kv_heads=None):
    """The same model with its shared heads copied out: (config, weights), all new.

    n_kv_heads is a multiple of what the config has; by default n_heads, multi-head attention. The
    logits stay what they were, and the caches grow. Raises ValueError or TypeError for another
    number, and for weights that do not fit the config.
    """
    wanted = replace(config, n_kv_heads=config.n_heads if n_kv_heads is None else n_kv_heads)
    copies, rest = divmod(wanted.n_kv_heads, config.n_kv_heads)
    if rest:
        raise ValueError(_said(config, wanted.n_kv_heads, "a multiple"))
    return wanted, _changed(config, weights, lambda heads: np.repeat(heads, copies, axis=-2))


def pooled(config, weights, n_kv_heads):
    """A model whose shared heads are the means of those they replace: (config, weights), all new.

    This is how a trained multi-head model is turned into a grouped-query or multi-query one, before
    it is trained on (arXiv:2305.13245, section 2.1). It is another model unless the pooled heads
    were copies of one, as `expanded` makes them. n_kv_heads divides what the config has; raises as
    `expanded` does.
    """
    n_kv_heads = whole_number("n_kv_heads", n_kv_heads, at_least=1)  # a config takes None for all
    wanted = replace(config, n_kv_heads=n_kv_heads)
    size, rest = divmod(config.n_kv_heads, wanted.n_kv_heads)
    if rest:
        raise ValueError(_said(config, wanted.n_kv_heads, "a divisor"))

    def means(heads):  # [..., n_kv_heads, head_dim]
        groups = heads.reshape(*heads.shape[:-2], -1, size, config.head_dim)
        return groups.mean(axis=-2)

    return wanted, _changed(config, weights, means)


def _changed(config, weights, change):
    """All weights copied, keys' and values' changed: change([..., n_kv_heads, head_dim])."""
    charweights.numpy_decoder(config, weights)  # they fit, or this raises
    made = {name: array.copy() for name, array in weights.items()}
    for i in range(config.n_blocks):
        for name in (f"{i}.{part}.{leaf}" for part in "kv" for leaf in "wb"):
            array = weights[name]  # [d_model, n_kv_heads * head_dim], or without the first
            heads = array.reshape(*array.shape[:-1], config.n_kv_heads, config.head_dim)
            made[name] = change(heads).reshape(*array.shape[:-1], -1)
    return made


def _said(config, n_kv_heads, what):
    return f"n_kv_heads must be {what} of the model's {config.n_kv_heads}, not {n_kv_heads}"
