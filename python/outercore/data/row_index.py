"""Converts an index, such as a slice or a mask, to row numbers. Does not import PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError


def chosen_rows(index: Any, count: int, key: str, *, from_end: bool = False) -> NDArray[np.int64]:
    """The row numbers of an index into the array `key`, which has `count` rows.

    An index is a list or array of row numbers, a mask with a value for each row, a slice, or a
    number. A tensor may be on any device. With `from_end`, negative numbers count from the end, as
    for a tensor. Without it they are errors, because a node id of -1 would be a mistake.

    Shapes: int64 [n], or [] for a number.
    Errors: `InvalidError` for anything but rows of the array.
    """
    if isinstance(index, slice):
        return np.arange(*index.indices(count))
    try:
        rows = np.asarray(index.cpu() if hasattr(index, "cpu") else index)
    except ValueError:  # NumPy raises it for lists of different lengths.
        rows = np.asarray(None)
    if rows.dtype == np.bool_ and rows.ndim:
        if rows.shape != (count,):
            raise InvalidError(f"array `{key}`: mask of shape {rows.shape}, expected ({count},)")
        return np.flatnonzero(rows)
    if rows.ndim > 1 or not (rows.dtype.kind in "iu" or (rows.ndim == 1 and rows.size == 0)):
        raise InvalidError(
            f"array `{key}`: index of type {rows.dtype} and shape {rows.shape}, expected whole "
            f"numbers [rows], a mask, a slice or a number; found {index!r:.80}"
        )
    if from_end and rows.dtype.kind == "i":
        rows = np.where((rows < 0) & (rows >= -count), rows.astype(np.int64) + count, rows)
    if rows.size and not 0 <= int(rows.min()) <= int(rows.max()) < count:
        wrong = int(rows.min()) if rows.min() < 0 else int(rows.max())
        raise InvalidError(f"array `{key}`: no row {wrong}, it has rows 0 to {count - 1}")
    return rows.astype(np.int64)
