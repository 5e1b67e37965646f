"""Splits of the labelled node type: by keys where it has some, else by rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outercore.data.split_names import normal_split
from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.importing.graph import NodeArray
from outercore.importing.splits import (
    SplitChoice,
    open_split,
    open_splits,
    require_once,
    split_columns,
)
from outercore.importing.table.columns import id_column
from outercore.importing.table.rows import Reading, RowSource, is_array, open_node_table, open_rows
from outercore.importing.table.rows_by_key import alongside
from outercore.importing.table.table import Table
from outercore.importing.typed.keys import Column, Keys, column_of, readable
from outercore.importing.typed.tables import NodeTable


class Splits:
    """The splits of one node type: arrays of rows, and columns of keys to be looked up."""

    def __init__(self, choice: SplitChoice, nodes: NodeTable, reading: Reading) -> None:
        """Opens the files.

        Errors: `InvalidError` for a split that is given twice, or a table that does not say which
        nodes it means.
        """
        self.arrays: list[NodeArray] = []
        """Those by rows."""
        self.columns: list[Column] = []
        """The keys of the others, in the order of `names`."""
        self._names: list[str] = []
        self._nodes = nodes
        by_key = bool(nodes.key)
        reading = replace(reading, nodes=nodes.count, fill=None)
        if choice.archive is not None:
            for name, rows in open_splits(choice.archive, reading):
                self._add(name, rows, nodes.node_type, by_key=by_key and rows.dtype.kind != "b")
        for text in choice.single:
            name, spec = _parse(text)
            if not by_key:
                self._add(*open_split(text, reading), nodes.node_type, by_key=False)
            elif is_array(spec):
                rows = open_rows(spec, reading)
                self._add(name, rows, nodes.node_type, by_key=rows.dtype.kind != "b")
            else:
                self._add_table(text, name, spec, reading)
        require_once("--split", [*(array.name for array in self.arrays), *self._names])

    def _add_table(self, text: str, name: str, spec: FileSpec, reading: Reading) -> None:
        """A table of keys, or of keys with a column that says which of them are in the split."""
        nodes, table = self._nodes, open_node_table(spec, reading)
        if len(nodes.key) > 1:
            columns, mask = _key_columns(name, spec, table, len(nodes.key)), None
        else:
            found = split_columns(name, spec, table, nodes.key[0])
            if found.ids is None:
                self._add(*open_split(text, reading), nodes.node_type, by_key=False)
                return
            columns, mask = (found.ids,), found.mask
        column = column_of(nodes.node_type, table, columns, space=nodes.space)
        self._names.append(name)
        self.columns.append(column if mask is None else _where_true(column, table, mask))

    def _add(self, name: str, rows: RowSource, node_type: str, *, by_key: bool) -> None:
        if not by_key:
            self.arrays.append(NodeArray("split", name, rows, node_type))
            return
        if rows.dtype.kind not in "iu":
            raise InvalidError(f"--split {name}: expected keys, found {rows.dtype}")
        self._names.append(name)
        where = f"split `{name}` in `{rows.name}`"
        self.columns.append(Column(node_type, where, _texts(rows), space=self._nodes.space))

    def looked_up(self, keys: Keys, first_use: int) -> list[NodeArray]:
        """The splits by keys, as rows; their columns are the uses from `first_use` on.

        Errors: `InvalidError` for a key that no node has.
        """
        found = []
        for place, (name, column) in enumerate(zip(self._names, self.columns, strict=True)):
            rows = keys.rows(first_use + place) - self._nodes.first
            assert self._nodes.count is not None  # Types with keys have a table.
            missing = np.flatnonzero((rows < 0) | (rows >= self._nodes.count))
            if len(missing):
                raise InvalidError(
                    f"--split {name}: {column.name}: row {int(missing[0])}: no node of type "
                    f"`{column.node_type}` has the key `{_key_at(column, int(missing[0]))}`"
                )
            found.append(NodeArray("split", name, _stored(name, rows), column.node_type))
        return found


def _where_true(column: Column, table: Table, mask: str) -> Column:
    """The keys of the rows that a mask takes."""
    dtype = table.dtype(mask)
    assert dtype is not None

    def texts() -> Iterator[Any]:
        flags = (rows[:, 0].astype(np.int64) for rows in table.numbers([mask], dtype, "nan"))
        for is_taken, keys in alongside(flags, column.texts()):
            yield keys.filter(pa.array(is_taken != 0))

    return replace(column, texts=texts)


def _key_columns(name: str, spec: FileSpec, table: Table, count: int) -> tuple[str, ...]:
    """The columns that hold keys of `count` columns.

    Errors: `InvalidError` where nothing tells, or another number of columns is chosen.
    """
    if len(spec.columns) == count:
        return spec.columns
    if not spec.columns and count == 1:
        column = table.names[0] if len(table.names) == 1 else id_column(table)
        if column is not None:
            return (column,)
    if not spec.columns and len(table.names) == count:
        return tuple(table.names)
    found = f"{len(spec.columns)} chosen" if spec.columns else "none that is called so"
    raise InvalidError(
        f"--split {name}: `{spec.path}`: keys have {count} column{'s' * (count > 1)}, found "
        f"{found}\nhint: name all: `--split NAME=FILE:{','.join(['COLUMN'] * count)}`"
    )


def _key_at(column: Column, row: int) -> str:
    """The key in a row of a column."""
    first = 0
    for texts in column.texts():
        if row < first + len(texts):
            return readable(str(texts[row - first]))
        first += len(texts)
    raise InvalidError(f"{column.name}: no row {row}")


def _parse(text: str) -> tuple[str, FileSpec]:
    name, equals, file = text.partition("=")
    if not equals or not name:
        raise InvalidError(
            f"--split: expected NAME=FILE, such as `train=train.npy`, found `{text}`"
        )
    return normal_split(name), FileSpec.parse(file)


def _texts(rows: RowSource) -> Any:
    def texts() -> Iterator[Any]:
        for chunk in rows.chunks():
            yield pa.array(chunk).cast(pa.large_string())

    return texts


def _stored(name: str, rows: NDArray[np.int64]) -> RowSource:
    def chunks() -> Iterator[NDArray[np.int64]]:
        for first in range(0, len(rows), 1 << 20):
            yield np.array(rows[first : first + (1 << 20)])

    return RowSource(f"split `{name}`", np.dtype(np.int64), None, len(rows), chunks)
