"""Which cells of a lesson are tagged live, and what each of them has to do with a measurement."""

import ast
import re

from lesson_inputs import PACKAGE, import_closure
from repository import ROOT
from two_builds import is_live

# What reads a clock or the memory of a process, in the source of a module.
READS = re.compile(r"perf_counter|process_time|tracemalloc|memory_info|getrusage|/proc/")


def measures(module: str) -> bool:
    """Whether a module of the package, or one that it imports, reads a clock or the memory."""
    package = ROOT / PACKAGE
    texts = (package / f"{name}.py" for name in import_closure({module}, package, {}))
    return any(READS.search(path.read_text(encoding="utf-8")) for path in texts)


def parsed(cell) -> ast.Module:
    """The cell's code, its lines of notebook magic left out."""
    lines = [line for line in cell.source.splitlines() if not line.startswith(("%", "!"))]
    return ast.parse("\n".join(lines))


def names(tree: ast.Module, kind: type) -> set[str]:
    """The names that the code loads (ast.Load) or sets (ast.Store)."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {node.id for node in found if isinstance(node.ctx, kind)}


def imports(tree: ast.Module) -> dict[str, str]:
    """Name -> the module of the package that it is, or comes from."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
            for alias in node.names:
                module = node.module.split(".")[1] if "." in node.module else alias.name
                found[alias.asname or alias.name] = module
    return found


def without_measurement(lesson_cells: list) -> list[str]:
    """Cells tagged live that neither measure nor use a name that a live cell set."""
    known, live_names, idle = {}, set(), []
    for cell in lesson_cells:
        if cell.cell_type != "code":
            continue
        tree = parsed(cell)
        known |= imports(tree)
        used = names(tree, ast.Load)
        if is_live(cell):
            measuring = any(measures(known[name]) for name in used & set(known))
            if not (measuring or used & live_names):
                idle.append(cell.source)
            live_names |= names(tree, ast.Store)
    return idle
