"""Shared key/value heads: weights both ways, the trainings and their table, the step's time."""

import shlex
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from repository import course
from scipy import stats

from labsupport import __main__ as cli
from labsupport import (
    arithmetic,
    charcache,
    charweights,
    evidence,
    sharedheads,
    sharedtimes,
    sharing,
    sharing_command,
    training,
)
from labsupport.charmodel import CharConfig
from labsupport.compiled import CompiledEngine
from labsupport.training import Plan

TINY = CharConfig(vocab_size=11, context=12, d_model=16, n_blocks=2, n_heads=4)
RHYME = "the cat sat on the mat and the rat sat on the cat; " * 8


def drawn(config, seed, dtype=np.float64):
    """Weights of which none is 0 or 1, so that each one counts."""
    rng = np.random.default_rng(seed)
    shapes = charweights.numpy_decoder(config, charweights.flat(charweights.CharModel(config)))
    return {
        name: rng.normal(0, 0.5, array.shape).astype(dtype)
        for name, array in shapes.weights.items()
    }


# Weights


HEADS = st.sampled_from([(2, 1), (4, 1), (4, 2), (6, 1), (6, 2), (6, 3), (8, 2)])


@settings(max_examples=20, deadline=None)
@given(HEADS, st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 11))
def test_shared_heads_are_multi_head_attention_with_copies(heads, seed, batch, n_cached):
    n_heads, n_kv_heads = heads
    config = replace(TINY, d_model=n_heads * 4, n_heads=n_heads, n_kv_heads=n_kv_heads)
    weights = drawn(config, seed)
    wide, copies = sharedheads.expanded(config, weights)
    assert (wide.n_kv_heads, wide.n_heads) == (n_heads, n_heads)
    shared, several = charweights.model(config, weights), charweights.model(wide, copies)

    tokens = torch.tensor(np.random.default_rng(seed).integers(0, 11, (batch, 12)))
    wanted = shared(tokens)
    assert torch.allclose(several(tokens), wanted, atol=1e-10, rtol=0)

    caches = [charcache.new_caches(model, batch=batch) for model in (shared, several)]
    for part in tokens.split([n_cached, 12 - n_cached], dim=1):
        one, other = shared(part, caches[0]), several(part, caches[1])
        assert torch.allclose(other, one, atol=1e-10, rtol=0)
    assert torch.allclose(one, wanted[:, n_cached:], atol=1e-10, rtol=0)
    for few, many in zip(*caches, strict=True):
        repeated = few.k.repeat_interleave(n_heads // n_kv_heads, dim=1)
        assert torch.allclose(many.k, repeated, atol=1e-10, rtol=0)


def test_copies_can_be_fewer_than_all():
    config = replace(TINY, d_model=32, n_heads=8, n_kv_heads=2)
    weights = drawn(config, 0)
    some, copies = sharedheads.expanded(config, weights, 4)
    assert some.n_kv_heads == 4
    tokens = torch.arange(9)[None]
    wanted = charweights.model(config, weights)(tokens)
    assert torch.allclose(charweights.model(some, copies)(tokens), wanted, atol=1e-10, rtol=0)


@settings(max_examples=20, deadline=None)
@given(HEADS, st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float64]))
def test_pooling_undoes_copying(heads, seed, dtype):
    n_heads, n_kv_heads = heads
    config = replace(TINY, d_model=n_heads * 4, n_heads=n_heads, n_kv_heads=n_kv_heads)
    weights = drawn(config, seed, dtype)
    again, back = sharedheads.pooled(*sharedheads.expanded(config, weights), n_kv_heads)
    assert again == config
    assert back.keys() == weights.keys()
    exact = n_heads // n_kv_heads != 3 and n_heads // n_kv_heads != 6  # a third is rounded
    for name, array in weights.items():
        assert back[name].dtype == dtype
        np.testing.assert_allclose(back[name], array, rtol=0 if exact else 1e-6)


