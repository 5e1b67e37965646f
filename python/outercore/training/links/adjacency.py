"""Whether two nodes are joined, looked up in the topology of a data set on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outercore.files.large_arrays import forget, mapped

if TYPE_CHECKING:
    from outercore.data.graph import Graph


class Adjacency:
    """The arcs of a graph by target, mapped from their files.

    Cost: a lookup reads as many pages as a binary search among the in-neighbours of a node.
    """

    def __init__(self, graph: Graph) -> None:
        arrays = graph.manifest["arrays"]
        root = Path(graph.root)
        self._offsets = mapped(root, arrays["edges/edge/offsets"])
        self._sources = mapped(root, arrays["edges/edge/sources"])
        self._both_ways = bool(graph.manifest["edge_types"]["edge"].get("undirected"))

    def joined(self, pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether there is an arc between the nodes of each pair [n, 2], in either direction."""
        found = self._has(pairs[:, 0], pairs[:, 1])
        if not self._both_ways:
            found |= self._has(pairs[:, 1], pairs[:, 0])
        self._forget()
        return found

    def ends_by_degree(self, draws: NDArray[np.float64]) -> NDArray[np.int64]:
        """The source of an arc for each number of [0, 1): as likely as arcs leave the node."""
        arcs = (draws * len(self._sources)).astype(np.int64)
        ends = self._sources[arcs].astype(np.int64)
        self._forget()
        return ends

    def _has(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether `sources` are in-neighbours of `targets`, all [n]: these lie in order."""
        low = self._offsets[targets].astype(np.int64)
        end = self._offsets[targets + 1].astype(np.int64)
        high = end.copy()
        while len(open_ := np.flatnonzero(low < high)):
            middle = (low[open_] + high[open_]) // 2
            below = self._sources[middle] < sources[open_]
            low[open_[below]] = middle[below] + 1
            high[open_[~below]] = middle[~below]
        found = low < end
        found[found] = self._sources[low[found]] == sources[found]
        return found

    def _forget(self) -> None:
        forget(self._offsets)
        forget(self._sources)


def pair_keys(pairs: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
    """One number for each pair [n, 2] of nodes, the same in either order."""
    low, high = np.minimum(pairs[:, 0], pairs[:, 1]), np.maximum(pairs[:, 0], pairs[:, 1])
    return low * nodes + high


def among(keys: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of `keys` are in `known`, which ascends."""
    if not len(known):
        return np.zeros(len(keys), np.bool_)
    places = np.searchsorted(known, keys)
    places[places == len(known)] = 0
    found: NDArray[np.bool_] = known[places] == keys
    return found
