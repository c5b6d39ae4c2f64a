"""A cache that notices when rows were changed by anyone but their writer, and an overlapping write.

A plain cache hands its storage to the next request. If the last one still holds a writable view, or
appends late, the next request computes with the wrong rows, and nothing says so.
"""

import zlib
from itertools import count

import numpy as np

from labsupport.kvcache import PreallocatedCache

_generations = count()  # one for all caches: no two owners of tokens ever share a number


class StaleWriteError(RuntimeError):
    """A writer tried to append to a cache that has been truncated or reset since it began."""


class DamagedCacheError(RuntimeError):
    """Rows are not what was appended. `keys`, `values`: the token positions found, as lists."""

    def __init__(self, keys, values):
        super().__init__(keys, values)
        self.keys, self.values = keys, values

    def __str__(self):
        both = {"keys": self.keys, "values": self.values}
        found = " and the ".join(f"{name} of {_tokens(at)}" for name, at in both.items() if at)
        return (
            f"the {found} changed after they were appended; truncate("
            f"{min(self.keys + self.values)}) keeps the tokens before, compute the others again"
        )


def _passed_on(name):
    return property(lambda self: getattr(self._rows, name), doc=f"As of KVCache: {name}.")


class GuardedCache:
    """A PreallocatedCache that verifies its writes; used like the others, and never grows.

    Generation: `generation` is a number no other cache has or had; each time tokens are forgotten
    the cache draws a new, higher one. A writer notes it when it begins and says it at each append;
    once the cache was truncated or reset it is refused, and so it is by every copy.

    Checksum: each row of each head has a running CRC-32, taken over the row as it was handed in,
    starting from the sum of the row before. So the last sum of a head covers all its rows, and one
    pass over contiguous bytes verifies them; only if that fails are single rows compared.
    keys() verifies the keys, values() the values, verify() both.

    Not caught: rows that were wrong before they were appended; a change made after a view was
    handed out, until the next read; a late writer who appends without its generation; a change
    that leaves the CRC the same, which a random one does once in 2**32 and a change within 32
    neighbouring bits never. CRC-32 is no defence against someone who means to deceive.
    Reading checks the last sum of each head. If that one is changed itself, its row is reported;
    an earlier one goes unseen until a truncate makes it the last, or another row is damaged: then
    it is reported as damage to the rows on either side of it. No wrong row passes for that.

    The counters count keys and values only; nbytes counts the sums too (4 bytes a row of a head).
    """

    n_kv_heads, head_dim, dtype = map(_passed_on, ("n_kv_heads", "head_dim", "dtype"))
    capacity, max_tokens = map(_passed_on, ("capacity", "max_tokens"))
    n_allocations, bytes_copied = map(_passed_on, ("n_allocations", "bytes_copied"))
    check, check_room = map(_passed_on, ("check", "check_room"))
    writable_views = _passed_on("writable_views")  # a write through them is found by reading

    def __init__(self, n_kv_heads, head_dim, dtype=np.float32, *, capacity):
        self._rows = PreallocatedCache(n_kv_heads, head_dim, dtype, capacity=capacity)
        # entry i + 1 is the sum after token i; entry 0 is that of no rows, which is 0
        self._sums = np.zeros((2, self.n_kv_heads, self.capacity + 1), np.uint32)
        self._generation = next(_generations)

    def __len__(self):
        """Tokens held."""
        return len(self._rows)

    @property
    def generation(self):
        """A new and higher one with each reset, and each truncate that forgets a token."""
        return self._generation

    @property
    def nbytes(self):
        """Bytes of storage held, used or not: keys, values and sums."""
        return self._rows.nbytes + self._sums.nbytes

    def append(self, k, v, generation=None):
        """Copy in the keys and values of the next tokens, each [n_kv_heads, n_new, head_dim].

        Raises StaleWriteError if `generation` is given and is not the present one, and otherwise
        as KVCache.append; then nothing has changed.
        """
        if generation is not None and generation != self._generation:
            raise StaleWriteError(
                f"this writer began in generation {generation}, the cache is now in "
                f"{self._generation}: the tokens it was writing after are gone; read "
                "cache.generation and compute them again"
            )
        start, end = len(self), self._rows.check(k, v)
        for rows, sums in zip((k, v), self._sums, strict=True):
            _chain(rows, sums[:, start : end + 1])  # past the length these are nobody's yet
        self._rows.append(k, v)

    def keys(self):
        """The keys held, [n_kv_heads, n_tokens, head_dim], read-only, once they are verified.

        Raises DamagedCacheError, and gives no view, if they are not what was appended.
        """
        keys = self._rows.keys()
        if damaged := _damaged(keys, self._sums[0]):
            raise DamagedCacheError(damaged, [])
        return keys

    def values(self):
        """The values held, as `keys` gives the keys."""
        values = self._rows.values()
        if damaged := _damaged(values, self._sums[1]):
            raise DamagedCacheError([], damaged)
        return values

    def verify(self):
        """Raise DamagedCacheError if any key or value held is not what was appended."""
        keys = _damaged(self._rows.keys(), self._sums[0])
        values = _damaged(self._rows.values(), self._sums[1])
        if keys or values:
            raise DamagedCacheError(keys, values)

    def truncate(self, n_tokens):
        """Keep the first `n_tokens` tokens, as KVCache.truncate; a new generation if any went."""
        before = len(self)
        self._rows.truncate(n_tokens)
        if n_tokens < before:
            self._generation = next(_generations)

    def reset(self):
        """Forget all tokens; a new generation, even if there were none."""
        self._rows.reset()
        self._generation = next(_generations)

    def copy(self):
        """An independent cache with the same rows and sums and, as a new owner, a new generation.

        The sums are copied and not taken again: damage in the original stays damage in the copy.
        """
        twin = object.__new__(type(self))
        twin._rows = self._rows.copy()
        twin._sums = self._sums.copy()
        twin._generation = next(_generations)
        return twin

    __copy__ = copy

    def __setstate__(self, state):
        """Of a deep copy, or out of a pickle: another owner too, so with a new generation."""
        self.__dict__.update(state)
        self._generation = next(_generations)

    def __repr__(self):
        return repr(self._rows).replace("PreallocatedCache", "GuardedCache")


