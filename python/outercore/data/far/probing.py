"""Measures a memory server."""

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
        far: address or options of the memory server.
        size: size of the region that is allocated, written, read and freed; by default 64 MiB, or
            less if the server has less.
        seconds: time to measure each combination of chunk size and queue length.
        progress: called as ``progress(phase, done, total, unit)``.

    Returns ``best_chunk`` in bytes, ``latency_s`` in seconds, and ``points``: the measurements.

    Raises:
        NoSpaceError: the server has less room than ``size``.
        DeviceError: the server does not answer.
    """
    chosen = {
        "size": None if size is None else parse_size(size),
        "seconds_per_point": seconds,
    }
    return _core.far_probe(options_of(far), chosen, progress)
