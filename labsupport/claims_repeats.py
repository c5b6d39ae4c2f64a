"""Claims of the stall log's repeats, throughput and summary box, recomputed.

Times are milliseconds; `ev.log` is the stall log.
"""

from itertools import pairwise

from scipy import stats

from labsupport.claims import Claim, decide, register, unsettled
from labsupport.claims_stall import as_printed

CLAIMS: list[Claim] = []
claim = register(CLAIMS, "stall")


# --- the five repeats -------------------------------------------------------------------------


def _mean_claim(state):
    def check(said, ev):
        mean = ev.log.times_ms(state).mean()
        return decide(
            round(mean) == said["mean_ms"],
            f"The mean of the five is {mean:.1f}: {round(mean)} rounded, {int(mean)} cut off.",
            in_shape=int(mean) == said["mean_ms"],
        )

    return check


claim("stall-16", "The cold mean is {mean_ms} ms.", mean_ms=848)(_mean_claim("cold"))
claim("stall-17", "The warm mean is {mean_ms} ms.", mean_ms=1200)(_mean_claim("warm"))


def _deviation_claim(state):
    def check(said, ev):
        rows = ev.log.repeats[ev.log.repeats["state"] == state]
        references = sorted(set(rows["time_ms"] - rows["printed_deviation_ms"]))
        mean = rows["time_ms"].mean()
        return decide(
            len(references) == 1 and abs(references[0] - mean) <= 0.5,
            f"Time less printed deviation is {', '.join(map(str, references))} in every row; the "
            f"mean is {mean:.1f}, and the deviations sum to {rows['printed_deviation_ms'].sum()}.",
        )

    return check


claim("stall-18", "The cold deviations are from the mean.")(_deviation_claim("cold"))
claim("stall-19", "The warm deviations are from the mean.")(_deviation_claim("warm"))


def _spread_claim(state):
    def check(said, ev):
        times = ev.log.times_ms(state)
        spreads = {ddof: times.std(ddof=ddof) for ddof in (0, 1)}
        return decide(
            said["sd_ms"] in {round(s, 1) for s in spreads.values()},
            f"It is {spreads[0]:.1f} ms over n, {spreads[1]:.1f} ms over n - 1; printed "
            f"{said['sd_ms']}.",
        )

    return check


claim("stall-20", "The cold standard deviation is {sd_ms} ms.", sd_ms=6.2)(_spread_claim("cold"))
claim("stall-21", "The warm standard deviation is {sd_ms} ms.", sd_ms=10.8)(_spread_claim("warm"))


@claim("stall-22", "The column headed 'variance from mean' holds variances.")
def _(said, ev):
    printed = ev.log.repeats["printed_deviation_ms"]
    return decide(
        bool((printed >= 0).all()),
        f"{(printed < 0).sum()} of {len(printed)} values are negative: they are deviations.",
    )


@claim("stall-23", "Warm is slower beyond what jitter could do.")
def _(said, ev):
    cold, warm = ev.log.times_ms("cold"), ev.log.times_ms("warm")
    t = stats.ttest_ind(warm, cold, equal_var=False).statistic
    return decide(
        warm.min() > cold.max(),
        f"The fastest warm run ({warm.min()} ms) is {warm.min() - cold.max()} ms slower than the "
        f"slowest cold one; Welch's t = {t:.0f}.",
    )


@claim(
    "stall-24", "The penalty is one fixed, deterministic amount, {penalty_ms} ms.", penalty_ms=357
)
def _(said, ev):
    penalty = ev.log.times_ms("warm") - ev.log.times_ms("cold")
    near = abs(penalty.mean() - said["penalty_ms"]) < 0.05 * said["penalty_ms"]
    return decide(
        bool((penalty == said["penalty_ms"]).all()),
        f"The five differences are {', '.join(map(str, penalty))} ms, mean {penalty.mean():.1f}.",
        in_shape=near,
    )


@claim("stall-25", "The penalty comes with the warm state.")
def _(said, ev):
    pairs = [
        (rows["state"].iloc[0], dict(zip(rows["state"], rows["time_ms"], strict=True)))
        for _, rows in ev.log.repeats.groupby("run", sort=False)
    ]
    slower = {
        first: [times["warm"] > times["cold"] for state, times in pairs if state == first]
        for first in ("cold", "warm")
    }
    found = f"In {len(slower['cold'])} of {len(pairs)} repeats the cold request comes first."
    if not slower["warm"]:
        return unsettled(
            f"{found} That two second requests were fast in other set-ups shows only that coming "
            "second is not enough.",
            "pairs in random order",
        )
    return decide(
        all(slower["cold"]) and all(slower["warm"]),
        f"{found} Warm is slower in {sum(slower['cold'])} of those, and in "
        f"{sum(slower['warm'])} of {len(slower['warm'])} in which it comes first.",
    )


