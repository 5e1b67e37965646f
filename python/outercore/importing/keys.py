"""Converts keys of tables to row numbers, by a dictionary on disk.

A key is unique within its node type. In a graph of one type, each different key is a node, and
nodes are numbered in the order of the keys: shorter keys first, then by bytes.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outercore.base.native import DictionaryImporter, Names, Progress
from outercore.data.directories import MANIFEST
from outercore.data.graph import Graph
from outercore.data.names import KEY
from outercore.data.schema import Schema
from outercore.errors import REFUSALS, InvalidError
from outercore.files.atomic import device_errors, remove_at_once
from outercore.files.large_arrays import blocks, forget, mapped
from outercore.importing.table.keys import key_texts
from outercore.importing.table.rows import NodeArray, RowSource
from outercore.importing.table.table import Table
from outercore.importing.table.text import offsets_and_bytes
from outercore.importing.texts import text_arrays

_SEPARATOR, _WITHIN = "\x1f", "\x1e"
"""Separators: after a node type, and between the columns of one key."""
_ROWS = 1 << 20
_NUMBERS = "names/entity.numbers"
"""The number of each text in the dictionary, in the order of the columns."""
NO_NODE, EMPTY = -1, -2
"""Row numbers that stand for unknown keys, and for empty keys."""


@dataclass(frozen=True)
class Column:
    """A column that holds keys of a node type."""

    node_type: str
    name: str
    """Its name in messages."""
    texts: Callable[[], Iterator[Any]]
    """The keys in batches, as Arrow's large strings."""
    may_be_empty: bool = False
    """Whether a row may lack a key: an empty field, or a null."""
    space: str | None = None
    """The set of node types in which keys are unique; `None`: this type alone."""
    first: int = 0
    """For a column that defines keys: the number of its first node among all nodes of the space."""
    is_one: bool = True
    """Whether a key has one column. If it has several, `texts` joins them."""
    are_nodes: bool = False
    """Whether each key is a node, so that nodes are numbered in the order of the keys."""

    @property
    def prefix(self) -> str:
        """The text before each key of a space in the dictionary. So spaces may have equal keys."""
        if self.are_nodes:
            return ""
        return (self.node_type if self.space is None else self.space) + _SEPARATOR

    def key(self, row: int) -> str:
        """The key in a row, in the form for messages.

        Cost: reads the column up to this row.
        """
        for texts in self.texts():
            if row < len(texts):
                return readable(str(texts[row]))
            row -= len(texts)
        raise InvalidError(f"{self.name}: no row {row}")


def column_of(
    node_type: str,
    table: Table,
    columns: tuple[str, ...],
    *,
    may_be_empty: bool = False,
    space: str | None = None,
    first: int = 0,
) -> Column:
    """The column of keys of `node_type` in a table; several `columns` are joined to one key.

    The other parameters are the fields of `Column`.
    """
    empty = "" if may_be_empty else None

    def texts() -> Iterator[Any]:
        for parts in key_texts(table, list(columns), empty):
            yield parts[0] if len(parts) == 1 else _joined(parts)

    name = f"`{table.path}`: {columns_in_words(columns)}"
    return Column(node_type, name, texts, may_be_empty, space, first, len(columns) == 1)


def columns_in_words(columns: tuple[str, ...]) -> str:
    """The columns of a key as text for messages."""
    word = "column" if len(columns) == 1 else "columns"
    return f"{word} {', '.join(f'`{name}`' for name in columns)}"


def _joined(parts: list[Any]) -> Any:
    """Keys of several columns, joined to one text; empty if one column is empty."""
    separator = pa.scalar(_WITHIN, pa.large_string())
    whole = pc.binary_join_element_wise(*parts, separator)
    empty = pc.equal(pc.binary_length(parts[0]), 0)
    for part in parts[1:]:
        empty = pc.or_(empty, pc.equal(pc.binary_length(part), 0))
    return pc.if_else(empty, pa.scalar("", pa.large_string()), whole)


def readable(key: str) -> str:
    """A key in the form for messages: the columns of a joined key are separated by commas."""
    return key.replace(_WITHIN, ", ")


