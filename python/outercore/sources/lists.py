"""Columns of lists in Parquet: a list a row, all of one length, is a matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.sources.table import FileSpec, ParquetTable, exactly

Batches = Callable[[], Iterator[NDArray[Any]]]


def is_list(table: ParquetTable, name: str) -> bool:
    """Whether a column holds lists."""
    kind = table.schema.field(name).type
    return (
        pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind)
    )


def list_rows(
    spec: FileSpec, table: ParquetTable, name: str, chunk_bytes: int
) -> tuple[int, np.dtype, Batches]:
    """The length of the lists, the type of their values, and how to read batches [rows, length].

    A missing value is NaN, and a missing list one of NaN.

    Errors: `InvalidError` for lists of anything but numbers, an empty first list; while reading,
    with its row, for a list of another length.
    """
    kind = table.schema.field(name).type.value_type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise InvalidError(
            f"`{table.path}`: column `{name}`: expected lists of numbers, found lists of {kind}"
        )
    dtype = np.dtype(kind.to_pandas_dtype())
    row, width = _first_list(table, name)
    if not width:
        raise InvalidError(f"`{table.path}`: column `{name}`: row {row}: the list is empty")
    step = max(chunk_bytes // (dtype.itemsize * width), 1)

    def batches() -> Iterator[NDArray[Any]]:
        row = 0
        for (column,) in table.batches([name], step):
            yield _matrix(spec, column, width, dtype, row)
            row += len(column)

    return width, dtype, batches


def _first_list(table: ParquetTable, name: str) -> tuple[int, int]:
    """The row and the length of the first list that is there."""
    row = 0
    for (column,) in table.batches([name], 1024):
        there = np.flatnonzero(np.asarray(column.is_valid()))
        if len(there):
            return row + int(there[0]), len(column[int(there[0])])
        row += len(column)
    # Without any list nothing says how long they are.
    return 0, 1


def _matrix(spec: FileSpec, column: Any, width: int, dtype: np.dtype, first: int) -> NDArray[Any]:
    missing = np.asarray(column.is_null())
    lengths = np.asarray(column.value_lengths().fill_null(0))
    ragged = np.flatnonzero((lengths != width) & ~missing)
    if len(ragged):
        row = int(ragged[0])
        raise InvalidError(
            f"`{spec}`: row {first + row}: expected {width} values, found {lengths[row]}"
        )
    if missing.any():
        if dtype.kind != "f":
            row = first + int(np.flatnonzero(missing)[0])
            raise InvalidError(
                f"`{spec}`: row {row}: the list is missing, expected whole numbers\n"
                "hint: store the lists as floats; then `--fill VALUE` fills them"
            )
        rows = np.full((len(column), width), np.nan, dtype)
        rows[~missing] = _matrix(spec, column.drop_null(), width, dtype, first)
        return rows
    values = column.flatten()
    absent = np.asarray(values.is_null()) if values.null_count else None
    if absent is not None:
        if dtype.kind != "f":
            row = int(np.flatnonzero(absent)[0]) // width
            raise InvalidError(
                f"`{spec}`: row {first + row}: a value is missing, expected whole numbers\n"
                "hint: store the lists as floats; then `--fill VALUE` fills them"
            )
        values = values.fill_null(0)
    numbers = exactly(values.to_numpy(zero_copy_only=False), dtype, str(spec), first)
    if absent is not None:
        numbers = np.where(absent, np.array(np.nan, dtype), numbers)
    return numbers.reshape(-1, width)
