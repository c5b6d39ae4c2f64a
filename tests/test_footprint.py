"""Bytes of caches, by hand, by storage, by two ways to follow allocations, and by the process."""

import json
import subprocess
import threading
import time
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.profiler import profile

from labsupport import charcache, footprint, kvcache, resident
from labsupport.charmodel import CharConfig, CharModel
from labsupport.decoder import Decoder, DecoderConfig
from labsupport.footprint import shape_bytes, stored_bytes
from labsupport.prefix import FrozenDecoder

HEADS, HEAD_DIM = 2, 8
TOKEN_BYTES = 2 * HEADS * HEAD_DIM * 4
SMALL = 4000  # bytes of Python's own objects that tracemalloc may count besides


ROWS = {kind: footprint.rows_for(kind, HEADS, HEAD_DIM) for kind in footprint.KINDS}


def filled(kind, n_layers=1, n_tokens=10):
    return footprint.filled(kind, ROWS[kind], n_layers, n_tokens)


# What is held


@pytest.mark.parametrize("kind", footprint.KINDS)
@pytest.mark.parametrize("n_layers", [1, 3])
def test_a_filled_cache_stores_its_rows(kind, n_layers):
    room = 16 if "Doubling" in kind else 10  # tokens
    caches = filled(kind, n_layers)
    assert [len(cache) for cache in caches] == [10] * n_layers
    assert stored_bytes(caches) == n_layers * room * TOKEN_BYTES
    if kind.startswith("NumPy"):
        assert stored_bytes(caches) == sum(cache.nbytes for cache in caches)


@pytest.mark.parametrize("kind", footprint.KINDS)
def test_what_a_truncated_cache_keeps_alive(kind):
    (cache,) = caches = filled(kind)
    before = stored_bytes(caches)
    cache.truncate(1)
    gave_back = kind == "NumPy, ConcatCache"
    assert stored_bytes(caches) == (TOKEN_BYTES if gave_back else before)
    if kind == "torch, ConcatCache":  # two views of one row keep the storage of ten
        assert shape_bytes(caches) == TOKEN_BYTES
        assert before == 10 * TOKEN_BYTES


def test_a_cache_with_room_stores_more_than_its_tokens():
    assert stored_bytes(charcache.PreallocatedCache(1, HEADS, HEAD_DIM, capacity=7)) == (
        7 * TOKEN_BYTES
    )


def test_shared_storage_counts_once_and_a_view_counts_whole():
    for whole in (np.zeros((4, 6)), torch.zeros(4, 6, dtype=torch.float64)):
        assert stored_bytes([whole, whole, whole[1:], whole[:0]]) == 4 * 6 * 8
        assert stored_bytes(whole[1:2][:, 3:]) == 4 * 6 * 8
        assert shape_bytes([whole, whole[1:2]]) == (24 + 6) * 8
        assert stored_bytes([whole, whole * 1]) == 2 * 4 * 6 * 8


def test_a_tensor_over_an_array_shares_its_storage():
    array = np.zeros(12)
    assert stored_bytes([array, torch.from_numpy(array)]) == array.nbytes
    for part in (torch.from_numpy(array[2:]), torch.from_numpy(array[:2])):
        for both in ([array, part], [part, array]):
            assert stored_bytes(both) == array.nbytes


def test_an_array_over_a_tensor_keeps_all_of_its_storage():
    tensor = torch.zeros(12)
    for part in (tensor.numpy(), tensor[:1].numpy(), tensor[5:].numpy()[1:]):
        assert stored_bytes(part) == 12 * 4
        assert stored_bytes([part, tensor]) == stored_bytes([tensor, part]) == 12 * 4


def test_a_view_that_repeats_numbers_stores_them_once():
    array = np.zeros(100)
    assert stored_bytes(np.lib.stride_tricks.sliding_window_view(array, 10)) == array.nbytes
    assert stored_bytes(np.broadcast_to(array, (7, 100))) == array.nbytes


def test_weights_that_cannot_be_written_are_weighed_too():
    plain = Decoder(DecoderConfig(9, n_positions=6, d_model=8, n_layers=1, n_heads=2), seed=0)
    assert stored_bytes(FrozenDecoder(plain, {})) == stored_bytes(plain) > 0


