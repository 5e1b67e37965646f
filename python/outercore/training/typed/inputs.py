"""The types that a network sees, and the inputs of their nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outercore.base.sizes import format_size, parse_size
from outercore.errors import InvalidError, NotFoundError
from outercore.training.config import TrainConfig
from outercore.training.loaders import TABLE_COPIES

if TYPE_CHECKING:
    from outercore.data.edge_types import EdgeType
    from outercore.data.graph import Graph

_SHARE = 4
"""Tables take one part in so many of the budget."""


@dataclass(frozen=True)
class NodeInput:
    """The input of the nodes of a type.

    With `features`, a row of so many values. With `rows`, an embedding for each node in a table of
    so many rows. With neither, one learnt vector for the whole type.
    """

    features: int = 0
    rows: int = 0


@dataclass(frozen=True)
class TypedSchema:
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
        """The node types that `layer` computes; the last layer computes only types of seeds."""
        return self._after(layer + 1)

    def sources(self, layer: int) -> list[str]:
        """The node types whose states `layer` reads; its targets are among them."""
        return self._after(layer)

    def _after(self, layer: int) -> list[str]:
        found = reach(self.seeds, self.edge_types, self.layers - layer)
        return [name for name in self.inputs if name in found]

    @property
    def table_rows(self) -> int:
        """Embeddings of nodes, of all types."""
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
    def from_dict(cls, values: Mapping[str, Any], layers: int) -> TypedSchema:
        """Inverse of `to_dict`."""
        return cls(
            tuple(values["seeds"]),
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


def feature_keys(graph: Graph, name: str) -> dict[str, str]:
    """The key of the feature array of each node type that has one.

    `x` stands for the features of each type; another name for the arrays of this name.

    Errors: `NotFoundError` where no type has an array of this name.
    """
    if name == "x":
        found = {one: graph.features_of(one) for one in graph.node_types}
        return {one: key for one, key in found.items() if key is not None}
    keys = {one: f"nodes/{one}/{name}" for one in graph.node_types}
    keys = {one: key for one, key in keys.items() if key in graph.arrays}
    if not keys:
        raise NotFoundError(
            f"data set `{graph.root}`: no node type has an array `{name}`\n"
            "hint: choose another by `--features`"
        )
    return keys


def schema_of(
    graph: Graph,
    seeds: tuple[str, ...],
    config: TrainConfig,
    keys: dict[str, str],
    note: Callable[[str], None],
) -> TypedSchema:
    """The schema of a freshly built network whose batches begin with nodes of the types `seeds`.

    Types without features get a table of embeddings where the budget has room for it, those with
    fewest nodes first; `note` is called with types that get only one vector.
    """
    edge_types = tuple(graph.edge_types)
    reached = reach(seeds, edge_types, config.layers)
    counts = {one: count for one, count in graph.node_types.items() if one in reached}
    inputs = {one: NodeInput() for one in counts}
    with_rows = [one for one, count in counts.items() if one in keys and count]
    inputs |= {one: NodeInput(features=graph.schema.width(keys[one])) for one in with_rows}
    row = 4 * config.model.hidden * TABLE_COPIES
    allowed = room = parse_size(config.budget.memory) // _SHARE
    for one in sorted(counts, key=lambda name: (counts[name], name)):
        if one in keys or not counts[one]:
            continue
        table = counts[one] * row
        if table <= room:
            inputs[one] = NodeInput(rows=counts[one])
            room -= table
            continue
        note(
            f"node type `{one}` has no features, and embeddings of its {counts[one]:,} nodes would "
            f"take {format_size(table)}, of {format_size(allowed)} for all tables: its nodes share "
            "one learnt vector"
        )
    return TypedSchema(seeds, edge_types, inputs, config.layers)


def require_same_types(
    graph: Graph, keys: dict[str, str], schema: TypedSchema, seeds: tuple[str, ...]
) -> None:
    """Checks that a data set has the types and inputs that a network was trained with.

    Errors: `InvalidError` names the first difference.
    """
    expected, found = (
        " ".join(",".join(one) for one in types) for types in (schema.edge_types, graph.edge_types)
    )
    if found != expected:
        raise _other(graph, f"edge types {expected}", found)
    if seeds != schema.seeds:
        expected, found = (" and ".join(f"`{one}`" for one in of) for of in (schema.seeds, seeds))
        raise _other(graph, f"labels or links of node type {expected}", f"those of {found}")
    for one, known in schema.inputs.items():
        count = graph.node_types[one]
        width = graph.schema.width(keys[one]) if one in keys and count else 0
        if width != known.features:
            raise _other(graph, f"{known.features} features for each node of type `{one}`", width)
        if known.rows and count != known.rows:
            raise _other(graph, f"{known.rows:,} nodes of type `{one}`", f"{count:,}")


def _other(graph: Graph, expected: str, found: object) -> InvalidError:
    return InvalidError(
        f"data set `{graph.root}`: expected {expected}, as the model was trained with, "
        f"found {found}"
    )
