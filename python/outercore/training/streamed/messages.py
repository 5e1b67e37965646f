"""Where messages wait until their targets are computed: in memory, or sorted by part on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from outercore.files.atomic import device_errors
from outercore.training.streamed.files import Moved, read_into

if TYPE_CHECKING:
    from typing_extensions import Self

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


class Messages(Protocol):
    """The messages of all nodes, which come in order; a context manager."""

    def append(self, first: int, rows: NDArray[np.float32]) -> None:
        """Adds the messages of the nodes from `first` on."""

    def blocks(self, part: int) -> Iterator[Block]:
        """Messages to the targets of a part, in order; a block is valid until the next one."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class MessagesInMemory:
    """Messages in memory, for all parts."""

    def __init__(self, nodes: int, width: int) -> None:
        self._rows = np.empty((nodes, width), np.float32)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows = np.empty((0, 0), np.float32)

    def append(self, first: int, rows: NDArray[np.float32]) -> None:
        """As `Messages.append`."""
        self._rows[first : first + len(rows)] = rows

    def blocks(self, part: int) -> Iterator[Block]:
        """All messages, as one block."""
        yield Block(0, len(self._rows), self._rows, None)


class _RowsOnDisk:
    """Rows float32 [rows, width] in a file that is there as long as the context."""

    def __init__(self, path: Path, width: int, moved: Moved) -> None:
        self._path, self._width, self._moved = path, width, moved
        self._file = -1

    def __enter__(self) -> Self:
        with device_errors(f"layer states `{self._path}`"):
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        return self

    def __exit__(self, *_: object) -> None:
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
        """`needed` is from `columns.needed_sources`; nodes come `step` at a time, a multiple of 8.

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
        """As `Messages.append`."""
        for part in range(len(self._needed)):
            chosen = rows[self._mask(part, first, first + len(rows))]
            if chosen.nbytes:
                self._written[part] = self._write(chosen, int(self._written[part]))

    def blocks(self, part: int) -> Iterator[Block]:
        """As `Messages.blocks`."""
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows = np.empty((0, 0), np.float32)

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