def test_a_locked_view_counts_what_it_locks():
    (cache,) = filled("NumPy, DoublingCache")
    assert stored_bytes(cache.keys()[:, :1]) == cache.nbytes // 2
    assert stored_bytes([cache, cache.keys(), cache.values()]) == cache.nbytes
    array = np.zeros(9)
    assert stored_bytes(np.asarray(memoryview(array)[2:3])) == array.nbytes


def test_bytes_that_are_no_arrays_end_the_search():
    view = np.frombuffer(bytearray(64), np.uint8)[4:]
    assert stored_bytes(view) == 64


def test_things_within_things_are_found_once():
    class Holder:
        kind, module = np.float32, np

        def __init__(self, *held):
            self.held, self.loop, self.module = {"all": held}, self, np

    array = np.zeros(5)
    assert stored_bytes(Holder(array, (array, [np.ones(3)]), None, "text")) == 64
    assert stored_bytes([]) == stored_bytes(None) == 0


def test_a_model_stores_its_weights_and_caches_do_not_hold_it():
    model = CharModel(CharConfig(vocab_size=9, context=12, d_model=16, n_blocks=2))
    assert stored_bytes(model) == 4 * model.n_parameters()
    caches = charcache.new_caches(model, charcache.PreallocatedCache, capacity=12)
    model([[1, 2, 3]], caches)
    assert stored_bytes(caches) == 2 * 2 * 12 * 16 * 4


# The most at once


def by_the_profiler(act):
    """The same as `torch_peak`, from the events of torch's own allocator."""
    with profile(profile_memory=True) as seen:
        act()
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    changes = [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]
    return max(np.cumsum(changes))


@pytest.mark.parametrize("kind", footprint.KINDS)
@pytest.mark.parametrize("n_layers", [1, 3])
def test_a_grown_cache_is_there_twice_one_layer_at_a_time(kind, n_layers):
    n = 90
    tokens = {  # alive when the last layer holds both copies
        "NumPy, ConcatCache": n_layers * n + n - 1,
        "torch, ConcatCache": n_layers * n + n - 1,
        "NumPy, DoublingCache": n_layers * 128 + 64,  # at token 65
    }
    expected = tokens.get(kind, n_layers * n) * TOKEN_BYTES
    if kind.startswith("NumPy"):
        peak = footprint.numpy_peak(lambda: filled(kind, n_layers, n))
        assert expected <= peak <= expected + SMALL
    else:
        assert footprint.torch_peak(lambda: filled(kind, n_layers, n)) == expected


def test_the_profiler_of_torch_agrees():
    rng = np.random.default_rng()
    for n_layers, n_tokens in rng.integers(1, 20, size=(3, 2)):
        for kind in ("torch, ConcatCache", "torch, PreallocatedCache"):

            def act(kind=kind, n_layers=n_layers, n_tokens=n_tokens):
                return filled(kind, n_layers, n_tokens)

            assert footprint.torch_peak(act) == by_the_profiler(act)


def test_what_is_released_counts_no_more():
    def passing():
        for n in (100, 700, 300):
            torch.zeros(n)

    def kept():
        return [torch.zeros(n) for n in (100, 700, 300)]

    assert footprint.torch_peak(passing) == 700 * 4
    assert footprint.torch_peak(kept) == 1100 * 4
    passing_arrays = footprint.numpy_peak(lambda: [np.zeros(n).sum() for n in (1000, 7000, 3000)])
    kept_arrays = footprint.numpy_peak(lambda: [np.zeros(n) for n in (1000, 7000, 3000)])
    assert 56_000 <= passing_arrays <= 56_000 + SMALL
    assert 88_000 <= kept_arrays <= 88_000 + SMALL


def test_views_of_what_was_there_are_not_made():
    there = torch.zeros(50, 4)
    assert footprint.torch_peak(lambda: there[1:].view(-1).add_(1)) == 0


def test_storage_with_gaps_counts_whole():
    assert footprint.torch_peak(lambda: torch.empty_strided((2,), (10,))) == 11 * 4


def test_tracing_that_runs_goes_on_and_counts_nothing_of_before():
    tracemalloc.start()
    try:
        kept, _ = np.zeros(100_000), np.zeros(300_000).sum()  # one stays, a larger one is gone
        peak = footprint.numpy_peak(lambda: np.zeros(1000))
        assert 8000 <= peak <= 8000 + SMALL
        assert tracemalloc.is_tracing()
        del kept
    finally:
        tracemalloc.stop()
    with pytest.raises(ZeroDivisionError):
        footprint.numpy_peak(lambda: 1 / 0)
    assert not tracemalloc.is_tracing()


