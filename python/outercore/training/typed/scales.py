"""What the features of a node type are standardised by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from outercore.data.graph import Graph

_ROWS, _BLOCKS = 1 << 16, 64
"""At most so many rows are read, in so many blocks."""
_PIECE = 1 << 17
"""Values that are looked at together."""
_CONSTANT = 1e-6
"""A column that deviates by less than this part of its mean has one value."""


def column_scales(graph: Graph, key: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The centre and the scale of each column of features: x becomes (x - centre) / scale.

    These are its mean and deviation. A column of which more than half is 0, as in a bag of words,
    keeps its zeros: its centre is 0, and its scale the root mean square of its other values,
    but at least 1.

    Shapes: float32 [columns] each.
    Cost: reads at most 65,536 rows in 64 blocks.
    """
    rows, *columns = graph.arrays[key]["shape"]
    width = int(columns[0]) if columns else 1
    seen, mean, squares = 0, np.zeros(width), np.zeros(width)
    others, of_others = np.zeros(width), np.zeros(width)
    for ids in _pieces(int(rows), width):
        values = graph.rows(key, ids).reshape(len(ids), width).astype(np.float64)
        own = values.mean(axis=0)
        total, step = seen + len(ids), own - mean
        # Chan et al., 1979: exact also where the mean is large beside the deviation.
        squares += np.square(values - own).sum(axis=0) + np.square(step) * (seen * len(ids) / total)
        mean += step * (len(ids) / total)
        seen = total
        others += np.count_nonzero(values, axis=0)
        of_others += np.square(values).sum(axis=0)
    deviation = np.sqrt(squares / max(1, seen))
    deviation[~(deviation > _CONSTANT * np.abs(mean))] = 1
    sparse = others < seen / 2
    centre = np.where(sparse, 0, mean)
    scale = np.where(sparse, np.sqrt(of_others / np.maximum(1, others)).clip(min=1), deviation)
    usable = np.isfinite(centre) & np.isfinite(scale)
    return (
        np.where(usable, centre, 0).astype(np.float32),
        np.where(usable, scale, 1).astype(np.float32),
    )


def _pieces(rows: int, width: int) -> Iterator[NDArray[np.int64]]:
    """Ids of successive rows: of all, or of blocks that are evenly spaced."""
    starts, length = [0], rows
    if rows > _ROWS:
        length = _ROWS // _BLOCKS
        starts = [block * (rows - length) // (_BLOCKS - 1) for block in range(_BLOCKS)]
    step = max(1, _PIECE // max(1, width))
    for start in starts:
        for first in range(start, start + length, step):
            yield np.arange(first, min(first + step, start + length))