# --- throughput -------------------------------------------------------------------------------


@claim(
    "stall-26",
    "{tokens} tokens in {time_ms} ms are {per_s} tokens per second.",
    tokens=12,
    time_ms=847,
    per_s=14.2,
)
def _rate(said, ev):
    return as_printed(said["per_s"], 1000 * said["tokens"] / said["time_ms"], "The rate", 1)


claim(
    "stall-27",
    "{tokens} tokens in {time_ms} ms are {per_s} tokens per second.",
    tokens=12,
    time_ms=1200,
    per_s=10.0,
)(_rate)


@claim(
    "stall-28",
    "From {cold} to {warm} tokens per second is output {percent} % slower.",
    cold=14.2,
    warm=10.0,
    percent=30,
)
def _(said, ev):
    cold, warm = 12e3 / ev.log.requests["time_ms"].iloc[0], 12e3 / ev.log.printed["mean_warm_ms"]
    exact, rounded = 100 * (1 - warm / cold), 100 * (1 - said["warm"] / said["cold"])
    return decide(
        round(exact) == said["percent"],
        f"{exact:.1f} % from the times, {rounded:.1f} % from the rounded rates; the time itself "
        f"grows by {100 * (cold / warm - 1):.1f} %.",
        in_shape=round(rounded) == said["percent"],
    )


@claim(
    "stall-29",
    "In continuous use the machine serves one warm request every {every_ms} ms.",
    every_ms=1200,
)
def _(said, ev):
    rows = [(run.one("state"), run.elapsed_ms) for run in ev.log.runs["default"]]
    rows += list(zip(ev.log.repeats["state"], ev.log.repeats["time_ms"], strict=True))
    in_a_row = [now for before, now in pairwise(rows) if before[0] == now[0] == "warm"]
    n_warm = sum(state == "warm" for state, _ in rows)
    found = f"{len(in_a_row)} of {n_warm} warm requests follow a warm one"
    if not in_a_row:
        return unsettled(f"{found}.", "a warm request after a warm request, many times")
    mean = sum(ms for _, ms in in_a_row) / len(in_a_row)
    return decide(
        abs(mean - said["every_ms"]) < 0.02 * said["every_ms"],
        f"{found}, and take {mean:.0f} ms.",
    )


# --- the summary box --------------------------------------------------------------------------


def _box_claim(trace, which, state):
    def check(said, ev):
        run = ev.log.run(trace, which)
        matches = run.elapsed_ms == said["time_ms"]
        return decide(
            matches and (run.one("entries") == 0) == (state == "cold"),
            f"{run.elapsed_ms:.0f} ms is request {which} of '{trace}', which found "
            f"{run.one('entries')} entries.",
        )

    return check


claim("stall-30", "The second run's cold time is {time_ms} ms.", time_ms=823)(
    _box_claim("preallocated", 2, "cold")
)
claim("stall-31", "The second run's warm time is {time_ms} ms.", time_ms=792)(
    _box_claim("history-off", 2, "warm")
)


# --- smaller statements -----------------------------------------------------------------------


@claim("stall-50", "The variance of the repeats is low.")
def _(said, ev):
    spread = {s: ev.log.times_ms(s).std() / ev.log.times_ms(s).mean() for s in ("cold", "warm")}
    return decide(
        max(spread.values()) < 0.02,
        "The standard deviations are "
        + " and ".join(f"{share:.1%} of the {state} mean" for state, share in spread.items())
        + ".",
    )


@claim("stall-51", "The penalty is {penalty} tokens per second.", penalty=4.2)
def _(said, ev):
    cold, warm = ev.log.requests["time_ms"].iloc[0], ev.log.printed["mean_warm_ms"]
    return as_printed(said["penalty"], 12e3 / cold - 12e3 / warm, "The difference of the rates", 1)


@claim("stall-52", "A warm cache costs more tokens.")
def _(said, ev):
    cold, warm = (len(run.emissions_ms) for run in ev.log.runs["default"])
    return decide(warm > cold, f"{cold} tokens were emitted cold and {warm} warm.")
