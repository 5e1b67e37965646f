"""Which arrays of a data set batches carry besides features and labels, and under which names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from outercore.errors import InvalidError, NotFoundError
from outercore.likeness import suggestion

if TYPE_CHECKING:
    from outercore.graph import Graph

_NODES = "nodes/node/"
_EDGES = "edges/edge/"
_TOPOLOGY = {_EDGES + name for name in ("offsets", "sources", "ids")}

RESERVED = frozenset(
    (
        *("x", "y", "edge_index", "n_id", "e_id", "input_id", "batch_size", "num_nodes"),
        *("num_edges", "num_sampled_nodes", "num_sampled_edges", "batch", "ptr", "indptr"),
        *("indices", "arrays"),
    )
)
"""What else a batch has under its name."""


def batch_arrays(
    graph: Graph, names: Sequence[str] | None, *, besides: Iterable[str | None]
) -> dict[str, str]:
    """The key of each array by its name in a batch: ``year`` of nodes, ``edge_weight`` of edges.

    Args:
        graph: the data set.
        names: arrays by their names in a batch, or by key. ``None``: every array of edges, and
            every array of nodes but features, labels, ``besides`` and results of Outercore.
        besides: keys that are delivered, or used, in another way.

    Raises:
        NotFoundError: no array has this name.
        InvalidError: two arrays have one name, or a batch has something else under it.
    """
    if isinstance(names, str) or not (names is None or isinstance(names, Iterable)):
        raise InvalidError(f"arrays: expected a list of names, found {names!r}")
    for name in names or ():
        if not isinstance(name, str):
            raise InvalidError(f"arrays: expected a list of names, found {name!r} in it")
    if graph.is_typed:
        return _typed_arrays(graph, names, besides)
    known = _known(graph)
    keys = _imported(graph, known, besides) if names is None else _asked(graph, known, names)
    chosen: dict[str, str] = {}
    for key in keys:
        name = _name_of(key)
        if name in RESERVED or chosen.get(name, key) != key:
            taken = f"array `{chosen[name]}`" if name in chosen else "something else"
            raise InvalidError(
                f"array `{key}`: a batch has {taken} under the name `{name}`\n"
                "hint: list the arrays to deliver by `arrays=[...]`; `arrays=[]` delivers none"
            )
        chosen[name] = key
    return chosen


def _typed_arrays(
    graph: Graph, names: Sequence[str] | None, besides: Iterable[str | None]
) -> dict[str, str]:
    """In a graph of several types an array's name in a batch is its key."""
    roles = graph.manifest.get("roles", {})
    left_out = {*besides, *roles.get("typed_features", {}).values(), roles.get("labels")}
    known = [
        key
        for key in sorted(graph.arrays)
        if key.startswith(("nodes/", "edges/")) and key not in _TOPOLOGY
    ]
    left_out |= _results(graph)
    if names is None:
        return {key: key for key in known if key not in left_out}
    for name in names:
        if name not in known:
            raise NotFoundError(
                f"array `{name}` is not in data set `{graph.root}`\n"
                f"hint: give a key; it has {', '.join(known) or 'none'}"
            )
    return {name: name for name in names}


def edge_array_names(arrays: Iterable[str]) -> list[str]:
    """Names of the edge arrays among keys: weights, times, features and the like.

    Those of a graph with several types begin with the edge type.

    Example:
        >>> edge_array_names(["edges/edge/sources", "edges/edge/weight", "nodes/node/x"])
        ['weight']
    """
    edges = sorted(key for key in arrays if key.startswith("edges/") and key not in _TOPOLOGY)
    return [key.removeprefix("edges/").removeprefix("edge/") for key in edges]


def _known(graph: Graph) -> list[str]:
    keys = sorted(graph.arrays)
    return [key for key in keys if key.startswith((_NODES, _EDGES)) and key not in _TOPOLOGY]


def _imported(graph: Graph, known: list[str], besides: Iterable[str | None]) -> list[str]:
    roles = graph.manifest.get("roles", {})
    left_out = {*besides, roles.get("features"), roles.get("labels"), *_results(graph)}
    return [key for key in known if key not in left_out]


def _results(graph: Graph) -> set[str]:
    """Arrays of nodes that `run --save` and the like have added: they say where they come from."""
    options = graph.manifest.get("provenance", {}).get("options", {})
    return {key for key in options if key.startswith("nodes/")}


def _asked(graph: Graph, known: list[str], names: Sequence[str]) -> list[str]:
    by_name: dict[str, list[str]] = {}
    for key in known:
        by_name.setdefault(_name_of(key), []).append(key)
    keys = []
    for name in names:
        found = [name] if name in known else by_name.get(name, [])
        if not found:
            have = [name for name in by_name if name not in RESERVED]
            guess = suggestion(name, have, otherwise="it has")
            raise NotFoundError(f"array `{name}` is not in data set `{graph.root}`\nhint: {guess}")
        if len(found) > 1:
            raise InvalidError(
                f"array `{name}`: expected one, found {', '.join(found)}\nhint: give the key"
            )
        keys += found
    return keys


def _name_of(key: str) -> str:
    """The name in a batch."""
    if key.startswith(_EDGES):
        return "edge_" + key.removeprefix(_EDGES)
    return key.removeprefix(_NODES)
