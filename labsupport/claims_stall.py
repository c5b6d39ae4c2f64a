"""Claims of the stall log's two requests, its stall lines and its layer table, recomputed.

Each check takes what the source said (`said`) and the evidence; `ev.log` is the stall log.
Times are milliseconds.
"""

import numpy as np
import pandas as pd

from labsupport import stall_log
from labsupport.claims import Claim, Finding, decide, register, unsettled

CLAIMS: list[Claim] = []
claim = register(CLAIMS, "stall")


def as_printed(stated: float, found: float, what: str, places: int = 0) -> Finding:
    """Holds when the recomputed figure, rounded as the source printed it, is the stated one."""
    return decide(
        round(found, places) == stated, f"{what} is {found:.{places + 1}f}, printed {stated}."
    )


# --- the two requests -------------------------------------------------------------------------


@claim(
    "stall-01",
    "The same request took {cold_ms} ms on a cold cache and {warm_ms} ms on a warm one.",
    cold_ms=847,
    warm_ms=1204,
)
def _(said, ev):
    cold, warm = ev.log.requests["time_ms"]
    return decide(
        (cold, warm) == (said["cold_ms"], said["warm_ms"]),
        f"The summary records {cold} and {warm} ms, a ratio of {warm / cold:.3f}.",
    )


@claim("stall-02", "The difference is {difference_ms} ms.", difference_ms=357)
def _(said, ev):
    cold, warm = (ev.log.run("default", i).elapsed_ms for i in (1, 2))
    return as_printed(said["difference_ms"], warm - cold, "The difference of the elapsed times")


@claim("stall-03", "The two requests ran back to back, with nothing between them.")
def _(said, ev):
    first, second = ev.log.runs["default"]
    apart = (second.started_at - first.started_at).total_seconds() * 1000
    gap = apart - first.elapsed_ms
    return decide(
        gap == 0,
        f"The second timer starts {apart:.0f} ms after the first, which ran "
        f"{first.elapsed_ms:.0f}: {gap:.0f} ms lie between them.",
    )


@claim(
    "stall-04",
    "Input and weights were identical for {input_us} and {weights_us} microseconds.",
    input_us=13,
    weights_us=12,
)
def _(said, ev):
    steps = [s for runs in ev.log.runs.values() for run in runs for s in run.token_steps_ms]
    finest = min(steps) * 1000
    found = f"The finest interval in any trace is {finest:.0f} µs; identity has no duration."
    if finest > max(said["input_us"], said["weights_us"]):
        return unsettled(found, "stamps in microseconds, and a statement of what was timed")
    return decide(True, found)


@claim("stall-05", "TIMER_STOP's elapsed time covers the request, its last token included.")
def _(said, ev):
    late = [run.emissions_ms[-1] - run.elapsed_ms for runs in ev.log.runs.values() for run in runs]
    one_shift = max(late) == min(late)
    return decide(
        max(late) <= 0,
        f"{sum(x > 0 for x in late)} of {len(late)} last tokens are stamped after the timer "
        f"stopped, by {min(late):.0f} to {max(late):.0f} ms: "
        + ("one shift" if one_shift else "no one shift")
        + " of the clock mends it.",
    )


@claim("stall-06", "The first request was still in flight when the second came.")
def _(said, ev):
    over = {}
    for name, (first, second) in ev.log.runs.items():
        apart = (second.started_at - first.started_at).total_seconds() * 1000
        over[name] = first.emissions_ms[-1] - apart
    stalls = {name: runs[1].count("STALL") > 0 for name, runs in ev.log.runs.items()}
    listed = ", ".join(f"{name} {ms:.0f} ms" for name, ms in over.items())
    return decide(
        all((ms > 0) == stalls[name] for name, ms in over.items()),
        f"By its stamps the first request's last token comes after the second start: {listed}. "
        f"By its timer it had stopped; and {sum(not s for s in stalls.values())} of these "
        f"{len(stalls)} pairs do not stall.",
        in_shape=over["default"] > 0,
    )


# --- the stall lines and the layer table ------------------------------------------------------


@claim(
    "stall-07",
    "'Waiting for previous allocation' appears {warm} times in the warm run, {cold} in the cold.",
    warm=5,
    cold=0,
)
def _(said, ev):
    cold, warm = (run.count("STALL") for run in ev.log.runs["default"])
    return decide((cold, warm) == (said["cold"], said["warm"]), f"Counted {warm} and {cold}.")


@claim("stall-08", "All {layers} layers are marked stalled when warm, none when cold.", layers=10)
def _(said, ev):
    cold, warm = (run.all("mark").count("stalled") for run in ev.log.runs["default"])
    return decide((cold, warm) == (0, said["layers"]), f"Counted {warm} warm and {cold} cold.")


