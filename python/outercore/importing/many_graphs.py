"""Data sets of many graphs: the graph of each node, and arrays with a row for each graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.data.many_graphs import FIRST, PREFIX, SPLITS
from outercore.errors import InvalidError
from outercore.importing.edges import EdgeSource
from outercore.importing.splits import SplitChoice, open_choice
from outercore.importing.table.rows import Reading, RowSource, open_rows


@dataclass(frozen=True)
class GraphLevel:
    """The first node of each graph, and the arrays with a row for each graph.

    Shapes: `first` int64 [graphs]; `arrays` [graphs, ...]; `splits` int64 ids of graphs.
    """

    first: NDArray[np.int64]
    nodes: int
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    splits: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    local_ids: bool = False
    """Whether the input numbers the nodes of each graph separately. So no edge connects graphs."""

    @property
    def count(self) -> int:
        """Number of graphs."""
        return len(self.first)

    def stored(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Every array with its key. `first` comes last: it marks a data set of many graphs."""
        for name, values in self.arrays.items():
            yield PREFIX + name, values
        for name, ids in self.splits.items():
            yield SPLITS + name, ids
        yield FIRST, self.first


def first_nodes(ids: NDArray[Any], where: str, start: int = 0) -> NDArray[np.int64]:
    """The first node of each graph. `ids` has the graph of each node; graphs count from `start`.

    Errors: `InvalidError` with the row where graph ids decrease or have a gap.
    """
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or not len(ids):
        raise InvalidError(
            f"{where}: expected a whole number for each node, found {ids.dtype} {ids.shape}"
        )
    ids = ids.astype(np.int64)
    if ids[0] != start:
        why = ": graphs count from 0, or from 1 with `--one-based`" if ids[0] == 1 else ""
        raise InvalidError(f"{where}: row 0: graph {ids[0]}, expected {start}{why}")
    steps = np.diff(ids)
    if len(wrong := np.flatnonzero((steps < 0) | (steps > 1))):
        row = int(wrong[0])
        why = "nodes of a graph follow each other" if steps[row] < 0 else "no graph is left out"
        raise InvalidError(
            f"{where}: row {row + 1}: graph {ids[row + 1]} after graph {ids[row]}, expected "
            f"{ids[row]} or {ids[row] + 1}: {why}\nhint: sort the nodes by their graph, and number "
            "the graphs without gaps"
        )
    return np.append(0, np.flatnonzero(steps) + 1)


def whole_counts(counts: NDArray[Any], where: str) -> NDArray[np.int64]:
    """Checks numbers of nodes, or of edges, of each graph, and returns them as int64.

    Errors: `InvalidError` for anything but integers of 0 or more with a sum below 2^62.
    """
    if counts.dtype.kind not in "iu" or counts.ndim != 1:
        raise InvalidError(
            f"{where}: expected whole numbers [graphs], found {counts.dtype} {counts.shape}"
        )
    # The sum is in floats, because a sum of integers may overflow.
    if len(counts) and (counts.min() < 0 or counts.astype(np.float64).sum() >= 2.0**62):
        raise InvalidError(f"{where}: {counts.min()} to {counts.max()} cannot be counts")
    return counts.astype(np.int64)


def first_of_counts(counts: NDArray[Any], where: str) -> NDArray[np.int64]:
    """The first node of each graph, from the number of nodes of each graph.

    Errors: as `whole_counts`; `InvalidError` for a graph without nodes.
    """
    counts = whole_counts(counts, where)
    if len(empty := np.flatnonzero(counts < 1)):
        raise InvalidError(f"{where}: graph {empty[0]} has no nodes, expected one or more")
    return np.append(0, np.cumsum(counts[:-1]))


def labels_of(values: NDArray[Any], where: str, task: str | None = None) -> NDArray[Any]:
    """Labels of graphs in their stored form. The rules are those for labels of nodes.

    Shapes: `values` [graphs] or [graphs, columns]; result int64 classes [graphs], float32 [graphs,
    columns] of 0, 1 and NaN, or float64 numbers.
    Errors: `InvalidError` with the row of an invalid value.
    """
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.dtype.kind not in "iufb" or values.ndim not in (1, 2):
        raise InvalidError(f"{where}: expected numbers, found {values.dtype} {values.shape}")
    wide = values.astype(np.float64)
    if task is None and values.ndim == 1:
        task = "classification" if _are_classes(wide).all() else "regression"
    task = task or "multi-label"
    if task == "regression":
        _require(where, np.isnan(wide) | np.isfinite(wide), values, "finite numbers, or NaN")
        return wide
    if task == "classification":
        if values.ndim == 2:
            raise InvalidError(
                f"{where}: expected one class a graph, found {values.shape[1]} columns"
            )
        expected = "a class from 0 on, or none (-1, NaN)"
        _require(where, _are_classes(wide), values, expected)
        return np.where(np.isnan(wide), -1, wide).astype(np.int64)
    if values.ndim == 1:
        raise InvalidError(f"{where}: expected several labels a graph, found one column")
    known = np.isnan(wide) | np.isin(wide, (0, 1, -1))
    _require(where, known, values, "0, 1, or none (NaN, -1), or `--task regression`")
    return wide.astype(np.float32)


