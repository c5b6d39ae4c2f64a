"""Scoring the rival explanations: each one's predicted traces against the recorded ones."""

import itertools

import numpy as np
import pandas as pd

from labsupport import traces
from labsupport.courses import (
    DEFAULT,
    N_TOKENS,
    PREDICTED,
    STATED_TIMEOUT_MS,
    Condition,
    fit,
    repeated,
)
from labsupport.hypotheses import HYPOTHESES, simulate
from labsupport.stall_log import StallLog

FIT_STEP_MS, FIT_LAST_MS = 2.0, 50.0  # how near a fit has to come, see `verdicts`


def compare(predicted: traces.Run, recorded: traces.Run) -> dict:
    """Predicted less recorded, in ms, and whether the waits and marks are those recorded."""
    steps = np.subtract(predicted.token_steps_ms, recorded.token_steps_ms)
    return {
        "marks agree": (predicted.count("STALL") > 0, predicted.all("mark"))
        == (recorded.count("STALL") > 0, recorded.all("mark")),
        "first token": predicted.emissions_ms[0] - recorded.emissions_ms[0],
        "last token": predicted.emissions_ms[-1] - recorded.emissions_ms[-1],
        "token step (rms)": float(np.sqrt(np.mean(steps**2))),
    }


def score(log: StallLog, timeout_ms: float = STATED_TIMEOUT_MS) -> pd.DataFrame:
    """Every hypothesis against every recorded run: one row each, errors in ms.

    `slow` is whether a run lies nearer the default warm than the default cold run, by elapsed
    time. `agrees` is whether marks and `slow` are those recorded; for the repeats, of which only
    elapsed times were recorded, `slow` alone decides. `timeout_ms` is what the rival 'retry, as
    stated' charges a layer.
    """
    p = fit(log, timeout_ms)
    cold_ms, warm_ms = (run.elapsed_ms for run in log.runs["default"])
    midway = (cold_ms + warm_ms) / 2
    rows = []
    for hypothesis in HYPOTHESES:
        runs = {("default", i): c for i, c in enumerate(DEFAULT, 1)} | PREDICTED
        for (trace, which), condition in runs.items():
            predicted = traces.read(simulate(hypothesis, p, condition))[0]
            recorded = log.run(trace, which)
            errors = compare(predicted, recorded)
            same = (predicted.elapsed_ms > midway) == (recorded.elapsed_ms > midway)
            row = {"hypothesis": hypothesis.name, "trace": trace, "request": which, **errors}
            rows.append(row | {"agrees": errors["marks agree"] and same})
        elapsed = [
            traces.read(simulate(hypothesis, p, condition))[0].elapsed_ms
            for condition in repeated(log.repeats)
        ]
        same = (np.array(elapsed) > midway) == (log.repeats["time_ms"] > midway).to_numpy()
        rows.append(
            {
                "hypothesis": hypothesis.name,
                "trace": "repeats",
                "request": 2,
                "last token": float(np.mean(elapsed - log.repeats["time_ms"])),
                "agrees": bool(same.all()),
            }
        )
    return pd.DataFrame(rows)


def verdicts(
    scores: pd.DataFrame, step_ms: float = FIT_STEP_MS, last_ms: float = FIT_LAST_MS
) -> pd.DataFrame:
    """One row a hypothesis: does it fit the default pair, predict each trace, and so survive.

    It fits when marks agree, the token steps are met within `step_ms` (rms) and the last token
    within `last_ms` in both runs of the pair.
    """
    default = scores[scores["trace"] == "default"]
    fits = (
        default["agrees"]
        & (default["token step (rms)"] < step_ms)
        & (default["last token"].abs() < last_ms)
    )
    table = pd.DataFrame({"fits default": fits.groupby(default["hypothesis"]).all()})
    for trace in ("preallocated", "history-off", "repeats"):
        rows = scores[scores["trace"] == trace]
        table[f"predicts {trace}"] = rows.groupby("hypothesis")["agrees"].all()
    table["survives"] = table.all(axis=1)
    return table.reindex([h.name for h in HYPOTHESES]).astype(bool)


def factorial(names: list[str]) -> pd.DataFrame:
    """What the hypotheses `names` predict when each setting of the history is changed alone.

    One row a combination of the three settings, preallocation left off; True where the second,
    warm request should stall. Two hypotheses whose columns differ are told apart by that run.
    """
    settings = {"history": (True, False), "timeout": (True, False), "precommit": (False, True)}
    unknown = set(names) - {h.name for h in HYPOTHESES}
    if unknown:
        raise ValueError(f"no such hypothesis: {', '.join(sorted(unknown))}")
    chosen = [h for h in HYPOTHESES if h.name in names]
    rows = [
        dict(zip(settings, levels, strict=True)) for levels in itertools.product(*settings.values())
    ]
    for row in rows:
        condition = Condition(2, N_TOKENS, **row)
        row.update({h.name: h.acts(condition) for h in chosen})
    return pd.DataFrame(rows)
