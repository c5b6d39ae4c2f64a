"""A cache of keys and values in codes of 8 bits or fewer, in the two layouts there are.

A scale a token is known as soon as the token is. A scale a channel has to wait for a group of
tokens, and serves keys better where a few channels are always large (arXiv:2402.02750, KIVI).
"""

import numpy as np

from labsupport.kvcache import KVCache, whole_number
from labsupport.quantize import checked_bits, finite, quantize

LAYOUTS = ("token", "channel")


class Int8Cache(KVCache):
    """Keys and values of one layer in codes, used like the other caches; preallocated.

    keys, values   "token": a token's numbers in one head share a scale, known at once
                   "channel": a channel's numbers over `group` tokens of one head do. Until a group
                   is full its tokens stay as they came (arXiv:2402.02750, section 3.3).
    group          None: head_dim, so that both layouts have one scale for as many numbers
    bits           2 to 8, of codes that take a byte each

    keys() and values() make new arrays of all that is held: a step pays for all tokens.

    truncate: what a group was before the last append is kept until the next, so a pass that fails
    is taken back exactly. Otherwise the tokens that stay of a finished group read as their codes
    do, and are quantized anew, with what follows, when the group is full again.

    nbytes counts codes, scales and the rows that are kept as they came. n_allocations and
    bytes_copied count codes and scales, which never move, but not those rows, a group at most.
    """

    def __init__(
        self,
        n_kv_heads,
        head_dim,
        dtype=np.float32,
        *,
        capacity,
        keys="channel",
        values="token",
        group=None,
        bits=8,
    ):
        if dtype is None or np.dtype(dtype) not in (np.float32, np.float64):
            raise TypeError(f"dtype must be float32 or float64, not {dtype}")
        for name, layout in {"keys": keys, "values": values}.items():
            if layout not in LAYOUTS:
                raise ValueError(f"{name} must be one of {LAYOUTS}, not {layout!r}")
        group = whole_number("group", head_dim if group is None else group, at_least=1)
        self.layouts, self.group, self.bits = (keys, values), group, checked_bits(bits)
        capacity = whole_number("capacity", capacity, at_least=1)
        super().__init__(n_kv_heads, head_dim, dtype, max_tokens=capacity)

    def _capacity_for(self, n_tokens):
        return self.max_tokens

    def _move_to(self, capacity):
        """Make the storage; of a copy, with the original's codes in it."""
        sizes = self.n_kv_heads, capacity, self.head_dim, self.dtype, self.bits
        sides = [
            _ByToken(*sizes) if layout == "token" else _ByChannel(*sizes, self.group)
            for layout in self.layouts
        ]
        if len(self):
            for side, old in zip(sides, (self._keys, self._values), strict=True):
                side.copy_from(old)
                self.bytes_copied += side.codes.nbytes + side.scales.nbytes
        (self._keys, self._values), self._capacity = sides, capacity
        self.n_allocations += 4

    @property
    def nbytes(self):
        """Bytes of storage held, used or not: all of `parts_bytes`."""
        return sum(self.parts_bytes().values())

    def parts_bytes(self):
        """Bytes of keys and values: {"codes", "scales", "exact" (rows as they came)}."""
        sides = self._keys, self._values
        return {
            "codes": sum(side.codes.nbytes for side in sides),
            "scales": sum(side.scales.nbytes for side in sides),
            "exact": sum(side.exact_bytes for side in sides),
        }

    def append(self, k, v):
        """Keep the keys and values of the next tokens, each [n_kv_heads, n_new, head_dim].

        Raises what `check` raises, and MemoryError; then nothing has changed.
        """
        n_tokens = self.check(k, v)
        self._keys.append(len(self), k)
        self._values.append(len(self), v)
        self._n_tokens = n_tokens  # last: until here what was held reads as before

    def check(self, k, v):
        """As KVCache.check; ValueError too for numbers that `quantize` refuses."""
        n_tokens = super().check(k, v)
        finite("k", k)
        finite("v", v)
        return n_tokens

    def keys(self):
        """The keys as they read back, [n_kv_heads, n_tokens, head_dim]: a new array."""
        return self._keys.read(len(self))

    def values(self):
        """The values, as `keys` gives the keys."""
        return self._values.read(len(self))

    def writable_views(self):
        """TypeError: there are no rows to write to."""
        raise TypeError("an Int8Cache holds codes, not rows: truncate() it and append() others")


