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
"""Bytes that the kernel reads ahead."""


@dataclass
class Moved:
    """Bytes that an inference has moved so far."""

    features_read: int = 0
    topology_read: int = 0
    scratch_read: int = 0
    scratch_written: int = 0


class Rows:
    """Features of nodes, read a range at a time."""

    def __init__(self, path: Path, entry: dict[str, Any]) -> None:
        """`entry` is the description of the array at `path` in a manifest."""
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
        """The rows `first` to `last`, a number or several each.

        Errors: `CorruptError` where the file ends before.
        """
        rows = np.empty((last - first, *self._shape[1:]), self._dtype)
        offset, size = self._start + first * self.row_bytes, rows.nbytes
        if size:
            os.posix_fadvise(self._file, offset + size, _AHEAD, os.POSIX_FADV_WILLNEED)
            with device_errors(f"array `{self._path}`"):
                read_into(self._file, self._path, rows, offset)
        return (rows.astype(np.uint32) << 16).view(np.float32) if self._halves else rows


class RowsInMemory:
    """`Rows` of an array that updates have changed: it is in memory."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        self.row_bytes = array.nbytes // max(len(array), 1)

    def close(self) -> None:
        """Nothing is open."""

    def read(self, first: int, last: int) -> NDArray[Any]:
        """The rows `first` to `last`."""
        return self._array[first:last]


@contextmanager
def feature_rows(
    graph: Graph, key: str, precision: Precision, moved: Moved
) -> Iterator[Callable[[int, int], Tensor]]:
    """Reads features of a data set, or of the `.npy` at the path `key`, a range at a time.

    The function takes the first row and the end, and returns float32 [rows, columns].

    Errors: `NotFoundError` for an array without an `int8` layout, `InvalidError` for a stale one.
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
    """Rounds values to the nearest `int8` steps, as loaders deliver them.

    Both products and sums are rounded to float32, as in the core: the values have the same bits.
    """
    require_int8(graph, key)
    scale, offset = (
        torch.from_numpy(graph.array(f"layout/{key}/int8/{part}")) for part in ("scale", "offset")
    )

    def rounded(x: Tensor) -> Tensor:
        # A column of one value has steps of 0.
        steps = torch.where(scale > 0, (x - offset) / scale, 0.0).nan_to_num(nan=0.0)
        return offset + scale * steps.round().clamp(-128, 127)

    return rounded


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


_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)
"""Bits that are set in a byte."""


@dataclass(frozen=True)
class Block:
    """Messages of consecutive nodes.

    Shapes: `rows` float32 [rows, width]; `places` uint32 [last - first], the row of each node, or
    `None` where node `first + i` has row `i`.
    """

    first: int
    last: int
    rows: NDArray[np.float32]
    places: NDArray[np.uint32] | None


class MessagesInMemory:
    """The messages of all nodes, in memory for all parts."""

    def __init__(self, nodes: int, width: int) -> None:
        self._rows = np.empty((nodes, width), np.float32)

    def append(self, first: int, rows: NDArray[np.float32]) -> None:
        """Adds the messages of the nodes from `first` on."""
        self._rows[first : first + len(rows)] = rows

    def blocks(self, part: int) -> Iterator[Block]:
        """All messages, as one block."""
        yield Block(0, len(self._rows), self._rows, None)


class _RowsOnDisk:
    """Rows float32 [rows, width] in a file that is there until `close`."""

    def __init__(self, path: Path, width: int, moved: Moved) -> None:
        self._path, self._width, self._moved = path, width, moved
        with device_errors(f"layer states `{path}`"):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)

    def close(self) -> None:
        """Removes the file."""
        os.close(self._file)
        self._path.unlink()

    def _write(self, rows: NDArray[np.float32], offset: int) -> int:
        """Writes rows from the byte `offset` on; returns where they end."""
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
    """A message is written once for each part that needs it, and read back once.

    Cost: of disk, the rows that the parts need together; of memory, a block.
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
        """`needed` is from `needed_sources`; nodes come `step` at a time, a multiple of 8.

        A block has at most `block_bytes`, or one step.
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
        """Rows of each part and step."""
        ends = np.cumsum(self._counts.sum(axis=1)) * width * 4
        self._starts = np.append(0, ends[:-1])
        self._written = self._starts.copy()

    def append(self, first: int, rows: NDArray[np.float32]) -> None:
        """Adds the messages of the nodes from `first` on."""
        for part in range(len(self._needed)):
            chosen = rows[self._mask(part, first, first + len(rows))]
            if chosen.nbytes:
                self._written[part] = self._write(chosen, int(self._written[part]))

    def blocks(self, part: int) -> Iterator[Block]:
        """Messages to the targets of a part, in order; a block is valid until the next one."""
        offset = int(self._starts[part])
        for first, last, count in self._ranges(part):
            rows = self._read(count, offset)
            offset += rows.nbytes
            places = np.cumsum(self._mask(part, first, last), dtype=np.uint32)
            # A node without a row comes in no arc of the part.
            yield Block(first, last, rows, places - np.uint32(1))

    def _ranges(self, part: int) -> Iterator[tuple[int, int, int]]:
        """Nodes of a block, and its rows."""
        first, count = 0, 0
        # Three temporary arrays have a number for each node.
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
    """Own rows of the targets of a layer, in memory."""

    def __init__(self, targets: int, width: int) -> None:
        self._rows = np.empty((targets, width), np.float32)
        self._done = 0

    def append(self, rows: NDArray[np.float32]) -> None:
        """Adds the next rows."""
        self._rows[self._done : self._done + len(rows)] = rows
        self._done += len(rows)

    def read(self, first: int, last: int) -> NDArray[np.float32]:
        """The rows of the targets at the places `first` to `last`."""
        return self._rows[first:last]


class OwnOnDisk(_RowsOnDisk):
    """Own rows on disk: written once, read once."""

    def __init__(self, path: Path, width: int, moved: Moved) -> None:
        super().__init__(path, width, moved)
        self._end = 0

    def append(self, rows: NDArray[np.float32]) -> None:
        """Adds the next rows."""
        self._end = self._write(rows, self._end)

    def read(self, first: int, last: int) -> NDArray[np.float32]:
        """The rows of the targets at the places `first` to `last`."""
        return self._read(last - first, first * self._width * 4)
