"""The edges of one type by time: training edges, then the later edges that are held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outercore.base.sizes import format_size, parse_size
from outercore.data.batch_arrays import edge_array_names
from outercore.data.csc import edge_array_key, edge_blocks, id_type, num_rows
from outercore.data.edge_types import REVERSE, EdgeType, edge_type_called
from outercore.data.sample_rules import edge_name
from outercore.data.triples import PARTS
from outercore.errors import BudgetError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from outercore.data.graph import Graph
    from outercore.training.config import TrainConfig


_TIME_BYTES = 8
_SORTING_BYTES = 24
"""Bytes per edge during sorting: the order, memory of the sort, and a second array of times."""
NEGATIVES = 1
"""Negatives of a held-out edge, as in publications: its source with another target, at its time."""


@dataclass(frozen=True)
class TimedLinks:
    """The edges of a type, sorted by time. The splits are consecutive ranges of this order.

    Shapes: `index` [2, edges], ids within the types of the ends; `times` int64 [edges].
    """

    edge_type: EdgeType
    index: NDArray[Any]
    times: NDArray[np.int64]
    bounds: tuple[int, int, int]
    """The ends of the splits `train`, `valid` and `test` in this order."""

    def part(self, name: str) -> slice:
        """The range of the edges of a split."""
        number = PARTS.index(name)
        return slice((0, *self.bounds)[number], self.bounds[number])

    def count(self, name: str) -> int:
        """The number of edges of a split."""
        part = self.part(name)
        return part.stop - part.start

    def sizes(self, name: str) -> tuple[int, int]:
        """The numbers of edges and negatives of a held-out split."""
        return self.count(name), NEGATIVES * self.count(name)

    @property
    def parts(self) -> list[str]:
        """The names of the held-out splits that have edges."""
        return [name for name in PARTS[1:] if self.count(name)]

    @property
    def memory(self) -> int:
        """The bytes of the edges and their times."""
        return self.index.nbytes + self.times.nbytes

    @property
    def span(self) -> int:
        """The difference between the last and the first time of the training edges; at least 1."""
        times = self.times[self.part("train")]
        return max(int(times[-1]) - int(times[0]), 1)


def timed_links(graph: Graph, config: TrainConfig) -> TimedLinks:
    """Reads the edges that a run predicts, and holds out the latest of them.

    The first half of the held-out edges is for validation, the second half for the test. Edges with
    equal times are in one split. An undirected edge is listed once.

    Cost: 16 bytes of memory for each edge, or 24 in a graph of more than 2^31 nodes; 24 bytes more
    during the sorting by time. Reads the edges once.
    Errors: `NotFoundError` without the edge type or its times; `InvalidError` if several edge types
    have times, the edge type is empty, or too few times differ; `BudgetError` before any read.
    """
    edge_type = predicted_type(graph, config)
    key = time_key(graph, edge_type, config)
    _require_room(graph, edge_type, config)
    index, is_edge = _by_row(graph, edge_type)
    times = graph.array(key)
    if not is_edge.all():
        index, times = index[:, is_edge], times[is_edge]
    order = np.argsort(times, kind="stable")
    for end in index:
        end[:] = end[order]
    times = times[order].astype(np.int64, copy=False)
    held_out = config.link.held_out
    bounds = [
        int(np.searchsorted(times, _time_at(times, share), side="left"))
        for share in (1 - held_out, 1 - held_out / 2)
    ]
    if not bounds[0]:
        raise InvalidError(
            f"edge type {','.join(edge_type)}: no edge is left to train on, as all {len(times):,} "
            "have nearly the same time\nhint: hold out fewer by `--set link.held_out=SHARE`"
        )
    return TimedLinks(edge_type, index, times, (bounds[0], bounds[1], len(times)))


def _by_row(graph: Graph, edge_type: EdgeType) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The ends [2, rows] of each imported row, and whether the row is an edge of the graph.

    An undirected edge has two arcs. The arc with the lower target is taken.
    """
    rows_of_type = num_rows(graph, edge_type)
    index = np.empty((2, rows_of_type), id_type(graph, edge_type))
    is_edge = np.zeros(rows_of_type, bool)
    for first, sources, targets, rows in edge_blocks(graph, edge_type):
        own = np.arange(first, first + len(sources)) if rows is None else rows
        distinct, at = np.unique(own, return_index=True)
        new = ~is_edge[distinct]
        distinct, at = distinct[new], at[new]
        index[0, distinct], index[1, distinct] = sources[at], targets[at]
        is_edge[distinct] = True
    return index, is_edge


