"""A request to the core: an algorithm, its options, and the resources of its run."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypedDict, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outercore.base.common import Backend
from outercore.base.fields import typed, within
from outercore.base.likeness import hint_like
from outercore.base.native import Progress
from outercore.base.other_libraries import instead_of_option
from outercore.data.edge_types import EdgeType
from outercore.data.far import Far
from outercore.data.graph import Graph
from outercore.data.node_numbers import NodeNumbers, by_name, node_names
from outercore.data.schema import NODE
from outercore.errors import InvalidError

Direction = Literal["out", "in", "both"]
Node = int | str | tuple[str, int | str]
"""A node. A number is its position in the result, from 0. A text is its name, or its id in the
imported files. In a graph with several types it is a type and an id, such as ``("author", 3)`` or
``"author:ann"``."""
Nodes = Sequence[Node] | tuple[str, Sequence[int | str]]
Personalization = (
    ArrayLike
    | Mapping[int, float]
    | Mapping[str, float]
    | Mapping[tuple[str, int], float]
    | Mapping[tuple[str, str], float]
)
Teleports = tuple[NDArray[np.int64] | None, NDArray[np.float64] | None]
"""Nodes and weights of a teleport vector, [nodes with a weight]; `None` for equal weights."""


class Resources(TypedDict, total=False):
    """Options that every algorithm takes: resources of the run, and where to save its result."""

    memory: str | int
    """Budget, such as ``"128MiB"``; ``"1GiB"`` by default."""
    relation: str | EdgeType | None
    """Use only the edges of this edge type or relation of triples; all edges by default."""
    threads: int | None
    """Number of threads; all cores by default."""
    backend: Backend
    """How to read; ``"auto"`` by default."""
    far: Far | None
    """Memory server that holds edges: its address, or `far.FarOptions`."""
    far_ratio: float | None
    """Share of the edges' bytes to leave to the memory server; by default all that exceed the
    budget."""
    buffering: bool
    """Whether to read ahead during the computation; set it to false only in experiments."""
    profile: str | os.PathLike[str] | None
    """Count the reads of each segment, and write them to this ``.json``."""
    by_profile: str | os.PathLike[str] | None
    """Keep the segments with the most reads in this profile in memory."""
    scratch: str | os.PathLike[str] | None
    """Directory for data that exceeds the memory; the directory of the data set by default."""
    save: str | None
    """Save the result in the data set as a node array of this name."""
    progress: Progress | None
    """Called as ``progress(phase, done, total, unit)``."""


_NUMBERED = (Nodes, Node | Nodes, Nodes | None)
"""Types of options that name nodes."""
_OF_NODES = ("source", "sources", "nodes", "personalization")
"""Names of these options."""
_LARGEST = 2**32 - 1

_SHARED = ("graph", "personalization", "resources")


def algorithm_of(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The name of an algorithm and all its options, defaults included.

    Errors: `InvalidError` for an unknown option, or a number that is not finite.
    """
    algorithm = function.__name__
    chosen: dict[str, Any] = {"algorithm": algorithm}
    parameters = inspect.signature(function).parameters
    own = {name: value for name, value in parameters.items() if name not in _SHARED}
    for name in options:
        if name not in own:
            raise _unknown_option(function, name)
    # Only type checkers need `Unpack`.
    hints = get_type_hints(function, localns={"Unpack": list})
    for name, parameter in own.items():
        value = options.get(name, parameter.default)
        if value is inspect.Parameter.empty:
            raise InvalidError(f"{algorithm}: expected a `{name}`")
        what = f"{algorithm}: {name}"
        value = _plain(what, value)
        if hints[name] in _NUMBERED and value is not None:
            _require_nodes(what, value)
        elif value is not None or hints[name] in (bool, int, float):
            value = typed(hints[name], value, what)
        if isinstance(value, int) and name != "seed":
            within(what, value, 0, _LARGEST)
        chosen[name] = value
    return chosen


def _unknown_option(function: Callable[..., Any], name: str) -> InvalidError:
    algorithm, parameters = function.__name__, inspect.signature(function).parameters
    known = (
        ", ".join(option for option in parameters if option not in ("graph", "resources")) or "none"
    )
    hint = hint_of_option(algorithm, name, parameters)
    return InvalidError(f"{algorithm}: option `{name}`, expected one of {known}{hint}")


