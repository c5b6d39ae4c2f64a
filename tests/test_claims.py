"""The ledger: every verdict is computed, and follows the figures it is computed from.

For each claim one figure, of the source or of the record, is doctored; its verdict must change to
the one named. A check that looked at nothing, or at its own answer, would not follow.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from doctoring import check_that_it_follows

from labsupport import claims, claims_stall, ledger, scoring, traces
from labsupport import evidence as recorded

STALL = {claim.id: claim for claim in ledger.of_chapter("stall")}
EVIDENCE = ledger.evidence_of("stall")


def events_edited(trace, which, edit):
    """Evidence in which the text of a trace's events went through `edit(tag, message)`."""
    run = EVIDENCE.log.run(trace, which)
    lines = [f"[{e.tag}] {edit(e.tag, e.message)}" for e in run.events]
    edited = replace(traces.read("\n".join(lines) + "\n")[0], env=run.env)
    return run_replaced(trace, which, edited)


def run_replaced(trace, which, run):
    runs = list(EVIDENCE.log.runs[trace])
    runs[which - 1] = run
    return EVIDENCE.with_log(runs={**EVIDENCE.log.runs, trace: runs})


def swapped(old, new, trace="default", which=2):
    def edit(tag, message):
        return message.replace(old, new)

    return events_edited(trace, which, edit)


def every_stop(late_ms):
    """All timers stop `late_ms` after the last token."""
    runs = {}
    for name, pair in EVIDENCE.log.runs.items():
        runs[name] = []
        for run in pair:
            stop = f"elapsed={run.emissions_ms[-1] + late_ms:.0f}ms"
            lines = [
                f"[{e.tag}] {stop if e.tag == 'TIMER_STOP' else e.message}" for e in run.events
            ]
            runs[name].append(replace(traces.read("\n".join(lines) + "\n")[0], env=run.env))
    return EVIDENCE.with_log(runs=runs)


def second_starts_at(clock_by_trace):
    runs = dict(EVIDENCE.log.runs)
    for name, clock in clock_by_trace.items():
        run = runs[name][1]
        lines = [f"[{e.tag}] {clock if e.tag == 'TIMER_START' else e.message}" for e in run.events]
        second = replace(traces.read("\n".join(lines) + "\n")[0], env=run.env)
        runs[name] = [runs[name][0], second]
    return EVIDENCE.with_log(runs=runs)


def layers(state, stamps):
    table = EVIDENCE.log.layers.copy()
    table.loc[table["state"] == state, "at_ms"] = list(stamps)
    return EVIDENCE.with_log(layers=table)


def repeats(**columns):
    return EVIDENCE.with_log(repeats=EVIDENCE.log.repeats.assign(**columns))


def times(state, values):
    table = EVIDENCE.log.repeats.copy()
    table.loc[table["state"] == state, "time_ms"] = list(values)
    return EVIDENCE.with_log(repeats=table)


def deviations_from_the_mean():
    table = EVIDENCE.log.repeats
    mean = table.groupby("state")["time_ms"].transform("mean").round()
    return repeats(printed_deviation_ms=table["time_ms"] - mean.astype(int))


def unmarked(trace, which):
    """The run with waits and stalled layers, as the default warm one has them."""
    return run_replaced(trace, which, EVIDENCE.log.run("default", 2))


def env_of(trace, env):
    return run_replaced(trace, 2, replace(EVIDENCE.log.run(trace, 2), env=env))


def stamped_stalls(ms):
    """Every wait of the warm run carries a time, as the log should have printed."""
    run = EVIDENCE.log.run("default", 2)
    events = [
        replace(e, fields={**e.fields, "at_ms": ms}) if e.tag == "STALL" else e for e in run.events
    ]
    return run_replaced("default", 2, replace(run, events=tuple(events)))


