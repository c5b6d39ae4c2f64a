"""A decoder that reads keys and values from codes, in one pass: what an `Int8Cache` does to logits.

To feed token by token takes a hundred passes a window. Which rows a token would find in codes
follows from where it stands, so one pass is enough; a test compares both.
"""

import math

import numpy as np

from labsupport.decoder import Decoder, causal_mask, softmax
from labsupport.int8cache import Int8Cache
from labsupport.quantize import quantize

FED = ("singly", "at once")


class CodedDecoder(Decoder):
    """`model`, a Decoder, with the options of an `Int8Cache`; the weights are shared.

    fed   "singly": `forward(tokens)` gives the logits that `model` has after each token when they
          are fed to it one at a time through new Int8Caches of these options, as in decoding
          "at once": as when all are fed together, as in prefill: every full group is read as codes

    In float32 a rounding may tip a code to its neighbour, so that logits differ by what a code is.

    Raises as Int8Cache does for other options, ValueError for another `fed`, TypeError for a model
    with an attention of its own.
    """

    def __init__(self, model, keys="channel", values="token", bits=8, group=None, fed="singly"):
        if fed not in FED:
            raise ValueError(f"fed must be one of {FED}, not {fed!r}")
        if type(model).read is not Decoder.read:  # windows, say, would be left out unsaid
            raise TypeError(f"{type(model).__name__} attends in a way of its own: give a Decoder")
        model.new_caches(Int8Cache, capacity=1, keys=keys, values=values, bits=bits, group=group)
        self.fed = fed
        self.config, self.weights = model.config, model.weights
        self.layouts, self.bits = (keys, values), bits
        self.group = self.config.head_dim if group is None else group

    def read(self, q, k, v, layer, cache=None):
        """As Decoder.read without a cache, but what a step finds in codes is read from them."""
        if cache is not None:
            raise ValueError("a CodedDecoder reads as if it had Int8Caches; give it no caches")
        k, k_coded, k_done = self._side(k, self.layouts[0])
        v, v_coded, v_done = self._side(v, self.layouts[1])

        scores = np.where(k_done, q @ k_coded.swapaxes(1, 2), q @ k.swapaxes(1, 2))
        scores = scores / math.sqrt(self.config.head_dim)  # [n_heads, n_tokens, n_tokens]
        weights = softmax(np.where(causal_mask(*scores.shape[1:]), scores, -np.inf))
        return (weights * v_done) @ v_coded + (weights * ~v_done) @ v

    def _side(self, rows, layout):
        """Of keys or values [n_kv_heads, n_tokens, head_dim]: the rows and what codes make of
        them, once for each query head, and which are codes when a token looks at them, [n_tokens
        that look, n_tokens]."""
        positions, group = np.arange(rows.shape[1]), self.group
        if layout == "token":
            coded = quantize(rows, 2, self.bits).dequantize(rows.dtype)
            done = np.ones((len(positions), len(positions)), bool)
        else:
            coded = by_groups(rows, group, self.bits)
            held = positions + 1 if self.fed == "singly" else np.full_like(positions, len(rows[0]))
            done = positions < (held // group * group)[:, None]
        shared = self.config.n_heads // len(rows)
        return rows.repeat(shared, axis=0), coded.repeat(shared, axis=0), done


def by_groups(rows, group, bits=8):
    """Rows [n_kv_heads, n_tokens, head_dim] as codes with a scale a channel and `group` tokens
    have them; the last tokens, that fill no group, as they are."""
    n_heads, n_tokens, head_dim = rows.shape
    n_groups = n_tokens // group
    full = rows[:, : n_groups * group].reshape(n_heads, n_groups, group, head_dim)
    coded = quantize(full, 2, bits).dequantize(rows.dtype).reshape(n_heads, -1, head_dim)
    return np.concatenate([coded, rows[:, n_groups * group :]], axis=1)