def class_numbers(values: NDArray[np.int64], what: str) -> tuple[NDArray[np.int64], list[str]]:
    """Converts integers to classes from 0, and returns a note if they change.

    Text formats name classes by any integers, such as -1 and 1, and cannot mark a missing label.
    """
    names, classes = np.unique(values, return_inverse=True)
    if np.array_equal(names, np.arange(len(names))):
        return values, []
    listed = ", ".join(str(name) for name in names[:10]) + (", ..." if len(names) > 10 else "")
    return classes.astype(np.int64), [f"{what}: classes {listed} are stored as 0, 1, ..."]


def _split_of(ids: NDArray[Any], graphs: int, where: str) -> NDArray[np.int64]:
    """Ids of graphs, from ids or a mask.

    Errors: `InvalidError` with the row of an id that is out of range or repeated.
    """
    if ids.dtype.kind == "b":
        if ids.shape != (graphs,):
            raise InvalidError(
                f"{where}: mask {ids.shape}, expected one for each of {graphs} graphs"
            )
        return np.flatnonzero(ids)
    ids = ids.reshape(-1).astype(np.int64)
    if len(wrong := np.flatnonzero((ids < 0) | (ids >= graphs))):
        raise InvalidError(
            f"{where}: row {wrong[0]}: graph {ids[wrong[0]]}, expected 0 to {graphs - 1}"
        )
    places = np.argsort(ids, kind="stable")
    if len(again := np.flatnonzero(np.diff(ids[places]) == 0)):
        row = int(places[again + 1].min())
        raise InvalidError(f"{where}: row {row}: graph {ids[row]} is there already")
    return ids


def require_inside(edges: list[EdgeSource], level: GraphLevel) -> None:
    """Checks before the import that no edge connects two graphs.

    Cost: reads the edges once, unless each graph numbers its nodes separately.
    Errors: `InvalidError` with the row of the first edge that connects two graphs.
    """
    for source in edges if not level.local_ids else ():
        row = 0
        for batch in source.batches(level.nodes):
            _require_one_graph(source, level, np.stack(batch).astype(np.int64), row)
            row += len(batch[0])


def _require_one_graph(
    source: EdgeSource, level: GraphLevel, ends: NDArray[np.int64], row: int
) -> None:
    """Errors: `InvalidError` for edges between two graphs; `row` is the row of the first edge."""
    outside = np.logical_or.reduce((ends < 0) | (ends >= level.nodes))
    graphs = np.searchsorted(level.first, ends, side="right") - 1
    if not len(wrong := np.flatnonzero(outside | (graphs[0] != graphs[1]))):
        return
    at = int(wrong[0])
    where, (u, v) = f"`{source.name}`: row {row + at}", ends[:, at] + source.first_id
    if outside[at]:
        end = level.nodes + source.first_id
        raise InvalidError(
            f"{where}: nodes {u} and {v}, expected less than {end}: the nodes that have a graph"
        )
    raise InvalidError(
        f"{where}: node {u} belongs to graph {graphs[0, at]}, node {v} to graph {graphs[1, at]}; "
        "expected both in one graph"
    )


def _are_classes(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    whole = (np.floor(values) == values) & (values >= -1) & (values < 2**31)
    return np.isnan(values) | whole


def _require(where: str, good: NDArray[np.bool_], values: NDArray[Any], expected: str) -> None:
    """Errors: `InvalidError` with the first value that is not `good`."""
    if not good.all():
        place = np.argwhere(~good)[0]
        column = f", column {place[1]}" if len(place) > 1 else ""
        raise InvalidError(
            f"{where}: row {place[0]}{column}: found {values[tuple(place)]}, expected {expected}"
        )


def open_graph_ids(text: str, reading: Reading) -> GraphLevel:
    """Opens the graphs of a file that has the graph of each node.

    Cost: reads the file; 8 bytes of memory per node.
    """
    ids = _all(open_rows(text, reading))
    first = first_nodes(ids, f"--graph-ids: `{text}`", int(reading.text.one_based))
    return GraphLevel(first, len(ids))


def read_labels(text: str, reading: Reading, task: str | None) -> NDArray[Any]:
    """Reads labels of graphs in their stored form; `reading.nodes` is the number of graphs.

    Errors: `InvalidError` unless the file has a row for each graph.
    """
    rows = open_rows(text, reading, missing="nan", absent=np.nan)
    values = _all(rows)
    if len(values) != reading.nodes:
        raise InvalidError(
            f"--labels: `{text}`: {len(values)} rows, expected {reading.nodes}: one for each graph"
        )
    return labels_of(values, f"--labels: `{text}`", task)


def read_splits(choice: SplitChoice, reading: Reading) -> dict[str, NDArray[np.int64]]:
    """Reads splits of graphs, by name; `reading.nodes` is the number of graphs."""
    graphs = reading.nodes or 0
    return {
        name: _split_of(_all(rows), graphs, f"--split: `{rows.name}`")
        for name, rows in open_choice(choice, reading)
    }


def _all(rows: RowSource) -> NDArray[Any]:
    empty = np.empty((0,) if rows.width is None else (0, rows.width), rows.dtype)
    return np.concatenate([empty, *rows.chunks()])
