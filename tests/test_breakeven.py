"""The grid is measured whole and in turns; its table and break-even lines follow from the rows."""

import gc
import math
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from repository import course

from labsupport import __main__ as cli
from labsupport import breakeven, costmodel, evidence
from labsupport.breakeven import CELL, QUICK, Grid, crossings, held_out, one_case, table
from labsupport.profile import PATHS, SEGMENTS, Case

ROOT = Path(__file__).resolve().parents[1]
SIZES = {"widths": [8, 16], "tokens": [6, 12], "shares": ["1/3", "2/3"]}
SMALL = Grid(**SIZES, seeds=2, rounds=4, calibration_s=0.05)
OPTIONS = shlex.split(
    "--widths 8 16 --tokens 6 12 --shares 1/3 2/3 --seeds 2 --rounds 4 --calibration-s 0.05"
)
PRICES = dict.fromkeys(costmodel.PRICES, 1.0)


# The grid


def test_the_cells_are_every_combination():
    cases = SMALL.cases()
    assert len(cases) == 8
    assert cases[12, "2/3", 16] == Case(width=16, tokens=12, prefix=8, rounds=4)
    assert len(Grid().cases()) == 5 * 3 * 5
    assert {cell[0] for cell in QUICK.cases()} == {12}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"shares": ["1/5"]}, "1/5 of 12 tokens are 2.4; choose a whole number of them, from 1"),
        (
            {"shares": ["1/1"]},
            "1/1 of 12 tokens are 12; choose a whole number of them, from 1 to 1",
        ),
        ({"shares": ["0/3"]}, "0/3 of 12 tokens are 0"),
        ({"shares": ["most"]}, "a share is written as a fraction like 2/3, not 'most'"),
        ({"shares": ["1/0"]}, "a share is written as a fraction like 2/3, not '1/0'"),
        ({"shares": ["1/3", "2/6"]}, "shares must be different, not 1/3 and 2/6"),
        ({"widths": [16, 16]}, "widths must be one or more different values"),
        ({"tokens": []}, "tokens must be one or more different values"),
        ({"widths": [15]}, r"width must be a multiple of heads \(2\), not 15"),
        ({"widths": [0]}, "width must be at least 1, not 0"),
        ({"seeds": 1, "rounds": 5}, "seeds x rounds must be at least 6, not 5"),
        ({"rounds": 0}, "rounds must be at least 1, not 0"),
        ({"calibration_s": 0}, "calibration_s must be above 0, not 0"),
    ],
)
def test_a_grid_that_cannot_be_measured_is_refused(wrong, said, tmp_path, capsys):
    sizes = {"widths": [16], "tokens": [12], "shares": ["1/3"], "seeds": 2, "rounds": 4} | wrong
    with pytest.raises(ValueError, match=said):
        Grid(**sizes)
    if all(sizes[name] for name in SIZES):  # an option without values never gets so far
        options = []
        for name, value in sizes.items():
            values = value if isinstance(value, list) else [value]
            options += [f"--{name.replace('_', '-')}", *map(str, values)]
        assert cli.main(["breakeven", "--out", str(tmp_path / "run"), *options]) == 2
        assert "--help" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# The measurement


@pytest.fixture(scope="module")
def measured():
    """The rows of a small grid and its calibration."""
    return breakeven.measure(SMALL)


def test_each_seed_visits_every_cell_in_an_order_of_its_own(measured):
    rows, _ = measured
    assert list(rows) == [*CELL, "prefix", "seed", "round", "path", "total_ns", *SEGMENTS, "agreed"]
    assert len(rows) == 8 * 2 * 4 * len(PATHS)
    assert not rows.duplicated([*CELL, "seed", "round", "path"]).any()
    assert rows["agreed"].all()
    assert (rows[SEGMENTS].sum(axis=1) == rows["total_ns"]).all()
    assert rows["seed"].is_monotonic_increasing
    visits = [tuple(cell) for cell in rows[CELL].iloc[:: 4 * len(PATHS)].to_numpy()]
    assert sorted(visits[:8]) == sorted(visits[8:]) == sorted(SMALL.cases())
    assert visits[:8] != visits[8:]
    orders = rows.groupby([*CELL, "seed", "round"])["path"].apply(tuple)
    assert orders.nunique() > 2


def test_the_calibration_holds_every_price(measured):
    _, calibration = measured
    assert list(calibration["prices_ns"]) == list(costmodel.PRICES)
    assert calibration["call_ns"] > 0
    assert gc.isenabled()


