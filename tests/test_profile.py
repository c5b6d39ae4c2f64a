"""Three paths to the same outputs: right for every shape, stamped alike, recorded or refused."""

import argparse
import ast
import gc
import inspect
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from repository import course

from labsupport import __main__ as cli
from labsupport import decoder, evidence, machine, profile, profile_command, timing
from labsupport.decoder import Decoder, DecoderConfig
from labsupport.kvcache import KVCache
from labsupport.prefix import FrozenDecoder
from labsupport.profile import PATHS, SEGMENTS, Case

ROOT = Path(__file__).resolve().parents[1]
SMALL = Case(width=8, layers=1, tokens=5, prefix=3, seeds=2, rounds=7)
OPTIONS = "--width 8 --layers 1 --tokens 5 --prefix 3 --seeds 2 --rounds 7".split()


def query(n_prefix=8, n_tokens=12, kind=FrozenDecoder, d_model=16, n_layers=2, n_heads=2, n_kv=2):
    """Arguments of a path: model, store, tokens, n_prefix."""
    shape = (profile.VOCAB_SIZE, n_tokens, d_model, n_layers, n_heads, n_kv)
    plain = Decoder(DecoderConfig(*shape, dtype=np.float64), 5)
    model = FrozenDecoder(plain, profile.read_sources())
    if kind is Decoder:  # one that can be written, under an identity computed once
        plain.identity, model = model.identity, plain
    tokens = np.random.default_rng(6).integers(profile.VOCAB_SIZE, size=n_tokens).tolist()
    return model, profile.warm_store(model, tokens, n_prefix), tokens, n_prefix


# The paths


