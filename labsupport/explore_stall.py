"""The figure to explore in chapter 1: every stamp of both requests on one time line."""

import altair as alt
import pandas as pd

from labsupport.explore import Figure, choice, tooltips
from labsupport.figures import GAP, LAYER, TOKEN, WARM
from labsupport.stall_log import StallLog

TASK = (
    "Each stretch ends with a stamp; point at it to read both. Count from the first layer and show "
    "300 ms, then from the first token and show 60 ms or 300 ms."
)


def stamps(log: StallLog) -> pd.DataFrame:
    """A row a stamp of the two default requests, in ms from the request's own start.

    state, event, what; before and at: the stamp before it and its own; wait: the time between.
    start, layer and token: three moments to count from. The timer's stop has no stamp before it.
    """
    rows = []
    for state, which in (("cold", 1), ("warm", 2)):
        run, layers = log.run("default", which), log.layer_stamps_ms(state)
        moments = {"start": 0.0, "layer": float(layers[0]), "token": float(run.emissions_ms[0])}
        before = 0.0
        for kind, times in (("layer", layers), ("token", run.emissions_ms)):
            for i, at in enumerate(map(float, times)):
                row = {"state": state, "event": f"{kind} {i}", "what": kind if i else "no event"}
                rows.append(row | {"before": before, "at": at, "wait": at - before} | moments)
                before = at
        timer = {"state": state, "event": "timer stops", "what": "timer"}
        rows.append(timer | {"at": float(run.elapsed_ms)} | moments)
    return pd.DataFrame(rows)


def timeline(log: StallLog) -> Figure:
    """All stamps of `stamps`, to be counted from a moment of choice, at three magnifications."""
    moments = {"its start": "start", "its first layer": "layer", "its first token": "token"}
    origin = choice("origin", "Count from", moments)
    span = choice("span", "Show", {"1,400 ms": 1400, "300 ms": 300, "60 ms": 60})
    shown = alt.Scale(domainMin=alt.expr("-span / 40"), domainMax=alt.expr("span"), nice=False)
    base = alt.Chart().encode(
        x=alt.X("from:Q", scale=shown, title="time since what you chose (ms)"),
        y=alt.Y("state:N", title=None),
    )
    told = {"state_N": "request", "event_N": "up to", "at_Q": "at, ms"}
    colors = alt.Scale(domain=["no event", "layer", "token"], range=[GAP, LAYER, TOKEN])
    bars = base.mark_bar(height=60, clip=True, stroke="#444444", strokeWidth=0.6).encode(
        x2="to:Q",
        color=alt.Color("what:N", scale=colors),
        tooltip=tooltips(**told, wait_Q="took, ms"),
    )
    triangle = alt.Scale(domain=["timer stops"], range=["triangle-down"])
    stops = base.mark_point(size=120, clip=True, yOffset=-42).encode(
        x="to:Q",
        color=alt.value(WARM),
        shape=alt.Shape("event:N", scale=triangle),
        tooltip=tooltips(**told),
    )
    chart = alt.layer(
        bars.transform_filter("datum.what != 'timer'"),
        stops.transform_filter("datum.what == 'timer'"),
    ).transform_calculate(
        **{"from": "datum.before - datum[origin]", "to": "datum.at - datum[origin]"}
    )
    return Figure(
        name="timeline",
        data=stamps(log),
        chart=chart.add_params(origin, span),
        labels={"state": "request", "event": "event", "at": "at (ms)", "wait": "took (ms)"},
        label="All stamps of both requests, and how long after the stamp before each one came",
        task=TASK,
    )