def made_rows(ratios, full_ns=100_000, wobble=0):
    """Rows of cells {(tokens, share, width): frozen / full}, rehash twice as slow as full."""
    rows, rng = [], np.random.default_rng(0)
    for (tokens, share, width), ratio in ratios.items():
        for seed in range(2):
            for i in range(9):
                slow = 1 + 3 * rng.random() if i % 3 == 0 else 1  # on all three paths alike
                for path, times in {"full": 1, "rehash": 2, "frozen": ratio}.items():
                    ns = round(full_ns * slow * times * (1 + wobble * rng.standard_normal()))
                    cell = {"tokens": tokens, "share": share, "width": width, "seed": seed}
                    rows.append({**cell, "round": i, "path": path, "total_ns": ns})
    return pd.DataFrame(rows)


def test_a_cell_is_judged_by_its_pairs():
    rows = made_rows({(12, "2/3", 16): 1.1, (12, "1/3", 16): 0.5, (12, "1/2", 16): 1.001})
    cells = table(rows, PRICES).set_index("share")
    assert list(cells.index) == ["1/3", "1/2", "2/3"]  # by size, not as text
    assert cells["frozen"].tolist() == pytest.approx([0.5, 1.001, 1.1], rel=1e-4)
    assert cells["frozen_verdict"].tolist() == ["faster", "cannot tell", "slower"]
    assert cells["rehash"].tolist() == pytest.approx([2] * 3)
    assert (cells["frozen_low"] < cells["frozen"]).all()
    assert (cells["frozen"] < cells["frozen_high"]).all()
    assert cells["prefix"].tolist() == [4, 6, 8]
    assert cells["full_ns"].tolist() == [100_000] * 3


def test_predictions_stand_beside_what_was_measured():
    cells = table(made_rows({(12, "2/3", 16): 0.8}), PRICES)
    predicted = costmodel.predict(Case(), PRICES)["total"]
    (cell,) = cells.to_dict("records")
    assert cell["frozen_predicted_ns"] == predicted["frozen"]
    assert cell["frozen_predicted"] == pytest.approx(predicted["frozen"] / predicted["full"])
    assert cell["frozen_error"] == pytest.approx(cell["frozen_predicted"] / 0.8 - 1)
    assert cell["rehash_error"] == pytest.approx(predicted["rehash"] / predicted["full"] / 2 - 1)
    deeper = table(made_rows({(12, "2/3", 16): 0.8}), PRICES, layers=5, heads=4)
    assert deeper.loc[0, "full_predicted_ns"] > 2 * predicted["full"]


def test_held_out_errors_are_absolute_and_relative():
    cells = table(made_rows({(12, "2/3", 16): 0.8, (12, "1/3", 16): 1.2}), PRICES)
    cells["full_ns"] = cells["full_predicted_ns"] / [0.9, 1.3]
    cells["frozen_error"] = [-0.05, 0.01]
    errors = held_out(cells)
    assert errors.loc["full time"].to_dict() == pytest.approx(
        {"median": 0.2, "worst": 0.3, "within_20": 0.5}
    )
    assert errors.loc["frozen / full"].to_dict() == pytest.approx(
        {"median": 0.03, "worst": 0.05, "within_20": 1}
    )


# The break-even lines


