"""Nodes whose new states are computed, the arcs into them, and the parts that they are taken in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outercore.csc import topology
from outercore.many_graphs import spans
from outercore.mapped import forget
from outercore.training.streamed.files import Moved

if TYPE_CHECKING:
    from outercore.graph import Graph

_NODES_AT_ONCE = 1 << 18
_ARCS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Incoming:
    """The arcs into some targets.

    Shapes: `sources` uint32 or uint64 [arcs], ascending for each target; `starts` and `ends`
    uint64 [targets], places in `sources`; `nodes` int64 [targets].
    """

    sources: NDArray[Any]
    starts: NDArray[np.uint64]
    ends: NDArray[np.uint64]
    nodes: NDArray[np.int64]


class Columns:
    """The targets of a layer: all nodes, or `nodes`, which ascend, in this order.

    A place is a number of a target from 0.
    """

    def __init__(self, graph: Graph, nodes: NDArray[np.int64] | None, moved: Moved) -> None:
        self._offsets = topology(graph, "offsets")
        self._sources = topology(graph, "sources")
        self._nodes = nodes
        self._moved = moved
        self.count = graph.num_nodes if nodes is None else len(nodes)
        self.id_bytes = self._sources.dtype.itemsize

    def nodes(self, first: int, last: int) -> NDArray[np.int64]:
        """The targets at the places `first` to `last`, int64."""
        return np.arange(first, last) if self._nodes is None else self._nodes[first:last]

    def among(self, first: int, last: int) -> NDArray[np.int64] | None:
        """Which of the nodes `first` to `last` are targets, as numbers from 0; `None` for all."""
        if self._nodes is None:
            return None
        start, stop = np.searchsorted(self._nodes, (first, last))
        return self._nodes[start:stop] - first

    def counts(self, first: int, last: int) -> NDArray[np.int64]:
        """The number of arcs into each of some targets."""
        starts, ends = self._bounds(first, last)
        return ends - starts

    def incoming(self, first: int, last: int) -> Incoming:
        """The arcs into the targets at the places `first` to `last`."""
        starts, ends = self._bounds(first, last)
        if self._nodes is None:
            sources = np.array(self._sources[starts[0] : ends[-1]] if last > first else [])
            start = starts[0] if last > first else 0
        else:
            sources, start = self._of_spans(starts, ends), 0
            ends = np.cumsum(ends - starts)
            starts = np.append(0, ends[:-1])
        forget(self._sources)
        self._moved.topology_read += sources.nbytes
        return Incoming(
            sources.astype(self._sources.dtype, copy=False),
            (starts - start).astype(np.uint64),
            (ends - start).astype(np.uint64),
            self.nodes(first, last),
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

    def parts(self, step: int, most: int, node_bytes: int) -> list[tuple[int, int]]:
        """Consecutive places, cut at multiples of `step`, of at most so many bytes.

        A target takes `node_bytes`, an arc an id; one step may take more.
        """
        found, first, size = [], 0, 0
        for start in range(0, self.count, _at_once(step)):
            stop = min(start + _at_once(step), self.count)
            counts = self.counts(start, stop)
            for at in range(start, stop, step):
                end = min(at + step, stop)
                arcs = int(counts[at - start : end - start].sum())
                own = arcs * self.id_bytes + (end - at) * node_bytes
                if at > first and size + own > most:
                    found.append((first, at))
                    first, size = at, 0
                size += own
        return [*found, (first, self.count)] if self.count else []

    def _bounds(self, first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self._nodes is None:
            bounds = np.asarray(self._offsets[first : last + 1]).astype(np.int64)
            starts, ends = bounds[:-1], bounds[1:]
        else:
            nodes = self._nodes[first:last]
            starts, ends = (np.asarray(self._offsets[nodes + by]).astype(np.int64) for by in (0, 1))
        forget(self._offsets)
        self._moved.topology_read += 8 * (last - first)
        return starts, ends


def needed(columns: Columns, parts: list[tuple[int, int]], nodes: int, *, loops: bool) -> Any:
    """Which sources the arcs of each part come from.

    Shapes: uint8 [parts, nodes / 8], a bit for each node, the first one highest.
    Cost: reads the arcs once; a byte a node of memory besides.
    """
    found = np.empty((len(parts), -(-nodes // 8)), np.uint8)
    for place, (first, last) in enumerate(parts):
        used = np.zeros(nodes, np.bool_)
        sources = columns.incoming(first, last).sources
        for start in range(0, len(sources), _ARCS_AT_ONCE):
            used[sources[start : start + _ARCS_AT_ONCE]] = True
        if loops:
            used[columns.nodes(first, last)] = True
        found[place] = np.packbits(used)
    return found


def _at_once(step: int) -> int:
    return max(_NODES_AT_ONCE // step, 1) * step
