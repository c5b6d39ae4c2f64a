"""What the checks of chapter 1's claims read: recorded evidence, and one fault made to order."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd

from labsupport import evidence as recorded
from labsupport import stall_log
from labsupport.guarded import DamagedCacheError, GuardedCache
from labsupport.kvcache import PreallocatedCache
from labsupport.latewrite import request_after_late_write


@dataclass(frozen=True)
class StallEvidence:
    """What the checks of chapter 1 read.

    log       the stall log
    searched  the rows of the recorded search
    damage    'plain' or 'guarded' -> how far a late write shifts the next request's logits, or
              None where the cache raises an error instead
    """

    log: stall_log.StallLog
    searched: pd.DataFrame
    damage: Callable[[str], float | None]

    def with_log(self, **changes) -> "StallEvidence":
        """The same evidence with parts of the log replaced."""
        return replace(self, log=replace(self.log, **changes))


@cache
def evidence() -> StallEvidence:
    """The evidence recorded in the repository."""
    return StallEvidence(
        stall_log.read(recorded.directory("stall-log")),
        recorded.read("warm-slower").rows,
        damage,
    )


def damage(kind: str) -> float | None:
    """See StallEvidence."""
    caches = {"plain": PreallocatedCache, "guarded": GuardedCache}[kind]
    try:
        right, got = request_after_late_write(caches, seed=2)
    except DamagedCacheError:
        return None
    return float(np.abs(got - right).max())
