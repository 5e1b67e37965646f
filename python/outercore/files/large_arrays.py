"""Arrays that may be larger than memory: in memory, or mapped from a file."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 16
"""Rows of a block, unless the caller chooses."""


def mapped(root: Path, entry: dict[str, Any]) -> NDArray[Any]:
    """An array of a data set in `root`, as the manifest's `entry` describes it."""
    dtype, shape = np.dtype(entry["dtype"]), tuple(int(extent) for extent in entry["shape"])
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.memmap(root / entry["file"], dtype, "r", int(entry["data_offset"]), shape)


def blocks(values: NDArray[Any], rows: int = BLOCK) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yields blocks of rows, each with its first row. Releases the pages of a mapped array.

    A block is valid until the next one.

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
    # Values written to a private copy are in memory only.
    if getattr(values, "mode", None) == "c":
        return
    if isinstance(mapping, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)