def test_the_table_of_kinds():
    table = footprint.peaks(n_layers=2, n_kv_heads=HEADS, head_dim=HEAD_DIM, n_tokens=20)
    assert list(table.index) == list(footprint.KINDS)
    assert set(table["formula_bytes"]) == {2 * 20 * TOKEN_BYTES}
    assert table.loc["torch, ConcatCache"].tolist() == [2560 * 2, 2560 * 2, 2560 * 2 + 19 * 128]
    assert table.loc["NumPy, DoublingCache", "stored_bytes"] == 2 * 32 * TOKEN_BYTES
    with pytest.raises(ValueError, match="n_tokens must be at least 1"):
        footprint.peaks(n_tokens=0)
    with pytest.raises(TypeError, match="n_layers must be an int"):
        footprint.peaks(n_layers=2.0)


# The process: margins are wide, since the operating system decides

SIZE = 100_000_000


@pytest.fixture(scope="module")
def processes():
    return {kind: resident.resident(kind, SIZE) for kind in ("concat", "preallocated")}


@pytest.mark.parametrize("kind", ["concat", "preallocated"])
def test_resident_memory_follows_the_cache(processes, kind):
    table = processes[kind]
    assert list(table.index) == resident.STAGES
    stored = table["stored_bytes"]
    assert 0.99 * SIZE <= stored["filled"] <= SIZE
    added = table["rss_bytes"] - table.loc["before", "rss_bytes"]
    assert 0.6 * SIZE <= added["filled"] <= 2.5 * SIZE
    assert added["released"] <= 0.9 * added["filled"]
    assert (table["most_bytes"] >= table["rss_bytes"]).all()


def test_pages_are_lent_when_they_are_written(processes):
    table = processes["preallocated"]
    assert table.loc["allocated", "stored_bytes"] == table.loc["filled", "stored_bytes"]
    added = table["rss_bytes"] - table.loc["before", "rss_bytes"]
    assert added["allocated"] <= 0.5 * added["filled"]


def test_the_peak_of_a_grown_cache_shows_in_the_process(processes):
    most = {k: t.loc["filled", "most_bytes"] - t["rss_bytes"].iloc[0] for k, t in processes.items()}
    assert most["concat"] >= 1.2 * most["preallocated"]


def test_bad_requests_and_failing_processes_are_told(monkeypatch):
    with pytest.raises(ValueError, match="kind must be one of concat, doubling, preallocated"):
        resident.resident("ring")
    with pytest.raises(ValueError, match="n_bytes must be at least"):
        resident.resident("concat", 1000)
    failed = subprocess.CompletedProcess([], 1, "", "MemoryError: 9 TiB")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: failed)
    with pytest.raises(RuntimeError, match="9 TiB"):
        resident.resident("concat")


def test_the_process_runs_this_package(monkeypatch, tmp_path):
    """From any directory, with another labsupport in it and another search path."""
    (tmp_path / "labsupport").mkdir()
    (tmp_path / "labsupport" / "__init__.py").write_text("1 / 0", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    table = resident.resident("doubling", 40 * resident.TOKEN_BYTES)
    assert table.loc["filled", "stored_bytes"] == 32 * resident.TOKEN_BYTES  # 16 appends of 2


def test_stages_are_rows_that_json_can_carry():
    rows = resident.stages("preallocated", 16 * resident.TOKEN_BYTES)
    assert [row["stage"] for row in json.loads(json.dumps(rows))] == resident.STAGES


def test_numpy_caches_are_those_of_chapter_1():
    assert {kind for kind in footprint.KINDS.values() if issubclass(kind, kvcache.KVCache)} == set(
        resident.KINDS.values()
    )


def test_a_glance_that_was_begun_before_counts_to_the_stage_before(monkeypatch):
    class Process:
        rss = 1000

        def memory_info(self):
            seen = SimpleNamespace(rss=self.rss)
            if threading.current_thread() is not threading.main_thread():
                time.sleep(0.03)  # nearly always one is under way
            return seen

    monkeypatch.setattr(resident.psutil, "Process", Process)
    with resident._Glances() as glances:
        time.sleep(0.08)
        assert glances.take() == (1000, 1000)
        Process.rss = 100
        glances.take()  # what was begun before the change ends here
        time.sleep(0.08)
        assert glances.take() == (100, 100)
