"""Which segments of what a program holds are to lie in far memory (Fargraph+ 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from outercore import _core


@dataclass(frozen=True)
class FarSegment:
    """A piece of what a program holds, and how often it is read (Fargraph+ 5.1)."""

    group: int
    """1 results and state, 2 working data, 3 edges that are read, 4 what is never read."""
    bytes: int
    """Its size."""
    reads: int
    """How often a run reads it."""
    transferable: bool = False
    """Whether it is to lie in far memory."""


def add_transferable_flag(segments: Sequence[FarSegment], far_ratio: float) -> list[FarSegment]:
    """Mark what is to lie in far memory: the share ``far_ratio`` of the bytes that may move.

    Group 4 goes before group 3, fewer reads a byte before more; groups 1 and 2 stay.

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
