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
        (lambda t: t + LINES[9] + "\n", r"line 11: hash=00ff is a second hash"),
        (lambda t: t + t.replace("00ff", "00f"), r"line 20: hash=00f is a second hash.* shorter"),
        (lambda t: t.replace("hash=00ff", "hash="), r"line 10: \[OUTPUT\] cannot read"),
        (lambda t: t.replace(LINES[6] + "\n", ""), r"line 7: token_1 where token_0 comes next"),
        (lambda t: t.replace("token_1", "token_0"), r"line 8: token_0 where token_1 comes next"),
        (lambda t: t.replace("0.0125s", "0.009s"), r"line 8: token_1 is stamped before token_0"),
        (lambda t: t.replace(LINES[3], "ENV MID=1"), r"line 4: a setting inside the run of line 2"),
        (lambda t: t + "ENV LATE=1\n", r"line 11: no run follows this setting"),
        (lambda t: t.replace("entries=0", "entries=" + "9" * 25), r"line 4: \[CACHE_QUERY\]"),
        (lambda t: t.replace("0.010s", "9" * 400 + "s"), r"line 7: \[OUTPUT\]"),
        (lambda t: t.replace("2 tokens", "\u0662 tokens"), r"line 3: \[TOKENIZE\]"),
        (lambda t: "\n", r"holds no run"),
        (lambda t: "ENV A=1\n", r"holds no run"),
    ],
)
def test_damage_is_one_error_that_names_the_line(change, complaint):
    with pytest.raises(traces.TraceError, match=complaint):
        traces.read(change(WHOLE))


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(traces.TraceError, match=r"nowhere\.log: No such file"):
        traces.read(tmp_path / "nowhere.log")
    with pytest.raises(traces.TraceError, match="Give a path"):
        traces.read(tmp_path)  # a directory
    with pytest.raises(traces.TraceError, match="Give a path"):
        traces.read("x" * 5000)


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    path = tmp_path / "notepad.log"
    path.write_bytes(b"\xef\xbb\xbf" + WHOLE.replace("\n", "\r\n").encode())
    assert traces.read(path) == traces.read(WHOLE)


def test_a_path_may_look_like_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "[my].log").write_text(WHOLE, encoding="utf-8")
    assert traces.read("[my].log") == traces.read("~/[my].log") == traces.read(WHOLE)
    with pytest.raises(traces.TraceError, match=r"trace, line 1: this run has no"):
        traces.read("[TIMER_START] 2031-05-06T07:08:09.010Z")


def test_settings_that_change_between_runs_are_kept():
    two = WHOLE + "ENV DEPTH=0\nENV NEW=x\n" + WHOLE.split("\n", 1)[1]
    first, second = traces.read(two)
    assert (first.env, second.env) == ({"DEPTH": "3"}, {"DEPTH": "0", "NEW": "x"})
    assert traces.write([first, second]) == two


def test_the_first_of_several_values_is_the_one():
    (run,) = traces.read(WHOLE)
    assert run.one("at_ms") == 10.0
    assert run.one("nothing") is None


def test_a_hash_missing_from_a_later_run_is_noticed():
    with pytest.raises(traces.TraceError, match=r"line 11: this run has no '\[OUTPUT\] hash"):
        traces.read(WHOLE + WHOLE[WHOLE.index("[TIMER") : WHOLE.index("[OUTPUT] hash")])


@pytest.mark.parametrize(
    ("name", "old", "new", "line"),
    [
        ("layer-table", "0.168s STALL", "0.168 STALL", 6),
        ("layer-table", "0.456s", "0.456s ", 12),
        ("layer-table", "ENTRY 0.147s", "STALL 0.147s", 3),
        ("repeats", "2,cold,856,12", " 2,cold,856,12", 7),
        ("repeats", "MEAN_cold: 848ms", "MEAN_cold: 848", 15),
        ("write-path", "depth=0", "depth", 6),
        ("write-path", "depth=0", "\ndepth=0", 6),
        ("request-summary", "EXIT_CODE=0", "EXIT_CODE", 8),
    ],
)
def test_a_damaged_line_of_a_table_is_named(name, old, new, line, tmp_path):
    for path in LOG.glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        text = text.replace(old, new, 1) if path.stem == name else text
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    with pytest.raises(traces.TraceError, match=rf"{name}\.txt, line {line}: cannot read"):
        stall_log.read(tmp_path)


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
