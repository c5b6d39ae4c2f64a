"""A small decoder-only transformer in plain NumPy: what a KV cache is a cache of.

The shape is GPT-2's (pre-layer-norm, learned positions, tanh GELU, biases), with two changes:
query heads may share key/value heads (grouped-query attention, arXiv:2305.13245), and the output
matrix is not the embedding. The weights are random: all is as in a real model but the text.
"""

import math
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from labsupport.kvcache import whole_number


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of a decoder; ValueError or TypeError if they do not fit together."""

    vocab_size: int
    n_positions: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int | None = None  # None: as many as n_heads, nothing shared
    dtype: np.dtype = np.float32  # or float64

    def __post_init__(self):
        if self.n_kv_heads is None:
            object.__setattr__(self, "n_kv_heads", self.n_heads)
        if self.dtype is None or np.dtype(self.dtype) not in (np.float32, np.float64):
            raise TypeError(f"dtype must be float32 or float64, not {self.dtype}")
        object.__setattr__(self, "dtype", np.dtype(self.dtype))
        for name, value in vars(self).items():
            if name != "dtype":
                whole_number(name, value, at_least=1)
        if self.d_model % self.n_heads or self.n_heads % self.n_kv_heads:
            raise ValueError(f"d_model must be a multiple of n_heads, that of n_kv_heads: {self}")

    @property
    def head_dim(self):
        """Numbers in one head's query, key or value."""
        return self.d_model // self.n_heads


def layer_norm(x, gain, bias, eps=1e-5):
    """Each row of x to mean 0 and variance 1, then scaled and shifted. [n, d_model] both ways."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + eps) * gain + bias


def gelu(x):
    """x times the chance that a standard normal is below x; tanh form, arXiv:1606.08415, sec. 2."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def softmax(x):
    """Each row of the last axis as weights that sum to 1; -inf becomes 0."""
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def causal_mask(n_new, n_tokens):
    """Which of `n_tokens` keys each of the last `n_new` tokens may look at, [n_new, n_tokens].

    The new tokens are the last, so the triangle is aligned bottom-right: row i stands at position
    n_tokens - n_new + i and sees itself and all before it.
    """
    positions = np.arange(n_tokens)
    return positions <= positions[n_tokens - n_new :, None]


def attention(q, k, v, mask=None):
    """What each new token reads from all tokens so far: [n_heads, n_new, head_dim].

    q is [n_heads, n_new, head_dim]; k and v are [n_kv_heads, n_tokens, head_dim], the new tokens
    last. Query head h reads key/value head h // (n_heads // n_kv_heads). The mask says which keys
    each new token may look at, [n_new, n_tokens]; by default it is causal.
    """
    n_heads, n_new, head_dim = q.shape
    n_kv_heads, n_tokens, _ = k.shape

    q = q.reshape(n_kv_heads, -1, n_new, head_dim)  # [n_kv_heads, shared, n_new, head_dim]
    k, v = k[:, None], v[:, None]  # [n_kv_heads, 1, n_tokens, head_dim]
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(head_dim)  # [n_kv_heads, shared, n_new, n_tokens]
    scores = np.where(causal_mask(n_new, n_tokens) if mask is None else mask, scores, -np.inf)
    read = softmax(scores) @ v  # [n_kv_heads, shared, n_new, head_dim]
    return read.reshape(n_heads, n_new, head_dim)


def split_heads(x, n_heads):
    """[n_new, n_heads * head_dim] -> [n_heads, n_new, head_dim]"""
    return x.reshape(len(x), n_heads, -1).swapaxes(0, 1)


def random_weights(config, seed):
    """Untrained weights in one flat dict, name -> array of config.dtype; same seed, same weights.

    Matrices are normal with standard deviation 1 / sqrt(rows), so that a row of unit variance
    stays one; those that write into the residual stream are 1 / sqrt(2 n_layers) smaller, as in
    GPT-2. Biases are small but not 0: leaving one out changes the logits.
    """
    d, d_kv = config.d_model, config.n_kv_heads * config.head_dim
    shrink = 1 / math.sqrt(2 * config.n_layers)
    rng, weights = np.random.default_rng(seed), {}

    def draw(name, *shape, scale):
        weights[name] = (scale * rng.standard_normal(shape)).astype(config.dtype)

    def linear(name, n_in, n_out, scale=1.0):
        draw(f"{name}.w", n_in, n_out, scale=scale / math.sqrt(n_in))
        draw(f"{name}.b", n_out, scale=0.02)

    def norm(name):
        weights[f"{name}.g"] = np.ones(d, config.dtype)
        draw(f"{name}.b", d, scale=0.02)

    draw("tokens", config.vocab_size, d, scale=1.0)
    draw("positions", config.n_positions, d, scale=0.5)
    for layer in range(config.n_layers):
        norm(f"{layer}.norm_1")
        for name, width in (("q", d), ("k", d_kv), ("v", d_kv)):
            linear(f"{layer}.{name}", d, width)
        linear(f"{layer}.o", d, d, scale=shrink)
        norm(f"{layer}.norm_2")
        linear(f"{layer}.up", d, 4 * d)
        linear(f"{layer}.down", 4 * d, d, scale=shrink)
    norm("norm")
    linear("head", d, config.vocab_size)
    return weights


