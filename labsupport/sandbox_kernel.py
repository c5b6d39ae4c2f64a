"""A kernel that is not trusted, and the line to it: start, ask, receive, interrupt, kill.

Jupyter's own manager trusts its kernel: it waits for it, keeps what it sends, shares a folder with
it. Here every message is bounded and counted before it is parsed. The kernel's sockets lie in the
sandbox's scratch folder and are reached through /proc, so nothing on the host can be written.
"""

import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time

import psutil
import zmq
from jupyter_client.client import KernelClient
from jupyter_client.connect import port_names, write_connection_file

from labsupport import sandbox

START_S = 60  # how long a kernel may take to start
NUDGE_S = 0.5  # between two questions whether it has
KILL_S = 10  # how long the system may take to end killed processes
MESSAGES = 100  # that may wait to be received
SEND_MS = 2000  # how long a message may take to be sent


class Died(Exception):
    """The kernel's process has ended, or has cut the line."""


class Kernel:
    """A running kernel, as a context manager; at its end every process of it is dead.

    `Died` if it does not start. `received` counts the bytes that it has sent.
    """

    def __init__(self, limits: sandbox.Limits, sandboxed: bool):
        self.limits = limits
        self.sandboxed = sandboxed
        self.received = 0
        self._process = None
        self._folder = None
        self._context = zmq.Context()
        self._context.setsockopt(zmq.MAXMSGSIZE, limits.output_bytes)
        self._context.setsockopt(zmq.RCVHWM, MESSAGES)
        self._context.setsockopt(zmq.SNDTIMEO, SEND_MS)
        self._client = KernelClient(context=self._context)

    def __enter__(self):
        try:
            self._process = self._start_sandboxed() if self.sandboxed else self._start()
            self._connect(time.monotonic() + START_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error):
        self.kill()
        self._context.destroy(linger=0)
        if self._folder:
            self._folder.cleanup()

    # Start

    def _start_sandboxed(self):
        self._info = {"transport": "ipc", "ip": f"{sandbox.SCRATCH}/kernel"}
        self._info |= {"key": secrets.token_hex(32), "signature_scheme": "hmac-sha256"}
        self._info |= {name: number for number, name in enumerate(port_names, 1)}
        path = f"{sandbox.SCRATCH}/kernel.json"
        read, write = os.pipe()
        with open(write, "w", encoding="utf-8") as pipe:
            json.dump(self._info, pipe)
        try:
            line = sandbox.command(_launcher(path), self.limits, {path: read})
            return subprocess.Popen(line, pass_fds=[read], **_quiet())
        finally:
            os.close(read)

    def _start(self):
        self._folder = tempfile.TemporaryDirectory(prefix="pr-", dir=_short())
        folder = self._folder.name
        where, variables = {"transport": "tcp"}, dict(os.environ)
        if os.name == "posix":
            where = {"transport": "ipc", "ip": f"{folder}/kernel"}
            variables["JPY_PARENT_PID"] = str(os.getpid())  # it ends with this process
        key = secrets.token_hex(32).encode()
        path, self._info = write_connection_file(f"{folder}/kernel.json", key=key, **where)
        return subprocess.Popen(_launcher(path), cwd=folder, env=variables, **_quiet())

    def _connect(self, deadline):
        info = dict(self._info)
        if info["transport"] == "ipc":
            info["ip"] = self._wait(deadline, self._sockets)
        self._client.load_connection_info(info)
        self._shell = self._client.connect_shell(identity=self._client.session.bsession)
        self._control = self._client.connect_control(identity=self._client.session.bsession)
        self._iopub = self._client.connect_iopub()
        self._cut = self._iopub.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._poller = zmq.Poller()
        for socket in (self._shell, self._iopub, self._cut):
            self._poller.register(socket, zmq.POLLIN)
        self._wait(deadline, self._answers)
        self.received = 0

    def _wait(self, deadline, found):
        while time.monotonic() < deadline and self._process.poll() is None:
            if got := found():
                return got
            time.sleep(0.01)
        raise Died

    def _sockets(self):
        """Where the sockets lie, seen from here, when there are all of them."""
        ip = self._info["ip"]
        if self.sandboxed:
            first = _family(self._process.pid, recursive=False)[1:]
            if not first:
                return None
            ip = f"/proc/{first[0].pid}/root{ip}"
        there = all(os.path.exists(f"{ip}-{self._info[name]}") for name in port_names)
        return ip if there else None

    def _answers(self):
        """Whether it answers a question on the one channel and tells of it on the other."""
        asked = self._send(self._shell, "kernel_info_request", {})
        told, until = set(), time.monotonic() + NUDGE_S
        while len(told) < 2 and time.monotonic() < until:
            for public, message in self.receive(0.05):
                if message["parent_header"].get("msg_id") == asked:
                    told.add(public)
        return len(told) == 2

    # Ask and receive

    def _send(self, socket, kind, content):
        return self._client.session.send(socket, kind, content)["header"]["msg_id"]

    def execute(self, source: str) -> str:
        """Have source run; returns the id that the messages about it carry."""
        content = {"code": source, "silent": False, "store_history": True}
        content |= {"user_expressions": {}, "allow_stdin": False, "stop_on_error": False}
        return self._send(self._shell, "execute_request", content)

    def interrupt(self) -> None:
        """Ask for a KeyboardInterrupt in what runs, if the line still stands."""
        with contextlib.suppress(zmq.ZMQError):
            self._send(self._control, "interrupt_request", {})

    def receive(self, seconds: float):
        """Yield the messages that come, waiting `seconds` at most for the first.

        Each with True if all may hear it (outputs, states), False for a reply. `Died` when nothing
        more can come. Any exception for what is no message.
        """
        ready = dict(self._poller.poll(1000 * seconds))
        for socket in (self._iopub, self._shell):
            if socket in ready:
                raw = socket.recv_multipart()
                self.received += sum(map(len, raw))
                _, parts = self._client.session.feed_identities(raw)
                yield socket is self._iopub, self._client.session.deserialize(parts)
        if self._cut in ready and not self._iopub.poll(0):
            raise Died

    # Look and end

    def ended(self) -> bool:
        """Whether the process has ended; it is given a second to."""
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            return False
        return True

    def resident_bytes(self) -> int:
        """Resident memory of all its processes; what they share counts for each."""
        total = 0
        for process in _family(self._process.pid):
            with contextlib.suppress(psutil.Error):  # it has just ended
                total += process.memory_info().rss
        return total

    def kill(self) -> None:
        """End every process, at once.

        The first process of a sandbox takes all others with it, and is not gone before they are.
        """
        if not self._process:
            return
        family = _family(self._process.pid, recursive=not self.sandboxed)
        for process in family[1:] or family:
            with contextlib.suppress(psutil.Error):
                process.kill()
        if not self.sandboxed:
            self._process.kill()
        try:
            self._process.wait(KILL_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _launcher(path):
    quiet = ["--HistoryManager.enabled=False", "--IPKernelApp.log_level=50"]
    return [sys.executable, "-m", "ipykernel_launcher", "-f", path, *quiet]


def _quiet():
    """Nothing in, nothing out but through sockets; a signal to the grader's group passes by."""
    nothing = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    return nothing | {"start_new_session": True}


def _short():
    """A folder whose name is short: a socket's path holds at most 107 bytes."""
    return "/tmp" if os.name == "posix" else None


def _family(pid, recursive=True):
    """A process, and its children or all that come from it."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive)]
    except psutil.NoSuchProcess:
        return []