def stamped_layers(first_step, second_step):
    """The preallocated pair with a layer table of its own."""
    runs = []
    for run, step in zip(EVIDENCE.log.runs["preallocated"], (first_step, second_step), strict=True):
        events = [
            replace(e, fields={**e.fields, "at_ms": 100 + step * e.fields["layer"]})
            if e.tag == "FORWARD"
            else e
            for e in run.events
        ]
        runs.append(replace(run, events=tuple(events)))
    return EVIDENCE.with_log(runs={**EVIDENCE.log.runs, "preallocated": runs})


def a_pair_warm_first(warm_ms):
    """The first repeat turned round, its warm request taking `warm_ms`."""
    table = EVIDENCE.log.repeats.iloc[[1, 0, *range(2, 10)]].reset_index(drop=True)
    table.loc[0, "time_ms"] = warm_ms
    return EVIDENCE.with_log(repeats=table)


def pairs_times(trace, n):
    return EVIDENCE.with_log(runs={**EVIDENCE.log.runs, trace: list(EVIDENCE.log.runs[trace]) * n})


def warm_slowed(factor, where=None):
    """The searched rows with warm times multiplied, in all cells or where `where` holds."""
    rows = EVIDENCE.searched.copy()
    hit = rows["path"] == "warm"
    if where is not None:
        hit &= where(rows)
    rows.loc[hit, "total_ns"] = (rows.loc[hit, "total_ns"] * factor).astype(int)
    return replace(EVIDENCE, searched=rows)


def preallocated_warm_as_cold():
    """Preallocated cells in which warm takes half as long as cold."""
    rows = EVIDENCE.searched.copy()
    key = [c for c in rows.columns[: list(rows.columns).index("round") + 1]]
    cold = rows[rows["path"] == "cold"].set_index(key)["total_ns"]
    hit = (rows["path"] == "warm") & (rows["cache"] == "preallocated")
    rows.loc[hit, "total_ns"] = (
        cold.loc[pd.MultiIndex.from_frame(rows.loc[hit, key])].to_numpy() // 2
    )
    return replace(EVIDENCE, searched=rows)


HOLDS, IN_SHAPE = claims.HOLDS, claims.IN_SHAPE
CONTRADICTED, CANNOT_TELL = claims.CONTRADICTED, claims.CANNOT_TELL

