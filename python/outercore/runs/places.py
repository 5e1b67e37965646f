"""Directories of runs, and locks: one process at a time writes a directory or a file."""

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
"""Attempts to create a lock file that other processes remove in the meantime."""
RUNS = Path("runs")
"""The parent of run directories without a chosen name."""
OUTPUT, ERRORS = "output.txt", "errors.txt"
"""Files in a run's directory with the output of a background process."""
LOCK = ".run.lock"
"""File in a run's directory while a process works on the run."""


class Lock:
    """A lock file. This process holds it until `close` or the end of the process.

    It creates the file and its directory.

    Errors: `InvalidError` if another process holds it, with the text `held` as its message;
    `NoSpaceError`; `DeviceError`.
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
                    # Another process may have removed the directory with its lock: try again.
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
            # Another process has removed the file since we opened it: try again.
            self._file.close()
            missing = FileNotFoundError(errno.ENOENT, "it is removed again and again", str(path))
        with device_errors(f"`{path}`"):
            raise missing

    def _is_there(self) -> bool:
        """Whether the open file is still the file at its path."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False

    def remove(self) -> None:
        """Deletes the file and releases the lock."""
        if not self._file.closed and os.getpid() == self._owner:
            self._path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Releases the lock. In a forked copy of this process, it only closes the file.

        It unlocks the file before it closes it. A forked copy may have the file open, too; then the
        lock would outlive the closing.
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
    """Context in which only this process writes to `path`. A killed process loses the lock.

    It creates the parent directory. During the block, the file `.NAME.lock` is in this directory.

    Args:
        path: the file or directory to lock.
        command: name of the command that writes to it, for the error message.
        what: name of `path` in the message; by default the path.
        hint: advice in the message.

    Errors: `InvalidError` if another process holds the lock; `DeviceError`.
    """
    held = f"{what or f'`{path}`'}: another `{command}` writes it\nhint: {hint}"
    lock = Lock(path.with_name(f".{path.name}.lock"), held)
    try:
        yield
    finally:
        lock.remove()


def hold(path: Path) -> Lock:
    """Creates the lock file `path`. This process holds it until the lock is closed.

    Errors: `InvalidError` if another process holds it; `DeviceError`.
    """
    return Lock(path, f"lock `{path}`: another process holds it\nhint: wait until it has ended")


@contextmanager
def new_run(chosen: Path | None, stem: str, command: str) -> Iterator[Path]:
    """Context with the directory of a new run, locked for this process.

    The directory is `chosen`, or `runs/STEM-N` with the first free number. At the end of the block,
    directories that were created here are removed if they are empty.

    Errors: `InvalidError` if another process has locked `chosen`; `DeviceError`, `NoSpaceError`.
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
    """Context in which only this process works on the run in `path`.

    If the directory did not exist before and is empty at the end, it is removed.

    Errors: `InvalidError` if another process works on the run; `DeviceError`.
    """
    was_there = path.exists()
    try:
        with only_one(path / "run", command, f"run `{path}`", hint):
            yield
    finally:
        if not was_there:
            _remove_empty(path)


def _numbered(parent: Path, stem: str) -> Path:
    """Creates `parent/stem-N` with the first free number. No other process gets the same one."""
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
