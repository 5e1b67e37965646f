"""A table with a row for each node, and the column by which other files name them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import outercore
from outercore.base.native import Names, Progress, Role, TripleImporter
from outercore.base.shell import quoted
from outercore.errors import REFUSALS, InvalidError
from outercore.files.atomic import remove_at_once
from outercore.files.file_spec import FileSpec
from outercore.files.large_arrays import blocks, forget, mapped
from outercore.importing.edge_arrays import edge_arrays
from outercore.importing.edges import EdgeSource, dates_of, pushed, table_values
from outercore.importing.format.foreign import refuse_foreign
from outercore.importing.format.registry import is_named
from outercore.importing.inputs import Inputs, node_files, reading_of
from outercore.importing.labels import label_columns
from outercore.importing.options import require_once
from outercore.importing.source import GraphSource
from outercore.importing.splits import SplitColumns, split_columns, split_name
from outercore.importing.table.columns import (
    EdgeColumns,
    NodeColumns,
    edge_columns,
    id_column,
    node_columns,
)
from outercore.importing.table.edge_array import ENDS, EdgeArrayTable
from outercore.importing.table.file_state import FileState, states
from outercore.importing.table.keys import NodeIds, key_texts
from outercore.importing.table.parts import Parts
from outercore.importing.table.rows import (
    NodeArray,
    Reading,
    RowSource,
    as_times,
    described,
    require_rows,
    table_rows,
)
from outercore.importing.table.table import Table, TextTable, is_parquet, open_table
from outercore.importing.table.text import TextOptions, names_of, suffix_of
from outercore.importing.texts import table_texts, text_files

_BLOCK = 1 << 20


@dataclass(frozen=True)
class NamedRows:
    """Rows of a file that name nodes, with the node of each; [rows] or [rows, ends]."""

    spec: FileSpec
    columns: tuple[str, ...]
    nodes: NDArray[np.int64]


def key_of(spec: FileSpec, table: Table) -> str:
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


def require_rows_of_nodes(
    table: NamedRows, uses: Sequence[NamedRows], count: int, called: Callable[[int], str]
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
        forget(table.nodes)
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
                is_first = row + place == 0
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
        forget(nodes)


def _twice(table: NamedRows, stop: int, called: Callable[[int], str]) -> InvalidError:
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


_CHUNK = 1 << 20
_ARRAYS = (".npy", ".npz")
_PARTS = ("offsets", "bytes")
_LOOKED_AT = 1000
"""Rows that tell which column has the names of the edges."""


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

    @property
    def taken(self) -> list[str]:
        """The columns with values."""
        return self.columns.values

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
    by_name: str
    """What a note says about columns that are taken by their names."""


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
        parts = Parts()
        self._edges = [_open_edges(text, inputs, parts) for text in inputs.edges]
        node_table = inputs.node_table
        self._table = None if node_table is None else self._open_nodes(node_table)
        self._rows = self._open_rows()
        out = Path(out)
        self._place = out.parent / f".{out.name}.names"
        self._is_ours = False

    def __enter__(self) -> NamedInputs:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an interrupt the next run resumes from here.
        if self._is_ours and (kind is None or issubclass(kind, REFUSALS)):
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
                for rows in self._named_rows():
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
            " ".join([f"{one.columns.key}={one.spec}", *map(str, one.files)])
            for one in self._named_rows()
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
                    others=tuple(ends.others),
                    values=table_values(table, ends),
                    notes=[f"{spec.path}: {_described(table)}{one.by_name}; nodes by a dictionary"],
                    files=one.files,
                    dates=dates_of(table, ends),
                )
            )
        values, notes = edge_arrays(edges, self._inputs.edge_values, self._reading)
        if self._table is not None:
            self._require_known(names, self._table)
        arrays = self._node_arrays(names)
        arrays += [
            NodeArray("names", f"entity.{part}", _stored(names, f"names/entity.{part}"))
            for part in _PARTS
        ]
        shown = [note for edge in edges for note in edge.notes]
        shown += self._notes_on_table()
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
        found, first = [], 0 if self._table is None else self._table.table.rows
        for rows in self._rows:
            ids = _array(names, "triples/valid")[first : first + rows.table.rows, 0]
            first += len(ids)
            if rows.role == "split":
                found.append(NodeArray("split", rows.name, _ids(rows, ids)))
                continue
            reading = replace(
                self._reading,
                nodes=int(names.num_nodes),
                ids=NodeIds(_sliced(ids), names.entity_names),
            )
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

    def _open_nodes(self, text: str) -> _Rows:
        """The table of nodes."""
        spec = FileSpec.parse(text)
        refuse_foreign(spec.path)
        if suffix_of(spec.path) in _ARRAYS:
            raise _without_order(str(spec))
        files = states(spec.path)
        table = _open_nodes(spec, self._inputs.text)
        return _Rows("array", "", spec, table, NodeColumns(key_of(spec, table), []), files)

    @property
    def _key(self) -> str | None:
        """What the column of names is called in tables, where the user says it."""
        return None if self._table is None else self._table.columns.key

    def _named_rows(self) -> list[_Rows]:
        """All tables of nodes."""
        return self._rows if self._table is None else [self._table, *self._rows]

    def _require_known(self, names: Any, table: _Rows) -> None:
        """Errors: as `require_rows_of_nodes`."""
        triples, first = _array(names, "triples/train"), 0
        uses = []
        for edges in self._edges:
            part = triples[first : first + edges.table.rows]
            first += len(part)
            ends = (edges.columns.source, edges.columns.target)
            uses.append(NamedRows(edges.spec, ends, part[:, ::2]))
        nodes, first = _array(names, "triples/valid")[:, 0], 0
        of_tables = []
        for rows in [table, *self._rows]:
            assert rows.columns.key is not None
            part = nodes[first : first + rows.table.rows]
            first += len(part)
            of_tables.append(NamedRows(rows.spec, (rows.columns.key,), part))
        require_rows_of_nodes(
            of_tables[0],
            [*uses, *of_tables[1:]],
            int(names.num_nodes),
            lambda node: str(names.entity_names([node])[0]),
        )

    def _notes_on_table(self) -> list[str]:
        """How the table of nodes is read."""
        if self._table is None:
            return []
        spec, table, key = self._table.spec, self._table.table, self._table.columns.key
        taken = {name for rows in self._rows if rows.spec.path == spec.path for name in rows.taken}
        left = [name for name in table.names if name != key and name not in taken]
        shown = ", ".join(f"`{name}`" for name in left[:6])
        more = f" and {len(left) - 6} more" if len(left) > 6 else ""
        note = f"{spec.path}: {described(table, has_names=True)}; nodes by column `{key}`"
        return [note + (f"; not taken: {shown}{more}" if left else "")]

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

    def _keyed(self, role: Role, name: str, text: str) -> _Rows:
        spec = FileSpec.parse(text, may_leave_out=role in ("features", "labels", "array"))
        refuse_foreign(spec.path)
        if suffix_of(spec.path) in _ARRAYS:
            raise _without_order(str(spec))
        files = states(spec.path)
        table = _open_nodes(spec, self._inputs.text)
        if role == "split":
            split = split_columns(name, spec, table, self._key)
            columns = NodeColumns(split.ids, [split.mask] if split.mask else [])
        else:
            split, columns = None, node_columns(spec, table, self._key)
        if columns.key is None:
            way = f"call the column with the names `{self._key or 'id'}`"
            if self._key is None and (found := self._likely_key(spec, table)) is not None:
                way = f"name the column of keys: `--nodes {quoted(f'{spec.path}:{found}')}`"
            raise InvalidError(
                f"`{spec}`: no column of ids, and nodes with names have no order\nhint: {way}"
            )
        return _Rows(role, name, spec, table, columns, files, split)


def _first_texts(table: Table, columns: list[str]) -> set[str]:
    """Keys in the first rows of some columns."""
    first = next(iter(key_texts(table, columns)), [])
    return {text for column in first for text in column.slice(0, _LOOKED_AT).to_pylist()}


def _described(table: Table) -> str:
    return "array" if isinstance(table, EdgeArrayTable) else described(table)


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

    Errors: `InvalidError` for files whose format says what the ids are.
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
    if isinstance(table, TextTable) and table.file.format != "delimited":
        raise InvalidError(f"`{spec.path}`: its format numbers the nodes from 1, {what}")
    spec, by_name = parts.by_name(spec, table)
    columns = edge_columns(spec, table, inputs.edge_values.names)
    parts.remember(table, (columns.source, columns.target))
    return _Edges(spec, table, columns, files, by_name)


def _open_nodes(spec: FileSpec, text: TextOptions) -> Table:
    """A table of nodes by names, with the rules for comments that edges by names have.

    Errors: `InvalidError` for a table without rows, and for lines that may be comments or rows.
    """
    table = open_table(spec, text, "named_table")
    require_rows(table, of_names=True)
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
