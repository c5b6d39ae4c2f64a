"""Timing traces: reading a server's event log, and the tidy tables made from it.

A trace is text, one event a line, in the format of the stall log:

    ENV ALLOCATOR_TIMEOUT_ms=0                  a setting, before the run it applies to
    [TIMER_START] 2024-01-15T03:47:22.331Z      a run begins
    [CACHE_QUERY] state=cold, entries=0         any number of events, `[TAG] message`
    [OUTPUT] token_0 emitted: 0.892s
    [TIMER_STOP] elapsed=847ms                  the run's timer ends
    [OUTPUT] hash=9c2a5f1b

A tag that is not known here is kept as an event with its message. Refused are a line that is not an
event, a known tag with a message of another form, tokens that are not 0, 1, 2, ... with stamps that
never fall, and a trace that stops half-way.
"""

import re
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pandas as pd

from labsupport.traceforms import FORMS, INTEGERS, fields_of

EVENT_COLUMNS = [
    "trace", "run", "line", "tag", "message", "started_at", "payload_bytes", "n_tokens", "state",
    "entries", "layer", "mark", "token", "at_ms", "elapsed_ms", "hash",
]  # fmt: skip


class TraceError(ValueError):
    """A trace that cannot be read; the message names the source, the line and the remedy."""


@dataclass(frozen=True)
class Event:
    """One line: its number (from 1), tag, message, and what the message says (`fields`)."""

    line: int
    tag: str
    message: str
    fields: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """The events from one TIMER_START to the next, and the settings in force (`env`)."""

    events: tuple[Event, ...]
    env: dict

    def all(self, name: str, tag: str | None = None) -> list:
        """Every value of field `name`, in the order printed."""
        return [e.fields[name] for e in self.events if name in e.fields and tag in (None, e.tag)]

    def one(self, name: str):
        """The first value of field `name`, or None where the run never states it."""
        values = self.all(name)
        return values[0] if values else None

    def count(self, tag: str) -> int:
        """How many events carry `tag`."""
        return sum(e.tag == tag for e in self.events)

    @property
    def started_at(self) -> datetime:
        """The wall-clock stamp of TIMER_START."""
        return self.one("started_at")

    @property
    def elapsed_ms(self) -> float:
        """What TIMER_STOP printed, in milliseconds."""
        return self.one("elapsed_ms")

    @property
    def emissions_ms(self) -> list[float]:
        """Stamps of the emitted tokens, in milliseconds, in the order printed."""
        return self.all("at_ms")

    @property
    def token_steps_ms(self) -> list[float]:
        """Times between neighbouring emissions, in milliseconds."""
        return [round(b - a, 6) for a, b in pairwise(self.emissions_ms)]


def _event(number: int, line: str, name: str) -> Event:
    head = re.fullmatch(r"\[(\w+)\]\s*(.*)", line)
    if not head:
        raise TraceError(
            f"{name}, line {number}: {line!r} is not an event. Write '[TAG] message' or "
            "'ENV NAME=value', one a line; was a line cut or wrapped?"
        )
    tag, message = head.groups()
    try:
        fields = fields_of(tag, message)
    except (ValueError, OverflowError) as error:  # 2024-13-45: the right form, but no such moment
        raise TraceError(f"{name}, line {number}: [{tag}] {message!r}: {error}.") from error
    if fields is None:
        raise TraceError(
            f"{name}, line {number}: [{tag}] cannot read {message!r}; expected something like "
            f"{' or '.join(map(repr, FORMS[tag]))}. Was the line cut?"
        )
    return Event(number, tag, message, fields)


def _load(source: str | Path) -> tuple[str, str]:
    """The trace's text and the name errors give it; what has a line break is text, not a path."""
    if isinstance(source, str) and "\n" in source:
        return source, "trace"
    try:
        path = Path(source).expanduser()
        return path.read_text(encoding="utf-8-sig"), path.name
    except UnicodeDecodeError as error:
        raise TraceError(f"{path.name}: not UTF-8 text (byte {error.start}).") from error
    except (OSError, RuntimeError) as error:
        if isinstance(source, str) and source.startswith(("[", "ENV ")):
            return source, "trace"  # a single line of a trace
        why = getattr(error, "strerror", None) or error
        raise TraceError(f"{source}: {why}. Give a path, or the trace's text itself.") from error


