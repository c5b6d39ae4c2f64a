"""The rivals' acts, charges and scores against what their sentences say, worked out by hand."""

import numpy as np
import pytest

from labsupport import courses, hypotheses, scoring, stall_evidence, traces

LOG = stall_evidence.evidence().log
FIT = courses.fit(LOG)
BY_NAME = {h.name: h for h in hypotheses.HYPOTHESES}

# Who stalls, from each rival's sentence. Runs in this order: default 1 2, preallocated 1 2,
# history off 1 2, then the second requests of the five repeats.
ACTS = {
    "neighbour": "01 11 01 11111",
    "neighbour, laid out ahead": "01 00 00 11111",
    "retry, as stated": "01 00 00 11111",
    "retry, everywhere": "01 00 00 11111",
    "copy on growth": "11 00 11 11111",
    "copy on growth, precommit reserves": "11 00 00 11111",
    "first hit, one process": "01 00 00 00000",
    "first hit, a process a pair": "01 01 01 11111",
    "verification of writes": "01 01 00 11111",
    "verification of allocations": "01 00 00 11111",
    "overlap": "01 01 01 11111",
    "order": "01 01 01 11111",
}


@pytest.mark.parametrize("name", BY_NAME)
def test_who_stalls_is_what_the_sentence_says(name):
    runs = [*courses.DEFAULT, *courses.PREDICTED.values(), *courses.repeated(LOG.repeats)[1::2]]
    acts = "".join(str(int(BY_NAME[name].acts(run))) for run in runs)
    assert acts == ACTS[name].replace(" ", "")


def test_the_conditions_are_the_logs():
    """What a simulator is told, against the traces' own lines."""
    conditions = {("default", i): c for i, c in enumerate(courses.DEFAULT, 1)} | courses.PREDICTED
    session_hits = 0
    for (trace, which), condition in conditions.items():
        run = LOG.run(trace, which)
        assert condition.position == which
        assert condition.entries == run.one("entries")
        assert condition.reserved == (run.one("state") == "preallocated")
        assert condition.history == (run.env.get("ALLOCATOR_HISTORY_DEPTH") != "0")
        assert condition.timeout == (run.env.get("ALLOCATOR_TIMEOUT_ms") != "0")
        assert condition.precommit == (run.env.get("CACHE_PRECOMMIT") == "true")
        assert condition.earlier_hits == session_hits
        session_hits += condition.entries > 0
    for condition, state in zip(courses.repeated(LOG.repeats), LOG.repeats["state"], strict=True):
        assert (condition.entries > 0) == (state == "warm")
        assert condition.earlier_hits == session_hits
        session_hits += condition.entries > 0


def test_the_fit_is_the_hand_calculation():
    """From the printed stamps: 147 and 210, 231 and 456; 892 and 931, 1062 and 1354."""
    assert FIT.first_layer == 147
    assert FIT.layer_step == (210 - 147) / 9
    assert FIT.gap == 892 - 210
    assert FIT.saved == (892 - 210) - (1062 - 456)
    assert FIT.before == 231 - 147
    assert FIT.per_layer == (456 - 231) / 9 - 7
    assert FIT.per_token == pytest.approx((1354 - 1062) / 11 - (931 - 892) / 11)
    assert FIT.first_token == 1062 - 892
    assert FIT.scale == pytest.approx(1354 / (931 - 76))
    assert FIT.late == 931 - 847
    assert FIT.n_waits == 5
    assert FIT.row_base >= 0
    assert FIT.per_row >= 0


def elapsed_and_tokens(name, condition):
    run = traces.read(hypotheses.simulate(BY_NAME[name], FIT, condition))[0]
    return run.emissions_ms[0], run.emissions_ms[-1], run.elapsed_ms, run.count("STALL")


def test_charges_are_the_hand_calculation():
    cold, warm = courses.DEFAULT
    assert elapsed_and_tokens("order", cold) == (892, 931, 847, 0)
    assert elapsed_and_tokens("retry, everywhere", warm) == (1062, 1354, 1270, 5)
    # 892 + 10 x 25 - 76 saved, tokens as cold; ten waits
    assert elapsed_and_tokens("retry, as stated", warm) == (1066, 1105, 1021, 10)
    # everything lost before the first layer, tokens as cold
    assert elapsed_and_tokens("first hit, one process", warm) == (1062, 1101, 1017, 5)
    # one factor on everything: the last token is met, the first is not
    first, last, _, waits = elapsed_and_tokens("order", warm)
    assert (last, waits) == (1354, 0)
    assert first == round(FIT.scale * (892 - 76))


def test_rows_held_count_the_prompt_and_the_tokens_before():
    cold, warm = courses.DEFAULT
    assert list(courses.rows_held(cold)) == list(range(12, 23))
    assert list(courses.rows_held(warm)) == list(range(24, 35))


def lines(tokens, waits=0, mark="entry...", elapsed=100):
    out = ["[TIMER_START] 2024-01-15T00:00:00.000Z", *["[STALL] waiting"] * waits]
    out += [f"[FORWARD] layer_0 {mark}"]
    out += [f"[OUTPUT] token_{i} emitted: {t / 1000:.3f}s" for i, t in enumerate(tokens)]
    return traces.read("\n".join([*out, f"[TIMER_STOP] elapsed={elapsed}ms"]) + "\n")[0]


