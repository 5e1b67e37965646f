"""Directories of GraphBolt's `OnDiskDataset`: `metadata.yaml` and the files that it names.

**Source** The "YAML specification" of `metadata.yaml` in the documentation of DGL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.base.listing import listed
from outercore.data.batch_arrays import RESERVED
from outercore.errors import InvalidError, UnsupportedError
from outercore.files.file_spec import FileSpec
from outercore.files.npy import open_npy
from outercore.importing.edge_arrays import FEATURES
from outercore.importing.edges import open_edges
from outercore.importing.format.description import (
    Entry,
    count_of,
    described_file,
    read_yaml,
    shortened,
)
from outercore.importing.graph_tables import EdgeTable, array_of_edges, text_of_edges
from outercore.importing.inputs import Inputs, TypedInputs
from outercore.importing.options import ImportOptions
from outercore.importing.source import Format, GraphSource
from outercore.importing.table.edge_array import EdgeArrayTable
from outercore.importing.table.file_state import states
from outercore.importing.table.rows import (
    NodeArray,
    Reading,
    RowSource,
    filled,
    from_array,
    open_rows,
)
from outercore.importing.table.text import PLAIN
from outercore.importing.table.torch_file import read_torch
from outercore.importing.typed_graph import source_of_arrays

DESCRIPTION = "metadata.yaml"

_MAIN = ("feat", "feature", "features", "x")
_LABELS = ("label", "labels")
_SETS = (("train", "train_set"), ("valid", "validation_set"), ("test", "test_set"))
_SEEDS = ("seeds", "seed_nodes")
_ARRAYS = ("numpy", "torch")
_STEP = 1 << 20


@dataclass(frozen=True)
class Part:
    """An entry that names a file: edges, a feature, or a column of a split."""

    kind: str
    """Node type, or edge type as `source:relation:target`; empty in a graph without types."""
    name: str
    format: str
    path: Path


@dataclass(frozen=True)
class Description:
    """The content of `metadata.yaml`."""

    path: Path
    counts: dict[str, int]
    edges: list[Part]
    node_data: list[Part]
    edge_data: list[Part]
    sets: dict[str, list[Part]]
    """The columns of each split of the first task whose seeds are nodes."""
    notes: list[str]

    @property
    def is_typed(self) -> bool:
        """Whether nodes have types."""
        return list(self.counts) != [""]


def is_graphbolt(root: Path) -> bool:
    """Whether a directory has the description of an `OnDiskDataset`."""
    return (root / DESCRIPTION).is_file()


def read_description(root: Path, *, outside: bool = False) -> Description:
    """Reads the description of a directory; `outside` as in `described_file`.

    Errors: `InvalidError` names the entry; `NotFoundError` names a missing file;
    `UnsupportedError` for a directory that GraphBolt has processed.
    """
    top = read_yaml(root / DESCRIPTION)
    graph, counts = _graph(top)
    edges = [_part(root, one, ("csv", "numpy"), outside=outside) for one in graph["edges"].items()]
    # GraphBolt's samplers use the features under `graph`, and models use the other features.
    data: dict[str, list[Part]] = {"node": [], "edge": [], "graph": []}
    for entry in (*top["feature_data"].items(), *graph["feature_data"].items()):
        _add_feature(root, data, entry, outside=outside)
    sets, notes = _sets(root, top, outside=outside)
    if data["graph"]:
        notes.append(f"{top.where}: features of the whole graph are left out")
    found = Description(root / DESCRIPTION, counts, edges, data["node"], data["edge"], sets, notes)
    _require_kinds(found)
    return found


def is_typed_graphbolt(root: Path) -> bool:
    """Whether a directory has GraphBolt's format, with node types. Checks only the types.

    Errors: `InvalidError`, `UnsupportedError` as `read_description`.
    """
    return is_graphbolt(root) and list(_graph(read_yaml(root / DESCRIPTION))[1]) != [""]


def _graph(top: Entry) -> tuple[Entry, dict[str, int]]:
    """The entry `graph`, and the number of nodes of each type."""
    if "graph" not in top.fields():
        if "graph_topology" in top.fields():
            raise UnsupportedError(
                f"{top.where}: describes what GraphBolt has processed, which is not read\n"
                "hint: import the directory above it"
            )
        raise InvalidError(
            f"{top.where}: no `graph`, expected the description of an `OnDiskDataset`"
        )
    graph, counts = top["graph"], dict[str, int]()
    for entry in graph["nodes"].items():
        name = _kind(entry)
        if name in counts:
            raise InvalidError(
                f"{entry.where}: expected a new type, found `{shortened(name)}` again"
            )
        counts[name] = count_of(entry["num"].text(), entry["num"].where)
    if not counts:
        raise InvalidError(f"{top.where}: expected `nodes`, found none")
    return graph, counts


def _kind(entry: Entry) -> str:
    kind = entry["type"]
    return "" if kind.is_empty or kind.value in ("null", "~") else kind.text()


def _part(root: Path, entry: Entry, formats: tuple[str, ...], *, outside: bool) -> Part:
    """The file that an entry names; edges have no `name`."""
    path = described_file(root, entry["path"].text(), entry.where, outside=outside)
    form = entry["format"].text()
    if form not in formats:
        raise InvalidError(
            f"{entry.where}: format {' or '.join(formats)} expected, found `{shortened(form)}`"
        )
    name = "" if "csv" in formats else entry["name"].text()
    return Part(_kind(entry), name, form, path)


def _add_feature(root: Path, data: dict[str, list[Part]], entry: Entry, *, outside: bool) -> None:
    """Adds a feature of nodes, edges or the whole graph to `data`. Equal entries count once.

    Errors: `InvalidError` for another domain, and for two files for one feature.
    """
    part = _part(root, entry, _ARRAYS, outside=outside)
    domain = entry.fields().get("domain")
    if not isinstance(domain, str) or domain not in data:
        raise InvalidError(
            f"{entry.where}: domain node, edge or graph expected, found `{shortened(domain)}`"
        )
    if part in data[domain]:
        return
    if any((one.kind, one.name) == (part.kind, part.name) for one in data[domain]):
        raise InvalidError(
            f"{entry.where}: a second file for feature `{part.name}`\nhint: give it another name"
        )
    data[domain].append(part)


def _require_kinds(description: Description) -> None:
    """Errors: `InvalidError` for an entry with an unknown node type or edge type."""
    where = f"`{description.path}`"
    for one in description.edges:
        at = f"{where}: edge type `{one.kind}`"
        if not description.is_typed:
            if one.kind:
                raise InvalidError(f"{at}, but nodes have no types")
            continue
        if one.kind.count(":") != 2:
            raise InvalidError(f"{at}: expected `source:relation:target`")
    edges = dict.fromkeys(one.kind for one in description.edges)
    parts = [
        *((f"features `{one.name}`", one, False) for one in description.node_data),
        *((f"features `{one.name}`", one, True) for one in description.edge_data),
        *((f"`{split}` set", one, None) for split, of in description.sets.items() for one in of),
    ]
    for what, part, is_of_edges in parts:
        of_edges = ":" in part.kind if is_of_edges is None else is_of_edges
        known = edges if of_edges else description.counts
        if part.kind not in known:
            word = "edge" if of_edges else "node"
            way = f"the {word} types are {', '.join(known)}"
            raise InvalidError(
                f"{where}: {what}: there is no {word} type `{part.kind}`\n"
                f"hint: {way if description.is_typed else 'leave the type out: nodes have none'}"
            )


def _sets(root: Path, top: Entry, *, outside: bool) -> tuple[dict[str, list[Part]], list[str]]:
    """Columns of the splits of the first task with nodes as seeds; notes on ignored tasks."""
    chosen: dict[str, list[Part]] = {}
    notes = []
    for number, task in enumerate(top["tasks"].items()):
        found = dict[str, list[Part]]()
        for split, key in _SETS:
            for entry in task[key].items():
                own = found.setdefault(split, [])
                for one in entry["data"].items():
                    part = replace(_part(root, one, _ARRAYS, outside=outside), kind=_kind(entry))
                    if any((other.kind, other.name) == (part.kind, part.name) for other in own):
                        raise InvalidError(
                            f"{task[key].where}: two columns `{part.name}` of one type of nodes"
                        )
                    own.append(part)
        name = shortened(task["name"].value or f"number {number}")
        if not chosen and _is_of_nodes(found):
            chosen = found
            others = [one.name for one in _all(found) if one.name not in (*_SEEDS, *_LABELS)]
            if others:
                notes.append(
                    f"{top.where}: task `{name}`: left out besides seeds and labels: "
                    f"{listed(dict.fromkeys(others))}"
                )
        else:
            notes.append(f"{top.where}: task `{name}` is left out; splits are those of nodes")
    return chosen, notes


def _is_of_nodes(sets: dict[str, list[Part]]) -> bool:
    if not sets:
        return False
    for parts in sets.values():
        seeds = [part for part in parts if part.name in _SEEDS]
        if not seeds or any(":" in part.kind or _array(part).ndim != 1 for part in seeds):
            return False
    return True


def _array(part: Part) -> NDArray[Any]:
    if part.format == "numpy":
        return open_npy(FileSpec(part.path, ()), "array")
    found = read_torch(part.path)
    if not isinstance(found, np.ndarray):
        raise InvalidError(f"file `{part.path}`: expected a tensor")
    return found


def rows_of(part: Part, reading: Reading) -> RowSource:
    """The rows of the file of `part`."""
    if part.format == "numpy":
        return open_rows(FileSpec(part.path, ()), reading)
    rows = from_array(str(part.path), _array(part))
    return filled(replace(rows, files=states(part.path), keeps_form=True), reading.fill)


def node_arrays(
    description: Description, kind: str, reading: Reading, *, is_labelled: bool
) -> list[NodeArray]:
    """Features and arrays of the node type `kind`.

    The features are the array `feat`, or else the first array with columns. `is_labelled`: a task
    has labels of the type. If a task has nodes of the type without labels, the array `label` has
    the labels; otherwise it is an ordinary array.
    """
    parts = [one for one in description.node_data if one.kind == kind]
    of_type = kind or None
    found = []
    main, labels = _main(parts), None
    if not is_labelled and kind in {one.kind for one in _all(description.sets)}:
        labels = next((part for part in parts if part.name in _LABELS), None)
    for part in parts:
        if part is labels:
            rows = rows_of(part, replace(reading, fill=None))
            found.append(NodeArray("labels", "y", rows, of_type))
            continue
        rows = rows_of(part, reading)
        if part is main:
            found.append(NodeArray("features", "x", rows, of_type))
        elif part.name in RESERVED:
            raise InvalidError(
                f"`{description.path}`: a batch has something else under the name `{part.name}`\n"
                "hint: rename the feature"
            )
        else:
            found.append(NodeArray("array", part.name, rows, of_type))
    return found


def edge_arrays(description: Description, kind: str, reading: Reading) -> list[NodeArray]:
    """The arrays of the edge type `kind`. The array of its features becomes `attr`."""
    parts = [one for one in description.edge_data if one.kind == kind]
    main = _main(parts)
    of_type = kind.replace(":", "__") or None
    return [
        NodeArray("edge", FEATURES if part is main else part.name, rows_of(part, reading), of_type)
        for part in parts
    ]


def _main(parts: list[Part]) -> Part | None:
    for part in parts:
        if part.name in _MAIN:
            return part
    return next(
        (part for part in parts if part.name not in _LABELS and _array(part).ndim == 2), None
    )


def _all(sets: dict[str, list[Part]]) -> list[Part]:
    return [part for parts in sets.values() for part in parts]


def _labels_and_splits(description: Description, kind: str) -> list[NodeArray]:
    """The labels and splits of the node type `kind`, from the splits of the task."""
    count, of_type = description.counts[kind], kind or None
    found, labelled = [], []
    for split, parts in description.sets.items():
        own = {part.name: part for part in parts if part.kind == kind}
        seeds = next((own[name] for name in _SEEDS if name in own), None)
        if seeds is None:
            continue
        where = f"split `{split}` in `{seeds.path}`"
        ids = np.array(_array(seeds))
        found.append(NodeArray("split", split, from_array(where, ids), of_type))
        labels = next((own[name] for name in _LABELS if name in own), None)
        if labels is not None:
            values = np.array(_array(labels))
            if len(values) != len(ids):
                raise InvalidError(
                    f"array `{labels.path}`: {len(values)} labels, expected one for each of the "
                    f"{len(ids)} seeds in `{seeds.path}`"
                )
            labelled.append((ids, values))
    if labelled:
        found.insert(0, NodeArray("labels", "y", _scattered(labelled, count), of_type))
    return found


def _scattered(labelled: list[tuple[NDArray[Any], NDArray[Any]]], count: int) -> RowSource:
    """The label of each node; -1 or NaN for nodes without a split.

    `labelled` has the ids and labels of each split; `count` is the number of nodes.
    """
    widths = {values.shape[1:] for _, values in labelled}
    if len(widths) > 1:
        raise InvalidError(f"labels: sets have labels of the shapes {widths}, expected one")
    width = widths.pop()
    is_whole = all(values.dtype.kind in "iub" for _, values in labelled)
    types = (values.dtype for _, values in labelled)
    dtype = np.dtype(np.int64) if is_whole else np.result_type(*types)

    def chunks() -> Iterator[NDArray[Any]]:
        for first in range(0, count, _STEP):
            rows = np.full((min(_STEP, count - first), *width), -1 if is_whole else np.nan, dtype)
            for ids, values in labelled:
                inside = (ids >= first) & (ids < first + len(rows))
                rows[ids[inside].astype(np.int64) - first] = values[inside]
            yield rows

    columns = width[0] if width else None
    return RowSource(
        "labels of the task", dtype, chunks, width=columns, count=count, keeps_form=True
    )


def open_untyped(root: Path, inputs: Inputs, options: ImportOptions) -> GraphSource:
    """Opens the graph of a directory without node types.

    Errors: as `read_description`.
    """
    reading = inputs.reading(options)
    description = read_description(root, outside=options.outside_files)
    from_task = _labels_and_splits(description, "")
    is_labelled = any(one.role == "labels" for one in from_task)
    edges = [
        open_edges(
            str(one.path),
            "npy" if one.format == "numpy" else "text",
            PLAIN,
            "2,E" if one.format == "numpy" else None,
        )
        for one in description.edges
    ]
    return GraphSource(
        edges,
        [
            *node_arrays(description, "", reading, is_labelled=is_labelled),
            *from_task,
            *edge_arrays(description, "", reading),
        ],
        description.counts[""],
        notes=description.notes,
        also_read=states(description.path),
    )


def open_graphbolt(root: Path, inputs: TypedInputs, options: ImportOptions) -> GraphSource:
    """Opens the graph of a directory with node types.

    Labels and splits are from the first task whose seeds are nodes.

    Errors: `InvalidError` and `NotFoundError` name the entry of `metadata.yaml`, or the file.
    """
    description = read_description(root, outside=options.outside_files)
    tables = [_edges(one) for one in description.edges]
    reading = inputs.reading(options)
    from_task = [
        one for kind in description.counts for one in _labels_and_splits(description, kind)
    ]
    labelled = {one.of_type for one in from_task if one.role == "labels"}
    of_nodes = [
        array
        for kind in description.counts
        for array in node_arrays(description, kind, reading, is_labelled=kind in labelled)
    ]
    arrays = [*of_nodes, *from_task]
    for one in tables:
        arrays += edge_arrays(description, ":".join(one.edge_type), reading)
    return source_of_arrays(
        root,
        inputs,
        options,
        description.counts,
        sorted(tables, key=lambda one: one.key),
        arrays,
        description.notes,
    )


def _edges(part: Part) -> EdgeTable:
    source, relation, target = part.kind.split(":")
    edge_type = source, relation, target
    if part.format == "numpy":
        return array_of_edges(edge_type, EdgeArrayTable.open(FileSpec(part.path, ()), "2,E"))
    return text_of_edges(edge_type, part.path)


FORMAT = Format("a directory of GraphBolt", is_graphbolt, open_untyped, ("outside_files",))
TYPED = Format("a directory of GraphBolt", is_typed_graphbolt, open_graphbolt)
