"""Rows of arrays read in order, and how many bytes moved."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.base.options import Precision
from outercore.data.layouts import require_int8
from outercore.errors import CorruptError
from outercore.files.atomic import device_errors
from outercore.files.npy import map_npy
from outercore.training.tasks import array_key

if TYPE_CHECKING:
    from outercore.data.graph import Graph

_AHEAD = 4 << 20
"""Bytes that the system is asked to read before they are needed."""


@dataclass
class Moved:
    """Bytes that an inference has moved so far."""

    features_read: int = 0
    topology_read: int = 0
    scratch_read: int = 0
    scratch_written: int = 0


class Rows:
    """An array with a row for each node, read a range at a time."""

    def __init__(self, path: Path, entry: dict[str, Any]) -> None:
        """`entry` is the description of the array at `path` in a manifest."""
        self._path = path
        self._halves = entry["dtype"] == "bfloat16"
        self._dtype = np.dtype(np.uint16 if self._halves else entry["dtype"])
        self._shape = tuple(int(extent) for extent in entry["shape"])
        self._start = int(entry["data_offset"])
        with device_errors(f"array `{path}`"):
            self._file = os.open(path, os.O_RDONLY)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    @property
    def row_bytes(self) -> int:
        """Of a row."""
        return int(np.prod(self._shape[1:], dtype=np.int64)) * self._dtype.itemsize

    def read(self, first: int, last: int) -> NDArray[Any]:
        """The rows `first` to `last`, as they are stored.

        Errors: `CorruptError` where the file ends before.
        """
        rows = np.empty((last - first, *self._shape[1:]), self._dtype)
        offset, size = self._start + first * self.row_bytes, rows.nbytes
        if size:
            os.posix_fadvise(self._file, offset + size, _AHEAD, os.POSIX_FADV_WILLNEED)
            with device_errors(f"array `{self._path}`"):
                read_into(self._file, self._path, rows, offset)
        return rows

    def numbers(self, first: int, last: int) -> Tensor:
        """The same as float32 [rows, columns]."""
        rows = self.read(first, last)
        if self._halves:
            rows = (rows.astype(np.uint32) << 16).view(np.float32)
        return torch.from_numpy(rows.astype(np.float32, copy=False).reshape(last - first, -1))


class RowsInMemory:
    """`Rows` of an array that updates have changed: it is in memory."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        self.row_bytes = array.nbytes // max(len(array), 1)

    def close(self) -> None:
        """Nothing is open."""

    def read(self, first: int, last: int) -> NDArray[Any]:
        """As `Rows.read`."""
        return self._array[first:last]

    def numbers(self, first: int, last: int) -> Tensor:
        """As `Rows.numbers`."""
        wide = self._array[first:last].astype(np.float32).reshape(last - first, -1)
        return torch.from_numpy(wide)


class Int8Rows:
    """`Rows` with values rounded to the nearest `int8` steps, as loaders deliver them.

    Both products and sums are rounded to float32, as in the core: the values have the same bits.
    """

    def __init__(self, rows: Rows | RowsInMemory, graph: Graph, key: str) -> None:
        """Errors: `NotFoundError` for an array without an `int8` layout; `InvalidError` for a stale
        layout."""
        require_int8(graph, key)
        self._rows = rows
        self.row_bytes = rows.row_bytes
        self._scale, self._offset = (
            torch.from_numpy(graph.array(f"layout/{key}/int8/{part}"))
            for part in ("scale", "offset")
        )

    def numbers(self, first: int, last: int) -> Tensor:
        """As `Rows.numbers`."""
        steps = (self._rows.numbers(first, last) - self._offset) / self._scale
        # A column of one value has steps of 0.
        steps = torch.where(self._scale > 0, steps, 0.0).nan_to_num(nan=0.0)
        return self._offset + self._scale * steps.round().clamp(-128, 127)


@contextmanager
def rows_of(
    graph: Graph, key: str, precision: Precision = "exact"
) -> Iterator[Rows | RowsInMemory | Int8Rows]:
    """The rows of an array of a data set, or of the `.npy` at the path `key`."""
    rows: Rows | RowsInMemory
    if key.endswith(".npy"):
        array: Any = map_npy(Path(key), "features")
        entry = {"dtype": array.dtype, "shape": array.shape, "data_offset": array.offset}
        rows = Rows(Path(key), entry)
    elif graph.schema.is_live:
        rows = RowsInMemory(graph.array(key))
    else:
        entry = graph.arrays[key]
        rows = Rows(Path(graph.root) / entry["file"], entry)
    try:
        yield Int8Rows(rows, graph, key) if precision == "int8" else rows
    finally:
        rows.close()


def feature_key(graph: Graph, name: str) -> str:
    """The key, or the path, of the features that a run names."""
    return name if name.endswith(".npy") else array_key(graph, name)


def read_into(file: int, path: Path, rows: NDArray[Any], offset: int) -> None:
    """Fills `rows` from the byte `offset` on.

    Errors: `CorruptError` where the file ends before; `OSError`.
    """
    view, done = rows.reshape(-1).view(np.uint8).data, 0
    while done < len(view):
        count = os.preadv(file, [view[done:]], offset + done)
        if not count:
            raise CorruptError(
                f"`{path}`: ends at byte {offset + done}, expected {offset + len(view)}\n"
                "hint: run `outercore check` on the data set"
            )
        done += count