# id: (doctored figures of the source or None, doctored evidence or None, the verdict then)
DOCTORED = {
    "stall-01": ({"warm_ms": 1205}, None, CONTRADICTED),
    "stall-02": ({"difference_ms": 375}, None, CONTRADICTED),
    "stall-03": (
        None,
        lambda: second_starts_at({"default": "2024-01-15T03:47:23.178Z"}),
        HOLDS,
    ),
    "stall-04": ({"input_us": 13_000, "weights_us": 12_000}, None, HOLDS),
    "stall-05": (None, lambda: every_stop(1), HOLDS),
    "stall-06": (
        None,
        lambda: second_starts_at(
            {
                "preallocated": "2024-01-15T03:48:02.133Z",
                "history-off": "2024-01-15T03:48:46.203Z",
            }
        ),
        HOLDS,
    ),
    "stall-07": ({"warm": 6}, None, CONTRADICTED),
    "stall-08": (None, lambda: swapped("layer_3 stalled.", "layer_3 entry..."), CONTRADICTED),
    "stall-09": (None, lambda: layers("warm", [*range(231, 456, 25), 457]), CONTRADICTED),
    "stall-10": ({"penalty_ms": 18}, None, HOLDS),
    "stall-11": ({"warm_ms": 1097}, None, HOLDS),
    "stall-12": (None, lambda: run_replaced("default", 2, ten_spread_waits()), HOLDS),
    "stall-13": (
        None,
        lambda: layers("cold", [147, 153, 162, 168, 177, 181, 190, 195, 204, 210]),
        HOLDS,
    ),
    "stall-14": (
        None,
        lambda: layers("warm", 231 + np.cumsum([0, 10, 13, 16, 19, 22, 25, 28, 31, 34])),
        HOLDS,
    ),
    "stall-15": (None, lambda: layers("warm", range(231, 901, 74)), HOLDS),
    "stall-16": ({"mean_ms": 847}, None, CONTRADICTED),
    "stall-17": ({"mean_ms": 1201}, None, HOLDS),
    "stall-18": (None, deviations_from_the_mean, HOLDS),
    "stall-19": (None, deviations_from_the_mean, HOLDS),
    "stall-20": ({"sd_ms": 6.6}, None, HOLDS),
    "stall-21": ({"sd_ms": 8.5}, None, HOLDS),
    "stall-22": (None, lambda: repeats(printed_deviation_ms=9), HOLDS),
    "stall-23": (None, lambda: times("warm", [850, 1187, 1205, 1200, 1213]), CONTRADICTED),
    "stall-24": (None, lambda: times("warm", [1198, 1213, 1205, 1200, 1211]), HOLDS),
    "stall-25": (
        None,
        lambda: EVIDENCE.with_log(repeats=EVIDENCE.log.repeats.iloc[[1, 0, *range(2, 10)]]),
        HOLDS,
    ),
    "stall-26": ({"per_s": 14.1}, None, CONTRADICTED),
    "stall-27": ({"time_ms": 1204, "per_s": 10.2}, None, CONTRADICTED),
    "stall-28": ({"percent": 29}, None, HOLDS),
    "stall-29": (None, lambda: repeats(state="warm", time_ms=1200), HOLDS),
    "stall-30": (None, lambda: swapped("entries=12", "entries=0", "preallocated"), HOLDS),
    "stall-31": ({"time_ms": 823}, None, CONTRADICTED),
    "stall-32": (None, lambda: stamped_stalls(423 / 5), HOLDS),
    "stall-33": (None, lambda: unmarked("preallocated", 2), CONTRADICTED),
    "stall-34": (None, lambda: unmarked("history-off", 2), CONTRADICTED),
    "stall-35": (None, lambda: stamped_layers(7, 7), HOLDS),
    "stall-36": (None, lambda: times("warm", [1150, 1250, 1205, 1160, 1240]), CONTRADICTED),
    "stall-37": (
        None,
        lambda: swapped("elapsed=792ms", "elapsed=848ms", "history-off"),
        CONTRADICTED,
    ),
    "stall-38": (None, lambda: states_as_by_default(), HOLDS),
    "stall-39": (None, lambda: five_in_a_row(), HOLDS),
    "stall-40": (None, lambda: swapped("9c2a5f1b", "9c2a5f1c", "history-off"), CONTRADICTED),
    "stall-41": (None, lambda: replace(EVIDENCE, damage=lambda kind: None), CONTRADICTED),
    "stall-42": ({"removed": 4}, None, CONTRADICTED),
    "stall-43": (None, lambda: only_the_neighbour_as_drawn_fits(), IN_SHAPE),
    "stall-44": (None, lambda: only_layers_are_late(), CANNOT_TELL),
    "stall-45": (None, lambda: unmarked("preallocated", 2), CONTRADICTED),
    "stall-46": (None, lambda: warm_slowed(0.01), CANNOT_TELL),
    "stall-47": (None, lambda: warm_slowed(0.01), HOLDS),
    "stall-48": (None, preallocated_warm_as_cold, HOLDS),
    "stall-50": (None, lambda: times("warm", [1100, 1187, 1205, 1200, 1313]), CONTRADICTED),
    "stall-51": ({"penalty": 4.1}, None, CONTRADICTED),
    "stall-52": (None, lambda: one_token_more(), HOLDS),
    "stall-53": (None, lambda: replace(EVIDENCE, damage=lambda kind: 2.0), HOLDS),
    "stall-54": (None, lambda: swapped("elapsed=823ms", "elapsed=1200ms", "preallocated"), HOLDS),
    "stall-49": (None, lambda: env_of("history-off", {"ALLOCATOR_HISTORY_DEPTH": "0"}), HOLDS),
}


