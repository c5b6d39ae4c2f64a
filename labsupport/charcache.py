"""Keys and values of one block of a `charmodel`, kept as torch tensors, under two policies.

    ConcatCache         the source's: every append joins old and new into fresh tensors
    PreallocatedCache   one allocation for `capacity` tokens; an append writes in place

Both hold [batch, n_kv_heads, n_tokens, head_dim] and are used alike. `sizes` is their (batch,
n_kv_heads, head_dim, dtype), and `model` a reference to the model that filled them: a model refuses
caches of other sizes and what another model computed, even one of the same sizes.
"""

from contextlib import contextmanager, suppress

import torch

from labsupport.kvcache import whole_number


class ConcatCache:
    """Grows by `torch.cat`; no limit but memory."""

    def __init__(self, batch, n_kv_heads, head_dim, dtype=torch.float32):
        self.sizes, self.model = (batch, n_kv_heads, head_dim, dtype), None
        self.k = torch.empty(batch, n_kv_heads, 0, head_dim, dtype=dtype)
        self.v = torch.empty_like(self.k)

    def __len__(self):
        return self.k.shape[2]

    def check_room(self, n_new):
        """There is always room."""

    def append(self, k, v):
        """Keep the new tokens' k and v, [batch, n_kv_heads, n_new, head_dim]; all so far."""
        self.k, self.v = torch.cat([self.k, k], dim=2), torch.cat([self.v, v], dim=2)
        return self.k, self.v

    def truncate(self, n_tokens):
        """Forget all but the first `n_tokens`; ValueError if there are fewer."""
        n_tokens = _check_length(n_tokens, len(self))
        self.k, self.v = self.k[:, :, :n_tokens], self.v[:, :, :n_tokens]


class PreallocatedCache:
    """Room for `capacity` tokens from the start; ValueError beyond."""

    def __init__(self, batch, n_kv_heads, head_dim, dtype=torch.float32, *, capacity):
        self.sizes, self.model = (batch, n_kv_heads, head_dim, dtype), None
        self.capacity = whole_number("capacity", capacity, at_least=1)
        self._k = torch.empty(batch, n_kv_heads, capacity, head_dim, dtype=dtype)
        self._v = torch.empty_like(self._k)
        self._n_tokens = 0

    def __len__(self):
        return self._n_tokens

    def check_room(self, n_new):
        """ValueError when `n_new` more tokens do not fit."""
        if self._n_tokens + n_new > self.capacity:
            had = f"{self._n_tokens} tokens and {n_new} more"
            raise ValueError(f"{had} pass this cache's {self.capacity}; make a larger one")

    def append(self, k, v):
        """Keep the new tokens' k and v, [batch, n_kv_heads, n_new, head_dim]; views of all."""
        self.check_room(k.shape[2])
        end = self._n_tokens + k.shape[2]
        self._k[:, :, self._n_tokens : end] = k
        self._v[:, :, self._n_tokens : end] = v
        self._n_tokens = end
        return self._k[:, :, :end], self._v[:, :, :end]

    def truncate(self, n_tokens):
        """Forget all but the first `n_tokens`; ValueError if there are fewer."""
        self._n_tokens = _check_length(n_tokens, len(self))


def new_caches(model, kind=ConcatCache, batch=1, **options):
    """One empty cache a block for `model`: new_caches(model, PreallocatedCache, capacity=128)."""
    c = model.config
    sizes = (batch, c.n_kv_heads, c.head_dim, model.dtype)
    return [kind(*sizes, **options) for _ in range(c.n_blocks)]


@contextmanager
def restored(caches):
    """Whatever is raised inside, Ctrl-C too, leaves each cache with the tokens it held before."""
    held = [len(cache) for cache in caches]
    try:
        yield
    except BaseException:
        for cache, n_tokens in zip(caches, held, strict=True):
            with suppress(Exception):  # one that fails must not keep the others from it
                cache.truncate(n_tokens)
        raise


def _check_length(n_tokens, held):
    """`n_tokens` as an int: NumPy's would wrap around when tokens are counted on."""
    n_tokens = whole_number("n_tokens", n_tokens, at_least=0)
    if n_tokens > held:
        raise ValueError(f"cannot truncate to {n_tokens} tokens: {held} are held")
    return n_tokens
