"""Files and functions of the product stay short enough to be read at once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
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


def rust_functions(text: str) -> Iterator[tuple[str, int]]:
    """Places and lengths of functions, formatted by rustfmt: each ends at its own indentation."""
    begin = r"^( *)(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe |extern \"C\" )*fn (\w+)"
    for found in re.finditer(begin, text, re.MULTILINE):
        signature = re.compile(r"[{};]$", re.MULTILINE).search(text, found.start())
        # Of a trait's methods some have no body.
        if signature is not None and signature[0] == "{":
            end = text.find(f"\n{found[1]}}}\n", found.start())
            line = text.count("\n", 0, found.start()) + 1
            yield f"{line}:{found[2]}", text.count("\n", found.start(), end + 1) + 1


def test_no_function_of_a_crate_is_too_long() -> None:
    lengths = {
        f"{file.relative_to(ROOT)}:{place}": length
        for file in FILES
        if file.suffix == ".rs" and "tests" not in file.with_suffix("").parts
        for place, length in rust_functions(file.read_text())
    }
    assert len(lengths) > 3000
    assert {place: one for place, one in lengths.items() if one > MOST_OF_A_FUNCTION} == {}
