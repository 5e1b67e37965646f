"""Rules of neighbour sampling: method, weights and times. Does not import PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outercore.base.likeness import suggestion
from outercore.errors import InvalidError, NotFoundError

if TYPE_CHECKING:
    from outercore.data.data_set import DataSet

TemporalStrategy: TypeAlias = Literal["uniform", "last"]
EqualTimes: TypeAlias = Literal["seen", "hidden"]
Method: TypeAlias = Literal["neighbor", "labor", "ladies", "hgt"]
SubgraphType: TypeAlias = Literal["directional", "bidirectional", "induced"]

_EDGE = "edge_"


@dataclass(frozen=True)
class SampleRules:
    """The rules of sampling, except fan-outs. `NeighborLoader` explains the fields."""

    method: Method = "neighbor"
    disjoint: bool = False
    subgraph_type: SubgraphType = "directional"
    weight_attr: str | None = None
    time_attr: str | None = None
    temporal_strategy: TemporalStrategy = "uniform"
    equal_times: EqualTimes = "seen"

    @property
    def has_trees(self) -> bool:
        """Whether the neighbourhood of each seed is sampled separately."""
        return self.disjoint or self.time_attr is not None


def sample_rules(graph: DataSet, rules: SampleRules) -> dict[str, Any]:
    """The rules in the form of the core.

    Errors: `NotFoundError` for an unknown array; `InvalidError` for an unknown choice.
    """
    method, subgraph_type, equal_times = rules.method, rules.subgraph_type, rules.equal_times
    temporal_strategy, disjoint = rules.temporal_strategy, rules.disjoint
    weight_attr, time_attr = rules.weight_attr, rules.time_attr
    if subgraph_type == "bidirectional" and method in ("ladies", "hgt"):
        raise InvalidError(
            f"subgraph_type: `bidirectional` expects edges that are sampled on their own, and "
            f"`{method}` chooses nodes\nhint: leave one of the two out"
        )
    options: dict[str, Any] = {
        "method": method,
        "disjoint": disjoint,
        # Reverse edges are added to the batches of directional subgraphs.
        "subgraph": "induced" if subgraph_type == "induced" else "directional",
        "time_order": "last" if temporal_strategy == "last" else "any",
        "equal_times": equal_times,
    }
    if weight_attr is not None:
        options["weights"] = edge_name(graph, weight_attr)
        if options["weights"] is None:
            raise _no_array(graph, "weight_attr", weight_attr)
    require_times(graph, time_attr)
    if time_attr is not None:
        options["edge_times"] = edge_name(graph, time_attr)
        options["node_times"] = time_attr if _has(graph, "nodes", time_attr) else None
        if options["edge_times"] is None and options["node_times"] is None:
            raise _no_array(graph, "time_attr", time_attr)
    elif temporal_strategy == "last":
        raise InvalidError("temporal_strategy: `last` expects `time_attr`")
    return options


def require_times(graph: DataSet, name: str | None) -> None:
    """Checks that every array of this name holds one integer per row.

    Errors: `InvalidError` for another type or shape.
    """
    if name is None:
        return
    called = {name, name.removeprefix(_EDGE)}
    for key, entry in graph.arrays.items():
        of, _, rest = key.partition("/")
        if of not in ("nodes", "edges") or rest.partition("/")[2] not in called:
            continue
        shape, dtype = entry["shape"], entry["dtype"]
        if len(shape) != 1 or "int" not in dtype:
            raise InvalidError(
                f"time_attr: array `{key}` is {dtype} {shape}, expected whole numbers [rows]\n"
                "hint: times of shape [rows, 1] are `times[:, 0]`"
            )


def whole_numbers(name: str, values: Any, rows: str) -> NDArray[Any] | None:
    """Converts `values` to an array [rows] of integers, without a copy. `None` does not change.

    `name` is the argument and `rows` says what a row is, for messages.

    Errors: `InvalidError` for anything but integers [rows].
    """
    if values is None:
        return None
    array = np.asarray(values.cpu() if hasattr(values, "cpu") else values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidError(
            f"{name}: expected whole numbers [{rows}], found {array.dtype} {array.shape}"
        )
    return array


def edge_name(graph: DataSet, name: str) -> str | None:
    """The name of an edge array in the data set. `name` may also be its name in a batch.

    For example, both `weight` and `edge_weight` give `weight`. `None`: no such array.
    """
    for candidate in (name, name.removeprefix(_EDGE)):
        if _has(graph, "edges", candidate):
            return candidate
    return None


def _has(graph: DataSet, of: str, name: str) -> bool:
    return any(
        key.startswith(f"{of}/") and key.split("/", 2)[2] == name
        for key in graph.arrays
        if key.count("/") >= 2
    )


def _no_array(graph: DataSet, argument: str, name: str) -> NotFoundError:
    known = sorted(key for key in graph.arrays if key.startswith(("nodes/", "edges/")))
    guess = suggestion(name, known, otherwise="it has")
    return NotFoundError(
        f"{argument}: array `{name}` is not in data set `{graph.root}`\nhint: {guess}"
    )
