"""Rows in files: features that are read in order, and messages that wait for their targets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from math import prod
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

if TYPE_CHECKING:
    from outercore.data.graph import Graph


_AHEAD = 4 << 20
"""Bytes that the kernel is asked to read ahead."""


@dataclass
class Moved:
    """Bytes that an inference has moved so far."""

    features_read: int = 0
    topology_read: int = 0
    scratch_read: int = 0
    scratch_written: int = 0


class Rows:
    """Reads features of nodes from a file, a range at a time."""

    def __init__(self, path: Path, entry: dict[str, Any]) -> None:
        """Opens the array at `path`. `entry` is its description in a manifest."""
        self._path = path
        self._halves = entry["dtype"] == "bfloat16"
        self._dtype = np.dtype(np.uint16 if self._halves else entry["dtype"])
        self._shape = tuple(int(extent) for extent in entry["shape"])
        self._start = int(entry["data_offset"])
        self.row_bytes = prod(self._shape[1:]) * self._dtype.itemsize
        with device_errors(f"array `{path}`"):
            self._file = os.open(path, os.O_RDONLY)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def read(self, first: int, last: int) -> NDArray[Any]:
        """Reads the rows from `first` to below `last`.

        Errors: `CorruptError` if the file ends earlier.
        """
        rows = np.empty((last - first, *self._shape[1:]), self._dtype)
        offset, size = self._start + first * self.row_bytes, rows.nbytes
        if size:
            os.posix_fadvise(self._file, offset + size, _AHEAD, os.POSIX_FADV_WILLNEED)
            with device_errors(f"array `{self._path}`"):
                read_into(self._file, self._path, rows, offset)
        return (rows.astype(np.uint32) << 16).view(np.float32) if self._halves else rows


class RowsInMemory:
    """The same as `Rows`, for an array in memory that updates have changed."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        self.row_bytes = array.nbytes // max(len(array), 1)

    def close(self) -> None:
        """Does nothing, because no file is open."""

    def read(self, first: int, last: int) -> NDArray[Any]:
        """The rows from `first` to below `last`."""
        return self._array[first:last]


@contextmanager
def feature_rows(
    graph: Graph, key: str, precision: Precision, moved: Moved
) -> Iterator[Callable[[int, int], Tensor]]:
    """Context with a function that reads features, a range at a time.

    `key` is an array of the data set, or the path of an `.npy`. The function takes the first row
    and the end, and returns float32 [rows, columns].

    Errors, for the precision `int8`: `NotFoundError` for an array without an `int8` layout,
    `InvalidError` for an outdated layout.
    """
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

    def read(first: int, last: int) -> Tensor:
        moved.features_read += rows.row_bytes * (last - first)
        numbers = rows.read(first, last).astype(np.float32, copy=False)
        return rounded(torch.from_numpy(numbers.reshape(last - first, -1)))

    with closing(rows):
        rounded = _int8_steps(graph, key) if precision == "int8" else lambda x: x
        yield read


def _int8_steps(graph: Graph, key: str) -> Callable[[Tensor], Tensor]:
    """A function that rounds values to the nearest `int8` steps, as loaders do.

    Products and sums are rounded to float32, as in the core, so the values are bit-identical.
    """
    require_int8(graph, key)
    scale, offset = (
        torch.from_numpy(graph.array(f"layout/{key}/int8/{part}")) for part in ("scale", "offset")
    )

    def rounded(x: Tensor) -> Tensor:
        # For a column of equal values, the scale is 0.
        steps = torch.where(scale > 0, (x - offset) / scale, 0.0).nan_to_num(nan=0.0)
        return offset + scale * steps.round().clamp(-128, 127)

    return rounded