def test_pooled_heads_are_the_means_of_neighbours():
    weights = drawn(TINY, 1)
    config, means = sharedheads.pooled(TINY, weights, 2)
    assert config == replace(TINY, n_kv_heads=2)
    k, bias = weights["1.k.w"], weights["1.v.b"]  # [16, 4 * 4], [4 * 4]
    first, second = (k[:, 0:4] + k[:, 4:8]) / 2, (k[:, 8:12] + k[:, 12:16]) / 2
    np.testing.assert_allclose(means["1.k.w"], np.hstack([first, second]))
    np.testing.assert_allclose(means["1.v.b"][4:], (bias[8:12] + bias[12:]) / 2)
    changed = {name for name in weights if not np.array_equal(weights[name], means[name])}
    assert changed == {f"{i}.{part}.{leaf}" for i in (0, 1) for part in "kv" for leaf in "wb"}


@pytest.mark.parametrize("change", [sharedheads.expanded, sharedheads.pooled])
def test_the_given_weights_are_left_as_they_were(change):
    weights = drawn(TINY, 2)
    before = {name: array.copy() for name, array in weights.items()}
    _, made = change(TINY, weights, 4)
    for array in made.values():
        array += 1
    assert all(np.array_equal(weights[name], before[name]) for name in weights)


def test_heads_and_weights_that_do_not_fit_are_refused():
    config = replace(TINY, d_model=24, n_heads=12, n_kv_heads=4)
    weights = drawn(config, 0)
    with pytest.raises(ValueError, match="must be a multiple of the model's 4, not 6"):
        sharedheads.expanded(config, weights, 6)
    with pytest.raises(ValueError, match="must be a divisor of the model's 4, not 3"):
        sharedheads.pooled(config, weights, 3)
    for change in (sharedheads.expanded, sharedheads.pooled):
        for wrong, said in ((5, "d_model must be"), (0, "at least 1"), (2.5, "n_kv_heads")):
            with pytest.raises((TypeError, ValueError), match=said):
                change(config, weights, wrong)
        with pytest.raises(ValueError, match=r"1\.k\.w"):
            change(config, weights | {"1.k.w": weights["1.k.w"].T}, 4)


# Training


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_the_kinds_and_what_they_weigh():
    for n_heads, counts in ((4, [4, 2, 1]), (6, [6, 3, 1]), (3, [3, 1]), (1, [1])):
        kinds = sharing.kinds(CharConfig(d_model=36, n_heads=n_heads))
        assert [kind.n_kv_heads for kind in kinds] == counts
    several, grouped, single = map(sharing.sizes, sharing.kinds(CharConfig()))
    assert several == {
        "kind": "multi-head", "n_kv_heads": 4, "parameters": 637_156, "cache_bytes": 3072
    }  # fmt: skip
    assert (grouped["kind"], single["kind"]) == ("grouped-query", "multi-query")
    assert (grouped["cache_bytes"], single["cache_bytes"]) == (1536, 768)
    # In each block a head less is 2 * 32 columns of 128 weights and a bias less.
    assert several["parameters"] - single["parameters"] == 3 * 3 * 2 * 32 * 129


def test_all_kinds_see_the_same_windows_in_the_same_order(monkeypatch, one_thread):
    seen, learn = [], training._learn

    def noting(model, optimizer, windows, *rest):
        seen.append((model.config.n_kv_heads, windows.clone()))
        learn(model, optimizer, windows, *rest)

    monkeypatch.setattr(training, "_learn", noting)
    config = replace(TINY, vocab_size=100)
    rows = sharing.measure(config, RHYME, Plan(steps=3, batch=2, every=2), seeds=2)
    assert list(rows) == sharing.COLUMNS
    assert rows["step"].tolist() == [0, 2, 3] * 6
    assert rows["n_kv_heads"].tolist() == [4] * 3 + [2] * 3 + [1] * 3 + [4] * 3 + [2] * 3 + [1] * 3
    assert rows["seed"].tolist() == [0] * 9 + [1] * 9

    assert [n for n, _ in seen] == rows["n_kv_heads"].tolist()  # three steps a training, too
    windows = torch.stack([w for _, w in seen]).view(2, 3, 3, 2, 13)  # [seed, kind, step, ...]
    assert (windows == windows[:, :1]).all()
    assert not torch.equal(windows[0], windows[1])
    assert not torch.equal(windows[:, :, 0], windows[:, :, 1])

    again, _ = training.train(replace(config, n_kv_heads=2), RHYME, Plan(3, 2, every=2, seed=1))
    one = rows[(rows["n_kv_heads"] == 2) & (rows["seed"] == 1)]
    assert one["held_out"].tolist() == again["held_out"].tolist()


