"""What a submission may do to whoever grades it: nothing. Every guard has somebody who tries it."""

import json
import os
import py_compile
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat import v4

from labsupport import sandbox, sandbox_execute
from labsupport.sandbox import GIB, Limits
from labsupport.sandbox_execute import Execute

ROOT = Path(__file__).resolve().parent.parent
MIB = 2**20
NAMESPACES = ("pid", "net", "ipc", "uts", "user")


@dataclass(frozen=True)
class Ran:
    """What came of a notebook: each cell's text, its errors' names, and the outcome."""

    texts: list[str]
    errors: list[list[str]]
    stopped: str | None
    cell: int | None
    seconds: float
    notebook: nbformat.NotebookNode


def ran(*sources, sandboxed=True, metadata=None, stored=None, **limits):
    """Run a notebook of these cells. `stored` is an output that every cell has before."""
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


@pytest.fixture(scope="session")
def run():
    """Runs cells in a sandbox. Where there is none `conftest` leaves these tests out, but not where
    the course is tested for everybody."""
    if why := sandbox.refusal():
        pytest.fail(why)
    return ran


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
mounts = {line.split()[1]: line.split()[3].split(",") for line in open("/proc/self/mounts")}
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
    "writable": [folder for folder, flags in mounts.items() if "rw" in flags],
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
def view(run, tmp_path_factory):
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
            done = run(
                f"asked = {asked!r}", LOOK_ROUND, "import torch, labsupport.checks; 'loaded'"
            )
    assert done.stopped is None
    assert done.texts[2] == "'loaded'"
    return json.loads(done.texts[1]) | {"secret": str(secret), "paths": paths}


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
    kept = [path for path in view["writable"] if not path.startswith(("/proc", "/dev/"))]
    assert kept == ["/tmp"]
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


def test_the_checks_are_not_there_in_compiled_form_either(run):
    py_compile.compile(str(ROOT / "labsupport" / "checks_stall.py"), doraise=True)
    course = "pathlib.Path(labsupport.__file__).parent"
    look = f"import pathlib, labsupport\nlist({course}.rglob('*.pyc'))"
    assert run(look).texts == ["[]"]


def test_what_is_right_runs_as_it_would_anywhere(run, caplog):
    done = run("x = 6", "print(x * 7)", "1 / 0", "x", stored="42 of 42 points")
    assert done.texts == ["", "42\n", "", "6"]
    assert done.errors == [[], [], ["ZeroDivisionError"], []]
    assert [cell.execution_count for cell in done.notebook.cells] == [1, 2, 3, 4]
    assert caplog.records == []
    assert (done.stopped, done.cell) == (None, None)
    assert done.seconds > 0


def test_a_cell_that_loops_costs_itself_alone(run):
    done = run("x = 1", "while True: pass", "x + 1", cell_s=1)
    assert done.stopped == "cell 2 ran longer than 1 s"
    assert done.cell == 1
    assert done.errors[1] == ["KeyboardInterrupt"]
    assert done.texts[2] == "2"


def test_a_cell_that_does_not_obey_ends_the_run(run):
    stubborn = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    done = run("print('before')", stubborn, "print('after')", cell_s=1)
    assert done.stopped.startswith("cell 2 ran longer than 1 s; ")
    assert done.texts == ["before\n", "", ""]


def test_a_kernel_that_stops_itself_is_ended(run):
    done = run("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "1", cell_s=1)
    assert done.stopped.startswith("cell 1 ran longer than 1 s; ")


def test_all_cells_together_are_timed(run):
    done = run("import time", *["time.sleep(0.9)"] * 9, cell_s=60, total_s=3)
    assert done.stopped == "all cells together ran longer than 3 s"
    assert 3 < done.seconds < 9


@pytest.mark.parametrize("end", ["import os; os._exit(0)", "import os; os.kill(os.getpid(), 9)"])
def test_a_kernel_that_ends_is_an_outcome(run, end):
    done = run("print('before')", end, "print('after')", stored="faked")
    assert done.stopped == "the kernel ended in cell 2 (os._exit, or killed)"
    assert done.cell == 1
    assert done.texts == ["before\n", "", ""]


def test_memory_is_limited_over_all_processes(run):
    hoard = """
import os, time
for _ in range(6):
    if not os.fork():
        held = bytearray(b"1") * (100 * 2**20)
        time.sleep(60)
time.sleep(60)
"""
    done = run("1", hoard, memory_bytes=GIB // 2)
    assert done.stopped == "used more than 0.5 GiB of memory"


def test_a_process_cannot_ask_for_more_than_its_address_space(run):
    done = run("bytearray(3 * 2**30)", "1", address_bytes=2 * GIB)
    assert done.errors[0] == ["MemoryError"]
    assert done.stopped is None


def test_a_fork_bomb_comes_to_an_end(run):
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
    done = run(bomb, "'still here'", processes=40)
    assert 0 < int(done.texts[0]) < 40
    assert done.texts[1] == "'still here'"


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


def test_files_and_folders_are_limited(run):
    fill = [FILL.format(files=4, folder=folder) for folder in ("/tmp", "/dev/shm")]
    done = run(*fill, file_bytes=8 * MIB, scratch_bytes=20 * MIB)
    for text in done.texts:
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
def test_output_is_limited(run, flood, capfd):
    done = run("print('before')", flood, "print('after')", output_bytes=10**6)
    assert done.stopped in (
        "printed more than 1 MB",
        "cell 2 cut the line or sent more than 1 MB at once",
    )
    assert done.texts[0] == "before\n"
    assert done.texts[2] == ""
    assert len(done.texts[1]) < 2 * 10**6
    assert capfd.readouterr() == ("", "")


def test_nothing_reaches_the_graders_terminal(run, capfd):
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
def escaped(told):
    return __import__("json").dumps(told, default=str).encode()
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
        ("send('execute_result', data={'text/plain': {}}, metadata={})", NO_MESSAGE),
        ("send('stream', name='stdout', text=[[{}]])", NO_MESSAGE),
        ("send('execute_input', code='', execution_count='x')", None),
        ("kernel.session.pack = escaped; send('stream', name='stdout', text='\\ud800')", None),
        ("send('comm_open', comm_id='x', target_name='jupyter.widget', data={'state': 5})", None),
        ("kernel.session.key = b'other'; send('stream', name='stdout', text='')", NO_MESSAGE),
        ("kernel.iopub_socket.send_multipart([b'x'])", NO_MESSAGE),
        ("kernel.iopub_socket.send_multipart([b'<IDS|MSG>'] + [b'{'] * 5)", NO_MESSAGE),
    ],
)
def test_what_is_no_message_is_survived(run, message, stopped):
    done = run("print('before')", SENDS, message, "'after'")
    assert (done.stopped or "").startswith(stopped or "")
    assert bool(done.stopped) == bool(stopped)
    assert done.texts[0] == "before\n"
    assert done.texts[3] == ("" if stopped else "'after'")
    nbformat.writes(done.notebook).encode()
    nbformat.validate(done.notebook)


