"""Concepts that have one owner: a second copy fails here."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "python" / "outercore"


def owners(pattern: str) -> set[str]:
    """The files of the package with a match of the pattern."""
    files = {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.py")}
    return {name for name, text in files.items() if re.search(pattern, text, re.MULTILINE)}


def test_the_parts_of_an_import_have_one_owner_for_one_type_and_several() -> None:
    for pattern, files in {
        r"\bImporter\(|\badd_array\(": {"build/graph.py"},
        r"\bTripleImporter\(": {"build/triples.py", "build/dictionary.py"},
        r"\bAddition\(": {"build/additions.py"},
        r"^def (open|split)_(split|splits|choice|columns)\b": {"splits.py"},
        r"^def (label|class)_(arrays|columns|names)\b": {"labels.py"},
        r"^def (open_texts|text_arrays)\b": {"texts.py"},
        r"^def edge_(arrays|rows)\b": {"edge_arrays.py", "format/graphbolt.py"},
        r"^def (times_of|times_in_memory|time_values)\b": {"table/times.py"},
        r"^class \w*EdgeArray\w*\b": {"table/edge_array.py"},
        r"^class Format\b": {"source.py"},
    }.items():
        found = {name for name in owners(pattern) if name.startswith("importing/")}
        assert found == {f"importing/{file}" for file in files}


def test_every_format_of_a_file_is_in_the_registry() -> None:
    registry = (PACKAGE / "importing/format/registry.py").read_text()
    formats = [
        f"{Path(name).stem}.{constant}"
        for name in owners(r"^[A-Z0-9]+ = Format\(")
        for constant in re.findall(
            r"^([A-Z0-9]+) = Format\(", (PACKAGE / name).read_text(), re.MULTILINE
        )
    ]
    assert len(formats) == 13
    assert all(f"{name}," in registry for name in formats)
