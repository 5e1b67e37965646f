"""Columns of lists: a list a row, all of one length, is a matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.importing.table.exact import exactly
from outercore.importing.table.table import Table

Batches = Callable[[], Iterator[NDArray[Any]]]


@runtime_checkable
class ListTable(Protocol):
    """A table whose columns may hold lists."""

    @property
    def path(self) -> Path:
        """The file."""

    def list_type(self, name: str) -> pa.DataType | None:
        """The type of the values in the lists of a column; `None` where it holds none."""

    def lists(self, name: str, rows: int) -> Iterator[pa.Array]:
        """Batches of at most `rows` lists; a null where there is none."""


def is_list(table: Table, name: str) -> TypeGuard[ListTable]:
    """Whether a column holds lists."""
    return isinstance(table, ListTable) and table.list_type(name) is not None


def list_rows(table: ListTable, name: str, chunk_bytes: int) -> tuple[int, np.dtype, Batches]:
    """The length of the lists, the type of their values, and how to read batches [rows, length].

    A missing value is NaN, and a missing list one of NaN.

    Errors: `InvalidError` for lists of anything but numbers, an empty first list; while reading,
    with its row, for a list of another length.
    """
    kind, where = table.list_type(name), f"`{table.path}`: column `{name}`"
    assert kind is not None  # `is_list` said so.
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise InvalidError(f"{where}: expected lists of numbers, found lists of {kind}")
    dtype = np.dtype(kind.to_pandas_dtype())
    row, width = _first_list(table, name)
    if not width:
        raise InvalidError(f"{where}: row {row}: the list is empty")
    step = max(chunk_bytes // (dtype.itemsize * width), 1)

    def batches() -> Iterator[NDArray[Any]]:
        row = 0
        for column in table.lists(name, step):
            yield _matrix(where, column, width, dtype, row)
            row += len(column)

    return width, dtype, batches


def _first_list(table: ListTable, name: str) -> tuple[int, int]:
    """The row and the length of the first list that is there."""
    row = 0
    for column in table.lists(name, 1024):
        there = np.flatnonzero(np.asarray(column.is_valid()))
        if len(there):
            return row + int(there[0]), len(column[int(there[0])])
        row += len(column)
    # Without any list nothing says how long they are.
    return 0, 1


def _matrix(where: str, column: Any, width: int, dtype: np.dtype, first: int) -> NDArray[Any]:
    missing = np.asarray(column.is_null())
    lengths = np.asarray(column.value_lengths().fill_null(0))
    ragged = np.flatnonzero((lengths != width) & ~missing)
    if len(ragged):
        row = int(ragged[0])
        raise InvalidError(
            f"{where}: row {first + row}: expected {width} values, found {lengths[row]}"
        )
    if missing.any():
        if dtype.kind != "f":
            row = first + int(np.flatnonzero(missing)[0])
            raise InvalidError(
                f"{where}: row {row}: the list is missing, expected whole numbers\n"
                "hint: store the lists as floats; then `--fill VALUE` fills them"
            )
        rows = np.full((len(column), width), np.nan, dtype)
        rows[~missing] = _matrix(where, column.drop_null(), width, dtype, first)
        return rows
    values = column.flatten()
    absent = np.asarray(values.is_null()) if values.null_count else None
    if absent is not None:
        if dtype.kind != "f":
            row = int(np.flatnonzero(absent)[0]) // width
            raise InvalidError(
                f"{where}: row {first + row}: a value is missing, expected whole numbers\n"
                "hint: store the lists as floats; then `--fill VALUE` fills them"
            )
        values = values.fill_null(0)
    numbers = exactly(values.to_numpy(zero_copy_only=False), dtype, where, first)
    if absent is not None:
        numbers = np.where(absent, np.array(np.nan, dtype), numbers)
    return numbers.reshape(-1, width)
