"""Counts of calls are those of functions whose calls are known, and leave nothing behind."""

import hashlib
import sys
import types

import numpy as np
import pytest

from labsupport import decoder, kvcache, opcounts, prefix
from labsupport.decoder import Decoder, DecoderConfig
from labsupport.kvcache import PreallocatedCache
from labsupport.opcounts import array_calls, by_kind, counted, interpreter_steps, plain, watching

X = np.arange(12.0).reshape(3, 4)  # 96 bytes


def calls_of(function, *args, modules=()):
    """(kind, name) of each call, in order."""
    calls = array_calls(function, *args, modules=modules)
    return list(zip(calls["kind"], calls["name"], strict=True))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x + x, [("elementwise", "add")]),
        (lambda x: 2 * x, [("elementwise", "multiply")]),
        (lambda x: x + x[0], [("view", "[]"), ("broadcast", "add")]),
        (lambda x: x <= x[:, :1], [("view", "[]"), ("broadcast", "less_equal")]),
        (lambda x: x + np.ones(1), [("elementwise", "add")]),
        (lambda x: np.sqrt(x), [("elementwise", "sqrt")]),
        (lambda x: x.sum(axis=-1, keepdims=True), [("reduction", "add")]),
        (lambda x: x.max(axis=0), [("reduction", "maximum")]),
        (lambda x: x.mean(axis=-1, keepdims=True),
         [("reduction", "add"), ("elementwise", "divide")]),
        (lambda x: x @ x.swapaxes(0, 1), [("view", "swapaxes"), ("matmul", "matmul")]),
        (lambda x: x[:1] @ x.swapaxes(0, 1),
         [("view", "[]"), ("view", "swapaxes"), ("matmul", "matmul of a row")]),
        (lambda x: x[[0, 2]], [("copy", "[]")]),
        (lambda x: x.reshape(4, 3), [("view", "reshape")]),
        (lambda x: x.swapaxes(0, 1).reshape(12), [("view", "swapaxes"), ("copy", "reshape")]),
        (lambda x: x.__setitem__(slice(1, 2), x[:1]), [("view", "[]"), ("copy", "[]=")]),
        (lambda x: x, []),
    ],
)  # fmt: skip
def test_each_call_is_noted_as_what_it_is(function, expected):
    assert calls_of(function, X.copy()) == expected


def test_amounts_are_those_of_the_shapes():
    def work(x, w, queries, keys):
        x @ w  # [3, 4] @ [4, 5]
        queries @ keys  # [2, 3, 4] @ [2, 4, 6]
        x - x[:, :1]
        np.exp(x)
        x.sum(axis=-1)

    arrays = np.ones((4, 5)), np.ones((2, 3, 4)), np.ones((2, 4, 6))
    calls = array_calls(work, X, *arrays).query("kind != 'view'").reset_index(drop=True)
    assert list(calls["elements"]) == [15, 36, 12, 12, 12]
    assert list(calls["flops"][:2]) == [2 * 3 * 4 * 5, 2 * 2 * 3 * 4 * 6]
    assert list(calls["bytes"][:2]) == [8 * 4 * 5, 8 * 2 * 4 * 6]  # of the right operands
    assert list(calls["loops"]) == [1, 2, 3, 1, 3]
    assert list(calls["bytes"][2:]) == [8 * (12 + 3 + 12), 8 * (12 + 12), 8 * (12 + 3)]


def test_infinite_inputs_of_exp_are_noted():
    masked = np.where(np.eye(3, dtype=bool), 0.0, -np.inf)
    assert list(array_calls(lambda x: np.exp(x), masked)["infinite"]) == [6]
    assert list(array_calls(lambda x: np.tanh(x), masked)["infinite"]) == [0]


def module_of(**names):
    module = types.ModuleType("made")
    module.__dict__.update(names)
    return module


def test_arrays_made_by_a_watched_module_are_counted():
    module = module_of(np=np)

    def work():
        made = module.np.empty((2, 3))
        listed = module.np.asarray([1, 2])
        same = module.np.asarray(memoryview(made))
        chosen = module.np.where(same > 0, same, -module.np.inf)
        return chosen[listed - 1] + module.np.arange(3)

    assert calls_of(work, modules=[module]) == [
        ("new", "empty"),
        ("new", "asarray"),
        ("view", "asarray"),
        ("elementwise", "greater"),
        ("copy", "where"),
        ("elementwise", "subtract"),
        ("copy", "[]"),
        ("new", "arange"),
        ("broadcast", "add"),
    ]
    assert calls_of(work)[:1] != [("new", "empty")]  # unless it is watched


