"""Sources of data sets: edges and arrays from anywhere, of one type or several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from outercore.importing.edges import EdgeSource
from outercore.importing.graph_tables import NodeTable
from outercore.importing.keyed_edges import KeyedEdges
from outercore.importing.keys import Column, Keys
from outercore.importing.many_graphs import GraphLevel
from outercore.importing.splits import Splits
from outercore.importing.table.file_state import FileState
from outercore.importing.table.rows import NodeArray, count_rows

_Opener = TypeVar("_Opener", bound=Callable[..., Any], covariant=True)


@dataclass(frozen=True)
class Format(Generic[_Opener]):
    """Data sets of another tool, each named by one path."""

    what: str
    """The name of such a data set in messages."""
    matches: Callable[[Path], bool]
    """Whether a path names a data set in this format."""
    open: _Opener
    """Opens the data set at a path as a source."""
    options: tuple[str, ...] = ()
    """Options of an import that only this format and few others take, such as `relation`."""


@dataclass(frozen=True)
class GraphSource:
    """Everything that one data set is made from."""

    edges: list[EdgeSource]
    arrays: list[NodeArray] = field(default_factory=list)
    nodes: int | None = None
    undirected: bool | None = None
    """What the origin says about its edges; `ImportOptions.undirected` wins."""
    identity: str = ""
    """Options and further files that make another import of the same edges."""
    notes: list[str] = field(default_factory=list)
    """How the inputs were understood, to be shown once."""
    graphs: GraphLevel | None = None
    """Which nodes belong to which graph, in a data set of many."""
    also_read: tuple[FileState, ...] = ()
    """Files that were read and hold neither edges nor arrays."""

    @property
    def first_id(self) -> int:
        """The id of node 0 in the inputs; 0 if they disagree."""
        found = {edge.first_id for edge in self.edges}
        return found.pop() if len(found) == 1 else 0

    @property
    def of_nodes(self) -> list[NodeArray]:
        """The arrays of nodes."""
        return [array for array in self.arrays if array.role != "edge"]

    @property
    def of_edges(self) -> list[NodeArray]:
        """The arrays of edges."""
        return [array for array in self.arrays if array.role == "edge"]

    def inputs(self) -> list[str]:
        """The names of all inputs, for the provenance."""
        return [
            *(edge.name for edge in self.edges),
            *(array.rows.name for array in self.of_nodes),
            *(array.rows.name for array in self.of_edges if array.rows.files),
        ]

    def files(self) -> list[FileState]:
        """What everything is read from, as it was when it was opened."""
        sources = [
            *(edge.files for edge in self.edges),
            *(array.rows.files for array in self.arrays),
            self.also_read,
        ]
        return [state for files in sources for state in files]

    def stated_nodes(self, said: int | None = None) -> int | None:
        """The number of nodes that the user has `said`, or that the inputs state."""
        if said is not None or self.nodes is not None:
            return said if said is not None else self.nodes
        # Another edge list may have nodes that the matrix does not know.
        stated = [edge.nodes or 0 for edge in self.edges]
        return max(stated) if stated and all(stated) else None

    def node_count(self) -> int | None:
        """The number of nodes that the arrays imply; nodes without an edge count too.

        Cost: reads features or labels once where only reading tells.
        """
        if (stated := self.stated_nodes()) is not None:
            return stated
        for array in self.arrays:
            if array.role in ("features", "labels", "array"):
                return count_rows(array.rows)
        return None


@dataclass(frozen=True)
class TypedSource:
    """Everything that one data set of several types is made from."""

    nodes: dict[str, NodeTable]
    edges: list[KeyedEdges]
    node_keys: list[Column]
    edge_keys: list[Column]
    splits: Splits | None
    """Those by keys."""
    arrays: list[NodeArray]
    identities: list[str]
    """Files and options that make another import."""
    notes: list[str]
    inputs: list[str]
    """What the user named, for the provenance."""
    fill: float | None = None
    """What stands for missing values of edges; those of nodes are filled when they are read."""
    find_edges: Callable[[Keys], list[KeyedEdges]] | None = None
    """Finds the edge types where only the keys tell them."""

    @property
    def counts(self) -> dict[str, int]:
        """Nodes of each type."""
        of_arrays = {array.of_type: array for array in self.arrays if array.role == "features"}
        counts = {}
        for node_type, one in self.nodes.items():
            count = one.count
            if count is None:
                count = count_rows(of_arrays[node_type].rows)
            counts[node_type] = count
        return counts

    def files(self) -> list[FileState]:
        """What everything is read from, as it was when it was opened."""
        sources = [
            *(one.files for one in self.nodes.values()),
            *(ends.table.files for edges in self.edges for ends in edges.ends),
            *(array.rows.files for array in self.arrays),
        ]
        return [state for files in sources for state in files]
