"""Files and functions of the product stay short enough to be read at once."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_LINES, MOST_OF_A_FUNCTION = 500, 80
FILES = sorted(
    [*(ROOT / "python/outercore").rglob("*.py"), *(ROOT / "crates").glob("*/src/**/*.rs")]
)


def test_no_file_is_too_long() -> None:
    lengths = {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in FILES}
    assert len(lengths) > 500
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


@pytest.mark.parametrize("kind", [ast.FunctionDef, ast.AsyncFunctionDef])
def test_no_function_of_the_package_is_too_long(kind: type[ast.FunctionDef]) -> None:
    found = {
        f"{file.relative_to(ROOT)}:{node.name}": length
        for file in FILES
        if file.suffix == ".py"
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, kind)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > MOST_OF_A_FUNCTION
    }
    assert found == {}
