"""Sources of data sets: opened edges and arrays, of one type or several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from outercore.base.listing import listed
from outercore.importing.edges import EdgeSource
from outercore.importing.graph_tables import NodeTable
from outercore.importing.keyed_edges import Dangling, KeyedEdges
from outercore.importing.keys import Column, Keys
from outercore.importing.many_graphs import GraphLevel
from outercore.importing.splits import KeyedSplit
from outercore.importing.table.file_state import FileState
from outercore.importing.table.rows import NodeArray, count_rows

_Opener = TypeVar("_Opener", bound=Callable[..., Any], covariant=True)


@dataclass(frozen=True)
class Format(Generic[_Opener]):
    """A format of whole data sets. One path names a data set."""

    what: str
    """The name of such a data set in messages."""
    matches: Callable[[Path], bool]
    """Whether a path names a data set in this format."""
    open: _Opener
    """Opens the data set at a path as a source."""
    options: tuple[str, ...] = ()
    """Options of an import that only this and a few other formats support, such as `relation`."""


@dataclass(frozen=True)
class GraphTypes:
    """Node types and edge types of a graph with several types."""

    nodes: dict[str, NodeTable]
    edges: list[KeyedEdges]
    splits: list[KeyedSplit]
    """Splits whose nodes are named by keys. Their columns are the last ones in `uses`."""
    fill: float | None = None
    """Replaces missing values of edges. Those of nodes are replaced when they are read."""
    dangling: Dangling = "refuse"

    def counts(self, arrays: list[NodeArray]) -> dict[str, int]:
        """Number of nodes of each type, from its table or else from its features."""
        features = {array.of_type: array for array in arrays if array.role == "features"}
        return {
            node_type: count_rows(features[node_type].rows) if one.count is None else one.count
            for node_type, one in self.nodes.items()
        }

    def arrays(self, keys: Keys, uses: int) -> tuple[list[NodeArray], list[str]]:
        """The arrays that need keys (splits, node keys, edge arrays), and notes on ignored columns.

        `uses`: number of columns that refer to nodes by key.
        """
        first = uses - len(self.splits)
        arrays = [one.looked_up(keys.rows(first + at)) for at, one in enumerate(self.splits)]
        arrays += keys.arrays()
        notes = []
        for edges in self.edges:
            of_edges, left_out = edges.arrays(keys, self.fill)
            arrays += of_edges
            if left_out and not edges.reverse:
                notes.append(
                    f"columns of {','.join(edges.edge_type)} are left out: {listed(left_out)}"
                )
        return arrays, notes


@dataclass(frozen=True)
class GraphSource:
    """All opened inputs of one data set."""

    edges: list[EdgeSource]
    """Edges of a graph with one type."""
    arrays: list[NodeArray] = field(default_factory=list)
    nodes: int | None = None
    undirected: bool | None = None
    """Whether the input stores undirected edges once; `ImportOptions.undirected` overrides it."""
    identity: str = ""
    """Options and further files that change the import of the same edges, as text."""
    notes: list[str] = field(default_factory=list)
    """How the inputs were understood, to be shown once."""
    graphs: GraphLevel | None = None
    """The graphs, in a data set of many graphs."""
    also_read: tuple[FileState, ...] = ()
    """Files that were read and hold neither edges nor arrays."""
    types: GraphTypes | None = None
    """Types of nodes and edges, if there are several."""
    identities: list[str] = field(default_factory=list)
    """Files and options that determine the edges, if `edges` is empty."""
    named: list[str] = field(default_factory=list)
    """The names of the inputs for the provenance, if `edges` is empty."""
    node_keys: list[Column] = field(default_factory=list)
    """Columns that define the keys of nodes."""
    uses: list[Column] = field(default_factory=list)
    """Columns that refer to nodes by key."""
    with_keys: Callable[[Keys], GraphSource] | None = None
    """Completes the source once all keys have numbers."""

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
        return self.named or [
            *(edge.name for edge in self.edges),
            *(array.rows.name for array in self.of_nodes),
            *(array.rows.name for array in self.of_edges if array.rows.files),
        ]

    def files(self) -> list[FileState]:
        """All files, in the state in which they were opened."""
        types = self.types
        sources = [
            *(() if types is None else (one.files for one in types.nodes.values())),
            *(edge.files for edge in self.edges),
            *(() if types is None else (edges.files for edges in types.edges)),
            *(array.rows.files for array in self.arrays),
            self.also_read,
        ]
        return [state for files in sources for state in files]

    def stated_nodes(self, said: int | None = None) -> int | None:
        """The number of nodes from the option (`said`), or from the headers of the inputs."""
        if said is not None or self.nodes is not None:
            return said if said is not None else self.nodes
        # If only some files have the number, other edge lists may have more nodes.
        stated = [edge.nodes or 0 for edge in self.edges]
        return max(stated) if stated and all(stated) else None

    def node_count(self) -> int | None:
        """The number of nodes, from the inputs or else from the rows of a node array.

        Cost: reads features or labels once if their number of rows is unknown.
        """
        if (stated := self.stated_nodes()) is not None:
            return stated
        for array in self.arrays:
            if array.role in ("features", "labels", "array"):
                return count_rows(array.rows)
        return None
