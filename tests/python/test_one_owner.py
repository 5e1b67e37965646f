"""Each concept has one owner: a second copy of its code elsewhere in the package fails here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import outercore

PACKAGE = Path(outercore.__file__).parent


def lines_of(pattern: str, *owners: str) -> Iterator[str]:
    """Lines of the package that match, outside the files and directories of the owners."""
    wanted = re.compile(pattern)
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(owners):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if wanted.search(line):
                    yield f"{name}:{number}: {line.strip()}"


def test_only_the_console_prints_and_only_the_report_draws() -> None:
    assert list(lines_of(r"^\s*(import|from) rich\b|^\s*print\(", "cli/console.py")) == []
    assert list(lines_of(r"^\s*(import|from) typer\b", "cli/")) == []
    assert list(lines_of(r"^\s*(import|from) plotly\b", "runs/report/")) == []


def test_plans_have_one_view_and_flags_one_reader() -> None:
    assert list(lines_of(r"class \w*Plan\(.*dict|return \"Plan\"", "base/plan_display.py")) == []
    assert list(lines_of(r"def \w+_rows\(planned", "base/plan_display.py")) == []
    readers = r"get_parameter_source|parse_settings\(|typer\.Option\(\s*f?\"--(set|config)\""
    assert list(lines_of(readers, "cli/options.py", "base/options.py")) == []
