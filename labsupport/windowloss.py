"""What a window costs a model that was trained without one: held-out loss beside bytes held.

The recorded character model reads its held-out text in pieces of its context, each through fresh
caches; its weights stay, and only how far its layers look back is changed.
"""

import numpy as np
import pandas as pd

from labsupport import charweights, corpus, quantloss, training
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

    None: all pieces side by side, those of the held-out loss that was recorded. Raises ValueError
    as `quantloss.windows` does.
    """
    config, _ = training.recorded()
    alphabet, text = training.recorded_text()
    ids = alphabet.encode(corpus.split(text)[1])
    most = len(ids) // (config.context + 1)
    return quantloss.windows(ids, config.context, most if n_pieces is None else n_pieces)


def piece_losses(model, texts):
    """Mean nats a character in each piece, [n_pieces], and the bytes of one piece's caches."""
    logits = []
    for ids in texts:
        caches = model.new_caches()
        logits.append(model.forward(ids[:-1], caches))  # [context, vocab_size]
    each = quantloss.nats(np.array(logits, float), texts)
    return each, sum(cache.nbytes for cache in caches)


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
        spans = [quantloss.paired(values) for values in (each, each - first)]
        means = [span[key] for span in spans for key in ("more", "low", "high")]
        rows[str(choice)] = (*means, cache_bytes)
    columns = ["loss", "low", "high", "more", "least", "most", "cache_bytes"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("window")