def test_one_seed_is_not_enough():
    with pytest.raises(ValueError, match="seeds must be at least 2"):
        sharing.measure(TINY, RHYME, Plan(steps=1), seeds=1)


def test_how_long_it_will_take_is_told_from_steps_and_evaluations(monkeypatch):
    now_s, calls = [0.0], []

    def train(config, text, plan):
        assert (config, text, plan.batch) == (TINY, RHYME, 7)
        calls.append(plan.steps)
        now_s[0] += 3 * plan.steps + 50 * len(plan.evaluated()) + (1000 if len(calls) == 1 else 0)

    monkeypatch.setattr(training, "train", train)
    monkeypatch.setattr(sharing, "perf_counter", lambda: now_s[0])
    plan = Plan(steps=200, batch=7, every=50)
    exact_s = 3 * 4 * (3 * 200 + 50 * 5)  # kinds, seeds
    assert sharing.seconds(TINY, RHYME, plan, 4) == pytest.approx(exact_s, rel=0.1)


# The table


CONFIG = {
    "model": {"n_heads": 4},
    "kinds": [
        {"kind": "multi-head", "n_kv_heads": 4, "parameters": 90, "cache_bytes": 8},
        {"kind": "grouped-query", "n_kv_heads": 2, "parameters": 80, "cache_bytes": 4},
        {"kind": "multi-query", "n_kv_heads": 1, "parameters": 75, "cache_bytes": 2},
    ],
}
SEEDS = [0.3, -0.2, 0.1, 0.5]  # what a seed adds for every kind: more than kinds differ
OWN = [0.01, -0.01, 0.005, -0.002]


def rows_with(**more):
    """Rows in which each kind's loss at the end is 2, what its seed adds, and `more` by kind."""
    rows = []
    for kind in CONFIG["kinds"]:
        extra = more.get(kind["kind"].replace("-", "_"), [0, 0, 0, 0])
        for seed, (shift, own) in enumerate(zip(SEEDS, extra, strict=True)):
            for step, loss in ((0, 9.0), (50, 2 + shift + own)):
                rows.append((kind["n_kv_heads"], seed, step, loss - 0.5, loss))
    return pd.DataFrame(rows, columns=sharing.COLUMNS)


def test_the_table_compares_seed_by_seed():
    rows = rows_with(grouped_query=[0.05 + x for x in OWN])
    found = sharing.table(rows, CONFIG)
    assert found.index.tolist() == ["multi-head", "grouped-query", "multi-query"]
    assert found["parameters"].tolist() == [90, 80, 75]
    assert found["cache_bytes"].tolist() == [8, 4, 2]
    grouped = found.loc["grouped-query"]
    assert grouped["loss"] == pytest.approx(np.mean(SEEDS) + 2.05 + np.mean(OWN))
    assert found.loc["multi-head", "among_seeds"] == pytest.approx(np.std(SEEDS, ddof=1))
    differences = [0.05 + x for x in OWN]
    assert grouped["difference"] == pytest.approx(np.mean(differences))
    wanted = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert (grouped["low"], grouped["high"]) == pytest.approx(tuple(wanted))
    assert found.loc["multi-head", ["difference", "low", "high", "verdict"]].isna().all()


@pytest.mark.parametrize(
    ("shift", "verdict"), [(0.05, "worse"), (-0.05, "better"), (0.005, "cannot tell")]
)
def test_the_verdict_follows_the_interval(shift, verdict):
    rows = rows_with(multi_query=[shift + x for x in OWN])
    assert sharing.table(rows, CONFIG).loc["multi-query", "verdict"] == verdict
    mixed = rows.assign(seed=rows["seed"].where(rows["n_kv_heads"] != 1, 3 - rows["seed"]))
    assert sharing.table(mixed, CONFIG).loc["multi-query", "verdict"] == "cannot tell"  # unpaired


def test_one_seed_or_a_kind_that_lacks_one_is_refused():
    rows = rows_with()
    for lacking in (
        rows[rows["seed"] == 0],
        rows[(rows["seed"] != 2) | (rows["n_kv_heads"] != 2)],
        rows[rows["n_kv_heads"] != 1],
    ):
        with pytest.raises(ValueError, match="each kind trained with the same seeds, two or more"):
            sharing.table(lacking, CONFIG)


