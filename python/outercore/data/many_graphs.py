"""Data sets of many graphs: each graph has labels and splits, as nodes have in other data sets.

Sections 11 and 12 of `docs/format.md` describe the format.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from outercore.data.schema import Schema
from outercore.errors import CorruptError, NotFoundError

if TYPE_CHECKING:
    from outercore.data.data_set import DataSet

PREFIX = "graphs/"
FIRST = "graphs/first"
SPLITS = "graphs/splits/"
ADDED = "live/graphs"
"""Key of the array with the graph of each node that updates have added."""
REMOVED = "live/removed"

_WORKING_BYTES = 40
"""Bytes of memory per node while nodes are sorted by graph, in a data set with updates."""


class Labelled(Protocol):
    """The labelled items of a task: nodes of a type of a `Graph`, or the graphs of `ManyGraphs`."""

    @property
    def root(self) -> Path:
        """Directory of the data set."""

    @property
    def schema(self) -> Schema:
        """The schema: types, arrays and roles. The items are the nodes of its labelled type."""

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all types, or of graphs."""

    @property
    def num_edges(self) -> int:
        """Number of arcs between the items."""

    @property
    def num_classes(self) -> int:
        """Number of classes or label columns; 0 if the manifest does not have the number."""

    @property
    def splits(self) -> list[str]:
        """Names of the splits."""

    def array(self, name: str) -> NDArray[Any]:
        """A whole array by its key."""

    def split(self, name: str) -> NDArray[np.int64]:
        """The ids of a split."""


def has_graphs(graph: DataSet) -> bool:
    """Whether a data set holds many graphs."""
    return FIRST in graph.arrays


