"""What is known of the nodes of each type of a data set, and what may be learnt besides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from outercore.base.sizes import format_size, parse_size
from outercore.errors import InvalidError, NotFoundError, UnsupportedError
from outercore.training.config import TrainConfig
from outercore.training.loaders import TABLE_COPIES
from outercore.training.temporal.nodes import require_past
from outercore.training.typed.labelled_type import LabelledNodes
from outercore.training.typed.schema import NodeInput, Schema, reach

if TYPE_CHECKING:
    from outercore.data.graph import Graph

ONLY_TYPED = ("rgcn", "hgt")
"""Models that need several types."""
_KINDS = ("rgcn", "sage", "gat", "hgt")
"""Models of typed graphs."""

_SHARE = 4
"""Tables take one part in so many of the budget."""


def require_model_fits(graph: Graph, config: TrainConfig) -> None:
    """Whether the model and the task are for a graph with these types.

    Errors: `UnsupportedError` where they are not; `NotFoundError` for a typed graph without labels,
    or labelled nodes without the times that were named.
    """
    kind, of_nodes = config.model.kind, not (config.of_links or config.of_graphs)
    if config.sampling.precision != "exact" and not of_nodes:
        raise UnsupportedError(
            "sampling.precision: rows of int8 are for labels of nodes\nhint: leave it out"
        )
    if config.of_links and config.budget.far is not None:
        raise UnsupportedError("--far: edges are learnt from the disk alone\nhint: leave it out")
    if config.model.is_own and (graph.is_typed or not of_nodes):
        raise UnsupportedError(
            f"model `{kind}`: a network of your own learns labels of nodes of one type alone\n"
            "hint: take batches from `oc.NeighborLoader` in a loop of your own"
        )
    if not graph.is_typed:
        if kind in ONLY_TYPED:
            raise UnsupportedError(
                f"model `{kind}`: needs several node types or edge types, and data set "
                f"`{graph.root}` has one of each\n"
                "hint: use `--model sage`, `gcn`, `gat`, `gin` or `mlp`"
            )
        if of_nodes:
            require_past(graph, "node", config)
        return
    if config.of_graphs or (config.of_links and config.sampling.time is None):
        raise UnsupportedError(
            f"task `{config.run.task}`: data set `{graph.root}` has several types of nodes or "
            "edges, where labels of nodes can be learnt, and edges with times\n"
            "hint: leave `--task` out, or name the times of the edges by `--time`"
        )
    if kind not in _KINDS:
        known = ", ".join(f"`{name}`" for name in _KINDS[:-1])
        raise UnsupportedError(
            f"model `{kind}`: data set `{graph.root}` has several types of nodes or edges\n"
            f"hint: use `--model` {known} or `{_KINDS[-1]}`"
        )
    if of_nodes:
        require_past(graph, LabelledNodes(graph).node_type, config)


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
) -> Schema:
    """The schema of a freshly built network whose batches begin with nodes of the types `seeds`.

    Types without features get a table of embeddings where the budget has room for it, those with
    fewest nodes first; `note` is told which ones get only one vector for the type.
    """
    edge_types = tuple(graph.edge_types)
    reached = reach(seeds, edge_types, config.layers)
    counts = {one: count for one, count in graph.node_types.items() if one in reached}
    inputs = {one: NodeInput() for one in counts}
    with_rows = [one for one, count in counts.items() if one in keys and count]
    inputs |= {one: NodeInput(features=_width(graph, keys[one])) for one in with_rows}
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
    return Schema(seeds, edge_types, inputs, config.layers)


def require_same_types(
    graph: Graph, keys: dict[str, str], schema: Schema, seeds: tuple[str, ...]
) -> None:
    """Whether a data set is like the one that a network was trained on.

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
        width = _width(graph, keys[one]) if one in keys and count else 0
        if width != known.features:
            raise _other(graph, f"{known.features} features for each node of type `{one}`", width)
        if known.rows and count != known.rows:
            raise _other(graph, f"{known.rows:,} nodes of type `{one}`", f"{count:,}")


def _other(graph: Graph, expected: str, found: object) -> InvalidError:
    return InvalidError(
        f"data set `{graph.root}`: expected {expected}, as the model was trained with, "
        f"found {found}"
    )


def _width(graph: Graph, key: str) -> int:
    shape = graph.arrays[key]["shape"]
    return int(shape[1]) if len(shape) == 2 else 1
