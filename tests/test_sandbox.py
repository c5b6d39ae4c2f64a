"""What a submission may do to whoever grades it: nothing. Every guard has somebody who tries it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat import v4

from labsupport import sandbox
from labsupport.sandbox import GIB, Limits

ROOT = Path(__file__).resolve().parent.parent
MIB = 2**20
NAMESPACES = ("pid", "net", "ipc", "uts", "user")


@pytest.fixture(scope="session", autouse=True)
def sandbox_here():
    """These tests need a sandbox; where the course is tested for everybody there has to be one."""
    why = sandbox.refusal()
    if why and sys.platform.startswith("linux") and os.environ.get("CI") == "true":
        pytest.fail(why)
    if why:
        pytest.skip(why)


@dataclass(frozen=True)
class Ran:
    """What came of a notebook: each cell's text, its errors' names, and the outcome."""

    texts: list[str]
    errors: list[list[str]]
    stopped: str | None
    cell: int | None
    seconds: float
    notebook: nbformat.NotebookNode


def run(*sources, sandboxed=True, metadata=None, stored=None, **limits):
    """Run a notebook of these cells. `stored` is an output that every cell has before."""
    from labsupport.sandbox_execute import Execute

    outputs = [v4.new_output("stream", text=stored)] if stored else []
    cells = [v4.new_code_cell(source, outputs=outputs) for source in sources]
    notebook = v4.new_notebook(cells=cells, metadata=metadata or {})
    execute = Execute(limits=Limits(**limits), sandboxed=sandboxed)
    notebook, resources = execute.preprocess(notebook, {})
    texts, errors = [], []
    for cell in notebook.cells:
        told = [
            out.get("text") or out.get("data", {}).get("text/plain", "") for out in cell.outputs
        ]
        texts.append("".join(told))
        errors.append([out.ename for out in cell.outputs if out.output_type == "error"])
    return Ran(texts, errors, **resources["outcome"], notebook=notebook)


LOOK_ROUND = """
import json, os, socket, subprocess
from pathlib import Path

def tried(act):
    try:
        return act()
    except Exception as error:
        return type(error).__name__

def connect(kind, address):
    with socket.socket(kind) as line:
        line.connect(address)
    return "connected"

def written(folder):
    path = Path(folder) / "written"
    path.write_text("by a submission")
    path.unlink()
    return True

def put(path):
    with open(path, "a") as file:
        return "opened"

