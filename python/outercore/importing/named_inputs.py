"""Opens inputs whose nodes have names. A dictionary on disk gives each name a number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outercore.base.listing import listed
from outercore.base.shell import quoted
from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.files.large_arrays import blocks, mapped
from outercore.importing.edge_arrays import edge_arrays
from outercore.importing.edges import edges_of_table, from_zero
from outercore.importing.format.registry import is_named
from outercore.importing.inputs import Inputs
from outercore.importing.keys import Column, Keys, columns_in_words
from outercore.importing.node_files import NodeFile
from outercore.importing.options import ImportOptions, require_once
from outercore.importing.plain_graph import node_files, notes_on_size, reading_identity
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
from outercore.importing.table.text import TextTable, suffix_of
from outercore.importing.texts import text_files

_BLOCK = 1 << 20
"""Number of rows that are processed together."""
_LOOKED_AT = 1000
"""Number of first rows that are compared, to suggest a column of names in an error."""


@dataclass(frozen=True, eq=False)
class _Table:
    """A table of edges, or of nodes, whose rows name nodes."""

    spec: FileSpec
    table: Table
    names: tuple[str, ...]
    """The columns with names of nodes: one, or the two ends of an edge."""
    values: tuple[str, ...]
    """Other columns that are used."""
    files: tuple[FileState, ...]
    file: NodeFile | None = None
    """Describes the values of nodes; `None` for edges and for the table that defines the nodes."""
    by_name: str = ""
    """Text of a note about columns that are chosen by name."""

    @property
    def identity(self) -> str:
        """A text that changes if the input changes."""
        key = "" if len(self.names) > 1 else f"{self.names[0]}="
        return " ".join([f"{key}{self.spec}", *map(str, self.files)])

    def column(self) -> Column:
        """All names as a column of keys, row by row."""
        where = f"`{self.spec.path}`: {columns_in_words(self.names)}"
        return Column("", where, self._texts, are_nodes=True)

    def _texts(self) -> Iterator[pa.Array]:
        """The names in batches. Errors: `InvalidError` with the row of an empty name."""
        row = 0
        for texts in key_texts(self.table, list(self.names)):
            for name, column in zip(self.names, texts, strict=True):
                empty = np.flatnonzero(np.asarray(pc.equal(pc.binary_length(column), 0)))
                if len(empty):
                    raise InvalidError(
                        f"`{self.spec.path}`: column `{name}`: row {row + int(empty[0])} is empty, "
                        "expected a name"
                    )
            rows, ends = len(texts[0]), len(texts)
            row += rows
            # The two ends of each edge are next to each other.
            order = np.arange(rows * ends).reshape(ends, rows).T.reshape(-1)
            yield texts[0] if ends == 1 else pa.concat_arrays(texts).take(pa.array(order))


def _key_column(spec: FileSpec, table: Table) -> str:
    """The column of keys in a table of nodes: the chosen column, or else one with a usual name.

    Errors: `InvalidError` for several columns, and if no column has a usual name.
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
    table: _Table, nodes: dict[_Table, NDArray[np.int64]], keys: Keys
) -> None:
    """Checks that each node of the other tables has a row in the table.

    `nodes` maps each other table to the nodes in its rows, [rows] or [rows, ends].

    Cost: one byte of memory per node. If a row is missing, also a pass over all rows.
    Errors: `InvalidError` with a row whose node is not in the table.
    """
    known = keys.are_defined()
    if known.all():
        return
    for use, of_rows in nodes.items():
        unknown = sum(int((~known[block]).any(axis=-1).sum()) for block in _rows(of_rows))
        if not unknown:
            continue
        row = 0
        for block in _rows(of_rows):
            wrong = np.argwhere(~known[block])
            if len(wrong):
                place, column = (int(at) for at in wrong[0])
                (name,) = keys.names.entity_names([int(block[place, column])])
                is_first = row + place == 0 and not use.table.is_named
                header = "if the first line names the columns: `--header`; " if is_first else ""
                raise InvalidError(
                    f"`{use.spec.path}`: row {row + place}: column `{use.names[column]}` names "
                    f"node `{name}`, and `{table.spec.path}` has no row for it; so it is in "
                    f"{unknown:,} of {len(of_rows):,} rows\n"
                    f"hint: {header}add rows for these nodes to the table; or leave `--nodes` out, "
                    "and all nodes that files name are nodes of the graph"
                )
            row += len(block)


