"""What a model of a typed graph knows of it: its types, and what is known of their nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outercore.data.edge_types import EdgeType


@dataclass(frozen=True)
class NodeInput:
    """What the nodes of a type enter the network by.

    With `features`, by a row of so many values. With `rows`, by an embedding of their own, in a
    table of so many rows. With neither, by one learnt vector for the whole type.
    """

    features: int = 0
    rows: int = 0


@dataclass(frozen=True)
class Schema:
    """The types that a network sees, in the order of the data set."""

    seeds: tuple[str, ...]
    """The node types that batches begin with: the labelled one, or those at the ends of links."""
    edge_types: tuple[EdgeType, ...]
    inputs: Mapping[str, NodeInput]
    """By node type; only of types that reach the seeds within the layers."""
    layers: int

    @property
    def labelled(self) -> str:
        """The node type whose labels are learnt."""
        return self.seeds[0]

    def into(self, node_type: str) -> list[EdgeType]:
        """The edge types whose target is `node_type`."""
        return [edge_type for edge_type in self.edge_types if edge_type[2] == node_type]

    def targets(self, layer: int) -> list[str]:
        """The node types that `layer` computes; of the last layer only those of the seeds."""
        return self._after(layer + 1)

    def sources(self, layer: int) -> list[str]:
        """The node types whose states `layer` reads; its targets are among them."""
        return self._after(layer)

    def _after(self, layer: int) -> list[str]:
        found = reach(self.seeds, self.edge_types, self.layers - layer)
        return [name for name in self.inputs if name in found]

    @property
    def table_rows(self) -> int:
        """Nodes with an embedding of their own, of all types."""
        return sum(given.rows for given in self.inputs.values())

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "seeds": list(self.seeds),
            "edge_types": [list(edge_type) for edge_type in self.edge_types],
            "inputs": {
                name: {"features": given.features, "rows": given.rows}
                for name, given in self.inputs.items()
            },
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], layers: int) -> Schema:
        """Inverse of `to_dict`."""
        return cls(
            # Earlier models name one type.
            tuple(values.get("seeds") or [values["labelled"]]),
            tuple((source, relation, target) for source, relation, target in values["edge_types"]),
            {name: NodeInput(**given) for name, given in values["inputs"].items()},
            layers,
        )


def reach(seeds: Iterable[str], edge_types: tuple[EdgeType, ...], hops: int) -> set[str]:
    """The node types with a path of at most `hops` edges to one of `seeds`.

    Example:
        >>> types = (("author", "writes", "paper"), ("city", "houses", "author"))
        >>> sorted(reach(["paper"], types, 1))
        ['author', 'paper']
    """
    found = set(seeds)
    for _ in range(hops):
        found |= {source for source, _, target in edge_types if target in found}
    return found
