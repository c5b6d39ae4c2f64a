"""Run chapter 1 as a reader of Colab does: its download, with the page's one cell above it.

    python tools/try_colab.py           # after a build; on Linux, 2 GB in a temporary folder

Colab itself cannot be had here. This is a fresh environment with Colab's libraries in versions that
are not the course's, and an empty folder.
"""

import re
import time

import nbformat
from setup_env import TORCH_CPU_INDEX
from try_binder import CONFIG, ROOT, environment, run, working_copy

# Colab has these, in versions of its own. The kernel loads psutil before our cell replaces it.
LIKE_COLAB = ["numpy<2.4", "pandas<3", "matplotlib<3.11", "scipy<1.17", "psutil<7", "torch"]
LIKE_COLAB += ["ipykernel<7", "ipython<9", "nbclient", "--extra-index-url", TORCH_CPU_INDEX]


def try_colab(work, course):
    """The page's cell by itself, since it may ask for a restart; then chapter 1 with it on top."""
    variables = environment(work / "colab", *LIKE_COLAB)
    page = (ROOT / "pages/elsewhere.md").read_text(encoding="utf-8")
    (cell,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.S) if "clone" in code]
    set_up = nbformat.v4.new_code_cell(cell.replace(CONFIG["url"], course.as_uri()))
    lesson = nbformat.read(ROOT / "_build/html/_sources/chapters/stall.ipynb", as_version=4)

    content = work / "content"  # the name of Colab's own folder
    content.mkdir()
    for name, cells in {"first": [set_up], "then": [set_up, *lesson.cells]}.items():
        notebook = nbformat.v4.new_notebook(cells=cells)
        nbformat.write(notebook, content / f"{name}.ipynb")
    execute = "jupyter execute --inplace".split()
    run(*execute, "--allow-errors", "first.ipynb", cwd=content, env=variables)
    (said,) = nbformat.read(content / "first.ipynb", as_version=4).cells[0].outputs
    assert said.get("evalue", "").startswith("Restart now"), said  # it replaced a loaded psutil
    start = time.perf_counter()
    run(*execute, "then.ipynb", cwd=content, env=variables)
    print(f"  chapter 1 in {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    with working_copy() as (work, course):
        try_colab(work, course)
