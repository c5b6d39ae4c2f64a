"""What pytest-benchmark is given to run: a benchmark of each path of the question asked.

`labsupport.rivals` starts it and says by environment variables which question that is.
"""

import os

import pytest

from labsupport.questions import Asked

QUESTION, NOISE, TRIAL = os.environ.get("LABSUPPORT_ASKED", "identical quiet 0").split()


@pytest.mark.parametrize("i", [0, 1], ids=["f", "g"])
def test_path(benchmark, i):
    """Benchmark f, then g; the median of each in seconds is printed."""
    benchmark(Asked(QUESTION, NOISE, int(TRIAL)).paths()[i])
    print("\nmedian", benchmark.stats.stats.median)
