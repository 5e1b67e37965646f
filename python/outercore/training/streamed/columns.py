"""Nodes whose new states are computed, the arcs into them, and their division into parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outercore.data.csc import columns_of, first_ids, topology
from outercore.data.many_graphs import spans
from outercore.errors import CorruptError
from outercore.files.large_arrays import forget
from outercore.training.streamed.files import Moved

if TYPE_CHECKING:
    from outercore.data.edge_types import EdgeType
    from outercore.data.graph import Graph

_NODES_AT_ONCE = 1 << 18
_ARCS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Incoming:
    """The arcs into some targets.

    Shapes: `sources` uint32 or uint64 [arcs], ascending for each target; `starts` and `ends`
    uint64 [targets], places in `sources`.
    """

    sources: NDArray[Any]
    starts: NDArray[np.uint64]
    ends: NDArray[np.uint64]

    @property
    def counts(self) -> NDArray[np.float32]:
        """The number of arcs into each target, float32 [targets]."""
        return (self.ends - self.starts).astype(np.float32)


class Targets:
    """Nodes of a type whose new states are computed: all, or `chosen`, which ascend.

    A place is a number of a target from 0.
    """

    def __init__(self, count: int, chosen: NDArray[np.int64] | None = None) -> None:
        """`count` nodes of the type."""
        self.chosen = None if chosen is None or len(chosen) == count else chosen
        self.count = count if self.chosen is None else len(self.chosen)

    def nodes(self, first: int, last: int) -> NDArray[np.int64]:
        """The targets at the places `first` to `last`, int64."""
        return np.arange(first, last) if self.chosen is None else self.chosen[first:last]

    def among(self, first: int, last: int) -> NDArray[np.int64] | None:
        """Which of the nodes `first` to `last` are targets, as numbers from 0; `None` for all."""
        if self.chosen is None:
            return None
        start, stop = np.searchsorted(self.chosen, (first, last))
        return self.chosen[start:stop] - first


class Columns:
    """The arcs of an edge type into the targets of a layer; ids are those within the types."""

    def __init__(self, graph: Graph, edge_type: EdgeType, targets: Targets, moved: Moved) -> None:
        self._edge_type = edge_type
        columns = columns_of(graph, edge_type)
        self._offsets = topology(graph, "offsets")[columns.start : columns.stop + 1]
        self._sources = topology(graph, "sources")
        self._first_source = first_ids(graph)[edge_type[0]]
        self._chosen = targets.chosen
        self._moved = moved
        self.id_bytes = self._sources.dtype.itemsize

    def beyond(self, count: int) -> CorruptError:
        """The error of a source with an id of `count` or more."""
        return CorruptError(
            f"edges `{','.join(self._edge_type)}`: a source is beyond the last of {count:,} nodes\n"
            "hint: run `outercore check` on the data set"
        )

    def counts(self, first: int, last: int) -> NDArray[np.int64]:
        """The number of arcs into each of the targets at the places `first` to `last`."""
        starts, ends = self._bounds(first, last)
        return ends - starts

    def incoming(self, first: int, last: int) -> Incoming:
        """The arcs into the targets at the places `first` to `last`."""
        starts, ends = self._bounds(first, last)
        if self._chosen is None:
            sources = np.array(self._sources[starts[0] : ends[-1]] if last > first else [])
            start = starts[0] if last > first else 0
        else:
            sources, start = self._of_spans(starts, ends), 0
            ends = np.cumsum(ends - starts)
            starts = np.append(0, ends[:-1])
        forget(self._sources)
        sources = sources.astype(self._sources.dtype, copy=False)
        if self._first_source:
            sources -= sources.dtype.type(self._first_source)
        self._moved.topology_read += sources.nbytes
        return Incoming(
            sources, (starts - start).astype(np.uint64), (ends - start).astype(np.uint64)
        )

    def _of_spans(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[Any]:
        """The sources of targets that do not follow each other."""
        until = np.cumsum(ends - starts)
        sources = np.empty(int(until[-1]) if len(until) else 0, self._sources.dtype)
        first = at = 0
        while first < len(starts):
            # The places of arcs take more memory than their sources: a part of them at a time.
            stop = max(int(np.searchsorted(until, at + _ARCS_AT_ONCE, side="right")), first + 1)
            places = (
                slice(int(starts[first]), int(ends[first]))
                if stop == first + 1
                else spans(starts[first:stop], ends[first:stop])
            )
            sources[at : int(until[stop - 1])] = self._sources[places]
            first, at = stop, int(until[stop - 1])
        return sources

    def _bounds(self, first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self._chosen is None:
            bounds = np.asarray(self._offsets[first : last + 1]).astype(np.int64)
            starts, ends = bounds[:-1], bounds[1:]
        else:
            nodes = self._chosen[first:last]
            starts, ends = (np.asarray(self._offsets[nodes + by]).astype(np.int64) for by in (0, 1))
        forget(self._offsets)
        self._moved.topology_read += 8 * (last - first)
        arcs = len(self._sources)
        # Nothing may be allocated or read by damaged bounds.
        if ((starts < 0) | (starts > ends) | (ends > arcs)).any():
            raise CorruptError(
                f"array `edges/edge/offsets`: bounds that fall, or are beyond the {arcs:,} arcs\n"
                "hint: run `outercore check` on the data set"
            )
        return starts, ends


@dataclass(frozen=True)
class Weight:
    """The bytes that targets take while their states are computed."""

    columns: Sequence[Columns]
    """Of all edge types into them."""
    target_bytes: int
    """For a target; each arc takes an id more."""

    def of(self, first: int, last: int, step: int) -> NDArray[np.int64]:
        """The bytes of the targets at the places `first` to `last`, `step` at a time."""
        places = np.append(np.arange(first, last, step), last)
        found = np.diff(places) * self.target_bytes
        for columns in self.columns:
            counts = columns.counts(first, last)
            found += np.add.reduceat(counts, places[:-1] - first) * columns.id_bytes
        return found


def parts_of(count: int, step: int, most: int, weight: Weight) -> tuple[list[tuple[int, int]], int]:
    """Consecutive places of `count` targets, cut at multiples of `step`, and the largest part.

    A part takes at most `most` bytes, or has one step.
    """
    found, first, size, largest = [], 0, 0, 0
    at_once = max(_NODES_AT_ONCE // step, 1) * step
    for start in range(0, count, at_once):
        for place, own in enumerate(weight.of(start, min(start + at_once, count), step).tolist()):
            at = start + place * step
            if at > first and size + own > most:
                found.append((first, at))
                first, size = at, 0
            size += own
            largest = max(largest, size)
    return ([*found, (first, count)] if count else []), largest


def needed_sources(
    columns: Columns, targets: Targets, parts: list[tuple[int, int]], nodes: int, *, loops: bool
) -> Any:
    """Which of `nodes` sources the arcs of each part come from.

    Shapes: uint8 [parts, nodes / 8], a bit for each node, the first one highest.
    Cost: reads the arcs once; also a byte of memory for each node.
    """
    found = np.empty((len(parts), -(-nodes // 8)), np.uint8)
    for place, (first, last) in enumerate(parts):
        used = np.zeros(nodes, np.bool_)
        sources = columns.incoming(first, last).sources
        if len(sources) and int(sources.max()) >= nodes:
            raise columns.beyond(nodes)
        for start in range(0, len(sources), _ARCS_AT_ONCE):
            used[sources[start : start + _ARCS_AT_ONCE]] = True
        if loops:
            used[targets.nodes(first, last)] = True
        found[place] = np.packbits(used)
    return found