def states_as_by_default():
    """The preallocated pair, printing its cache states as the default pair does."""
    runs = []
    for run, state in zip(EVIDENCE.log.runs["preallocated"], ("cold", "warm"), strict=True):
        lines = [
            f"[{e.tag}] {e.message.replace('state=preallocated', f'state={state}')}"
            for e in run.events
        ]
        runs.append(traces.read("\n".join(lines) + "\n")[0])
    return EVIDENCE.with_log(runs={**EVIDENCE.log.runs, "preallocated": runs})


def ten_spread_waits():
    """The warm run with one wait before each layer, as a time-out a layer would print."""
    lines = []
    for e in EVIDENCE.log.run("default", 2).events:
        if e.tag == "STALL":
            continue
        if e.tag == "FORWARD":
            lines.append("[STALL] waiting for previous allocation")
        lines.append(f"[{e.tag}] {e.message}")
    return traces.read("\n".join(lines) + "\n")[0]


def five_in_a_row():
    """All repeats belong to one run of requests: the first cold and fast, the others slow."""
    times = [840, *[1200 + i for i in range(9)]]
    return repeats(run=1, time_ms=times)


def one_token_more():
    run = EVIDENCE.log.run("default", 2)
    lines = [f"[{e.tag}] {e.message}" for e in run.events]
    lines.insert(-2, "[OUTPUT] token_12 emitted: 1.380s")
    return run_replaced("default", 2, traces.read("\n".join(lines) + "\n")[0])


def only_the_neighbour_as_drawn_fits():
    """Both interventions leave every request as slow as the author's drawing says."""
    warm = EVIDENCE.log.run("default", 2)
    cold = EVIDENCE.log.run("default", 1)
    runs = {"preallocated": [warm, warm], "history-off": [cold, warm]}
    return EVIDENCE.with_log(runs={**EVIDENCE.log.runs, **runs})


def only_layers_are_late():
    """A warm run that lost 25 ms in each layer, nothing else, and ran that way every time."""
    cold, warm = EVIDENCE.log.runs["default"]
    later, text = 10 * 25, []
    for e in warm.events:
        message = e.message
        if "at_ms" in e.fields:
            token = e.fields["token"]
            message = f"token_{token} emitted: {(cold.emissions_ms[token] + later) / 1000:.3f}s"
        if e.tag == "TIMER_STOP":
            message = f"elapsed={cold.elapsed_ms + later:.0f}ms"
        text.append(f"[{e.tag}] {message}")
    slow = traces.read("\n".join(text) + "\n")[0]
    table = EVIDENCE.log.layers.copy()
    stamps = EVIDENCE.log.layer_stamps_ms("cold")
    table.loc[table["state"] == "warm", "at_ms"] = list(stamps + 25 * np.arange(1, 11))
    runs = dict(EVIDENCE.log.runs, default=[cold, slow])
    late = EVIDENCE.log.repeats["state"].eq("warm") * later + 847
    return EVIDENCE.with_log(
        runs=runs, layers=table, repeats=EVIDENCE.log.repeats.assign(time_ms=late)
    )


def test_every_claim_is_doctored_once():
    assert set(DOCTORED) == set(STALL)
    assert len(STALL) >= 40


@pytest.mark.parametrize("id", sorted(DOCTORED))
def test_a_doctored_figure_changes_the_verdict(id):
    check_that_it_follows(STALL[id], EVIDENCE, *DOCTORED[id])


def test_the_ledger_holds_several_of_each_kind():
    counts = ledger.counts().loc["The stall puzzle"]
    assert counts.sum() == len(STALL)
    assert counts["contradicted"] >= 5
    assert (counts > 0).all()


def test_no_verdict_or_finding_is_stored_in_the_claims():
    """The modules name verdicts only through decide() and unsettled()."""
    for module in [module for chapter in ledger.CHAPTERS.values() for module in chapter.modules]:
        text = Path(module.__file__).read_text(encoding="utf-8")
        assert "Finding(" not in text.replace("-> Finding", "")


@pytest.mark.parametrize("chapter", ledger.CHAPTERS)
def test_statements_state_their_figures(chapter):
    for claim in ledger.of_chapter(chapter):
        used = set(re.findall(r"\{(\w+)", claim.statement))
        assert used == set(claim.figures), claim.id
        for figure in claim.figures.values():
            assert str(figure) in claim.text(), claim.id