class Decoder:
    """The model. `weights` is the flat dict of `random_weights`; forward never changes it."""

    def __init__(self, config, seed):
        self.config = config
        self.weights = random_weights(config, seed)

    def new_caches(self, kind, **options):
        """One empty cache a layer, `kind` being a cache class: new_caches(DoublingCache)."""
        c = self.config
        return [kind(c.n_kv_heads, c.head_dim, c.dtype, **options) for _ in range(c.n_layers)]

    def forward(self, tokens, caches=None):
        """The logits after each of `tokens`, [n_new, vocab_size].

        With caches (one a layer, all of one length) the tokens follow the len(caches[0]) tokens
        already there, and their keys and values are appended. Without, they start at position 0.

        Raises TypeError or ValueError for tokens, positions or caches that do not fit. Whatever
        is raised, also in a cache, they then hold what they held before, if they can truncate.
        """
        tokens = self._check_tokens(tokens)
        start = self._check_caches(caches, len(tokens))
        try:
            x = self.embed(tokens, start)  # [n_new, d_model]
            for layer in range(self.config.n_layers):
                x = x + self.attend(x, layer, caches[layer] if caches else None)
                x = x + self.transform(x, layer)
            return self.read_out(x)  # [n_new, vocab_size]
        except BaseException:  # damage, memory, Ctrl-C: no layer may stay ahead of the others
            for cache in caches or ():
                with suppress(Exception):  # nor may one cache's trouble hold the others up
                    cache.truncate(start)
            raise

    def generate(self, prompt, n_new, caches=None):
        """The `n_new` token ids that follow `prompt`, each the one with the largest logit.

        With caches the prompt follows what they hold, and each token is computed once; the last
        is not fed back. Without, every step computes the whole sequence again.
        """
        sequence = fresh = self._check_tokens(prompt).tolist()
        n_fed = len(sequence) + whole_number("n_new", n_new, at_least=1) - 1
        self._check_caches(caches, n_fed)  # all of it fits, or nothing is done
        for _ in range(n_new):
            logits = self.forward(fresh if caches else sequence, caches)
            fresh = [int(logits[-1].argmax())]
            sequence = sequence + fresh
        return sequence[-n_new:]

    def embed(self, tokens, start):
        """What the tokens are, plus where they stand: [n_new, d_model]."""
        return self.weights["tokens"][tokens] + self.weights["positions"][start:][: len(tokens)]

    def attend(self, x, layer, cache=None):
        """What the attention of one layer adds to x, [n_new, d_model] both ways."""
        n_heads, n_kv_heads = self.config.n_heads, self.config.n_kv_heads
        x = self._norm(x, f"{layer}.norm_1")
        q = split_heads(self._linear(x, f"{layer}.q"), n_heads)  # [n_heads, n_new, head_dim]
        k = split_heads(self._linear(x, f"{layer}.k"), n_kv_heads)  # [n_kv_heads, n_new, head_dim]
        v = split_heads(self._linear(x, f"{layer}.v"), n_kv_heads)
        read = self.read(q, k, v, layer, cache)  # [n_heads, n_new, head_dim]
        return self._linear(read.swapaxes(0, 1).reshape(x.shape), f"{layer}.o")

    def read(self, q, k, v, layer, cache=None):
        """What the queries of new tokens read from their own and earlier keys and values."""
        if cache is not None:
            cache.append(k, v)
            k, v = cache.keys(), cache.values()  # [n_kv_heads, n_tokens, head_dim]
        return attention(q, k, v)  # [n_heads, n_new, head_dim]

    def transform(self, x, layer):
        """What the two-layer network of one layer adds to x, [n_new, d_model] both ways."""
        x = self._norm(x, f"{layer}.norm_2")
        x = gelu(self._linear(x, f"{layer}.up"))  # [n_new, 4 * d_model]
        return self._linear(x, f"{layer}.down")

    def read_out(self, x):
        """The logits, [n_new, vocab_size]."""
        return self._linear(self._norm(x, "norm"), "head")

    def _linear(self, x, name):
        return x @ self.weights[f"{name}.w"] + self.weights[f"{name}.b"]

    def _norm(self, x, name):
        return layer_norm(x, self.weights[f"{name}.g"], self.weights[f"{name}.b"])

    def _check_tokens(self, tokens):
        tokens = np.asarray(tokens)
        if tokens.ndim != 1 or tokens.size == 0 or tokens.dtype.kind not in "iu":
            raise ValueError(f"tokens must be a list of one or more integers, not {tokens!r}")
        strangers = tokens[(tokens < 0) | (tokens >= self.config.vocab_size)]
        if strangers.size:
            raise ValueError(f"token {strangers[0]} is not in 0..{self.config.vocab_size - 1}")
        return tokens

    def _check_caches(self, caches, n_new):
        """The position of the first new token, once all `n_new` are known to fit."""
        c, start = self.config, 0
        if caches is not None:
            if not len(caches) == len({id(cache) for cache in caches}) == c.n_layers:
                raise ValueError(f"give {c.n_layers} caches, one a layer, as new_caches() does")
            needs = (c.n_kv_heads, c.head_dim, c.dtype)
            for layer, cache in enumerate(caches):
                if (cache.n_kv_heads, cache.head_dim, cache.dtype) != needs:
                    raise ValueError(f"layer {layer} needs a cache of {needs}, not {cache}")
                cache.check_room(n_new)
            start, *others = lengths = [len(cache) for cache in caches]
            if others.count(start) != len(others):
                raise ValueError(f"the caches hold {lengths} tokens; truncate() or reset() them")
        if start + n_new > c.n_positions:
            raise ValueError(
                f"{start} tokens and {n_new} more pass the model's {c.n_positions} positions; "
                "truncate() the caches, or make a model with larger n_positions"
            )
        return start
