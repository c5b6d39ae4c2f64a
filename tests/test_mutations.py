"""Any one value of any file of a recorded cost run, changed, is found by the audit, and placed."""

import random

import pytest
import sample_run
from test_audit import FILES, fields, with_another_value

from labsupport import __main__ as cli
from labsupport import evidence

N_MUTATIONS = 1000
OPTIONS = "--width 8 --layers 1 --tokens 5 --prefix 3 --seeds 2 --rounds 4".split()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The directory of a small run that the command recorded."""
    out = tmp_path_factory.mktemp("runs") / "run"
    assert cli.main(["profile", "--out", str(out), *OPTIONS]) == 0
    return out


def test_every_mutation_of_a_profile_run_is_found_and_placed(run):
    whole, rng = sample_run.contents(run), random.Random(23)
    places = fields(whole)
    drawn = [rng.choice(places) for _ in range(N_MUTATIONS)]
    assert {name for name, _, _ in drawn} == set(FILES)
    assert evidence.audit(run).status == "intact"
    for place in drawn:
        name = place[0]
        (run / name).write_bytes(with_another_value(whole, place, rng)[name])
        answer = evidence.audit(run)
        (run / name).write_bytes(whole[name])
        assert answer.status == "failed", place
        assert {problem.file for problem in answer.problems} == {name}, place
        assert place in [(p.file, p.row, p.column) for p in answer.problems], place
    assert evidence.audit(run).status == "intact"
