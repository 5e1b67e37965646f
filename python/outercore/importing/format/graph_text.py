"""The text format of the graph sets that were published with the models GIN and DGCNN.

The first line is the number of graphs. Each graph begins with a line `nodes label`. Then follows a
line `tag neighbours n n n ...` for each node: its tag, the number of neighbours, their ids within
the graph, and the node's features, if any.

**Source** Xu et al., "How powerful are graph neural networks?", 2019; Zhang et al., 2018.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError, OutercoreError
from outercore.importing.edges import pushed
from outercore.importing.inputs import Inputs
from outercore.importing.many_graphs import GraphLevel, class_numbers, first_of_counts
from outercore.importing.options import ImportOptions
from outercore.importing.source import Format, GraphSource
from outercore.importing.table.file_state import states
from outercore.importing.table.rows import NodeArray, from_array
from outercore.importing.table.text import lines, suffix_of

_ARCS = 1 << 20
_TEXTS = (".txt", ".dat", "")


@dataclass(frozen=True)
class _OneGraph:
    label: int
    tags: list[int]
    degrees: list[int]
    neighbours: list[int]
    features: list[list[float]]


def is_graph_text(path: Path) -> bool:
    """Whether a text file begins like this format: a count, `nodes label`, and a first node.

    An edge list cannot begin so, because all its lines have the same number of fields.
    """
    if not path.is_file() or suffix_of(path) not in _TEXTS:
        return False
    try:
        head = [line.split() for line, _ in zip(lines(path), range(3), strict=False)]
        numbers = [[int(field) for field in fields[:2]] for fields in head]
    except (OutercoreError, ValueError):
        return False
    if [len(fields) for fields in numbers] != [1, 2, 2] or len(head[1]) != 2:
        return False
    (graphs,), (nodes, _), (_, degree) = numbers
    return graphs > 0 and nodes > 0 and 0 <= degree <= len(head[2]) - 2


def open_graph_text(path: Path, _: Inputs, _options: ImportOptions) -> GraphSource:
    """Opens the graphs of such a file. Each node gets an arc from each of its neighbours.

    The node array `tag` has the tags, and `x` the features, if any.

    Cost: reads the file once, and again during the import. Memory: 8 bytes per node, and 4 per
    feature value.
    Errors: `InvalidError` with the line that is wrong.
    """
    files = states(path)
    labels: list[int] = []
    counts: list[int] = []
    tags: list[NDArray[np.int64]] = []
    features: list[NDArray[np.float32]] = []
    for graph in _graphs(path):
        labels.append(graph.label)
        counts.append(len(graph.tags))
        tags.append(np.array(graph.tags, np.int64))
        features.append(np.array(graph.features, np.float32))
    first = first_of_counts(np.array(counts), f"`{path}`")
    classes, notes = class_numbers(np.array(labels, np.int64), f"`{path}`")
    arrays = [NodeArray("array", "tag", from_array(f"{path} (tags)", np.concatenate(tags)))]
    if features[0].size:
        rows = from_array(f"{path} (features)", np.concatenate(features))
        arrays.append(NodeArray("features", "x", rows))
    level = GraphLevel(first, sum(counts), {"y": classes}, local_ids=True)
    return GraphSource(
        [pushed(str(path), lambda: _arcs(path), files=files)],
        arrays,
        level.nodes,
        False,
        notes=[f"{path}: {level.count:,} graphs, {level.nodes:,} nodes in the form of GIN", *notes],
        graphs=level,
    )


def _arcs(path: Path) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    sources: list[NDArray[np.int64]] = []
    targets: list[NDArray[np.int64]] = []
    first = held = 0
    for graph in _graphs(path):
        nodes = len(graph.tags)
        sources.append(np.array(graph.neighbours, np.int64) + first)
        targets.append(np.repeat(np.arange(first, first + nodes), graph.degrees))
        first, held = first + nodes, held + len(graph.neighbours)
        if held >= _ARCS:
            yield np.concatenate(sources), np.concatenate(targets)
            sources, targets, held = [], [], 0
    if held:
        yield np.concatenate(sources), np.concatenate(targets)


def _graphs(path: Path) -> Iterator[_OneGraph]:
    """Reads and checks the graphs, one after the other.

    Errors: `InvalidError` with the line that is wrong, or if graphs are missing.
    """
    numbered = enumerate(lines(path), 1)
    count = _whole(path, numbered, 1, "the number of graphs")[0]
    width: int | None = None
    for _ in range(count):
        nodes, label = _whole(path, numbered, 2, "`nodes label` of the next graph")
        graph = _OneGraph(label, [], [], [], [])
        for _ in range(nodes):
            where, fields = _next(path, numbered, "a node")
            _add(where, fields, nodes, graph)
            own = len(graph.features[-1])
            width = own if width is None else width
            if width != own:
                raise InvalidError(
                    f"{where}: {own} features, expected {width} as of the first node"
                )
        yield graph
    for number, line in numbered:
        if line.strip():
            raise InvalidError(
                f"`{path}`: line {number}: expected the end after {count} graphs, found "
                f"`{line.strip()[:40]}`"
            )


def _add(where: str, fields: list[str], nodes: int, graph: _OneGraph) -> None:
    """Adds the node of a line to `graph`; `nodes` is the number of nodes of the graph.

    Errors: `InvalidError` for fields that are not numbers, and for neighbours outside the graph.
    """
    try:
        # Tags are stored as int64.
        tag, degree = int(np.int64(int(fields[0]))), int(fields[1])
        neighbours = list(map(int, fields[2 : 2 + max(degree, 0)]))
        features = [float(field) for field in fields[2 + max(degree, 0) :]]
    except (ValueError, IndexError, OverflowError):
        raise InvalidError(f"{where}: expected `tag neighbours n n ...` in numbers") from None
    if degree < 0 or len(neighbours) != degree:
        raise InvalidError(f"{where}: expected {degree} neighbours, found {len(neighbours)}")
    for node in neighbours:
        if not 0 <= node < nodes:
            raise InvalidError(
                f"{where}: neighbour {node}, expected 0 to {nodes - 1}: the nodes of the graph"
            )
    graph.tags.append(tag)
    graph.degrees.append(degree)
    graph.neighbours.extend(neighbours)
    graph.features.append(features)


def _whole(path: Path, numbered: Iterator[tuple[int, str]], count: int, what: str) -> list[int]:
    """The numbers of the next line; `what` describes it in messages.

    Errors: `InvalidError` unless it has `count` integers, the first above 0.
    """
    where, fields = _next(path, numbered, what)
    try:
        values = [int(np.int64(int(field))) for field in fields]
    except (ValueError, OverflowError):
        values = []
    if len(values) != count or values[0] < 1:
        raise InvalidError(f"{where}: expected {what}, found `{' '.join(fields)[:40]}`")
    return values


def _next(path: Path, numbered: Iterator[tuple[int, str]], what: str) -> tuple[str, list[str]]:
    """The place of the next line for messages, and its fields."""
    for number, line in numbered:
        return f"`{path}`: line {number}", line.split()
    raise InvalidError(f"`{path}`: the file ends where {what} is expected")


FORMAT = Format("a text of graphs", is_graph_text, open_graph_text)