def test_figures_are_those_that_the_log_prints():
    """Where the log's own texts hold a figure, the claim states that one."""
    directory = recorded.directory("stall-log")
    box, rates = (
        (directory / f"{name}.txt").read_text(encoding="utf-8")
        for name in ("summary-box", "throughput")
    )
    printed = EVIDENCE.log.printed
    says = {id: claim.figures for id, claim in STALL.items()}
    assert says["stall-16"]["mean_ms"] == printed["mean_cold_ms"]
    assert says["stall-17"]["mean_ms"] == printed["mean_warm_ms"]
    assert says["stall-20"]["sd_ms"] == printed["stddev_cold_ms"]
    assert says["stall-21"]["sd_ms"] == printed["stddev_warm_ms"]
    assert f"difference: {says['stall-02']['difference_ms']}ms" in box
    assert f"{says['stall-30']['time_ms']}ms {says['stall-31']['time_ms']}ms" in box
    for id in ("stall-26", "stall-27"):
        assert f"{says[id]['tokens']} tokens / {says[id]['time_ms']}ms" in rates
        assert f"{says[id]['per_s']} tps" in rates
    assert f"{says['stall-28']['percent']}% slower" in rates
    assert f"penalty: {says['stall-51']['penalty']} tokens/sec" in rates


# Findings beside the verdict's edge: the same claim, a little less or a little more.
EDGES = {
    "two settings changed": (
        "stall-49",
        lambda: env_of("history-off", {"A": "0", "B": "0"}),
        CANNOT_TELL,
    ),
    "penalty far from one amount": (
        "stall-24",
        lambda: times("warm", [1000, 1010, 1020, 1030, 1040]),
        CONTRADICTED,
    ),
    "half the waits": ("stall-12", lambda: EVIDENCE, CANNOT_TELL),
    "ten waits, all first": (
        "stall-12",
        lambda: run_replaced("default", 2, ten_waits_first()),
        CANNOT_TELL,
    ),
    "faster in few set-ups": ("stall-47", lambda: warm_slowed(3), CONTRADICTED),
    "bent warm steps": (
        "stall-13",
        lambda: layers("warm", [231, 250, 281, 300, 331, 356, 381, 400, 431, 456]),
        CONTRADICTED,
    ),
    "a pair within the spread": (
        "stall-36",
        lambda: swapped("elapsed=823ms", "elapsed=832ms", "preallocated"),
        CONTRADICTED,
    ),
    "waits far too short": ("stall-32", lambda: stamped_stalls(10.0), CONTRADICTED),
    "no waits at all": (
        "stall-32",
        lambda: run_replaced("default", 2, EVIDENCE.log.run("default", 1)),
        CANNOT_TELL,
    ),
    "layers still late": ("stall-35", lambda: stamped_layers(7, 25), CONTRADICTED),
    "warm first and faster": ("stall-25", lambda: a_pair_warm_first(100), CONTRADICTED),
    "warm first and slower": ("stall-25", lambda: a_pair_warm_first(1198), HOLDS),
    "warm in a row, fast": (
        "stall-29",
        lambda: repeats(state="warm", time_ms=900),
        CONTRADICTED,
    ),
    "no setting changed": ("stall-49", lambda: env_of("history-off", {}), CANNOT_TELL),
    "one case is no rule": (
        "stall-54",
        lambda: EVIDENCE.with_log(runs={"default": EVIDENCE.log.runs["default"]}),
        CANNOT_TELL,
    ),
    "nothing to cure": ("stall-48", lambda: warm_slowed(0.01), CANNOT_TELL),
    "a harmless fault": (
        "stall-53",
        lambda: replace(EVIDENCE, damage=lambda kind: None),
        CANNOT_TELL,
    ),
    "five pairs": ("stall-36", lambda: pairs_times("preallocated", 5), HOLDS),
    "a pair of other times": (
        "stall-37",
        lambda: swapped("elapsed=792ms", "elapsed=700ms", "history-off"),
        CONTRADICTED,
    ),
}


