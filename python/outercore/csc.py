"""The edges of one type in the CSC of a data set; no PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outercore.edge_types import EdgeType, edge_type_key
from outercore.mapped import mapped

if TYPE_CHECKING:
    from outercore.graph import Graph


def csc(graph: Graph, edge_type: EdgeType) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets [targets + 1] from 0, and sources [edges] by ids within their type.

    Cost: 8 bytes an edge and a target in memory.
    """
    offsets = _bounds(graph, edge_type)
    sources = topology(graph, "sources")[offsets[0] : offsets[-1]].astype(np.int64)
    return offsets - offsets[0], sources - first_ids(graph)[edge_type[0]]


def edge_rows(graph: Graph, edge_type: EdgeType) -> NDArray[np.int64] | None:
    """The row of each edge [edges] in the imported list of its type; `None` where it is its place.

    Both directions of an undirected edge have the same row.
    """
    if "edges/edge/ids" not in graph.arrays:
        return None
    offsets = _bounds(graph, edge_type)
    rows = topology(graph, "ids")[offsets[0] : offsets[-1]].astype(np.int64)
    return rows - _first_row(graph, edge_type)


def first_ids(graph: Graph) -> dict[str, int]:
    """The global id of the first node of each type."""
    first, found = 0, {}
    for name, count in graph.node_types.items():
        found[name] = first
        first += count
    return found


class Edges:
    """Whether there is an edge of a type between two nodes, by search in the CSC on disk."""

    def __init__(self, graph: Graph, edge_type: EdgeType, times: str | None = None) -> None:
        """`times` is the edge array that says when an edge comes, if it has this array at all."""
        self._offsets = topology(graph, "offsets")
        self._sources = topology(graph, "sources")
        self._first_source = first_ids(graph)[edge_type[0]]
        self._first_column = _first_column(graph, edge_type)
        self._times: NDArray[Any] | None = None
        key = edge_array_key(graph, edge_type, times or "")
        if key in graph.arrays:
            self._times = array_of(graph, key)
            self._rows = topology(graph, "ids") if "edges/edge/ids" in graph.arrays else None
            self._first_row = _first_row(graph, edge_type)

    def has(
        self,
        sources: NDArray[np.int64],
        targets: NDArray[np.int64],
        at: NDArray[np.int64] | None = None,
    ) -> NDArray[np.bool_]:
        """Bool [n]: whether edge `sources[i]` to `targets[i]` is there, ids within their types.

        With a time for each in `at` only edges count that are there by then.

        Cost: about 2 log2 of the in-degree reads of the CSC for each pair.
        """
        columns = self._first_column + targets
        begin = np.asarray(self._offsets[columns], np.int64)
        end = np.asarray(self._offsets[columns + 1], np.int64)
        wanted = self._first_source + sources
        # In a column sources ascend; copies of an edge follow each other.
        first = self._bound(begin, end, wanted)
        if at is None or self._times is None:
            same = np.zeros(len(first), bool)
            inside = first < end
            same[inside] = np.asarray(self._sources[first[inside]], np.int64) == wanted[inside]
            return same
        copies = self._bound(first, end, wanted + 1) - first
        found = copies > 0
        found[found] = self._earliest(first[found], copies[found], at[found])
        return found

    def _bound(
        self, low: NDArray[np.int64], high: NDArray[np.int64], wanted: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The first place in `low..high` whose source is not below the wanted one, or `high`."""
        low, high = low.copy(), high.copy()
        while (open_ := low < high).any():
            middle = (low + high) // 2
            found = np.zeros(len(low), np.int64)
            found[open_] = self._sources[middle[open_]]
            less = open_ & (found < wanted)
            low = np.where(less, middle + 1, low)
            high = np.where(open_ & ~less, middle, high)
        return low

    def _earliest(
        self, first: NDArray[np.int64], copies: NDArray[np.int64], at: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Whether the earliest of the copies from each place on is there by `at`."""
        assert self._times is not None
        starts = np.cumsum(copies) - copies
        places = np.arange(int(copies.sum())) - np.repeat(starts - first, copies)
        if self._rows is not None:
            places = np.asarray(self._rows[places], np.int64)
        times = np.asarray(self._times[places - self._first_row])
        earliest = np.minimum.reduceat(times, starts) if len(starts) else times
        there: NDArray[np.bool_] = earliest <= at
        return there


def _bounds(graph: Graph, edge_type: EdgeType) -> NDArray[np.int64]:
    columns = columns_of(graph, edge_type)
    return topology(graph, "offsets")[columns.start : columns.stop + 1].astype(np.int64)


def _first_column(graph: Graph, edge_type: EdgeType) -> int:
    """The column of the first target."""
    column = 0
    for other in graph.edge_types:
        if other == edge_type:
            break
        column += graph.node_types[other[2]]
    return column


def _first_row(graph: Graph, edge_type: EdgeType) -> int:
    """The row of the first edge of a type among those of all types."""
    before = 0
    for other in graph.edge_types:
        if other == edge_type:
            break
        described = graph.manifest["edge_types"][edge_type_key(other)]
        before += int(described.get("rows") or described["count"])
    return before


def array_of(graph: Graph, key: str) -> NDArray[Any]:
    """An array, mapped; with a log of updates in memory, as these have changed it."""
    manifest = graph.manifest
    return graph.array(key) if "live" in manifest else mapped(graph.root, manifest["arrays"][key])


def edge_array_key(graph: Graph, edge_type: EdgeType, name: str) -> str:
    """The manifest key of an array of a type's edges."""
    return f"edges/{edge_type_key(edge_type) if graph.is_typed else 'edge'}/{name}"


def columns_of(graph: Graph, edge_type: EdgeType) -> range:
    """The columns of an edge type in the CSC: one for each node of its target type."""
    first = _first_column(graph, edge_type)
    return range(first, first + graph.node_types[edge_type[2]])


def topology(graph: Graph, name: str) -> NDArray[Any]:
    """An array of the CSC: `offsets`, `sources` or `ids`."""
    return array_of(graph, f"edges/edge/{name}")
