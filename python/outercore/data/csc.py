"""Reads the edges of one type from the CSC of a data set. Does not import PyTorch."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outercore.data.edge_types import EdgeType
from outercore.files.large_arrays import forget, mapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outercore.data.data_set import DataSet

_BLOCK = 1 << 16
"""Number of edges that are read together."""
_PAIRS = 1 << 8
"""Number of pairs that are looked up together. It limits the memory of lookups: reading one value
of a mapped file takes up to 64 KiB, because the kernel also maps neighbouring pages."""
_SMALL = 4 << 20
"""Largest size in bytes of a mapped array that may be in memory completely."""


def csc(graph: DataSet, edge_type: EdgeType) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The CSC of one edge type: offsets that begin at 0, and ids of sources within their type.

    Shapes: offsets int64 [targets + 1], sources int64 [edges].

    Cost: 8 bytes of memory per edge and per target.
    """
    offsets = _bounds(graph, edge_type)
    sources = topology(graph, "sources")[offsets[0] : offsets[-1]].astype(np.int64)
    return offsets - offsets[0], sources - first_ids(graph)[edge_type[0]]


def edge_rows(graph: DataSet, edge_type: EdgeType) -> NDArray[np.int64] | None:
    """The row of each edge in the imported list of its type; `None` if rows equal places.

    A place is a position in the CSC, counted within the edge type.

    Both directions of an undirected edge have the same row.

    Shapes: int64 [edges].
    """
    if "edges/edge/ids" not in graph.arrays:
        return None
    offsets = _bounds(graph, edge_type)
    rows = topology(graph, "ids")[offsets[0] : offsets[-1]].astype(np.int64)
    return rows - _first_row(graph, edge_type)


def count_links(graph: DataSet, edge_type: EdgeType) -> int:
    """Number of edges of a type. An undirected edge counts twice.

    Cost: two small reads.
    """
    first, last = _span(graph, edge_type)
    return last - first


def num_rows(graph: DataSet, edge_type: EdgeType) -> int:
    """Number of rows of a type in the imported edge list."""
    edges = graph.schema.edges[edge_type]
    return edges.rows or edges.count


def reading_bytes(graph: DataSet, edge_type: EdgeType) -> int:
    """Bytes of memory for `RowOrder` and `edge_blocks` while edges of a type are read."""
    rows = 0 if _is_one_edge_a_row(graph, edge_type) else num_rows(graph, edge_type)
    return 4 * rows + 64 * _BLOCK


def edge_blocks(
    graph: DataSet, edge_type: EdgeType
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64] | None]]:
    """The edges of a type in blocks, sorted by target.

    A block is (place of the first edge, sources, targets, rows). Ids are counted within their type.
    `rows` is `None` if the row of each edge equals its place.

    Cost: reads the edges once. Memory for a block of 65,536 edges.
    """
    first, last = _span(graph, edge_type)
    offsets, sources = topology(graph, "offsets"), topology(graph, "sources")
    ids = topology(graph, "ids") if "edges/edge/ids" in graph.arrays else None
    first_source, first_row = first_ids(graph)[edge_type[0]], _first_row(graph, edge_type)
    columns = columns_of(graph, edge_type)
    bounds = offsets[columns.start : columns.stop + 1]
    for start in range(first, last, _BLOCK):
        places = np.arange(start, min(start + _BLOCK, last))
        # Convert the places to the type of the offsets; otherwise NumPy converts all offsets.
        targets = np.searchsorted(bounds, places.astype(bounds.dtype), side="right") - 1
        rows = None if ids is None else ids[places[0] : places[-1] + 1].astype(np.int64) - first_row
        yield (
            start - first,
            sources[places[0] : places[-1] + 1].astype(np.int64) - first_source,
            targets,
            rows,
        )
        for array in (offsets, sources, ids):
            if array is not None:
                forget(array)


class RowOrder:
    """Gives each edge its place in the order of the imported rows.

    Edges with the same row, such as both directions of an undirected edge, keep their order.
    """

    def __init__(self, graph: DataSet, edge_type: EdgeType) -> None:
        """Reads the rows of all edges, unless each row is exactly one edge."""
        self._next: NDArray[Any] | None = None
        if _is_one_edge_a_row(graph, edge_type):
            return
        count = count_links(graph, edge_type)
        kind = np.uint32 if count < 1 << 32 else np.int64
        counts = np.zeros(num_rows(graph, edge_type), kind)
        for _, _, _, rows in edge_blocks(graph, edge_type):
            assert rows is not None
            if (needed := int(rows.max()) + 1) > len(counts):
                # A data set may lack the number of imported rows.
                counts = np.append(counts, np.zeros(needed - len(counts), kind))
            np.add.at(counts, rows, kind(1))
        total = 0
        for start in range(0, len(counts), _BLOCK):
            block = counts[start : start + _BLOCK].astype(np.int64)
            counts[start : start + _BLOCK] = total + np.cumsum(block) - block
            total += int(block.sum())
        self._next = counts

    def places(self, first: int, rows: NDArray[np.int64] | None) -> Any:
        """The places for the edges of one block, from its first edge and its imported rows.

        Call it once for each block of `edge_blocks`, in order.
        """
        if rows is None:
            return slice(first, None)
        if self._next is None:
            return rows
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        sizes = np.diff(np.append(begins, len(ordered)))
        earlier = np.arange(len(ordered)) - np.repeat(begins, sizes)
        places = np.empty(len(rows), np.int64)
        places[order] = self._next[ordered] + earlier
        self._next[ordered[begins]] += sizes.astype(self._next.dtype)
        return places


