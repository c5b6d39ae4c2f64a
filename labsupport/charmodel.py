"""A character-level GPT in torch: the model whose cache chapters 3 and 4 derive, weigh and speed.

Pre-layer-norm blocks with biases, learned positions, tanh GELU, and an output head of its own with
a bias. With the default sizes that makes 637,156 parameters, those of the model in the source.
Query heads may share key/value heads (grouped-query attention, arXiv:2305.13245).

Its caches are in `charcache`; `charweights` carries its weights to NumPy and back.
"""

import weakref
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from labsupport.charcache import restored
from labsupport.kvcache import whole_number

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@dataclass(frozen=True)
class CharConfig:
    """Sizes of a model; ValueError or TypeError if they do not fit together."""

    vocab_size: int = 100
    context: int = 128  # the longest sequence: one learned position each
    d_model: int = 128
    n_blocks: int = 3
    n_heads: int = 4
    n_kv_heads: int | None = None  # None: as many as n_heads, nothing shared

    def __post_init__(self):
        if self.n_kv_heads is None:
            object.__setattr__(self, "n_kv_heads", self.n_heads)
        for name, value in vars(self).items():
            object.__setattr__(self, name, whole_number(name, value, at_least=1))
        if self.d_model % self.n_heads or self.n_heads % self.n_kv_heads:
            raise ValueError(f"d_model must be a multiple of n_heads, that of n_kv_heads: {self}")

    @property
    def head_dim(self):
        """Numbers in one head's query, key or value."""
        return self.d_model // self.n_heads


def causal_mask(n_new, n_tokens):
    """Which of `n_tokens` keys each of the last `n_new` tokens may look at, [n_new, n_tokens].

    Aligned bottom-right: the last row sees all keys. `is_causal=True` of torch's
    `scaled_dot_product_attention` is aligned top-left, which is another mask unless all are new.
    """
    return torch.ones(n_new, n_tokens, dtype=torch.bool).tril(n_tokens - n_new)


def attention(q, k, v, causal=True):
    """What each new token reads from all tokens so far: [batch, n_heads, n_new, head_dim].

    q is [batch, n_heads, n_new, head_dim]; k and v are [batch, n_kv_heads, n_tokens, head_dim],
    the new tokens last. Query head h reads key/value head h // (n_heads // n_kv_heads).
    """
    n_new, n_tokens = q.shape[2], k.shape[2]
    shared = k.shape[1] < q.shape[1]
    if not causal or n_new == 1:  # one new token comes last: there is nothing to hide from it
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=shared)
    if n_new == n_tokens:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=shared)
    mask = causal_mask(n_new, n_tokens)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=shared)


class Block(nn.Module):
    """One block: attention, then a two-layer network, each added to the residual stream."""

    def __init__(self, config):
        super().__init__()
        d, d_kv = config.d_model, config.n_kv_heads * config.head_dim
        self.config = config
        self.norm_1 = nn.LayerNorm(d)
        self.qkv = nn.Linear(d, d + 2 * d_kv)
        self.o = nn.Linear(d, d)
        self.norm_2 = nn.LayerNorm(d)
        self.up = nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d)

    def forward(self, x, cache=None, causal=True):
        """x [batch, n_new, d_model] -> the same shape; keys and values go through `cache`."""
        x = x + self.attend(self.norm_1(x), cache, causal)
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))

    def attend(self, x, cache, causal):
        """What attention adds to the residual stream, [batch, n_new, d_model] both ways."""
        c = self.config
        d_kv = c.n_kv_heads * c.head_dim
        q, k, v = self.qkv(x).split([c.d_model, d_kv, d_kv], dim=2)
        q, k, v = (t.view(*x.shape[:2], -1, c.head_dim).transpose(1, 2) for t in (q, k, v))
        if cache is not None:
            k, v = cache.append(k, v)  # [batch, n_kv_heads, n_tokens, head_dim]
        read = attention(q, k, v, causal)  # [batch, n_heads, n_new, head_dim]
        return self.o(read.transpose(1, 2).flatten(2))


