"""One process at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from outercore.errors import DeviceError, InvalidError


@contextmanager
def only_one(path: Path, what: str) -> Iterator[None]:
    """Holds `path` for this process alone while the block runs, also against a killed one.

    Makes the directory that it is in, and a file `.NAME.lock` beside it.

    Errors: `InvalidError` where another process holds it; `DeviceError`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(f".{path.name}.lock").open("w")
    except OSError as error:
        raise DeviceError(f"`{path}`: {error.strerror}: {error.filename}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidError(
                f"`{path}`: another `{what}` writes it\nhint: wait, or choose another `--out`"
            ) from None
        yield


def hold(path: Path) -> TextIO:
    """Holds the file `path`, which it makes, for this process alone until it is closed.

    The system lets go of it when the process ends, however that ends.

    Errors: `InvalidError` where somebody else holds it; `DeviceError`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError as error:
        raise DeviceError(f"`{path}`: {error.strerror}: {error.filename}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise InvalidError(
            f"lock `{path}`: another process holds it\nhint: wait until it has ended"
        ) from None
    return file
