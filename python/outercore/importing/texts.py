"""Opens texts of nodes, such as titles. They are stored like names, in the order of the nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outercore.data.names import KEY
from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.importing.graph_tables import NodeTable
from outercore.importing.labels import label_column
from outercore.importing.options import require_once
from outercore.importing.table.columns import NodeColumns, node_columns
from outercore.importing.table.file_state import FileState, states
from outercore.importing.table.keys import KeyedRows, alongside
from outercore.importing.table.rows import NodeArray, Reading, RowSource, is_array, open_node_table
from outercore.importing.table.table import Table
from outercore.importing.table.text import offsets_and_bytes

Texts = Callable[[], Iterator[pa.Array]]
"""Batches of large strings, a text for each node; no nulls."""


def text_arrays(
    name: str,
    node_type: str | None,
    where: str,
    texts: Texts,
    files: tuple[FileState, ...] = (),
    notes: list[str] | None = None,
) -> list[NodeArray]:
    """The two arrays that store the texts `name` of the nodes of a type; `where` is for messages.

    Cost: reads the texts twice.
    """

    def offsets() -> Iterator[NDArray[np.uint64]]:
        total = 0
        yield np.zeros(1, np.uint64)
        for batch in texts():
            ends = offsets_and_bytes(batch)[0][1:] + total
            total = int(ends[-1]) if len(ends) else total
            yield ends.astype(np.uint64)

    def characters() -> Iterator[NDArray[np.uint8]]:
        for batch in texts():
            yield offsets_and_bytes(batch)[1]

    kind = f"{node_type or 'node'}.{name}"
    parts: tuple[tuple[str, Any, Any, list[str]], ...] = (
        ("offsets", np.uint64, offsets, notes or []),
        ("bytes", np.uint8, characters, []),
    )
    return [
        NodeArray(
            "names",
            f"{kind}.{part}",
            RowSource(where, np.dtype(dtype), chunks, files=files, notes=said),
        )
        for part, dtype, chunks, said in parts
    ]


def require_text_name(name: str) -> None:
    """Errors: `InvalidError` for the name of a text that has another meaning, too."""
    if "/" in name:
        raise InvalidError(
            f"--text: `{name}` cannot name a text: it has a `/`\nhint: rename the column, or give "
            "its file: `outercore add DATASET --text NAME=FILE:COLUMN`"
        )
    if name == KEY or name.endswith(f".{KEY}"):
        raise InvalidError(
            f"--text: `{name}` cannot name a text: `{KEY}` has the keys of nodes of several types\n"
            "hint: choose another name; where the column has the keys, they are kept already"
        )


def open_texts(
    name: str, node_type: str | None, text: str, reading: Reading
) -> tuple[list[NodeArray], int]:
    """Opens a column of the file that `text` names. A column of ids gives the node of each row.

    Without ids, rows are in the order of the nodes. Returns the arrays and the number of nodes:
    `reading.nodes`, or else from the file.

    Errors: `InvalidError` for several columns, another number of rows than nodes, and columns of
    lists or fractions.
    """
    spec = FileSpec.parse(text)
    if is_array(spec):
        raise InvalidError(f"--text: `{spec}`: expected a table, such as CSV or Parquet")
    files = states(spec.path)
    table = open_node_table(spec, reading)
    columns = node_columns(spec, table, reading.key)
    if len(columns.values) != 1:
        raise InvalidError(
            f"--text: `{spec}`: expected one column, found {', '.join(columns.values)}\n"
            f"hint: choose one: `--text {name}={spec.path}:{columns.values[0]}`"
        )
    if columns.key is None and reading.nodes not in (None, table.rows):
        raise InvalidError(
            f"--text: `{spec}`: {table.rows:,} rows, but the graph has {reading.nodes:,} nodes\n"
            "hint: there must be one row for each node, in the order of the ids"
        )
    count = reading.nodes
    if count is None:
        count = table.rows
        if columns.key is not None:
            count = _Keyed(table, columns.key, lambda: iter(()), reading).lengths().count
    reading = replace(reading, nodes=count)
    return _table_texts(name, node_type, spec, table, columns, reading, files), count


def text_files(texts: tuple[str, ...]) -> list[tuple[str, str]]:
    """Name and file of each `NAME=FILE`.

    Errors: `InvalidError` for another form, and for a repeated name.
    """
    found = []
    for text in texts:
        name, equals, file = text.partition("=")
        if not equals or not name:
            raise InvalidError(f"--text: expected NAME=FILE, found `{text}`")
        found.append((name, file))
        require_text_name(name)
    require_once("--text", [name for name, _ in found])
    return found


def _table_texts(
    name: str,
    node_type: str | None,
    spec: FileSpec,
    table: Table,
    columns: NodeColumns,
    reading: Reading,
    files: tuple[FileState, ...],
) -> list[NodeArray]:
    """The arrays of a column of text, in the order of the nodes if it has a key, or of the file.

    An empty cell, a null and a node without a row get the empty text.
    """
    (column,) = columns.values

    def in_order() -> Iterator[pa.Array]:
        for (batch,) in table.texts([column], empty=""):
            yield batch

    written = table.described(has_names=reading.ids is not None)
    note = f"{spec.path}: {written}; column `{column}` is kept as text"
    texts: Texts = in_order
    if columns.key is not None:
        texts = _Keyed(table, columns.key, in_order, reading).batches
        note += f", joined by column `{columns.key}`"
    return text_arrays(name, node_type, str(spec), texts, files, [note])


@dataclass(frozen=True)
class _Keyed:
    """The texts of a table with ids, sorted into the order of the nodes.

    Cost: reads the table once for each range of nodes whose texts fit in the memory.
    """

    table: Table
    key: str
    texts: Texts
    reading: Reading

    def batches(self) -> Iterator[pa.Array]:
        """The texts in batches. Errors: `InvalidError` for repeated ids and ids out of range."""
        first = 0
        for lengths in self.lengths().chunks():
            ends = np.cumsum(lengths[:, 0])
            start = 0
            while start < len(ends):
                before = int(ends[start - 1]) if start else 0
                stop = int(np.searchsorted(ends, before + self.reading.memory, side="right"))
                stop = max(stop, start + 1)
                yield self._part(first + start, first + stop)
                start = stop
            first += len(ends)

    def lengths(self) -> KeyedRows:
        """The length of each text in bytes, in the order of the nodes."""

        def values() -> Iterator[NDArray[np.int64]]:
            for batch in self.texts():
                yield np.diff(offsets_and_bytes(batch)[0]).reshape(-1, 1)

        dtype, memory = np.dtype(np.int64), self.reading.memory
        ids, nodes = self.reading.node_ids, self.reading.nodes
        return KeyedRows(self.table, self.key, 1, dtype, values, ids, memory, nodes, 0)

    def _part(self, first: int, last: int) -> pa.Array:
        """The texts of the nodes `first` to `last`."""
        places, found = [np.empty(0, np.int64)], [pa.array([""], pa.large_string())]
        ids = self.reading.node_ids.lookup(self.table, self.key)
        for of_rows, batch in alongside(ids, self.texts()):
            inside = np.flatnonzero((of_rows >= first) & (of_rows < last))
            places.append(of_rows[inside] - first)
            found.append(batch.take(pa.array(inside)))
        # Place 0 has the text of nodes without a row.
        where = np.zeros(last - first, np.int64)
        where[np.concatenate(places)] = np.arange(sum(map(len, places))) + 1
        texts = pa.chunked_array(found).take(pa.array(where)).combine_chunks()
        return pc.cast(texts, pa.large_string())


def text_columns(given: tuple[str, ...], nodes: dict[str, NodeTable]) -> dict[str, list[str]]:
    """The columns of each type that are stored as text, given as `TYPE.COLUMN`.

    Errors: `InvalidError` for another form; `NotFoundError` for a missing column.
    """
    require_once("--text", list(given))
    found: dict[str, list[str]] = {}
    for text in given:
        if "=" in text:
            raise InvalidError(
                f"--text: expected TYPE.COLUMN, found `{text}`\n"
                "hint: `outercore add DATASET --text TYPE/NAME=FILE:COLUMN` takes another file"
            )
        node_type, column = label_column(text, nodes, "--text")
        require_text_name(column)
        found.setdefault(node_type, []).append(column)
    return found


def open_node_texts(
    given: tuple[str, ...], nodes: dict[str, NodeTable], reading: Reading
) -> list[NodeArray]:
    """Opens the texts in the columns of `text_columns`. The name of a column becomes its name.

    Errors: as `text_columns`.
    """
    found = []
    for node_type, columns in text_columns(given, nodes).items():
        one = nodes[node_type]
        assert one.table is not None
        assert one.spec is not None
        for column in columns:
            of_one = NodeColumns(None, [column])
            found += _table_texts(
                column, node_type, one.spec, one.table, of_one, reading, one.files
            )
    return found


def columns_besides(
    label: str | None, texts: tuple[str, ...], nodes: dict[str, NodeTable]
) -> dict[str, set[str]]:
    """The columns of each type that do not become features: labels and texts.

    Errors: as `text_columns` and `label_column`.
    """
    found = {name: set(columns) for name, columns in text_columns(texts, nodes).items()}
    if label is not None and "=" not in label:
        node_type, column = label_column(label, nodes)
        found.setdefault(node_type, set()).add(column)
    return found