class _ByToken:
    """One side, keys or values: codes [n_kv_heads, capacity, head_dim], a scale a token and head.

    What `append` changes lies past the length that is read, so it may be interrupted.
    """

    exact_bytes = 0

    def __init__(self, n_kv_heads, capacity, head_dim, dtype, bits):
        self.codes = np.empty((n_kv_heads, capacity, head_dim), np.int8)
        self.scales = np.empty((n_kv_heads, capacity, 1), np.float32)
        self.dtype, self.bits = dtype, bits

    def append(self, n_tokens, rows):
        new = quantize(rows, axis=2, bits=self.bits)
        span = slice(n_tokens, n_tokens + rows.shape[1])
        self.codes[:, span], self.scales[:, span] = new.codes, new.scales

    def read(self, n_tokens):
        return np.multiply(self.codes[:, :n_tokens], self.scales[:, :n_tokens], dtype=self.dtype)

    def copy_from(self, other):
        self.codes[:], self.scales[:] = other.codes, other.scales


class _ByChannel:
    """One side with a scale a channel, head and group: codes [n_kv_heads, n_groups, group,
    head_dim] of full groups, and the rows of the others as they came.

    exact   [(position, rows)]: rows [n_kv_heads, n, head_dim] from the start of a group on, never
            written in place. First the last group's, then those that the last append quantized.
    """

    def __init__(self, n_kv_heads, capacity, head_dim, dtype, bits, group):
        n_groups = capacity // group
        self.codes = np.empty((n_kv_heads, n_groups, group, head_dim), np.int8)
        self.scales = np.empty((n_kv_heads, n_groups, 1, head_dim), np.float32)
        self.dtype, self.bits, self.group, self.exact = dtype, bits, group, []
        self.shape = n_kv_heads, -1, head_dim

    @property
    def exact_bytes(self):
        return sum(rows.nbytes for _, rows in self.exact)

    def append(self, n_tokens, rows):
        held = self._unfinished(n_tokens)
        first = n_tokens - held.shape[1]
        rows = np.concatenate([held, rows], axis=1)  # from the start of a group on
        n_groups = rows.shape[1] // self.group
        n_full = n_groups * self.group
        full = rows[:, :n_full].reshape(len(rows), n_groups, self.group, rows.shape[2])
        full = quantize(full, axis=2, bits=self.bits)

        exact = [(first + n_full, rows[:, n_full:].copy())]
        if n_groups:
            exact.append((first, held.copy()))
        self.exact = exact  # first: it is read before the codes that now change
        groups = slice(first // self.group, first // self.group + n_groups)
        self.codes[:, groups], self.scales[:, groups] = full.codes, full.scales

    def read(self, n_tokens):
        n_groups = n_tokens // self.group
        full = self.codes[:, :n_groups], self.scales[:, :n_groups]
        rows = np.multiply(*full, dtype=self.dtype).reshape(self.shape)
        return np.concatenate([rows, self._unfinished(n_tokens)], axis=1)

    def _unfinished(self, n_tokens):
        """The rows of the last group, if it is not full: [n_kv_heads, 0 to group - 1, head_dim]."""
        first = n_tokens // self.group * self.group
        for position, rows in self.exact:
            if position == first and rows.shape[1] >= n_tokens - first:
                return rows[:, : n_tokens - first]
        if first == n_tokens:
            return np.empty((self.shape[0], 0, self.shape[2]), self.dtype)
        codes, scales = (array[:, first // self.group] for array in (self.codes, self.scales))
        return np.multiply(codes, scales, dtype=self.dtype)[:, : n_tokens - first]

    def copy_from(self, other):
        self.codes[:], self.scales[:], self.exact = other.codes, other.scales, other.exact
