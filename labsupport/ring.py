"""A cache of the last tokens only: a ring of `window` rows that are written over and over.

Position p lies in slot p % window, so each new token takes the place of the one that no later
token looks at (arXiv:2310.06825, section 2, "rolling buffer cache"). What was overwritten is gone,
and this cache says so where another would go back to it.
"""

from typing import NamedTuple

import numpy as np

from labsupport.kvcache import KVCache, whole_number


class _Overwritten(NamedTuple):
    """What an append replaced, so that it can be taken back."""

    n_tokens: int  # before it
    first: int
    slots: np.ndarray
    keys: np.ndarray  # [n_kv_heads, len(slots), head_dim]
    values: np.ndarray


class RingCache(KVCache):
    """The rows of the last `window` tokens, position p in slot p % window; others are forgotten.

    len() is the number of tokens seen, the next one's position; `held` are the tokens whose rows
    are still here. There is no limit to the tokens seen, and nbytes never changes.

    The rows that an append overwrote are kept beside (`undo_nbytes`: one token's while decoding)
    until the next append: this much, and no more, can be taken back by truncate().
    """

    def __init__(self, n_kv_heads, head_dim, dtype=np.float32, *, window):
        self.window = whole_number("window", window, at_least=1)
        self._first = 0  # the position of the oldest row held
        self._undo = None
        super().__init__(n_kv_heads, head_dim, dtype)

    def _capacity_for(self, n_tokens):
        return self.window

    @property
    def held(self):
        """Tokens whose rows are here: the last of those seen."""
        return self._n_tokens - self._first

    @property
    def undo_nbytes(self):
        """Bytes of the rows that the last append overwrote."""
        return self._undo.keys.nbytes + self._undo.values.nbytes if self._undo else 0

    def append(self, k, v):
        """See the next tokens, each of k and v [n_kv_heads, n_new, head_dim]; keep the last rows.

        n_new may be 0, or more than the window. Raises what `check` raises; after that, or any
        other exception, the cache holds what it held before.
        """
        start, end = self._n_tokens, self.check(k, v)
        first = max(self._first, end - self.window)
        lost = np.arange(self._first, min(first, start)) % self.window
        undo = _Overwritten(start, self._first, lost, self._keys[:, lost], self._values[:, lost])

        kept = np.arange(max(start, first), end)
        slots, rows = kept % self.window, kept - start
        k, v = k[:, rows], v[:, rows]  # copies: they may be views of this storage
        self._undo = undo
        try:
            self._keys[:, slots] = k
            self._values[:, slots] = v
            self._first, self._n_tokens = first, end
        except BaseException:
            self.truncate(start)
            raise

    def keys(self):
        """The keys held, in order of position: a copy, [n_kv_heads, held, head_dim]."""
        return self._keys[:, self._slots(self._first)]

    def values(self):
        """The values held, as `keys` gives the keys."""
        return self._values[:, self._slots(self._first)]

    def recent(self):
        """Keys and values that the next token may look at: the last window - 1, in order."""
        slots = self._slots(max(self._first, self._n_tokens - self.window + 1))
        return self._keys[:, slots], self._values[:, slots]

    def slots(self):
        """Keys and values held, in no order: views that cannot be written, a borrow.

        After a truncate() one slot may hold a token that was taken back; then they are copies.
        """
        if self.held < min(self._n_tokens, self.window):
            return self.keys(), self.values()
        return super().keys(), super().values()

    def _slots(self, first):
        return np.arange(first, self._n_tokens) % self.window

    def truncate(self, n_tokens):
        """Go back to the first `n_tokens` tokens seen, if the next could see all that it should.

        Always possible: to any length while nothing has been overwritten, by one token, to 0, and
        to the length before the last append. Raises TypeError for what is not an int, ValueError
        for more tokens than were seen and when rows of the window were overwritten. Interrupted,
        it is done all the same.
        """
        n_tokens = whole_number("n_tokens", n_tokens, at_least=0)
        if n_tokens > self._n_tokens:
            raise ValueError(f"cannot truncate to {n_tokens} tokens: only {self._n_tokens} seen")
        undo = self._undo if self._undo and n_tokens <= self._undo.n_tokens else None
        oldest = undo.first if undo else self._first
        first = min(oldest, n_tokens)
        if first > max(0, n_tokens - self.window + 1):
            raise ValueError(
                f"cannot truncate to {n_tokens} tokens: the next would look at {self.window - 1} "
                f"before it, and all before position {oldest} were overwritten; reset() the cache "
                "and compute the tokens again"
            )
        try:
            self._go_back(undo, first, n_tokens)
        except BaseException:  # Ctrl-C midway: some rows are back and the length is not
            self._go_back(undo, first, n_tokens)
            raise

    def _go_back(self, undo, first, n_tokens):
        if undo:
            self._keys[:, undo.slots], self._values[:, undo.slots] = undo.keys, undo.values
            self._undo = None
        self._first, self._n_tokens = first, n_tokens

    def writable_views(self):
        """TypeError: rows lie in no order of positions, and one may have been taken back."""
        raise TypeError("a RingCache hands out no rows to write: truncate() it and append() others")

    def copy(self):
        """An independent cache that holds the same; its counters are those of the copy."""
        twin = super().copy()
        twin.bytes_copied = self.nbytes * min(self._n_tokens, self.window) // self.window
        return twin

    __copy__ = copy

    def __repr__(self):
        name, _, _ = super().__repr__().rpartition(":")
        return f"{name}: {self._n_tokens} tokens seen, the last {self.held} held of {self.window}"