def _rows(nodes: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for _, block in blocks(nodes, _BLOCK):
        yield np.array(block).reshape(len(block), -1)


def open_named(inputs: Inputs, options: ImportOptions) -> GraphSource:
    """Opens inputs whose nodes have names. `with_keys` of the source completes it.

    Cost: the numbering of the names reads both ends of each edge once.
    Errors: `InvalidError` for a node table without a column of ids, and for options without effect
    on names.
    """
    return _Opening(inputs, options).source()


class _Opening:
    """Opens the files of inputs whose nodes have names."""

    def __init__(self, inputs: Inputs, options: ImportOptions) -> None:
        _refuse_options(inputs)
        self._inputs, self._options = inputs, options
        self._reading = replace(inputs.reading(options), purpose="named_table")
        parts = Parts()
        self._edges = [_open_edges(text, inputs, parts) for text in inputs.edges]
        node_table = inputs.node_table
        self._table = None if node_table is None else self._open_nodes(node_table)
        if self._table is not None:
            self._reading = replace(self._reading, key=self._table.names[0])
        self._files = [self._keyed(one) for one in self._node_files()]
        self._defining = [] if self._table is None else [self._table]
        self._tables = [*self._edges, *self._files]

    def source(self) -> GraphSource:
        """A source with the columns of names, and the function that completes it."""
        return GraphSource(
            [],
            identities=self._identity(),
            node_keys=[one.column() for one in self._defining],
            uses=[one.column() for one in self._tables],
            with_keys=self._with_keys,
        )

    def _identity(self) -> list[str]:
        """The inputs and options that determine the ids of names, and so the edges."""
        reading = reading_identity(self._inputs, self._options.task)
        tables = [*self._edges, *self._defining, *self._files]
        return [*(one.identity for one in tables), reading]

    def _with_keys(self, keys: Keys) -> GraphSource:
        names = keys.names
        count = int(names.num_nodes)
        nodes = {
            one: keys.rows(use) if len(one.names) == 1 else keys.rows(use).reshape(-1, 2)
            for use, one in enumerate(self._tables)
        }
        edges = [
            edges_of_table(
                one.spec,
                one.table,
                EdgeColumns(one.names[0], one.names[1], list(one.values)),
                f"{one.by_name}; nodes by a dictionary",
                from_zero(str(one.spec), partial(_batches, nodes[one])),
                files=one.files,
            )
            for one in self._edges
        ]
        values, notes = edge_arrays(edges, self._inputs.edge_values, self._reading)
        if self._table is not None:
            _require_rows_of_nodes(self._table, nodes, keys)
        ids = {(one.spec.path, one.names[0]): of for one, of in nodes.items() if of.ndim == 1}
        of_tables = NodeIds(partial(_numbers, ids), names.entity_names)
        reading = replace(self._reading, nodes=count, ids=of_tables)
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
        notes = [
            *(note for one in edges for note in one.notes),
            *self._notes_on_table(),
            *(note for array in arrays for note in array.rows.notes),
            *notes,
        ]
        arrays += values
        return GraphSource(
            edges,
            arrays,
            count,
            identity="\n".join(self._identity()) + " by a dictionary",
            notes=[*notes, *notes_on_size(arrays, self._options)],
        )

    def _open_nodes(self, text: str) -> _Table:
        spec = FileSpec.parse(text)
        files, table = self._opened(spec)
        return _Table(spec, table, (_key_column(spec, table),), (), files)

    def _opened(self, spec: FileSpec) -> tuple[tuple[FileState, ...], Table]:
        """The current state of a file, and its table.

        Errors: `InvalidError` for an array, because it has no column of names.
        """
        refuse_foreign(spec.path)
        if is_array(spec):
            raise _without_order(str(spec))
        return states(spec.path), open_node_table(spec, self._reading)

    def _notes_on_table(self) -> list[str]:
        if self._table is None:
            return []
        spec, table, (key,) = self._table.spec, self._table.table, self._table.names
        taken = {name for one in self._files if one.spec.path == spec.path for name in one.values}
        left = [name for name in table.names if name != key and name not in taken]
        note = f"{spec.path}: {table.described(has_names=True)}; nodes by column `{key}`"
        return [note + (f"; not taken: {listed(left, most=6)}" if left else "")]

    def _node_files(self) -> list[NodeFile]:
        if self._inputs.splits.archive is not None:
            raise _without_order(str(self._inputs.splits.archive))
        splits = [split_name(text) for text in self._inputs.splits.single]
        require_once("--split", [name for name, _ in splits])
        texts = [NodeFile("names", name, file) for name, file in text_files(self._inputs.texts)]
        of_splits = [NodeFile("split", name, file) for name, file in splits]
        return [*node_files(self._inputs), *of_splits, *texts]

    def _likely_key(self, spec: FileSpec, table: Table) -> str | None:
        """The first column outside `spec` whose first rows have names of the edges, for a hint."""
        names: set[str] = set()
        for edges in self._edges:
            names |= _first_texts(edges.table, list(edges.names))
        for column in table.names:
            dtype = table.dtype(column)
            may_be_key = table.kind(column) == "text" if dtype is None else dtype.kind in "iu"
            if column not in spec.columns and may_be_key and names & _first_texts(table, [column]):
                return column
        return None

    def _keyed(self, file: NodeFile) -> _Table:
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
        return _Table(spec, table, (columns.key,), tuple(columns.values), files, file)


def _first_texts(table: Table, columns: list[str]) -> set[str]:
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


def _open_edges(text: str, inputs: Inputs, parts: Parts) -> _Table:
    """Opens a table of edges whose ends are names.

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
        return _Table(spec, array, ENDS, (), files)
    table = parts.open(spec, inputs.text, "named_edges")
    if isinstance(table, TextTable) and table.format != "delimited":
        raise InvalidError(f"`{spec.path}`: its format numbers the nodes from 1, {what}")
    spec, columns, by_name = parts.edges(spec, table, inputs.edge_values.names)
    names = columns.source, columns.target
    return _Table(spec, table, names, tuple(columns.others), files, by_name=by_name)


def _batches(ends: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    for _, block in blocks(ends, _BLOCK):
        yield np.ascontiguousarray(block[:, 0]), np.ascontiguousarray(block[:, 1])


def _numbers(
    ids: dict[tuple[Path, str], NDArray[np.int64]], table: Table, key: str
) -> Iterator[NDArray[np.int64]]:
    for _, block in blocks(ids[table.path, key], _BLOCK):
        yield np.array(block)
