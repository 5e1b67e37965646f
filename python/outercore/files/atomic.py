"""Atomic file writes: after a crash, a file has its old content or the complete new content."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from outercore.errors import (
    DeviceError,
    InvalidError,
    NoSpaceError,
    NotFoundError,
    OutercoreError,
)


class Storage:
    """The file operations of durable writes. Tests replace them to inject faults."""

    def write(self, path: Path, data: bytes) -> None:
        """Creates or replaces the file `path`, and waits until its bytes are on the device."""
        self.write_pieces(path, [data])

    def write_pieces(self, path: Path, pieces: Iterable[bytes | memoryview]) -> None:
        """Like `write`, with the bytes of several pieces, one after the other."""
        with path.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())

    def sync(self, path: Path) -> None:
        """Waits until all bytes of the file `path` are on the device."""
        with path.open("rb+") as file:
            os.fsync(file.fileno())

    def rename(self, old: Path, new: Path) -> None:
        """Renames `old` to `new` in one step, and replaces an existing file."""
        old.replace(new)

    def sync_directory(self, path: Path) -> None:
        """Waits until the names of the files in the directory `path` are on the device."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, path: Path) -> None:
        """Removes the file `path`. A missing file is no error."""
        path.unlink(missing_ok=True)

    def make_directory(self, path: Path) -> None:
        """Creates the directory `path` and its missing parents."""
        path.mkdir(parents=True, exist_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Removes the directory `path` with its content. A missing directory is no error."""
        shutil.rmtree(path, ignore_errors=True)


def temporary_path(path: Path) -> Path:
    """The name under which the file `path` is written, before it is renamed."""
    return path.with_name(f".{path.name}.tmp")


def replace_file(storage: Storage, path: Path, data: bytes) -> None:
    """Writes `data` to the file `path`. After a crash, it has the old bytes or the new bytes."""
    with replacing(storage, path) as temporary:
        storage.write(temporary, data)


@contextmanager
def replacing(storage: Storage, path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Context of a temporary file, which is renamed to `path` at the end of the block.

    The caller writes and syncs the bytes. With `durable`, the new name survives a power failure.
    """
    temporary = temporary_path(path)
    try:
        yield temporary
        storage.rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            storage.remove(temporary)
        raise
    if durable:
        storage.sync_directory(path.parent)


@contextmanager
def whole_file(path: Path, *, what: str = "", durable: bool = True) -> Iterator[BinaryIO]:
    """Context of a file open for writing, which is renamed to `path` at the end of the block.

    `what` is the name of the file in errors. Scratch files need not be `durable`: a power failure
    ends their process too, and a sync takes time.

    Errors: `NoSpaceError` and `DeviceError`. The temporary file is removed then, and a previous
    file at `path` stays.
    """
    with (
        device_errors(what or f"`{path}`"),
        replacing(Storage(), path, durable=durable) as temporary,
    ):
        file = _opened(temporary)
        try:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
            file.close()
        except BaseException:
            # `close` writes the rest of the buffer, so it fails, too, if the device is full.
            with suppress(OSError):
                file.close()
            raise


def _opened(path: Path) -> BinaryIO:
    return path.open("wb")


def require_writable(path: Path) -> None:
    """Errors: `DeviceError` if the file `path` cannot be created."""
    temporary = temporary_path(path)
    with device_errors(f"`{path}`"):
        temporary.open("wb").close()
        temporary.unlink()


@contextmanager
def scratch_directory(parent: Path, prefix: str) -> Iterator[Path]:
    """Context of a new directory for files of this process. The end of the block removes it.

    Its name is `prefix` and random letters. It first removes the directories of killed processes:
    they are not locked, because the system has released the locks.
    """
    path, lock = _locked_directory(parent, prefix)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _locked_directory(parent: Path, prefix: str) -> tuple[Path, int]:
    """Creates a directory. Returns it and the descriptor that locks it."""
    for other in parent.glob(f"{prefix}*"):
        _remove_abandoned(other)
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Another process may have removed the directory as abandoned before it was locked.
        if path.exists():
            return path, lock
        os.close(lock)


def _remove_abandoned(path: Path) -> None:
    """Removes a scratch directory, unless a process has locked it."""
    with suppress(OSError):
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)


def remove_at_once(path: Path) -> None:
    """Removes the directory `path`. After a crash, it is complete or it is gone.

    It renames the directory before the removal. It also removes a renamed directory that a killed
    process has left.
    """
    gone = path.with_name(f"{path.name}.removed")
    shutil.rmtree(gone, ignore_errors=True)
    with suppress(OSError):
        path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def require_free(file: Path, *, overwrite: bool) -> None:
    """Errors: `InvalidError` if `file` exists, unless it may be overwritten."""
    if file.exists() and not overwrite:
        raise InvalidError(f"`{file}` exists already\nhint: choose another name, or `--overwrite`")


def require_directory_of(file: Path) -> None:
    """Errors: `NotFoundError` if the directory of `file` does not exist."""
    if not file.parent.is_dir():
        raise NotFoundError(
            f"`{file}`: directory `{file.parent}` does not exist\nhint: make it first"
        )


def missing_file(what: str, path: Path) -> NotFoundError:
    """The error for a missing input file; `what` is its name in the message."""
    where = path.parent.resolve()
    found = f"`{where}` has no such file" if where.is_dir() else f"there is no directory `{where}`"
    return NotFoundError(
        f"{what} `{path}` does not exist\nhint: look for a slip in its name: {found}"
    )


@contextmanager
def device_errors(what: str, then: str = "run the same command again") -> Iterator[None]:
    """Context that turns errors of the operating system into `NoSpaceError` or `DeviceError`.

    `what` is the written file in messages, `then` is the next step after the user has freed space.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, OutercoreError):
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpaceError(
                f"{what}: no space left on the device\nhint: free some space, then {then}"
            ) from error
        where = f": {error.filename}" if error.filename else ""
        raise DeviceError(f"{what}: {error.strerror or error}{where}") from error
