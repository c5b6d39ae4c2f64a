"""Install what Binder and a hub install, then run notebooks there to their end, in Chromium.

    python tools/try_binder.py          # on Linux; some minutes, 2 GB in a temporary folder

Two trials with what is committed, in a fresh environment of this Python: Binder's files, as
repo2docker uses them, with notebooks opened through the paths of their launch links; then a link
for nbgitpuller, in an empty home.
"""

import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
import venv
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import yaml
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]
NAME, PORT = CONFIG["url"].rsplit("/", 1)[1], 8931
CHAPTER, EXERCISES = "chapters/stall.md", "exercises/student/stall/stall.ipynb"

# Run the open notebook to its end, or to the first check of an exercise: its code cells' outputs.
RUN = """async (toFirstCheck) => {
  const { commands, shell } = window.jupyterapp, panel = shell.currentWidget;
  await panel.context.ready;
  await panel.sessionContext.ready;
  const cells = panel.content.widgets.map((cell) => cell.model);
  if (toFirstCheck) {
    const last = cells.findIndex((cell) => cell.sharedModel.source.startsWith("check."));
    for (panel.content.activeCellIndex = 0; panel.content.activeCellIndex <= last; ) {
      await commands.execute("notebook:run-cell-and-select-next");
    }
  } else await commands.execute("notebook:run-all-cells");
  return cells.filter((cell) => cell.type === "code").map((cell) => ({
    ran: Boolean(cell.executionCount), outputs: cell.outputs.toJSON() }));
}"""
OPEN = "(path) => window.jupyterapp?.shell.currentWidget?.context?.path === path"


def run(*command, **options):
    """A command that must succeed."""
    subprocess.run([str(word) for word in command], check=True, **options)


def environment(folder, *requirements):
    """A fresh environment with these requirements, and variables that activate it."""
    start = time.perf_counter()
    venv.create(folder, with_pip=True)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", *requirements)
    size = sum(path.lstat().st_size for path in folder.rglob("*"))
    print(f"{folder.name}: {size / 1e9:.2f} GB in {time.perf_counter() - start:.0f} s", flush=True)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": "", "HOME": str(folder)}  # nobody's settings


@contextmanager
def jupyter_lab(folder, variables):
    """JupyterLab started in `folder`, as an address."""
    options = f"--no-browser --allow-root --expose-app-in-browser --port={PORT} --port-retries=0"
    command = ["jupyter", "lab", *options.split(), "--IdentityProvider.token="]
    address = f"http://127.0.0.1:{PORT}"
    server = subprocess.Popen(command, cwd=folder, env=variables, stderr=subprocess.DEVNULL)
    try:
        for _ in range(60):
            try:
                urllib.request.urlopen(f"{address}/api").close()
                break
            except OSError:
                time.sleep(1)
        yield address
    finally:
        server.terminate()
        server.wait()


def run_notebook(address, path, to_first_check=False):
    """Run the notebook that an address of JupyterLab shows, which must be `path`; its outputs."""
    with sync_playwright() as playwright:
        chromium = {"executable_path": shutil.which("chromium"), "args": ["--no-sandbox"]}
        page = playwright.chromium.launch(**chromium).new_page()
        page.goto(address)
        page.wait_for_function(OPEN, arg=path, timeout=120_000)
        start = time.perf_counter()
        cells = page.evaluate(RUN, to_first_check)
    ran = [cell["outputs"] for cell in cells if cell["ran"]]
    took = time.perf_counter() - start
    print(f"  {path}: {len(ran)} of {len(cells)} cells in {took:.0f} s", flush=True)
    return cells


def run_chapter(address, path):
    """As `run_notebook`: every cell must run, and none may end with an error."""
    for cell in run_notebook(address, path):
        assert cell["ran"]
        assert all(output["output_type"] != "error" for output in cell["outputs"]), cell


def try_binder(work, course):
    """Binder's files, then a chapter and exercises through the paths of their launch links."""
    variables = environment(work / "binder", "-r", course / ".binder/requirements.txt")
    torch = "import torch; assert torch.version.cuda is None, torch.__version__"
    run("python", "-c", torch, env=variables)
    run(course / ".binder/postBuild", cwd=course, env=variables)
    with jupyter_lab(course, variables) as lab:
        run_chapter(f"{lab}/lab/tree/{CHAPTER}", CHAPTER)
        cells = run_notebook(f"{lab}/lab/tree/{EXERCISES}", EXERCISES, to_first_check=True)
        assert "Not yet" in str([cell["outputs"] for cell in cells if cell["ran"]][-1])
    return variables


def try_hub(work, course, variables):
    """The hub link of pages/elsewhere.md: Binder's environment, nbgitpuller, an empty home."""
    run("python", "-m", "pip", "install", "--quiet", "nbgitpuller", env=variables)
    run("python", "-m", "pip", "uninstall", "--quiet", "--yes", "labsupport", env=variables)
    home = work / "home"
    home.mkdir()
    path = f"lab/tree/{NAME}/{CHAPTER}"
    query = urlencode({"repo": course.as_uri(), "branch": CONFIG["branch"], "urlpath": path})
    with jupyter_lab(home, variables | {"PYTHONPATH": str(home / NAME)}) as lab:
        run_chapter(f"{lab}/git-pull?{query}", f"{NAME}/{CHAPTER}")


@contextmanager
def working_copy():
    """A folder to work in, for as long as the block lasts, and a clone of the course in it."""
    with tempfile.TemporaryDirectory() as folder:
        course = Path(folder) / NAME
        run("git", "clone", "--quiet", ROOT, course)
        run("git", "-C", course, "checkout", "--quiet", "-B", CONFIG["branch"])
        yield Path(folder), course


if __name__ == "__main__":
    with working_copy() as (work, course):
        try_hub(work, course, try_binder(work, course))
