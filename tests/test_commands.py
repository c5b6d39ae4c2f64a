"""The commands: README, make, CI and the workflows run the same ones."""

import re

import pytest
import yaml
from repository import ROOT, read

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_the_two_commands_are_the_ones_that_ci_runs():
    block = re.search(r"## Two commands.*?```sh\n(.*?)```", read("README.md"), re.S)[1]
    commands = [line.split("#")[0].strip() for line in block.splitlines()]
    assert commands == ["make book", "make test"]

    assert read(".ci/run").rstrip().splitlines()[-1] == commands[1]
    workflow = read(".github/workflows/test.yml")
    assert all(re.search(rf"^ +{command}$", workflow, re.M) for command in commands)


def test_windows_is_tested_with_the_commands_of_readme():
    block = re.search(r"```bat\n(.*?)```", read("README.md"), re.S)[1]
    commands = [line.strip() for line in block.splitlines() if "jupyter lab" not in line]
    workflow = [line.strip() for line in read(".github/workflows/test.yml").splitlines()]
    for command in commands:
        assert command.replace("py -3.12", "python") in workflow


def test_make_test_is_whole():
    """Lint, the book and every test: nothing is left out of the one command."""
    rules = dict(re.findall(r"^(\w+):(.*)", read("Makefile"), re.M))
    assert {"lint", "book"} <= set(rules["test"].split())
    recipe = re.search(r"^test:.*\n\t(.*)", read("Makefile"), re.M)[1]
    assert recipe == "$(VENV_PYTHON) -m pytest"
    assert re.findall(r"ruff (check|format --check) \.", read("Makefile")) == [
        "check",
        "format --check",
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_one_job(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert list(workflow["jobs"]) == [path.stem] == [workflow["name"]]
    assert all("uses" in step or "run" in step for step in workflow["jobs"][path.stem]["steps"])


def test_workflows_run_when_they_should():
    on = {path.stem: yaml.safe_load(path.read_text("utf-8"))[True] for path in WORKFLOWS}
    assert set(on) == {"test", "publish", "links", "fresh", "binder"}
    assert "pull_request" in on["test"]
    for weekly in ("links", "fresh"):
        assert on[weekly]["schedule"]
        assert not {"pull_request", "push"} & set(on[weekly])
