"""Messages for errors of the operating system, to print instead of a traceback."""

from __future__ import annotations

import errno

_REFUSED = {
    errno.ENOSPC: "no space left on the device\nhint: free some space, then run the command again",
    errno.EDQUOT: "disk quota exceeded\nhint: free some space, then run the command again",
    errno.EMFILE: "this process may open no more files\n"
    "hint: allow it more by `ulimit -n 4096`, then run the command again",
    errno.ENFILE: "the machine may open no more files\n"
    "hint: end other programs, then run the command again",
    errno.EACCES: "permission denied\nhint: choose a place where you may read and write",
    errno.EPERM: "not permitted\nhint: choose a place where you may read and write",
    errno.EROFS: "the file system is read-only\nhint: choose another place for the output",
    errno.EIO: "the device failed\nhint: look at the system's log, and copy what can be read",
}
_NO_MEMORY = (
    "the system gives this process no more memory\n"
    "hint: raise its limit by `ulimit -v unlimited`, or pass a smaller `--memory`"
)


_OF_LIBRARIES = (
    "failed to map segment",
    "annot allocate memory",
    "can't start new thread",
    "failed to spawn thread",
)
"""Texts in error messages of libraries when the system refuses more memory."""


def explained(error: BaseException) -> str | None:
    """The message for an error that the user can fix; `None` for other errors."""
    if isinstance(error, MemoryError) or any(text in str(error) for text in _OF_LIBRARIES):
        return _NO_MEMORY
    if not isinstance(error, OSError):
        return None
    why = _REFUSED.get(error.errno or 0)
    if why is None or error.filename is None:
        return why
    return f"`{error.filename}`: {why}"
