"""One process at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from outercore.errors import DeviceError, InvalidError


class Lock:
    """A file held for this process alone until `close`, or until the process ends, however it ends.

    Makes the file and the directory that it is in.

    Errors: `InvalidError` that says `held` where somebody else holds it; `DeviceError`.
    """

    def __init__(self, path: Path, held: str) -> None:
        self._owner = os.getpid()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w")
        except OSError as error:
            raise DeviceError(f"`{path}`: {error.strerror}: {error.filename}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            if isinstance(error, BlockingIOError):
                raise InvalidError(held) from None
            raise DeviceError(f"lock `{path}`: {error.strerror}") from None

    def close(self) -> None:
        """Lets go of it. A forked copy of this process, which never held it, only closes its file.

        Unlocks first: where such a copy is still there, it has the file open too, and with it the
        lock would stay.
        """
        if not self._file.closed and os.getpid() == self._owner:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._file.close()


@contextmanager
def only_one(path: Path, what: str) -> Iterator[None]:
    """Holds `path` for this process alone while the block runs, also against a killed one.

    Makes the directory that it is in, and a file `.NAME.lock` beside it.

    Errors: `InvalidError` where another process holds it; `DeviceError`.
    """
    held = f"`{path}`: another `{what}` writes it\nhint: wait, or choose another `--out`"
    with closing(Lock(path.with_name(f".{path.name}.lock"), held)):
        yield


def hold(path: Path) -> Lock:
    """Holds the file `path`, which it makes, for this process alone until it is closed.

    Errors: `InvalidError` where somebody else holds it; `DeviceError`.
    """
    return Lock(path, f"lock `{path}`: another process holds it\nhint: wait until it has ended")
