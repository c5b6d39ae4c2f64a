"""Multi-head latent attention: what is cached is not keys and values but what both are made from.

DeepSeek-V2, arXiv:2405.04434, section 2.1. A token leaves one latent c of d_latent numbers, from
which every head could make its key and value, and one rotary key of rope_dim numbers, which all
heads share and which alone tells where the token stands. Left out, since no cache depends on them:
the compression of queries, and the norms.
"""

import math
from dataclasses import dataclass

import numpy as np

from labsupport.decoder import causal_mask, softmax
from labsupport.kvcache import whole_number


@dataclass(frozen=True)
class LatentConfig:
    """Sizes of one layer; ValueError or TypeError if they do not fit together."""

    d_model: int
    n_heads: int
    head_dim: int  # of a head's value, and of the part of its key that comes from the latent
    rope_dim: int  # of the rotary part, which comes beside; even
    d_latent: int
    dtype: np.dtype = np.float64  # or float32

    def __post_init__(self):
        if self.dtype is None or np.dtype(self.dtype) not in (np.float32, np.float64):
            raise TypeError(f"dtype must be float32 or float64, not {self.dtype}")
        object.__setattr__(self, "dtype", np.dtype(self.dtype))
        for name, value in list(vars(self).items()):
            if name != "dtype":
                object.__setattr__(self, name, whole_number(name, value, at_least=1))
        if self.rope_dim % 2:
            raise ValueError(f"rope_dim must be even, for its numbers turn in pairs: {self}")

    @property
    def cached_numbers(self):
        """What the cache holds of a token in a layer, in numbers; there is no factor two."""
        return self.d_latent + self.rope_dim


def rotate(x, positions, base=10_000):
    """Each pair of neighbours (2i, 2i + 1) of x [..., n, dim] turned by position x base^(-2i/dim).

    `positions` is [n], or one for all rows. arXiv:2104.09864, section 3.4.2; pairs interleaved as
    there (where pairs are (i, i + dim / 2) the same rotation acts on columns in another order).
    The product of two rotated rows depends on the distance of their positions alone.
    """
    dim = x.shape[-1]
    speeds = base ** (-np.arange(0, dim, 2) / dim)  # [dim / 2]
    angles = np.asarray(positions)[..., None] * speeds  # [n, dim / 2]
    cos, sin = np.cos(angles), np.sin(angles)

    even, odd = x[..., 0::2], x[..., 1::2]
    turned = np.empty(x.shape, np.result_type(x, np.float32))  # of ints too: cosines are none
    turned[..., 0::2] = even * cos - odd * sin
    turned[..., 1::2] = even * sin + odd * cos
    return turned


def attend_expanded(q, q_rope, c, k_rope, weights):
    """Make every head's keys and values, then attend as usual: [n_heads, n_new, head_dim].

    q is [n_heads, n_new, head_dim], q_rope [n_heads, n_new, rope_dim]; of all tokens, the new ones
    last, c is [n_tokens, d_latent] and k_rope [n_tokens, rope_dim].
    """
    k = c @ weights["uk"]  # [n_heads, n_tokens, head_dim]
    v = c @ weights["uv"]  # [n_heads, n_tokens, head_dim]

    shared = np.broadcast_to(k_rope, (*k.shape[:2], k_rope.shape[-1]))
    q = np.concatenate([q, q_rope], axis=-1)  # [n_heads, n_new, head_dim + rope_dim]
    k = np.concatenate([k, shared], axis=-1)  # [n_heads, n_tokens, head_dim + rope_dim]

    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])  # [n_heads, n_new, n_tokens]
    scores = np.where(causal_mask(*scores.shape[1:]), scores, -np.inf)
    return softmax(scores) @ v


def attend_absorbed(q, q_rope, c, k_rope, weights):
    """The same without any key or value: the queries go down to the latents, the read comes up.

    For q (c W_uk)^T is (q W_uk^T) c^T, and a mix of rows of c W_uv is that mix of c, times W_uv.
    """
    scale = math.sqrt(q.shape[-1] + q_rope.shape[-1])
    q = q @ weights["uk"].swapaxes(-1, -2)  # [n_heads, n_new, d_latent]

    scores = (q @ c.swapaxes(-1, -2) + q_rope @ k_rope.swapaxes(-1, -2)) / scale
    scores = np.where(causal_mask(*scores.shape[1:]), scores, -np.inf)  # [n_heads, n_new, n_tokens]

    mix = softmax(scores) @ c  # [n_heads, n_new, d_latent]
    return mix @ weights["uv"]  # [n_heads, n_new, head_dim]


