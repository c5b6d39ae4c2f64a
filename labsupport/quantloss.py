"""What fewer bits cost the recorded character model: errors of its logits and of its loss.

Windows of the held-out text are read with the cache in codes, or with the weights in codes, and
again as the model is. Both read the same characters, so the losses are compared window by window.
"""

import numpy as np
import pandas as pd
from scipy import stats
from scipy.special import log_softmax

from labsupport import charweights, corpus, training
from labsupport.codeddecoder import CodedDecoder
from labsupport.kvcache import whole_number
from labsupport.quantize import int8_weights, restored, weight_bytes

LAYOUTS = [("channel", "token"), ("token", "channel"), ("token", "token"), ("channel", "channel")]
BITS = (8, 6, 5, 4, 3, 2)
CONFIDENCE = 0.95  # that all intervals of a table hold at once


def windows(ids, context, n_windows=40):
    """Windows spread evenly over a text's ids, [n_windows, context + 1]: the last is only told.

    Raises ValueError for a text shorter than a window, for windows that would overlap, or below
    two: one has no spread.
    """
    whole_number("n_windows", n_windows, at_least=2)
    if len(ids) <= context:
        raise ValueError(f"a window needs {context + 1} characters, the text has {len(ids)}")
    if n_windows * (context + 1) > len(ids):  # the same text twice tells no more, but would count
        most = len(ids) // (context + 1)
        raise ValueError(f"{n_windows} windows would overlap; this text has room for {most}")
    starts = np.linspace(0, len(ids) - context - 1, n_windows).astype(int)
    return np.asarray(ids)[starts[:, None] + np.arange(context + 1)]


def recorded(n_windows=40):
    """The recorded model and windows of the text held out from it: (config, weights, windows)."""
    config, weights = training.recorded()
    alphabet, text = training.recorded_text()
    held_out = alphabet.encode(corpus.split(text)[1])
    return config, weights, windows(held_out, config.context, n_windows)


def of_cache(config, weights, tests, bits=BITS, layouts=LAYOUTS, fed="singly"):
    """`compare` with the cache in codes: columns keys, values and bits name the variant.

    Fed singly, the layout by channel has one advantage that is not its scales': the newest tokens,
    of the group that is not full, are read as they came. At once, full groups are all in codes.
    """
    model = charweights.numpy_decoder(config, weights)
    scales = 32 / config.head_dim  # bits: a float32 scale for head_dim numbers, in both layouts
    variants = []
    for keys, values in layouts:
        for n in bits:
            columns = {"keys": keys, "values": values, "bits": n, "bits_a_number": n + scales}
            variants.append((columns, CodedDecoder(model, keys, values, n, fed=fed)))
    return compare(model, variants, tests)


def of_weights(config, weights, tests, bits=BITS):
    """`compare` with the weights in codes: the column bits names the variant."""
    n_numbers = sum(array.size for array in weights.values())
    variants = []
    for n in bits:
        coded = int8_weights(weights, n)
        a_number = 8 * weight_bytes(coded, packed=True) / n_numbers
        decoder = charweights.numpy_decoder(config, restored(coded))
        variants.append(({"bits": n, "bits_a_number": a_number}, decoder))
    return compare(charweights.numpy_decoder(config, weights), variants, tests)


def compare(model, variants, tests):
    """Read the windows `tests` with `model` and with each of [(columns, decoder)]: a row each.

    Columns of the variants here: keys, values and bits; bits_a_number, packed and with the scales
    (of a cache, what is in codes). Then

    largest, rms     of the difference of logits
    flips            the share of places where another character has the largest logit
    loss             nats a character
    more, low, high  the loss above that of the float32 model, mean over windows, and the
                     interval (Student's t) with which all rows hold at once (Bonferroni)
    verdict          worse, better, or cannot tell: the interval holds 0
    """
    plain = _logits(model, tests)
    base = nats(plain, tests)
    confidence = 1 - (1 - CONFIDENCE) / len(variants)
    rows = []
    for columns, coded in variants:
        logits = _logits(coded, tests)
        error, losses = logits - plain, nats(logits, tests)
        found = {
            "largest": np.abs(error).max(),
            "rms": np.sqrt((error**2).mean()),
            "flips": (logits.argmax(-1) != plain.argmax(-1)).mean(),
            "loss": losses.mean(),
        }
        rows.append({**columns, **found, **paired(losses - base, confidence)})
    return pd.DataFrame(rows)


def paired(differences, confidence=CONFIDENCE):
    """Mean of differences [n_windows], its interval and what that tells: more, low, high, verdict.

    Student's t; where all differences are equal there is no spread, and the interval is a point.
    """
    mean = low = high = float(np.mean(differences))
    if np.ptp(differences) > 0:
        low, high = stats.ttest_1samp(differences, 0).confidence_interval(confidence)
    verdict = "worse" if low > 0 else "better" if high < 0 else "cannot tell"
    return {"more": mean, "low": float(low), "high": float(high), "verdict": verdict}


def _logits(model, tests):
    return np.stack([model.forward(window[:-1]) for window in tests]).astype(float)


def nats(logits, tests):
    """Mean nats a character of each window, [n_windows], from logits [n_windows, n, vocab_size]."""
    told = np.take_along_axis(log_softmax(logits, axis=-1), tests[:, 1:, None], axis=-1)
    return -told[..., 0].mean(axis=1)
