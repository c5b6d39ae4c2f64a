"""What an executed lesson depends on besides its own cells, as files and as one digest.

The execution cache knows a lesson by its code cells alone. A lesson's results also depend on the
labsupport modules it imports, on the evidence it reads, on the figures' style and on the pinned
libraries. `tools/build.py` compares these digests to find the lessons that must run again.
"""

import ast
import hashlib
import re
import sys
from pathlib import Path

import jupytext
from myst_nb.core.read import is_myst_markdown_notebook
from sphinx_external_toc.parsing import parse_toc_yaml

PACKAGE = "labsupport"


def toc_pages(root: Path) -> dict[str, Path]:
    """Every page of `_toc.yml`: document name -> source file; an error names what is missing."""
    pages = {}
    for doc in parse_toc_yaml(root / "_toc.yml"):
        sources = [root / f"{doc}{suffix}" for suffix in (".md", ".ipynb")]
        found = [path for path in sources if path.is_file()]
        if not found:
            raise FileNotFoundError(f"_toc.yml lists '{doc}', but there is no {doc}.md; add it")
        pages[doc] = found[0]
    return pages


def executed_lessons(root: Path) -> dict[str, Path]:
    """The pages that are MyST Markdown notebooks, which the build executes."""
    return {
        doc: path
        for doc, path in toc_pages(root).items()
        if path.suffix == ".md" and is_myst_markdown_notebook(path.read_text(encoding="utf-8"))
    }


def code_cells(lesson: Path) -> list[str]:
    """The source of each code cell of a lesson, in order."""
    return [cell.source for cell in jupytext.read(lesson).cells if cell.cell_type == "code"]


def imported_modules(code: str, package: Path) -> set[str]:
    """Names of the package's modules that `code` imports, anywhere in it.

    Lines of notebook magic are left out. Code that still does not parse could import anything, so
    it counts as importing every module.
    """
    modules = {path.stem for path in package.glob("*.py")}
    lines = [line for line in code.splitlines() if not line.lstrip().startswith(("%", "!"))]
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError:
        return modules

    names = set()  # dotted names that may be modules
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(filter(None, [PACKAGE if node.level else "", node.module]))
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}

    ours = [name.split(".") for name in names if name.split(".")[0] == PACKAGE]
    found = {parts[1] for parts in ours if len(parts) > 1} & modules
    return found | ({"__init__"} if ours else set())


def import_closure(start: set[str], package: Path) -> set[str]:
    """`start` and every module of the package that these import, directly or not."""
    seen, todo = set(), set(start)
    while todo:
        name = todo.pop()
        seen.add(name)
        code = (package / f"{name}.py").read_text(encoding="utf-8")
        todo |= imported_modules(code, package) - seen
    return seen


def input_files(cells: list[str], root: Path) -> list[Path]:
    """The files that the results of these code cells depend on, sorted.

    They are the imported modules of labsupport, the package's other files (the figures' style),
    each directory of evidence/ whose name occurs in the cells or in those modules, and
    requirements.txt.
    """
    package = root / PACKAGE
    direct = set().union(*(imported_modules(cell, package) for cell in cells))
    if re.search(rf"-m[\s\"',]+{PACKAGE}\b", "\n".join(cells)):  # its command line may use it all
        direct = {path.stem for path in package.glob("*.py")}
    modules = [package / f"{name}.py" for name in import_closure(direct, package)]
    files = [*modules, root / "requirements.txt"]
    if modules:
        files += [f for f in package.iterdir() if f.is_file() and f.suffix != ".py"]

    text = "\n".join([*cells, *(path.read_text(encoding="utf-8") for path in modules)])
    evidence = root / "evidence"
    for run in evidence.iterdir() if evidence.is_dir() else ():
        if run.is_dir() and run.name in text:
            files += [f for f in run.rglob("*") if f.is_file()]
    return sorted(files)


def digest(cells: list[str], root: Path) -> str:
    """SHA-256 over the inputs of these cells and the Python version that runs them."""
    total = hashlib.sha256(repr(sys.version_info[:2]).encode())
    for path in input_files(cells, root):
        total.update(path.relative_to(root).as_posix().encode() + b"\0")
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def lesson_digests(root: Path) -> dict[str, str]:
    """Document name -> digest of its inputs, for every executed lesson of the book."""
    return {doc: digest(code_cells(path), root) for doc, path in executed_lessons(root).items()}
