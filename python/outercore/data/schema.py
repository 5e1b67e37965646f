"""The manifest of a data set: its arrays, node types, edge types and roles.

Only this module knows the field names of ``graph.json``. A graph of one type is a schema with the
node type ``node`` and the edge type ``edge``. `docs/format.md` describes the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from outercore.data.edge_types import EdgeType, edge_type_described

NODE, EDGE = "node", "edge"
"""The node type and the edge type of a graph of one type."""
TOPOLOGY = ("offsets", "sources", "ids")
"""Names of the arrays of the CSC. Their keys begin with `edges/edge/`."""
TRIPLES = "triples/train"
"""Key of the triples for training and for graph algorithms, in a knowledge graph."""


class NodeTypes(dict[str, int]):
    """Number of nodes by type. As in PyG's list of types, an index gives the name of a type."""

    def __getitem__(self, key: Any) -> Any:
        return list(self)[key] if isinstance(key, int | slice) else super().__getitem__(key)


@dataclass(frozen=True)
class EdgesOfType:
    """The edges of one type."""

    key: str
    """Name of the edge type in the keys of arrays."""
    count: int
    """Number of arcs in the CSC; an undirected edge counts twice."""
    rows: int | None
    """Number of rows of the imported edge list; `None` if it is not in the manifest."""
    undirected: bool


class Schema:
    """The content of a manifest."""

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        self.arrays: dict[str, dict[str, Any]] = manifest["arrays"]
        """Type, shape and checksum of every array, by key."""
        self._manifest = manifest
        self._roles: Mapping[str, Any] = manifest.get("roles", {})

    @classmethod
    def of_nodes(
        cls,
        count: int,
        arrays: Mapping[str, Any],
        labels: str | None,
    ) -> Schema:
        """The schema of `count` nodes of one type without edges; `labels` is the key of labels."""
        return cls(
            {
                "node_types": {NODE: {"count": count}},
                "edge_types": {},
                "arrays": dict(arrays),
                "roles": {"labels": labels},
            }
        )

    @cached_property
    def node_types(self) -> NodeTypes:
        """Number of nodes of each type, in the order of their names."""
        types = self._manifest["node_types"]
        return NodeTypes({name: int(types[name]["count"]) for name in sorted(types)})

    @cached_property
    def edges(self) -> dict[EdgeType, EdgesOfType]:
        """The edges of each type, in the order of their keys."""
        types = self._manifest["edge_types"]
        return {
            edge_type_described(key, entry): EdgesOfType(
                key, int(entry["count"]), entry.get("rows"), bool(entry.get("undirected"))
            )
            for key, entry in sorted(types.items())
        }

    @property
    def plain_edges(self) -> EdgesOfType | None:
        """The edges of a graph of one type; `None` for several types, or without edges."""
        return next((edges for edges in self.edges.values() if edges.key == EDGE), None)

    @property
    def is_undirected(self) -> bool:
        """Whether each edge of a graph of one type stands for both directions."""
        return self.plain_edges is not None and self.plain_edges.undirected

    @property
    def is_typed(self) -> bool:
        """Whether there are types besides ``node`` and ``edge`` (a heterogeneous graph)."""
        nodes, edges = set(self._manifest["node_types"]), set(self._manifest["edge_types"])
        return bool(nodes - {NODE} or edges - {EDGE})

    @property
    def has_triples(self) -> bool:
        """Whether the data set has triples. It may have edges, too."""
        return any(key.startswith("triples/") for key in self.arrays)

    @property
    def is_knowledge_graph(self) -> bool:
        """Whether the data set has triples and no edges."""
        return TRIPLES in self.arrays and not self._manifest["edge_types"]

    @property
    def is_live(self) -> bool:
        """Whether a server has accepted updates, so that the data set has a log."""
        return "live" in self._manifest

    @property
    def first_id(self) -> int:
        """The id of node 0 in the imported files, in a graph of one node type."""
        return int(self._manifest["node_types"].get(NODE, {}).get("first_id", 0))

    @property
    def features(self) -> str | None:
        """The key of the features of a graph of one type, or of the labelled type."""
        key: str | None = self._roles.get("features")
        return key

    def features_of(self, node_type: str) -> str | None:
        """The key of the features of a node type; `None` without features."""
        key: str | None = self._roles.get("typed_features", {}).get(node_type)
        if key is None and self.features is not None and type_of(self.features) == node_type:
            return self.features
        return key

    @cached_property
    def all_features(self) -> frozenset[str]:
        """The keys of the features of all node types."""
        keys = {self.features, *self._roles.get("typed_features", {}).values()}
        return frozenset(key for key in keys if key is not None)

    @property
    def labels(self) -> str | None:
        """The key of the labels."""
        key: str | None = self._roles.get("labels")
        return key

    @property
    def labelled_type(self) -> str | None:
        """The node type of labels and splits; `None` without labels."""
        return None if self.labels is None else type_of(self.labels)

    @property
    def num_labelled(self) -> int:
        """Number of nodes of the labelled type; all nodes of a graph of one type."""
        return int(self.node_types[self.labelled_type or NODE])

    @property
    def classes(self) -> int | None:
        """Number of classes that the import has counted; `None` if it has not."""
        classes: int | None = self._roles.get("classes")
        return classes

    @property
    def num_classes(self) -> int:
        """Number of classes, or columns of multi-label labels; 0 without labels or for numbers."""
        if self.labels is None or self.arrays[self.labels]["dtype"] == "float64":
            return 0
        _, *columns = self.arrays[self.labels]["shape"]
        return int(columns[0] if columns else self.classes or 0)

    @property
    def splits(self) -> Mapping[str, str]:
        """The key of each split by its name."""
        splits: Mapping[str, str] = self._roles.get("splits", {})
        return splits

    @property
    def times(self) -> Mapping[str, Any]:
        """The type of times of each array that the import read as points in time, by key."""
        times: Mapping[str, Any] = self._roles.get("times", {})
        return times

    @property
    def forms(self) -> Mapping[str, Any]:
        """Imported type and row shape by key, for arrays that are stored in another form."""
        forms: Mapping[str, Any] = self._roles.get("given", {})
        return forms

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The command, the release and the options that made the data set."""
        provenance: Mapping[str, Any] = self._manifest.get("provenance", {})
        return provenance

    @property
    def import_options(self) -> Mapping[str, Any]:
        """The options of the import, and by key the origin of arrays that were added later."""
        options: Mapping[str, Any] = self.provenance.get("options", {})
        return options

    def width(self, key: str) -> int:
        """Number of columns of an array; 1 for an array [rows]."""
        return int([*self.arrays[key]["shape"], 1][1])


def type_of(key: str) -> str:
    """The node type or edge type in an array's key."""
    return key.split("/")[1]
