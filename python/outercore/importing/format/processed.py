"""Opens the data sets IGBH and MAG240M (of OGB-LSC): `processed/` with one array per file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outercore.data.edge_types import EdgeType
from outercore.errors import InvalidError, NotFoundError
from outercore.files.file_spec import FileSpec
from outercore.files.input_file import require_file
from outercore.importing.graph_tables import EdgeTable, array_of_edges
from outercore.importing.inputs import TypedInputs
from outercore.importing.labels import has_label, without_label
from outercore.importing.options import ImportOptions
from outercore.importing.source import Format, GraphSource
from outercore.importing.table.edge_array import EdgeArrayTable, EdgeShape
from outercore.importing.table.file_state import states
from outercore.importing.table.rows import (
    NodeArray,
    Reading,
    RowSource,
    count_rows,
    filled,
    from_array,
    open_rows,
)
from outercore.importing.table.table import Missing
from outercore.importing.table.text import suffix_of
from outercore.importing.table.torch_file import read_torch
from outercore.importing.typed_graph import source_of_arrays

_FEATURES = "node_feat.npy"
_IGB_LABELS = "node_label_19.npy"
_IGB_WIDTH = 1024
"""Number of feature columns in IGBH; its large files lack a header with the shape."""


def is_igb(root: Path) -> bool:
    """Whether a directory has the layout of IGBH."""
    return any(_relations(root, "__"))


def is_mag240m(root: Path) -> bool:
    """Whether a directory has the layout of MAG240M."""
    return any(_relations(root, "___"))


def _relations(root: Path, between: str) -> Iterator[tuple[EdgeType, Path]]:
    """The edge types, and their files."""
    for path in sorted((root / "processed").glob(f"*{between}*{between}*/edge_index.npy")):
        parts = path.parent.name.split("___" if "___" in path.parent.name else "__")
        if len(parts) == 3 and ("___" in path.parent.name) == (between == "___"):
            yield (parts[0], parts[1], parts[2]), path


def open_igb(root: Path, inputs: TypedInputs, options: ImportOptions) -> GraphSource:
    """Opens the graph in a directory of IGBH.

    Labels are the 19 classes; `--label paper=FILE` gives other labels. Without `--split`, the first
    60 % of the labelled nodes are for training, the next 20 % for validation, and the rest for the
    test. The loader of IGB does the same.

    Errors: `NotFoundError` for a node type without features, which give the number of its nodes.
    """
    reading = inputs.reading(options)
    tables = _edges(root, "__", "E,2")
    arrays, counts, notes = list[NodeArray](), dict[str, int](), list[str]()
    for node_type in _types(tables):
        path = root / "processed" / node_type / _FEATURES
        if not path.exists():
            raise NotFoundError(
                f"file `{path}` is not there; it says how many nodes of type `{node_type}` "
                "there are"
            )
        rows = _igb_rows(FileSpec(path, ()), _IGB_WIDTH, reading)
        counts[node_type] = count_rows(rows)
        arrays.append(NodeArray("features", "x", rows, node_type))
    own = ((one, root / "processed" / one / _IGB_LABELS) for one in counts)
    labels = {one: FileSpec(path, ()) for one, path in own if path.exists()}
    given, _, file = (inputs.label or "").partition("=")
    if file and given in counts and not inputs.splits.is_given:
        labels = {given: FileSpec.parse(file)}
        inputs = replace(inputs, label=None)
    for node_type, spec in labels.items():
        missing, absent = without_label(options.task)
        rows = _igb_rows(spec, None, replace(reading, fill=None), missing, absent)
        arrays.append(NodeArray("labels", "y", rows, node_type))
        arrays += _in_order(rows, node_type, options.task)
        notes.append(f"labels: `{spec}`; splits in the order of the nodes, 60, 20 and 20 %")
    return source_of_arrays(root, inputs, options, counts, tables, arrays, notes)


def _igb_rows(
    spec: FileSpec,
    width: int | None,
    reading: Reading,
    missing: Missing = "nan",
    absent: float | None = None,
) -> RowSource:
    """The rows of a file. A `.npy` file without a header holds float32 of `width` columns."""
    path = spec.path
    if suffix_of(path) != ".npy" or _has_header(path):
        return open_rows(spec, reading, missing=missing, absent=absent)
    bytes_a_row = 4 * (width or 1)
    size = path.stat().st_size
    if size % bytes_a_row:
        raise InvalidError(
            f"array `{path}`: {size:,} bytes without a header, expected rows of {bytes_a_row:,} "
            "bytes\nhint: the copy was cut short; copy it again"
        )
    shape = (size // bytes_a_row, *([] if width is None else [width]))
    values = np.memmap(path, np.float32, "r", shape=shape) if size else np.empty(shape, np.float32)
    return filled(
        replace(from_array(str(path), values), files=states(path), keeps_form=True), reading.fill
    )


def _has_header(path: Path) -> bool:
    require_file(path, "array")
    with path.open("rb") as file:
        return file.read(6) == b"\x93NUMPY"


def _in_order(labels: RowSource, node_type: str, task: str | None) -> list[NodeArray]:
    """Splits of the labelled nodes, in their order: 60 % train, 20 % valid, the rest test.

    Cost: reads the labels once, and once more for each split.
    """
    count = sum(int(np.count_nonzero(has_label(chunk, task))) for chunk in labels.chunks())
    train, valid = int(0.6 * count), int(0.2 * count)
    bounds = {"train": (0, train), "valid": (train, train + valid), "test": (train + valid, count)}
    return [
        NodeArray("split", name, _labelled(name, labels, range(*own), task), node_type)
        for name, own in bounds.items()
    ]


def _labelled(name: str, labels: RowSource, own: range, task: str | None) -> RowSource:
    """The split `name`: the labelled nodes at the places `own` among all labelled nodes."""

    def chunks() -> Iterator[NDArray]:
        first = place = 0
        for chunk in labels.chunks():
            nodes = first + np.flatnonzero(has_label(chunk, task))
            part = nodes[max(own.start - place, 0) : max(own.stop - place, 0)]
            if len(part):
                yield part
            first += len(chunk)
            place += len(nodes)

    return RowSource(f"split `{name}`", np.dtype(np.int64), chunks, count=len(own))


def open_mag240m(root: Path, inputs: TypedInputs, options: ImportOptions) -> GraphSource:
    """Opens the graph in a directory of MAG240M: `processed/`, `meta.pt` and `split_dict.pt`.

    Errors: `NotFoundError` if `meta.pt` is missing; `InvalidError` for a node type without a number
    of nodes, and for a split that does not hold ids.
    """
    reading = inputs.reading(options)
    tables = _edges(root, "___", "2,E")
    meta = root / "meta.pt"
    if not meta.exists():
        raise NotFoundError(f"file `{meta}` is not there; it says how many nodes there are")
    described = read_torch(meta)
    counts, arrays = dict[str, int](), list[NodeArray]()
    labelled = None
    for node_type in _types(tables):
        count = described.get(node_type) if isinstance(described, dict) else None
        if type(count) is not int or not 0 <= count < 2**63:
            raise InvalidError(f"file `{meta}`: no number of nodes of type `{node_type}`")
        counts[node_type] = count
        for path in sorted((root / "processed" / node_type).glob("node_*.npy")):
            name = path.stem.removeprefix("node_")
            # `--fill` applies only to features.
            own = replace(reading, fill=None) if name == "label" else reading
            rows = open_rows(FileSpec(path, ()), own)
            if name == "feat":
                arrays.append(NodeArray("features", "x", rows, node_type))
            elif name == "label":
                labelled = node_type
                arrays.append(NodeArray("labels", "y", rows, node_type))
            else:
                arrays.append(NodeArray("array", name, rows, node_type))
    if labelled is not None:
        arrays += _mag_splits(root / "split_dict.pt", labelled)
    return source_of_arrays(root, inputs, options, counts, tables, arrays, [])


def _mag_splits(path: Path, node_type: str) -> list[NodeArray]:
    if not path.exists():
        return []
    found = read_torch(path)
    if not isinstance(found, dict):
        raise InvalidError(f"file `{path}`: expected splits by name, found {type(found).__name__}")
    splits = []
    for name, ids in found.items():
        where = f"split `{name}` in `{path}`"
        is_list = isinstance(ids, list) and all(type(one) is int for one in ids)
        if not (is_list or isinstance(ids, np.ndarray)):
            raise InvalidError(f"{where}: expected ids [nodes], found {type(ids).__name__}")
        splits.append(NodeArray("split", str(name), from_array(where, np.asarray(ids)), node_type))
    return splits


def _edges(root: Path, between: str, shape: EdgeShape) -> list[EdgeTable]:
    tables = []
    for edge_type, path in _relations(root, between):
        tables.append(array_of_edges(edge_type, EdgeArrayTable.open(FileSpec(path, ()), shape)))
    return sorted(tables, key=lambda one: one.key)


def _types(tables: list[EdgeTable]) -> list[str]:
    return sorted({end for one in tables for end in (one.edge_type[0], one.edge_type[2])})


MAG240M = Format("a directory of MAG240M", is_mag240m, open_mag240m)
IGB = Format("a directory of IGBH", is_igb, open_igb)
