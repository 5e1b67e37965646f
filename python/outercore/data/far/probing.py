"""Measuring a memory server."""

from __future__ import annotations

from typing import Any

from outercore import _core
from outercore.base.native import Progress
from outercore.base.sizes import parse_size
from outercore.data.far.options import Far, options_of


def probe(
    far: Far,
    *,
    size: str | int | None = None,
    seconds: float = 0.3,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure a memory server: bytes per second by chunk size and queue length.

    Args:
        far: the server.
        size: size of the region that is allocated, written, read and freed; 64 MiB by default, less
            if the server has less.
        seconds: time for each point.
        progress: called as ``progress(phase, done, total, unit)``.

    Returns ``best_chunk``, ``latency_s`` and ``points``.

    Raises:
        NoSpaceError: the server has less room than ``size``.
        DeviceError: the server does not answer.
    """
    chosen = {
        "size": None if size is None else parse_size(size),
        "seconds_per_point": seconds,
    }
    return _core.far_probe(options_of(far), chosen, progress)
