"""Nodes with names or sparse numbers: a dictionary on disk gives each an id from 0.

The dictionary is built by the import of triples, within the same budget. Each edge is a triple of
one relation, each row of a node table a triple of its id with itself. The triples by ids are
then the edges, and the ids of the rows, in the order of the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import outercore
from outercore._native import Names, Progress, Role, TripleImporter
from outercore.errors import InvalidError
from outercore.mapped import blocks, forget, mapped
from outercore.sources.columns import (
    EdgeColumns,
    NodeColumns,
    edge_columns,
    node_columns,
)
from outercore.sources.edge_arrays import edge_arrays
from outercore.sources.edges import EdgeSource, dates_of, pushed, table_values
from outercore.sources.foreign import refuse_foreign
from outercore.sources.graph import GraphSource, NodeArray
from outercore.sources.inputs import Inputs, node_files, reading_of
from outercore.sources.key_texts import key_texts
from outercore.sources.label_rows import label_columns
from outercore.sources.named import is_named
from outercore.sources.rows import Reading, RowSource, as_times, described, require_rows, table_rows
from outercore.sources.splits import SplitColumns, require_once, split_columns, split_name
from outercore.sources.table import FileSpec, Table, TextTable, is_parquet, open_table
from outercore.sources.text import TextOptions, suffix_of
from outercore.sources.texts import table_texts, text_files
from outercore.sources.triples import names_of
from outercore.sources.unchanged import FileState, states
from outercore.storage import remove_at_once

_CHUNK = 1 << 20
_ARRAYS = (".npy", ".npz")
_PARTS = ("offsets", "bytes")


@dataclass(frozen=True)
class _Rows:
    """A node table and the column that names its nodes."""

    role: Role
    name: str
    spec: FileSpec
    table: Table
    columns: NodeColumns
    files: tuple[FileState, ...]
    split: SplitColumns | None = None
    """How a table says which nodes belong to a split."""

    def notes(self) -> list[str]:
        """How a split is read."""
        return [] if self.split is None else [self.split.described(self.name, self.table)]


@dataclass(frozen=True)
class _Edges:
    """A table of edges by names."""

    spec: FileSpec
    table: Table
    columns: EdgeColumns
    files: tuple[FileState, ...]


class NamedInputs:
    """Inputs whose nodes have names; a context that removes the dictionary's own files.

    Cost: the names of both ends of each edge are read twice.
    """

    def __init__(self, inputs: Inputs, out: Path) -> None:
        """Opens all files.

        Errors: `InvalidError` for a node table without a column of ids, and for options that mean
        nothing here.
        """
        _refuse_options(inputs)
        self._inputs = inputs
        self._reading = Reading(inputs.text, inputs.fill, inputs.keeps_gaps, inputs.memory // 4)
        self._edges = [_open_edges(text, inputs) for text in inputs.edges]
        self._rows = self._open_rows()
        out = Path(out)
        self._place = out.parent / f".{out.name}.names"
        self._is_ours = False

    def __enter__(self) -> NamedInputs:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an interrupt the next run resumes from here.
        if self._is_ours and (kind is None or issubclass(kind, InvalidError)):
            remove_at_once(self._place)

    def build(self, progress: Progress) -> GraphSource:
        """Builds the dictionary and gives the graph by ids."""
        options = {
            "memory": self._inputs.memory,
            "unknown": "keep",
            "inputs": self._identity(),
            # Drops the dictionary of other inputs that an interrupted import left behind.
            "overwrite": True,
        }
        if _inputs_of(self._place) != options["inputs"]:
            with TripleImporter(self._place, options, progress) as importer:
                self._is_ours = True
                for edges in self._edges:
                    spec, ends = edges.spec, edges.columns
                    row = 0
                    for sources, targets in key_texts(edges.table, [ends.source, ends.target]):
                        names = _named(spec, ends.source, sources, row)
                        others = _named(spec, ends.target, targets, row)
                        importer.push("train", names, _one_name(len(sources)), others, None)
                        row += len(sources)
                for rows in self._rows:
                    assert rows.columns.key is not None
                    row = 0
                    for (ids,) in key_texts(rows.table, [rows.columns.key]):
                        named = _named(rows.spec, rows.columns.key, ids, row)
                        importer.push("valid", named, _one_name(len(ids)), named, None)
                        row += len(ids)
                importer.finish()
        self._is_ours = True
        return self._source(outercore.open(self._place))

    def _identity(self) -> list[str]:
        """What decides the id of a name, and so the edges."""
        edges = [" ".join([str(one.spec), *map(str, one.files)]) for one in self._edges]
        rows = [
            " ".join([f"{one.columns.key}={one.spec}", *map(str, one.files)]) for one in self._rows
        ]
        return [*edges, *rows, reading_of(self._inputs)]

    def _source(self, names: Any) -> GraphSource:
        triples = _array(names, "triples/train")
        edges: list[EdgeSource] = []
        first = 0
        for one in self._edges:
            spec, table, ends = one.spec, one.table, one.columns
            part = triples[first : first + table.rows]
            first += len(part)
            edges.append(
                pushed(
                    str(spec),
                    _pairs(part),
                    first_id=None,
                    others=tuple(ends.others),
                    values=table_values(table, ends),
                    notes=[f"{spec.path}: {described(table)}; nodes by a dictionary"],
                    files=one.files,
                    dates=dates_of(table, ends),
                )
            )
        values, notes = edge_arrays(edges, self._inputs.edge_values, self._reading)
        arrays = self._node_arrays(names)
        arrays += [
            NodeArray("names", f"entity.{part}", _stored(names, f"names/entity.{part}"))
            for part in _PARTS
        ]
        shown = [note for edge in edges for note in edge.notes]
        shown += [note for array in arrays for note in array.rows.notes]
        return GraphSource(
            edges,
            arrays,
            int(names.num_nodes),
            edge_arrays=values,
            reading="\n".join(self._identity()) + " by a dictionary",
            notes=shown + notes,
        )

    def _node_arrays(self, names: Any) -> list[NodeArray]:
        found, first = [], 0
        for rows in self._rows:
            ids = _array(names, "triples/valid")[first : first + rows.table.rows, 0]
            first += len(ids)
            if rows.role == "split":
                found.append(NodeArray("split", rows.name, _ids(rows, ids)))
                continue
            reading = replace(self._reading, nodes=int(names.num_nodes), ids=_sliced(ids))
            if rows.role == "names":
                found += table_texts(
                    rows.name, None, rows.spec, rows.table, rows.columns, reading, rows.files
                )
                continue
            if rows.role == "labels":
                arrays = label_columns(
                    rows.spec, rows.table, rows.columns, reading, self._inputs.task
                )
            else:
                reading = replace(reading, takes_times=rows.role == "array")
                source = table_rows(rows.spec, rows.table, rows.columns, reading)
                source = as_times(rows.name, source) if rows.role == "array" else source
                arrays = [NodeArray(rows.role, rows.name, source)]
            own = replace(arrays[0], rows=replace(arrays[0].rows, files=rows.files))
            found += [own, *arrays[1:]]
        return found

    def _open_rows(self) -> list[_Rows]:
        if self._inputs.splits.archive is not None:
            raise _without_order(str(self._inputs.splits.archive))
        splits = [split_name(text) for text in self._inputs.splits.single]
        require_once("--split", [name for name, _ in splits])
        texts: list[tuple[Role, str, str]] = [
            ("names", name, file) for name, file in text_files(self._inputs.texts)
        ]
        wanted = node_files(self._inputs) + [("split", name, file) for name, file in splits] + texts
        return [self._keyed(*one) for one in wanted]

    def _keyed(self, role: Role, name: str, text: str) -> _Rows:
        spec = FileSpec.parse(text)
        refuse_foreign(spec.path)
        if suffix_of(spec.path) in _ARRAYS:
            raise _without_order(str(spec))
        files = states(spec.path)
        table = _open_nodes(spec, self._inputs.text)
        if role == "split":
            split = split_columns(name, spec, table)
            columns = NodeColumns(split.ids, [split.mask] if split.mask else [])
        else:
            split, columns = None, node_columns(spec, table)
        if columns.key is None:
            raise InvalidError(
                f"`{spec}`: no column of ids, and nodes with names have no order\n"
                "hint: call the column with the names `id`"
            )
        return _Rows(role, name, spec, table, columns, files, split)


def _without_order(file: str) -> InvalidError:
    return InvalidError(
        f"`{file}`: rows of an array are for nodes 0, 1, ..., and nodes with names have no "
        "order\nhint: write a table with a column `id` that has the names"
    )


def _inputs_of(place: Path) -> list[str] | None:
    """The inputs of the finished dictionary in `place`, if there is one."""
    try:
        manifest = json.loads((place / "graph.json").read_text())
        return list(manifest["provenance"]["inputs"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _refuse_options(inputs: Inputs) -> None:
    """Errors: `InvalidError` for options that have no effect on names."""
    if inputs.nodes is not None:
        raise InvalidError("--nodes: the dictionary counts the nodes")
    for option, is_given in (
        ("--one-based", inputs.text.one_based),
        ("--format", inputs.format not in ("auto", "text")),
        ("--edge-shape", inputs.edge_shape is not None),
        ("--ogb-split", inputs.ogb_split is not None),
        ("--relation", inputs.relation is not None),
    ):
        if is_given:
            raise InvalidError(f"{option}: does not go with `--ids dictionary`")


def _open_edges(text: str, inputs: Inputs) -> _Edges:
    """A table of edges by names.

    Errors: `InvalidError` for files whose format says what the ids are.
    """
    what = (
        "expected text or Parquet by `--ids dictionary`\nhint: leave out `--ids dictionary`: the "
        "ids are taken as they are"
    )
    if is_named(text):
        raise InvalidError(f"`{text}`: its nodes have numbers from 0, {what}")
    spec = FileSpec.parse(text)
    refuse_foreign(spec.path)
    is_table = is_parquet(spec.path) or spec.path.is_file()
    if not is_table or suffix_of(spec.path) in _ARRAYS:
        raise InvalidError(f"`{spec.path}`: its nodes have numbers from 0, {what}")
    files = states(spec.path)
    table = open_table(spec, inputs.text, "named_edges")
    if isinstance(table, TextTable) and table.file.format != "delimited":
        raise InvalidError(f"`{spec.path}`: its format numbers the nodes from 1, {what}")
    return _Edges(spec, table, edge_columns(spec, table), files)


def _open_nodes(spec: FileSpec, text: TextOptions) -> Table:
    """A table of nodes by names, with the rule for comments that edges by names have: lines with
    `#` above the rows are comments, further down they are unclear.

    Errors: `InvalidError` for a table without rows, and for `#` further down.
    """
    is_open = text.comment is None
    table = open_table(spec, replace(text, comment="#") if is_open else text)
    if is_open and isinstance(table, TextTable):
        later = table.file.profile.comments - table.file.dialect["comment_lines"]
        if later:
            raise InvalidError(
                f"`{spec.path}`: {later:,} lines below the first row start with `#`: comments, or "
                "names that start so\nhint: say which: `--comment '#'` skips such lines, "
                "`--comment ''` reads them"
            )
    require_rows(table)
    return table


def _named(spec: FileSpec, column: str, names: Any, first: int) -> Names:
    """A column as the importer takes it.

    Errors: `InvalidError` with the row of an empty name.
    """
    offsets, data = names_of(names)
    empty = np.flatnonzero(np.diff(offsets) == 0)
    if len(empty):
        raise InvalidError(
            f"`{spec.path}`: column `{column}`: row {first + int(empty[0])} is empty, expected a "
            "name"
        )
    return offsets, data


def _one_name(rows: int) -> Names:
    """The name of the one relation, once for each row."""
    return np.arange(rows + 1, dtype=np.int64), np.full(rows, ord("e"), np.uint8)


def _array(names: Any, key: str) -> NDArray[Any]:
    """An array of the dictionary's own data set, which may be larger than memory."""
    return mapped(names.root, names.arrays[key])