class CharModel(nn.Module):
    """The model, untrained: its weights follow from `seed`. `charweights.model` gives it others."""

    def __init__(self, config, seed=0):
        super().__init__()
        self.config = config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.tokens = nn.Embedding(config.vocab_size, config.d_model)
            self.positions = nn.Embedding(config.context, config.d_model)
            self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_blocks))
            self.norm = nn.LayerNorm(config.d_model)
            self.head = nn.Linear(config.d_model, config.vocab_size)
            for name, weight in self.named_parameters():
                if weight.dim() == 2:  # as GPT-2: what writes to the residual stream is smaller
                    writes = name.endswith(("o.weight", "down.weight"))
                    std = 0.02 / (2 * config.n_blocks) ** 0.5 if writes else 0.02
                    nn.init.normal_(weight, std=std)
        self.eval()

    @property
    def dtype(self):
        """Of the weights, and so of caches and logits."""
        return self.head.weight.dtype

    def n_parameters(self):
        """Numbers in all weights."""
        return sum(weight.numel() for weight in self.parameters())

    def forward(self, tokens, caches=None, causal=True):
        """The logits after each of `tokens`, [batch, n_new, vocab_size].

        tokens   [batch, n_new] integers; unequal rows are refused (give them one at a time)
        caches   one a block, as `charcache.new_caches` makes them: the tokens follow those that
                 are there, and their keys and values are appended. None: they start at position 0
        causal   False removes the mask, to see what breaks

        With caches no gradients are kept. A change of weights in place makes filled caches stale,
        and nothing says so.

        Raises TypeError or ValueError for tokens or caches that do not fit, or that another model
        filled. Whatever is raised, the caches then hold what they held before.
        """
        tokens = self._check_tokens(tokens)
        start = self._check_caches(caches, *tokens.shape)
        if caches is None:
            return self._logits(tokens, 0, [None] * len(self.blocks), causal)
        with torch.no_grad(), restored(caches):
            for cache in caches:
                cache.model = weakref.ref(self)
            return self._logits(tokens, start, caches, causal)

    def _logits(self, tokens, start, caches, causal):
        x = self.embed(tokens, start)  # [batch, n_new, d_model]
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, cache, causal)
        return self.head(self.norm(x))  # [batch, n_new, vocab_size]

    def embed(self, tokens, start=0):
        """What the tokens are, plus where they stand: [batch, n_new, d_model]."""
        return self.tokens(tokens) + self.positions.weight[start : start + tokens.shape[1]]

    @torch.no_grad()
    def activations(self, tokens, causal=True):
        """The residual stream before the first block and after each: [n_blocks + 1] tensors
        [batch, n_tokens, d_model]."""
        x = self.embed(self._check_tokens(tokens))
        stream = [x]
        for block in self.blocks:
            stream.append(block(stream[-1], None, causal))
        return stream

    @torch.inference_mode()
    def generate(self, prompt, n_new, caches=None, choose=None):
        """The `n_new` token ids that follow `prompt`, a list of ids: a list.

        With caches each token is computed once, and the last is not fed back; without, every step
        computes the whole sequence again. `choose` takes the logits [vocab_size] of a step and
        gives an id; by default the largest.

        Raises ValueError when the sequence would pass the context or a cache's room, before
        anything is computed, and FloatingPointError for weights or logits that are not finite.
        Whatever is raised, the caches then hold what they held before.
        """
        sequence = fresh = self._check_tokens([list(prompt)])[0].tolist()
        n_new = whole_number("n_new", n_new, at_least=0)
        n_fed = len(sequence) + n_new - 1
        if n_new == 0:
            return []
        self._check_caches(caches, 1, n_fed)  # all of it fits, or nothing is done
        # Logits do not tell all: of scores that are NaN torch's fused attention makes zeros.
        for name, weight in self.named_parameters():
            if not weight.isfinite().all():
                raise FloatingPointError(f"{name} is not finite; check the weights")
        with restored(caches or ()):
            for _ in range(n_new):
                logits = self([fresh if caches else sequence], caches)[0, -1]  # [vocab_size]
                if not logits.isfinite().all():
                    said = "are not finite; check the weights"
                    raise FloatingPointError(f"the logits after {len(sequence)} tokens {said}")
                fresh = [int(logits.argmax() if choose is None else choose(logits))]
                sequence = sequence + fresh
        return sequence[-n_new:]

    def _check_tokens(self, tokens):
        try:
            tokens = torch.as_tensor(tokens)
        except (RuntimeError, ValueError) as error:
            said = "tokens must be integers, and prompts of a batch must have one length"
            raise ValueError(f"{said}: {error}") from None
        if tokens.dim() != 2 or 0 in tokens.shape:
            shape = list(tokens.shape)
            raise ValueError(f"tokens must be [batch, n_new] with one or more each, not {shape}")
        if tokens.dtype not in INTEGERS:
            raise TypeError(f"tokens must be integers, as torch.int64, not {tokens.dtype}")
        low, high = (x.item() for x in tokens.aminmax())
        if low < 0 or high >= self.config.vocab_size:
            wrong = low if low < 0 else high
            raise ValueError(f"token {wrong} is not in 0..{self.config.vocab_size - 1}")
        return tokens.long()

    def _check_caches(self, caches, batch, n_new):
        """The position of the first new token, once all `n_new` are known to fit."""
        c, start = self.config, 0
        if caches is not None:
            if not len(caches) == len({id(cache) for cache in caches}) == c.n_blocks:
                raise ValueError(f"give {c.n_blocks} caches, one a block, as new_caches() does")
            needs = (batch, c.n_kv_heads, c.head_dim, self.dtype)
            for i, cache in enumerate(caches):
                if cache.sizes != needs:
                    raise ValueError(f"block {i} needs a cache of {needs}, not of {cache.sizes}")
                if len(cache) and (cache.model is None or cache.model() is not self):
                    said = "holds what another model computed; make new ones, or truncate(0) them"
                    raise ValueError(f"the cache of block {i} {said}")
                cache.check_room(n_new)
            start, *others = lengths = [len(cache) for cache in caches]
            if others.count(start) != len(others):
                raise ValueError(f"the caches hold {lengths} tokens; truncate() them to one length")
        if start + n_new > c.context:
            raise ValueError(
                f"{start} tokens and {n_new} more pass the context of {c.context}; shorten the "
                "prompt, or make a model with a larger context"
            )
        return start
