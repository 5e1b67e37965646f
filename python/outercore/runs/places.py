"""Where runs lie: each directory belongs to one process at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from outercore.files.atomic import device_errors
from outercore.runs.lock import only_one

RUNS = Path("runs")
"""Where the directories of runs are made that nobody gave a name."""

OUTPUT, ERRORS = "output.txt", "errors.txt"
"""In a run's directory what a process wrote that another one began."""

LOCK = ".run.lock"
"""In a run's directory while a process works on it."""


@contextmanager
def new_run(chosen: Path | None, stem: str, command: str) -> Iterator[Path]:
    """The directory of a new run, for this process alone while the block runs.

    It is `chosen`, or `runs/STEM-N` with the first number that no other process has taken. A
    directory that was made here and is still empty at the end is removed.

    Errors: `InvalidError` where another process has `chosen`; `DeviceError`, `NoSpaceError`.
    """
    if chosen is not None:
        with only_run(chosen, command, "wait, or choose another directory"):
            yield chosen
        return
    made = not RUNS.exists()
    path = _numbered(RUNS, stem)
    try:
        with only_run(path, command, "wait, or choose another directory"):
            yield path
    finally:
        for directory in (path, RUNS) if made else (path,):
            _remove_empty(directory)


@contextmanager
def only_run(path: Path, command: str, hint: str = "wait until it has ended") -> Iterator[None]:
    """Holds the run in `path` for this process alone while the block runs.

    Leaves no directory where there was none, unless something was put into it.

    Errors: `InvalidError` where another process holds it; `DeviceError`.
    """
    was_there = path.exists()
    try:
        with only_one(path / "run", command, f"run `{path}`", hint):
            yield
    finally:
        if not was_there:
            _remove_empty(path)


def _numbered(parent: Path, stem: str) -> Path:
    """Makes `parent/stem-1`, or the first number that is free, which no other process then gets."""
    number = 1
    with device_errors(f"run `{parent / stem}-{number}`"):
        parent.mkdir(parents=True, exist_ok=True)
        while True:
            path = parent / f"{stem}-{number}"
            try:
                path.mkdir()
            except FileExistsError:
                number += 1
            else:
                return path


def _remove_empty(path: Path) -> None:
    with suppress(OSError):
        path.rmdir()