status = dict(line.split(":", 1) for line in open("/proc/self/status"))
mounts = [line.split()[1] for line in open("/proc/self/mounts")]
run = lambda *words: subprocess.run(words, capture_output=True).returncode
print(json.dumps({
    "rooms": {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in asked["rooms"]},
    "processes": [path.read_text() for path in Path("/proc").glob("[0-9]*/cmdline")],
    "kill": tried(lambda: os.kill(asked["pid"], 0)),
    "loopback": tried(lambda: connect(socket.AF_INET, tuple(asked["address"]))),
    "abstract": tried(lambda: connect(socket.AF_UNIX, "\\0" + asked["name"])),
    "host": socket.gethostname(),
    "variables": dict(os.environ),
    "seen": [path for path in asked["paths"] if os.path.exists(path)],
    "opened": [path for path in asked["paths"] if tried(lambda: put(path)) == "opened"],
    "written": [folder for folder in mounts if tried(lambda: written(folder)) is True],
    "home": os.listdir(asked["home"]) if os.path.exists(asked["home"]) else [],
    "ids": [os.getuid(), os.getgid(), os.getgroups()],
    "root": tried(lambda: os.setuid(0)),
    "status": {name: status[name].strip() for name in ("CapEff", "CapPrm", "CapBnd", "NoNewPrivs")},
    "nested": run("unshare", "--user", "true"),
    "here": os.getcwd(),
}))
"""


@pytest.fixture(scope="module")
def view(tmp_path_factory):
    """What a submission sees and can do, told by itself, and what there is outside."""
    secret = tmp_path_factory.mktemp("marks") / "marks.csv"
    secret.write_text("student,points\n", encoding="utf-8")
    paths = [
        secret,
        Path(__file__),
        ROOT / "exercises",
        ROOT / "pyproject.toml",
        ROOT / "labsupport",
    ]
    paths += [
        ROOT / "evidence",
        Path("/etc/passwd"),
        Path("/var"),
        Path("/run"),
        Path("/sys/class"),
    ]
    paths += [ROOT / "labsupport" / "checks.py", Path(sys.executable)]
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        abstract.bind("\0sandbox-test")
        abstract.listen()
        asked = {"rooms": NAMESPACES, "pid": os.getpid(), "address": server.getsockname()}
        asked |= {"name": "sandbox-test", "paths": list(map(str, paths)), "home": str(Path.home())}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TOKEN_OF_THE_GRADER", "secret")
            ran = run(f"asked = {asked!r}", LOOK_ROUND, "import torch, labsupport.checks; 'loaded'")
    assert ran.stopped is None
    assert ran.texts[2] == "'loaded'"
    return json.loads(ran.texts[1]) | {"secret": str(secret), "paths": paths}


@pytest.mark.parametrize("kind", NAMESPACES)
def test_it_has_namespaces_of_its_own(view, kind):
    assert view["rooms"][kind] != os.readlink(f"/proc/self/ns/{kind}")


def test_it_sees_and_reaches_no_process_outside(view):
    assert not [line for line in view["processes"] if "pytest" in line]
    assert view["kill"] == "ProcessLookupError"


def test_it_reaches_no_network_not_even_this_machines(view):
    assert view["loopback"] == "ConnectionRefusedError"
    assert view["abstract"] == "ConnectionRefusedError"
    assert view["host"] == "sandbox"


def test_of_the_files_it_sees_what_an_exercise_needs(view):
    needed = {ROOT / "labsupport", ROOT / "labsupport" / "checks.py", ROOT / "evidence"}
    assert set(map(Path, view["seen"])) == needed | {Path(sys.executable)}


def test_it_writes_to_its_scratch_alone(view):
    assert set(view["written"]) == {"/tmp", "/dev/shm"}
    assert view["opened"] == []
    assert view["here"] == "/tmp"


def test_homes_hold_nothing_but_the_way_to_python(view):
    prefixes = [Path(path).resolve() for path in (sys.prefix, sys.base_prefix, ROOT)]
    home = Path.home()
    ways = {path.relative_to(home).parts[0] for path in prefixes if path.is_relative_to(home)}
    assert set(view["home"]) <= ways


def test_its_environment_is_made_for_it(view):
    assert set(view["variables"]) - set(sandbox.environment()) <= {
        "PWD", "JPY_PARENT_PID", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "TERM", "PAGER",
        "GIT_PAGER", "MPLBACKEND", "PYDEVD_USE_FRAME_EVAL",
    }  # fmt: skip
    assert view["variables"]["OMP_NUM_THREADS"] == "1"


def test_it_has_no_rights_and_gets_none(view):
    assert 0 not in view["ids"][:2]
    assert not int(view["status"]["CapEff"], 16)
    assert not int(view["status"]["CapPrm"], 16)
    assert view["status"]["NoNewPrivs"] == "1"
    assert view["root"] in ("PermissionError", "OSError")
    assert view["nested"] != 0


def test_what_is_right_runs_as_it_would_anywhere():
    ran = run("x = 6", "print(x * 7)", "1 / 0", "x", stored="42 of 42 points")
    assert ran.texts == ["", "42\n", "", "6"]
    assert ran.errors == [[], [], ["ZeroDivisionError"], []]
    assert (ran.stopped, ran.cell) == (None, None)
    assert ran.seconds > 0


def test_a_cell_that_loops_costs_itself_alone():
    ran = run("x = 1", "while True: pass", "x + 1", cell_s=1)
    assert ran.stopped == "cell 2 ran longer than 1 s"
    assert ran.cell == 1
    assert ran.errors[1] == ["KeyboardInterrupt"]
    assert ran.texts[2] == "2"


def test_a_cell_that_does_not_obey_ends_the_run():
    stubborn = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    ran = run("print('before')", stubborn, "print('after')", cell_s=1)
    assert ran.stopped.startswith("cell 2 ran longer than 1 s; ")
    assert ran.texts == ["before\n", "", ""]


def test_a_kernel_that_stops_itself_is_ended():
    ran = run("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "1", cell_s=1)
    assert ran.stopped.startswith("cell 1 ran longer than 1 s; ")


def test_all_cells_together_are_timed():
    ran = run("import time", *["time.sleep(0.9)"] * 9, cell_s=60, total_s=3)
    assert ran.stopped == "all cells together ran longer than 3 s"
    assert 3 < ran.seconds < 9


@pytest.mark.parametrize("end", ["import os; os._exit(0)", "import os; os.kill(os.getpid(), 9)"])
def test_a_kernel_that_ends_is_an_outcome(end):
    ran = run("print('before')", end, "print('after')", stored="faked")
    assert ran.stopped == "the kernel ended in cell 2 (os._exit, or killed)"
    assert ran.cell == 1
    assert ran.texts == ["before\n", "", ""]


def test_memory_is_limited_over_all_processes():
    hoard = """