class LatentCache:
    """One layer's latents and rotary keys: room for `capacity` tokens, and never more."""

    def __init__(self, config, capacity):
        self.config = config
        self.capacity = whole_number("capacity", capacity, at_least=1)
        self._c = np.empty((self.capacity, config.d_latent), config.dtype)
        self._k_rope = np.empty((self.capacity, config.rope_dim), config.dtype)
        self._n_tokens = 0

    def __len__(self):
        """Tokens held."""
        return self._n_tokens

    @property
    def nbytes(self):
        """Bytes of storage held, used or not."""
        return self._c.nbytes + self._k_rope.nbytes

    def append(self, c, k_rope):
        """Copy in the next tokens' c [n_new, d_latent] and rotated k_rope [n_new, rope_dim].

        ValueError for arrays of other shapes or dtype, and for more than fit; nothing has changed.
        """
        end = self._n_tokens + len(c)
        for name, rows, part in (("c", c, self._c), ("k_rope", k_rope, self._k_rope)):
            rows, wanted = np.asarray(rows), (len(c), part.shape[1])
            if (rows.shape, rows.dtype) != (wanted, part.dtype):
                said = f"{list(rows.shape)} of {rows.dtype}"
                raise ValueError(f"{name} must be {list(wanted)} of {part.dtype}, not {said}")
        if end > self.capacity:
            had = f"{self._n_tokens} tokens and {len(c)} more"
            raise ValueError(f"{had} pass this cache's {self.capacity}; make a larger one")
        self._c[self._n_tokens : end] = c
        self._k_rope[self._n_tokens : end] = k_rope
        self._n_tokens = end

    def rows(self):
        """c [n_tokens, d_latent] and k_rope [n_tokens, rope_dim] held: views, not to be written."""
        views = self._c[: self._n_tokens], self._k_rope[: self._n_tokens]
        for view in views:
            view.flags.writeable = False
        return views

    def truncate(self, n_tokens):
        """Keep the first `n_tokens` tokens; ValueError if there are fewer."""
        n_tokens = whole_number("n_tokens", n_tokens, at_least=0)
        if n_tokens > self._n_tokens:
            raise ValueError(f"cannot truncate to {n_tokens} tokens: only {self._n_tokens} held")
        self._n_tokens = n_tokens

    def copy(self):
        """An independent cache with the same rows and capacity."""
        twin = LatentCache(self.config, self.capacity)
        twin.append(*self.rows())
        return twin

    __copy__ = copy  # else copy.copy(cache) would share the storage


def random_weights(config, seed):
    """Untrained weights, name -> array: normal with standard deviation 1 / sqrt(rows)."""
    c, rng = config, np.random.default_rng(seed)
    shapes = {
        "q": (c.n_heads, c.d_model, c.head_dim),
        "qr": (c.n_heads, c.d_model, c.rope_dim),
        "dkv": (c.d_model, c.d_latent),  # down to the latent,
        "uk": (c.n_heads, c.d_latent, c.head_dim),  # and up to each head's key
        "uv": (c.n_heads, c.d_latent, c.head_dim),  # and value
        "kr": (c.d_model, c.rope_dim),
        "o": (c.n_heads * c.head_dim, c.d_model),
    }
    return {
        name: (rng.standard_normal(shape) / math.sqrt(shape[-2])).astype(c.dtype)
        for name, shape in shapes.items()
    }


class LatentAttention:
    """One layer of attention with random weights."""

    def __init__(self, config, seed):
        self.config = config
        self.weights = random_weights(config, seed)

    def forward(self, x, cache=None, attend=attend_absorbed):
        """What the layer adds to x, [n_new, d_model] both ways, by either way to attend.

        With a cache the tokens follow those that it holds. ValueError for x of another shape or
        dtype, or more than fits; whatever is raised, the cache then holds what it held before.
        """
        x, d_model, dtype = np.asarray(x), self.config.d_model, self.config.dtype
        if x.ndim != 2 or not len(x) or x.shape[1] != d_model or x.dtype != dtype:
            said = f"{list(x.shape)} of {x.dtype}"
            raise ValueError(f"x must be [1 or more, {d_model}] of {dtype}, not {said}")
        start = 0 if cache is None else len(cache)
        positions = start + np.arange(len(x))

        q = x @ self.weights["q"]  # [n_heads, n_new, head_dim]
        q_rope = rotate(x @ self.weights["qr"], positions)  # [n_heads, n_new, rope_dim]
        c = x @ self.weights["dkv"]  # [n_new, d_latent]
        k_rope = rotate(x @ self.weights["kr"], positions)  # [n_new, rope_dim]

        try:
            if cache is not None:
                cache.append(c, k_rope)
                c, k_rope = cache.rows()  # of all tokens
            read = attend(q, q_rope, c, k_rope, self.weights)  # [n_heads, n_new, head_dim]
            return read.swapaxes(0, 1).reshape(len(x), -1) @ self.weights["o"]
        except BaseException:
            if cache is not None:
                cache.truncate(start)
            raise


def multiplications(config, n_new, n_tokens):
    """Multiplications in a layer's attention, `n_new` tokens to `n_tokens`: a dict of three ways.

        kept       as ordinary attention does, were all keys and values of n_tokens kept
        expanded   the same, after they were made from the latents
        absorbed   straight on the latents

    The projections of x and of the output, which all ways share, are not counted.
    """
    n_new = whole_number("n_new", n_new, at_least=1)
    n_tokens = whole_number("n_tokens", n_tokens, at_least=n_new)
    head, rope, latent = config.head_dim, config.rope_dim, config.d_latent
    kept = n_new * n_tokens * (head + rope + head)  # scores, then the mix
    made = n_tokens * 2 * latent * head
    absorbed = n_new * (2 * latent * head + n_tokens * (latent + rope + latent))
    ways = {"kept": kept, "expanded": made + kept, "absorbed": absorbed}
    return {way: config.n_heads * each for way, each in ways.items()}


def between(weights, head, distance):
    """What would stand between a query's x and a key's c if a head's latent keys were rotated.

    [d_model, d_latent]: x_t times this times c_s is the score of token t with token s, t - s being
    the distance. It is W_q R W_uk^T with the rotation R in the middle (section 2.1.3): another
    matrix for each distance, so none that could be folded into the query for good. Hence the
    rotary part comes beside, from W_kr, and the latent goes unrotated.
    """
    return rotate(weights["q"][head], distance) @ weights["uk"][head].swapaxes(-1, -2)
