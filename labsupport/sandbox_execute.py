"""Runs a submission's notebook cell by cell in a sandboxed kernel, within limits.

The loop here takes what the kernel sends and looks at the clock, the memory and the amount several
times a second. Whatever a submission does, it returns: outputs so far, words on what stopped it.
"""

import json
import time

import nbformat
import psutil
import zmq
from nbclient.exceptions import CellExecutionComplete
from nbgrader import preprocessors
from traitlets import Bool, Instance

from labsupport.sandbox import GIB, MB, Limits
from labsupport.sandbox_kernel import Died, Kernel

LOOK_S = 0.1  # between two looks
OBEY_S = 5  # how long a cell may take to end once it is interrupted
SPARE_BYTES = GIB // 2  # of the machine; shared memory that nobody maps shows in no process
DEEPEST = 30  # levels of lists and dicts in an output


class Stop(Exception):
    """The run is over; in words, why."""


class Execute(preprocessors.Execute):
    """In place of nbgrader's `Execute`: the same outputs, from a kernel that may do anything.

    `preprocess` sets resources["outcome"]: `stopped`, None or words for the instructor; `cell`, the
    index of the cell that it was in or None; `seconds` on the clock. Words count cells from 1.
    A cell that ends when it is interrupted stops nothing but itself.
    """

    limits = Instance(Limits, args=(), help="what a submission may use").tag(config=True)
    sandboxed = Bool(True, help="False: the kernel has this process's rights").tag(config=True)

    def preprocess(self, nb, resources, retries=None):
        """Run all code cells of `nb`, in place; returns `nb` and `resources`."""
        self.nb, self.record_timing = nb, False
        self.clear_before_next_output = False
        self.reset_execution_trackers()
        self._began, self._looked = time.monotonic(), 0.0
        self._stops = []  # (words, index of the cell)
        cells = {i: cell for i, cell in enumerate(nb.cells) if cell.cell_type == "code"}
        for cell in cells.values():
            cell.outputs, cell.execution_count = [], None
        try:
            with Kernel(self.limits, self.sandboxed) as kernel:
                self._run(kernel, cells)
        except (Died, OSError):
            self._stops.append(("the kernel did not start", None))
        for cell in cells.values():
            cell.outputs = [_plain(output) for output in cell.outputs if _shallow(output, DEEPEST)]
        resources["outcome"] = {
            "stopped": "; ".join(words for words, _ in self._stops) or None,
            "cell": self._stops[0][1] if self._stops else None,
            "seconds": round(time.monotonic() - self._began, 3),
        }
        return nb, resources

    def handle_comm_msg(self, outs, msg, cell_index):
        """Widgets have nobody to talk to here."""

    def _run(self, kernel, cells):
        for count, (index, cell) in enumerate(cells.items(), 1):
            if not cell.source.strip():
                continue
            try:
                self._run_cell(kernel, cell, index)
            except Stop as stop:
                self._stops.append((str(stop), index))
                return
            finally:
                cell.execution_count = count

    def _run_cell(self, kernel, cell, index):
        name = f"cell {index + 1}"
        ends, interrupted, asked = time.monotonic() + self.limits.cell_s, False, None
        while True:
            try:
                asked = asked or kernel.execute(cell.source)
                for public, message in kernel.receive(LOOK_S):
                    if public and message["parent_header"].get("msg_id") == asked:
                        self.process_message(message, cell, index)
            except CellExecutionComplete:
                return
            except (Died, zmq.ZMQError):
                self._look(kernel)
                if kernel.ended():
                    raise Stop(f"the kernel ended in {name} (os._exit, or killed)") from None
                raise Stop(f"{name} cut the line or {self._much('sent')} at once") from None
            except Exception as error:  # a submission can send anything
                words = f"{name} sent what is no message ({type(error).__name__})"
                raise Stop(words) from None
            self._look(kernel)
            if time.monotonic() > ends and interrupted:
                raise Stop("and did not end when it was interrupted")
            if time.monotonic() > ends:
                self._stops.append((f"{name} ran longer than {self.limits.cell_s:g} s", index))
                kernel.interrupt()
                interrupted, ends = True, time.monotonic() + OBEY_S

    def _look(self, kernel):
        """`Stop` if the whole has used too much."""
        if kernel.received > self.limits.output_bytes:
            raise Stop(self._much("printed"))
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        if now - self._began > self.limits.total_s:
            raise Stop(f"all cells together ran longer than {self.limits.total_s:g} s")
        if kernel.resident_bytes() > self.limits.memory_bytes:
            raise Stop(f"used more than {self.limits.memory_bytes / GIB:g} GiB of memory")
        if psutil.virtual_memory().available < SPARE_BYTES:
            raise Stop("the machine had hardly any memory left")

    def _much(self, did):
        return f"{did} more than {self.limits.output_bytes / MB:g} MB"


def _plain(output):
    """An output in text that can be written to a file."""
    text = json.dumps(output, ensure_ascii=False).encode(errors="replace").decode()
    return nbformat.from_dict(json.loads(text))


def _shallow(value, levels):
    """Whether whatever copies or writes a value can do so without too deep a recursion."""
    inside = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return True
    return levels > 0 and all(_shallow(item, levels - 1) for item in inside)
