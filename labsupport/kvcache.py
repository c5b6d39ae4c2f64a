"""The keys and values of one layer of one sequence, under three policies of growth.

    ConcatCache         every append allocates arrays of exactly the new length
    DoublingCache       storage doubles when it is full
    PreallocatedCache   one allocation at the start, and never another

All three are used alike and give the same rows; they differ in when memory is allocated and how
many bytes are moved, and both are counted. A model of several layers holds one cache a layer.
"""

from abc import ABC, abstractmethod
from contextlib import suppress
from numbers import Integral

import numpy as np


def whole_number(name, value, at_least):
    """`value` as an int. Refuses True and 3.0: as a count, either is more often a slip."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an int, not {value!r} ({type(value).__name__})")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, not {value}")
    return int(value)


class KVCache(ABC):
    """What the caches share: two buffers [n_kv_heads, capacity, head_dim], valid up to a length.

    Args:
        n_kv_heads, head_dim: the shape of one token's keys (and of its values).
        dtype: of the stored rows; any NumPy float or integer type.
        max_tokens: the most tokens to hold; None for no limit but memory.

    Counters, over the life of this object (truncate and reset do not clear them):
        n_allocations: arrays allocated as storage, two at a time; arrays of no rows count too.
        bytes_copied: bytes of rows moved into new storage, from this cache's old storage or, in a
            copy, from the original. The bytes of newly appended rows are not counted: every
            policy has to write them once.
    """

    def __init__(self, n_kv_heads, head_dim, dtype=np.float32, max_tokens=None):
        self.n_kv_heads = whole_number("n_kv_heads", n_kv_heads, at_least=1)
        self.head_dim = whole_number("head_dim", head_dim, at_least=1)
        if dtype is None or np.dtype(dtype).kind not in "fiu":  # to NumPy, None is float64
            raise TypeError(f"dtype must be a float or integer type, not {dtype}")
        self.dtype = np.dtype(dtype)
        if max_tokens is not None:
            max_tokens = whole_number("max_tokens", max_tokens, at_least=1)
        self.max_tokens = max_tokens

        self.n_allocations = 0
        self.bytes_copied = 0
        self._n_tokens = self._capacity = 0
        self._move_to(self._capacity_for(0))

    @abstractmethod
    def _capacity_for(self, n_tokens):
        """The policy: tokens to make room for when `n_tokens` do not fit; at least `n_tokens`."""

    def __len__(self):
        """Tokens held."""
        return self._n_tokens

    @property
    def capacity(self):
        """Tokens the present storage has room for."""
        return self._capacity

    @property
    def nbytes(self):
        """Bytes of storage held, used or not, keys and values together."""
        return self._keys.nbytes + self._values.nbytes

    def append(self, k, v):
        """Copy in the keys and values of the next tokens, each [n_kv_heads, n_new, head_dim].

        n_new may be 0. The arrays may be this cache's own keys() and values(). Raises what `check`
        raises, and MemoryError if growth fails; then nothing has changed.
        """
        n_tokens = self.check(k, v)
        if n_tokens > self._capacity:
            self._move_to(self._capacity_for(n_tokens))

        self._keys[:, self._n_tokens : n_tokens] = k
        self._values[:, self._n_tokens : n_tokens] = v
        self._n_tokens = n_tokens  # last: the rows count only when both are whole

    def check(self, k, v):
        """The length after `append(k, v)`; changes nothing.

        Raises TypeError for what is not an array, is masked or has another dtype, ValueError for
        another shape, for keys and values of different lengths, and for more tokens than fit.
        """
        for name, rows in (("k", k), ("v", v)):
            if not isinstance(rows, np.ndarray):
                raise TypeError(
                    f"{name} must be a NumPy array, not {type(rows).__name__}; "
                    f"convert with np.asarray({name}, '{self.dtype}')"
                )
            if isinstance(rows, np.ma.MaskedArray):
                raise TypeError(f"{name} is masked, which a cache cannot keep; fill it first")
            if rows.dtype != self.dtype:
                raise TypeError(
                    f"{name} is {rows.dtype}, this cache holds {self.dtype}; "
                    f"convert with {name}.astype('{self.dtype}'), or make a cache of {rows.dtype}"
                )
            shape = rows.shape
            if len(shape) != 3 or shape[0] != self.n_kv_heads or shape[2] != self.head_dim:
                raise ValueError(
                    f"{name} has shape {list(shape)}, this cache takes [{self.n_kv_heads}, n_new, "
                    f"{self.head_dim}], which is [n_kv_heads, n_new, head_dim]; transpose or "
                    "reshape it (n_new is 1 for a single token)"
                )

        if k.shape[1] != v.shape[1]:
            both = f"k has {k.shape[1]} tokens and v has {v.shape[1]}"
            raise ValueError(f"{both}; every token needs both, so append them together")
        return self.check_room(k.shape[1])

    def check_room(self, n_new):
        """The length after `n_new` (int) more tokens; ValueError below 0 or if they do not fit."""
        if type(n_new) is not int or n_new < 0:  # spares each append the dearer check
            n_new = whole_number("n_new", n_new, at_least=0)
        n_tokens = self._n_tokens + n_new
        if self.max_tokens is not None and n_tokens > self.max_tokens:
            held = f"{self._n_tokens} of at most {self.max_tokens} are held"
            remedy = "truncate() or reset() the cache, or make one with more room"
            raise ValueError(f"{n_new} more tokens do not fit: {held}; {remedy}")
        return n_tokens

    def keys(self):
        """The keys held, [n_kv_heads, n_tokens, head_dim], as a view that cannot be written.

        A view is a borrow: use it before the next append, truncate or reset, and do not keep it.
        After such a change it may show old storage (and keep that alive), or rows written since.
        Two ways round the lock are left: torch.from_numpy, and the memoryview behind `.base`.
        """
        return _read_only(self._keys)[:, : self._n_tokens]

    def values(self):
        """The values held, as `keys` gives the keys."""
        return _read_only(self._values)[:, : self._n_tokens]

    def writable_views(self):
        """The keys and values held, as two views that can be written; a borrow like keys().

        Kept past the next change, they reach rows that may be another's: see labsupport.guarded.
        """
        return self._keys[:, : self._n_tokens], self._values[:, : self._n_tokens]

    def truncate(self, n_tokens):
        """Keep the first `n_tokens` tokens; storage stays as it is unless the policy says else.

        Raises TypeError for what is not an int, ValueError below 0 or above the tokens held.
        """
        n_tokens = whole_number("n_tokens", n_tokens, at_least=0)
        if n_tokens > self._n_tokens:
            raise ValueError(f"cannot truncate to {n_tokens} tokens: only {self._n_tokens} held")
        self._n_tokens = n_tokens

    def reset(self):
        """Forget all tokens: `truncate(0)`."""
        self.truncate(0)

    def copy(self):
        """An independent cache with the same rows and capacity, its counters those of the copy.

        It costs time for the length of the copy, not its capacity.
        """
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)  # shares the storage for now
        twin.n_allocations = twin.bytes_copied = 0
        twin._move_to(self._capacity)
        return twin

    __copy__ = copy  # else copy.copy(cache) would share the storage

    def _move_to(self, capacity):
        """Allocate storage for `capacity` tokens and move the rows held into it."""
        shape = (self.n_kv_heads, capacity, self.head_dim)
        try:
            keys, values = np.empty(shape, self.dtype), np.empty(shape, self.dtype)
        except ValueError:  # past any address; NumPy's message does not speak of capacity
            raise ValueError(f"no array can be {list(shape)}: choose less capacity") from None

        if n_tokens := self._n_tokens:
            keys[:, :n_tokens] = self._keys[:, :n_tokens]
            values[:, :n_tokens] = self._values[:, :n_tokens]

        self._keys, self._values, self._capacity = keys, values, capacity
        self.n_allocations += 2
        self.bytes_copied += 2 * self.n_kv_heads * n_tokens * self.head_dim * self.dtype.itemsize

    def __repr__(self):
        rows = f"n_kv_heads={self.n_kv_heads}, head_dim={self.head_dim}, dtype={self.dtype}"
        return f"{type(self).__name__}({rows}): {self._n_tokens} tokens, room for {self._capacity}"


class ConcatCache(KVCache):
    """Storage of exactly the tokens held: each append and truncate moves every row that stays.

    To fill it token by token moves 0 + 1 + ... + (n - 1) = n (n - 1) / 2 rows.
    """

    def _capacity_for(self, n_tokens):
        return n_tokens

    def truncate(self, n_tokens):
        """Keep the first `n_tokens` tokens, in new storage of that length.

        Without memory for that the old storage stays (see `capacity`, `nbytes`) and is used up.
        """
        before = self._n_tokens
        super().truncate(n_tokens)
        if self._n_tokens < before:
            with suppress(MemoryError):  # forgetting must not fail: it is how a pass is taken back
                self._move_to(self._n_tokens)


class DoublingCache(KVCache):
    """Storage grows to max(tokens needed, 2 x capacity), but never past max_tokens.

    It starts with none and never shrinks. Filled token by token it moves and holds under 2 n rows.
    """

    def _capacity_for(self, n_tokens):
        capacity = max(n_tokens, 2 * self.capacity)
        return capacity if self.max_tokens is None else min(capacity, self.max_tokens)


class PreallocatedCache(KVCache):
    """Storage for `capacity` tokens from the start; moves nothing, refuses more.

    The operating system may lend the memory page by page as rows are first written, so the first
    pass through a fresh cache can be slower than later ones.
    """

    def __init__(self, n_kv_heads, head_dim, dtype=np.float32, *, capacity):
        capacity = whole_number("capacity", capacity, at_least=1)
        super().__init__(n_kv_heads, head_dim, dtype, max_tokens=capacity)

    def _capacity_for(self, n_tokens):
        return self.max_tokens


def _read_only(buffer):
    """`buffer` as an array that NumPy will not make writable again, unlike a flag on a view."""
    return np.asarray(memoryview(buffer).toreadonly())
