"""The trace parser: it reads any log in the format, keeps what it does not know, and refuses
damage with the line that shows it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labsupport import stall_log, traces

LOG = Path(__file__).parents[1] / "evidence" / "stall-log"

WHOLE = """\
ENV DEPTH=3
[TIMER_START] 2031-05-06T07:08:09.010Z
[TOKENIZE] 2 tokens generated
[CACHE_QUERY] state=cold, entries=0
[EVICT] slot 7 given up
[FORWARD] layer_0 entry...
[OUTPUT] token_0 emitted: 0.010s
[OUTPUT] token_1 emitted: 0.0125s
[TIMER_STOP] elapsed=13ms
[OUTPUT] hash=00ff
"""


def test_reads_a_log_of_the_readers_own():
    (run,) = traces.read(WHOLE)
    assert run.env == {"DEPTH": "3"}
    assert run.emissions_ms == [10.0, 12.5]
    assert run.token_steps_ms == [2.5]
    assert run.elapsed_ms == 13
    assert run.one("state") == "cold"
    assert run.one("hash") == "00ff"
    assert run.started_at.isoformat() == "2031-05-06T07:08:09.010000+00:00"


def test_reads_a_path_like_text(tmp_path):
    path = tmp_path / "own.log"
    path.write_text(WHOLE, encoding="utf-8")
    assert traces.read(path) == traces.read(str(path)) == traces.read(WHOLE)


def test_unknown_tags_are_kept_with_their_message():
    (run,) = traces.read(WHOLE)
    assert [(e.line, e.message) for e in run.events if e.tag == "EVICT"] == [(5, "slot 7 given up")]
    assert "[EVICT] slot 7 given up" in traces.write([run])


@pytest.mark.parametrize("name", stall_log.TRACES)
def test_writing_gives_back_the_text_that_was_read(name):
    text = (LOG / f"{name}.txt").read_text(encoding="utf-8")
    assert traces.write(traces.read(text)) == text


LINES = WHOLE.splitlines()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda t: t.replace("[TOKENIZE]", "TOKENIZE"), r"line 3: 'TOKENIZE 2 .* is not an event"),
        (lambda t: t.replace("0.010s", "soon"), r"line 7: \[OUTPUT\] cannot read"),
        (lambda t: t.replace("emitted: 0.0125s", "emi"), r"line 8: \[OUTPUT\] cannot read"),
        (lambda t: t.replace("elapsed=13ms", "elapsed=13s"), r"line 9: \[TIMER_STOP\] cannot read"),
        (lambda t: t.replace("2031-05", "2031-55"), r"line 2: \[TIMER_START\]"),
        (lambda t: t.replace("entries=0", "entries=none"), r"line 4: \[CACHE_QUERY\]"),
        (lambda t: t.replace(LINES[1] + "\n", ""), r"line 2: \[TOKENIZE\] comes before any"),
        (lambda t: "\n".join(t.splitlines()[:8]), r"line 2: this run has no \[TIMER_STOP\]"),
        (lambda t: t + t[: t.index("[OUTPUT] hash")], r"line 12: this run has no '\[OUTPUT\] hash"),
        (lambda t: t + LINES[8] + "\n", r"line 11: a second \[TIMER_STOP\]"),
        (lambda t: "\n", r"holds no run"),
        (lambda t: "ENV A=1\n", r"holds no run"),
    ],
)
def test_damage_is_one_error_that_names_the_line(change, complaint):
    with pytest.raises(traces.TraceError, match=complaint):
        traces.read(change(WHOLE))


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(traces.TraceError, match=r"nowhere\.log: no such file"):
        traces.read(tmp_path / "nowhere.log")


def test_a_binary_file_is_refused_by_name(tmp_path):
    path = tmp_path / "core.log"
    path.write_bytes(b"\xff\xfe\x00[TIMER")
    with pytest.raises(traces.TraceError, match=r"core\.log: not UTF-8"):
        traces.read(path)


@given(st.integers(0, len(WHOLE) - 1))
def test_every_cut_is_refused_or_reads_as_a_shorter_whole(cut):
    """A trace cut anywhere is an error, or what is left is still a whole run."""
    try:
        runs = traces.read(WHOLE[:cut] + "\n")
    except traces.TraceError:
        return
    assert all(run.elapsed_ms == 13 for run in runs)
    assert cut >= WHOLE.index("ms\n[OUTPUT] hash") + 2


@pytest.mark.parametrize("name", stall_log.TABLES)
def test_committed_tables_are_what_the_raw_texts_give(name, tmp_path):
    table = stall_log.tables(stall_log.read(LOG))[name]
    table.to_csv(tmp_path / "again.csv", index=False, lineterminator="\n")
    assert (tmp_path / "again.csv").read_bytes() == (LOG / f"{name}.csv").read_bytes()


def test_a_changed_text_changes_its_table(tmp_path):
    for path in LOG.glob("*.txt"):
        text = path.read_text(encoding="utf-8").replace("0.892s", "0.893s")
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    before, after = (stall_log.tables(stall_log.read(d))["events"] for d in (LOG, tmp_path))
    assert len(before.compare(after)) == 1


def test_every_row_of_the_small_tables_is_read():
    """Counts by another route: lines of the raw text that look like rows."""
    log = stall_log.read(LOG)
    text = {path.stem: path.read_text(encoding="utf-8") for path in LOG.glob("*.txt")}
    assert len(log.layers) == 2 * text["layer-table"].count("layer_") == 20
    assert len(log.repeats) == text["repeats"].count(",cold,") + text["repeats"].count(",warm,")
    assert len(log.requests) == text["request-summary"].count("REQUEST_ID=") == 2
    assert len(log.write_path) == text["write-path"].count("[CACHE_WRITE]") == 5
    events = traces.events_table(log.runs)
    assert len(events) == sum(text[name].count("\n[") for name in stall_log.TRACES) + 2
