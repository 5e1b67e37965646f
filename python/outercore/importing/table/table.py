"""The interface of tables: named columns of numbers or text, read in batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outercore.base.listing import listed
from outercore.errors import InvalidError, NotFoundError
from outercore.files.file_spec import FileSpec

Numbers = Iterator[NDArray[Any]]
"""Batches of rows of one type, [n] or [n, columns]."""
Missing = Literal["nan", "minus_one"]
"""What replaces a missing value: NaN, or -1 in a column of integers."""


@dataclass(frozen=True)
class Table(ABC):
    """A table with named columns. A value is read unchanged, or it is an error."""

    path: Path
    """The file or directory; the first file of several."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The names of the columns; `column 1`, `column 2`, ... in a text without a header."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """The number of rows. Reads a text file once."""

    @property
    def is_named(self) -> bool:
        """Whether the file names its columns."""
        return True

    @property
    def has_types(self) -> bool:
        """Whether the file says the type of its numbers; text does not."""
        return True

    @abstractmethod
    def described(self, *, has_names: bool = False) -> str:
        """The format of the file as text for notes. With `has_names`, it omits the first id."""

    @abstractmethod
    def dtype(self, name: str) -> np.dtype | None:
        """The type of a column of numbers or Booleans; `None` for text."""

    def kind(self, name: str) -> str:
        """The type of a column as text for messages."""
        dtype = self.dtype(name)
        return "text" if dtype is None else str(dtype)

    def missing(self, name: str) -> int:
        """Number of rows without a value in a column."""
        return 0

    def padded(self, name: str) -> int:
        """Number of integers with leading zeros, such as `007`, in a column of texts.

        Cost: reads the column, unless `rows` has already read the text.
        """
        if self.kind(name) != "text":
            return 0
        return sum(
            int(pc.sum(pc.match_substring_regex(texts, "^0[0-9]+$")).as_py() or 0)
            for (texts,) in self.texts([name], "")
        )

    @abstractmethod
    def numbers(self, columns: list[str], dtype: np.dtype, missing: Missing) -> Numbers:
        """Batches [rows, len(columns)] of the columns as `dtype`; `missing` is for empty cells.

        Errors: `InvalidError` for a value that would change, with its row or line.
        """

    @abstractmethod
    def texts(self, columns: list[str], empty: str | None = None) -> Iterator[list[pa.Array]]:
        """Batches of the columns as Arrow's large strings; integers become decimal texts.

        `empty` replaces nulls.

        Errors: `InvalidError` for a null without `empty`, and for a column of another type.
        """

    def list_type(self, name: str) -> pa.DataType | None:
        """The type of the values in the lists of a column; `None` for a column of other values."""
        return None

    def lists(self, name: str, rows: int) -> Iterator[pa.Array]:
        """Batches of at most `rows` lists of a column of lists; a missing list is a null."""
        return iter(())


def require_columns(table: Table, spec: FileSpec) -> None:
    """Errors: `NotFoundError` for columns of `spec` that the table lacks."""
    for name in spec.columns:
        require_column(table, name)
    require_column(table, *spec.without)


def require_column(table: Table, *names: str) -> None:
    """Errors: `NotFoundError` for missing columns; it lists them and the existing columns."""
    missing = [name for name in names if name not in table.names]
    if missing:
        known = ", ".join(f"`{known}`" for known in table.names[:12])
        what = "column" if len(missing) == 1 else "columns"
        raise NotFoundError(f"`{table.path}`: no {what} {listed(missing)}; it has {known}")


Batches = Callable[[], Numbers]


def list_rows(table: Table, name: str, chunk_bytes: int) -> tuple[int, np.dtype, Batches]:
    """The length of the lists, the type of their values, and a reader of batches [rows, length].

    `chunk_bytes` is the size of a batch. A missing value is NaN, and a missing list has only NaN.

    Errors: `InvalidError` for lists of anything but numbers, and for an empty first list. While
    reading, `InvalidError` with the row of a list of another length.
    """
    kind, where = table.list_type(name), f"`{table.path}`: column `{name}`"
    assert kind is not None  # The caller knows that it holds lists.
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise InvalidError(f"{where}: expected lists of numbers, found lists of {kind}")
    dtype = np.dtype(kind.to_pandas_dtype())
    row, width = _first_list(table, name)
    if not width:
        raise InvalidError(f"{where}: row {row}: the list is empty")
    step = max(chunk_bytes // (dtype.itemsize * width), 1)

    def batches() -> Numbers:
        row = 0
        for column in table.lists(name, step):
            yield _matrix(where, column, width, dtype, row)
            row += len(column)

    return width, dtype, batches


def _first_list(table: Table, name: str) -> tuple[int, int]:
    """The row and the length of the first list that is not missing."""
    row = 0
    for column in table.lists(name, 1024):
        there = np.flatnonzero(np.asarray(column.is_valid()))
        if len(there):
            return row + int(there[0]), len(column[int(there[0])])
        row += len(column)
    # Without any list, the length is unknown.
    return 0, 1


def _matrix(where: str, column: Any, width: int, dtype: np.dtype, first: int) -> NDArray[Any]:
    lengths = np.asarray(column.value_lengths().fill_null(width))
    ragged = np.flatnonzero(lengths != width)
    if len(ragged):
        row = int(ragged[0])
        raise InvalidError(
            f"{where}: row {first + row}: expected {width} values, found {lengths[row]}"
        )
    values = (column.drop_null() if column.null_count else column).flatten()
    if not column.null_count and not values.null_count:
        whole: NDArray[Any] = values.to_numpy(zero_copy_only=False)
        return whole.reshape(-1, width)
    is_list = np.asarray(column.is_valid())
    absent = np.ones((len(column), width), np.bool_)
    absent[is_list] = np.asarray(values.is_null()).reshape(-1, width)
    if dtype.kind != "f":
        row = int(np.argwhere(absent)[0, 0])
        what = "a value" if is_list[row] else "the list"
        raise InvalidError(
            f"{where}: row {first + row}: {what} is missing, expected whole numbers\n"
            "hint: store the lists as floats; then `--fill VALUE` fills them"
        )
    numbers = np.zeros((len(column), width), dtype)
    numbers[is_list] = values.fill_null(0).to_numpy(zero_copy_only=False).reshape(-1, width)
    numbers[absent] = np.nan
    return numbers
