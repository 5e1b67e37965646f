"""What a loader is asked for of a graph with several types of nodes and edges; no PyTorch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outercore.errors import InvalidError, NotFoundError
from outercore.graph import EdgeType, edge_type_key

if TYPE_CHECKING:
    from outercore.graph import Graph

FeatureNames = Mapping[str, "str | os.PathLike[str]"]
"""Features by node type: the name of an array, or the path of an `.npy` matrix."""


def fan_outs_by_type(
    graph: Graph, num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]]
) -> dict[str, Any]:
    """The core's fan-outs: a list for every edge type, or a list for each.

    Errors: `InvalidError` for an edge type without fan-outs, with other hops, or that is not there.
    """
    if not isinstance(num_neighbors, Mapping):
        return {"fan_outs": fan_outs(num_neighbors)}
    known = graph.edge_types
    unknown = [given for given in num_neighbors if given not in known]
    if unknown:
        raise InvalidError(
            f"num_neighbors: edge type {unknown[0]!r} is not in the graph\n"
            f"hint: it has {', '.join(map(str, known))}"
        )
    missing = [edge_type for edge_type in known if edge_type not in num_neighbors]
    if missing:
        raise InvalidError(
            f"num_neighbors: no fan-outs for edge type {missing[0]!r}\n"
            "hint: a fan-out of 0 takes none of its edges"
        )
    of_types = {edge_type: fan_outs(given) for edge_type, given in num_neighbors.items()}
    hops = {len(given) for given in of_types.values()}
    if len(hops) > 1:
        raise InvalidError(
            f"num_neighbors: {sorted(hops)} hops, expected as many for each edge type\n"
            "hint: a fan-out of 0 takes no edge in a hop"
        )
    return {
        "fan_outs": [0] * hops.pop(),
        "typed_fan_outs": {edge_type_key(one): given for one, given in of_types.items()},
    }


def fan_outs(num_neighbors: Sequence[int]) -> list[int]:
    """The fan-outs of each hop.

    Errors: `InvalidError` for anything but whole numbers.
    """
    wrong = InvalidError(
        f"num_neighbors: expected a list with a fan-out per hop, such as [15, 10], found "
        f"{num_neighbors!r}"
    )
    # Their elements would be taken for fan-outs.
    if isinstance(num_neighbors, (str, bytes, Mapping)):
        raise wrong
    try:
        return [index(fan_out) for fan_out in num_neighbors]
    except TypeError:
        raise wrong from None


def features_by_type(
    graph: Graph, features: str | os.PathLike[str] | FeatureNames | None
) -> dict[str, Any]:
    """The core's choice of features: those of every node type that has some, or a choice by type.

    Errors: `InvalidError` for one name that is not `x`; `NotFoundError` for a type or an array
    that is not there.
    """
    if features is None:
        return {}
    if not isinstance(features, Mapping):
        if os.fspath(features) != "x":
            raise InvalidError(
                f"features: `{os.fspath(features)}` of which node type?\n"
                "hint: give a dictionary of names by node type, or `x` for all features"
            )
        keys = {name: graph.features_of(name) for name in graph.node_types}
        return {"typed_features": {name: {"array": key} for name, key in keys.items() if key}}
    chosen: dict[str, dict[str, str]] = {}
    for node_type, given in features.items():
        require_node_type(graph, node_type)
        name = os.fspath(given)
        if name.endswith(".npy"):
            chosen[node_type] = {"path": os.fspath(Path(name).absolute())}
        else:
            key = name if "/" in name else f"nodes/{node_type}/{name}"
            chosen[node_type] = {"array": graph.key(key)}
    return {"typed_features": chosen}


def require_node_type(graph: Graph, node_type: str) -> None:
    """Errors: `NotFoundError` for a node type that is not there, with those there are."""
    if node_type not in graph.node_types:
        raise NotFoundError(
            f"node type `{node_type}` is not in data set `{graph.root}`\n"
            f"hint: it has {', '.join(graph.node_types)}"
        )


def input_type(graph: Graph, input_nodes: Any) -> tuple[str, Any]:
    """The node type of the seeds, and the seeds within it.

    Errors: `InvalidError` where it is not clear; `NotFoundError` for a type that is not there.
    """
    if isinstance(input_nodes, str) and input_nodes in graph.node_types:
        return input_nodes, None
    if isinstance(input_nodes, str):
        if graph.labelled_type is None:
            raise InvalidError(
                f"input_nodes: `{input_nodes}` is no node type, and without labels no node type "
                f"has splits\nhint: give a node type: {', '.join(graph.node_types)}"
            )
        return graph.labelled_type, input_nodes
    if isinstance(input_nodes, (tuple, list)) and len(input_nodes) == 2:
        node_type, nodes = input_nodes
        if isinstance(node_type, str):
            require_node_type(graph, node_type)
            return node_type, nodes
    raise InvalidError(
        "input_nodes: expected a split, a node type, or (node type, ids) in a graph of several "
        f"node types: {', '.join(graph.node_types)}"
    )
