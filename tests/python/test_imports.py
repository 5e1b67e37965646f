"""Modules of the package import each other in one direction."""

from __future__ import annotations

import ast
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
    """Module and name of every import, those within functions included, those for types not."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for other in node.orelse:
                yield from imported(other)
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        yield from imported(node)


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


def test_a_circle_is_found() -> None:
    arcs = {"a": {"b"}, "b": {"c", "d"}, "c": {"b"}, "d": set[str]()}
    assert circle(arcs) in (["b", "c", "b"], ["c", "b", "c"])