def test_an_output_that_nests_deeply_is_dropped(run):
    nested = "send('display_data', data={'application/json': nest(60)}, metadata={})"
    done = run(SENDS, nested, "'after'")
    assert done.notebook.cells[1].outputs == []
    assert done.texts[2] == "'after'"


def test_another_kernels_name_starts_the_same_kernel(run):
    done = run("1 + 1", metadata={"kernelspec": {"name": "no such kernel", "display_name": "x"}})
    assert done.texts == ["2"]


def traces():
    """What a run could leave behind: processes, folders, the number of descriptors."""
    processes = psutil.process_iter(["cmdline"])
    sleeping = [process for process in processes if "987" in (process.info["cmdline"] or [])]
    folders = set(Path(tempfile.gettempdir()).glob("pr-*")) | set(Path("/tmp").glob("pr-*"))
    descriptors = getattr(psutil.Process(), "num_fds", lambda: 0)()
    return psutil.Process().children(recursive=True), sleeping, folders, descriptors


LEAVE = """
import subprocess, sys, time
sleep = "import time; time.sleep(987)"
start = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1], '987'])"
subprocess.Popen([sys.executable, "-c", start, sleep])
time.sleep(1)
"""


def unneeded(process):
    pytest.fail("The first process of the sandbox did not take all others with it.")


def test_nothing_is_left_behind(run, monkeypatch):
    monkeypatch.setattr(subprocess.Popen, "kill", unneeded)
    run("1")  # what libraries open once
    before = traces()
    done = run(LEAVE, "6 * 7")
    assert done.texts[1] == "42"
    assert traces() == before


def test_without_a_sandbox_limits_of_time_and_amount_hold():
    ran("1", sandboxed=False)
    before = traces()
    done = ran(LEAVE, "while True: print('x' * 1000)", "1", sandboxed=False)
    assert "more than 4 MB" in done.stopped
    done = ran("6 * 7", "while True: pass", sandboxed=False, cell_s=1)
    assert done.texts[0] == "42"
    assert done.stopped.startswith("cell 2 ran longer than 1 s")
    assert traces() == before


GRADER = """
import sys, time
from labsupport.sandbox import Limits
from labsupport.sandbox_kernel import Kernel
with Kernel(Limits(), sys.argv[1] == "True") as kernel:
    print("started", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("sandboxed", [True, False])
def test_a_kernel_ends_with_its_grader(run, sandboxed):
    command = [sys.executable, "-c", GRADER, str(sandboxed)]
    grader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert grader.stdout.readline() == "started\n"
    family = psutil.Process(grader.pid).children(recursive=True)
    lines = [process.cmdline() for process in family]
    kernel = next(line for line in lines if line[1:3] == ["-m", "ipykernel_launcher"])
    grader.kill()
    grader.communicate()
    _, alive = psutil.wait_procs(family, timeout=20)
    if not sandboxed:
        shutil.rmtree(Path(kernel[kernel.index("-f") + 1]).parent)
    assert alive == []


def test_a_kernel_that_cannot_start_is_an_outcome(run, monkeypatch):
    monkeypatch.setattr(sandbox, "command", lambda *_: ["false"])
    done = run("1", stored="faked")
    assert done.stopped == "the kernel did not start"
    assert done.texts == [""]


def test_the_machines_memory_is_watched(run, monkeypatch):
    monkeypatch.setattr(sandbox_execute, "SPARE_BYTES", 2**60)
    done = run("import time; time.sleep(60)")
    assert done.stopped == "the machine had hardly any memory left"


def test_what_a_sandbox_shows_is_known(monkeypatch, tmp_path):
    assert sandbox.shows(Path("/usr/src/course"))  # a container's usual place
    assert sandbox.shows(Path(sys.prefix, "masters"))
    assert sandbox.shows(ROOT / "evidence")
    assert not sandbox.shows(tmp_path)
    monkeypatch.setattr(sandbox.machine, "ROOT", Path("/usr/src/course"))
    assert "holds the course" in sandbox.refusal()


def test_refusal_says_what_to_do(run, monkeypatch):
    monkeypatch.setattr(sandbox, "_pythons", lambda: [str(ROOT)])
    assert "virtual environment" in sandbox.refusal()
    monkeypatch.undo()
    monkeypatch.setattr(sandbox, "command", lambda *_: ["false"])
    assert "user.max_user_namespaces" in sandbox.refusal()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "apt install bubblewrap" in sandbox.refusal()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "Linux" in sandbox.refusal()
