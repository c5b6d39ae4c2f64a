"""Rival explanations of the stall as small simulators.

Each is fitted on the default pair alone and then predicts the other runs from their conditions.
A simulator is given a `Condition`, never a recorded trace, and answers with a trace in the log's
own format, which the ordinary parser reads. `scoring` compares the two.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from labsupport.courses import (
    N_LAYERS,
    N_TOKENS,
    Condition,
    Course,
    Fit,
    copy_rows,
    plain,
    prepare_once,
    slow_down,
    time_out_a_layer,
    wait_everywhere,
)


@dataclass(frozen=True)
class Hypothesis:
    """A name, the sentence it stands for, when it acts and how it charges."""

    name: str
    says: str
    acts: Callable[[Condition], bool]
    charge: Callable[[Fit, Course, Condition], Course]

    def course(self, p: Fit, condition: Condition) -> Course:
        """The phases of a run under this hypothesis."""
        course = plain(p, condition)
        return self.charge(p, course, condition) if self.acts(condition) else course


HYPOTHESES = [
    Hypothesis(
        "neighbour",
        "The output grows into the space beside the cache; occupied or reserved, it must wait.",
        lambda c: c.entries > 0 or c.reserved,
        wait_everywhere,
    ),
    Hypothesis(
        "neighbour, laid out ahead",
        "The same, but reserving or precommitting lays out both regions, so nothing waits.",
        lambda c: c.entries > 0 and not (c.reserved or c.precommit),
        wait_everywhere,
    ),
    Hypothesis(
        "retry, as stated",
        "Each layer times out once, after 25 ms, on the allocator's history.",
        lambda c: c.entries > 0 and c.history and c.timeout and not c.reserved,
        time_out_a_layer,
    ),
    Hypothesis(
        "retry, everywhere",
        "Every allocation in the request waits on the history, in layers and tokens alike.",
        lambda c: c.entries > 0 and c.history and c.timeout and not c.reserved,
        wait_everywhere,
    ),
    Hypothesis(
        "copy on growth",
        "Each new token copies all rows held so far, unless space was reserved.",
        lambda c: not c.reserved,
        copy_rows,
    ),
    Hypothesis(
        "copy on growth, precommit reserves",
        "The same, and CACHE_PRECOMMIT is a reservation by another name.",
        lambda c: not (c.reserved or c.precommit),
        copy_rows,
    ),
    Hypothesis(
        "first hit, one process",
        "The path that serves a hit is prepared at its first use, once for the whole session.",
        lambda c: c.entries > 0 and c.earlier_hits == 0,
        prepare_once,
    ),
    Hypothesis(
        "first hit, a process a pair",
        "The same, but each pair ran in a new process, so that each second request prepares.",
        lambda c: c.entries > 0,
        prepare_once,
    ),
    Hypothesis(
        "verification of writes",
        "A write beside committed entries is verified and cross-checked while history is kept.",
        lambda c: c.entries > 0 and c.history,
        wait_everywhere,
    ),
    Hypothesis(
        "verification of allocations",
        "The same, but what is verified is new memory, and reserved memory is not new.",
        lambda c: c.entries > 0 and c.history and not c.reserved,
        wait_everywhere,
    ),
    Hypothesis(
        "overlap",
        "The first request is not finished when the second comes, and the two compete.",
        lambda c: c.position == 2,
        wait_everywhere,
    ),
    Hypothesis(
        "order",
        "Whatever comes second is slower: heat, a collector, a scheduler.",
        lambda c: c.position == 2,
        slow_down,
    ),
]


def simulate(hypothesis: Hypothesis, p: Fit, condition: Condition) -> str:
    """The trace of a run under a hypothesis, as text in the log's format."""
    course = hypothesis.course(p, condition)
    mark = "stalled." if course.stalled else "entry..."
    state = "preallocated" if condition.reserved else "warm" if condition.entries else "cold"
    first = course.first_layer + (N_LAYERS - 1) * course.layer_step + course.gap
    tokens = np.concatenate([[first], first + np.cumsum(course.token_steps)])
    lines = [
        "[TIMER_START] 2024-01-15T00:00:00.000Z",
        f"[TOKENIZE] {N_TOKENS} tokens generated",
        f"[CACHE_QUERY] state={state}, entries={condition.entries}",
        *["[STALL] waiting for previous allocation"] * course.n_waits,
        *[f"[FORWARD] layer_{i} {mark}" for i in range(N_LAYERS)],
        *[f"[OUTPUT] token_{i} emitted: {at / 1000:.3f}s" for i, at in enumerate(tokens)],
        f"[TIMER_STOP] elapsed={tokens[-1] - p.late:.0f}ms",
    ]
    return "\n".join(lines) + "\n"
