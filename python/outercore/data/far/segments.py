"""Chooses the data segments to move to far memory (Fargraph+ 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from outercore import _core


@dataclass(frozen=True)
class FarSegment:
    """A piece of a program's data, and its number of reads (Fargraph+ 5.1)."""

    group: int
    """1: results and state, 2: working data, 3: edges that are read, 4: data that is never read."""
    bytes: int
    """Size in bytes."""
    reads: int
    """Number of reads in a run."""
    transferable: bool = False
    """Whether to move it to far memory."""


def add_transferable_flag(segments: Sequence[FarSegment], far_ratio: float) -> list[FarSegment]:
    """Mark the segments to move to far memory: the share ``far_ratio`` of the movable bytes.

    Group 4 is moved first, then group 3, and segments with fewer reads per byte first. Groups 1 and
    2 stay in memory.

    Raises:
        InvalidError: a group other than 1 to 4, a ratio outside 0 to 1.

    Source: Fargraph+ 5.2.

    Example:
        >>> from outercore.data.far import FarSegment, add_transferable_flag
        >>> held = [FarSegment(1, 80, 9), FarSegment(3, 40, 7), FarSegment(4, 40, 0)]
        >>> [segment.transferable for segment in add_transferable_flag(held, 0.5)]
        [False, False, True]
    """
    described = [asdict(segment) for segment in segments]
    flags = _core.add_transferable_flag(described, far_ratio)
    return [
        replace(segment, transferable=flag) for segment, flag in zip(segments, flags, strict=True)
    ]