@pytest.mark.parametrize("case", EDGES)
def test_a_verdict_has_an_edge(case):
    id, evidence, verdict = EDGES[case]
    assert STALL[id].finding(evidence()).verdict == verdict


def ten_waits_first():
    run = EVIDENCE.log.run("default", 2)
    lines = [f"[{e.tag}] {e.message}" for e in run.events]
    lines[4:4] = ["[STALL] waiting for previous allocation"] * 5
    return traces.read("\n".join(lines) + "\n")[0]


def test_one_pair_is_judged_by_the_pooled_spread():
    """By hand: squares 173.2 and 365.2 over 4, a difference of 28 over two single requests."""
    sd = np.sqrt((173.2 / 4 + 365.2 / 4) / 2)
    assert (
        f"{28 / (sd * np.sqrt(2)):.1f} standard errors" in STALL["stall-36"].finding(EVIDENCE).found
    )
    assert "where 2.3 would do" in STALL["stall-36"].finding(EVIDENCE).found


def test_the_way_of_checking_is_shown_where_it_is_not_a_recomputation():
    html = ledger.Table(ledger.rows("stall", ["stall-43", "stall-05"]))._repr_html_()
    assert html.count("(derived)") == 1
    rows = ledger.rows("stall", ["stall-05"]).assign(found="<b>", how="<i>")
    assert "<b>" not in ledger.Table(rows)._repr_html_()


def test_an_unknown_verdict_is_refused():
    with pytest.raises(ValueError, match="no such verdict"):
        claims.Finding("plausible", "")


def test_an_unknown_row_is_refused():
    with pytest.raises(KeyError):
        ledger.show("stall", 99)


def test_rows_link_from_the_ledger_to_the_chapter():
    row = ledger.rows("stall", ["stall-05"])
    shown = ledger.Table(row)._repr_html_()
    listed = ledger.Table(row, page="chapters/stall.html")._repr_html_()
    assert "id='claim-stall-05'" in shown
    assert "href='chapters/stall.html#claim-stall-05'" in listed
    assert "id=" not in listed


def test_html_of_a_claim_is_escaped():
    row = ledger.rows("stall", ["stall-05"]).assign(claim="<script>")
    assert "<script>" not in ledger.Table(row)._repr_html_()


def test_the_phases_add_up_to_the_last_token():
    parts = claims_stall.excess_by_phase(EVIDENCE.log)
    cold, warm = EVIDENCE.log.runs["default"]
    assert parts.sum() == warm.emissions_ms[-1] - cold.emissions_ms[-1]


def test_a_sentence_follows_the_numbers_it_states():
    assert "no one shift" in STALL["stall-05"].finding(EVIDENCE).found
    assert "one shift of the clock mends it" in STALL["stall-05"].finding(every_stop(-70)).found
    assert "no one shift" not in STALL["stall-05"].finding(every_stop(-70)).found
    assert "2 of these 3 pairs" in STALL["stall-06"].finding(EVIDENCE).found
    stalling = unmarked("preallocated", 2)
    assert "1 of these 3 pairs" in STALL["stall-06"].finding(stalling).found


def test_rates_follow_the_recorded_times():
    requests = EVIDENCE.log.requests.assign(time_ms=[1200, 1204])
    slow = EVIDENCE.with_log(requests=requests)
    for id in ("stall-28", "stall-51"):
        assert STALL[id].finding(slow).found != STALL[id].finding(EVIDENCE).found


def test_the_stated_time_out_reaches_its_simulator():
    scores = [scoring.score(EVIDENCE.log, timeout_ms=ms) for ms in (25, 1)]
    own = [s.query("hypothesis == 'retry, as stated'")["first token"].tolist() for s in scores]
    assert own[0][1] - own[1][1] == 10 * (25 - 1)
    assert own[0][0] == own[1][0]  # the cold request does not wait
