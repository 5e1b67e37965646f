"""Opens node data sets of the Open Graph Benchmark: the raw files, before OGB processes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.base.listing import listed
from outercore.base.shell import quoted
from outercore.data.edge_types import EdgeType, edge_type_key
from outercore.data.split_names import KNOWN
from outercore.errors import InvalidError, NotFoundError, UnsupportedError
from outercore.files.file_spec import FileSpec
from outercore.importing.edge_arrays import FEATURES
from outercore.importing.edges import npz_edges, text_edges
from outercore.importing.format.download import CACHE, download_errors, library
from outercore.importing.graph_tables import EdgeTable, require_type_name, text_of_edges
from outercore.importing.inputs import Inputs, TypedInputs
from outercore.importing.options import ImportOptions
from outercore.importing.source import Format, GraphSource
from outercore.importing.table.file_state import states
from outercore.importing.table.foreign import refuse_foreign
from outercore.importing.table.npz import member_names, open_member, read_member
from outercore.importing.table.rows import NodeArray, Reading, RowSource, npz_rows, open_rows
from outercore.importing.table.text import PLAIN, TextTable
from outercore.importing.typed_graph import source_of_arrays

_INT64 = np.dtype(np.int64)
_LINK_SPLITS = {f"{name}.pt" for name in KNOWN}
"""A folder of held-out edges, as in ogbl-citation2."""
COUNTS, TRIPLES = "num-node-dict.csv.gz", "triplet-type-list.csv.gz"
_TYPED = (TRIPLES, COUNTS, "relations")
"""Parts of the raw folder of a heterogeneous data set."""
_READ = (
    "edge.csv.gz",
    "node-feat.csv.gz",
    "node-label.csv.gz",
    "edge-feat.csv.gz",
    "num-node-list.csv.gz",
    "num-edge-list.csv.gz",
)
_READ_ARCHIVES = ("data.npz", "node-label.npz")
_READ_MEMBERS = ("edge_index", "node_feat", "edge_feat", "num_nodes_list", "num_edges_list")
"""Files of a raw folder that are read, or that only count edges."""
_BOTH_WAYS = ("products", "proteins", "ogbn_products", "ogbn_proteins")
"""Folders of data sets whose files hold each edge once (OGB's `add_inverse_edge`)."""


def is_hetero_layout(root: Path) -> bool:
    """Whether `root` looks like a heterogeneous OGB data set in text, such as `ogbn-mag`."""
    return (root / "raw" / COUNTS).exists() and (root / "raw" / TRIPLES).exists()


def open_layout(root: Path, inputs: Inputs, _: ImportOptions) -> GraphSource:
    """Opens the edges, features, labels and splits under `root/raw` and `root/split`.

    There are two layouts: text (`edge.csv.gz`, `node-feat.csv.gz`, `node-label.csv.gz`), and
    archives for large data sets (`data.npz`, `node-label.npz`). `--ogb-split` is the folder under
    `split`; if there is only one folder, it is the default. The name of `root` tells whether OGB
    adds reverse edges (`add_inverse_edge`).

    Errors: `NotFoundError` if `root` has neither layout; `InvalidError` for an incomplete
    heterogeneous data set.
    """
    raw = root / "raw"
    refuse_foreign(root)
    typed = next((name for name in _TYPED if (raw / name).exists()), None)
    if typed is not None:
        raise InvalidError(
            f"directory `{root}`: a heterogeneous OGB data set by `raw/{typed}`, expected "
            f"`raw/{_TYPED[0]}` and `raw/{_TYPED[1]}`"
        )
    undirected = True if root.resolve().name in _BOTH_WAYS else None
    if (raw / "data.npz").exists():
        source = _archives(raw, undirected)
    elif (raw / "edge.csv.gz").exists():
        source = _texts(raw, undirected)
    else:
        raise NotFoundError(
            f"directory `{root}`: expected an OGB node data set with `raw/edge.csv.gz` or "
            "`raw/data.npz`, a TU set with `NAME_graph_indicator.txt`, or `.parquet` files"
        )
    source.arrays.extend(
        NodeArray("split", name, rows)
        for name, rows in _split_arrays(root / "split", inputs.ogb_split)
    )
    source.notes.extend(_not_read(root, inputs.ogb_split))
    if undirected:
        source.notes.append(
            f"{root}: the files hold each edge once, and it counts in both directions"
        )
    return source


def _not_read(root: Path, split: str | None) -> list[str]:
    """Notes that name the ignored files and arrays."""
    raw = root / "raw"
    known = _READ_ARCHIVES if (raw / "data.npz").exists() else _READ
    others = [f"raw/{path.name}" for path in sorted(raw.iterdir()) if path.name not in known]
    if (raw / "data.npz").exists():
        names = member_names(raw / "data.npz")
        others += [f"raw/data.npz:{name}" for name in names if name not in _READ_MEMBERS]
    taken = [f"{name}.csv.gz" for name in KNOWN]
    folders = [root / "split" / split] if split else sorted((root / "split").glob("*"))
    notes = []
    for folder in folders:
        paths = sorted(folder.iterdir()) if folder.is_dir() else [folder]
        if {path.name for path in paths} == _LINK_SPLITS:
            notes.append(
                f"{folder}: held-out edges, which `outercore train --task link` takes by "
                f"`--set link.edges={quoted(folder)}`"
            )
            continue
        others += [str(path.relative_to(root)) for path in paths if path.name not in taken]
    if not others:
        return notes
    return [
        *notes,
        f"{root}: not read: {listed(others)} (take them by --array NAME=FILE, --edge-time FILE, "
        "--split NAME=FILE and the like)",
    ]


def _texts(raw: Path, undirected: bool | None) -> GraphSource:
    arrays = []
    features, labels = raw / "node-feat.csv.gz", raw / "node-label.csv.gz"
    if features.exists():
        arrays.append(NodeArray("features", "x", _numbers(features)))
    if labels.exists():
        arrays.append(NodeArray("labels", "y", _label_rows(labels)))
    edge_features = raw / "edge-feat.csv.gz"
    if edge_features.exists():
        arrays.append(NodeArray("edge", FEATURES, _numbers(edge_features)))
    nodes = None
    counts = raw / "num-node-list.csv.gz"
    if counts.exists():
        table = _table(counts)
        rows = table.numbers(table.names[:1], _INT64, "nan")
        sizes = np.concatenate([np.empty((0, 1), np.int64), *rows])
        nodes = _of_one_graph(f"`{counts}`", sizes)
    edges = text_edges(FileSpec(raw / "edge.csv.gz", ()), "text", PLAIN)
    return GraphSource([edges], arrays, nodes, undirected)


def _of_one_graph(where: str, counts: NDArray[Any]) -> int:
    """The number of nodes from `counts`, which must have one value.

    Errors: `UnsupportedError` for data of many graphs, whose ids start at 0 in each graph.
    """
    if counts.size == 1 and (counts.dtype.kind not in "iu" or counts.ravel()[0] < 0):
        raise InvalidError(f"{where}: expected a number of nodes, found {counts.ravel()[0]!s:.40}")
    if counts.size != 1:
        raise UnsupportedError(
            f"{where}: the sizes of {counts.size:,} graphs, expected one graph\n"
            "hint: `ogbg-...` is not read; write its edges, and the graph of each node, as arrays: "
            "`--graph-ids`"
        )
    return int(counts.ravel()[0])


def _table(path: Path) -> TextTable:
    return TextTable.detect(path, "table", PLAIN)


def _numbers(path: Path) -> RowSource:
    """The rows as float32, the type from which OGB wrote them."""
    table, dtype = _table(path), np.dtype(np.float32)
    rows = partial(table.numbers, table.names, dtype, "nan")
    return RowSource(str(path), dtype, rows, width=table.width, files=states(path))


def _label_rows(path: Path) -> RowSource:
    """Classes, or a column for each of several tasks. Empty and `nan` mean a missing label.

    In batches, a single column has OGB's form: [n, 1], and integers if no label is missing.
    """
    table, files = _table(path), states(path)
    names = table.names
    dtype: np.dtype = np.dtype(np.float64)
    if len(names) > 1:
        rows = partial(table.numbers, names, dtype, "nan")
        return RowSource(str(path), dtype, rows, width=len(names), files=files)
    if table.dtype(names[0]) == _INT64 and not table.missing(names[0]):
        dtype = _INT64

    def chunks() -> Iterator[NDArray[Any]]:
        return (rows[:, 0].copy() for rows in table.numbers(names, dtype, "nan"))

    return RowSource(str(path), dtype, chunks, files=files, keeps_form=True, is_column=True)


def _archives(raw: Path, undirected: bool | None) -> GraphSource:
    data = raw / "data.npz"
    names = member_names(data)
    if "edge_index" not in names:
        raise UnsupportedError(
            f"archive `{data}`: expected `edge_index`, found {', '.join(names)}\n"
            "hint: heterogeneous graphs cannot be imported yet"
        )
    arrays = []
    if "node_feat" in names:
        arrays.append(NodeArray("features", "x", npz_rows(open_member(data, ("node_feat",)))))
    if "edge_feat" in names:
        rows = npz_rows(open_member(data, ("edge_feat",)))
        arrays.append(NodeArray("edge", FEATURES, rows))
    labels = raw / "node-label.npz"
    if labels.exists():
        arrays.append(NodeArray("labels", "y", npz_rows(open_member(labels, ("node_label",)))))
    nodes = None
    if "num_nodes_list" in names:
        nodes = _of_one_graph(f"`{data}:num_nodes_list`", read_member(data, "num_nodes_list"))
    edges = npz_edges(open_member(data, ("edge_index",)), "2,E")
    return GraphSource([edges], arrays, nodes, undirected)


def _split_arrays(
    directory: Path, split: str | None, node_type: str = ""
) -> list[tuple[str, RowSource]]:
    """Node ids for training, validation and test, from the folder `split` of `directory`.

    `split` may be `None` if there is only one folder. With several types, `node_type` is a folder
    in it.

    Errors: `NotFoundError` for a missing folder; `InvalidError` if several fit.
    """
    if not directory.exists():
        if split is not None:
            raise NotFoundError(
                f"--ogb-split: no directory `{directory}`, expected `{split}` in it"
            )
        return []
    folders = sorted(item.name for item in directory.iterdir() if item.is_dir())
    if split is None:
        if not folders:
            return []
        if len(folders) > 1:
            raise InvalidError(
                f"splits `{directory}`: found {', '.join(folders)}\n"
                "hint: choose one by `--ogb-split NAME`"
            )
        split = folders[0]
    elif split not in folders:
        raise NotFoundError(f"splits `{directory}`: no `{split}`; there is {', '.join(folders)}")
    found = []
    for name in KNOWN:
        path = directory / split / node_type / f"{name}.csv.gz"
        if path.exists():
            found.append((name, _ids(path)))
    return found


def _ids(path: Path) -> RowSource:
    """Node ids, one per line. The file may be empty."""

    def chunks() -> Iterator[NDArray[np.int64]]:
        table = _table(path)
        if table.width == 1:
            for rows in table.numbers(table.names, _INT64, "nan"):
                yield rows[:, 0].copy()

    return RowSource(str(path), _INT64, chunks, files=states(path))


_NOT_DATA = ("num-edge-list.csv.gz", "edge.csv.gz", "edge_reltype.csv.gz")
"""Files of a relation that are not arrays; `edge_reltype` is one number for the whole relation."""


def open_hetero_layout(root: Path, inputs: TypedInputs, options: ImportOptions) -> GraphSource:
    """Opens the nodes, edges, features, labels and splits under `root/raw` and `root/split`.

    `node-feat` and `edge-feat` become features. Other files `node_NAME` and `edge_NAME` become
    arrays.

    Errors: `NotFoundError` for an edge type without its file; `InvalidError` for several graphs or
    several types with labels.
    """
    raw = root / "raw"
    reading = replace(inputs.reading(options), text=PLAIN)
    counts = _counts(raw)
    edge_types = _edge_types(raw, counts)
    arrays = [array for node_type in counts for array in _of_nodes(raw, node_type, reading)]
    labelled = [str(array.of_type) for array in arrays if array.role == "labels"]
    for node_type in labelled:
        arrays += [
            NodeArray("split", name, rows, node_type)
            for name, rows in _split_arrays(root / "split", inputs.ogb_split, node_type)
        ]
    arrays += [array for one in edge_types for array in _of_edges(raw, one, reading)]
    tables = [_edges(raw, one) for one in edge_types]
    return source_of_arrays(root, inputs, options, counts, tables, arrays, [])


def _rows_of_text(path: Path) -> list[list[str]]:
    """The fields of each line of a short text without a header."""
    table = _table(path)
    columns: list[list[str]] = [[] for _ in table.names]
    for batch in table.texts(table.names):
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
        found.append(NodeArray("labels", "y", _label_rows(labels), node_type))
    return found


def _of_edges(raw: Path, edge_type: EdgeType, reading: Reading) -> list[NodeArray]:
    found = []
    for path in sorted(_folder(raw, edge_type).glob("edge*.csv.gz")):
        if path.name in _NOT_DATA:
            continue
        name = path.name.removesuffix(".csv.gz")
        name = FEATURES if name == "edge-feat" else name[len("edge_") :]
        rows = open_rows(FileSpec(path, ()), reading)
        found.append(NodeArray("edge", name, rows, edge_type_key(edge_type)))
    return found


def directory_of(name: str) -> Path:
    """The directory of the raw files of an OGB data set, which is downloaded if necessary.

    Errors: `UnsupportedError` if OGB is not installed; `NotFoundError` for an unknown name;
    `DeviceError` if the download fails.
    """
    directory = CACHE.expanduser() / "ogb"
    ogb = library("ogb.nodeproppred", "ogb", "pip install ogb")
    urls = library("ogb.utils.url", "ogb", "pip install ogb")
    import pyarrow.csv

    table = pyarrow.csv.read_csv(Path(ogb.__file__).with_name("master.csv")).to_pydict()
    known = [key for key in table if key]
    if name not in known:
        raise NotFoundError(f"OGB has no node data set `{name}`; it has {', '.join(known)}")
    described = dict(zip(next(iter(table.values())), table[name], strict=True))
    unpacked = directory / described["download_name"]
    if not (unpacked / "raw").exists():
        directory.mkdir(parents=True, exist_ok=True)
        with download_errors(f"ogb:{name}"):
            archive = urls.download_url(described["url"], str(directory))
            urls.extract_zip(archive, str(directory))
    return unpacked


FORMAT = Format("a data set of OGB", Path.is_dir, open_layout, ("ogb_split",))
TYPED = Format(
    "a heterogeneous data set of OGB", is_hetero_layout, open_hetero_layout, ("ogb_split",)
)