def cells_of(ratios, predicted=1.0, spread=1.0):
    """A table of cells whose intervals reach from ratio / spread to ratio * spread."""
    rows = [
        {**dict(zip(CELL, cell, strict=True)), "frozen": ratio, "frozen_low": ratio / spread,
         "frozen_high": ratio * spread, "frozen_predicted": ratio * predicted}
        for cell, ratio in ratios.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_the_break_even_width_is_interpolated_in_its_logarithm():
    line = cells_of({(12, "2/3", 64): 0.5, (12, "2/3", 16): 2.0, (12, "2/3", 32): 1.25}, 2, 1.1)
    (found,) = crossings(line).to_dict("records")
    part = math.log(1.25) / math.log(1.25 / 0.5)
    assert found["measured"] == pytest.approx(32 * 2**part)
    assert 32 < found["low"] < found["measured"] < found["high"] < 64
    assert found["predicted"] == math.inf  # twice as slow: 1 at the end is not faster
    assert (found["tokens"], found["share"]) == (12, "2/3")


def test_the_break_even_share_is_found_along_each_width():
    ratios = {(12, "1/4", 16): 1.2, (12, "1/2", 16): 1 / 1.2, (12, "1/4", 32): 0.9}
    found = crossings(cells_of(ratios | {(12, "1/2", 32): 0.8}), "share").set_index("width")
    assert found.loc[16, "measured"] == pytest.approx(3 / 8)
    assert found.loc[32, "measured"] == 0  # faster on the whole line


def test_reuse_must_win_up_to_the_end_of_the_line():
    ratios = dict(zip([16, 32, 64, 128], [1.1, 0.9, 1.05, 0.9], strict=True))
    found = crossings(cells_of({(12, "1/2", width): r for width, r in ratios.items()}))
    assert 64 < found.loc[0, "measured"] < 128
    lost = crossings(cells_of({(12, "1/2", 16): 0.5, (12, "1/2", 32): 1.5}))
    assert lost.loc[0, "measured"] == math.inf


def test_another_path_or_direction_is_named():
    with pytest.raises(ValueError, match="along must be 'width' or 'share', not 'tokens'"):
        crossings(cells_of({(12, "1/2", 16): 1}), along="tokens")


# A case of one's own


def test_a_case_of_ones_own_is_measured_and_predicted_at_its_own_shape():
    case = Case(width=12, layers=3, heads=3, tokens=10, prefix=7, seeds=2, rounds=4)
    cell = one_case(case, PRICES)
    predicted = costmodel.predict(case, PRICES)["total"]
    assert (cell["tokens"], cell["share"], cell["width"], cell["prefix"]) == (10, "7/10", 12, 7)
    assert cell["frozen_predicted_ns"] == predicted["frozen"]
    assert cell["frozen_low"] <= cell["frozen"] <= cell["frozen_high"]
    assert cell["rehash"] > cell["frozen"] > 0.05


# The command


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The directory of a small run, and what the command printed."""
    out = tmp_path_factory.mktemp("runs") / "run"
    return out, course("breakeven", "--out", out, *OPTIONS).stdout


def test_a_run_audits_and_says_what_was_done(run):
    out, printed = run
    assert evidence.audit(out).status == "intact", evidence.audit(out).problems[:3]
    manifest = evidence.read(out).manifest
    assert manifest["factors"] == {
        "tokens": [6, 12],
        "share": ["1/3", "2/3"],
        "width": [8, 16],
        "seed": [0, 1],
        "round": [0, 1, 2, 3],
        "path": ["full", "rehash", "frozen"],
    }
    assert (manifest["total"], manifest["segments"]) == ("total_ns", SEGMENTS)
    config = manifest["config"]
    assert config == config | {"widths": [8, 16], "rounds": 4, "layers": 2, "threads": 1}
    assert list(config["calibration"]["prices_ns"]) == list(costmodel.PRICES)
    assert config["calibration"]["meaning"] == costmodel.PRICES
    assert f"python -m labsupport audit {out}" in printed
    used = {f"labsupport/{name}.py" for name in ("breakeven", "costmodel", "calibrate", "pieces")}
    assert used <= set(manifest["sources"])


def test_the_recorded_command_is_that_of_the_same_grid(run):
    words = shlex.split(evidence.read(run[0]).manifest["command"])
    assert words[:4] == ["python", "-m", "labsupport", "breakeven"]
    assert words[6:] == OPTIONS


def test_predicted_and_measured_follow_from_the_record_alone(run):
    cells, calibration = breakeven.load(run[0])
    assert len(cells) == 8
    again = table(evidence.read(run[0]).rows, calibration["prices_ns"])
    pd.testing.assert_frame_equal(cells, again)
    shown = [line.split() for line in run[1].splitlines()]
    first = cells.query("tokens == 6 and share == '1/3'")["frozen"]
    assert ["6", "1/3", *(f"{ratio:.2f}" for ratio in first)] in shown


def never(*_):
    raise AssertionError("nothing may be measured")


def test_what_exists_is_refused_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(breakeven, "measure", never)
    (tmp_path / "run").mkdir()
    assert cli.main(["breakeven", "--out", str(tmp_path / "run"), *OPTIONS]) == 2
    assert "exists already" in capsys.readouterr().err


def test_an_interrupted_run_leaves_nothing(tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setitem(PATHS, "frozen", interrupted)
    assert cli.main(["breakeven", "--out", str(tmp_path / "run"), *OPTIONS]) == 130
    assert "Interrupted" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert gc.isenabled()


def test_outputs_that_disagree_are_not_recorded(tmp_path, disagreeing, capsys):
    assert cli.main(["breakeven", "--out", str(tmp_path / "run"), *OPTIONS]) == 1
    assert "the outputs did not agree" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
