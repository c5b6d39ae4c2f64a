"""What a function asks of NumPy and of the interpreter: every call counted while it runs.

NumPy is seen in one run, through arrays that note what is done with them (`Counted`) and through
the name `np` of the watched modules, where new arrays come from. The interpreter is seen in
another, undisturbed run by `sys.settrace`, which reports every bytecode instruction.
"""

import hashlib
import io
import sys
from contextlib import contextmanager
from math import prod

import numpy as np
import pandas as pd

KINDS = {
    "view": "another shape or part of the same numbers; nothing is moved",
    "elementwise": "one operation a number: + - * / sqrt <=; exp, tanh",
    "broadcast": "the same, where an input of fewer numbers is repeated along the rows",
    "reduction": "one number a row: a sum, a maximum (a mean is a sum and a division)",
    "matmul": "a product of matrices, or a stack of them, by the BLAS library",
    "new": "an array made from nothing or from a list: empty, arange, asarray",
    "copy": "numbers moved to other memory: where, x[list], x[a:b] = y",
    "hash": "bytes fed to SHA-256",
}
COLUMNS = ["kind", "name", "elements", "loops", "flops", "bytes", "infinite"]
FROM_NOTHING = ("empty", "zeros", "ones", "arange", "asarray", "array")

_noted = None  # the list of the count under way


class Counted(np.ndarray):
    """An array that adds each operation on it to the count under way; its values are the same."""

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        if out is not None:
            options["out"] = tuple(map(plain, out))
        inputs = [plain(value) for value in inputs]
        result = getattr(ufunc, method)(*inputs, **options)
        _note_ufunc(ufunc.__name__, method, inputs, result)
        return out[0] if out is not None else counted(result)

    def __getitem__(self, key):
        return _moved("[]", plain(self)[_plain_key(key)], self)

    def __setitem__(self, key, value):
        part = plain(self)[_plain_key(key)]
        plain(self)[_plain_key(key)] = plain(value)
        _note("copy", "[]=", part.size, 1, 0, 2 * part.nbytes)

    def reshape(self, *shape, **options):
        return _moved("reshape", plain(self).reshape(*shape, **options), self)

    def swapaxes(self, *axes):
        return _moved("swapaxes", plain(self).swapaxes(*axes), self)


def counted(value):
    """An array as one that is counted, sharing its memory; anything else as it is."""
    return value.view(Counted) if isinstance(value, np.ndarray) else value


def plain(value):
    """A counted array as an ordinary one, sharing its memory; anything else as it is."""
    return value.view(np.ndarray) if isinstance(value, Counted) else value


def _plain_key(key):
    return tuple(map(plain, key)) if isinstance(key, tuple) else plain(key)


class _WatchedNumPy:
    """NumPy, whose functions note their calls and give counted arrays; ufuncs, types as they are.

    A ufunc needs no watching: it hands counted arrays to their __array_ufunc__.
    """

    def __getattr__(self, name):
        found = getattr(np, name)
        if isinstance(found, (type, np.ufunc)) or not callable(found):
            return found
        return lambda *args, **options: _moved(
            name, found(*[plain(arg) for arg in args], **options), *args
        )


class _WatchedSHA256:
    """hashlib and its SHA-256 in one: `sha256()` gives a digest that notes the bytes it is fed."""

    def sha256(self):
        self.digest = hashlib.sha256()
        self.hexdigest = self.digest.hexdigest
        return self

    def update(self, content):
        n_bytes = memoryview(content).nbytes
        self.digest.update(content)
        _note("hash", "update", 0, 0, 0, n_bytes)


def _note(kind, name, elements, loops, flops, n_bytes, infinite=0):
    if _noted is not None:
        _noted.append((kind, name, elements, loops, flops, n_bytes, infinite))


def _note_ufunc(name, method, inputs, result):
    arrays = [value for value in (*inputs, result) if isinstance(value, np.ndarray)]
    n_bytes, size, shape = sum(a.nbytes for a in arrays), np.size(result), np.shape(result)
    if name == "matmul":
        flops = 2 * size * inputs[0].shape[-1]
        form = "matmul of a row" if prod(inputs[0].shape[-2:-1]) == 1 else "matmul"
        _note("matmul", form, size, prod(shape[:-2]), flops, inputs[1].nbytes)
    elif method == "reduce":
        _note("reduction", name, inputs[0].size, size, inputs[0].size, n_bytes)
    elif any(np.ndim(i) and np.shape(i) != shape and np.size(i) > 1 for i in inputs):
        _note("broadcast", name, size, prod(shape[:-1]), size, n_bytes)
    else:
        infinite = int(np.isinf(inputs[0]).sum()) if name == "exp" else 0
        _note("elementwise", name, size, 1, size, n_bytes, infinite)


def _moved(name, result, *sources):
    """The result, counted, after a note of whether it shares memory with a source."""
    if isinstance(result, np.ndarray):
        sources = [source for source in sources if isinstance(source, (np.ndarray, memoryview))]
        if any(np.may_share_memory(result, source) for source in sources):
            _note("view", name, 0, 0, 0, 0)
        else:
            n_bytes = 0 if name == "empty" else 2 * result.nbytes  # read and written
            kind = "new" if name in FROM_NOTHING else "copy"
            _note(kind, name, result.size, 1, 0, n_bytes)
    return counted(result)


@contextmanager
def watching(*modules):
    """Within, NumPy and hashlib as these modules name them are watched; yields a growing list.

    Each entry is one call, a tuple of COLUMNS: its kind; NumPy's name for it; numbers made (of a
    reduction: read); innermost loops (one, unless rows are taken one by one; of a matmul, the
    matrices); floating-point operations; bytes of inputs and outputs (of a matmul: of the right
    operand, which is the weights); infinite inputs of an exp, which are those of a mask.
    """
    global _noted
    watched = {"np": _WatchedNumPy(), "hashlib": _WatchedSHA256()}
    real = [(m, name, getattr(m, name)) for m in modules for name in watched if hasattr(m, name)]
    before, _noted = _noted, []
    try:
        for module, name, _ in real:
            setattr(module, name, watched[name])
        yield _noted
    finally:
        _noted = before
        for module, name, value in real:
            setattr(module, name, value)


def array_calls(function, *args, modules=()):
    """Every call of NumPy or SHA-256 in function(*args), one row each, in order: COLUMNS.

    Arrays among args are watched; so are those that the modules make, but no others.
    """
    with watching(*modules) as noted:
        function(*map(counted, args))
    return pd.DataFrame(noted, columns=COLUMNS)


def by_kind(calls):
    """Calls and their amounts, one row a kind of KINDS, zeros where there are none."""
    amounts = calls.groupby("kind")[COLUMNS[2:]].sum()
    amounts.insert(0, "calls", calls.groupby("kind").size())
    return amounts.reindex(list(KINDS), fill_value=0)


def interpreter_steps(function, *args):
    """What the interpreter does in function(*args): {"instructions": ..., "files": ...}.

    Bytecode instructions, those of library code included, and files opened. The number of
    instructions depends on the version of Python.
    """
    steps = {"instructions": 0, "files": 0}

    def traced(frame, event, arg):
        frame.f_trace_opcodes = True
        steps["instructions"] += event == "opcode"
        return traced

    def profiled(frame, event, arg):
        steps["files"] += event == "c_call" and arg is io.open

    before = sys.gettrace(), sys.getprofile()
    sys._getframe().f_trace_opcodes = True  # else Python 3.12 leaves out what is traced first
    sys.setprofile(profiled)
    sys.settrace(traced)
    try:
        function(*args)
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    return steps
