"""Arguments of a loader by node type and edge type. Does not import PyTorch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outercore.base.likeness import suggestion
from outercore.data.edge_types import edge_type_key, only_between
from outercore.data.schema import NODE
from outercore.errors import InvalidError, NotFoundError

if TYPE_CHECKING:
    from outercore.data.graph import Graph

_LARGEST = 2**32 - 1

FeatureNames = Mapping[str, "str | os.PathLike[str]"]
"""Features by node type: the name of an array, or the path of an `.npy` matrix."""


def fan_out_options(graph: Graph, given: Any, *, of_nodes: bool) -> dict[str, Any]:
    """Fan-outs in the form of the core: a list, or one list per edge type.

    With `of_nodes` they are the numbers of nodes that HGT sampling draws: a list, or one list per
    node type.

    Errors: `InvalidError` for an unknown type, a type without a list, or lists of different
    lengths.
    """
    argument, what, number = ("num_neighbors", "edge", "fan-out")
    if of_nodes:
        argument, what, number = ("num_samples", "node", "number")
    if not (graph.is_typed and isinstance(given, Mapping)):
        return {"fan_outs": _per_hop(given, argument, number)}
    keys: dict[Any, str] = {kind: edge_type_key(kind) for kind in graph.edge_types}
    if of_nodes:
        keys = {name: name for name in graph.node_types}
    else:
        given = {only_between(kind, [*keys]) or kind: hops for kind, hops in given.items()}
    unknown = [kind for kind in given if kind not in keys]
    if unknown:
        raise InvalidError(
            f"{argument}: {what} type {unknown[0]!r} is not in the graph\n"
            f"hint: it has {', '.join(map(str, keys))}"
        )
    missing = [kind for kind in keys if kind not in given]
    if missing:
        raise InvalidError(
            f"{argument}: no {number}s for {what} type {missing[0]!r}\n"
            f"hint: a {number} of 0 takes none of its {what}s"
        )
    by_type = {kind: _per_hop(hops, argument, number) for kind, hops in given.items()}
    lengths = {len(hops) for hops in by_type.values()}
    if len(lengths) > 1:
        raise InvalidError(
            f"{argument}: {sorted(lengths)} hops, expected as many for each {what} type\n"
            f"hint: a {number} of 0 takes no {what} in a hop"
        )
    return {
        "fan_outs": [0] * lengths.pop(),
        "typed_fan_outs": {keys[kind]: hops for kind, hops in by_type.items()},
    }


def _per_hop(given: Sequence[int], argument: str, number: str) -> list[int]:
    """Checks that `given` is a list with one integer per hop, and returns it.

    `argument` and `number` name the list and its elements in messages.

    Errors: `InvalidError` if it is not a list of integers, or one is out of range.
    """
    wrong = InvalidError(
        f"{argument}: expected a list with a {number} per hop, such as [15, 10], found {given!r}"
    )
    # These types are iterable, but their elements are not fan-outs.
    if isinstance(given, (str, bytes, Mapping)):
        raise wrong
    try:
        hops = [index(value) for value in given]
    except TypeError:
        raise wrong from None
    for value in hops:
        if not -1 <= value <= _LARGEST:
            raise InvalidError(
                f"{argument}: {number} {value} is out of range, expected -1 to {_LARGEST}\n"
                f"hint: give a {number} per hop, such as [15, 10]; -1 means all"
            )
    return hops


def features_by_type(
    graph: Graph, features: str | os.PathLike[str] | FeatureNames | None
) -> dict[str, dict[str, str]]:
    """The chosen features of each node type: the key of an `array`, or the `path` of a matrix.

    `"x"` selects the features of every node type that has features.

    Errors: `InvalidError` for a choice that does not fit the types; `NotFoundError` for an unknown
    node type or array.
    """
    if features is None:
        return {}
    if not isinstance(features, Mapping):
        if (name := path_of("features", features)) == "x":
            keys = {name: graph.features_of(name) for name in graph.node_types}
            return {name: {"array": key} for name, key in keys.items() if key}
        if graph.is_typed:
            raise InvalidError(
                f"features: `{name}` of which node type?\n"
                "hint: give a dictionary of names by node type, or `x` for all features"
            )
        features = {NODE: name}
    elif not graph.is_typed:
        raise InvalidError(
            "features: a choice by node type, but the graph has one type of nodes\n"
            "hint: give the name of an array, or the path of an `.npy` file"
        )
    chosen: dict[str, dict[str, str]] = {}
    for node_type, source in features.items():
        require_node_type(graph, node_type)
        name = path_of("features", source)
        if name.endswith(".npy"):
            # The working directory may change until the data set is opened again.
            chosen[node_type] = {"path": os.fspath(Path(name).absolute())}
        else:
            of_type = f"nodes/{node_type}/" if graph.is_typed and "/" not in name else ""
            chosen[node_type] = {"array": graph.key(of_type + name)}
    return chosen


def features_of_core(graph: Graph, features: dict[str, dict[str, str]]) -> dict[str, Any]:
    """The features in the form of the core."""
    if graph.is_typed:
        return {"typed_features": features}
    names = {"array": "features", "path": "features_path"}
    return {names[kind]: source for kind, source in features.get(NODE, {}).items()}


def path_of(argument: str, given: Any) -> str:
    """A name or a path as a string. `argument` names it in the message.

    Errors: `InvalidError` for another type.
    """
    if not isinstance(given, (str, os.PathLike)):
        raise InvalidError(f"{argument}: expected a name or a path, found {given!r}")
    return os.fspath(given)


def require_node_type(graph: Graph, node_type: str) -> None:
    """Checks that the graph has a node type. Errors: `NotFoundError` with the known types."""
    if node_type not in graph.node_types:
        raise NotFoundError(
            f"node type `{node_type}` is not in data set `{graph.root}`\n"
            f"hint: {suggestion(node_type, graph.node_types, otherwise='it has')}"
        )


def input_type(graph: Graph, input_nodes: Any) -> tuple[str, Any]:
    """The node type of the seeds, and the seeds within it.

    Errors: `InvalidError` if the node type is ambiguous; `NotFoundError` for an unknown node type.
    """
    if not graph.is_typed:
        if isinstance(input_nodes, tuple) and any(isinstance(one, str) for one in input_nodes):
            raise InvalidError(
                f"input_nodes: found {input_nodes!r:.80}, but the graph has one type of nodes\n"
                "hint: give a split, ids, a mask, or None for every node"
            )
        return NODE, input_nodes
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
