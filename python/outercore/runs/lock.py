"""One process at a time."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outercore.errors import DeviceError, InvalidError
from outercore.files.atomic import device_errors

_TRIES = 100
"""How often to make a file anew that others remove meanwhile."""


class Lock:
    """A file held for this process alone until `close`, or until the process ends, however it ends.

    Makes the file and the directory that it is in.

    Errors: `InvalidError` that says `held` where somebody else holds it; `NoSpaceError`;
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
    """Holds `path` for this process alone while the block runs, also against a killed one.

    Makes the directory that it is in, and while the block runs a file `.NAME.lock` beside it.
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
    """Holds the file `path`, which it makes, for this process alone until it is closed.

    Errors: `InvalidError` where somebody else holds it; `DeviceError`.
    """
    return Lock(path, f"lock `{path}`: another process holds it\nhint: wait until it has ended")
