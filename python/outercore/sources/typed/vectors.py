"""Columns of text whose fields are arrays of numbers: `0.5;1.25;-3`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.sources.columns import NodeColumns
from outercore.sources.graph import NodeArray
from outercore.sources.rows import Reading, RowSource, table_rows
from outercore.sources.table import Table
from outercore.sources.typed.features import arrays_of_table
from outercore.sources.typed.tables import NodeTable


def arrays_with_vectors(
    nodes: NodeTable, vectors: dict[str, np.dtype], besides: str | None, reading: Reading
) -> tuple[list[NodeArray], list[str]]:
    """Features and arrays of a type, and how they were chosen.

    One column of vectors is the features, as one column of lists in Parquet is; then columns of
    numbers are arrays of their own.
    """
    assert nodes.table is not None
    assert nodes.spec is not None
    used = set(vectors) | ({besides} if besides is not None else set())
    if not vectors:
        return arrays_of_table(nodes, used, reading)
    numbers = [
        name
        for name in nodes.table.names
        if name not in used and nodes.table.dtype(name) is not None
    ]
    is_one = len(vectors) == 1
    found, notes = arrays_of_table(nodes, used | set(numbers) if is_one else used, reading)
    for name, dtype in vectors.items():
        rows = _rows(nodes.table, name, dtype)
        if is_one:
            found.insert(0, NodeArray("features", "x", rows, nodes.node_type))
            notes.insert(0, f"features of `{nodes.node_type}`: `{name}`")
        else:
            found.append(NodeArray("array", name, rows, nodes.node_type))
    for name in numbers if is_one else []:
        column = table_rows(nodes.spec, nodes.table, NodeColumns(None, [name]), reading)
        found.append(NodeArray("array", name, column, nodes.node_type))
    return found, notes


def _rows(table: Table, name: str, dtype: np.dtype) -> RowSource:
    width = _width(table, name)

    def chunks() -> Iterator[NDArray]:
        first = 0
        for (texts,) in table.texts([name], ""):
            yield _parsed(table, name, texts, first, width).astype(dtype)
            first += len(texts)

    return RowSource(f"{table.path}:{name}", dtype, width, table.rows, chunks, typed=False)


def _width(table: Table, name: str) -> int:
    """How many numbers the first field has."""
    for (texts,) in table.texts([name], ""):
        if len(texts):
            return len(texts[0].as_py().split(";"))
    return 1


def _parsed(table: Table, name: str, texts: pa.Array, first: int, width: int) -> NDArray:
    where = f"`{table.path}`: column `{name}`"
    lists = pc.split_pattern(texts, ";")
    lengths = np.asarray(pc.list_value_length(lists))
    lengths = np.where(np.asarray(pc.equal(texts, "")), 0, lengths)
    wrong = np.flatnonzero(lengths != width)
    if len(wrong):
        row = int(wrong[0])
        raise InvalidError(
            f"{where}: row {first + row} has {lengths[row]} numbers, the rows before have {width}\n"
            "hint: arrays of one length are features; say `:IGNORE` for others"
        )
    try:
        numbers = pc.cast(pc.utf8_trim_whitespace(lists.flatten()), pa.float64())
    except pa.ArrowInvalid as error:
        raise InvalidError(f"{where}: rows {first} to {first + len(texts) - 1}: {error}") from None
    return numbers.to_numpy(zero_copy_only=False).reshape(-1, width)
