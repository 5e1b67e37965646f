"""Open Graph Benchmark node data sets as they are downloaded, before OGB's own processing."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from outercore.errors import InvalidError, NotFoundError
from outercore.sources.edges import npz_edges, open_edges
from outercore.sources.graph import GraphSource, NodeArray
from outercore.sources.npz import member_names, open_member
from outercore.sources.rows import FileSpec, RowSource, csv_batches, csv_rows, npz_rows
from outercore.sources.splits import as_ids

_SPLITS = ("train", "valid", "test")


def is_layout(root: Path) -> bool:
    """Whether `root` looks like a raw OGB node data set."""
    return (root / "raw" / "edge.csv.gz").exists() or (root / "raw" / "data.npz").exists()


def open_layout(root: Path, split: str | None = None) -> GraphSource:
    """The edges, features, labels and splits under `root/raw` and `root/split`.

    Both layouts: text (`edge.csv.gz`, `node-feat.csv.gz`, `node-label.csv.gz`) and the archives
    of the large ones (`data.npz`, `node-label.npz`). `split` names the folder under `split`,
    which may be left out where there is one.

    Errors: `NotFoundError` where `root` is neither.
    """
    raw = root / "raw"
    if (raw / "data.npz").exists():
        source = _archives(raw)
    elif (raw / "edge.csv.gz").exists():
        source = _texts(raw)
    else:
        raise NotFoundError(
            f"directory `{root}`: expected an OGB node data set with `raw/edge.csv.gz` or "
            "`raw/data.npz`"
        )
    source.arrays.extend(_splits(root / "split", split))
    return source


def _texts(raw: Path) -> GraphSource:
    arrays = []
    features, labels = raw / "node-feat.csv.gz", raw / "node-label.csv.gz"
    if features.exists():
        arrays.append(NodeArray("features", "x", csv_rows(FileSpec(features, ()))))
    if labels.exists():
        arrays.append(NodeArray("labels", "y", csv_rows(FileSpec(labels, ()))))
    nodes = None
    counts = raw / "num-node-list.csv.gz"
    if counts.exists():
        nodes = int(next(csv_batches(FileSpec(counts, ()), 1))[0][0])
    return GraphSource([open_edges(str(raw / "edge.csv.gz"))], arrays, nodes)


def _archives(raw: Path) -> GraphSource:
    data = raw / "data.npz"
    names = member_names(data)
    if "edge_index" not in names:
        raise InvalidError(
            f"archive `{data}`: expected `edge_index`, found {', '.join(names)}\n"
            "hint: heterogeneous graphs cannot be imported yet"
        )
    arrays = []
    if "node_feat" in names:
        arrays.append(NodeArray("features", "x", npz_rows(open_member(data, ("node_feat",)))))
    labels = raw / "node-label.npz"
    if labels.exists():
        arrays.append(NodeArray("labels", "y", npz_rows(open_member(labels, ("node_label",)))))
    nodes = None
    if "num_nodes_list" in names:
        nodes = int(next(open_member(data, ("num_nodes_list",)).values(1))[0])
    return GraphSource([npz_edges(open_member(data, ("edge_index",)))], arrays, nodes)


def _splits(directory: Path, split: str | None) -> list[NodeArray]:
    if not directory.exists():
        return []
    folders = sorted(item.name for item in directory.iterdir() if item.is_dir())
    if split is None:
        if len(folders) != 1:
            raise InvalidError(
                f"splits `{directory}`: found {', '.join(folders) or 'none'}\n"
                "hint: choose one by `--ogb-split NAME`"
            )
        split = folders[0]
    elif split not in folders:
        raise NotFoundError(f"splits `{directory}`: no `{split}`; there is {', '.join(folders)}")
    found = []
    for name in _SPLITS:
        path = directory / split / f"{name}.csv.gz"
        if path.exists():
            found.append(NodeArray("split", name, _ids(path)))
    return found


def _ids(path: Path) -> RowSource:
    return as_ids(csv_rows(FileSpec(path, ()), np.dtype(np.float64)))
