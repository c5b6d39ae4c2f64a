"""Claims of the stall log about causes: from its interventions and from the rival simulators.

Times are milliseconds; `ev.log` is the stall log.
"""

import numpy as np
from scipy import stats

from labsupport import scoring
from labsupport.claims import Claim, decide, register, unsettled
from labsupport.claims_stall import excess_by_phase

CLAIMS: list[Claim] = []
claim = register(CLAIMS, "stall")


# --- the interventions ------------------------------------------------------------------------


@claim("stall-32", "All of the difference comes from memory allocation.")
def _(said, ev):
    waits = [e for e in ev.log.run("default", 2).events if e.tag == "STALL"]
    stamps = [e.fields["at_ms"] for e in waits if "at_ms" in e.fields]
    parts = excess_by_phase(ev.log)
    found = (
        f"{len(waits)} lines speak of an allocation and {len(stamps)} of them carry a time; "
        f"{parts['between tokens']:.0f} ms of the excess fall between tokens, where none stands."
    )
    if len(stamps) < len(waits) or not waits:
        return unsettled(found, "a stamp at the start and end of each wait, and what was allocated")
    total = parts.sum()
    return decide(
        abs(sum(stamps) - total) < 0.05 * total,
        f"The waits add up to {sum(stamps):.0f} of {total:.0f} ms.",
    )


def _no_stall(trace):
    def check(said, ev):
        found = [
            run.count("STALL") + run.all("mark").count("stalled") for run in ev.log.runs[trace]
        ]
        return decide(sum(found) == 0, f"Counted {found[0]} and {found[1]} in its two requests.")

    return check


claim("stall-33", "With the cache preallocated, no wait and no stalled layer appears.")(
    _no_stall("preallocated")
)
claim("stall-34", "With the history off, no wait and no stalled layer appears.")(
    _no_stall("history-off")
)


@claim("stall-35", "With the cache preallocated, the linear delay a layer is gone.")
def _(said, ev):
    first, second = (
        [e.fields["at_ms"] for e in run.events if "layer" in e.fields and "at_ms" in e.fields]
        for run in ev.log.runs["preallocated"]
    )
    found = f"{len(first)} and {len(second)} layers of that pair carry a stamp"
    if min(len(first), len(second)) < 2:
        return unsettled(f"{found}.", "the layer table of a preallocated pair")
    steps = [np.diff(stamps).mean() for stamps in (first, second)]
    return decide(
        steps[1] - steps[0] < 1,
        f"{found}; a layer takes {steps[0]:.0f} ms in the first request, {steps[1]:.0f} in the "
        "second.",
    )


def _benefit(trace):
    def check(said, ev):
        times = [run.elapsed_ms for run in ev.log.runs[trace]]
        gains = np.array(times[0::2]) - np.array(times[1::2])  # first less second, pair by pair
        cold, warm = ev.log.times_ms("cold"), ev.log.times_ms("warm")
        sd = np.sqrt((cold.var(ddof=1) + warm.var(ddof=1)) / 2)  # of one request, pooled
        t, needed = gains.mean() / (sd * np.sqrt(2 / len(gains))), stats.t.ppf(0.975, 8)
        clear = bool(tuple(times[:2]) == (said["first_ms"], said["second_ms"]) and t > needed)
        return decide(
            clear and len(gains) >= 5,
            f"{times[0]:.0f} and {times[1]:.0f} ms, {len(gains)} pair: {t:.1f} standard errors by "
            f"the spread of the repeats, where {needed:.1f} would do at 95 %.",
            in_shape=clear,
        )

    return check


claim(
    "stall-36",
    "Preallocated, the second request is faster: {second_ms} ms after {first_ms}.",
    first_ms=851,
    second_ms=823,
)(_benefit("preallocated"))
claim(
    "stall-37",
    "With the history off, the second request is faster: {second_ms} ms after {first_ms}.",
    first_ms=849,
    second_ms=792,
)(_benefit("history-off"))


@claim(
    "stall-38",
    "With the cache preallocated only {changed} thing changed, the allocator's view of free space.",
    changed=1,
)
def _(said, ev):
    tags = {name: {e.tag for run in runs for e in run.events} for name, runs in ev.log.runs.items()}
    states = {name: [run.one("state") for run in runs] for name, runs in ev.log.runs.items()}
    changed = sorted(f"[{tag}]" for tag in tags["preallocated"] - tags["default"])
    if states["preallocated"] != states["default"]:
        changed.append(f"cache state '{states['preallocated'][1]}' for '{states['default'][1]}'")
    return decide(
        len(changed) == said["changed"],
        f"The traces themselves show {len(changed)} changes of set-up: {', '.join(changed)}.",
    )


