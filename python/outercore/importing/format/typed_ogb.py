"""Heterogeneous node data sets of the Open Graph Benchmark, as they are downloaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from outercore.data.edge_types import EdgeType, edge_type_key
from outercore.errors import InvalidError, NotFoundError
from outercore.files.file_spec import FileSpec
from outercore.importing.edge_arrays import FEATURES
from outercore.importing.format.layout import source_of_arrays
from outercore.importing.format.ogb import COUNTS, TRIPLES, label_rows, split_arrays
from outercore.importing.graph import ImportOptions, NodeArray
from outercore.importing.table.rows import Reading, RowSource, open_rows
from outercore.importing.table.table import TextTable
from outercore.importing.table.text import PLAIN, TextFile
from outercore.importing.typed.graph import TypedInputs, TypedSource
from outercore.importing.typed.tables import EdgeTable, require_type_name, text_of_edges

_NOT_DATA = ("num-edge-list.csv.gz", "edge.csv.gz", "edge_reltype.csv.gz")
"""What a relation has besides arrays: `edge_reltype` is one number for the whole relation."""


def open_hetero_layout(root: Path, inputs: TypedInputs, options: ImportOptions) -> TypedSource:
    """The nodes, edges, features, labels and splits under `root/raw` and `root/split`.

    `node-feat` and `edge-feat` become features, other `node_NAME` and `edge_NAME` arrays.

    Errors: `NotFoundError` for an edge type without its file; `InvalidError` for several graphs or
    several types with labels.
    """
    raw = root / "raw"
    reading = replace(inputs.reading(options), text=PLAIN)
    counts = _counts(raw)
    edge_types = _edge_types(raw, counts)
    arrays = [array for node_type in counts for array in _of_nodes(raw, node_type, reading)]
    labelled = [str(array.of_type) for array in arrays if array.role == "labels"]
    if len(labelled) > 1:
        raise InvalidError(
            f"directory `{raw}/node-label`: labels of {', '.join(labelled)}, expected one type"
        )
    for node_type in labelled:
        arrays += [
            NodeArray("split", name, rows, node_type)
            for name, rows in split_arrays(root / "split", inputs.ogb_split, node_type)
        ]
    of_edges = {one: _of_edges(raw, one, reading) for one in edge_types}
    tables = [_edges(raw, one) for one in edge_types]
    return source_of_arrays(root, inputs, options, counts, tables, arrays, of_edges, [])


def _rows_of_text(path: Path) -> list[list[str]]:
    """The fields of a short text without a header."""
    table = TextTable(TextFile.detect(path, "table", PLAIN))
    columns: list[list[str]] = [[] for _ in table.names]
    for batch in table.texts(list(table.names)):
        for column, values in zip(columns, batch, strict=True):
            column += values.to_pylist()
    return [list(row) for row in zip(*columns, strict=True)]


def _counts(raw: Path) -> dict[str, int]:
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
    return {name: int(count) for name, count in sorted(counts.items())}


def _edge_types(raw: Path, counts: dict[str, int]) -> list[EdgeType]:
    path = raw / TRIPLES
    found: list[EdgeType] = []
    for row in _rows_of_text(path):
        if len(row) != 3:
            raise InvalidError(
                f"`{path}`: expected lines of source, relation and target, found {row}"
            )
        require_type_name(f"`{path}`", row[1])
        for end in (row[0], row[2]):
            if end not in counts:
                raise InvalidError(f"`{path}`: there is no node type `{end}`")
        found.append((row[0], row[1], row[2]))
    return sorted(found, key=edge_type_key)


def _folder(raw: Path, edge_type: EdgeType) -> Path:
    return raw / "relations" / "___".join(edge_type)


def _edges(raw: Path, edge_type: EdgeType) -> EdgeTable:
    path = _folder(raw, edge_type) / "edge.csv.gz"
    if not path.exists():
        raise NotFoundError(f"file `{path}` is not there; `{TRIPLES}` names its edge type")
    return text_of_edges(edge_type, path)


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


def _of_edges(raw: Path, edge_type: EdgeType, reading: Reading) -> list[tuple[str, RowSource]]:
    found = []
    for path in sorted(_folder(raw, edge_type).glob("edge*.csv.gz")):
        if path.name in _NOT_DATA:
            continue
        name = path.name.removesuffix(".csv.gz")
        name = FEATURES if name == "edge-feat" else name[len("edge_") :]
        found.append((name, open_rows(FileSpec(path, ()), reading)))
    return found
