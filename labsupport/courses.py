"""The course of a request in the stall log, phase by phase, and how a mechanism may lengthen it.

`fit` reads the default pair alone. A `Condition` is all that a simulated run is told of the others.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from labsupport.stall_log import StallLog


@dataclass(frozen=True)
class Condition:
    """How a run was set up: all that a simulator is told.

    position      1 or 2, the request's place in its pair
    entries       tokens the cache holds when the request comes
    reserved      the cache was preallocated to its maximum
    history       ALLOCATOR_HISTORY_DEPTH at its default, not 0
    timeout       ALLOCATOR_TIMEOUT_ms at its default, not 0
    precommit     CACHE_PRECOMMIT
    earlier_hits  warm requests served before in the session
    """

    position: int
    entries: int
    reserved: bool = False
    history: bool = True
    timeout: bool = True
    precommit: bool = False
    earlier_hits: int = 0


N_LAYERS, N_TOKENS = 10, 12
STATED_TIMEOUT_MS = 25  # of the log's commentary
DEFAULT = (Condition(1, 0), Condition(2, N_TOKENS))
PREDICTED = {
    ("preallocated", 1): Condition(1, 0, reserved=True, earlier_hits=1),
    ("preallocated", 2): Condition(2, N_TOKENS, reserved=True, earlier_hits=1),
    ("history-off", 1): Condition(1, 0, False, False, False, True, earlier_hits=2),
    ("history-off", 2): Condition(2, N_TOKENS, False, False, False, True, earlier_hits=2),
}


def repeated(repeats: pd.DataFrame) -> list[Condition]:
    """The conditions of the repeats, row for row: only their run and state are read."""
    runs = sorted(repeats["run"].unique())  # three hits were served before the first of them
    return [
        Condition(2 if state == "warm" else 1, N_TOKENS * (state == "warm"), earlier_hits=3 + i)
        for i, state in zip(repeats["run"].map(runs.index), repeats["state"], strict=True)
    ]


@dataclass(frozen=True)
class Fit:
    """What the default pair alone says, in milliseconds.

    The cold run gives the plain course of a request. Warm less cold, phase by phase, gives the
    most that a mechanism may charge, and `saved`: the stretch before the first token that no event
    covers is shorter when warm, which is what skipped work would do.
    """

    first_layer: float  # start to layer 0
    layer_step: float
    gap: float  # last layer to first token
    token_step: float
    late: float  # last token to the timer's own elapsed time
    saved: float
    before: float  # charges, warm less cold: before layer 0,
    per_layer: float  # each further layer,
    per_token: float  # each further token,
    first_token: float  # and all of it up to the first token
    scale: float  # warm over cold at the last token, the saved stretch left out
    row_base: float  # a token step as a constant and
    per_row: float  # a charge a row held, neither negative, over the pair
    n_waits: int
    timeout: float


def fit(log: StallLog, timeout_ms: float = STATED_TIMEOUT_MS) -> Fit:
    """The parameters, from the default pair and its layer table; nothing else is read.

    `timeout_ms` is not fitted: it is what the log's commentary states.
    """
    cold, warm = log.runs["default"]
    cold_layers, warm_layers = (log.layer_stamps_ms(s).to_numpy() for s in ("cold", "warm"))
    cold_tokens, warm_tokens = np.array(cold.emissions_ms), np.array(warm.emissions_ms)
    steps = np.concatenate([np.diff(cold_tokens), np.diff(warm_tokens)])
    held = np.concatenate([rows_held(condition) for condition in DEFAULT])
    (row_base, per_row), _ = nnls(np.stack([np.ones_like(steps), held], axis=1), steps)
    gap = cold_tokens[0] - cold_layers[-1]
    saved = max(0.0, gap - (warm_tokens[0] - warm_layers[-1]))
    layer_step, token_step = np.diff(cold_layers).mean(), np.diff(cold_tokens).mean()
    return Fit(
        first_layer=cold_layers[0],
        layer_step=layer_step,
        gap=gap,
        token_step=token_step,
        late=cold_tokens[-1] - cold.elapsed_ms,
        saved=saved,
        before=warm_layers[0] - cold_layers[0],
        per_layer=np.diff(warm_layers).mean() - layer_step,
        per_token=np.diff(warm_tokens).mean() - token_step,
        first_token=warm_tokens[0] - cold_tokens[0],
        scale=warm_tokens[-1] / (cold_tokens[-1] - saved),
        row_base=row_base,
        per_row=per_row,
        n_waits=warm.count("STALL"),
        timeout=timeout_ms,
    )


def rows_held(condition: Condition) -> np.ndarray:
    """Rows in the cache at each step between tokens: earlier entries, the prompt, tokens so far."""
    return condition.entries + N_TOKENS + np.arange(N_TOKENS - 1)


@dataclass(frozen=True)
class Course:
    """A request's phases in milliseconds, and what its trace shows of waiting."""

    first_layer: float
    layer_step: float
    gap: float
    token_steps: np.ndarray  # [N_TOKENS - 1]
    n_waits: int = 0
    stalled: bool = False


def plain(p: Fit, condition: Condition) -> Course:
    """No mechanism at work; a request that finds entries skips the saved work."""
    saved = p.saved if condition.entries else 0.0
    return Course(p.first_layer, p.layer_step, p.gap - saved, np.full(N_TOKENS - 1, p.token_step))


# How a mechanism charges, once it acts: one function a kind.


def wait_everywhere(p: Fit, c: Course, condition: Condition) -> Course:
    """A wait before the pass, in each layer and at each token, as large as the fit allows."""
    return Course(
        c.first_layer + p.before,
        c.layer_step + p.per_layer,
        c.gap,
        c.token_steps + p.per_token,
        p.n_waits,
        stalled=True,
    )


def time_out_a_layer(p: Fit, c: Course, condition: Condition) -> Course:
    """Exactly as the log's commentary says: one time-out in each of ten layers, nothing else."""
    first, step = c.first_layer + p.timeout, c.layer_step + p.timeout
    return Course(first, step, c.gap, c.token_steps, N_LAYERS, stalled=True)


def copy_rows(p: Fit, c: Course, condition: Condition) -> Course:
    """Every token copies all rows held before it; layers wait for the copy of the prompt's rows."""
    steps = p.row_base + p.per_row * rows_held(condition)
    extra = p.per_row * condition.entries / N_LAYERS
    return Course(
        c.first_layer, c.layer_step + extra, c.gap, steps, 0, stalled=condition.entries > 0
    )


def prepare_once(p: Fit, c: Course, condition: Condition) -> Course:
    """One preparation before the first layer; afterwards the path is as fast as ever."""
    return Course(
        c.first_layer + p.first_token + p.saved, c.layer_step, c.gap, c.token_steps, p.n_waits
    )


def slow_down(p: Fit, c: Course, condition: Condition) -> Course:
    """Everything takes longer by one factor."""
    return Course(
        c.first_layer * p.scale,
        c.layer_step * p.scale,
        c.gap * p.scale,
        c.token_steps * p.scale,
    )
