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
MENTION = re.compile(rf"{PACKAGE}[./\\](\w+)")  # labsupport.timing, labsupport/timing.py
FROM = re.compile(rf"from\s+{PACKAGE}\s+import\s+(\([^)]*\)|(?:\\\n|.)*)")
IMPORTERS = {"import_module", "__import__", "run_module", "run_path", "exec"}
STRAY = re.compile(
    r"\..*|.*~|#.*#|__pycache__|.*\.(pyc|bak|orig|rej|tmp|swp)|Thumbs\.db|desktop\.ini"
)


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


def files_in(folder: Path) -> list[Path]:
    """Every file under `folder`, without those that an editor or an operating system leaves."""
    return [
        path
        for path in (folder.rglob("*") if folder.is_dir() else ())
        if path.is_file() and not any(map(STRAY.fullmatch, path.relative_to(folder).parts))
    ]


def all_modules(package: Path) -> set[str]:
    """Names of the package's modules."""
    return {path.stem for path in package.glob("*.py") if not STRAY.fullmatch(path.name)}


def mentioned_modules(text: str, package: Path) -> set[str]:
    """Names of the package's modules that `text` mentions as labsupport.x, labsupport/x or
    `from labsupport import x`, be it a command line, a path or a line of notebook magic."""
    names = set(MENTION.findall(text))
    for listed in FROM.findall(text):
        names |= set(re.findall(r"\w+", listed))
    found = names & all_modules(package) if names else set()
    return found | {"__init__"} if found else set()


def imported_modules(code: str, package: Path) -> set[str]:
    """Names of the package's modules that `code` may import, anywhere in it.

    Besides the import statements these are the modules that its strings mention, docstrings left
    out. Lines of notebook magic are left out too. Code that still does not parse could import
    anything, and so could an import of a name that is computed: they count as every module.
    """
    lines = [line for line in code.splitlines() if not line.lstrip().startswith(("%", "!"))]
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError:
        return all_modules(package)

    nodes = list(ast.walk(tree))
    docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
    names, strings = set(), []  # dotted names that may be modules
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(filter(None, [PACKAGE if node.level else "", node.module]))
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and imports_computed_name(node):
            return all_modules(package)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            strings += [node.value] if node not in docstrings else []

    ours = [name.split(".") for name in names if name.split(".")[0] == PACKAGE]
    found = {parts[1] for parts in ours if len(parts) > 1}
    if found:
        found &= all_modules(package)
    found |= mentioned_modules("\n".join(strings), package)
    return found | ({"__init__"} if ours else set())


def imports_computed_name(call: ast.Call) -> bool:
    """Whether the call imports or runs something that is not spelt out in one string."""
    name = getattr(call.func, "attr", getattr(call.func, "id", None))
    literal = len(call.args) == 1 and isinstance(call.args[0], ast.Constant)
    return name in IMPORTERS and not literal


def import_closure(start: set[str], package: Path, known: dict[str, set[str]]) -> set[str]:
    """`start` and every module of the package that these import, directly or not.

    `known` collects what each module imports, for lessons share most of theirs.
    """
    seen, todo = set(), set(start)
    while todo:
        name = todo.pop()
        seen.add(name)
        if name not in known:
            code = (package / f"{name}.py").read_text(encoding="utf-8")
            known[name] = imported_modules(code, package)
        todo |= known[name] - seen
    return seen


def computes_evidence_name(text: str) -> bool:
    """Whether `text` uses evidence.read or evidence.directory with more than one string."""
    if re.search(rf"from\s+{PACKAGE}\.evidence\s+import", text):
        return True
    names = "|".join({"evidence", *re.findall(r"\bevidence\s+as\s+(\w+)", text)})
    literal = r"\s*\(\s*(\"[^\"\n]*\"|'[^'\n]*')\s*\)"
    return bool(re.search(rf"\b({names})\.(read|directory)\b(?!{literal})", text))


def input_files(cells: list[str], root: Path, known: dict[str, set[str]]) -> list[Path]:
    """The files that the results of these code cells depend on, sorted.

    They are the modules of labsupport that the cells import or mention, what else of the package
    these name (the figures' style), each directory of evidence/ whose name occurs as a word in the
    cells or in those modules, and requirements.txt. Where a name of evidence is computed, every run
    counts.
    """
    package, evidence = root / PACKAGE, root / "evidence"
    text = "\n".join(cells)
    direct = mentioned_modules(text, package)
    direct = direct.union(*(imported_modules(cell, package) for cell in cells))
    if re.search(rf"-m[\s\"',]+{PACKAGE}\b", text):  # its command line may use it all
        direct = all_modules(package)
    modules = [package / f"{name}.py" for name in import_closure(direct, package, known)]
    files = [*modules, root / "requirements.txt"]
    texts = [text, *(path.read_text(encoding="utf-8") for path in modules)]
    others = [path for path in files_in(package) if path.suffix != ".py"]
    files += [path for path in others if any(path.name in text for text in texts)]
    every_run = any(map(computes_evidence_name, texts))
    words = set(re.findall(r"[\w-]+", "\n".join(texts)))
    for path in files_in(evidence):
        if every_run or path.relative_to(evidence).parts[0] in words:
            files.append(path)
    return sorted(files)


def digest(cells: list[str], root: Path, known: dict[str, set[str]]) -> str:
    """SHA-256 over the inputs of these cells and the Python version that runs them."""
    total = hashlib.sha256(repr(sys.version_info[:2]).encode())
    for path in input_files(cells, root, known):
        total.update(path.relative_to(root).as_posix().encode() + b"\0")
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def lesson_digests(root: Path) -> dict[str, str]:
    """Document name -> digest of its inputs, for every executed lesson of the book."""
    lessons, known = executed_lessons(root), {}
    return {doc: digest(code_cells(path), root, known) for doc, path in lessons.items()}
