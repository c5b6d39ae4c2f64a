"""One store of equal blocks that many sequences take from and give back to.

Blocks of one size leave no gap that is too small for the next: whoever needs a block can use any.
A block may be held by several tables at once, and is free when the last lets go of it
(arXiv:2309.06180, sections 4.2 and 4.4).
"""

from collections import Counter

import numpy as np

from labsupport.kvcache import ConcatCache, whole_number


class PoolFullError(ValueError):
    """More blocks are needed than are free. Nothing has changed."""


class BlockPool:
    """Storage for `n_blocks` blocks of `block_size` tokens, one layer's rows each.

    `keys` and `values` are [n_blocks, n_kv_heads, block_size, head_dim]: with the heads before the
    tokens the rows of one head in one block lie together, which is what attention multiplies, and
    one block is one piece of memory. All layers may share one pool: to it a block is a block.

    n_tables[b] says how many tables hold block b; 0 is a free one. Rows of a free block are left
    as they were, like the slots of a block that are not filled yet: no reader may get to see them.
    """

    def __init__(self, n_blocks, block_size, n_kv_heads, head_dim, dtype=np.float32):
        self.n_blocks = whole_number("n_blocks", n_blocks, at_least=1)
        self.block_size = whole_number("block_size", block_size, at_least=1)
        rows = ConcatCache(n_kv_heads, head_dim, dtype)  # refuses what no cache can hold
        self.n_kv_heads, self.head_dim, self.dtype = rows.n_kv_heads, rows.head_dim, rows.dtype

        shape = (self.n_blocks, self.n_kv_heads, self.block_size, self.head_dim)
        self.keys, self.values = np.empty(shape, self.dtype), np.empty(shape, self.dtype)
        self.n_tables = [0] * self.n_blocks
        self._free = list(range(self.n_blocks))[::-1]  # the last is the next to be taken

    @property
    def n_free(self):
        """Blocks that no table holds."""
        return len(self._free)

    @property
    def n_used(self):
        """Blocks that one table or more hold; each counts once."""
        return self.n_blocks - len(self._free)

    @property
    def nbytes(self):
        """Bytes of storage, used or not, keys and values together."""
        return self.keys.nbytes + self.values.nbytes

    def blocks_for(self, n_tokens):
        """How many blocks hold `n_tokens` tokens."""
        return -(-n_tokens // self.block_size)

    def take(self, n):
        """`n` blocks for one table, as a list of ids. PoolFullError if fewer are free."""
        if n > self.n_free:
            raise PoolFullError(
                f"{n} more blocks of {self.block_size} tokens are needed and {self.n_free} of "
                f"{self.n_blocks} are free; free() or truncate() a sequence, or make a larger pool"
            )
        taken = [self._free.pop() for _ in range(n)]
        for block in taken:
            self.n_tables[block] = 1
        return taken

    def share(self, blocks):
        """Another table holds these blocks too. ValueError if one is free, its rows nobody's."""
        self._check_known(blocks)
        if free := [block for block in blocks if not self.n_tables[block]]:
            raise ValueError(f"block {free[0]} is free and cannot be shared; take() one")
        for block in blocks:
            self.n_tables[block] += 1

    def release(self, blocks):
        """A table lets go of these blocks; those that no other holds are free.

        ValueError if one is let go more often than it is held; then nothing has changed.
        """
        self._check_known(blocks)
        for block, n in Counter(blocks).items():
            if n > self.n_tables[block]:
                held = f"held by {self.n_tables[block]} tables and cannot be released {n} times"
                raise ValueError(f"block {block} is {held}; release what take() or share() gave")
        for block in blocks:
            self.n_tables[block] -= 1
            if not self.n_tables[block]:
                self._free.append(block)

    def _check_known(self, blocks):
        for block in blocks:
            if not 0 <= block < self.n_blocks:  # a list would take -1 for its last
                raise ValueError(f"there is no block {block} of {self.n_blocks}; see block_table")

    def __repr__(self):
        rows = f"n_kv_heads={self.n_kv_heads}, head_dim={self.head_dim}, dtype={self.dtype}"
        return f"BlockPool({rows}): {self.n_used} of {self.n_blocks} blocks of {self.block_size}"