def read_into(file: int, path: Path, rows: NDArray[Any], offset: int) -> None:
    """Fills `rows` with the bytes of the file from `offset` on.

    Errors: `CorruptError` if the file ends earlier; `OSError`.
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


_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)
"""The number of bits that are set, for each value of a byte."""


@dataclass(frozen=True)
class Block:
    """The messages of the nodes from `first` to below `last`.

    Shapes: `rows` float32 [rows, width]; `places` uint32 [last - first], the row of each node, or
    `None` if node `first + i` has row `i`.
    """

    first: int
    last: int
    rows: NDArray[np.float32]
    places: NDArray[np.uint32] | None


class MessagesInMemory:
    """The messages of all nodes, in memory. All parts use the same rows."""

    def __init__(self, nodes: int, width: int) -> None:
        self._rows = np.empty((nodes, width), np.float32)

    def append(self, first: int, rows: NDArray[np.float32]) -> None:
        """Stores the messages of the nodes from `first` on."""
        self._rows[first : first + len(rows)] = rows

    def blocks(self, part: int) -> Iterator[Block]:
        """All messages as one block, for any part."""
        yield Block(0, len(self._rows), self._rows, None)


class _RowsOnDisk:
    """Rows float32 [rows, width] in a file. `close` removes the file."""

    def __init__(self, path: Path, width: int, moved: Moved) -> None:
        self._path, self._width, self._moved = path, width, moved
        with device_errors(f"layer states `{path}`"):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)

    def close(self) -> None:
        """Closes and removes the file."""
        os.close(self._file)
        self._path.unlink()

    def _write(self, rows: NDArray[np.float32], offset: int) -> int:
        """Writes rows from the byte `offset` on, and returns the end of the written bytes."""
        view = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
        self._moved.scratch_written += len(view)
        with device_errors(f"layer states `{self._path}`"):
            while len(view):
                count = os.pwrite(self._file, view, offset)
                offset, view = offset + count, view[count:]
        return offset

    def _read(self, count: int, offset: int) -> NDArray[np.float32]:
        """Reads `count` rows from the byte `offset` on."""
        rows = np.empty((count, self._width), np.float32)
        if rows.size:
            with device_errors(f"layer states `{self._path}`"):
                read_into(self._file, self._path, rows, offset)
        self._moved.scratch_read += rows.nbytes
        return rows


class MessagesOnDisk(_RowsOnDisk):
    """Messages in a file. A message is written and read once for each part that needs it.

    Cost: space on disk for the rows of all parts together; memory for a block.
    """

    def __init__(
        self,
        path: Path,
        needed: NDArray[np.uint8],
        nodes: int,
        width: int,
        *,
        step: int,
        block_bytes: int,
        moved: Moved,
    ) -> None:
        """Opens the file. `needed` is a result of `needed_sources`.

        `append` gets the messages of `step` nodes at a time; `step` is a multiple of 8. A block has
        at most `block_bytes` bytes, or the messages of one step.
        """
        super().__init__(path, width, moved)
        self._needed, self._nodes = needed, nodes
        self._step, self._block_bytes = step, block_bytes
        self._counts = np.add.reduceat(
            _BITS[needed],
            np.arange(0, needed.shape[1], step // 8),
            axis=1,
            dtype=np.int64,
        )
        """Number of rows of each part and step."""
        ends = np.cumsum(self._counts.sum(axis=1)) * width * 4
        self._starts = np.append(0, ends[:-1])
        self._written = self._starts.copy()

    def append(self, first: int, rows: NDArray[np.float32]) -> None:
        """Writes the messages of the nodes from `first` on."""
        for part in range(len(self._needed)):
            chosen = rows[self._mask(part, first, first + len(rows))]
            if chosen.nbytes:
                self._written[part] = self._write(chosen, int(self._written[part]))

    def blocks(self, part: int) -> Iterator[Block]:
        """Reads the messages to the targets of a part, in order."""
        offset = int(self._starts[part])
        for first, last, count in self._ranges(part):
            rows = self._read(count, offset)
            offset += rows.nbytes
            places = np.cumsum(self._mask(part, first, last), dtype=np.uint32)
            # Places of nodes without a row are never used: the part has no arcs from these nodes.
            yield Block(first, last, rows, places - np.uint32(1))

    def _ranges(self, part: int) -> Iterator[tuple[int, int, int]]:
        """The first node, the end and the number of rows of each block."""
        first, count = 0, 0
        # A block also takes 12 bytes per node, for three temporary arrays.
        longest = max(self._block_bytes // 12, self._step)
        for place, more in enumerate(self._counts[part].tolist()):
            at = place * self._step
            full = (count + more) * self._width * 4 > self._block_bytes
            if count and (full or at + self._step - first > longest):
                yield first, at, count
                first, count = at, 0
            count += more
        if count:
            yield first, self._nodes, count

    def _mask(self, part: int, first: int, last: int) -> NDArray[np.bool_]:
        some = self._needed[part, first // 8 : -(-last // 8)]
        mask: Any = np.unpackbits(some, count=last - first)
        return mask.view(np.bool_)


class OwnInMemory:
    """The stored rows of the targets of a layer, in memory."""

    def __init__(self, targets: int, width: int) -> None:
        self._rows = np.empty((targets, width), np.float32)
        self._done = 0

    def append(self, rows: NDArray[np.float32]) -> None:
        """Stores the rows of the next targets."""
        self._rows[self._done : self._done + len(rows)] = rows
        self._done += len(rows)

    def read(self, first: int, last: int) -> NDArray[np.float32]:
        """Reads the rows of the targets at positions from `first` to below `last`."""
        return self._rows[first:last]


class OwnOnDisk(_RowsOnDisk):
    """The stored rows of the targets of a layer, in a file. Each is written once and read once."""

    def __init__(self, path: Path, width: int, moved: Moved) -> None:
        super().__init__(path, width, moved)
        self._end = 0

    def append(self, rows: NDArray[np.float32]) -> None:
        """Stores the rows of the next targets."""
        self._end = self._write(rows, self._end)

    def read(self, first: int, last: int) -> NDArray[np.float32]:
        """Reads the rows of the targets at positions from `first` to below `last`."""
        return self._read(last - first, first * self._width * 4)