def id_type(graph: DataSet, edge_type: EdgeType) -> np.dtype[Any]:
    """The smallest of int32 and int64 for the node ids of both ends of a type's edges."""
    nodes = max(graph.node_types[edge_type[0]], graph.node_types[edge_type[2]])
    return np.dtype(np.int32 if nodes <= 1 << 31 else np.int64)


def all_links(graph: DataSet, edge_type: EdgeType) -> NDArray[Any]:
    """All edges of a type, in the order of the imported rows.

    The two directions of an undirected edge are next to each other.

    Shapes: int32 [2, edges], or int64 if a node type has more than 2^31 nodes.

    Cost: memory for the result, and `reading_bytes` while edges are read. One pass over the edges,
    or two if some rows do not have exactly one edge.
    """
    links = np.empty((2, count_links(graph, edge_type)), id_type(graph, edge_type))
    order = RowOrder(graph, edge_type)
    for first, sources, targets, rows in edge_blocks(graph, edge_type):
        places = order.places(first, rows)
        links[0, places], links[1, places] = sources, targets
    return links


def array_of(graph: DataSet, key: str) -> NDArray[Any]:
    """An array, mapped from its file. For a live graph: in memory, with all updates."""
    is_live = graph.schema.is_live
    return graph.array(key) if is_live else mapped(graph.root, graph.arrays[key])


def edge_array_key(graph: DataSet, edge_type: EdgeType, name: str) -> str:
    """The manifest key of the edge array `name` of a type."""
    return f"edges/{graph.schema.edges[edge_type].key}/{name}"


def columns_of(graph: DataSet, edge_type: EdgeType) -> range:
    """The columns of an edge type in the CSC: one for each node of its target type."""
    first = _first_column(graph, edge_type)
    return range(first, first + graph.node_types[edge_type[2]])


def topology(graph: DataSet, name: str) -> NDArray[Any]:
    """An array of the CSC: `offsets`, `sources` or `ids`."""
    return array_of(graph, f"edges/edge/{name}")


def first_ids(graph: DataSet) -> dict[str, int]:
    """The global id of the first node of each type."""
    first, first_by_type = 0, {}
    for name, count in graph.node_types.items():
        first_by_type[name] = first
        first += count
    return first_by_type


