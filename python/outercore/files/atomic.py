"""Writing files so that a crash at any moment leaves the old or the new, never half."""

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
    """The operations of durable writing; tests replace them with faults."""

    def write(self, path: Path, data: bytes) -> None:
        """Creates or replaces `path` and waits until the bytes are on the device."""
        self.write_pieces(path, [data])

    def write_pieces(self, path: Path, pieces: Iterable[bytes | memoryview]) -> None:
        """The same with the bytes of pieces, one after the other."""
        with path.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())

    def sync(self, path: Path) -> None:
        """Waits until what another program or library wrote to `path` is on the device."""
        with path.open("rb+") as file:
            os.fsync(file.fileno())

    def rename(self, old: Path, new: Path) -> None:
        """Gives `old` the name `new`, replacing a file of that name, in one step."""
        old.replace(new)

    def sync_directory(self, path: Path) -> None:
        """Waits until the names in `path` are on the device."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, path: Path) -> None:
        """Removes the file `path`; a missing one is fine."""
        path.unlink(missing_ok=True)

    def make_directory(self, path: Path) -> None:
        """Creates `path` and its parents where they are missing."""
        path.mkdir(parents=True, exist_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Removes `path` and all below it; a missing one is fine."""
        shutil.rmtree(path, ignore_errors=True)


def temporary_path(path: Path) -> Path:
    """The name that the file `path` has until it is complete."""
    return path.with_name(f".{path.name}.tmp")


def replace_file(storage: Storage, path: Path, data: bytes) -> None:
    """Makes `path` hold `data`: after a crash it holds the old bytes or the new ones."""
    with replacing(storage, path) as temporary:
        storage.write(temporary, data)


@contextmanager
def replacing(storage: Storage, path: Path, *, durable: bool = True) -> Iterator[Path]:
    """The file to write within the block, which becomes `path` once it is complete.

    With `durable` the new name survives a power failure; the caller syncs the bytes.
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
    """A file to write to, which gets the name `path` at the end; a failure leaves nothing.

    `what` is the name of the file in errors. Scratch files need not be `durable`: no power failure
    matters to them, and a sync costs a disk's time.

    Errors: `NoSpaceError` and `DeviceError`; a previous file at `path` stays.
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
            # Closing writes the buffer once more, and on a full device fails once more.
            with suppress(OSError):
                file.close()
            raise


def _opened(path: Path) -> BinaryIO:
    return path.open("wb")


def require_writable(path: Path) -> None:
    """Errors: `DeviceError` where the file `path` cannot be made."""
    temporary = temporary_path(path)
    with device_errors(f"`{path}`"):
        temporary.open("wb").close()
        temporary.unlink()


@contextmanager
def scratch_directory(parent: Path, prefix: str) -> Iterator[Path]:
    """A directory for files of this process, which is removed at the end of the block.

    Names are `prefix` and random letters. Directories that a killed process left are removed first:
    the system has released their locks.
    """
    path, lock = _locked_directory(parent, prefix)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _locked_directory(parent: Path, prefix: str) -> tuple[Path, int]:
    """A new directory and the descriptor that locks it."""
    for other in parent.glob(f"{prefix}*"):
        _remove_abandoned(other)
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Another process may have taken it for abandoned before it was locked.
        if path.exists():
            return path, lock
        os.close(lock)


def _remove_abandoned(path: Path) -> None:
    """Removes a scratch directory that no process holds."""
    with suppress(OSError):
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)


def remove_at_once(path: Path) -> None:
    """Removes the directory `path` after it is renamed: a crash leaves it whole, or removes it.

    Leftovers of a killed process under the other name are removed, too.
    """
    gone = path.with_name(f"{path.name}.removed")
    shutil.rmtree(gone, ignore_errors=True)
    with suppress(OSError):
        path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def require_free(file: Path, *, overwrite: bool) -> None:
    """Errors: `InvalidError` where `file` is there already and is not to be replaced."""
    if file.exists() and not overwrite:
        raise InvalidError(f"`{file}` exists already\nhint: choose another name, or `--overwrite`")


def require_directory_of(file: Path) -> None:
    """Errors: `NotFoundError` where the directory that `file` is to be written in is missing."""
    if not file.parent.is_dir():
        raise NotFoundError(
            f"`{file}`: directory `{file.parent}` does not exist\nhint: make it first"
        )


def missing_file(what: str, path: Path) -> NotFoundError:
    """The error for an input that is not there; `what` is how the user knows it."""
    where = path.parent.resolve()
    found = f"`{where}` has no such file" if where.is_dir() else f"there is no directory `{where}`"
    return NotFoundError(
        f"{what} `{path}` does not exist\nhint: look for a slip in its name: {found}"
    )


@contextmanager
def device_errors(what: str, then: str = "run the same command again") -> Iterator[None]:
    """Turns the operating system's errors while writing `what` into ours.

    `then` is what to do after space was freed.
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
