"""A server with memory for so many tokens, step by step and without a clock.

Each request is given memory in one of these ways:

    max     one piece for the longest sequence the model allows
    pow2    one piece for the prompt and the next power of two of the output; needs foreknowledge
    exact   one piece for the final length; needs more of it
    16      blocks of so many tokens, one at a time

Pieces are found first fit or, "max buddy" and so on, with a buddy allocator. The ways, the budget
and what becomes of it are those of arXiv:2309.06180 (figure 3, table 1, sections 3.1, 4.5, 6.1).
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
import pandas as pd

from labsupport.blockpool import BlockPool
from labsupport.contiguous import Buddy, FirstFit
from labsupport.kvcache import whole_number
from labsupport.mixes import MAX_TOKENS

N_SLOTS = 15_700  # tokens that 12 GB hold for OPT-13B, table 1
SPARE = 0.01  # of the blocks, left for growth when a request is admitted; vLLM's `watermark`


@dataclass(eq=False)
class Sequence:
    """A request on its way: `held` tokens now, `final` when it ends, room for `chunk`."""

    prompt: int
    final: int
    held: int
    chunk: int = 0
    place: object = None  # where the memory is: a start, or a list of blocks


class Contiguous:
    """Each sequence in one piece, `reserve(sequence)` slots long, until it ends."""

    def __init__(self, space, reserve):
        self.space, self.reserve, self.n_slots = space, reserve, space.n_slots

    def admit(self, sequence):
        """Whether the sequence got its memory. ValueError if it will outgrow it."""
        sequence.chunk = self.reserve(sequence)
        if sequence.chunk < sequence.final:
            raise ValueError(
                f"a request of {sequence.final} tokens outgrows {sequence.chunk} slots"
            )
        sequence.place = self.space.take(sequence.chunk)
        return sequence.place is not None

    def grow(self, sequence):
        """Whether there is room for the next token: always."""
        return True

    def release(self, sequence):
        """Give the memory of the sequence back."""
        self.space.release(sequence.place)

    def scattered(self, sequence):
        """Whether this sequence would fit if all that is free lay together."""
        return self.space.n_free >= self.reserve(sequence)


class Paged:
    """Each sequence in blocks of a BlockPool, taken as it grows."""

    def __init__(self, n_slots, block_size, spare=SPARE):
        n_blocks = n_slots // whole_number("block_size", block_size, at_least=1)
        self.pool = BlockPool(n_blocks, block_size, n_kv_heads=1, head_dim=1, dtype=np.int8)
        self.spare, self.n_slots = int(spare * n_blocks), n_slots

    def admit(self, sequence):
        """Whether there are blocks for the tokens so far, the next and, if others run, to spare."""
        needed = self.pool.blocks_for(sequence.held + 1)
        if needed + (self.spare if self.pool.n_used else 0) > self.pool.n_free:
            return False
        sequence.place = self.pool.take(needed)
        sequence.chunk = needed * self.pool.block_size
        return True

    def grow(self, sequence):
        """Whether there is room for the next token, if need be in another block."""
        if sequence.held == sequence.chunk:
            if not self.pool.n_free:
                return False
            sequence.place += self.pool.take(1)
            sequence.chunk += self.pool.block_size
        return True

    def release(self, sequence):
        """Give the blocks of the sequence back."""
        self.pool.release(sequence.place)

    def scattered(self, sequence):
        """Never: any free block will do."""
        return False


def memory(policy, n_slots=N_SLOTS, max_tokens=MAX_TOKENS, spare=SPARE):
    """The memory of a policy: "max", "pow2" or "exact", "... buddy", or a block size.

    `spare` is the share of blocks to leave free when a request is admitted. ValueError for another.
    """
    reserve = {
        "max": lambda s: max_tokens,
        "pow2": lambda s: min(max_tokens, s.prompt + (1 << (s.final - s.prompt - 1).bit_length())),
        "exact": lambda s: s.final,
    }
    policy = str(policy)  # 16 is as good as "16"
    how, _, where = policy.partition(" ")
    if how in reserve and where in ("", "buddy"):
        return Contiguous(Buddy(n_slots) if where else FirstFit(n_slots), reserve[how])
    if policy.isdecimal():
        return Paged(n_slots, int(policy), spare)
    raise ValueError(
        f'no policy is called {policy!r}; take one of {[*reserve]}, "... buddy" or "16"'
    )


def serve(lengths, memory):
    """Every request of `lengths` [n, 2] served; a row a step, in slots unless said otherwise.

    All requests wait from the start. In each step every sequence that runs gets room for a token,
    the oldest first; if a block is needed and none is free, the youngest goes back to the front of
    the line, its tokens to be computed again when it returns. Then requests are admitted in order
    as long as the first in line gets its memory, and each sequence makes a token, a new one too:
    its prompt, and what it computes again, takes no step. The keys of the last token are kept too.

    tokens     slots that hold a token
    reserved   given to a sequence and empty, to be filled before it ends
    internal   given to a sequence and never to be filled
    external   given to none
    n_running, n_waiting   sequences
    scattered  whether the first in line would fit if all that is free lay together
    recomputed tokens of those that went back

    ValueError for lengths that are none, and for a request that the memory can never hold.
    """
    lengths = np.asarray(lengths)
    if lengths.ndim != 2 or lengths.shape[1] != 2 or lengths.dtype.kind not in "iu":
        raise ValueError("lengths must be an int array [n, 2], prompt and output of each request")
    if (lengths < 1).any():
        raise ValueError("a request has a prompt of 1 token or more, and an output of 1 or more")
    waiting = deque(Sequence(p, p + o, held=p) for p, o in lengths.tolist())
    running, rows = [], []
    while waiting or running:
        ready = recomputed = 0
        while ready < len(running):
            if memory.grow(running[ready]):
                ready += 1
            else:
                youngest = running.pop()
                memory.release(youngest)
                waiting.appendleft(youngest)
                recomputed += youngest.held

        while waiting and memory.admit(waiting[0]):
            running.append(waiting.popleft())
        if not running:
            n = waiting[0].final
            raise ValueError(f"a request of {n} tokens never fits in {memory.n_slots} slots")

        for sequence in running:
            sequence.held += 1

        tokens = sum(s.held for s in running)
        chunks = sum(s.chunk for s in running)
        filled = sum(s.chunk if s.chunk < s.final else s.final for s in running)  # in the end
        scattered = bool(waiting) and memory.scattered(waiting[0])
        kinds = (tokens, filled - tokens, chunks - filled, memory.n_slots - chunks)
        rows.append((*kinds, len(running), len(waiting), scattered, recomputed))

        for sequence in [s for s in running if s.held == s.final]:
            memory.release(sequence)
            running.remove(sequence)

    names = ["tokens", "reserved", "internal", "external", "n_running", "n_waiting"]
    return pd.DataFrame(rows, columns=[*names, "scattered", "recomputed"])