# The command


OPTIONS = ["--quick", "--seeds", "2", "--steps", "2"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The directory of a small run, and what the command printed."""
    out = tmp_path_factory.mktemp("runs") / "run"
    return out, course("sharing", "--out", out, *OPTIONS).stdout


def test_a_run_audits_and_says_what_was_done(run):
    out, printed = run
    assert evidence.audit(out).status == "intact", evidence.audit(out).problems[:3]
    manifest = evidence.read(out).manifest
    assert manifest["factors"] == {"seed": [0, 1], "n_kv_heads": [4, 2, 1], "step": [0, 2]}
    assert (manifest["repeats"], manifest["seeds"]) == (["seed"], [0, 1])
    words = shlex.split(manifest["command"])
    assert words[:4] == ["python", "-m", "labsupport", "sharing"]
    assert words[5:] == ["--seeds=2", "--steps=2", "--quick"]
    config = manifest["config"]
    assert (config["plan"]["steps"], config["plan"]["batch"]) == (2, 32)
    assert config["model"]["d_model"] == 16
    assert [kind["cache_bytes"] for kind in config["kinds"]] == [128, 64, 32]
    pools = manifest["machine"]["thread_pools"]
    assert {pool["threads"] for pool in pools} <= {1, None}
    assert {"labsupport/sharing.py", "labsupport/training.py"} <= set(manifest["sources"])
    assert printed.startswith("6 trainings of 2 steps: about 0.")
    assert f"python -m labsupport audit {out}" in printed


def test_the_table_follows_from_the_record_alone(run):
    out, printed = run
    found = sharing.table(*sharing.load(out))
    words = [line.split() for line in printed.splitlines()]
    for kind, row in found.iterrows():
        told = [kind, row["n_kv_heads"], row["parameters"], row["cache_bytes"]]
        told = [*map(str, told), f"{row['loss']:.4f}", f"{row['among_seeds']:.4f}"]
        assert told in [line[: len(told)] for line in words]


def test_a_doctored_loss_is_found(run, tmp_path):
    out = tmp_path / "copy"
    out.mkdir()
    for file in run[0].iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    raw = pd.read_csv(out / "raw.csv", dtype=str)
    raw.loc[3, "held_out"] = "1.5"
    raw.to_csv(out / "raw.csv", index=False, lineterminator="\n")
    assert evidence.audit(out).status != "intact"


def test_wrong_options_are_told_before_anything_is_trained(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training, "train", lambda *_: pytest.fail("trained"))
    (tmp_path / "old").mkdir()
    for options, said in (
        (["--seeds", "1"], "seeds must be at least 2"),
        (["--steps", "0"], "steps must be at least 1"),
    ):
        assert cli.main(["sharing", "--quick", "--out", str(tmp_path / "new"), *options]) == 2
        assert said in capsys.readouterr().err
    assert cli.main(["sharing", "--quick", "--out", str(tmp_path / "old")]) == 2
    assert "exists already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_by_default_it_is_the_source_s_model_and_its_recorded_text(monkeypatch, tmp_path):
    asked = []

    def stop(*meant):
        asked.append(meant)
        raise FloatingPointError("enough")

    monkeypatch.setattr(sharing, "seconds", lambda *_: 0)
    monkeypatch.setattr(sharing, "measure", stop)
    assert cli.main(["sharing", "--out", str(tmp_path / "new")]) == 1
    config, text, plan, seeds = asked[0]
    assert (config, text) == (CharConfig(), training.recorded_text()[1])
    assert (plan.steps, seeds) == (sharing_command.STEPS, sharing_command.SEEDS)
    assert list(tmp_path.iterdir()) == []


# The step's time


def test_a_filled_engine_is_one_that_computed_what_it_holds():
    config = replace(TINY, n_kv_heads=2)
    weights = drawn(config, 3, np.float32)
    honest, filled = CompiledEngine(config, weights), sharedtimes.FilledEngine(config, weights)
    honest.prefill([1, 5, 2, 8, 8, 0, 3])
    _, _, _, keys, values, *_ = honest._state
    filled.fill(keys[..., :7], values[:, :, :7])
    assert len(filled) == 7
    wanted = honest.step(4).copy()
    np.testing.assert_array_equal(filled.peek(4), wanted)
    assert len(filled) == 7
    np.testing.assert_array_equal(filled.step(4), wanted)
    with pytest.raises(ValueError, match="pass the context of 12"):
        filled.fill(np.zeros((2, 2, 4, 13)), np.zeros((2, 2, 13, 4)))
    assert len(filled) == 8


def test_all_kinds_that_are_timed_compute_the_same():
    made = sharedtimes.engines(TINY, 40)
    assert [engine.config.n_kv_heads for engine in made] == [4, 2, 1]
    assert [len(engine) for engine in made] == [40] * 3
    logits = [engine.peek(7).copy() for engine in made]
    assert np.abs(logits[0]).max() > 0.1
    np.testing.assert_allclose(logits[1:], [logits[0]] * 2, atol=sharedtimes.TOLERANCE)
    for engine in made:  # no page of the cache is the one page of zeros that nothing has written
        _, _, _, keys, values, *_ = engine._state
        assert (keys[..., :40] != 0).all()
        assert (values[:, :, :40] != 0).all()


def test_kinds_that_compute_another_thing_are_not_timed(monkeypatch):
    honest = sharedheads.expanded

    def spoiled(config, weights, n_kv_heads):
        config, weights = honest(config, weights, n_kv_heads)
        if n_kv_heads == 2:
            weights["0.v.b"] = weights["0.v.b"] + np.float32(0.5)
        return config, weights

    monkeypatch.setattr(sharedheads, "expanded", spoiled)
    with pytest.raises(ValueError, match="do not compute the same: logits differ by"):
        sharedtimes.measure(TINY, 40)


def test_every_round_times_each_kind_once_in_an_order_of_its_own():
    rows = sharedtimes.measure(TINY, 20, rounds=12)
    orders = rows.groupby("round")["n_kv_heads"].apply(tuple)
    assert {frozenset(order) for order in orders} == {frozenset({1, 2, 4})}
    assert len(orders) == 12
    assert len(set(orders)) > 1
    assert (rows["step_ns"] > 0).all()


def test_the_times_stand_beside_bytes_and_multiplications():
    rows = pd.DataFrame(
        [(r, n, (100 + r) * n) for r in range(9) for n in (4, 1, 2)],
        columns=["round", "n_kv_heads", "step_ns"],
    )
    found = sharedtimes.table(rows, CharConfig(), 16_384).set_index("n_kv_heads")
    assert found["ratio"].tolist() == pytest.approx([1, 0.5, 0.25])
    assert found["us"].tolist() == pytest.approx([0.416, 0.208, 0.104])
    assert (found["low"] <= found["ratio"]).all()
    assert (found["ratio"] <= found["high"]).all()
    # Per block and token 2 * 32 numbers a head; the weights are those that a step reads.
    heads = {n: 2 * 3 * 32 * n * 16_385 for n in (4, 2, 1)}
    tables = (100 + 128) * 128
    read = {n: heads[n] + 637_156 - tables + 2 * 128 - 3 * (4 - n) * 64 * 129 for n in (4, 2, 1)}
    assert found["bytes"].to_dict() == pytest.approx({n: read[n] / read[4] for n in read})
    assert found.loc[1, "multiplications"] == pytest.approx(0.994, abs=1e-3)
    assert found["multiplications"].is_monotonic_decreasing


def test_a_step_is_timed_here_and_now():
    found = sharedtimes.step_times(30, TINY, rounds=8)
    assert found.index.tolist() == ["multi-head", "grouped-query", "multi-query"]
    assert np.isfinite(found).all(axis=None)
    read = arithmetic.numbers_read(replace(TINY, n_kv_heads=1), 31)
    assert found.loc["multi-query", "bytes"] == read / arithmetic.numbers_read(TINY, 31)
    for wrong in (0, 2.5):
        with pytest.raises((ValueError, TypeError), match="n_tokens"):
            sharedtimes.step_times(wrong, TINY)
    with pytest.raises(ValueError, match="rounds"):
        sharedtimes.step_times(30, TINY, rounds=0)
