"""A submission made fit to run: the master's tests in it, once each, whatever was done to them."""

from dataclasses import dataclass, field

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_raw_cell

TESTS = "-check"  # behind the grade_id of the solution, the grade_id of its tests


@dataclass
class Restored:
    """The notebook to run, and what was repaired.

    - `looks`: what an instructor should look at (tests edited, deleted, copied; an old version)
    - `remarks`: what made no difference (metadata lost)
    """

    notebook: NotebookNode
    looks: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def grade_id(cell: NotebookNode) -> str | None:
    """nbgrader's name of a cell; None for a cell that it knows nothing of."""
    return cell.metadata.get("nbgrader", {}).get("grade_id")


def is_test(cell: NotebookNode) -> bool:
    """Whether a cell holds the tests of an exercise."""
    return bool(cell.metadata.get("nbgrader", {}).get("grade"))


def restore(handed: NotebookNode, master: NotebookNode, released: NotebookNode) -> Restored:
    """`handed`, as `submissions.read` gives it, with the tests of `master`.

    All other cells of the student stay, in their order. The points and all that nbgrader reads are
    the master's. `released` is the master's student version, by which what was changed is told.
    """
    done = Restored(new_notebook(metadata={"kernelspec": dict(master.metadata.kernelspec)}))
    wanted = {cell.id: cell for cell in master.cells}
    places, copies = _places(handed.cells, released.cells)
    origins = {place: name for name, place in places.items()}
    cells = []  # pairs: the id of the master's cell that it is, or None; the cell
    for place, cell in enumerate(handed.cells):
        if place in copies and is_test(wanted[copies[place]]):
            done.looks.append(f"the test {copies[place]} stood in it twice: the first counts")
            cells.append((None, new_raw_cell(cell.source, id=cell.id)))  # does not run
        else:
            name = origins.get(place)
            cells.append((name, _restored(cell, wanted.get(name))))
    for cell in filter(grade_id, released.cells):
        if cell.id in places:
            _compare(handed.cells[places[cell.id]], cell, done)
    _tell_missing([grade_id(cell) for cell in released.cells if cell.id in places], released, done)
    _insert(places, master, cells)
    _order(cells, done)
    version = master.metadata.get("price_of_remembering", {}).get("version", 1)
    if handed.metadata.version is not None and handed.metadata.version < version:
        done.looks.append(f"this is version {handed.metadata.version}; the master is {version}")
    done.notebook.cells = [cell for _, cell in cells]
    return done


def _places(cells: list, released: list) -> tuple[dict[str, int], dict[int, str]]:
    """Where each released cell is, by its id, and which further cells have the name of one.

    Looked for by nbgrader's name, then by the id of the cell, then by the same source.
    """
    places, copies = {}, {}
    ids = {grade_id(cell): cell.id for cell in released if grade_id(cell)}
    for place, cell in enumerate(cells):
        if name := ids.get(cell.metadata.get("grade_id")):
            if name in places:
                copies[place] = name
            places.setdefault(name, place)
    for same in (_same_id, _same_source):
        for wanted in released:
            taken = {*places.values(), *copies}
            free = (at for at, cell in enumerate(cells) if at not in taken and same(cell, wanted))
            if wanted.id not in places and (place := next(free, None)) is not None:
                places[wanted.id] = place
    return places, copies


def _same_id(cell: NotebookNode, released: NotebookNode) -> bool:
    return cell.id == released.id


def _same_source(cell: NotebookNode, released: NotebookNode) -> bool:
    return _bare(cell.source) == _bare(released.source)


def _restored(cell: NotebookNode, origin: NotebookNode | None) -> NotebookNode:
    """A student's cell as it will run: tests are the master's, and a solution is named as one."""
    if origin is None or not grade_id(origin):
        return NotebookNode({**cell, "metadata": NotebookNode()})
    source = origin.source if is_test(origin) else cell.source
    made = new_code_cell(source, id=cell.id, metadata={"nbgrader": dict(origin.metadata.nbgrader)})
    return NotebookNode({**made, "outputs": cell.get("outputs", [])})


def _compare(cell: NotebookNode, released: NotebookNode, done: Restored) -> None:
    name = grade_id(released)
    if cell.metadata.get("grade_id") != name:
        done.remarks.append(f"{name} had lost its name for nbgrader")
    if not is_test(released):
        return
    if not _same_source(cell, released) or cell.cell_type != "code":
        done.looks.append(f"the test {name} was changed: the released one was run")
    points = released.metadata.nbgrader["points"]
    if cell.metadata.get("points", points) != points:
        done.looks.append(f"the points of the test {name} were changed, which changes nothing")


def _tell_missing(here: list, released: NotebookNode, done: Restored) -> None:
    for name in [grade_id(cell) for cell in released.cells if is_test(cell)]:
        solution = name.removesuffix(TESTS)
        if name in here and solution not in here:
            done.remarks.append(f"{solution} had lost its name for nbgrader, or is not in it")
        elif name not in here and solution in here:
            done.looks.append(f"the test {name} was not in it, and was put back")
        elif name not in here:
            done.looks.append(f"the exercise {solution} is not in it")


def _insert(places: dict, master: NotebookNode, cells: list) -> None:
    """Put missing tests behind the nearest earlier cell of the master that is there, or last."""
    used = {cell.id for _, cell in cells}
    order = [cell.id for cell in master.cells]
    for number, cell in enumerate(master.cells):
        if is_test(cell) and cell.id not in places:
            here = {name: at for at, (name, _) in enumerate(cells)}
            before = (here[name] + 1 for name in reversed(order[:number]) if name in here)
            made = new_code_cell(cell.source, id=f"{cell.id[:50]}-{number}")
            made.id = cell.id if cell.id not in used else made.id
            made.metadata.nbgrader = dict(cell.metadata.nbgrader)
            cells.insert(next(before, len(cells)), (cell.id, made))


def _order(cells: list, done: Restored) -> None:
    """Put tests that stand before their solution right behind it."""
    for name, cell in [pair for pair in cells if is_test(pair[1])]:
        ids = [grade_id(other) for _, other in cells]
        at, solution = ids.index(grade_id(cell)), grade_id(cell).removesuffix(TESTS)
        if solution in ids and ids.index(solution) > at:
            cells.insert(ids.index(solution) + 1, (name, cell))
            del cells[at]
            done.looks.append(f"the test {grade_id(cell)} stood before its exercise: moved")


def _bare(source: str) -> str:
    """A source without what editors change by themselves: spaces at the ends of lines."""
    return "\n".join(line.rstrip() for line in source.strip().splitlines())
