"""A fault to order: one request's write arrives after the next request took over the cache."""

import numpy as np

from labsupport.decoder import Decoder, DecoderConfig
from labsupport.guarded import overlapping_write

CONFIG = DecoderConfig(vocab_size=100, n_positions=64, d_model=64, n_layers=2, n_heads=4)
PROMPT = [5, 17, 42, 8, 99, 23, 64, 1, 30, 77, 12, 50]


def request_after_late_write(kind, seed):
    """The logits that request B should give and those it gives, each [vocab_size].

    `kind` is a class of caches with a capacity. Request A keeps writable views of layer 0 and ends;
    B reuses the caches; then A writes over two of B's tokens. Raises what B's caches raise.
    """
    decoder = Decoder(CONFIG, seed)
    caches = decoder.new_caches(kind, capacity=64)
    decoder.forward(PROMPT[::-1], caches)  # request A
    late = caches[0].writable_views()
    for cache in caches:
        cache.reset()

    decoder.forward(PROMPT[:-1], caches)  # request B
    stray = np.full((4, 2, 16), 4, np.float32)  # [n_kv_heads, 2 tokens, head_dim]
    overlapping_write(late, 3, stray, stray)
    return decoder.forward(PROMPT)[-1], decoder.forward(PROMPT[-1:], caches)[-1]
