"""Checks of chapter 1's exercises: what kind of mistake an answer looks like.

Those about reports and about causes are in modules of their own; a notebook finds all of them here.
Times are milliseconds.
"""

import re

import numpy as np

from labsupport import evidence, stall_log
from labsupport.checks import call, exercise
from labsupport.checks_plain import told
from labsupport.checks_stall_causes import clocks, hashes, order, rivals
from labsupport.checks_stall_reports import audit, reference

__all__ = [
    "audit",
    "clocks",
    "hashes",
    "layers",
    "order",
    "reference",
    "rivals",
    "runs",
    "slowdown",
]
STATES = ("cold", "warm")


@exercise("stall", "slowdown", 2)
def slowdown(function):
    for cold, warm in ((847.0, 1204.0), (640.0, 512.0)):
        grows, falls = 100 * (warm / cold - 1), 100 * (1 - cold / warm)
        before, after = (round(12e3 / ms, 1) for ms in (cold, warm))  # as the log rounds them
        told(
            f"slowdown({cold:g}, {warm:g})",
            call(function, cold, warm),
            [grows, falls],
            {
                "the two percentages in the other order": [falls, grows],
                "the growth of the time, twice: a rate has another base": [grows, grows],
                "the fall of the rate, twice: a time has another base": [falls, falls],
                "what is left, in per cent, and not the change": [100 + grows, 100 - falls],
                "rates that were rounded before they were compared": [
                    grows,
                    100 * (1 - after / before),
                ],
            },
        )
    return (
        "Two honest percentages for one change, and the log's 30 % is neither: it comes from "
        "rates that were rounded first. Say of what a percentage is taken."
    )


UNITS = {"s": 1e3, "ms": 1.0, "us": 1e-3}


def _read(text, units=UNITS, tag=r"\[OUTPUT\] ", cut=False, late=True, digits=6):
    """The runs of a trace, or what comes of it when one thing is read wrongly."""
    found = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[TIMER_START]"):
            found.append({"entries": None, "elapsed_ms": None, "tokens_ms": []})
        elif m := re.match(r"\[CACHE_QUERY\] .*entries=(\d+)", line):
            found[-1]["entries"] = int(m[1])
        elif m := re.match(r"\[TIMER_STOP\] elapsed=([\d.]+)(\w+)", line):
            found[-1]["elapsed_ms"] = round(float(m[1]) * units[m[2]], digits)
        elif m := re.search(rf"{tag}token_\d+ emitted: ([\d.]+)(\w+)", line):
            if late or found[-1]["elapsed_ms"] is None:
                found[-1]["tokens_ms"].append(round(float(m[1]) * units[m[2]], digits))
    return [run for run in found if cut or run["elapsed_ms"] is not None]


@exercise("stall", "runs", 4)
def runs(function, text):
    told(
        "read_runs(RAW)",
        call(function, text),
        _read(text),
        {
            "numbers in the unit in which each was printed": _read(text, dict.fromkeys(UNITS, 1.0)),
            "every number read as seconds": _read(text, dict.fromkeys(UNITS, 1e3)),
            "µs multiplied where they should be divided": _read(text, UNITS | {"us": 1e3}),
            "a token that another tag only speaks of": _read(text, tag=""),
            "a run that was cut off, among the finished ones": _read(text, cut=True),
            "a run that ends with its timer: tokens can come later": _read(text, late=False),
            "stamps without their decimals": _read(text, digits=0),
        },
    )
    return (
        "The last token of the second run comes after its timer stopped, as in the log. A reader "
        "that drops what is cut off should say so: labsupport.traces refuses such a trace."
    )


@exercise("stall", "layers", 3)
def layers(function):
    log = stall_log.read(evidence.directory("stall-log"))
    stamps = [log.layer_stamps_ms(state).to_numpy(float) for state in STATES]
    ends = [run.emissions_ms[-1] for run in log.runs["default"]]
    uneven = np.array([[3.0, 5.0, 8.0, 11.0, 13.0], [9.0, 14.0, 21.0, 25.0, 32.0]])
    for name, (cold, warm, *end) in {
        "the log": (*stamps, *ends),
        "five uneven layers": (*uneven, 40.0, 71.0),
    }.items():
        n, loss, excess = len(cold), end[1] - end[0], warm - cold

        def both(step, n=n, loss=loss):
            return [step, n * step / loss]

        step = np.diff(excess).mean()
        told(
            "layer_loss",
            call(function, cold, warm, *end),
            both(step),
            {
                "the steps of the warm column; a cold layer takes time, too": both(
                    np.diff(warm).mean()
                ),
                "the excess at the last layer shared by all: some of it was there before layer 0": (
                    both(excess[-1] / n)
                ),
                "the mean excess; a penalty is what the excess grows by from layer to layer": both(
                    excess.mean()
                ),
                "a share of the warm time; the loss is warm less cold": [step, n * step / end[1]],
                "ten layers, whatever the number of stamps": [step, 10 * step / loss],
                "the slope of a fitted line; the mean step is asked for": both(
                    np.polyfit(np.arange(n), excess, 1)[0]
                ),
                "one step for each stamp; count the steps between them": both(step * (n - 1) / n),
                "a layer too few: the last one costs something as well": [
                    step,
                    (n - 1) * step / loss,
                ],
                "a median of the steps, where the mean is asked for": both(
                    np.median(np.diff(excess))
                ),
            },
            of=f" of {name}",
        )
    return (
        "18 ms a layer, and not half of the 423 ms: the slope that the author saw is real, and "
        "too small. A slope explains a total only when it is multiplied out."
    )