@pytest.mark.parametrize(("n_heads", "n_kv"), [(1, 1), (4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize(("d_model", "n_layers"), [(8, 1), (16, 2), (64, 3)])
@pytest.mark.parametrize(("n_tokens", "n_prefix"), [(2, 1), (12, 8), (12, 11), (40, 5)])
def test_every_path_gives_the_outputs_of_a_fresh_computation(
    n_tokens, n_prefix, d_model, n_layers, n_heads, n_kv
):
    asked = query(n_prefix, n_tokens, FrozenDecoder, d_model, n_layers, n_heads, n_kv)
    model, _, tokens, _ = asked
    fresh = Decoder(model.config, 5).forward(tokens)[n_prefix:]
    assert fresh.shape == (n_tokens - n_prefix, profile.VOCAB_SIZE)
    for path in [*PATHS.values()] * 3:  # what one query does must not reach the next
        outputs, _ = path(*asked)
        assert outputs.shape == fresh.shape
        assert np.abs(outputs - fresh).max() <= 1e-12


def test_only_the_rest_is_computed_after_a_hit(monkeypatch):
    asked, seen, forward = query(), [], Decoder.forward

    def counted(self, tokens, caches=None):
        seen.append(len(tokens))
        return forward(self, tokens, caches)

    monkeypatch.setattr(Decoder, "forward", counted)
    for path in PATHS.values():
        path(*asked)
    assert seen == [12, 4, 4]


def test_without_the_copy_the_next_query_fails(monkeypatch):
    asked = query()
    monkeypatch.setattr(KVCache, "copy", lambda self: self)
    profile.frozen(*asked)
    with pytest.raises(ValueError, match="more tokens do not fit: 12 of at most 12"):
        profile.frozen(*asked)


def test_a_weight_changed_in_place_makes_an_identity_stale_and_only_rehash_notices():
    asked = query(kind=Decoder)
    model, _, tokens, n_prefix = asked
    for path in PATHS.values():
        path(*asked)  # all is well before

    model.weights["0.k.w"] *= 1.5
    right = model.forward(tokens)[n_prefix:]
    assert np.array_equal(profile.full(*asked)[0], right)
    stale, _ = profile.frozen(*asked)
    assert np.abs(stale - right).max() > 1e-3  # wrong, and nothing says so
    with pytest.raises(LookupError, match="no prefix of these 8 tokens"):
        profile.rehash(*asked)


def test_a_frozen_model_refuses_that_change():
    model, *_ = query()
    with pytest.raises(ValueError, match="read-only"):
        model.weights["0.k.w"][...] *= 1.5


def test_rehash_reads_the_code_at_every_query(monkeypatch, tmp_path):
    source = tmp_path / "decoder.py"
    source.write_bytes(Path(decoder.__file__).read_bytes())
    monkeypatch.setattr(profile, "SOURCES", [source, profile.SOURCES[1]])
    asked = query()
    profile.rehash(*asked)
    source.write_bytes(source.read_bytes() + b"#")
    with pytest.raises(LookupError):
        profile.rehash(*asked)
    profile.frozen(*asked)  # its contract does not cover code that changes meanwhile


def test_the_code_that_computes_is_what_is_hashed():
    files = {module.__name__.removeprefix("labsupport.") + ".py" for module in
             map(sys.modules.get, {Decoder.__module__, KVCache.__module__})}  # fmt: skip
    assert set(profile.read_sources()) == files == {"decoder.py", "kvcache.py"}


# The stamps


def stamped_names(path):
    """The names given to readings of the clock in a path's code, and those it returns."""
    body = ast.parse(inspect.getsource(path)).body[0].body
    read = [line for line in body if "perf_counter_ns()" in ast.unparse(line)]
    returned = [name.id for name in body[-1].value.elts[1].elts]
    return [line.targets[0].id for line in read], returned


def test_the_paths_carry_the_same_stamps():
    names = ["start", "split", "signed", "found", "copied", "done"]
    for path in PATHS.values():
        assert stamped_names(path) == (names, names)
    assert len(names) == profile.N_STAMPS


def test_the_stamps_cost_less_than_two_per_cent():
    """About 0.3 %: so much is left that a busy machine does not matter."""
    model, store, tokens, n_prefix = query()

    def plain():
        return model.forward(tokens)[n_prefix:]

    def stamped():
        return profile.full(model, store, tokens, n_prefix)

    found = timing.compare(plain, stamped, budget_s=1, seed=0, floor=timing.SHARED_FLOOR)
    assert found.low < 1.02, str(found)


class Ticking:
    """Work that takes a known time on a clock of its own."""

    def __init__(self, monkeypatch):
        self.now = 0
        self.identity_takes = 0
        monkeypatch.setattr(profile, "perf_counter_ns", lambda: self.now)
        monkeypatch.setattr(profile, "identity", lambda *_: self.spend(50_000))

    def spend(self, ns, result=None):
        self.now += ns
        return result

    def __getitem__(self, _):  # the tokens
        return self.spend(1)

    @property
    def identity(self):  # of the model
        return self.spend(20)

    def find(self, *_):  # of the store
        return self.spend(300, [self, self])

    def copy(self):  # of a cache
        return self.spend(2_000)

    def forward(self, tokens, caches=None):  # of the model
        return self.spend(700_000 if caches is None else 600_000, np.zeros((12, 1)))

    weights = config = None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("full", [0, 0, 0, 700_000, 0]),
        ("rehash", [50_000, 300, 4_000, 600_000, 2]),
        ("frozen", [20, 300, 4_000, 600_000, 2]),
    ],
)
def test_each_part_is_given_its_own_time(monkeypatch, path, expected):
    clock = Ticking(monkeypatch)
    _, stamps = PATHS[path](clock, clock, clock, 8)
    row = profile.decompose(stamps)
    assert [row[name] for name in SEGMENTS] == expected
    assert row["total_ns"] == clock.now == sum(expected)


@given(st.lists(st.integers(0, 2**62), min_size=6, max_size=6).map(sorted))
def test_every_row_closes_exactly(stamps):
    row = profile.decompose(stamps)
    assert list(row) == ["total_ns", *SEGMENTS]
    assert row["total_ns"] == stamps[-1] - stamps[0] == sum(row[name] for name in SEGMENTS)
    assert all(type(value) is int and value >= 0 for value in row.values())


# The protocol


def test_a_measurement_holds_every_path_once_a_round_in_changing_order():
    rows = profile.measure(SMALL)
    columns = ["seed", "round", "path", "total_ns", *SEGMENTS, "agreed"]
    assert list(rows) == columns
    assert len(rows) == 2 * 7 * 3
    assert rows["agreed"].all()
    assert (rows[SEGMENTS].sum(axis=1) == rows["total_ns"]).all()
    assert rows[["seed", "round"]].apply(tuple, axis=1).is_monotonic_increasing
    orders = rows.groupby(["seed", "round"])["path"].apply(tuple)
    assert all(sorted(order) == sorted(PATHS) for order in orders)
    assert orders.nunique() > 2
    assert list(profile.measure(SMALL)["path"]) == list(rows["path"])  # by the seed


def test_by_default_it_is_the_sources_protocol():
    assert Case() == Case(16, 2, 2, 12, 8, 3, 101)
    assert len(PATHS) * Case().seeds * Case().rounds == 909
    assert (profile.WARMUPS, profile.TOLERANCE) == (5, 1e-12)


def test_the_warm_ups_come_first_and_are_not_among_the_rows(monkeypatch):
    calls = []

    def counted(*asked):
        calls.append(gc.isenabled())
        return profile.full(*asked)

    monkeypatch.setitem(PATHS, "full", counted)
    rows = profile.measure(SMALL)
    assert (rows["path"] == "full").sum() == SMALL.seeds * SMALL.rounds
    assert len(calls) == SMALL.seeds * (SMALL.rounds + profile.WARMUPS)
    assert not any(calls)  # the collector was off
    assert gc.isenabled()


def test_the_collector_is_as_it_was_after_a_failure(monkeypatch):
    monkeypatch.setitem(PATHS, "frozen", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        profile.measure(SMALL)
    assert gc.isenabled()
    gc.disable()
    try:
        with pytest.raises(ZeroDivisionError):
            profile.measure(SMALL)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_one_seed_is_measured_alone_and_as_it_is_among_others(monkeypatch):
    hidden = []
    monkeypatch.setattr(profile, "tqdm", lambda rounds, **o: hidden.append(o["disable"]) or rounds)
    alone = pd.DataFrame(profile.measure_seed(SMALL, 1, quiet=True))
    among = profile.measure(SMALL).query("seed == 1")
    assert list(alone["path"]) == list(among["path"])
    assert list(alone) == list(among)
    assert alone["agreed"].all()
    assert hidden == [True, None, None]  # None: only where nobody watches


def test_seeds_differ_in_weights_and_tokens(monkeypatch):
    seen = []
    monkeypatch.setitem(PATHS, "full", lambda *asked: seen.append(asked) or profile.full(*asked))
    profile.measure(SMALL)
    assert len({model.identity for model, *_ in seen}) == SMALL.seeds
    assert len({tuple(tokens) for _, _, tokens, _ in seen}) == SMALL.seeds


@pytest.mark.parametrize(
    ("off", "agreed"), [(0, True), (9e-13, True), (1.1e-12, False), (np.nan, False)]
)
def test_outputs_agree_within_the_tolerance_only(off, agreed):
    expected = np.zeros((4, 8))
    outputs = expected.copy()
    outputs[3, 7] -= off
    assert profile.agrees(outputs, expected) is agreed
    assert not profile.agrees(expected[:1], expected)  # of another shape, though it broadcasts


def test_medians_are_those_of_each_column_alone():
    rows = pd.DataFrame(
        [
            {"path": path, "total_ns": scale * t, **dict.fromkeys(SEGMENTS, 0), "copy_ns": c}
            for path, scale in (("frozen", 2), ("full", 1), ("rehash", 3))
            for t, c in ((1_000, 900), (5_000, 100), (9_000, 200))
        ]
    )
    table = profile.medians_us(rows)
    assert list(table.index) == ["full", "rehash", "frozen"]
    assert list(table["total"]) == [5, 15, 10]
    assert list(table["copy"]) == [0.2] * 3


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"prefix": 0}, "prefix must be at least 1, not 0"),
        ({"prefix": 12}, r"prefix must be less than tokens \(12\), not 12"),
        ({"tokens": 8}, r"prefix must be less than tokens \(8\), not 8"),
        ({"tokens": -1}, "tokens must be at least 1, not -1"),
        ({"width": 0}, "width must be at least 1, not 0"),
        ({"width": 15}, r"width must be a multiple of heads \(2\), not 15"),
        ({"heads": 0}, "heads must be at least 1, not 0"),
        ({"layers": 0}, "layers must be at least 1, not 0"),
        ({"seeds": 0}, "seeds must be at least 1, not 0"),
        ({"rounds": 0}, "rounds must be at least 1, not 0"),
    ],
)
def test_a_case_that_cannot_be_measured_is_refused(wrong, said, tmp_path, capsys):
    with pytest.raises(ValueError, match=said):
        Case(**wrong)
    options = [f"--{name}={value}" for name, value in wrong.items()]
    assert cli.main(["profile", "--out", str(tmp_path / "run"), *options]) == 2
    message = capsys.readouterr().err
    assert message.startswith(said.replace("\\", ""))
    assert "--help" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [True, 2.0, "2"])
