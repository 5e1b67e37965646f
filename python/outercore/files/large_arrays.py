"""Reads arrays that may be larger than memory: maps their files, and reads in blocks."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 16
"""Default number of rows of a block."""


def mapped(root: Path, entry: dict[str, Any]) -> NDArray[Any]:
    """Maps an array of the data set in `root`; `entry` describes it in the manifest."""
    dtype, shape = np.dtype(entry["dtype"]), tuple(int(extent) for extent in entry["shape"])
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.memmap(root / entry["file"], dtype, "r", int(entry["data_offset"]), shape)


def blocks(values: NDArray[Any], rows: int = BLOCK) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yields the number of each block's first row, and the block.

    It releases the pages of a mapped array after each block, so that its memory stays small. A
    block is valid until the next block is requested.

    Example:
        >>> import numpy as np
        >>> [(first, len(block)) for first, block in blocks(np.zeros(5), rows=2)]
        [(0, 2), (2, 2), (4, 1)]
    """
    for first in range(0, len(values), rows):
        yield first, values[first : first + rows]
        forget(values)


def forget(values: NDArray[Any]) -> None:
    """Releases the memory of the pages that were read from a mapped array."""
    mapping = getattr(values, "_mmap", None)
    # Changed values of a copy-on-write map are only in memory, so its pages must stay.
    if getattr(values, "mode", None) == "c":
        return
    if isinstance(mapping, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)