class Edges:
    """Looks up edges of a type between two nodes, by binary search in the CSC on disk."""

    def __init__(
        self,
        graph: DataSet,
        edge_type: EdgeType,
        times: str | None = None,
        *,
        pairs: int = _PAIRS,
    ) -> None:
        """Opens the edges of a type.

        Args:
            graph: the data set.
            edge_type: the type of the edges.
            times: name of the edge array with times; an edge type may lack it.
            pairs: number of pairs that are looked up together. More pairs are faster, but need more
                memory.
        """
        self._offsets = topology(graph, "offsets")
        self._sources = topology(graph, "sources")
        self._first_source = first_ids(graph)[edge_type[0]]
        self._first_column = _first_column(graph, edge_type)
        self._span = _span(graph, edge_type)
        self._is_undirected = graph.schema.edges[edge_type].undirected
        self._times: NDArray[Any] | None = None
        self._rows: NDArray[Any] | None = None
        key = edge_array_key(graph, edge_type, times or "")
        if key in graph.arrays:
            self._times = array_of(graph, key)
            self._rows = topology(graph, "ids") if "edges/edge/ids" in graph.arrays else None
            self._first_row = _first_row(graph, edge_type)
        is_small = self._offsets.nbytes + self._sources.nbytes <= _SMALL
        self._pairs = len(self._sources) + 1 if is_small and self._times is None else pairs

    def has(
        self,
        sources: NDArray[np.int64],
        targets: NDArray[np.int64],
        at: NDArray[np.int64] | None = None,
    ) -> NDArray[np.bool_]:
        """Whether an edge from `sources[i]` to `targets[i]` exists. Ids count within their types.

        With times `at`, only edges up to time `at[i]` count.

        Shapes: all [n]; the result is bool.

        Cost: about 2 log2(in-degree) reads of the CSC for each pair. Memory: a few MiB for the
        default number of `pairs`.
        """
        found = np.empty(len(sources), bool)
        for first in range(0, len(sources), self._pairs):
            piece = slice(first, first + self._pairs)
            now = None if at is None else at[piece]
            found[piece] = self._has(sources[piece], targets[piece], now)
            self._forget()
        return found

    def connect(self, pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether an edge connects the two nodes of each pair, in either direction.

        Use it for an edge type between nodes of one type.

        Shapes: `pairs` [n, 2]; result bool [n].
        """
        found = self.has(pairs[:, 0], pairs[:, 1])
        if not self._is_undirected:
            found |= self.has(pairs[:, 1], pairs[:, 0])
        return found

    def sources_at(self, shares: NDArray[np.float64]) -> NDArray[np.int64]:
        """The sources of the edges at relative positions: 0 is the first edge, 1 is the end.

        With uniform random positions, it draws nodes in proportion to their out-degree.

        Shapes: `shares` [n]; result int64 [n].
        """
        first, last = self._span
        places = first + (shares * (last - first)).astype(np.int64)
        sources = self._sources[places].astype(np.int64) - self._first_source
        self._forget()
        return sources

    def _forget(self) -> None:
        for array in (self._offsets, self._sources, self._times, self._rows):
            if array is not None:
                forget(array)

    def _has(
        self,
        sources: NDArray[np.int64],
        targets: NDArray[np.int64],
        at: NDArray[np.int64] | None,
    ) -> NDArray[np.bool_]:
        columns = self._first_column + targets
        begin = self._offsets[columns].astype(np.int64)
        end = self._offsets[columns + 1].astype(np.int64)
        wanted = self._first_source + sources
        # Sources ascend within a column, so copies of an edge are next to each other.
        first = self._bound(begin, end, wanted)
        if at is None or self._times is None:
            same = first < end
            same[same] = self._sources[first[same]].astype(np.int64) == wanted[same]
            return same
        copies = self._bound(first, end, wanted + 1) - first
        found = copies > 0
        found[found] = self._earliest(first[found], copies[found], at[found])
        return found

    def _bound(
        self, low: NDArray[np.int64], high: NDArray[np.int64], wanted: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The first place in `low..high` whose source is at least `wanted`, or `high`."""
        low, high = low.copy(), high.copy()
        while len(pending := np.flatnonzero(low < high)):
            middle = (low[pending] + high[pending]) // 2
            is_below = self._sources[middle].astype(np.int64) < wanted[pending]
            low[pending[is_below]] = middle[is_below] + 1
            high[pending[~is_below]] = middle[~is_below]
        return low

    def _earliest(
        self, first: NDArray[np.int64], copies: NDArray[np.int64], at: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Whether one of the `copies` parallel edges from position `first` exists at time `at`."""
        assert self._times is not None
        starts = np.cumsum(copies) - copies
        places = np.arange(int(copies.sum())) - np.repeat(starts - first, copies)
        if self._rows is not None:
            places = np.asarray(self._rows[places], np.int64)
        times = np.asarray(self._times[places - self._first_row])
        earliest = np.minimum.reduceat(times, starts) if len(starts) else times
        there: NDArray[np.bool_] = earliest <= at
        return there


def pair_keys(pairs: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
    """A number for each pair of nodes, equal for both orders of the two. `nodes`: their number.

    Shapes: `pairs` [n, 2]; result int64 [n].
    """
    low, high = np.minimum(pairs[:, 0], pairs[:, 1]), np.maximum(pairs[:, 0], pairs[:, 1])
    return low * nodes + high


def among(keys: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mask of the `keys` that are in `known`, which must ascend.

    Shapes: `keys` [n]; result bool [n].
    """
    if not len(known):
        return np.zeros(len(keys), np.bool_)
    places = np.searchsorted(known, keys)
    places[places == len(known)] = 0
    found: NDArray[np.bool_] = known[places] == keys
    return found


def _span(graph: DataSet, edge_type: EdgeType) -> tuple[int, int]:
    """Begin and end of the edges of a type in the CSC."""
    columns, offsets = columns_of(graph, edge_type), topology(graph, "offsets")
    return int(offsets[columns.start]), int(offsets[columns.stop])


def _is_one_edge_a_row(graph: DataSet, edge_type: EdgeType) -> bool:
    """Whether each imported row has one edge: no row was dropped or has two directions."""
    if "edges/edge/ids" not in graph.arrays:
        return True
    edges = graph.schema.edges[edge_type]
    may_differ = edges.undirected or edges.rows is None or graph.schema.is_live
    return not may_differ and edges.rows == count_links(graph, edge_type)


def _bounds(graph: DataSet, edge_type: EdgeType) -> NDArray[np.int64]:
    columns = columns_of(graph, edge_type)
    return topology(graph, "offsets")[columns.start : columns.stop + 1].astype(np.int64)


def _first_column(graph: DataSet, edge_type: EdgeType) -> int:
    """The CSC column of the first target of an edge type."""
    return sum(graph.node_types[target] for _, _, target in _types_before(graph, edge_type))


def _first_row(graph: DataSet, edge_type: EdgeType) -> int:
    """The row of the first edge of a type among the edges of all types."""
    return sum(num_rows(graph, other) for other in _types_before(graph, edge_type))


def _types_before(graph: DataSet, edge_type: EdgeType) -> Iterator[EdgeType]:
    """The edge types whose edges precede those of `edge_type` in the CSC."""
    return takewhile(lambda other: other != edge_type, graph.edge_types)
