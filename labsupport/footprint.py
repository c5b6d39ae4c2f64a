"""What caches take in memory: the storage they keep alive, and the most that is alive at once.

The size of a cache is what its arrays hold on to, not what their shapes add up to: a view of ten
rows keeps all rows of its storage, and two views of one storage keep it once.

A cache that grows by making a larger copy holds old and new for a moment. `numpy_peak` and
`torch_peak` measure that, by what NumPy reports to `tracemalloc` and by the storages of the results
of torch's operations.
"""

import tracemalloc
from collections.abc import Mapping
from types import ModuleType

import numpy as np
import pandas as pd
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labsupport import charcache, kvcache
from labsupport.kvcache import whole_number
from labsupport.memory import CacheShape

KINDS = {
    "NumPy, ConcatCache": kvcache.ConcatCache,
    "NumPy, DoublingCache": kvcache.DoublingCache,
    "NumPy, PreallocatedCache": kvcache.PreallocatedCache,
    "torch, ConcatCache": charcache.ConcatCache,
    "torch, PreallocatedCache": charcache.PreallocatedCache,
}


# --- what is held -----------------------------------------------------------------------------


def stored_bytes(held):
    """Bytes of all storage that `held` keeps alive, used or not, each byte counted once.

    held   an array, tensor, cache or model, or list, tuple or mapping of such; whatever else is in
           their attributes is looked through
    """
    total = end = 0
    for start, stop in sorted(_storage(array) for array in arrays_in(held)):
        total += max(0, stop - max(start, end))  # two libraries may know parts of one storage
        end = max(end, stop)
    return total


def shape_bytes(held):
    """Bytes that the shapes of all arrays and tensors in `held` add up to, seen from no storage."""
    return sum(array.nbytes for array in arrays_in(held))


def arrays_in(held):
    """Every array and tensor in `held`, each object once: a list."""
    found, seen, waiting = [], set(), [held]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | ModuleType):
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray | torch.Tensor):
            found.append(one)
        elif isinstance(one, list | tuple | set | frozenset):
            waiting.extend(one)
        else:
            waiting.extend(
                (one if isinstance(one, Mapping) else getattr(one, "__dict__", {})).values()
            )
    return found


def _storage(array):
    """Where the storage of an array or tensor begins and ends: two addresses."""
    owner = _owner(array)
    if isinstance(owner, torch.Tensor):
        storage = owner.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    return np.lib.array_utils.byte_bounds(owner)


def _owner(array):
    """The array or tensor whose memory a view looks at, behind other views and memoryviews."""
    base = getattr(array, "base", None)  # a tensor has none
    while base is not None:
        if isinstance(base, np.ndarray | torch.Tensor):
            array = base
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return array


# --- the most at once -------------------------------------------------------------------------


def numpy_peak(act):
    """The most bytes alive at once of what `act()` allocates, by tracemalloc.

    NumPy reports each allocation to it. Python's own objects are in it too, some kB. Frees of what
    was there before are not seen, so let `act` make what it lets grow.
    """
    traced_already = tracemalloc.is_tracing()
    tracemalloc.start()  # does nothing then
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        result = act()  # held until the peak is read
        _, most = tracemalloc.get_traced_memory()
        del result
        return most - before
    finally:
        if not traced_already:
            tracemalloc.stop()


def torch_peak(act):
    """The most bytes alive at once of the storages that torch's operations make in `act()`, exact.

    Looked at after each operation. Scratch memory within one is not seen, nor are frees of what was
    there before, so let `act` make what it lets grow.
    """
    with _Alive() as alive:
        result = act()  # held until all is counted
        del result
    return alive.most_bytes


class _Alive(TorchDispatchMode):
    """The storages made while it is entered: those alive, and the most bytes they had at once."""

    def __init__(self):
        super().__init__()
        self.most_bytes = 0
        self._alive = {}  # of a storage, a reference that does not keep it: its bytes

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        given = {StorageWeakRef(t.untyped_storage()) for t in _tensors((args, kwargs))}
        result = operation(*args, **(kwargs or {}))

        self._alive = {s: n for s, n in self._alive.items() if not s.expired()}
        for tensor in _tensors(result):
            storage = StorageWeakRef(tensor.untyped_storage())
            if storage not in given:  # else the result is a view
                self._alive[storage] = tensor.untyped_storage().nbytes()
        self.most_bytes = max(self.most_bytes, sum(self._alive.values()))
        return result


def _tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


# --- the real caches, side by side ------------------------------------------------------------


def rows_for(kind, n_kv_heads, head_dim, n_new=1):
    """Keys (or values) of zeros, float32, as `append` of a cache of KINDS[kind] takes them."""
    if kind.startswith("NumPy"):
        return np.zeros((n_kv_heads, n_new, head_dim), np.float32)
    return torch.zeros(1, n_kv_heads, n_new, head_dim)


def filled(kind, rows, n_layers, n_tokens):
    """One cache a layer of KINDS[kind], filled with `rows` token by token, layer after layer."""
    cache = KINDS[kind]
    options = {"capacity": n_tokens} if cache.__name__ == "PreallocatedCache" else {}
    sizes = (1, rows.shape[1], rows.shape[3]) if rows.ndim == 4 else (rows.shape[0], rows.shape[2])
    caches = [cache(*sizes, **options) for _ in range(n_layers)]
    for _ in range(n_tokens):
        for one in caches:
            one.append(rows, rows)
    return caches


def peaks(n_layers=3, n_kv_heads=4, head_dim=32, n_tokens=100):
    """Each kind of cache, filled token by token in float32: a row a kind.

    formula_bytes   2 x n_layers x n_tokens x n_kv_heads x head_dim x 4
    stored_bytes    at the end
    peak_bytes      the most alive at once on the way

    The defaults are the sizes of `charmodel`. A grown cache holds its old and its new copy for a
    moment, but of one layer at a time.
    """
    n_layers = whole_number("n_layers", n_layers, at_least=1)
    n_tokens = whole_number("n_tokens", n_tokens, at_least=1)
    formula = CacheShape(n_layers, n_kv_heads, head_dim, "float32").bytes_at(n_tokens)
    table = {}
    for kind in KINDS:
        rows = rows_for(kind, n_kv_heads, head_dim)
        peak = numpy_peak if kind.startswith("NumPy") else torch_peak
        table[kind] = {
            "formula_bytes": formula,
            "stored_bytes": stored_bytes(filled(kind, rows, n_layers, n_tokens)),
            "peak_bytes": peak(lambda kind=kind, rows=rows: filled(kind, rows, n_layers, n_tokens)),
        }
    return pd.DataFrame.from_dict(table, orient="index").rename_axis("cache")
