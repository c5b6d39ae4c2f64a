"""The transcribed figures of the cache's derivation: read as they were printed, or refused."""

import pytest

from labsupport import derivation_source as source
from labsupport import evidence


def test_ratios_are_those_of_both_tables_once():
    ratios = source.ratios()
    assert len(ratios) == 8  # nine printed, one of them twice
    assert (128, 256, 134.5) in ratios
    assert (1024, 256, 129.4) in ratios


def test_the_stated_figures_are_those_of_the_tables():
    stated, length, width = source.stated(), source.length(), source.width()
    assert stated["collected"] == width.loc[128, "collected_percent"]
    assert stated["collected_wide"] == width["collected_percent"].iloc[-1]
    assert stated["length_growth"] == length.index[-1] / length.index[0]
    measured = length["measured"]
    assert stated["measured_growth"] == round(measured.iloc[-1] / measured.iloc[0], 1)


def test_rounding_is_followed_to_both_ends():
    assert source.over_rounding([10, 4], lambda t: t[0] - t[1]) == (5, 7)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("length", "uncached_ms", "no_cache"),
        ("length", "2031", "2O31"),
        ("length", "n,", "d,"),
        ("length", "400", "-400"),
        ("length", "128,", "64,"),
        ("width", "10.42", ""),
        ("width", "collected_percent", "collected"),
        ("stated", "1.80", "about 1.8"),
        ("stated", "unit", "units"),
    ],
)
def test_a_damaged_table_is_refused_with_the_way_to_find_out(tmp_path, name, old, new):
    text = (evidence.directory("generation-source") / f"{name}.csv").read_text(encoding="utf-8")
    (tmp_path / f"{name}.csv").write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"{name}\.csv does not hold .* labsupport audit "):
        getattr(source, name)(tmp_path)


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"width\.csv"):
        source.width(tmp_path)
