"""Heterogeneous node data sets of the Open Graph Benchmark, as they are downloaded."""

from __future__ import annotations

from pathlib import Path

from outercore.errors import InvalidError, NotFoundError
from outercore.graph import EdgeType, edge_type_key
from outercore.sources.edge_arrays import FEATURES
from outercore.sources.graph import NodeArray
from outercore.sources.ogb import COUNTS, PLAIN, TRIPLES, label_rows, split_arrays
from outercore.sources.rows import Reading, open_rows
from outercore.sources.table import FileSpec, TextTable
from outercore.sources.text import TextFile
from outercore.sources.typed.edges import EdgesOfType, edges_of_types
from outercore.sources.typed.graph import TypedSource
from outercore.sources.typed.tables import EdgeTable, NodeTable, require_type_name
from outercore.sources.unchanged import states

_NOT_DATA = ("num-edge-list.csv.gz", "edge.csv.gz", "edge_reltype.csv.gz")
"""What a relation has besides arrays: `edge_reltype` is one number for the whole relation."""


def open_hetero_layout(
    root: Path, split: str | None, *, add_reverse: bool, memory: int
) -> TypedSource:
    """The nodes, edges, features, labels and splits under `root/raw` and `root/split`.

    `node-feat` and `edge-feat` become features, other `node_NAME` and `edge_NAME` arrays.

    Errors: `NotFoundError` for an edge type without its file; `InvalidError` for several graphs or
    several types with labels.
    """
    raw = root / "raw"
    reading = Reading(PLAIN, None, memory=memory)
    nodes = _nodes(raw)
    tables = [_edges(raw, one, nodes) for one in _edge_types(raw)]
    edges, _ = edges_of_types(tables, nodes, add_reverse=add_reverse)
    arrays = [array for node_type in nodes for array in _of_nodes(raw, node_type, reading)]
    labelled = [array for array in arrays if array.role == "labels"]
    if len(labelled) > 1:
        types = ", ".join(str(array.of_type) for array in labelled)
        raise InvalidError(f"directory `{raw}/node-label`: labels of {types}, expected one type")
    for one in edges:
        arrays += _of_edges(raw, one, reading)
    if labelled:
        node_type = labelled[0].of_type
        assert node_type is not None
        arrays += [
            NodeArray("split", name, rows, node_type)
            for name, rows in split_arrays(root / "split", split, node_type)
        ]
    return TypedSource(
        nodes,
        edges,
        [],
        [],
        None,
        arrays,
        " ".join([str(root), str(add_reverse), *(one.identity for one in tables)]),
        [],
        [str(root)],
    )


def _rows_of_text(path: Path) -> list[list[str]]:
    """The fields of a short text without a header."""
    table = TextTable(TextFile.detect(path, "table", PLAIN))
    columns: list[list[str]] = [[] for _ in table.names]
    for batch in table.texts(list(table.names)):
        for column, values in zip(columns, batch, strict=True):
            column += values.to_pylist()
    return [list(row) for row in zip(*columns, strict=True)]


def _nodes(raw: Path) -> dict[str, NodeTable]:
    path = raw / COUNTS
    rows = _rows_of_text(path)
    if len(rows) != 2 or not all(count.isdecimal() for count in rows[1]):
        raise InvalidError(
            f"`{path}`: expected a line of node types and a line with the number of nodes of each; "
            "sets of many graphs are not read"
        )
    for name in rows[0]:
        require_type_name(f"`{path}`", name)
    counts = dict(zip(*rows, strict=True))
    if len(counts) != len(rows[0]):
        raise InvalidError(f"`{path}`: a node type is there twice")
    return {
        name: NodeTable(name, None, None, (), int(count)) for name, count in sorted(counts.items())
    }


def _edge_types(raw: Path) -> list[EdgeType]:
    path = raw / TRIPLES
    found: list[EdgeType] = []
    for row in _rows_of_text(path):
        if len(row) != 3:
            raise InvalidError(
                f"`{path}`: expected lines of source, relation and target, found {row}"
            )
        require_type_name(f"`{path}`", row[1])
        found.append((row[0], row[1], row[2]))
    return sorted(found, key=edge_type_key)


def _folder(raw: Path, edge_type: EdgeType) -> Path:
    return raw / "relations" / "___".join(edge_type)


def _edges(raw: Path, edge_type: EdgeType, nodes: dict[str, NodeTable]) -> EdgeTable:
    path = _folder(raw, edge_type) / "edge.csv.gz"
    for end in (edge_type[0], edge_type[2]):
        if end not in nodes:
            raise InvalidError(f"`{raw / TRIPLES}`: there is no node type `{end}`")
    if not path.exists():
        raise NotFoundError(f"file `{path}` is not there; `{TRIPLES}` names its edge type")
    table = TextTable(TextFile.detect(path, "table", PLAIN))
    if len(table.names) != 2:
        raise InvalidError(f"`{path}`: {len(table.names)} columns, expected source and target")
    source, target = table.names
    ends = (source,), (target,)
    return EdgeTable(edge_type, FileSpec(path, ()), table, *ends, (), states(path))


def _of_nodes(raw: Path, node_type: str, reading: Reading) -> list[NodeArray]:
    folder, found = raw / "node-feat" / node_type, []
    for path in sorted(folder.glob("node*.csv.gz")):
        name = path.name.removesuffix(".csv.gz")
        role, name = ("features", "x") if name == "node-feat" else ("array", name[len("node_") :])
        found.append(NodeArray(role, name, open_rows(FileSpec(path, ()), reading), node_type))  # type: ignore[arg-type]
    labels = raw / "node-label" / node_type / "node-label.csv.gz"
    if labels.exists():
        found.append(NodeArray("labels", "y", label_rows(labels), node_type))
    return found


def _of_edges(raw: Path, edges: EdgesOfType, reading: Reading) -> list[NodeArray]:
    given, found = edges.ends[0].table.edge_type, []
    for path in sorted(_folder(raw, given).glob("edge*.csv.gz")):
        if path.name in _NOT_DATA:
            continue
        name = path.name.removesuffix(".csv.gz")
        name = FEATURES if name == "edge-feat" else name[len("edge_") :]
        found.append(NodeArray("edge", name, open_rows(FileSpec(path, ()), reading), edges.key))
    return found
