"""Data sets of many graphs: which nodes belong to which graph, and arrays with a row a graph."""

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
    """The arrays with a row for each graph, and the first node of each.

    Shapes: `first` int64 [graphs]; `arrays` have a row a graph; `splits` int64 ids of graphs.
    """

    first: NDArray[np.int64]
    nodes: int
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    splits: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    local_ids: bool = False
    """Whether the input has ids within the graphs, so that no edge can connect two."""

    @property
    def count(self) -> int:
        """Number of graphs."""
        return len(self.first)

    def stored(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Every array with its key; `first`, which makes the data set one of many, comes last."""
        for name, values in self.arrays.items():
            yield PREFIX + name, values
        for name, ids in self.splits.items():
            yield SPLITS + name, ids
        yield FIRST, self.first


def first_nodes(ids: NDArray[Any], where: str, start: int = 0) -> NDArray[np.int64]:
    """The first node of each graph, from the graph of each node; graphs count from `start`.

    Errors: `InvalidError` with the row where the graph ids decrease, or leave a graph out.
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
    """Numbers of nodes, or of edges, of graphs.

    Errors: `InvalidError` for other than whole numbers, 0 or more, whose sum is a number of nodes.
    """
    if counts.dtype.kind not in "iu" or counts.ndim != 1:
        raise InvalidError(
            f"{where}: expected whole numbers [graphs], found {counts.dtype} {counts.shape}"
        )
    # As floats, since a sum of whole numbers wraps.
    if len(counts) and (counts.min() < 0 or counts.astype(np.float64).sum() >= 2.0**62):
        raise InvalidError(f"{where}: {counts.min()} to {counts.max()} cannot be counts")
    return counts.astype(np.int64)


def first_of_counts(counts: NDArray[Any], where: str) -> NDArray[np.int64]:
    """The first node of each graph, from the nodes of each graph.

    Errors: `InvalidError` for a graph without nodes, and for counts that cannot be.
    """
    counts = whole_counts(counts, where)
    if len(empty := np.flatnonzero(counts < 1)):
        raise InvalidError(f"{where}: graph {empty[0]} has no nodes, expected one or more")
    return np.append(0, np.cumsum(counts[:-1]))


def labels_of(values: NDArray[Any], where: str, task: str | None = None) -> NDArray[Any]:
    """Labels as the data set stores them, by the rules for labels of nodes.

    Shapes: `values` [graphs] or [graphs, columns]; result int64 classes [graphs], float32 [graphs,
    columns] of 0, 1 and NaN, or float64 numbers.
    Errors: `InvalidError` with the row of a value that does not fit.
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
    """Names of classes that are whole numbers, as classes from 0 on, and a note where they change.

    Text layouts name classes by any numbers, such as -1 and 1, and cannot mark a missing label.
    """
    names, classes = np.unique(values, return_inverse=True)
    if np.array_equal(names, np.arange(len(names))):
        return values, []
    listed = ", ".join(str(name) for name in names[:10]) + (", ..." if len(names) > 10 else "")
    return classes.astype(np.int64), [f"{what}: classes {listed} are stored as 0, 1, ..."]


def _split_of(ids: NDArray[Any], graphs: int, where: str) -> NDArray[np.int64]:
    """Ids of graphs, from ids or a mask.

    Errors: `InvalidError` with the row of an id that is out of range or comes twice.
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
    """Makes sure, before the import, that no edge connects two graphs.

    Cost: reads the edges once, unless their ids are within the graphs.
    Errors: `InvalidError` with the row of the first edge that does.
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
    """The graphs that a file with the graph of each node describes.

    Cost: reads the file; 8 bytes of memory a node.
    """
    ids = _all(open_rows(text, reading))
    first = first_nodes(ids, f"--graph-ids: `{text}`", int(reading.text.one_based))
    return GraphLevel(first, len(ids))


def read_labels(text: str, reading: Reading, task: str | None) -> NDArray[Any]:
    """Labels of graphs, as they are stored; `reading.nodes` is the number of graphs.

    Errors: `InvalidError` unless the file has a row for each.
    """
    rows = open_rows(text, reading, missing="nan", absent=np.nan)
    values = _all(rows)
    if len(values) != reading.nodes:
        raise InvalidError(
            f"--labels: `{text}`: {len(values)} rows, expected {reading.nodes}: one for each graph"
        )
    return labels_of(values, f"--labels: `{text}`", task)


def read_splits(choice: SplitChoice, reading: Reading) -> dict[str, NDArray[np.int64]]:
    """Splits of graphs by their names; `reading.nodes` is the number of graphs."""
    graphs = reading.nodes or 0
    return {
        name: _split_of(_all(rows), graphs, f"--split: `{rows.name}`")
        for name, rows in open_choice(choice, reading)
    }


def _all(rows: RowSource) -> NDArray[Any]:
    empty = np.empty((0,) if rows.width is None else (0, rows.width), rows.dtype)
    return np.concatenate([empty, *rows.chunks()])
