"""Directories of GraphBolt's `OnDiskDataset` with several types of nodes and edges."""

from __future__ import annotations

from pathlib import Path

from outercore.data.edge_types import EdgeType
from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.importing.format.graphbolt import (
    Part,
    edge_arrays,
    labels_and_splits,
    node_arrays,
    read_description,
)
from outercore.importing.format.layout import source_of_arrays
from outercore.importing.graph import ImportOptions
from outercore.importing.table.rows import RowSource
from outercore.importing.typed.graph import TypedInputs, TypedSource
from outercore.importing.typed.tables import (
    EdgeTable,
    array_of_edges,
    require_type_name,
    text_of_edges,
)


def open_graphbolt(root: Path, inputs: TypedInputs, options: ImportOptions) -> TypedSource:
    """The graph of a directory with node types, as it is described. Labels and splits are those of
    its first task about nodes.

    Errors: `InvalidError` and `NotFoundError` name the entry of `metadata.yaml`, or the file.
    """
    description = read_description(root, outside=options.outside_files)
    where = f"`{description.path}`"
    for name in description.counts:
        require_type_name(where, name)
    tables = [_edges(one, where) for one in description.edges]
    reading = inputs.reading(options)
    from_task = [one for kind in description.counts for one in labels_and_splits(description, kind)]
    labelled = {one.of_type for one in from_task if one.role == "labels"}
    of_nodes = [
        array
        for kind in description.counts
        for array in node_arrays(description, kind, reading, is_labelled=kind in labelled)
    ]
    arrays = [*of_nodes, *from_task]
    of_types = sorted({str(one.of_type) for one in arrays if one.role in ("labels", "split")})
    if len(of_types) > 1:
        raise InvalidError(
            f"{where}: the task has sets of {', '.join(of_types)}, expected one node type"
        )
    by_type: dict[EdgeType, list[tuple[str, RowSource]]] = {
        one.edge_type: edge_arrays(description, ":".join(one.edge_type), reading) for one in tables
    }
    return source_of_arrays(
        root,
        inputs,
        options,
        description.counts,
        sorted(tables, key=lambda one: one.key),
        arrays,
        by_type,
        description.notes,
    )


def _edges(part: Part, where: str) -> EdgeTable:
    source, relation, target = part.kind.split(":")
    require_type_name(where, relation)
    edge_type = source, relation, target
    if part.format == "numpy":
        return array_of_edges(edge_type, FileSpec(part.path, ()), "2,E")
    return text_of_edges(edge_type, part.path)
