"""Opens labels of nodes. Numbers stay unchanged; words become classes, which keep their names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.importing.graph_tables import NodeTable, refuse_keys
from outercore.importing.table.columns import NodeColumns, node_columns
from outercore.importing.table.exact import exactly
from outercore.importing.table.file_state import states
from outercore.importing.table.parquet import ParquetTable
from outercore.importing.table.rows import (
    NodeArray,
    Reading,
    from_array,
    is_array,
    name_arrays,
    open_node_table,
    open_rows,
    table_rows,
)
from outercore.importing.table.table import Missing, Numbers, Table, require_column
from outercore.importing.table.text import TextTable


def class_arrays(where: str, texts: pa.Array) -> list[NodeArray]:
    """Labels from texts in memory, and the names of the classes; an empty text is a missing label.

    Errors: `InvalidError` if no row has a label.
    """
    names = sorted({name for name in pc.unique(texts).to_pylist() if name})
    if not names:
        raise InvalidError(f"{where} has no label in any row")
    known = pa.array(names, pa.large_string())
    rows = replace(
        from_array("labels", _codes(texts, known)), notes=[_numbered_classes(where, len(names))]
    )
    return [NodeArray("labels", "y", rows), *name_arrays("class", known)]


def _codes(words: pa.Array, names: pa.Array) -> NDArray[np.int64]:
    """The class number of each word: its place in `names`; -1 for other words."""
    places = pc.fill_null(pc.index_in(words, names), -1)
    return places.to_numpy(zero_copy_only=False).astype(np.int64)


def _numbered_classes(where: str, count: int) -> str:
    return f"{where} has {count:,} classes, numbered in the order of their names"


MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NAN", "null", "NULL", "None", "<NA>")
"""Words by which pandas, R and SQL write a missing value: here a missing label."""


def without_label(task: str | None) -> tuple[Missing, float]:
    """The values for an empty cell, and for a node without a row.

    Classes use -1. A regression uses NaN, because -1 is an ordinary number there.
    """
    return ("nan", np.nan) if task == "regression" else ("minus_one", -1)


def label_arrays(
    text: str, reading: Reading, task: str | None, node_type: str | None = None
) -> list[NodeArray]:
    """Opens the labels in a file. If they are words, the names of the classes follow.

    `text` is `FILE` or `FILE:COLUMN,COLUMN`.

    Errors: as `open_rows`; `InvalidError` for words among numbers.
    """
    spec = FileSpec.parse(text, may_leave_out=True)
    if is_array(spec):
        missing, absent = without_label(task)
        rows = open_rows(spec, replace(reading, fill=None), missing=missing, absent=absent)
        return [NodeArray("labels", "y", rows, node_type)]
    files = states(spec.path)
    table = open_node_table(spec, reading)
    found = _label_columns(
        spec, table, node_columns(spec, table, reading.key), reading, task, node_type
    )
    return [replace(found[0], rows=replace(found[0].rows, files=files)), *found[1:]]


def _label_columns(
    spec: FileSpec,
    table: Table,
    columns: NodeColumns,
    reading: Reading,
    task: str | None,
    node_type: str | None = None,
) -> list[NodeArray]:
    """Like `label_arrays`, for `columns` of an open table."""
    reading = replace(reading, fill=None)
    missing, absent = without_label(task)
    names = None if task == "regression" else _names(table, columns.values)
    if names is None:
        rows = table_rows(spec, table, columns, reading, missing, absent)
        rows = replace(rows, notes=[*rows.notes, *_on_zeros(table, columns.values)])
        return [NodeArray("labels", "y", rows, node_type)]
    (column,) = columns.values
    coded: Any = _Codes(table, column, names)
    rows = table_rows(spec, coded, columns, reading, missing, absent)
    note = _numbered_classes(f"`{table.path}`: column `{column}`", len(names))
    rows = replace(rows, notes=[*rows.notes, note])
    return [NodeArray("labels", "y", rows, node_type), *name_arrays("class", names)]


def _on_zeros(table: Table, columns: list[str]) -> list[str]:
    """Notes on labels with leading zeros, because `007` and `7` become the same class."""
    counts = {name: table.padded(name) for name in columns}
    return [
        f"`{table.path}`: column `{name}`: {count:,} labels have zeros in front: as numbers, `007` "
        "and `7` are one class; a Parquet file with texts keeps them apart"
        for name, count in counts.items()
        if count
    ]


def _words_of(table: Table, column: str) -> Iterator[pa.Array]:
    """The words of a text column in batches; a null or an empty text means no label."""
    if isinstance(table, ParquetTable):
        for (values,) in table.batches([column]):
            if pa.types.is_dictionary(values.type):
                values = values.dictionary_decode()
            yield values.cast(pa.large_string())
        return
    for (values,) in table.texts([column]):
        yield values


def _names(table: Table, columns: list[str]) -> pa.Array | None:
    """The sorted classes of a column of words; `None` for numbers and for several columns.

    If a text file has a number among the words, the column counts as numbers. Parquet and Neo4j
    files have types, so their text columns always hold words.
    """
    if len(columns) != 1 or table.kind(columns[0]) != "text":
        return None
    found: set[str] = set()
    for batch in _words_of(table, columns[0]):
        known = pc.unique(batch.filter(pc.invert(_is_missing(batch))))
        found.update(known.to_pylist())
    is_typed = not isinstance(table, TextTable)
    if not found or (not is_typed and any(map(_is_number, found))):
        return None
    return pa.array(sorted(found), pa.large_string())


def _is_missing(words: pa.Array) -> pa.Array:
    return pc.or_(pc.is_null(words), pc.is_in(words, pa.array(MISSING, pa.large_string())))


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


class _Codes:
    """A table whose column of words is replaced by the class number of each word."""

    def __init__(self, table: Table, column: str, names: pa.Array) -> None:
        self._table, self._column, self._names = table, column, names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def dtype(self, name: str) -> np.dtype | None:
        """As `Table.dtype`."""
        return np.dtype(np.int64) if name == self._column else self._table.dtype(name)

    def missing(self, name: str) -> int:
        """As `Table.missing`."""
        if name != self._column:
            return self._table.missing(name)
        words = _words_of(self._table, name)
        return sum(int(pc.sum(_is_missing(batch)).as_py() or 0) for batch in words)

    def numbers(self, columns: list[str], dtype: np.dtype, missing: Missing) -> Numbers:
        """As `Table.numbers`."""
        if columns != [self._column]:
            yield from self._table.numbers(columns, dtype, missing)
            return
        for batch in _words_of(self._table, self._column):
            codes = _codes(batch, self._names)
            yield exactly(codes.reshape(-1, 1), dtype, str(self._table.path))


def open_labels(
    text: str, nodes: dict[str, NodeTable], reading: Reading, task: str | None
) -> list[NodeArray]:
    """Opens labels, given as `TYPE.COLUMN` of a node table, or as `TYPE=FILE`.

    Words become classes, as in `label_arrays`.

    Errors: `InvalidError` for another form; `NotFoundError` for a missing column.
    """
    node_type, equals, file = text.partition("=")
    if equals:
        _require_type(node_type, nodes, text)
        refuse_keys("--labels", file, nodes[node_type], reading)
        reading = replace(reading, nodes=nodes[node_type].count)
        return label_arrays(file, reading, task, node_type)
    node_type, column = label_column(text, nodes)
    table, spec = nodes[node_type].table, nodes[node_type].spec
    assert table is not None
    assert spec is not None
    return _label_columns(spec, table, NodeColumns(None, [column]), reading, task, node_type)


def label_column(
    text: str, nodes: dict[str, NodeTable], option: str = "--label"
) -> tuple[str, str]:
    """Node type and column from `TYPE.COLUMN`; `option` is its name in messages.

    Errors: as `open_labels`.
    """
    # Types and columns may both have dots. The longest type whose table has the column is chosen.
    parts = text.split(".")
    ends = range(len(parts) - 1, 0, -1)
    known = [(".".join(parts[:end]), ".".join(parts[end:])) for end in ends]
    known = [(node_type, column) for node_type, column in known if node_type in nodes]
    for node_type, column in known:
        table = nodes[node_type].table
        if table is not None and column in table.names:
            return node_type, column
    for node_type, column in known:
        if (table := nodes[node_type].table) is None:
            raise InvalidError(f"{option} {text}: type `{node_type}` has no table of nodes")
        require_column(table, column)
    _require_type(text.partition(".")[0], nodes, text, option)
    or_file = " or TYPE=FILE" if option == "--label" else ""
    raise InvalidError(f"{option}: expected TYPE.COLUMN{or_file}, found `{text}`")


def _require_type(
    node_type: str, nodes: dict[str, NodeTable], text: str, option: str = "--label"
) -> None:
    if node_type not in nodes:
        raise InvalidError(
            f"{option} {text}: there is no node type `{node_type}`\n"
            f"hint: the node types are {', '.join(nodes)}"
        )


def has_label(labels: NDArray, task: str | None) -> NDArray[np.bool_]:
    """Mask of the rows that have a label, [rows]; `labels` are [rows] or [rows, tasks].

    In a regression, negative integers are labels, too.
    """
    if labels.dtype.kind == "f":
        known = ~np.isnan(labels)
    else:
        known = np.ones(labels.shape, np.bool_) if task == "regression" else labels >= 0
    return known.any(axis=1) if known.ndim > 1 else known
