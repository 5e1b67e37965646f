"""Modules of the package import each other in one direction."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "python" / "outercore"


def modules() -> dict[str, Path]:
    """The files of the package by the names of their modules."""
    found = {}
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = file
    return found


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Module and name of every import, also within functions and for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def graph() -> dict[str, set[str]]:
    """The modules that each module imports, but for its own parents and children."""
    known = modules()
    arcs: dict[str, set[str]] = {name: set() for name in known}
    for name, file in known.items():
        for module, member in imported(ast.parse(file.read_text())):
            whole = f"{module}.{member}"
            target = whole if whole in known else module
            related = f"{name}.".startswith(f"{target}.") or target.startswith(f"{name}.")
            if target in known and not related:
                arcs[name].add(target)
    return arcs


def room(module: str) -> str:
    """The room of a module: the part of its name after `outercore`."""
    return module.split(".")[1] if "." in module else ""


def floors() -> dict[str, int]:
    """The floor of each room, from the table of the package in `ARCHITECTURE.md`."""
    text = (PACKAGE.parents[1] / "ARCHITECTURE.md").read_text()
    section = text.partition("## The Python package")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", section, re.MULTILINE)
    return {name: int(floor) for floor, names in rows for name in re.findall(r"`(\w+)`", names)}


def circle(arcs: dict[str, set[str]]) -> list[str]:
    """The modules of a circle, or none."""
    left = {name: set(targets) for name, targets in arcs.items()}
    while ends := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in ends:
            del left[name]
    if not left:
        return []
    path = [min(left)]
    while path.count(path[-1]) == 1:
        path.append(min(left[path[-1]] & left.keys()))
    return path[path.index(path[-1]) :]


def test_no_modules_import_each_other_in_a_circle() -> None:
    arcs = graph()
    assert len(arcs) > 200
    assert circle(arcs) == []


def test_rooms_import_rooms_below_them_only() -> None:
    floor = floors()
    upward = [
        (name, target)
        for name, targets in graph().items()
        for target in targets
        if room(name) != room(target) and floor.get(room(name), 99) <= floor[room(target)]
    ]
    assert upward == []


def test_the_package_has_the_rooms_of_the_map_and_nothing_else() -> None:
    # Files that Python and the build want at the top.
    given = {"__init__.py", "__main__.py", "_core.pyi", "py.typed", "__pycache__"}
    entries = {
        path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.name not in given
    }
    assert {name for name in entries if not name.startswith("_core.")} == floors().keys()
    assert len(floors()) <= 12


def test_a_circle_is_found() -> None:
    arcs = {"a": {"b"}, "b": {"c", "d"}, "c": {"b"}, "d": set[str]()}
    assert circle(arcs) in (["b", "c", "b"], ["c", "b", "c"])
