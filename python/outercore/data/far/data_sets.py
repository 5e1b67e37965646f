"""Copies parts of data sets to a memory server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from outercore import _core
from outercore.base.native import Progress
from outercore.base.shell import quoted
from outercore.data.far.connection import build_connection
from outercore.data.far.options import Far, options_of
from outercore.errors import DeviceError, InvalidError, NotFoundError

What = Literal["grid", "features", "topology"]
WHAT: tuple[What, ...] = ("grid", "features", "topology")
"""The parts of a data set that a memory server can hold."""


def arrays(root: Path) -> list[dict[str, Any]]:
    """The files of a data set that far memory can hold.

    Returns for each file ``what`` (one of `WHAT`), ``key``, ``bytes``, and ``names``: the content
    names of the regions, which are the same on any machine.
    """
    return _core.far_arrays(root)


def put(
    root: Path,
    far: Far,
    *,
    what: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Copy parts of a data set to a memory server, where they stay until they are dropped.

    Args:
        root: directory of the data set.
        far: address or options of the memory server.
        what: parts of `WHAT`; by default all parts of the data set.
        progress: called as ``progress(phase, done, total, unit)``.

    Returns the arrays with ``state``: ``kept`` (copied by this call), ``there`` (copied earlier),
    or ``full`` (the server has no room).

    Raises:
        InvalidError: an unknown part, or the server refuses the token.
        NotFoundError: the data set does not have a requested part.
        DeviceError: the server does not answer.
    """
    for part in what or ():
        if part not in WHAT:
            raise InvalidError(f"part `{part}`, expected one of {', '.join(WHAT)}")
    stored = arrays(root)
    parts = {array["what"] for array in stored}
    for part in what or ():
        if part not in parts:
            hint = f"run `outercore grid {quoted(root)}`" if part == "grid" else "leave it out"
            raise NotFoundError(f"data set `{root}`: no {part}\nhint: {hint}")
    chosen = [array for array in stored if what is None or array["what"] in what]
    keys = [array["key"] for array in chosen]
    states = _core.far_put(root, options_of(far, root), keys, progress)
    return [{**array, "state": state} for array, state in zip(chosen, states, strict=True)]


def holds(root: Path, far: Far, *, what: Sequence[str] = ("features", "topology")) -> bool:
    """Whether a memory server keeps all arrays of the parts ``what`` of a data set.

    It is ``False`` if the server does not answer.
    """
    names = [name for array in arrays(root) if array["what"] in what for name in array["names"]]
    try:
        with build_connection(far) as connection:
            return bool(names) and all(connection.find(name) is not None for name in names)
    except DeviceError:
        return False
