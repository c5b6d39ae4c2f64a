"""Keys and values of a sequence in blocks of one pool: PagedAttention's memory, in NumPy.

    PagedCache      one layer of one sequence: a table of blocks, used like the caches of kvcache
    attend_blocks   attention over the blocks where they lie, without gathering them

A sequence takes a block when it needs one, wherever it lies; only its last can be partly empty.
Sequences with a common beginning hold the same blocks, and whoever writes into a block that others
hold too first takes a copy of its own (arXiv:2309.06180, sections 4.1 to 4.4).
"""

import math

import numpy as np

from labsupport.kvcache import KVCache, whole_number


class FreedCacheError(RuntimeError):
    """A cache was used, or freed again, after its blocks went back to the pool."""


class PagedCache:
    """One layer of one sequence, its rows in blocks of `pool`; used like the caches of kvcache.

        pool = BlockPool(n_blocks, block_size, n_kv_heads, head_dim, dtype)
        caches = model.new_caches(PagedCache, pool=pool)

    Token i lies in block `block_table[i // block_size]`, slot i % block_size. ValueError if the
    pool holds rows of another shape or type.

    free() gives the blocks back; after that every use raises FreedCacheError. A cache that is
    dropped without it gives them back when Python deletes the object.

    A pass that fails is taken back by truncate(); a copy that it made of a shared block stays. An
    interrupt (Ctrl-C) within the books of the pool may cost it blocks, but shows nobody's rows.
    """

    check, reset = KVCache.check, KVCache.reset  # the same refusals, the same words

    def __init__(self, n_kv_heads, head_dim, dtype=np.float32, *, pool):
        needs = (n_kv_heads, head_dim, np.dtype(dtype))
        if needs != (pool.n_kv_heads, pool.head_dim, pool.dtype):
            raise ValueError(f"a cache of {needs} cannot lie in {pool}; make a pool of that shape")
        self.pool = pool
        self.n_kv_heads, self.head_dim, self.dtype = pool.n_kv_heads, pool.head_dim, pool.dtype
        self._blocks, self._n_tokens = (), 0  # the blocks never change in place

    def __len__(self):
        """Tokens held."""
        self._check_held()
        return self._n_tokens

    @property
    def block_table(self):
        """The ids of the blocks held, in the order of the tokens, as a tuple."""
        self._check_held()
        return self._blocks

    @property
    def capacity(self):
        """Tokens that the blocks held have room for."""
        return len(self.block_table) * self.pool.block_size

    def check_room(self, n_new):
        """The length after `n_new` more tokens; PoolFullError if too few blocks are free.

        TypeError for what is not an int, ValueError below 0.
        """
        n_tokens = len(self) + whole_number("n_new", n_new, at_least=0)
        n_more = self._n_more(n_tokens)
        if n_more > self.pool.n_free:
            self.pool.take(n_more)  # raises, and says what is free
        return n_tokens

    def append(self, k, v):
        """Copy in the keys and values of the next tokens, each [n_kv_heads, n_new, head_dim].

        Raises what KVCache.check raises, or PoolFullError; then nothing has changed, here or in
        the pool.
        """
        n_tokens, start = self.check(k, v), self._n_tokens
        table, shared = [*self._blocks], self._writes_into_shared(n_tokens)
        fresh, left = self.pool.take(self._n_more(n_tokens)), []
        try:
            if shared:
                left = [table.pop()]
                filled = start % self.pool.block_size  # slots past it are not this sequence's
                for rows in (self.pool.keys, self.pool.values):
                    rows[fresh[0], :, :filled] = rows[left[0], :, :filled]
            table += fresh

            which, slots = np.divmod(np.arange(start, n_tokens), self.pool.block_size)
            which = np.array(table, int)[which]  # [n_new], the block of each new token
            self.pool.keys[which, :, slots] = k.swapaxes(0, 1)  # [n_new, n_kv_heads, head_dim]
            self.pool.values[which, :, slots] = v.swapaxes(0, 1)
        except BaseException:
            self.pool.release(fresh)
            raise
        self._blocks, self._n_tokens = tuple(table), n_tokens  # last: all rows are whole now
        self.pool.release(left)

    def keys(self):
        """The keys held, [n_kv_heads, n_tokens, head_dim], gathered from their blocks: a copy."""
        return self._gather(self.pool.keys)

    def values(self):
        """The values held, as `keys` gives the keys."""
        return self._gather(self.pool.values)

    def blocks(self):
        """For each block held its filled keys and values, views [n_kv_heads, n_filled, head_dim].

        The views are read-only, and a borrow: use them before the next change. RuntimeError for a
        cache that changed between two blocks, FreedCacheError for one that was freed.
        """
        size, left, table = self.pool.block_size, len(self), self._blocks
        for block in table:
            self._check_held()
            if self._blocks is not table:
                raise RuntimeError("the cache changed while its blocks were read; read them anew")
            both = self.pool.keys[block, :, :left], self.pool.values[block, :, :left]
            for view in both:
                view.flags.writeable = False
            yield both
            left -= size

    def truncate(self, n_tokens):
        """Keep the first `n_tokens` tokens, and let go of the blocks that hold none of them.

        Raises TypeError for what is not an int, ValueError below 0 or above the tokens held.
        """
        n_tokens = whole_number("n_tokens", n_tokens, at_least=0)
        if n_tokens > len(self):
            raise ValueError(f"cannot truncate to {n_tokens} tokens: only {self._n_tokens} held")
        keep = self.pool.blocks_for(n_tokens)
        left, self._blocks = self._blocks[keep:], self._blocks[:keep]
        self._n_tokens = n_tokens
        self.pool.release(left)

    def fork(self):
        """Another sequence with the same tokens, in the same blocks; no row is copied.

        Both may go on: the first to write into the last block, if it is not full, takes a copy of
        it. So `copy` is this, and prefix.PrefixStore keeps prefixes without copying them.
        """
        self._check_held()
        self.pool.share(self._blocks)
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    copy = __copy__ = fork  # else copy.copy(cache) would hold blocks that are not counted

    def __deepcopy__(self, memo):
        return self.fork()

    def free(self):
        """Give all blocks back; the cache cannot be used again. FreedCacheError the second time."""
        self._check_held()
        left, self._blocks = self._blocks, None
        self.pool.release(left)

    def __del__(self):
        if getattr(self, "_blocks", None):
            self.free()

    def __repr__(self):
        held = "freed" if self._blocks is None else f"{self._n_tokens} tokens"
        return f"PagedCache: {held}, of {self.pool}"

    def _check_held(self):
        if self._blocks is None:
            raise FreedCacheError(
                "this cache was freed and its blocks may be another's; make a new one, or fork() "
                "it before free()"
            )

    def _writes_into_shared(self, n_tokens):
        """Whether growth to `n_tokens` writes into a block that another table holds."""
        partial = self._n_tokens % self.pool.block_size and n_tokens > self._n_tokens
        return bool(partial) and self.pool.n_tables[self._blocks[-1]] > 1

    def _n_more(self, n_tokens):
        """Blocks to take for growth to `n_tokens`, the copy of a shared one included."""
        more = self.pool.blocks_for(n_tokens) - len(self._blocks)
        return more + self._writes_into_shared(n_tokens)

    def _gather(self, rows):
        n_tokens = len(self)
        rows = rows[np.array(self._blocks, int)]  # [n_held, n_kv_heads, block_size, head_dim]
        rows = rows.swapaxes(0, 1).reshape(self.n_kv_heads, -1, self.head_dim)
        return rows[:, :n_tokens]