@claim("stall-39", "With the history on, every request after the first is slower.")
def _(said, ev):
    pairs = [[r.elapsed_ms for r in ev.log.runs["default"]]]
    pairs += [list(times) for _, times in ev.log.repeats.groupby("run")["time_ms"]]
    slower = sum(later > times[0] for times in pairs for later in times[1:])
    found = f"{slower} of {len(pairs)} second requests are slower than their first."
    if max(map(len, pairs)) < 3:
        return unsettled(f"{found} No third request was timed.", "many requests in a row")
    return decide(slower == sum(len(times) - 1 for times in pairs), found)


@claim("stall-40", "Whatever was changed, the outputs are identical.")
def _(said, ev):
    hashes = [run.one("hash") for runs in ev.log.runs.values() for run in runs]
    hashes += list(ev.log.requests["output_hash"])
    return decide(len(set(hashes)) == 1, f"{len(set(hashes))} hash in {len(hashes)} records.")


@claim(
    "stall-42", "Turning the history off removes {removed} of the write path's steps.", removed=3
)
def _(said, ev):
    steps = ev.log.write_path.groupby("depth")["step"].apply(set)
    gone = sorted(steps["default"] - steps["0"])
    return decide(len(gone) == said["removed"], f"Gone are: {', '.join(gone) or 'none'}.")


@claim("stall-54", "The machine is slow whenever the cache is warm and the history is kept.")
def _(said, ev):
    cold = ev.log.run("default", 1).elapsed_ms
    warm = [
        (name, runs[1])
        for name, runs in ev.log.runs.items()
        if runs[1].one("entries") and runs[1].env.get("ALLOCATOR_HISTORY_DEPTH") != "0"
    ]
    listed = ", ".join(f"{name} {run.elapsed_ms:.0f} ms" for name, run in warm)
    if len(warm) < 2:
        return unsettled(f"Such requests: {listed or 'none'}.", "several set-ups of that kind")
    return decide(
        all(run.elapsed_ms > 1.1 * cold for _, run in warm),
        f"Requests that found entries with the history kept: {listed}; cold, {cold:.0f} ms.",
    )


@claim("stall-49", "Removing the transaction history removed the stall.")
def _(said, ev):
    run = ev.log.run("history-off", 2)
    found = f"{len(run.env)} settings changed at once: {', '.join(run.env) or 'none'}."
    if list(run.env) != ["ALLOCATOR_HISTORY_DEPTH"]:
        return unsettled(found, "the history's depth changed alone")
    return decide(run.count("STALL") == 0, f"{found} {run.count('STALL')} waits are left.")


# --- the causes, by the rivals' predictions ---------------------------------------------------


def _cause(*names):
    """Contradicted when no form of it survives; undecided beside others; in shape when alone."""

    def check(said, ev):
        table = scoring.verdicts(scoring.score(ev.log, **said))
        alive = list(table.index[table["survives"]])
        own = [name for name in names if name in alive]
        failed = [c for c in table.columns[:-1] if not table.loc[list(names), c].any()]
        if not own:
            first = (failed or ["pass all tests at once"])[0]
            first = first.replace("fits", "fit the").replace("predicts", "predict the")
            return decide(False, f"Its simulator does not {first} runs.")
        if own == alive:
            return decide(False, "Of the rivals tried it alone survives.", in_shape=True)
        rivals = ", ".join(f"'{name}'" for name in alive if name not in own)
        return unsettled(
            f"'{own[0]}' survives, and so do {rivals}.",
            "each setting changed alone, with layer stamps in every trace",
        )

    return check


claim(
    "stall-43",
    "The occupied cache blocks the output buffer that would grow beside it.",
    how="derived",
)(_cause("neighbour", "neighbour, laid out ahead"))
claim("stall-44", "Each layer waits {timeout_ms} ms for a time-out.", how="derived", timeout_ms=25)(
    _cause("retry, as stated")
)
claim("stall-45", "Allocations wait on the history of the request before.", how="derived")(
    _cause("retry, everywhere")
)