def test_bytes_fed_to_a_hash_are_counted_and_hashed():
    module = module_of(hashlib=hashlib)

    def work():
        digest = module.hashlib.sha256()
        digest.update(b"four")
        digest.update(np.ones(3))
        return digest.hexdigest()

    with watching(module) as noted:
        digest = work()
    assert [call[0] for call in noted] == ["hash", "hash"]
    assert [call[5] for call in noted] == [4, 24]
    assert digest == work() == hashlib.sha256(b"four" + np.ones(3).tobytes()).hexdigest()


def test_by_kind_adds_up_and_names_every_kind():
    calls = array_calls(lambda x: (x + x) * x + x[0], X)
    table = by_kind(calls)
    assert list(table.index) == list(opcounts.KINDS)
    assert table["calls"].to_dict() | {"elementwise": 2, "broadcast": 1, "view": 1} == (
        table["calls"].to_dict()
    )
    assert table["calls"].sum() == len(calls) == 4
    assert table.loc["elementwise", "elements"] == 24
    assert by_kind(array_calls(lambda: None))["calls"].sum() == 0


def test_values_are_the_same_and_outputs_in_place_are_kept():
    array = counted(X.copy())
    assert type(plain(array)) is np.ndarray
    assert np.shares_memory(plain(array), array)
    assert (counted(3), plain("text")) == (3, "text")
    before = array
    array += 1
    assert array is before
    assert np.array_equal(plain(array), X + 1)
    array[1:2] = array[:1]
    assert np.array_equal(plain(array)[1], X[0] + 1)


def small_decoder():
    config = DecoderConfig(16, 12, 8, 2, 2, 1, dtype=np.float64)
    return Decoder(config, 3)


def test_a_watched_pass_gives_the_same_logits():
    model, tokens = small_decoder(), list(range(12))
    expected = model.forward(tokens)
    model.weights = {name: counted(array) for name, array in model.weights.items()}
    with watching(decoder, kvcache, prefix) as noted:
        fresh = model.forward(tokens)
        caches = model.new_caches(PreallocatedCache, capacity=12)
        model.forward(tokens[:8], caches)
        rest = model.forward(tokens[8:], [cache.copy() for cache in caches])
    assert np.array_equal(plain(fresh), expected)
    assert np.abs(plain(rest) - expected[8:]).max() < 1e-12
    assert sum(call[0] == "matmul" for call in noted) == 3 * (2 * (4 + 2 + 2) + 1)


def test_what_was_watched_is_as_before_even_after_a_failure():
    def failing():
        assert decoder.np is not np
        _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        array_calls(failing, modules=[decoder, kvcache, prefix])
    assert decoder.np is kvcache.np is np
    assert prefix.hashlib is hashlib
    counted(X) + 1  # notes nowhere, and does not fail


def loop(n):
    total = 0
    for i in range(n):
        total += i
    return total


def test_steps_grow_by_as_many_for_each_pass_of_a_loop():
    """From the first call on: Python 3.12 is known to leave out what it traces first."""
    ten, twenty, thirty = (interpreter_steps(loop, n)["instructions"] for n in (10, 20, 30))
    assert twenty - ten == thirty - twenty
    assert 3 * 10 <= twenty - ten <= 20 * 10
    assert ten > twenty - ten


def test_steps_of_what_is_called_count_too_and_files_are_noticed(tmp_path):
    alone = interpreter_steps(loop, 10)["instructions"]
    within = interpreter_steps(lambda: loop(10) + loop(10))["instructions"]
    assert within > 2 * alone
    file = tmp_path / "file"
    file.write_bytes(b"content")
    assert interpreter_steps(lambda: file.read_bytes() + file.read_bytes())["files"] == 2
    assert interpreter_steps(loop, 1)["files"] == 0


def test_tracing_ends_with_the_count():
    before = sys.gettrace(), sys.getprofile()
    others = (lambda *_: None), (lambda *_: None)  # of a debugger, say
    sys.settrace(others[0])
    sys.setprofile(others[1])
    try:
        interpreter_steps(loop, 1)
        with pytest.raises(ZeroDivisionError):
            interpreter_steps(lambda: 1 / 0)
        assert (sys.gettrace(), sys.getprofile()) == others
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
