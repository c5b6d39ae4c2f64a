"""Chapter 4's exercises: the master, the blank sheet, and every mistake that the checks name."""

from exercise_answers_memory import SHEET, WRONG

from labsupport import checks_memory  # noqa: F401 (its checks are counted)


def test_an_error_that_has_nothing_to_do_with_a_slip_reaches_the_reader():
    source = "def cache_bytes(config, n_tokens):\n    return 'bytes' + n_tokens"
    assert SHEET.attempt("memory-cache-bytes", source).words.startswith("TypeError: ")


def test_every_exercise_has_wrong_answers_of_several_kinds():
    assert set(WRONG) == set(SHEET.exercises())
    for wrong in WRONG.values():
        assert len({words for *_, words in wrong if words}) >= 3