def _require_room(graph: Graph, edge_type: EdgeType, config: TrainConfig) -> None:
    called, count = ",".join(edge_type), num_rows(graph, edge_type)
    a_link = 2 * id_type(graph, edge_type).itemsize + _TIME_BYTES + _SORTING_BYTES
    needed = a_link * count
    if not count:
        raise InvalidError(f"edge type {called}: expected edges to learn, found none")
    if needed >= parse_size(config.budget.memory):
        raise BudgetError(
            f"memory budget {config.budget.memory}: {count:,} edges of {called} with their times "
            f"take {format_size(needed)}\nhint: give more memory by `--memory`",
            needed=needed,
        )


def predicted_type(graph: Graph, config: TrainConfig) -> EdgeType:
    """The edge type whose edges are predicted: the chosen type, or the only type with times.

    Errors: `NotFoundError` for an unknown type, or if no type has times; `InvalidError` if several
    types have times.
    """
    chosen, attribute = config.link.relation, config.sampling.time
    if chosen is not None:
        return edge_type_called(chosen, graph.edge_types, f"link.relation of `{graph.root}`")
    timed = list(times_by_type(graph, config))
    # `--add-reverse` adds the other direction of each edge type.
    candidates = [edge_type for edge_type in timed if not edge_type[1].startswith(REVERSE)] or timed
    if not candidates:
        raise NotFoundError(
            f"--time {attribute}: no edge array `{attribute}` is in data set `{graph.root}`\n"
            f"hint: it has {', '.join(edge_array_names(graph.arrays)) or 'none'}"
        )
    if len(candidates) > 1:
        names = [",".join(edge_type) for edge_type in candidates]
        raise InvalidError(
            f"data set `{graph.root}`: edges of {' and '.join(names)} have `{attribute}`\n"
            f"hint: choose the edges to predict by `--set link.relation={names[0]}`"
        )
    return candidates[0]


def time_key(graph: Graph, edge_type: EdgeType, config: TrainConfig) -> str:
    """The manifest key of the times of a type's edges.

    Errors: `NotFoundError` for edges without times, `InvalidError` for times that are not whole
    numbers.
    """
    attribute, key = config.sampling.time, times_by_type(graph, config).get(edge_type)
    if key is None:
        raise NotFoundError(
            f"--time {attribute}: the edges of {','.join(edge_type)} have no array `{attribute}`\n"
            f"hint: data set `{graph.root}` has "
            f"{', '.join(edge_array_names(graph.arrays)) or 'none'}"
        )
    entry = graph.arrays[key]
    if "int" not in entry["dtype"] or len(entry["shape"]) != 1:
        raise InvalidError(
            f"--time {attribute}: expected a whole number for each edge, found {entry['dtype']} "
            f"{entry['shape']}"
        )
    return key


def times_by_type(graph: Graph, config: TrainConfig) -> dict[EdgeType, str]:
    """The manifest key of the times of each edge type with times."""
    assert config.sampling.time is not None
    times = edge_times(graph, config.sampling.time)
    return {edge_type: edge_array_key(graph, edge_type, name) for edge_type, name in times.items()}


def edge_times(graph: Graph, attribute: str) -> dict[EdgeType, str]:
    """The name of the array of times, for each edge type with times."""
    name = edge_name(graph, attribute) or attribute
    return {
        edge_type: name
        for edge_type in graph.edge_types
        if edge_array_key(graph, edge_type, name) in graph.arrays
    }


def _time_at(times: NDArray[np.int64], share: float) -> int:
    """The time before which about this share of the edges come.

    For a share of 1, it is a time after all edges.
    """
    place = int(share * len(times))
    return int(times[place]) if place < len(times) else int(times[-1]) + 1
