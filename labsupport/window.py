"""Attention that looks back a window of tokens, through a ring that keeps just those.

A token of a windowed layer sees itself and the `window` - 1 tokens before it (arXiv:2310.06825,
section 2). Layer upon layer it still hears of tokens further back, from those that saw them.
"""

import numpy as np

from labsupport.decoder import Decoder, attention
from labsupport.kvcache import ConcatCache, whole_number
from labsupport.ring import RingCache


def window_mask(n_new, n_tokens, window):
    """Which of `n_tokens` keys each of the last `n_new` tokens may look at, [n_new, n_tokens].

    A band, aligned bottom-right as `decoder.causal_mask`: row i stands at position
    n_tokens - n_new + i and sees itself and up to `window` - 1 tokens before it.
    """
    n_new = whole_number("n_new", n_new, at_least=0)
    n_tokens = whole_number("n_tokens", n_tokens, at_least=n_new)
    window = whole_number("window", window, at_least=1)
    positions = np.arange(n_tokens)
    back = positions[n_tokens - n_new :, None] - positions  # how far behind each key lies
    return (0 <= back) & (back < window)


def window_attention(q, k, v, window):
    """`decoder.attention` with the band in the place of the triangle; the same shapes."""
    return attention(q, k, v, window_mask(q.shape[1], k.shape[1], window))


def attend_one(q, k, v, cache):
    """What one new token reads through a `RingCache`: [n_heads, 1, head_dim].

    First store, then read every slot: the row that was overwritten is the one out of the window.
    A mask has nothing to hide, and the order of rows is no matter: a sum has none.
    """
    cache.append(k, v)
    return attention(q, *cache.slots())


def attend_chunk(q, k, v, cache):
    """What several new tokens read through a `RingCache`: [n_heads, n_new, head_dim].

    First read, then store: the chunk's last tokens overwrite rows that its first still look at.
    """
    old_k, old_v = cache.recent()  # [n_kv_heads, up to window - 1, head_dim], in order
    all_k = np.concatenate([old_k, k], axis=1)
    all_v = np.concatenate([old_v, v], axis=1)
    read = window_attention(q, all_k, all_v, cache.window)
    cache.append(k, v)
    return read


class WindowDecoder(Decoder):
    """A decoder some or all of whose layers look back a window.

    windows   one entry a layer: tokens that each token sees, itself included; None for all. Where
              windowed layers alternate with others it is as in Gemma 2 (arXiv:2408.00118, sec. 2)
    """

    def __init__(self, config, seed, windows):
        super().__init__(config, seed)
        if len(windows) != config.n_layers:
            raise ValueError(f"give {config.n_layers} windows, one a layer, not {len(windows)}")
        self.windows = tuple(
            None if window is None else whole_number("window", window, at_least=1)
            for window in windows
        )

    def new_caches(self, kind=ConcatCache, **options):
        """One empty cache a layer: a ring for each window, and for a layer without, `kind`."""
        c = self.config
        sizes = c.n_kv_heads, c.head_dim, c.dtype
        return [
            kind(*sizes, **options) if window is None else RingCache(*sizes, window=window)
            for window in self.windows
        ]

    def read(self, q, k, v, layer, cache=None):
        """What the queries of new tokens read within the layer's window."""
        if self.windows[layer] is None:
            return super().read(q, k, v, layer, cache)
        if cache is None:
            return window_attention(q, k, v, self.windows[layer])  # [n_heads, n_new, head_dim]
        return (attend_one if q.shape[1] == 1 else attend_chunk)(q, k, v, cache)

    def _check_caches(self, caches, n_new):
        start = super()._check_caches(caches, n_new)
        for layer, cache in enumerate(caches or ()):
            if getattr(cache, "window", None) != self.windows[layer]:
                needs = f"layer {layer}, whose window is {self.windows[layer]}"
                raise ValueError(f"{needs}, cannot use {cache}; take caches from new_caches()")
        return start


def receptive_field(windows):
    """Tokens that the last logits can depend on, their own included; None for all.

    Each layer reaches window - 1 tokens further back, through what the tokens there have read:
    1 + the sum of window - 1 over layers. arXiv:2310.06825, section 2, says n_layers x window.
    """
    if None in windows:
        return None
    return 1 + sum(whole_number("window", window, at_least=1) - 1 for window in windows)


def felt(model, tokens, position, other):
    """How far a change of one token reaches: [n_layers + 1, n_tokens].

    Entry [depth, i] is the largest change of any number of token i's x after `depth` layers, when
    the token at `position` becomes `other`. Row 0 is the embedding.
    """
    changed = np.array(tokens)
    changed[position] = other
    pairs = zip(_depths(model, np.array(tokens)), _depths(model, changed), strict=True)
    return np.array([np.abs(after - before).max(axis=1) for before, after in pairs])


def _depths(model, tokens):
    """x [n_tokens, d_model] as embedded, and after each layer."""
    x = model.embed(tokens, 0)
    yield x
    for layer in range(model.config.n_layers):
        x = x + model.attend(x, layer)
        x = x + model.transform(x, layer)
        yield x
