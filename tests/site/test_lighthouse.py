"""The benchmark's table comes out. Its scores are no gate: they depend on how busy a machine is."""

import lighthouse
import pytest


def report(performance, lcp_ms=1000.0):
    """What of a report of Lighthouse the table uses."""
    scores = dict.fromkeys(lighthouse.CATEGORIES, 1.0) | {"performance": performance}
    values = {
        "largest-contentful-paint": lcp_ms,
        "total-blocking-time": 12.0,
        "cumulative-layout-shift": 0.01,
        "total-byte-weight": 123_456,
    }
    return {
        "categories": {name: {"score": score} for name, score in scores.items()},
        "audits": {name: {"numericValue": value} for name, value in values.items()},
    }


def test_one_page_is_measured_on_both_devices(site, monkeypatch, capsys):
    monkeypatch.setattr(lighthouse, "PATIENCE_S", 0)
    assert lighthouse.main(["--runs", "1", "pages/errata"]) == 0
    head, *rows, note = capsys.readouterr().out.splitlines()
    assert head.split() == "page device perf a11y best seo LCP s TBT ms CLS kB".split()
    assert [line.split()[:2] for line in rows] == [
        ["pages/errata", "phone"],
        ["pages/errata", "desktop"],
    ]
    assert all(0 < int(score) <= 100 for line in rows for score in line.split()[2:6])
    assert note.startswith("2 runs found the machine busy")


@pytest.mark.parametrize(
    ("scores", "middle"), [([0.5, 0.9, 0.7], 70), ([0.9, 0.5], 50), ([0.6], 60)]
)
def test_a_row_is_the_run_of_median_performance(scores, middle):
    line = lighthouse.row("index", "phone", [report(score, 1000 * score) for score in scores])
    assert line.split()[2:6] == [str(middle), "100", "100", "100"]
    assert line.split()[6] == f"{middle / 100:.1f}"


def test_a_page_that_is_not_in_the_book_is_refused(capsys):
    with pytest.raises(SystemExit):
        lighthouse.main(["chapters/nonsense"])
    assert "not in _toc.yml: chapters/nonsense" in capsys.readouterr().err