def overlapping_write(views, position, k, v):
    """Write k and v [n_kv_heads, n, head_dim] over the tokens from `position` on.

    `views` are those that a request took with `cache.writable_views()`: kept past its end, they are
    how a late writer reaches rows that belong to the next request. ValueError if the views do not
    reach that far, for then there would be no damage.
    """
    end = position + k.shape[1]
    for view, rows in zip(views, (k, v), strict=True):
        if not 0 <= position < end <= view.shape[1] or rows.shape[1] != k.shape[1]:
            raise ValueError(
                f"views of {view.shape[1]} tokens cannot be written from {position} to {end}; "
                "take the views when the cache holds that many"
            )
    for view, rows in zip(views, (k, v), strict=True):
        view[:, position:end] = rows


def _chain(rows, sums):
    """From the sums in sums[:, 0] on, fill sums[:, 1 + i] with those after row i of each head."""
    for head_rows, head_sums in zip(np.ascontiguousarray(rows), sums, strict=True):
        running = int(head_sums[0])
        for i, row in enumerate(head_rows, start=1):
            head_sums[i] = running = zlib.crc32(row, running)


def _damaged(rows, sums):
    """The positions whose rows [n_kv_heads, n_tokens, head_dim] do not give their sums."""
    n = rows.shape[1]
    if [zlib.crc32(head_rows) for head_rows in rows] == sums[:, n].tolist():
        return []
    wrong = set()
    for head_rows, head_sums in zip(rows, sums.tolist(), strict=True):
        wrong |= {i for i in range(n) if zlib.crc32(head_rows[i], head_sums[i]) != head_sums[i + 1]}
    return sorted(wrong)


def _tokens(positions):
    """The positions as words; of many, the first few."""
    shown = ", ".join(map(str, positions[:8]))
    more = f" and {len(positions) - 8} more" if len(positions) > 8 else ""
    return f"token{'s' if len(positions) > 1 else ''} {shown}{more}"