class Keys:
    """Finds the row of each key by a dictionary on disk. The end of its context removes the files.

    `nodes` are the columns that define keys, one for each node type with keys. `uses` are the
    columns that refer to these keys, such as the ends of edges. `identity` is a text that changes
    if the inputs change. An interrupted build leaves its dictionary. The next build reuses it if it
    is complete and the identity is equal.

    Cost: reads each column once, and once more if an import is resumed. Disk: the keys, and 16
    bytes per key and use.
    """

    names: Graph
    """The dictionary as a data set, once it is built."""

    def __init__(self, out: Path, nodes: list[Column], uses: list[Column], identity: str) -> None:
        self._place = out.parent / f".{out.name}.keys"
        self._identity = identity
        self._is_ours = False
        self._columns = [*nodes, *uses]
        self._nodes = len(nodes)
        self._rows: list[NDArray[np.int64]] = []
        self._counts: list[int] = []
        self._row_of = self._column_of = np.empty(0, np.int64)

    def __enter__(self) -> Keys:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._rows = []
        self._row_of = self._column_of = np.empty(0, np.int64)
        if self._is_ours and (kind is None or issubclass(kind, REFUSALS)):
            remove_at_once(self._place)

    def build(self, memory: int, progress: Progress) -> None:
        """Builds the dictionary, which numbers all keys, within `memory` bytes.

        Errors: `InvalidError` for an empty key, and for two rows of nodes with the same key.
        """
        if not self._columns:
            return
        if not self._is_complete():
            with DictionaryImporter(self._place, memory, progress) as importer:
                self._is_ours = True
                for column in self._columns:
                    row = 0
                    for texts in column.texts():
                        importer.push(_named(column, texts, row))
                        row += len(texts)
                    self._counts.append(row)
                importer.finish([self._identity])
        self._is_ours = True
        self.names = Graph(self._place)
        self._number(mapped(self._place, self.names.arrays[_NUMBERS]))

    def _is_complete(self) -> bool:
        try:
            schema = Schema(json.loads((self._place / MANIFEST).read_text()))
            return bool(schema.provenance["inputs"] == [self._identity])
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def rows(self, use: int) -> NDArray[np.int64]:
        """The node of each key in the column `uses[use]`, `NO_NODE` or `EMPTY`. Shape: [rows]."""
        return self._rows[use]

    def are_defined(self) -> NDArray[np.bool_]:
        """For each key of the dictionary, whether a table of nodes has it. Shape: [keys]."""
        return self._row_of >= 0

    def arrays(self) -> list[NodeArray]:
        """Arrays with the keys of the nodes as texts, and their order, for the data set.

        Types whose keys are their row numbers have no such arrays, nor have keys of several
        columns.

        Cost: reads the keys of a type up to three times.
        """
        found = []
        for number, column in enumerate(self._columns[: self._nodes]):
            if not column.is_one or _are_rows(column):
                continue
            found += text_arrays(KEY, column.node_type, column.name, column.texts)
            order = RowSource(
                column.name, np.dtype(np.uint64), partial(self._ranked, number, column)
            )
            found.append(NodeArray("names", f"{column.node_type}.{KEY}.order", order))
        return found

    def _ranked(self, number: int, column: Column) -> Iterator[NDArray[np.uint64]]:
        """The ids of a type's nodes in the order of their keys, which the dictionary has."""
        for start, of_column in blocks(self._column_of, _ROWS):
            rows = self._row_of[start : start + len(of_column)][of_column == number]
            yield (rows - column.first).astype(np.uint64)
            forget(self._row_of)

    def example(self, node_type: str) -> str | None:
        """The key of the first node of a type and its column, as text; `None` without keys."""
        for column in self._columns[: self._nodes]:
            if column.node_type == node_type:
                for texts in column.texts():
                    if len(texts):
                        return f"`{readable(str(texts[0]))}` in {column.name}"
        return None

    def are_known(self, node_type: str, keys: Any) -> bool:
        """Whether more than half of these keys are keys of nodes of a type.

        Cost: reads the keys of the type.
        """
        known = pa.array([False] * len(keys))
        for column in self._columns[: self._nodes]:
            for texts in column.texts() if column.node_type == node_type else ():
                known = pc.or_(known, pc.is_in(keys, value_set=texts))
        return 2 * int(pc.sum(known).as_py() or 0) > len(keys)

    def part(self, use: int, part: slice) -> NDArray[np.int64]:
        """A copy of a part of `rows(use)`. Releases the pages that were read from the file."""
        found = np.array(self._rows[use][part])
        forget(self._rows[use])
        return found

    def _number(self, ids: NDArray[np.int64]) -> None:
        row_of = self._row_of = self._scratch("row_of", int(self.names.num_nodes))
        column_of = self._column_of = self._scratch("column_of", int(self.names.num_nodes))
        row_of[:] = column_of[:] = NO_NODE
        counts = self._counts or [
            sum(len(texts) for texts in column.texts()) for column in self._columns
        ]
        first = 0
        for number, (column, count) in enumerate(zip(self._columns, counts, strict=True)):
            own = ids[first : first + count]
            first += count
            if number < self._nodes:
                self._define(column, own, row_of)
                for _, block in blocks(own, _ROWS):
                    column_of[block] = number
            elif column.are_nodes:
                self._rows.append(own)
            else:
                rows = self._scratch(f"rows-{number}", count)
                empty = _empty_name(column, self.names)
                for start, block in blocks(own, _ROWS):
                    found = np.where(block == empty, EMPTY, row_of[block])
                    rows[start : start + len(block)] = found
                    forget(rows)
                self._rows.append(rows)

    def _define(self, column: Column, ids: NDArray[np.int64], row_of: NDArray[np.int64]) -> None:
        for start, block in blocks(ids, _ROWS):
            own = np.arange(start, start + len(block)) + column.first
            row_of[block] = np.where(row_of[block] < 0, own, row_of[block])
            twice = np.flatnonzero(row_of[block] != own)
            if len(twice):
                rows = sorted([start + int(twice[0]), int(row_of[block[twice[0]]]) - column.first])
                name = self.names.entity_names([int(block[twice[0]])])[0]
                key = name.removeprefix(column.prefix)
                if rows[0] < 0:
                    raise InvalidError(
                        f"{column.name}: key `{readable(key)}` in row {rows[1]} is that of a "
                        "node of another type\nhint: keys of one space name one node; leave one out"
                    )
                raise InvalidError(
                    f"{column.name}: key `{readable(key)}` stands in rows {rows[0]} and {rows[1]}, "
                    "expected once\nhint: each row is a node; leave the second one out"
                )

    def _scratch(self, name: str, count: int) -> NDArray[np.int64]:
        if not count:
            return np.empty(0, np.int64)
        again = "run the same command again"
        # The file has no name, so the system removes it with this process, even if it is killed.
        with (
            device_errors(f"`{self._place}`: {name}", again),
            tempfile.TemporaryFile(dir=self._place) as file,
        ):
            # Reserve the space: a full disk raises an error here, but a write to a mapped page
            # would end the process.
            os.posix_fallocate(file.fileno(), 0, 8 * count)
            return np.memmap(file, np.int64, "r+", shape=(count,))


def _are_rows(column: Column) -> bool:
    """Whether each key is the number of its row. Reads the column up to the first other key."""
    row = 0
    for texts in column.texts():
        numbers = pa.array(np.arange(row, row + len(texts))).cast(pa.large_string())
        if not pc.all(pc.equal(texts, numbers)).as_py() and len(texts):
            return False
        row += len(texts)
    return True


def _named(column: Column, texts: Any, first: int) -> Names:
    """Keys with the prefix of their space, as offsets and bytes for the importer.

    Errors: `InvalidError` with the row of an empty key.
    """
    empty = np.flatnonzero(np.asarray(pc.equal(pc.binary_length(texts), 0)))
    if len(empty) and not column.may_be_empty:
        raise InvalidError(f"{column.name}: row {first + int(empty[0])} is empty, expected a key")
    if column.prefix:
        prefix = pa.scalar(column.prefix, pa.large_string())
        texts = pc.binary_join_element_wise(prefix, texts, pa.scalar("", pa.large_string()))
    return offsets_and_bytes(texts)


def _empty_name(column: Column, names: Graph) -> int:
    """The number of the empty key of a column; -1 without an empty key."""
    found = names.entities.find(column.prefix) if column.may_be_empty else None
    return -1 if found is None else found