import os, time
for _ in range(6):
    if not os.fork():
        held = bytearray(b"1") * (100 * 2**20)
        time.sleep(60)
time.sleep(60)
"""
    ran = run("1", hoard, memory_bytes=GIB // 2)
    assert ran.stopped == "used more than 0.5 GiB of memory"


def test_a_process_cannot_ask_for_more_than_its_address_space():
    ran = run("bytearray(3 * 2**30)", "1", address_bytes=2 * GIB)
    assert ran.errors[0] == ["MemoryError"]
    assert ran.stopped is None


def test_a_fork_bomb_comes_to_an_end():
    bomb = """
import os, time
born = 0
try:
    for _ in range(500):
        if not os.fork():
            time.sleep(60)
            os._exit(0)
        born += 1
except BlockingIOError:
    pass
born
"""
    ran = run(bomb, "'still here'", processes=40)
    assert 0 < int(ran.texts[0]) < 40
    assert ran.texts[1] == "'still here'"


FILL = """
import os
sizes = []
for n in range({files}):
    try:
        with open(f"{folder}/{{n}}", "wb", buffering=0) as file:
            for _ in range(64):
                if file.write(bytes(2**20)) < 2**20:
                    break
    except OSError:
        pass
    sizes.append(os.path.getsize(f"{folder}/{{n}}") if os.path.exists(f"{folder}/{{n}}") else 0)
[max(sizes), sum(sizes)]
"""


def test_files_and_folders_are_limited():
    fill = [FILL.format(files=4, folder=folder) for folder in ("/tmp", "/dev/shm")]
    ran = run(*fill, file_bytes=8 * MIB, scratch_bytes=20 * MIB)
    for text in ran.texts:
        largest, total = json.loads(text)
        assert largest == 8 * MIB
        assert 16 * MIB < total <= 20 * MIB


@pytest.mark.parametrize(
    "flood",
    [
        "while True: print('x' * 1000)",
        "while True: print('x' * 1000, flush=True)",
        "from IPython.display import display\nwhile True: display('x' * 1000)",
        "print('x' * 50_000_000)",
        "import os\nwhile True: os.write(1, b'x' * 1000)",
        "import subprocess; subprocess.run(['yes'])",
    ],
)
def test_output_is_limited(flood, capfd):
    ran = run("print('before')", flood, "print('after')", output_bytes=10**6)
    assert ran.stopped in (
        "printed more than 1 MB",
        "cell 2 cut the line or sent more than 1 MB at once",
    )
    assert ran.texts[0] == "before\n"
    assert ran.texts[2] == ""
    assert len(ran.texts[1]) < 2 * 10**6
    assert capfd.readouterr() == ("", "")


def test_nothing_reaches_the_graders_terminal(capfd):
    raw = """
import os
for n in range(3, 60):
    try:
        os.write(n, b"marks: 100")
    except OSError:
        pass