def _pairs(triples: NDArray[np.int64]) -> Any:
    def batches() -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        for first in range(0, len(triples), _CHUNK):
            part = np.asarray(triples[first : first + _CHUNK])
            yield np.ascontiguousarray(part[:, 0]), np.ascontiguousarray(part[:, 2])
            forget(triples)

    return batches


def _sliced(ids: NDArray[np.int64]) -> Any:
    """The ids of a table's rows, cut as the table cuts them."""

    def batches(table: Table, key: str) -> Iterator[NDArray[np.int64]]:
        first = 0
        for (names,) in key_texts(table, [key]):
            yield np.array(ids[first : first + len(names)])
            first += len(names)
            forget(ids)

    return batches


def _ids(rows: _Rows, ids: NDArray[np.int64]) -> RowSource:
    """The ids of a split, in the order of its rows."""
    mask = rows.split.mask if rows.split is not None else None

    def chunks() -> Iterator[NDArray[np.int64]]:
        if mask is None:
            for _, block in blocks(ids, _CHUNK):
                yield np.array(block)
            return
        dtype = rows.table.dtype(mask)
        assert dtype is not None
        first = 0
        for flags in rows.table.numbers([mask], dtype, "nan"):
            yield np.array(ids[first : first + len(flags)])[flags[:, 0] != 0]
            first += len(flags)
            forget(ids)

    count = len(ids) if mask is None else None
    return RowSource(
        str(rows.spec),
        np.dtype(np.int64),
        None,
        count,
        chunks,
        files=rows.files,
        notes=rows.notes(),
    )


def _stored(names: Any, key: str) -> RowSource:
    values = _array(names, key)

    def chunks() -> Iterator[NDArray[Any]]:
        for _, block in blocks(values, _CHUNK):
            yield np.array(block)

    return RowSource(key, values.dtype, None, len(values), chunks)