def attend_blocks(q, cache):
    """`decoder.attention(q, cache.keys(), cache.values())`, one block at a time and none copied.

    q is [n_heads, n_new, head_dim], of the last n_new tokens that the cache holds. The softmax runs
    along: of the scores seen so far it keeps the largest, the sum of the weights and the weighted
    sum of the values, and scales both down when a larger score comes (arXiv:1805.02867, section 3).
    ValueError if there are more queries than tokens.
    """
    n_heads, n_new, head_dim = q.shape
    if not 0 < n_new <= len(cache):
        raise ValueError(f"{n_new} queries for {len(cache)} tokens; append their keys first")
    q = q.reshape(cache.n_kv_heads, -1, n_new, head_dim)  # [n_kv_heads, shared, n_new, head_dim]
    stands = np.arange(len(cache) - n_new, len(cache))[:, None]  # where each query stands

    largest = np.full((*q.shape[:3], 1), -np.inf, q.dtype)  # [n_kv_heads, shared, n_new, 1]
    total, read = np.zeros_like(largest), np.zeros_like(q)
    seen = 0
    for k, v in cache.blocks():
        k, v = k[:, None], v[:, None]  # [n_kv_heads, 1, n_filled, head_dim]
        scores = q @ k.swapaxes(-1, -2) / math.sqrt(head_dim)
        scores = np.where(seen + np.arange(k.shape[2]) <= stands, scores, -np.inf)
        seen += k.shape[2]

        before, largest = largest, np.maximum(largest, scores.max(axis=-1, keepdims=True))
        weights, shrink = np.exp(scores - largest), np.exp(before - largest)
        total = total * shrink + weights.sum(axis=-1, keepdims=True)
        read = read * shrink + weights @ v
    return (read / total).reshape(n_heads, n_new, head_dim)