def hint_of_option(algorithm: str, name: str, taken: Collection[str]) -> str:
    """A hint line for an unknown option of an algorithm; `taken` are its parameters."""
    others = [option for option in taken if option != "resources"] + list(Resources.__annotations__)
    advice = instead_of_option(algorithm, name, others)
    otherwise = f"\nhint: `help(oc.{algorithm})` lists what it takes"
    return f"\nhint: {advice}" if advice else hint_like(name, others) or otherwise


def call_of(function: Callable[..., Any]) -> str:
    """The call of an algorithm with its parameters, for a hint.

    Example:
        >>> def pagerank(graph, *, damping=0.85, **resources): ...
        >>> call_of(pagerank)
        'pagerank(graph, damping=...)'
    """
    parts = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            named = parameter.kind is inspect.Parameter.KEYWORD_ONLY
            parts.append(f"{name}=..." if named else name)
    return f"{function.__name__}({', '.join(parts)})"


def _require_nodes(what: str, value: Any) -> None:
    """Checks that a value is a node id or a list of node ids.

    Errors: `InvalidError` for any other value.
    """
    for node in value if isinstance(value, list) else [value]:
        if not isinstance(node, (int, np.integer)) or isinstance(node, bool):
            why = "; the nodes of this graph have no names" if isinstance(node, str) else ""
            raise InvalidError(f"{what}: expected node ids, found {value!r:.80}{why}")


def _plain(what: str, value: Any) -> Any:
    """The value in a form for JSON.

    Errors: `InvalidError` for a number that is not finite, or a negative integer.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidError(f"{what} {value}, expected a finite number")
    if isinstance(value, int) and value < 0:
        raise InvalidError(f"{what} {value}, expected 0 or more")
    if isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str):
        return [_plain(what, item) for item in value]
    return value


def numbered(graph: Graph, relation: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of an algorithm with node numbers in place of names of nodes.

    Errors: `NotFoundError`, `InvalidError` for an unknown node.
    """
    of_nodes = {name: value for name, value in given.items() if name in _OF_NODES}
    if not of_nodes:
        return dict(given)
    numbers = NodeNumbers.of_graph(graph, relation)
    if numbers is not None:
        return {**given, **{name: numbers.resolve(value) for name, value in of_nodes.items()}}
    ids = node_names(graph, NODE)
    return {**given, **{name: by_name(ids, value) for name, value in of_nodes.items()}}


def teleports(
    function: Callable[..., Any],
    wanted: Personalization | None,
    graph: Graph,
    relation: str | None,
) -> Teleports:
    """Nodes and weights of a teleport vector, int64 and float64 [nodes with a weight].

    Errors: `InvalidError` for an algorithm without personalization, a number of weights other than
    the number of nodes, or a weight that is not a number.
    """
    if wanted is None:
        return None, None
    if "personalization" not in inspect.signature(function).parameters:
        raise _unknown_option(function, "personalization")
    numbers = NodeNumbers.of_graph(graph, relation)
    nodes = graph.num_nodes if numbers is None else len(numbers)
    if isinstance(wanted, Mapping):
        wanted = numbered(graph, relation, {"personalization": wanted})["personalization"]
    if isinstance(wanted, Mapping):
        _require_nodes("personalization", list(wanted))
        ids = np.fromiter(wanted.keys(), np.int64, len(wanted))
        return ids, np.fromiter(map(_weight, wanted.values()), np.float64, len(wanted))
    try:
        weights = np.asarray(wanted, np.float64)
    except (TypeError, ValueError):
        raise InvalidError(f"personalization: expected numbers, found {wanted!r:.80}") from None
    if weights.shape != (nodes,):
        raise InvalidError(
            f"personalization: shape {weights.shape}, expected one weight a node: ({nodes},)"
        )
    ids = np.flatnonzero(weights)
    return ids.astype(np.int64), weights[ids]


def _weight(value: object) -> float:
    if not isinstance(value, (int, float, np.number)):
        raise InvalidError(f"personalization: expected a number for each node, found {value!r:.80}")
    return float(value)


def described(algorithm: Mapping[str, Any], relation: str | None) -> str:
    """An algorithm with its options in one line, for the provenance."""
    chosen = {**algorithm, "relation": relation}
    name = chosen.pop("algorithm")
    words = [f"{key}={value}" for key, value in chosen.items() if value is not None]
    return " ".join(["outercore run", name, *words])