@claim("stall-09", "Warm, each layer comes {step_ms} ms after the one before.", step_ms=25)
def _(said, ev):
    steps = ev.log.layer_stamps_ms("warm").diff().dropna()
    return decide(
        bool((steps == said["step_ms"]).all()),
        f"The {len(steps)} steps are {' or '.join(f'{step:.0f}' for step in steps.unique())} ms.",
    )


@claim("stall-10", "Being warm costs {penalty_ms} ms in each layer.", penalty_ms=25)
def _(said, ev):
    excess = ev.log.layer_stamps_ms("warm") - ev.log.layer_stamps_ms("cold")
    steps = excess.diff().dropna()
    return decide(
        bool((steps == said["penalty_ms"]).all()),
        f"A cold layer takes its time too: the excess over cold is {excess.iloc[0]:.0f} ms before "
        f"layer 0 and grows by {steps.median():.0f} ms a layer to {excess.iloc[-1]:.0f} ms.",
    )


@claim(
    "stall-11",
    "{layers} layers at {step_ms} ms give {total_ms} ms, which turns {cold_ms} into {warm_ms} ms.",
    layers=10,
    step_ms=25,
    total_ms=250,
    cold_ms=847,
    warm_ms=1204,
)
def _(said, ev):
    total = said["layers"] * said["step_ms"]
    predicted = said["cold_ms"] + total
    return decide(
        total == said["total_ms"] and predicted == said["warm_ms"],
        f"{said['cold_ms']} + {total} = {predicted}, which leaves {said['warm_ms'] - predicted} ms "
        "unexplained; 'overhead' would have to be added, not taken off.",
    )


@claim("stall-12", "The layers wait by {timeouts} time-outs, one a layer.", timeouts=10)
def _(said, ev):
    warm = ev.log.run("default", 2)
    stalls = [e.line for e in warm.events if e.tag == "STALL"]
    first_layer = next(e.line for e in warm.events if e.tag == "FORWARD")
    before = sum(line < first_layer for line in stalls)
    marks = warm.all("mark").count("stalled")
    found = f"{len(stalls)} waits are printed, {before} of them before layer 0, and {marks} marks."
    if len(stalls) == said["timeouts"] and before <= 1:
        return decide(True, found)
    return unsettled(f"{found} No line says 'time-out'.", "a line a time-out, with its length")


@claim("stall-13", "The curve is exactly linear, and that tells a stall from noise or a lock.")
def _(said, ev):
    bend = {s: np.ptp(np.diff(ev.log.layer_stamps_ms(s))) for s in ("cold", "warm")}
    return decide(
        bend["warm"] == 0 and bend["cold"] > 0,
        f"The steps' range is {bend['warm']:.0f} ms warm and {bend['cold']:.0f} ms cold: the run "
        "without a stall is as linear, so linearity tells nothing apart.",
    )


@claim("stall-14", "Each layer waits and the delays compound.")
def _(said, ev):
    excess = ev.log.layer_stamps_ms("warm") - ev.log.layer_stamps_ms("cold")
    growth = np.diff(excess, 2)
    changes = f"changes by {growth.min():.0f} to {growth.max():.0f} ms"
    changes = changes if growth.any() else "never changes"
    return decide(
        bool((growth > 0).all()),
        f"They add up, from {excess.iloc[0]:.0f} to {excess.iloc[-1]:.0f} ms, but do not feed on "
        f"each other: the step of the excess {changes}.",
        in_shape=bool(excess.is_monotonic_increasing),
    )


@claim("stall-15", "The stalled layers account for the difference.")
def _(said, ev):
    parts = excess_by_phase(ev.log)
    layers = parts["before layer 0"] + parts["layers"]
    gained = parts[parts > 0].sum()
    listed = ", ".join(f"{name} {ms:+.0f}" for name, ms in parts.items())
    return decide(
        layers >= 0.9 * parts.sum(),
        f"Up to the last layer stamp {layers:.0f} ms were lost, of {gained:.0f} in all: {listed} "
        "ms. A further token is a pass through all layers, too, but the log stamps none of those.",
    )


def excess_by_phase(log: stall_log.StallLog) -> pd.Series:
    """Warm less cold, in ms, for each phase up to the last token; the phases add up exactly."""
    phases = {}
    for state, which in (("cold", 1), ("warm", 2)):
        layers, tokens = log.layer_stamps_ms(state), log.run("default", which).emissions_ms
        marks = [0, layers.iloc[0], layers.iloc[-1], tokens[0], tokens[-1]]
        phases[state] = np.diff(marks)
    names = ["before layer 0", "layers", "no event", "between tokens"]
    return pd.Series(phases["warm"] - phases["cold"], index=names)
