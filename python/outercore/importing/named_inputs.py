"""Inputs whose nodes have names: a dictionary on disk gives each name a number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.base.listing import listed
from outercore.base.native import Names, Progress
from outercore.base.shell import quoted
from outercore.base.sizes import parse_size
from outercore.data.graph import Graph
from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.files.large_arrays import blocks, mapped
from outercore.importing.build.dictionary import Dictionary, Part
from outercore.importing.edge_arrays import edge_arrays
from outercore.importing.edges import dates_of, pushed, table_values
from outercore.importing.format.registry import is_named
from outercore.importing.inputs import Inputs
from outercore.importing.node_files import NodeFile
from outercore.importing.options import ImportOptions, require_once
from outercore.importing.plain_graph import node_files, reading_identity
from outercore.importing.source import GraphSource
from outercore.importing.splits import split_columns, split_name
from outercore.importing.table.columns import EdgeColumns, NodeColumns, id_column, node_columns
from outercore.importing.table.edge_array import ENDS, EdgeArrayTable
from outercore.importing.table.file_state import FileState, states
from outercore.importing.table.foreign import refuse_foreign
from outercore.importing.table.keys import NodeIds, key_texts
from outercore.importing.table.parquet import is_parquet
from outercore.importing.table.parts import Parts
from outercore.importing.table.rows import NodeArray, from_array, is_array, open_node_table
from outercore.importing.table.table import Table
from outercore.importing.table.text import TextTable, offsets_and_bytes, suffix_of
from outercore.importing.texts import text_files

_BLOCK = 1 << 20
"""Rows that are looked at together."""
_LOOKED_AT = 1000
"""Rows that tell which column has the names of the edges."""


@dataclass(frozen=True)
class _NamedRows:
    """Rows of a file that name nodes, with the node of each; [rows] or [rows, ends]."""

    spec: FileSpec
    columns: tuple[str, ...]
    nodes: NDArray[np.int64]
    has_header: bool


def _key_column(spec: FileSpec, table: Table) -> str:
    """The column of a table of nodes that has their keys: the one chosen, else by its name.

    Errors: `InvalidError` for several columns, and where no name says it.
    """
    if len(spec.columns) > 1:
        raise InvalidError(f"--nodes: expected one column of keys, found {', '.join(spec.columns)}")
    if spec.columns:
        return spec.columns[0]
    key = table.names[0] if len(table.names) == 1 else id_column(table)
    if key is None:
        raise InvalidError(
            f"--nodes: `{spec.path}`: no column is called like ids, found "
            f"{', '.join(f'`{name}`' for name in table.names)}\n"
            f"hint: name the column of keys: `--nodes {quoted(f'{spec.path}:{table.names[0]}')}`"
        )
    return key


def _require_rows_of_nodes(
    table: _NamedRows, uses: Sequence[_NamedRows], count: int, called: Callable[[int], str]
) -> None:
    """Makes sure that each node has one row in the table. `called` gives the key of a node.

    Cost: a byte of memory for each of `count` nodes; a pass over all rows where one is missing.
    Errors: `InvalidError` names the rows of a key that comes twice, or the row that names a node
    which the table does not have.
    """
    known = np.zeros(count, np.bool_)
    for start, block in blocks(table.nodes, _BLOCK):
        if known[block].any() or len(np.unique(block)) < len(block):
            raise _twice(table, start + len(block), called)
        known[block] = True
    if known.all():
        return
    for use in uses:
        unknown = sum(int((~known[block]).any(axis=-1).sum()) for block in _rows(use.nodes))
        if not unknown:
            continue
        row = 0
        for block in _rows(use.nodes):
            wrong = np.argwhere(~known[block])
            if len(wrong):
                place, column = (int(at) for at in wrong[0])
                name = called(int(block[place, column]))
                is_first = row + place == 0 and not use.has_header
                header = "if the first line names the columns: `--header`; " if is_first else ""
                raise InvalidError(
                    f"`{use.spec.path}`: row {row + place}: column `{use.columns[column]}` names "
                    f"node `{name}`, and `{table.spec.path}` has no row for it; so it is in "
                    f"{unknown:,} of {len(use.nodes):,} rows\n"
                    f"hint: {header}add rows for these nodes to the table; or leave `--nodes` out, "
                    "and all nodes that files name are nodes of the graph"
                )
            row += len(block)


def _rows(nodes: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for _, block in blocks(nodes, _BLOCK):
        yield np.array(block).reshape(len(block), -1)


def _twice(table: _NamedRows, stop: int, called: Callable[[int], str]) -> InvalidError:
    nodes = np.array(table.nodes[:stop])
    order = np.argsort(nodes, kind="stable")
    again = np.flatnonzero(np.diff(nodes[order]) == 0)
    second = int(order[again + 1].min())
    first = int(np.argmax(nodes == nodes[second]))
    return InvalidError(
        f"`{table.spec.path}`: column `{table.columns[0]}`: key `{called(int(nodes[second]))}` "
        f"stands in rows {first} and {second}, expected once\n"
        "hint: each row is a node; leave the second one out"
    )


@dataclass(frozen=True)
class _NodeTable:
    """A table of nodes, and the column that names them."""

    file: NodeFile | None
    """What its values are; `None`: it says which nodes there are."""
    spec: FileSpec
    table: Table
    key: str
    taken: list[str]
    """The columns with values."""
    files: tuple[FileState, ...]


@dataclass(frozen=True)
class _Edges:
    """A table of edges by names."""

    spec: FileSpec
    table: Table
    columns: EdgeColumns
    files: tuple[FileState, ...]
    by_name: str
    """What a note says about columns that are taken by their names."""


class NamedInputs:
    """Inputs whose nodes have names; a context that removes the dictionary's own files.

    Cost: the names of both ends of each edge are read twice.
    """

    def __init__(self, inputs: Inputs, out: Path, options: ImportOptions) -> None:
        """Opens all files.

        Errors: `InvalidError` for a node table without a column of ids, and for options that mean
        nothing here.
        """
        _refuse_options(inputs)
        self._inputs, self._options = inputs, options
        self._reading = replace(inputs.reading(options), purpose="named_table")
        parts = Parts()
        self._edges = [_open_edges(text, inputs, parts) for text in inputs.edges]
        node_table = inputs.node_table
        self._table = None if node_table is None else self._open_nodes(node_table)
        if self._table is not None:
            self._reading = replace(self._reading, key=self._table.key)
        self._files = [self._keyed(one) for one in self._node_files()]
        place = Path(out).parent / f".{Path(out).name}.names"
        self._dictionary = Dictionary(place, self._identity())

    def __enter__(self) -> NamedInputs:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._dictionary.__exit__(kind)

    def build(self, progress: Progress) -> GraphSource:
        """Builds the dictionary and gives the graph by ids."""
        names = self._dictionary.build(parse_size(self._options.memory), progress, self._pairs())
        return self._source(names)

    def _pairs(self) -> Iterator[tuple[Part, Names, Names]]:
        """The ends of each edge, and the id of each row of a node table with itself."""
        for edges in self._edges:
            ends, row = edges.columns, 0
            for sources, targets in key_texts(edges.table, [ends.source, ends.target]):
                first = _named(edges.spec, ends.source, sources, row)
                yield "train", first, _named(edges.spec, ends.target, targets, row)
                row += len(sources)
        for one in self._node_tables():
            row = 0
            for (ids,) in key_texts(one.table, [one.key]):
                named = _named(one.spec, one.key, ids, row)
                yield "valid", named, named
                row += len(ids)

    def _identity(self) -> list[str]:
        """What decides the id of a name, and so the edges."""
        edges = [" ".join([str(one.spec), *map(str, one.files)]) for one in self._edges]
        rows = [
            " ".join([f"{one.key}={one.spec}", *map(str, one.files)]) for one in self._node_tables()
        ]
        return [*edges, *rows, reading_identity(self._inputs, self._options.task)]

    def _source(self, names: Graph) -> GraphSource:
        of_edges, of_tables = list[_NamedRows](), list[_NamedRows]()
        first, ends = 0, self._dictionary.numbers(names, "train")
        for edges in self._edges:
            part = ends[first : first + edges.table.rows]
            first += len(part)
            columns = edges.columns.source, edges.columns.target
            of_edges.append(_NamedRows(edges.spec, columns, part, edges.table.is_named))
        tables = self._node_tables()
        first, nodes = 0, self._dictionary.numbers(names, "valid")[:, 0] if tables else ends[:0]
        for one in tables:
            part = nodes[first : first + one.table.rows]
            first += len(part)
            of_tables.append(_NamedRows(one.spec, (one.key,), part, one.table.is_named))
        sources = [
            pushed(
                str(one.spec),
                partial(_batches, rows.nodes),
                others=tuple(one.columns.others),
                values=table_values(one.table, one.columns),
                notes=[
                    f"{one.spec.path}: {one.table.described()}{one.by_name}; nodes by a dictionary"
                ],
                files=one.files,
                dates=dates_of(one.table, one.columns),
            )
            for one, rows in zip(self._edges, of_edges, strict=True)
        ]
        values, notes = edge_arrays(sources, self._inputs.edge_values, self._reading)
        if self._table is not None:
            _require_rows_of_nodes(
                of_tables[0],
                [*of_edges, *of_tables[1:]],
                int(names.num_nodes),
                lambda node: str(names.entity_names([node])[0]),
            )
        ids = {(one.spec.path, one.columns[0]): one.nodes for one in of_tables}
        reading = replace(
            self._reading,
            nodes=int(names.num_nodes),
            ids=NodeIds(partial(_numbers, ids), names.entity_names),
        )
        arrays = [
            array
            for one in self._files
            if one.file is not None
            for array in one.file.open(reading, self._options.task)
        ]
        for part_of_names in ("offsets", "bytes"):
            key = f"names/entity.{part_of_names}"
            rows = from_array(key, mapped(names.root, names.arrays[key]))
            arrays.append(NodeArray("names", f"entity.{part_of_names}", rows))
        shown = [note for source in sources for note in source.notes]
        shown += self._notes_on_table()
        shown += [note for array in arrays for note in array.rows.notes]
        return GraphSource(
            sources,
            [*arrays, *values],
            int(names.num_nodes),
            identity="\n".join(self._identity()) + " by a dictionary",
            notes=shown + notes,
        )

    def _open_nodes(self, text: str) -> _NodeTable:
        """The table that says which nodes there are."""
        spec = FileSpec.parse(text)
        files, table = self._opened(spec)
        return _NodeTable(None, spec, table, _key_column(spec, table), [], files)

    def _opened(self, spec: FileSpec) -> tuple[tuple[FileState, ...], Table]:
        """A table of nodes, and its file as it is now.

        Errors: `InvalidError` for an array, whose rows are in the order of the nodes.
        """
        refuse_foreign(spec.path)
        if is_array(spec):
            raise _without_order(str(spec))
        return states(spec.path), open_node_table(spec, self._reading)

    def _node_tables(self) -> list[_NodeTable]:
        """All tables of nodes."""
        return self._files if self._table is None else [self._table, *self._files]

    def _notes_on_table(self) -> list[str]:
        """How the table of nodes is read."""
        if self._table is None:
            return []
        spec, table, key = self._table.spec, self._table.table, self._table.key
        taken = {name for one in self._files if one.spec.path == spec.path for name in one.taken}
        left = [name for name in table.names if name != key and name not in taken]
        note = f"{spec.path}: {table.described(has_names=True)}; nodes by column `{key}`"
        return [note + (f"; not taken: {listed(left, most=6)}" if left else "")]

    def _node_files(self) -> list[NodeFile]:
        """The files of features, labels, arrays, splits and texts."""
        if self._inputs.splits.archive is not None:
            raise _without_order(str(self._inputs.splits.archive))
        splits = [split_name(text) for text in self._inputs.splits.single]
        require_once("--split", [name for name, _ in splits])
        texts = [NodeFile("names", name, file) for name, file in text_files(self._inputs.texts)]
        of_splits = [NodeFile("split", name, file) for name, file in splits]
        return [*node_files(self._inputs), *of_splits, *texts]

    def _likely_key(self, spec: FileSpec, table: Table) -> str | None:
        """The first column that is not chosen and has names of the edges in its first rows."""
        names: set[str] = set()
        for edges in self._edges:
            names |= _first_texts(edges.table, [edges.columns.source, edges.columns.target])
        for column in table.names:
            dtype = table.dtype(column)
            may_be_key = table.kind(column) == "text" if dtype is None else dtype.kind in "iu"
            if column not in spec.columns and may_be_key and names & _first_texts(table, [column]):
                return column
        return None

    def _keyed(self, file: NodeFile) -> _NodeTable:
        may_leave_out = file.role in ("features", "labels", "array")
        spec, key = FileSpec.parse(file.file, may_leave_out=may_leave_out), self._reading.key
        files, table = self._opened(spec)
        if file.role == "split":
            split = split_columns(file.name, spec, table, key)
            columns = NodeColumns(split.ids, [split.mask] if split.mask else [])
        else:
            columns = node_columns(spec, table, key)
        if columns.key is None:
            way = f"call the column with the names `{key or 'id'}`"
            if key is None and (found := self._likely_key(spec, table)) is not None:
                way = f"name the column of keys: `--nodes {quoted(f'{spec.path}:{found}')}`"
            raise InvalidError(
                f"`{spec}`: no column of ids, and nodes with names have no order\nhint: {way}"
            )
        return _NodeTable(file, spec, table, columns.key, columns.values, files)


def _first_texts(table: Table, columns: list[str]) -> set[str]:
    """Keys in the first rows of some columns."""
    first = next(iter(key_texts(table, columns)), [])
    return {text for column in first for text in column.slice(0, _LOOKED_AT).to_pylist()}


def _without_order(file: str) -> InvalidError:
    return InvalidError(
        f"`{file}`: rows of an array are for nodes 0, 1, ..., and nodes with names have no "
        "order\nhint: write a table with a column `id` that has the names"
    )


def _refuse_options(inputs: Inputs) -> None:
    """Errors: `InvalidError` for options without effect on names."""
    if inputs.nodes is not None:
        raise InvalidError("--nodes: the dictionary counts the nodes")
    are_arrays = all(text.lower().endswith(".npy") for text in inputs.edges)
    formats = ("auto", "npy" if are_arrays else "text")
    for option, is_given in (
        ("--one-based", inputs.text.one_based),
        ("--format", inputs.format not in formats),
        ("--edge-shape", inputs.edge_shape is not None and not are_arrays),
        ("--ogb-split", inputs.ogb_split is not None),
        ("--relation", inputs.relation is not None),
    ):
        if is_given:
            raise InvalidError(f"{option}: does not go with `--ids dictionary`")


def _open_edges(text: str, inputs: Inputs, parts: Parts) -> _Edges:
    """A table of edges by names.

    Errors: `InvalidError` for files whose format numbers the nodes.
    """
    what = (
        "expected text, Parquet or `.npy` by `--ids dictionary`\n"
        "hint: leave out `--ids dictionary`: the ids are taken as they are"
    )
    if is_named(text):
        raise InvalidError(f"`{text}`: its nodes have numbers from 0, {what}")
    spec = FileSpec.parse(text)
    refuse_foreign(spec.path)
    is_table = is_parquet(spec.path) or spec.path.is_file()
    if not is_table or suffix_of(spec.path) == ".npz":
        raise InvalidError(f"`{spec.path}`: its nodes have numbers from 0, {what}")
    files = states(spec.path)
    if suffix_of(spec.path) == ".npy":
        array = EdgeArrayTable.open(spec, inputs.edge_shape)
        return _Edges(spec, array, EdgeColumns(*ENDS, []), files, "")
    table = parts.open(spec, inputs.text, "named_edges")
    if isinstance(table, TextTable) and table.format != "delimited":
        raise InvalidError(f"`{spec.path}`: its format numbers the nodes from 1, {what}")
    spec, columns, by_name = parts.edges(spec, table, inputs.edge_values.names)
    return _Edges(spec, table, columns, files, by_name)


def _named(spec: FileSpec, column: str, names: Any, first: int) -> Names:
    """A column as the importer takes it.

    Errors: `InvalidError` with the row of an empty name.
    """
    offsets, data = offsets_and_bytes(names)
    empty = np.flatnonzero(np.diff(offsets) == 0)
    if len(empty):
        raise InvalidError(
            f"`{spec.path}`: column `{column}`: row {first + int(empty[0])} is empty, expected a "
            "name"
        )
    return offsets, data


def _batches(ends: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    for _, block in blocks(ends, _BLOCK):
        yield np.ascontiguousarray(block[:, 0]), np.ascontiguousarray(block[:, 1])


def _numbers(
    ids: dict[tuple[Path, str], NDArray[np.int64]], table: Table, key: str
) -> Iterator[NDArray[np.int64]]:
    """The ids of a table's rows."""
    for _, block in blocks(ids[table.path, key], _BLOCK):
        yield np.array(block)
