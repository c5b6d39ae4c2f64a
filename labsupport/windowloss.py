"""What a window costs a model that was trained without one: held-out loss beside bytes held.

The recorded character model reads its held-out text in pieces of its context, each through fresh
caches; its weights stay, and only how far its layers look back is changed.
"""

import math

import numpy as np
import pandas as pd

from labsupport import charweights, corpus, training
from labsupport.kvcache import whole_number
from labsupport.window import WindowDecoder

WINDOWS = (None, 128, 64, 32, 16, 8)


def windowed(config, weights, windows):
    """A recorded or trained model with these windows, one a layer, as `WindowDecoder`.

    Raises ValueError for weights or windows that do not fit, as `charweights` and `window` do.
    """
    plain = charweights.numpy_decoder(config, weights)
    model = WindowDecoder(plain.config, seed=0, windows=windows)
    model.weights = plain.weights
    return model


def pieces(n_pieces=None):
    """Held-out text of the recorded model as ids, [n_pieces, context + 1], spread evenly.

    None: all pieces side by side, those of the held-out loss that was recorded.
    """
    config, _ = training.recorded()
    alphabet, text = training.recorded_text()
    ids = np.array(alphabet.encode(corpus.split(text)[1]))
    span, most = config.context + 1, len(ids) // (config.context + 1)
    n_pieces = most if n_pieces is None else whole_number("n_pieces", n_pieces, at_least=1)
    starts = np.linspace(0, len(ids) - span, n_pieces).astype(int)
    return ids[starts[:, None] + np.arange(span)]


def piece_losses(model, texts):
    """Mean nats a character in each piece, [n_pieces], and the bytes of one piece's caches."""
    losses = []
    for ids in texts:
        caches = model.new_caches()
        logits = model.forward(ids[:-1], caches).astype("float64")  # [context, vocab_size]
        top = logits.max(axis=1)
        told = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
        losses.append((told - logits[np.arange(len(logits)), ids[1:]]).mean())
    return np.array(losses), sum(cache.nbytes for cache in caches)


def losses(choices=WINDOWS, n_pieces=None):
    """The recorded model's held-out loss with windows, one row a choice, indexed by it.

    choices   each a window for all layers, None for no window, or a tuple of one a layer

        loss, low, high    mean nats a character over the pieces, with its 95 % interval
        more, least, most  how much more than the first choice, piece by piece, with its interval
        cache_bytes        of all layers' caches after a piece

    The intervals speak of other pieces of such a text, not of other models or texts.
    Raises FileNotFoundError when no model is recorded, ValueError for windows that do not fit.
    """
    config, weights = training.recorded()
    texts, rows, first = pieces(n_pieces), {}, None
    for choice in choices:
        windows = choice if isinstance(choice, tuple) else (choice,) * config.n_blocks
        each, cache_bytes = piece_losses(windowed(config, weights, windows), texts)
        first = each if first is None else first
        loss, more = _with_interval(each), _with_interval(each - first)
        rows[str(choice)] = (*loss, *more, cache_bytes)
    columns = ["loss", "low", "high", "more", "least", "most", "cache_bytes"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("window")


def _with_interval(each):
    """The mean, and 1.96 standard errors below and above it."""
    error = 1.96 * each.std(ddof=1) / math.sqrt(len(each)) if len(each) > 1 else math.inf
    return each.mean(), each.mean() - error, each.mean() + error