class ManyGraphs:
    """The graphs of a data set, with their labels and splits; implements `Labelled`.

    For training, each graph is a node: `manifest` has the arrays of graphs under `nodes/node/`, and
    no edges.

    Graph `g` has the nodes `order[starts[g]]` to `order[starts[g + 1] - 1]`. Without updates,
    `order` is `None`, and the nodes are `starts[g]` to `starts[g + 1] - 1`. An unregistered graph
    has 0 nodes.

    Shapes: `starts` int64 [graphs + 1]; `order` int64 [nodes without removed nodes] or `None`.
    Cost: reads the array `first`; 8 bytes of memory per graph. If updates have added or removed
    nodes, 8 more bytes per node, and 40 during the sort.
    Errors: `NotFoundError` for a data set of one graph; `CorruptError` if `first` does not ascend
    from 0 to the last node, or if an added node has an invalid graph.
    """

    def __init__(self, graph: DataSet) -> None:
        if not has_graphs(graph):
            raise NotFoundError(
                f"data set `{graph.root}`: expected many graphs, found one\n"
                "hint: import it with `--graph-ids FILE`, which says the graph of each node"
            )
        self.graph = graph
        added = graph.array(ADDED) if ADDED in graph.arrays else np.empty(0, np.int64)
        first = graph.array(FIRST).astype(np.int64)
        starts = np.append(first, graph.num_nodes - len(added))
        if not len(first) or first[0] != 0 or (np.diff(starts) < 1).any():
            raise CorruptError(
                f"data set `{graph.root}`: array `{FIRST}`: expected nodes that ascend from 0 to "
                f"below {starts[-1]}\nhint: import the data set again"
            )
        self.starts, self.order = starts, None
        self.memory = starts.nbytes
        if len(added) or REMOVED in graph.arrays:
            self._sort(added)
            self.memory = self.starts.nbytes + _WORKING_BYTES * graph.num_nodes

    starts: NDArray[np.int64]
    order: NDArray[np.int64] | None
    memory: int
    """Peak of its memory in bytes."""

    def _sort(self, added: NDArray[np.int64]) -> None:
        """Sorts the nodes by graph, without removed nodes. Within a graph, ids ascend."""
        count = len(self.starts) - 1
        # A node with the next graph id starts a new graph.
        most = np.maximum.accumulate(np.append(count - 1, added))
        if len(wrong := np.flatnonzero((added < 0) | (added > most[:-1] + 1))):
            raise CorruptError(
                f"data set `{self.root}`: array `{ADDED}`: row {wrong[0]}: graph "
                f"{added[wrong[0]]}, expected 0 to {most[wrong[0]] + 1}\n"
                "hint: run `outercore check` on it"
            )
        of = np.append(np.repeat(np.arange(count), np.diff(self.starts)), added)
        present = np.ones(len(of), bool)
        if REMOVED in self.graph.arrays:
            present[self.graph.array(REMOVED)] = False
        nodes = np.flatnonzero(present)
        self.order = nodes[np.argsort(of[nodes], kind="stable")]
        sizes = np.bincount(of[nodes], minlength=int(most[-1]) + 1)
        self.starts = np.append(0, np.cumsum(sizes))

    def nodes(self, graphs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The nodes of graphs, graph after graph, and the number of nodes of each.

        Shapes: `graphs` int64 [n]; result int64 [nodes] and int64 [n].
        """
        first, last = self.starts[graphs], self.starts[graphs + 1]
        places = spans(first, last)
        return (places if self.order is None else self.order[places]), last - first

    @property
    def num_unregistered(self) -> int:
        """Number of unregistered graphs: graphs without nodes."""
        return int((np.diff(self.starts) == 0).sum())

    @property
    def root(self) -> Path:
        """Directory of the data set."""
        return Path(self.graph.root)

    @property
    def num_nodes(self) -> int:
        """Number of graphs, including unregistered graphs."""
        return len(self.starts) - 1

    @property
    def num_edges(self) -> int:
        """Number of edges between graphs: 0."""
        return 0

    @property
    def num_classes(self) -> int:
        """Number of label columns; 0 for labels [graphs], whose classes are counted by training."""
        entry = self.graph.arrays.get(PREFIX + "y")
        if entry is None or len(entry["shape"]) == 1 or entry["dtype"] == "float64":
            return 0
        return int(entry["shape"][1])

    @property
    def splits(self) -> list[str]:
        """Names of the splits of graphs, sorted."""
        return sorted(key.removeprefix(SPLITS) for key in self.graph.arrays if _is_split(key))

    @cached_property
    def schema(self) -> Schema:
        """The schema with the graphs of the data set as nodes."""
        arrays = {
            f"nodes/node/{key.removeprefix(PREFIX)}": entry
            for key, entry in self.graph.arrays.items()
            if key.startswith(PREFIX) and key != FIRST and not _is_split(key)
        }
        labels = "nodes/node/y" if "nodes/node/y" in arrays else None
        return Schema.of_nodes(self.num_nodes, arrays, labels)

    def array(self, name: str) -> NDArray[Any]:
        """A whole array with a row per graph."""
        return self.graph.array(PREFIX + name.removeprefix("nodes/node/"))

    def split(self, name: str) -> NDArray[np.int64]:
        """The ids of the graphs of a split."""
        ids = self.graph.array(SPLITS + name).astype(np.int64)
        if len(ids) and not (ids.min() >= 0 and ids.max() < self.num_nodes):
            raise CorruptError(
                f"data set `{self.root}`: split `{name}`: expected graphs 0 to "
                f"{self.num_nodes - 1}\nhint: import the data set again"
            )
        return ids


def _is_split(key: str) -> bool:
    return key.startswith(SPLITS)


def spans(first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers `first[i]` to `last[i] - 1` of each span i, one span after the other.

    Example:
        >>> import numpy as np
        >>> spans(np.array([3, 7]), np.array([5, 8])).tolist()
        [3, 4, 7]
    """
    lengths = last - first
    shift = first - np.append(0, np.cumsum(lengths)[:-1])
    return np.arange(int(lengths.sum())) + np.repeat(shift, lengths)