def _check_whole(run: list[Event], name: str) -> None:
    """Refuse a run that stops half-way, or holds lines twice, in disorder or of another run."""
    first = run[0]
    stops = [e for e in run if e.tag == "TIMER_STOP"]
    if not stops:
        raise TraceError(
            f"{name}, line {first.line}: this run has no [TIMER_STOP] before line "
            f"{run[-1].line + 1}. The trace is truncated; copy it whole."
        )
    if len(stops) > 1:
        raise TraceError(
            f"{name}, line {stops[1].line}: a second [TIMER_STOP] for the run of line "
            f"{first.line}. Is a [TIMER_START] missing between them?"
        )
    tokens = [e for e in run if "token" in e.fields]
    for i, event in enumerate(tokens):
        if event.fields["token"] != i:
            raise TraceError(
                f"{name}, line {event.line}: token_{event.fields['token']} where token_{i} comes "
                "next. Is a line missing, doubled, or of another run?"
            )
        if i and event.fields["at_ms"] < tokens[i - 1].fields["at_ms"]:
            raise TraceError(
                f"{name}, line {event.line}: token_{i} is stamped before token_{i - 1}. "
                "Are the lines of two runs mixed?"
            )


def _check_hashes(runs: list[list[Event]], name: str) -> None:
    """Refuse a trace in which a run's output hash is missing, doubled or cut."""
    hashes = [[e for e in events if "hash" in e.fields] for events in runs]
    if not any(hashes):
        return
    length = max(len(e.fields["hash"]) for found in hashes for e in found)
    for events, found in zip(runs, hashes, strict=True):
        if not found:
            raise TraceError(
                f"{name}, line {events[0].line}: this run has no '[OUTPUT] hash=' line though "
                "others of the trace do. The trace is truncated; copy it whole."
            )
        if len(found) > 1 or len(found[0].fields["hash"]) < length:
            raise TraceError(
                f"{name}, line {found[-1].line}: hash={found[-1].fields['hash']} is a second hash "
                "of its run, or shorter than others of the trace. Was the line cut or doubled?"
            )


def read(source: str | Path) -> list[Run]:
    """The runs of a trace, from a path or from the text itself.

    Raises TraceError for what the module's docstring says is refused, for an event before the first
    [TIMER_START] or a setting within a run, and for a trace without a run.
    """
    text, name = _load(source)
    env, groups, pending = {}, [], None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line:
            continue
        setting = re.fullmatch(r"ENV (\w+)=(.*)", line)
        if setting:
            if groups and not any(e.tag == "TIMER_STOP" for e in groups[-1][1]):
                raise TraceError(
                    f"{name}, line {number}: a setting inside the run of line "
                    f"{groups[-1][1][0].line}. Put it before the [TIMER_START] it applies to."
                )
            env, pending = {**env, setting[1]: setting[2]}, number
            continue
        event = _event(number, line, name)
        if event.tag == "TIMER_START":
            groups.append((env, []))
            pending = None
        if not groups:
            raise TraceError(
                f"{name}, line {number}: [{event.tag}] comes before any [TIMER_START]. "
                "Start the trace with the line that starts its timer."
            )
        groups[-1][1].append(event)
    if not groups:
        raise TraceError(f"{name}: holds no run; a run starts with a [TIMER_START] line.")
    if pending:
        raise TraceError(
            f"{name}, line {pending}: no run follows this setting. The trace is truncated; copy it "
            "whole."
        )
    for _, events in groups:
        _check_whole(events, name)
    _check_hashes([events for _, events in groups], name)
    return [Run(tuple(events), env) for env, events in groups]


def write(runs: list[Run]) -> str:
    """The trace's text again: the settings that changed, then each event as it was printed."""
    lines, env = [], {}
    for run in runs:
        lines += [f"ENV {k}={v}" for k, v in run.env.items() if env.get(k) != v]
        lines += [f"[{e.tag}] {e.message}".rstrip() for e in run.events]
        env = run.env
    return "\n".join(lines) + "\n"


def events_table(traces: dict[str, list[Run]]) -> pd.DataFrame:
    """One row an event, columns EVENT_COLUMNS (times in ms); `run` counts from 1 in its trace."""
    rows = [
        {"trace": name, "run": i, "line": e.line, "tag": e.tag, "message": e.message, **e.fields}
        for name, runs in traces.items()
        for i, run in enumerate(runs, 1)
        for e in run.events
    ]
    table = pd.DataFrame(rows).reindex(columns=EVENT_COLUMNS)
    table["started_at"] = table["started_at"].map(
        lambda t: t.isoformat(timespec="milliseconds") if pd.notna(t) else ""
    )
    return table.astype({name: "Int64" for name in INTEGERS})
