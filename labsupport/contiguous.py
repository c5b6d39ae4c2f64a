"""Pieces of one address space, each in one part, as a server without blocks has to find them.

    FirstFit   the first gap that is long enough, from the lowest address on
    Buddy      sizes rounded up to powers of two, each at a multiple of its size

Both are used alike: take(n) -> where the piece starts, or None if no gap is long enough.
"""

from labsupport.kvcache import whole_number


class FirstFit:
    """An address space of `n_slots`; the gaps between the pieces that are taken."""

    def __init__(self, n_slots):
        self.n_slots = whole_number("n_slots", n_slots, at_least=1)
        self.taken = {}  # start -> slots
        self.gaps = [(0, self.n_slots)]  # (start, slots), by address; no two touch

    @property
    def n_free(self):
        """Slots in no piece, in gaps of whatever size."""
        return self.n_slots - sum(self.taken.values())

    def take(self, n):
        """The start of a piece of `n` slots, now taken, or None."""
        for i, (start, size) in enumerate(self.gaps):
            if size >= n:
                self.gaps[i : i + 1] = [(start + n, size - n)] if size > n else []
                self.taken[start] = n
                return start
        return None

    def release(self, start):
        """Give back the piece that starts there; KeyError if there is none."""
        n = self.taken.pop(start)
        merged = []
        for gap in sorted([*self.gaps, (start, n)]):
            if merged and sum(merged[-1]) == gap[0]:
                merged[-1] = merged[-1][0], merged[-1][1] + gap[1]
            else:
                merged.append(gap)
        self.gaps = merged


class Buddy:
    """An address space of `n_slots`, halved until a piece just holds what is asked.

    A piece has an only possible partner, its buddy: the other half of what was halved. When both
    are free they are one again. Pieces are longer than asked, by up to a factor of two.
    """

    def __init__(self, n_slots):
        self.n_slots = whole_number("n_slots", n_slots, at_least=1)
        self.taken = {}  # start -> slots
        bits = [1 << i for i in range(self.n_slots.bit_length())]
        self.gaps = {size: set() for size in bits}  # size -> starts
        start = 0
        for size in reversed(bits):
            if self.n_slots & size:  # the largest pieces first: all are at multiples of their size
                self.gaps[size].add(start)
                start += size

    @property
    def n_free(self):
        """Slots in no piece, in gaps of whatever size."""
        return self.n_slots - sum(self.taken.values())

    def take(self, n):
        """The start of a piece of the power of two that holds `n` slots, now taken, or None."""
        needed = 1 << (n - 1).bit_length()
        size = next((size for size, starts in self.gaps.items() if size >= needed and starts), None)
        if size is None:
            return None
        start = min(self.gaps[size])
        self.gaps[size].remove(start)
        while size > needed:
            size //= 2
            self.gaps[size].add(start + size)
        self.taken[start] = size
        return start

    def release(self, start):
        """Give back the piece that starts there; KeyError if there is none."""
        size = self.taken.pop(start)
        while (start ^ size) in self.gaps.get(size, ()):
            self.gaps[size].remove(start ^ size)
            start, size = start & ~size, 2 * size
        self.gaps[size].add(start)
