"""The graphs of a data set of many: what nodes are to other tasks, whole graphs are here.

Section 12 of `docs/format.md` says how such a data set is stored.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from outercore.errors import CorruptError, NotFoundError

if TYPE_CHECKING:
    from outercore.graph import Graph

PREFIX = "graphs/"
FIRST = "graphs/first"
SPLITS = "graphs/splits/"


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


def has_graphs(graph: Graph) -> bool:
    """Whether a data set is one of many graphs."""
    return FIRST in graph.arrays


class ManyGraphs:
    """The graphs of a data set, with their labels and splits, as `Labelled` describes them.

    Training sees each graph as a node: its manifest has the arrays of graphs under
    `nodes/node/`, and no edges.

    Shapes: `first` int64 [graphs + 1]: the first node of each graph, then the number of nodes.
    Cost: reads `first`; 8 bytes of memory a graph.
    Errors: `NotFoundError` for a data set of one graph, `CorruptError` where `first` does not
    ascend from 0 to the last node.
    """

    def __init__(self, graph: Graph) -> None:
        if not has_graphs(graph):
            raise NotFoundError(
                f"data set `{graph.root}`: expected many graphs, found one\n"
                "hint: import it with `--graph-ids FILE`, which says the graph of each node"
            )
        self.graph = graph
        first = graph.array(FIRST).astype(np.int64)
        self.first = np.append(first, graph.num_nodes)
        if not len(first) or first[0] != 0 or (np.diff(self.first) < 1).any():
            raise CorruptError(
                f"data set `{graph.root}`: array `{FIRST}`: expected nodes that ascend from 0 to "
                f"below {graph.num_nodes}\nhint: import the data set again"
            )

    @property
    def root(self) -> Path:
        """Where the data set is."""
        return Path(self.graph.root)

    @property
    def num_nodes(self) -> int:
        """Number of graphs."""
        return len(self.first) - 1

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
