"""What a loader is asked for of a graph with several types of nodes and edges; no PyTorch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outercore.base.likeness import suggestion
from outercore.data.edge_types import edge_type_key, only_between
from outercore.errors import InvalidError, NotFoundError

if TYPE_CHECKING:
    from outercore.data.graph import Graph

_LARGEST = 2**32 - 1

FeatureNames = Mapping[str, "str | os.PathLike[str]"]
"""Features by node type: the name of an array, or the path of an `.npy` matrix."""


def numbers(graph: Graph, given: Any, *, of_nodes: bool) -> dict[str, Any]:
    """The core's fan-outs: a list, or one for each edge type.

    `of_nodes`: HGT's numbers of nodes to draw, a list or one for each node type.

    Errors: `InvalidError` for a type without numbers, with other hops, or that is not there.
    """
    argument, what, number = ("num_neighbors", "edge", "fan-out")
    if of_nodes:
        argument, what, number = ("num_samples", "node", "number")
    if not (graph.is_typed and isinstance(given, Mapping)):
        return {"fan_outs": _per_hop(given, argument, number)}
    keys: dict[Any, str] = {one: edge_type_key(one) for one in graph.edge_types}
    if of_nodes:
        keys = {name: name for name in graph.node_types}
    else:
        given = {only_between(one, [*keys]) or one: of for one, of in given.items()}
    unknown = [one for one in given if one not in keys]
    if unknown:
        raise InvalidError(
            f"{argument}: {what} type {unknown[0]!r} is not in the graph\n"
            f"hint: it has {', '.join(map(str, keys))}"
        )
    missing = [one for one in keys if one not in given]
    if missing:
        raise InvalidError(
            f"{argument}: no {number}s for {what} type {missing[0]!r}\n"
            f"hint: a {number} of 0 takes none of its {what}s"
        )
    of_types = {one: _per_hop(of, argument, number) for one, of in given.items()}
    hops = {len(of) for of in of_types.values()}
    if len(hops) > 1:
        raise InvalidError(
            f"{argument}: {sorted(hops)} hops, expected as many for each {what} type\n"
            f"hint: a {number} of 0 takes no {what} in a hop"
        )
    return {
        "fan_outs": [0] * hops.pop(),
        "typed_fan_outs": {keys[one]: of for one, of in of_types.items()},
    }


def _per_hop(given: Sequence[int], argument: str, number: str) -> list[int]:
    """The numbers of each hop; messages call them `argument`, and each a `number`.

    Errors: `InvalidError` for anything but whole numbers.
    """
    wrong = InvalidError(
        f"{argument}: expected a list with a {number} per hop, such as [15, 10], found {given!r}"
    )
    # Their elements would be taken for fan-outs.
    if isinstance(given, (str, bytes, Mapping)):
        raise wrong
    try:
        found = [index(one) for one in given]
    except TypeError:
        raise wrong from None
    for one in found:
        if not -1 <= one <= _LARGEST:
            raise InvalidError(
                f"{argument}: {number} {one} is out of range, expected -1 to {_LARGEST}\n"
                f"hint: give a {number} per hop, such as [15, 10]; -1 means all"
            )
    return found


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
        if (name := path_of("features", features)) != "x":
            raise InvalidError(
                f"features: `{name}` of which node type?\n"
                "hint: give a dictionary of names by node type, or `x` for all features"
            )
        keys = {name: graph.features_of(name) for name in graph.node_types}
        return {"typed_features": {name: {"array": key} for name, key in keys.items() if key}}
    chosen: dict[str, dict[str, str]] = {}
    for node_type, given in features.items():
        require_node_type(graph, node_type)
        name = path_of("features", given)
        if name.endswith(".npy"):
            chosen[node_type] = {"path": os.fspath(Path(name).absolute())}
        else:
            key = name if "/" in name else f"nodes/{node_type}/{name}"
            chosen[node_type] = {"array": graph.key(key)}
    return {"typed_features": chosen}


def path_of(argument: str, given: Any) -> str:
    """A name or a path as a text.

    Errors: `InvalidError` for anything else.
    """
    if not isinstance(given, (str, os.PathLike)):
        raise InvalidError(f"{argument}: expected a name or a path, found {given!r}")
    return os.fspath(given)


def require_node_type(graph: Graph, node_type: str) -> None:
    """Errors: `NotFoundError` for a node type that is not there, with those there are."""
    if node_type not in graph.node_types:
        raise NotFoundError(
            f"node type `{node_type}` is not in data set `{graph.root}`\n"
            f"hint: {suggestion(node_type, graph.node_types, otherwise='it has')}"
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
