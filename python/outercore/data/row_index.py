"""Which rows of an array an index means; no PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError


def chosen_rows(index: Any, count: int, key: str, *, from_end: bool = False) -> NDArray[np.int64]:
    """The rows of the array `key` that an index means: [n], or [] for a whole number.

    An index is a list or array of row numbers, a mask with a value for each row, a slice, or a
    number. A tensor may be on any device. Negative numbers count `from_end` where that is said, as
    for a tensor; as an id of a node -1 would be a mistake.

    Errors: `InvalidError` for anything but rows of the array.
    """
    if isinstance(index, slice):
        return np.arange(*index.indices(count))
    try:
        found = np.asarray(index.cpu() if hasattr(index, "cpu") else index)
    except ValueError:  # Lists of different lengths.
        found = np.asarray(None)
    if found.dtype == np.bool_ and found.ndim:
        if found.shape != (count,):
            raise InvalidError(f"array `{key}`: mask of shape {found.shape}, expected ({count},)")
        return np.flatnonzero(found)
    if found.ndim > 1 or not (found.dtype.kind in "iu" or (found.ndim == 1 and found.size == 0)):
        raise InvalidError(
            f"array `{key}`: index of type {found.dtype} and shape {found.shape}, expected whole "
            f"numbers [rows], a mask, a slice or a number; found {index!r:.80}"
        )
    if from_end and found.dtype.kind == "i":
        found = np.where((found < 0) & (found >= -count), found.astype(np.int64) + count, found)
    if found.size and not 0 <= int(found.min()) <= int(found.max()) < count:
        wrong = int(found.min()) if found.min() < 0 else int(found.max())
        raise InvalidError(f"array `{key}`: no row {wrong}, it has rows 0 to {count - 1}")
    return found.astype(np.int64)
