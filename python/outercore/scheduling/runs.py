"""Single runs in processes of their own, and what they say of themselves."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outercore.errors import InvalidError
from outercore.runs import record as records
from outercore.scheduling.children import Child

LIMIT_S = 3600.0
"""A single run that takes longer is given up."""


def run_child(arguments: Sequence[str], cores: Sequence[int], directory: Path) -> dict[str, Any]:
    """Runs an algorithm in a process of its own and returns its record.

    Errors: `InvalidError` with what it said where it failed; `TimeoutError`.
    """
    finished(arguments, cores, directory)
    record: dict[str, Any] = json.loads((directory / records.FILE).read_text())
    return record


def cores_for(threads: int) -> tuple[int, ...]:
    """The first cores of this process, as many as there are threads."""
    return tuple(sorted(os.sched_getaffinity(0))[:threads])


def finished(arguments: Sequence[str], cores: Sequence[int], directory: Path) -> Child:
    """Runs `outercore ARGUMENTS` in a process of its own, to its end.

    Errors: `InvalidError` with what it said where it failed; `TimeoutError`.
    """
    child = Child(arguments, cores, directory)
    try:
        code = child.wait(LIMIT_S)
    finally:
        child.close()
    if code != 0:
        raise InvalidError(child.last_error().removeprefix("error: "))
    return child
