"""The core's importer of graphs: edges and arrays from anywhere, into one data set."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore import _core
from outercore.base import native
from outercore.base.native import Arrays, Importer, Progress
from outercore.base.sizes import parse_size
from outercore.data.directories import is_data_set
from outercore.data.many_graphs import FIRST
from outercore.data.schema import Schema
from outercore.errors import InvalidError
from outercore.importing.edges import with_range
from outercore.importing.keys import Keys
from outercore.importing.many_graphs import GraphLevel, require_inside
from outercore.importing.options import ArrayOptions, FeatureType, ImportOptions
from outercore.importing.source import GraphSource
from outercore.importing.table.file_state import require_unchanged
from outercore.importing.table.rows import NodeArray, RowSource
from outercore.importing.table.times import require_one_scale


def import_graph(
    source: GraphSource,
    out: str | Path,
    options: ImportOptions | None = None,
    progress: Progress = lambda *_: None,
    note: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """Writes a data set and returns the summary.

    To resume an interrupted import, repeat the call. The data set appears only when it is
    complete. `note` is called with each note for the user.

    Cost: memory within `options.memory`, for inputs of any size. If nodes have keys, also 16 bytes
    per node on disk during the import.
    Errors: `InvalidError` names the input with its row; `NoSpaceError`. Also `InvalidError` if
    `out` holds a data set and `overwrite` is not set, or if another process writes to it.
    """
    options, out = options or ImportOptions(), Path(out)
    for line in source.notes:
        note(line)
    _require_fitting(source, options)
    with Keys(out, source.node_keys, source.uses, "\n".join(source.identities)) as keys:
        keys.build(parse_size(options.memory), progress)
        if source.with_keys is not None:
            first, source = len(source.notes), source.with_keys(keys)
            for line in source.notes[first:]:
                note(line)
            _require_fitting(source, options)
        described, found = _described(source, options), dict[str, Any]()
        if source.graphs is None or not _is_unfinished(out, described):
            if source.graphs is not None:
                require_inside(source.edges, source.graphs)
            require_comparable(source.arrays)
            with Importer(out, described, progress) as importer:
                # Arrays are compared before the edges are read, which takes longest.
                arrays = _arrays(source, keys, note, described)
                counts = _feed_edges(importer, source, keys, described)
                for array in arrays:
                    feed_array(importer, array, options, progress)
                require_unchanged(source.files())
                found = importer.finish() | counts
        return found if source.graphs is None else found | _add_graphs(out, source.graphs)


def _require_fitting(source: GraphSource, options: ImportOptions) -> None:
    """Errors: as `require_place`; `InvalidError` for options without effect on these edges."""
    require_place(source.arrays, options)
    if source.types is not None:
        for name, given in (
            ("--undirected", options.undirected),
            ("--self-loops", options.self_loops != "keep"),
        ):
            if given:
                raise InvalidError(
                    f"{name}: does not go with several types of nodes\n"
                    "hint: `--add-reverse` adds the other direction of each edge type"
                )
    elif source.of_edges and options.self_loops == "add":
        raise InvalidError(
            "--self-loops add: the added edges have no row in the edge array "
            f"`{source.of_edges[0].name}`\nhint: add the loops to the edge list, with values"
        )


def _described(source: GraphSource, options: ImportOptions) -> dict[str, Any]:
    described: dict[str, Any] = {
        "memory": parse_size(options.memory),
        "duplicates": options.duplicates,
        "overwrite": options.overwrite,
        "command": options.command,
        "inputs": source.inputs(),
        "edges": source.identities or [edge.identity for edge in source.edges],
    }
    if source.types is not None:
        edges = [one.edge_type for one in source.types.edges]
        return described | {"types": {"nodes": source.types.counts(source.arrays), "edges": edges}}
    undirected = options.undirected if options.undirected is not None else source.undirected
    return described | {
        "nodes": source.node_count(),
        "first_id": source.first_id,
        "undirected": bool(undirected),
        "self_loops": options.self_loops,
        "reading": source.identity,
    }


def require_place(arrays: list[NodeArray], options: ArrayOptions) -> None:
    """Errors: `InvalidError` for the option `in_place` if no `.npy` file has the features, and for
    an array and a text of the same name."""
    texts = {array.name for array in arrays if array.role == "names"}
    for array in arrays:
        if array.role == "array" and f"{array.of_type or 'node'}.{array.name}.offsets" in texts:
            raise InvalidError(
                f"array `{array.name}`: the nodes have a text of this name\n"
                "hint: call one of them otherwise"
            )
    features = [array.rows for array in arrays if array.role == "features"]
    if options.in_place and all(rows.path is None for rows in features):
        raise InvalidError(
            "--in-place: expected features in a `.npy` file, which can stay where they are\n"
            "hint: name one by `--features`, or leave `--in-place` out and they are copied"
        )


def _feed_edges(
    importer: Importer, source: GraphSource, keys: Keys, described: dict[str, Any]
) -> dict[str, Any]:
    """Adds all edges, and returns counts for each type; nothing for a graph of one type."""
    types = source.types
    if types is not None:
        dropped = {one.key: one.feed(importer, keys, types.dangling) for one in types.edges}
        return {
            "node_types": described["types"]["nodes"],
            "dangling_dropped": {key: one.no_node for key, one in dropped.items() if one.no_node},
            "empty_keys_dropped": {key: one.no_key for key, one in dropped.items() if one.no_key},
        }
    for edges in source.edges:
        try:
            edges.feed(importer, described["nodes"])
        except InvalidError as error:
            raise with_range(error, edges, described["nodes"]) from None
    return {}


def _arrays(
    source: GraphSource, keys: Keys, note: Callable[[str], object], described: dict[str, Any]
) -> list[NodeArray]:
    """All arrays, in the order in which they are written."""
    if source.types is None:
        arrays = [*source.of_nodes, *source.of_edges]
        if described["undirected"]:
            return arrays
        return [replace(array, rows=array.rows.with_reverse()) for array in arrays]
    by_keys, notes = source.types.arrays(keys, len(source.uses))
    arrays = [*source.arrays, *by_keys]
    require_comparable(arrays)
    for line in notes:
        note(line)
    return arrays


def require_comparable(
    arrays: list[NodeArray], present: Iterable[tuple[str, str, str | None]] = ()
) -> None:
    """Errors: as `require_one_scale`, for new arrays and arrays that are `present` already."""
    of = {"array": "nodes", "edge": "edges"}
    named = [
        (f"`{array.name}` of {array.of_type or of[array.role]}", array.name, array.rows.times)
        for array in arrays
        if array.role in of and array.rows.width is None and array.rows.dtype.kind in "iu"
    ]
    require_one_scale([*present, *named])


def feed_array(
    importer: Arrays, array: NodeArray, options: ArrayOptions, progress: Progress
) -> None:
    """Passes an array to the importer, whole or in chunks."""
    rows = array.rows
    described: dict[str, Any] = {
        "allow_nan": options.allow_nan or rows.has_gaps,
        "of_type": array.of_type,
        "times": rows.times if array.role in ("array", "edge") else None,
    }
    if array.role == "features":
        described["dtype"] = options.feature_dtype or (None if rows.typed else "float32")
    if array.role == "labels":
        described["task"] = options.task
    if rows.keeps_form and _differs(array):
        described["given"] = {"dtype": rows.dtype.name, "row_shape": rows.row_shape}
    if rows.path is not None:
        described["in_place"] = options.in_place and array.role == "features"
        importer.array_npy(array.role, array.name, rows.path, described)
        return
    importer.array_begin(array.role, array.name, rows.dtype.name, rows.width, described)
    stored = described.get("dtype")
    for chunk in _counted(rows, array.name or array.role, stored, progress):
        importer.array_push(chunk)
    importer.array_end()


def _differs(array: NodeArray) -> bool:
    """Whether the stored shape or type of an array differs from the given one.

    The given form must then be recorded for batches. Features are stored as float32 in columns.
    Labels, weights and times of one column are stored as [rows]. Integers of any width are classes.
    """
    rows = array.rows
    if array.role == "edge":
        return rows.is_column
    if array.role == "features":
        return rows.width is None or rows.dtype.kind in "iub"
    is_column = rows.is_column or rows.width == 1
    return array.role == "labels" and (is_column or rows.dtype.kind == "f")


def _counted(
    rows: RowSource, name: str, stored: FeatureType | None, progress: Progress
) -> Iterator[NDArray]:
    done = 0
    for chunk in rows.chunks():
        if stored is not None and rows.whole:
            _refuse_other_numbers(rows, chunk, stored, done)
        yield chunk
        done += len(chunk)
        progress(f"array {name}", done, rows.count or 0, "rows")


def _refuse_other_numbers(rows: RowSource, chunk: NDArray, stored: FeatureType, first: int) -> None:
    """Errors: `InvalidError` for an integer in the file that the type `stored` cannot hold."""
    values = chunk.reshape(len(chunk), -1)[:, list(rows.whole)]
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32 if stored == "bfloat16" else stored)
    if stored == "bfloat16":
        # bfloat16 is the upper half of a float32.
        narrow = np.where(narrow.view(np.uint32) & 0xFFFF, np.float32(np.inf), narrow)
    # The value for missing values may be a fraction.
    whole = np.isfinite(values) & (values == np.trunc(values))
    changed = np.argwhere(whole & (narrow != values))
    if len(changed):
        row, place = changed[0]
        raise InvalidError(
            f"`{rows.name}`: row {first + row}, column {rows.whole[place]}: "
            f"{int(values[row, place])} would change as {stored}\n"
            "hint: `--feature-dtype float64` holds whole numbers up to 2^53; or scale them before"
        )


def _is_unfinished(out: Path, options: dict[str, Any]) -> bool:
    """Whether an import with these options was stopped when only arrays of graphs were missing."""
    if not is_data_set(out):
        return False
    schema = Schema(_core.DataSet(out).manifest())
    made = schema.import_options
    return FIRST not in schema.arrays and made == json.loads(json.dumps(options))


def _add_graphs(out: Path, level: GraphLevel) -> dict[str, Any]:
    """Adds the arrays of graphs to an existing data set, and returns counts for the summary."""
    for key, values in level.stored():
        native.add_array(out, key, values, "")
    found: dict[str, Any] = {"graphs": level.count}
    labels = level.arrays.get("y")
    if labels is not None and labels.dtype == np.int64:
        found["classes"] = int(labels.max(initial=-1)) + 1
    return found
