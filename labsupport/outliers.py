"""Are a few channels of the keys always large? Why a scale a channel suits keys, or does not.

In large models some are, and a scale a token has to cover them: its steps are too coarse for all
other channels (arXiv:2402.02750, section 3.2). `spread` looks for them in a model, and
`with_outliers` puts them into one without changing what it computes.
"""

import numpy as np
import pandas as pd

from labsupport import charweights
from labsupport.codeddecoder import by_groups
from labsupport.kvcache import ConcatCache, whole_number
from labsupport.quantize import quantize

SIDES = ("keys", "values")


def rows_of(config, weights, tests):
    """Keys and values of windows [n_windows, n_tokens + 1], the last character not read:
    {"keys" or "values": [n_windows, n_layers, n_kv_heads, n_tokens, head_dim]}"""
    model, found = charweights.numpy_decoder(config, weights), {side: [] for side in SIDES}
    for window in tests:
        caches = model.new_caches(ConcatCache)
        model.forward(window[:-1], caches)
        found["keys"].append([cache.keys() for cache in caches])
        found["values"].append([cache.values() for cache in caches])
    return {side: np.array(rows) for side, rows in found.items()}


def largest(rows):
    """The largest |x| of each channel over all tokens, and of each token over all channels.

    rows are one side of `rows_of`; gives {"channel": [n_layers, n_kv_heads, head_dim], "token":
    [n_layers, n_kv_heads, n_windows * n_tokens]}, for a figure of both, sorted.
    """
    sizes = np.abs(rows)
    by_token = np.moveaxis(sizes.max(axis=4), 0, 2)  # [n_layers, n_kv_heads, n_windows, n_tokens]
    return {"channel": sizes.max(axis=(0, 3)), "token": by_token.reshape(*by_token.shape[:2], -1)}


def spread(config, weights, tests, bits=8):
    """One row a side, layer and head: how uneven the sizes are, and what each layout loses.

    over_channels, over_tokens    the largest of `largest`, over its median
    error_channel, error_token    what codes of `bits` miss, with a scale a channel and group
                                  of head_dim tokens, or a token: root mean square, over that of
                                  the numbers
    """
    found = []
    for side, rows in rows_of(config, weights, tests).items():
        sizes = largest(rows)
        for layer, head in np.ndindex(rows.shape[1:3]):
            own = rows[:, layer, head]  # [n_windows, n_tokens, head_dim]
            coded = {
                "channel": by_groups(own, config.head_dim, bits),
                "token": quantize(own, 2, bits).dequantize(),
            }
            row = {"side": side, "layer": layer, "head": head}
            for over, x in sizes.items():
                row[f"over_{over}s"] = x[layer, head].max() / np.median(x[layer, head])
            for layout, x in coded.items():
                row[f"error_{layout}"] = np.sqrt(((x - own) ** 2).mean() / (own**2).mean())
            found.append(row)
    return pd.DataFrame(found)


def with_outliers(config, weights, n_channels=2, factor=32):
    """Weights of the same model with outliers: keys `factor` times as large in some channels.

    The first `n_channels` of each head: queries there are made as much smaller, so scores are the
    same, and so are the logits; to the last bit for a factor that is a power of two.

    Raises ValueError for more channels than there are and a factor that is not above 0.
    """
    if whole_number("n_channels", n_channels, at_least=1) > config.head_dim:
        raise ValueError(f"n_channels must be at most head_dim, {config.head_dim}")
    if not 0 < factor < np.inf:
        raise ValueError(f"factor must be above 0 and finite, not {factor}")
    changed = dict(weights)
    for name, array in weights.items():
        _, _, kind = name.partition(".")
        by = {"k": factor, "q": 1 / factor}.get(kind.split(".")[0])
        if by:
            per_head = array.reshape(*array.shape[:-1], -1, config.head_dim).copy()
            per_head[..., :n_channels] *= array.dtype.type(by)
            changed[name] = per_head.reshape(array.shape)
    return changed
