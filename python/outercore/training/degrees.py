"""In-degrees of all nodes, for the networks that weigh a neighbour by them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outercore.errors import CorruptError

if TYPE_CHECKING:
    from outercore.graph import Graph

_CHUNK = 1 << 20


def in_degrees(graph: Graph, *, count_loops: bool) -> NDArray[np.float32]:
    """The number of arcs into each node, self-loops among them or not.

    Shapes: float32 [nodes].
    Cost: one sequential read of the offsets, and one of the sources where self-loops have to be
    found; 4 bytes of memory a node.
    """
    degrees = np.empty(graph.num_nodes, np.float32)
    offsets = _Stream(graph, "edges/edge/offsets")
    loops_possible = _may_have_loops(graph) and not count_loops
    sources = _Stream(graph, "edges/edge/sources") if loops_possible else None
    for first in range(0, graph.num_nodes, _CHUNK):
        last = min(first + _CHUNK, graph.num_nodes)
        bounds = offsets.read(first, last + 1).astype(np.int64)
        degrees[first:last] = np.diff(bounds)
        if sources is not None:
            degrees[first:last] -= _loops(sources, bounds, first)
    return degrees


def largest_window(graph: Graph, rows: int, columns: range | None = None) -> int:
    """The most arcs into any `rows` consecutive columns that start at a multiple of `rows`.

    `columns` are all by default; of a part of them, places count from its first.
    """
    columns = range(graph.num_nodes) if columns is None else columns
    offsets = _Stream(graph, "edges/edge/offsets")
    most = 0
    step = max(_CHUNK // rows, 1) * rows
    for first in range(columns.start, columns.stop, step):
        last = min(first + step, columns.stop)
        bounds = offsets.read(first, last + 1).astype(np.int64)
        marks = np.append(bounds[:-1:rows], bounds[-1])
        most = max(most, int(np.diff(marks).max(initial=0)))
    return most


def _loops(sources: _Stream, bounds: NDArray[np.int64], first: int) -> NDArray[np.float32]:
    """Self-loops of the nodes `first..`, whose columns lie between consecutive `bounds`."""
    loops = np.zeros(len(bounds) - 1, np.float32)
    for start in range(int(bounds[0]), int(bounds[-1]), _CHUNK):
        stop = min(start + _CHUNK, int(bounds[-1]))
        column = np.searchsorted(bounds, np.arange(start, stop), side="right") - 1
        here = sources.read(start, stop).astype(np.int64) == column + first
        np.add.at(loops, column[here], 1.0)
    return loops


def _may_have_loops(graph: Graph) -> bool:
    options = graph.manifest.get("provenance", {}).get("options", {})
    return options.get("self_loops") != "drop"


class _Stream:
    """Ranges of a one-dimensional array, read rather than mapped: maps count as our memory."""

    def __init__(self, graph: Graph, key: str) -> None:
        described: dict[str, Any] = graph.manifest["arrays"][key]
        self._path = Path(graph.root) / described["file"]
        self._dtype = np.dtype(described["dtype"])
        self._offset = int(described["data_offset"])
        self._length = int(described["shape"][0])

    def read(self, start: int, stop: int) -> NDArray:
        count = stop - start
        values = np.fromfile(
            self._path,
            self._dtype,
            count=count,
            offset=self._offset + start * self._dtype.itemsize,
        )
        if len(values) != count:
            raise CorruptError(
                f"array `{self._path}`: expected {self._length} values, "
                f"found {start + len(values)}\nhint: run `outercore check` on the data set"
            )
        return values