def test_errors_are_predicted_less_recorded():
    errors = scoring.compare(lines([110, 120, 134]), lines([100, 113, 123]))
    assert errors["first token"] == 10
    assert errors["last token"] == 11
    assert errors["token step (rms)"] == pytest.approx(np.sqrt(((10 - 13) ** 2 + 4**2) / 2))
    assert errors["marks agree"]
    assert not scoring.compare(lines([1, 2], waits=1), lines([1, 2]))["marks agree"]
    assert not scoring.compare(lines([1, 2], mark="stalled."), lines([1, 2]))["marks agree"]


def test_the_table_of_verdicts_is_the_hand_made_one():
    """fits, preallocated, history-off, repeats; survives is all four."""
    table = scoring.verdicts(scoring.score(LOG)).astype(int).astype(str).agg("".join, axis=1)
    assert table.to_dict() == {
        "neighbour": "10010",
        "neighbour, laid out ahead": "11111",
        "retry, as stated": "01100",  # repeats: 1021 ms, just below midway
        "retry, everywhere": "11111",
        "copy on growth": "01000",
        "copy on growth, precommit reserves": "01100",
        "first hit, one process": "01100",
        "first hit, a process a pair": "00000",
        "verification of writes": "10110",
        "verification of allocations": "11111",
        "overlap": "10010",
        "order": "00010",
    }


@pytest.mark.parametrize("limits", [{"step_ms": 0.5}, {"last_ms": 0.0}])
def test_both_limits_of_a_fit_bite(limits):
    loose = scoring.verdicts(scoring.score(LOG))["fits default"].sum()
    assert scoring.verdicts(scoring.score(LOG), **limits)["fits default"].sum() < loose


def test_a_bad_last_token_alone_is_no_fit():
    scores = scoring.score(LOG)
    own = (scores["hypothesis"] == "overlap") & (scores["trace"] == "default")
    scores.loc[own, "last token"] = -51.0
    assert not scoring.verdicts(scores).loc["overlap", "fits default"]


def test_slow_is_judged_from_halfway():
    """A second preallocated request of 1025 ms is fast, of 1026 slow: halfway is 1025.5."""
    from dataclasses import replace

    def agrees(elapsed):
        run = LOG.run("preallocated", 2)
        text = [
            f"[{e.tag}] {f'elapsed={elapsed}ms' if e.tag == 'TIMER_STOP' else e.message}"
            for e in run.events
        ]
        second = traces.read("\n".join(text) + "\n")[0]
        log = replace(LOG, runs={**LOG.runs, "preallocated": [LOG.run("preallocated", 1), second]})
        scores = scoring.score(log).set_index(["hypothesis", "trace", "request"])
        return scores.loc[("retry, everywhere", "preallocated", 2), "agrees"]

    assert agrees(1025)
    assert not agrees(1026)


def test_the_error_over_the_repeats_is_their_mean():
    scores = scoring.score(LOG)
    own = scores.query("hypothesis == 'retry, everywhere' and trace == 'repeats'").iloc[0]
    recorded = LOG.repeats["time_ms"].mean()
    assert own["last token"] == pytest.approx((847 + 1270) / 2 - recorded)


def test_single_settings_tell_the_survivors_apart():
    table = scoring.factorial(list(BY_NAME)).set_index(["history", "timeout", "precommit"])
    default, timeout_off = table.loc[(True, True, False)], table.loc[(True, False, False)]
    precommit_on = table.loc[(True, True, True)]
    survivors = ["neighbour, laid out ahead", "retry, everywhere", "verification of allocations"]
    assert list(default[survivors]) == [True, True, True]
    assert list(timeout_off[survivors]) == [True, False, True]
    assert list(precommit_on[survivors]) == [False, True, True]
    assert list(table.loc[(False, False, True)][survivors]) == [False, False, False]
    assert len(table) == 8


def test_the_order_of_the_rows_of_the_repeats_does_not_matter():
    from dataclasses import replace

    turned = replace(LOG, repeats=LOG.repeats.iloc[::-1].reset_index(drop=True))
    assert scoring.verdicts(scoring.score(turned)).equals(scoring.verdicts(scoring.score(LOG)))


def test_an_unknown_rival_is_refused():
    with pytest.raises(ValueError, match="no such hypothesis: gremlins"):
        scoring.factorial(["order", "gremlins"])


def test_the_fit_reads_the_default_pair_alone():
    """Other parts of the log, emptied: a fit that looked at them would fail or differ."""
    from dataclasses import replace

    bare = replace(
        LOG,
        runs={"default": LOG.runs["default"]},
        repeats=LOG.repeats.iloc[:0],
        requests=LOG.requests.iloc[:0],
        printed={},
        write_path=LOG.write_path.iloc[:0],
    )
    assert courses.fit(bare) == FIT


def test_copying_charges_the_layers_for_the_prompts_rows():
    cold, warm = courses.DEFAULT
    plain, charged = (
        courses.copy_rows(FIT, courses.plain(FIT, c), c).layer_step for c in (cold, warm)
    )
    assert plain == FIT.layer_step
    assert charged == pytest.approx(FIT.layer_step + FIT.per_row * 12 / 10)


def test_retry_needs_its_time_out_and_order_its_place():
    no_timeout = courses.Condition(2, 12, timeout=False)
    for name in ("retry, as stated", "retry, everywhere"):
        assert not BY_NAME[name].acts(no_timeout)
    first_but_warm = courses.Condition(1, 12)
    for name in ("order", "overlap"):
        assert not BY_NAME[name].acts(first_but_warm)
