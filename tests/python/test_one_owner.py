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


def test_only_files_writes_whole_files_and_npy() -> None:
    # Python's own renames, and the names of files that are not complete yet.
    renames = r"os\.(replace|rename)\(|\bpath\.(replace|rename)\(|[\"'`.](tmp|partial)[\"'`]"
    # NumPy's writers of `.npy`, and the header that our writer makes.
    arrays = r"(?<!`)np\.save\(|write_array|open_memmap|lib\.format|\bnpy_header\b|x93NUMPY\\x0"
    assert list(lines_of(f"{renames}|{arrays}", "files/")) == []
    # Mapped readers; the core's result without a name is below `files`.
    mapped = r"np\.load\(.*mmap_mode"
    assert list(lines_of(mapped, "files/", "base/native.py", "training/links/")) == []
    # A sync anywhere else than in a writer measures the device.
    assert list(lines_of(r"\bfsync\(", "files/", "embedding/forecast.py")) == []


def test_only_runs_decides_about_resuming_and_opens_records() -> None:
    assert list(lines_of("resumed with its own options", "runs/resume.py")) == []
    assert list(lines_of(r"are done, expected more|epochs >= ", "runs/")) == []
    assert list(lines_of(r'"device_profile":|"machine":', "runs/")) == []
    assert list(lines_of("has another text", "runs/custom_code.py")) == []
