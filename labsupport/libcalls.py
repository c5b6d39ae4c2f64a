"""How many calls of torch or NumPy a step makes, counted while it runs.

operations   calls that compute or move numbers
views        calls that only look at the same numbers in another shape
"""

import sys

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from labsupport import decoder, engine, kvcache, opcounts


class TorchCalls(TorchDispatchMode):
    """Counts what torch is asked for from Python while it is entered.

    joined_bytes   what torch.cat reads of its parts and writes
    """

    operations = views = joined_bytes = 0

    @property
    def calls(self):
        """Operations and views."""
        return self.operations + self.views

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        self.views += operation.is_view
        self.operations += not operation.is_view
        if operation is torch.ops.aten.cat.default:
            self.joined_bytes += 2 * result.nbytes
        return result


def numpy_calls(model, step, *modules):
    """Calls that `step()` makes on the arrays of `model`: {"operations": int, "views": int}.

    model     an engine or a rung; its arrays are replaced by counted ones, for good
    modules   those whose name `np` is watched, besides `decoder`, `engine` and `kvcache`

    `x.dot` of an array is seen by Python's profiler alone, so a profiler that runs is set aside.
    """
    dots = []

    def profiled(frame, event, arg):
        if event == "c_call" and getattr(arg, "__name__", "") == "dot":
            dots.append(arg)

    _count_arrays(model)
    before = sys.getprofile()
    with opcounts.watching(*modules, decoder, engine, kvcache) as noted:
        sys.setprofile(profiled)
        try:
            step()
        finally:
            sys.setprofile(before)
    views = sum(kind == "view" for kind, *_ in noted)
    return {"operations": len(noted) - views + len(dots), "views": views}


def _count_arrays(thing):
    """Every array in an object of ours, however deep, as one that `opcounts` counts."""
    if isinstance(thing, np.ndarray):
        return opcounts.counted(thing)
    if isinstance(thing, (list, tuple)):
        return type(thing)(map(_count_arrays, thing))
    inside = thing if isinstance(thing, dict) else getattr(thing, "__dict__", {})
    for key, value in inside.items():
        inside[key] = _count_arrays(value)
    return thing
