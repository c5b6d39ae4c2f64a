"""Weights, tokens and the answer for tests of the engines."""

import numpy as np

from labsupport import charweights
from labsupport.charmodel import CharModel


def weights_of(config, seed=0, scale=0.1):
    """Random weights, gains and biases among them, so that leaving one out shows."""
    rng = np.random.default_rng(seed)
    flat = charweights.flat(CharModel(config, seed))
    return {n: (w + scale * rng.standard_normal(w.shape)).astype("f4") for n, w in flat.items()}


def reference(config, weights):
    """The plain decoder in float64."""
    return charweights.numpy_decoder(config, {n: w.astype("f8") for n, w in weights.items()})


def tokens_of(config, n, seed=0):
    return np.random.default_rng(seed).integers(config.vocab_size, size=n).tolist()
