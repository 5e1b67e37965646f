"""Where runs lie: each directory, and each file that is written, has one process at a time."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from outercore.errors import DeviceError, InvalidError
from outercore.files.atomic import device_errors

_TRIES = 100
"""How often to make a file anew that others remove meanwhile."""
RUNS = Path("runs")
"""The parent of run directories without a chosen name."""
OUTPUT, ERRORS = "output.txt", "errors.txt"
"""In a run's directory what a process wrote that another one began."""
LOCK = ".run.lock"
"""In a run's directory while a process works on it."""


class Lock:
    """A file that only this process holds, until `close` or the end of the process.

    Makes the file and the directory that it is in.

    Errors: `InvalidError` with the text `held` if another process holds it; `NoSpaceError`;
    `DeviceError`.
    """

    def __init__(self, path: Path, held: str) -> None:
        self._owner = os.getpid()
        self._path = path
        for _ in range(_TRIES):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = path.open("w")
            except OSError as error:
                missing = error
                if isinstance(error, FileNotFoundError) and path.parent.parent.is_dir():
                    # Its holder may have removed the directory just now.
                    continue
                break
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                self._file.close()
                if isinstance(error, BlockingIOError):
                    raise InvalidError(held) from None
                raise DeviceError(f"lock `{path}`: {error.strerror}") from None
            if self._is_there():
                return
            # Its holder has removed the file since we opened it.
            self._file.close()
            missing = FileNotFoundError(errno.ENOENT, "it is removed again and again", str(path))
        with device_errors(f"`{path}`"):
            raise missing

    def _is_there(self) -> bool:
        """Whether the file still has its name, under which others look for it."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False

    def remove(self) -> None:
        """Deletes the file and lets go of it."""
        if not self._file.closed and os.getpid() == self._owner:
            self._path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Lets go of it. A forked copy of this process, which never held it, only closes its file.

        Unlocks first: where such a copy is still there, it has the file open too, and with it the
        lock would stay.
        """
        if not self._file.closed and os.getpid() == self._owner:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._file.close()


@contextmanager
def only_one(
    path: Path,
    command: str,
    what: str | None = None,
    hint: str = "wait, or choose another `--out`",
) -> Iterator[None]:
    """Only this process holds `path` while the block runs; a killed process loses it.

    Makes the parent directory, and while the block runs a file `.NAME.lock` in it.
    `command` writes to it, `what` is how the user knows it, `hint` the next step.

    Errors: `InvalidError` where another process holds it; `DeviceError`.
    """
    held = f"{what or f'`{path}`'}: another `{command}` writes it\nhint: {hint}"
    lock = Lock(path.with_name(f".{path.name}.lock"), held)
    try:
        yield
    finally:
        lock.remove()


def hold(path: Path) -> Lock:
    """Makes the file `path`, which only this process holds until it is closed.

    Errors: `InvalidError` if another process holds it; `DeviceError`.
    """
    return Lock(path, f"lock `{path}`: another process holds it\nhint: wait until it has ended")


@contextmanager
def new_run(chosen: Path | None, stem: str, command: str) -> Iterator[Path]:
    """The directory of a new run, which only this process holds while the block runs.

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
    """Only this process holds the run in `path` while the block runs.

    Removes a directory that it made, unless the block put files into it.

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