"""
    run("import sys; print('to the terminal', file=sys.__stdout__)", raw, cell_s=1)
    assert capfd.readouterr() == ("", "")


SENDS = """
kernel = get_ipython().kernel
def send(kind, **content):
    kernel.session.send(kernel.iopub_socket, kind, content, parent=kernel.get_parent())
def nest(levels):
    return {"x": nest(levels - 1)} if levels else 0
"""
NO_MESSAGE = "cell 3 sent what is no message"


@pytest.mark.parametrize(
    ("message", "stopped"),
    [
        ("send('status')", NO_MESSAGE),
        ("send('stream')", NO_MESSAGE),
        ("send('display_data', data=5, metadata=None)", NO_MESSAGE),
        ("send('display_data', data={'application/json': nest(60)}, metadata={})", None),
        ("send('execute_result', data={'text/plain': {}}, metadata={})", NO_MESSAGE),
        ("send('stream', name='stdout', text=[[{}]])", NO_MESSAGE),
        ("print('\\ud800')", None),
        ("send('comm_open', comm_id='x', target_name='jupyter.widget', data={'state': 5})", None),
        ("kernel.session.key = b'other'; send('stream', name='stdout', text='')", NO_MESSAGE),
        ("kernel.iopub_socket.send_multipart([b'x'])", NO_MESSAGE),
        ("kernel.iopub_socket.send_multipart([b'<IDS|MSG>'] + [b'{'] * 5)", NO_MESSAGE),
    ],
)
def test_what_is_no_message_is_survived(message, stopped):
    ran = run("print('before')", SENDS, message, "'after'")
    assert (ran.stopped or "").startswith(stopped or "")
    assert bool(ran.stopped) == bool(stopped)
    assert ran.texts[0] == "before\n"
    assert ran.texts[3] == ("" if stopped else "'after'")
    nbformat.writes(ran.notebook).encode()
    nbformat.validate(ran.notebook)


def test_another_kernels_name_starts_the_same_kernel():
    ran = run("1 + 1", metadata={"kernelspec": {"name": "no such kernel", "display_name": "x"}})
    assert ran.texts == ["2"]


def folders():
    return {path.name for path in Path("/tmp").glob("pr-*")}


@pytest.mark.parametrize("sandboxed", [True, False])
def test_nothing_is_left_behind(sandboxed):
    before, descriptors = folders(), psutil.Process().num_fds()
    leave = "import subprocess; child = subprocess.Popen(['sleep', '987'])"
    ran = run("6 * 7", leave, sandboxed=sandboxed)
    assert ran.texts[0] == "42"
    assert psutil.Process().children(recursive=True) == []
    assert not [
        p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "987"]
    ]
    assert folders() == before
    assert psutil.Process().num_fds() <= descriptors + 2


GRADER = """
import time
from labsupport.sandbox import Limits
from labsupport.sandbox_kernel import Kernel
with Kernel(Limits(), True) as kernel:
    kernel.execute("import subprocess; subprocess.run(['sleep', '986'])")
    time.sleep(1)
    print("started", flush=True)
    time.sleep(600)
"""


def test_it_ends_with_the_grader():
    command = [sys.executable, "-c", GRADER]
    grader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert grader.stdout.readline() == "started\n"
    family = psutil.Process(grader.pid).children(recursive=True)
    assert ["sleep", "986"] in [process.cmdline() for process in family]
    os.kill(grader.pid, signal.SIGKILL)
    grader.communicate()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []


def test_a_kernel_that_cannot_start_is_an_outcome(monkeypatch):
    monkeypatch.setattr(sandbox, "command", lambda *_: ["false"])
    ran = run("1", stored="faked")
    assert ran.stopped == "the kernel did not start"
    assert ran.texts == [""]


def test_refusal_says_what_to_do(monkeypatch):
    monkeypatch.setattr(sandbox, "command", lambda *_: ["false"])
    assert "user.max_user_namespaces" in sandbox.refusal()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "apt install bubblewrap" in sandbox.refusal()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "Linux" in sandbox.refusal()
