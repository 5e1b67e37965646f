"""Arrays that may be larger than memory: in memory, or mapped from a file."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

BLOCK = 1 << 16
"""Rows that are looked at together."""


def blocks(values: NDArray[Any], rows: int = BLOCK) -> Iterator[tuple[int, NDArray[Any]]]:
    """Where each begins, and a part of the values; of a mapped array, what was seen is let go.

    Example:
        >>> import numpy as np
        >>> [(first, len(block)) for first, block in blocks(np.zeros(5), rows=2)]
        [(0, 2), (2, 2), (4, 1)]
    """
    for first in range(0, len(values), rows):
        yield first, values[first : first + rows]
        forget(values)


def forget(values: NDArray[Any]) -> None:
    """Gives back the memory that a mapped array has come to take by being read."""
    mapping = getattr(values, "_mmap", None)
    if isinstance(mapping, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)
