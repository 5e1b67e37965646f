"""The graphs of a data set of many: what nodes are to other tasks, whole graphs are here.

Sections 11 and 12 of `docs/format.md` say how such a data set is stored.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from outercore.errors import CorruptError, NotFoundError

if TYPE_CHECKING:
    from outercore.data.data_set import DataSet

PREFIX = "graphs/"
FIRST = "graphs/first"
SPLITS = "graphs/splits/"
ADDED = "live/graphs"
"""The graph of each node that updates have added."""
REMOVED = "live/removed"

_WORKING_BYTES = 40
"""For each node of a data set that updates have changed: what sorts the nodes by graph."""


class Labelled(Protocol):
    """What a task needs of a data set: a `Graph` offers its nodes, `ManyGraphs` its graphs."""

    @property
    def root(self) -> Path:
        """Where the data set is."""

    @property
    def manifest(self) -> dict[str, Any]:
        """Its node types, arrays and roles."""

    @property
    def num_nodes(self) -> int:
        """How many rows a label array has."""

    @property
    def num_edges(self) -> int:
        """Arcs between them."""

    @property
    def num_classes(self) -> int:
        """Classes or columns of the labels, 0 where the manifest does not say."""

    @property
    def splits(self) -> list[str]:
        """Names of the splits."""

    def array(self, name: str) -> NDArray[Any]:
        """A whole array by its key."""

    def split(self, name: str) -> NDArray[np.int64]:
        """The ids of a split."""


def has_graphs(graph: DataSet) -> bool:
    """Whether a data set is one of many graphs."""
    return FIRST in graph.arrays


class ManyGraphs:
    """The graphs of a data set, with their labels and splits, as `Labelled` describes them.

    Training sees each graph as a node: its manifest has the arrays of graphs under
    `nodes/node/`, and no edges.

    The nodes of a graph are those with the places `starts[g]` to `starts[g + 1] - 1` in `order`.
    Without `order`, a place is a node: updates have changed no graph. A graph that was unregistered
    has no nodes.

    Shapes: `starts` int64 [graphs + 1]; `order` int64 [nodes that are there] or `None`.
    Cost: reads `first`; 8 bytes of memory a graph. Where updates have added or removed nodes, 8
    bytes a node more, and 40 for a moment.
    Errors: `NotFoundError` for a data set of one graph, `CorruptError` where `first` does not
    ascend from 0 to the last node, or an added node is in no graph.
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
    """Bytes that it takes at most."""

    def _sort(self, added: NDArray[np.int64]) -> None:
        """Sorts the nodes that are there by graph; within a graph they ascend."""
        count = len(self.starts) - 1
        # A graph gets its id with its first node.
        most = np.maximum.accumulate(np.append(count - 1, added))
        if len(wrong := np.flatnonzero((added < 0) | (added > most[:-1] + 1))):
            raise CorruptError(
                f"data set `{self.root}`: array `{ADDED}`: row {wrong[0]}: graph "
                f"{added[wrong[0]]}, expected 0 to {most[wrong[0]] + 1}\n"
                "hint: run `outercore check` on it"
            )
        of = np.append(np.repeat(np.arange(count), np.diff(self.starts)), added)
        there = np.ones(len(of), bool)
        if REMOVED in self.graph.arrays:
            there[self.graph.array(REMOVED)] = False
        nodes = np.flatnonzero(there)
        self.order = nodes[np.argsort(of[nodes], kind="stable")]
        sizes = np.bincount(of[nodes], minlength=int(most[-1]) + 1)
        self.starts = np.append(0, np.cumsum(sizes))

    def nodes(self, graphs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The nodes of graphs, those of one after those of another, and how many each has.

        Shapes: `graphs` int64 [n]; result int64 [nodes] and int64 [n].
        """
        first, last = self.starts[graphs], self.starts[graphs + 1]
        places = spans(first, last)
        return (places if self.order is None else self.order[places]), last - first

    @property
    def num_unregistered(self) -> int:
        """Graphs that were unregistered: they have no nodes."""
        return int((np.diff(self.starts) == 0).sum())

    @property
    def root(self) -> Path:
        """Where the data set is."""
        return Path(self.graph.root)

    @property
    def num_nodes(self) -> int:
        """Number of graphs, unregistered ones included."""
        return len(self.starts) - 1

    @property
    def num_edges(self) -> int:
        """No edge connects two graphs."""
        return 0

    @property
    def num_classes(self) -> int:
        """Columns of labels [graphs, columns], else 0: classes are counted where they are used."""
        entry = self.graph.arrays.get(PREFIX + "y")
        if entry is None or len(entry["shape"]) == 1 or entry["dtype"] == "float64":
            return 0
        return int(entry["shape"][1])

    @property
    def splits(self) -> list[str]:
        """Names of the splits of graphs, sorted."""
        return sorted(key.removeprefix(SPLITS) for key in self.graph.arrays if _is_split(key))

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The data set's manifest as it would be if its graphs were nodes."""
        arrays = {
            f"nodes/node/{key.removeprefix(PREFIX)}": entry
            for key, entry in self.graph.arrays.items()
            if key.startswith(PREFIX) and key != FIRST and not _is_split(key)
        }
        labels = {"labels": "nodes/node/y"} if "nodes/node/y" in arrays else {}
        return {
            "node_types": {"node": {"count": self.num_nodes}},
            "edge_types": {},
            "arrays": arrays,
            "roles": labels,
        }

    def array(self, name: str) -> NDArray[Any]:
        """A whole array with a row a graph."""
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
    """The numbers `first[0] .. last[0] - 1`, then those of the next span, and so on.

    Example:
        >>> import numpy as np
        >>> spans(np.array([3, 7]), np.array([5, 8])).tolist()
        [3, 4, 7]
    """
    lengths = last - first
    shift = first - np.append(0, np.cumsum(lengths)[:-1])
    return np.arange(int(lengths.sum())) + np.repeat(shift, lengths)
