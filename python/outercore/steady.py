"""Reading a data set to which another process writes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from outercore.errors import CorruptError, NotFoundError

MANIFEST = "graph.json"
_TRIES = 100

Result = TypeVar("Result")


def steady(root: str | os.PathLike[str], call: Callable[[], Result]) -> Result:
    """What `call` returns, which opens the data set in `root`.

    Calls again where files of the data set were not there, or not whole, and the manifest was
    replaced meanwhile: another process has put others in their place, a new grid for instance.

    Errors: those of `call`, about a data set that is as it was.
    """
    for _ in range(_TRIES):
        before = _manifest(root)
        try:
            return call()
        except (NotFoundError, CorruptError):
            if before is None or _manifest(root) == before:
                raise
    return call()


def _manifest(root: str | os.PathLike[str]) -> bytes | None:
    try:
        return (Path(root) / MANIFEST).read_bytes()
    except OSError:
        return None