def test_sizes_are_ints(wrong):
    with pytest.raises(TypeError, match="layers must be an int"):
        Case(layers=wrong)


# The command


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The directory of a small run, and what the command printed."""
    out = tmp_path_factory.mktemp("runs") / "run"
    done = course("profile", "--out", out, *OPTIONS)
    return out, done.stdout, done.stderr


def test_a_run_audits_and_says_what_was_done(run):
    out, _, _ = run
    assert evidence.audit(out).status == "intact", evidence.audit(out).problems[:3]
    recorded = evidence.read(out)
    manifest, config = recorded.manifest, recorded.manifest["config"]
    assert len(recorded.rows) == SMALL.seeds * SMALL.rounds * len(PATHS)
    assert manifest["factors"] == {
        "seed": [0, 1],
        "round": list(range(7)),
        "path": ["full", "rehash", "frozen"],
    }
    assert manifest["repeats"] == ["seed", "round"]
    assert (manifest["total"], manifest["segments"]) == ("total_ns", SEGMENTS)
    assert manifest["agreed"] == "agreed"
    assert config == config | {"width": 8, "layers": 1, "heads": 2, "tokens": 5, "prefix": 3}
    assert config == config | {"seeds": [0, 1], "rounds": 7, "warmups": 5, "tolerance": 1e-12}
    assert config["threads"] in (1, None)
    assert config["stamp_cost_ns"] >= 0
    assert {f"labsupport/{name}.py" for name in ("prefix", "profile", "profile_command", "decoder",
            "kvcache", "timing")} <= set(manifest["sources"])  # fmt: skip


def test_the_recorded_command_is_that_of_the_same_case(run):
    words = shlex.split(evidence.read(run[0]).manifest["command"])
    assert words[:4] == ["python", "-m", "labsupport", "profile"]
    parser = argparse.ArgumentParser()
    profile_command.add_arguments(parser)
    args = vars(parser.parse_args(words[4:]))
    assert args["out"] == str(run[0])
    assert Case(**{name: args[name] for name in vars(SMALL)}) == SMALL


def test_it_ends_with_the_medians_and_the_next_step(run):
    out, printed, errors = run
    lines = printed.splitlines()
    medians = profile.medians_us(evidence.read(out).rows)
    for path in PATHS:
        (shown,) = [line.split()[1:] for line in lines if line.startswith(f"{path} ")]
        assert [float(value) for value in shown] == pytest.approx(list(medians.loc[path]), abs=0.06)
    assert "stamps cost" in printed
    assert lines[-1] == f"Written to {out}. Next: python -m labsupport audit {out}"
    assert errors == ""  # no progress bar where nobody watches


@pytest.mark.parametrize("column", ["total_ns", *SEGMENTS])
def test_a_changed_value_is_found_with_its_row(run, tmp_path, column):
    lines = (run[0] / "raw.csv").read_text(encoding="utf-8").splitlines()
    at = lines[0].split(",").index(column)
    for line in (2, 17, len(lines)):
        cells = lines[line - 1].split(",")
        cells[at] = str(int(cells[at]) + 1)
        damaged = tmp_path / str(line)
        damaged.mkdir()
        for file in run[0].iterdir():
            (damaged / file.name).write_bytes(file.read_bytes())
        changed = [*lines[: line - 1], ",".join(cells), *lines[line:]]
        (damaged / "raw.csv").write_bytes("\n".join([*changed, ""]).encode())
        audit = evidence.audit(damaged)
        assert audit.status == "failed"
        assert ("raw.csv", line, column) in {(p.file, p.row, p.column) for p in audit.problems}
        assert {p.row for p in audit.problems if p.row} == {line}


def never(*_):
    raise AssertionError("nothing may be measured")


def test_what_exists_is_refused_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(profile, "measure", never)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("kept", encoding="utf-8")
    (tmp_path / "file").write_text("kept", encoding="utf-8")
    for name in ("run", "file"):
        assert cli.main(["profile", "--out", str(tmp_path / name)]) == 2
        assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "run" / "mine").read_text(encoding="utf-8") == "kept"
    assert cli.main(["profile", "--out", str(tmp_path / "file" / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be written" in line


def test_an_interrupted_run_leaves_nothing(tmp_path, monkeypatch, capsys):
    answered = []

    def interrupted(*asked):
        if len(answered) == profile.WARMUPS + 3:  # in the middle of the rounds
            raise KeyboardInterrupt
        answered.append(1)
        return profile.full(*asked)

    monkeypatch.setitem(PATHS, "frozen", interrupted)
    assert cli.main(["profile", "--out", str(tmp_path / "deep" / "run"), *OPTIONS]) == 130
    assert "Interrupted" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert gc.isenabled()


def test_outputs_that_disagree_are_not_recorded(tmp_path, disagreeing, capsys):
    assert cli.main(["profile", "--out", str(tmp_path / "run"), *OPTIONS]) == 1
    message = capsys.readouterr().err
    assert "Nothing was written" in message
    assert "the outputs did not agree" in message
    assert list(tmp_path.iterdir()) == []


def test_more_than_one_thread_is_refused(tmp_path, monkeypatch, capsys):
    pools = [{"num_threads": 1}, {"num_threads": 2}]
    monkeypatch.setattr(machine.threadpoolctl, "threadpool_info", lambda: pools)
    monkeypatch.setattr(profile, "measure", never)
    assert cli.main(["profile", "--out", str(tmp_path / "run"), *OPTIONS]) == 1
    message = capsys.readouterr().err
    assert "runs 2 threads" in message
    assert "OPENBLAS_NUM_THREADS=1" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("pools", "told"), [([], None), ([{"num_threads": 1}] * 2, 1)])
def test_the_threads_are_told_as_seen(monkeypatch, pools, told):
    monkeypatch.setattr(machine.threadpoolctl, "threadpool_info", lambda: pools)
    assert machine.threads_in_use() == told


WATCH = """
import os, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            print("at NumPy's import:", os.environ["OPENBLAS_NUM_THREADS"])
sys.meta_path.insert(0, Watch())
from labsupport import __main__ as cli
sys.exit(cli.main(["profile", *sys.argv[1:]]))
"""


def test_one_thread_is_set_before_numpy_is_imported(tmp_path):
    command = [sys.executable, "-c", WATCH, "--out", str(tmp_path / "run"), *OPTIONS]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, env=environment, capture_output=True, encoding="utf-8", errors="replace"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "at NumPy's import: 1"
    pools = evidence.read(tmp_path / "run").manifest["machine"]["thread_pools"]
    assert {pool["threads"] for pool in pools} <= {1, None}


def test_importing_the_paths_changes_no_setting():
    """Only the command may: a page that shows the paths imports them too."""
    script = "import os, labsupport.profile; print(os.environ['OPENBLAS_NUM_THREADS'])"
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True)
    assert done.stdout.split() == [b"2"], done.stderr
