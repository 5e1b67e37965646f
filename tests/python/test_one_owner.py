"""Each task has one owner: these tests find a second one."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE, BINDINGS = ROOT / "python/outercore", ROOT / "crates/outercore-py/src"


def test_values_cross_to_the_core_as_values() -> None:
    """JSON is for files, records and HTTP; `values.rs` turns values of the core into Python's."""
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and _is_of_core_as_json(call)
    ]
    text_of_json = re.compile(r"serde_json::(?:from_(?:str|slice|reader)|to_(?:string|vec|writer))")
    found += [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in sorted(BINDINGS.rglob("*.rs"))
        for match in text_of_json.finditer(path.read_text())
    ]
    assert not found
    conversions = ("pythonize", "serde_json::from_value")
    owners = {
        path.name
        for path in BINDINGS.rglob("*.rs")
        if any(name in path.read_text() for name in conversions)
    }
    assert owners == {"values.rs"}


def _is_of_core_as_json(call: ast.Call) -> bool:
    """Whether a call has both text of JSON and the core, one around the other."""
    nodes = list(ast.walk(call))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    of_core = "_core" in attributes or not names.isdisjoint({"_core", "native"})
    return of_core and not attributes.isdisjoint({"loads", "dumps"})
