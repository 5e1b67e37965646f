"""Tables: columns of numbers or text, in a text file or in Parquet, read in batches."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from outercore.base.listing import listed
from outercore.errors import InvalidError, NotFoundError, UnsupportedError
from outercore.files.file_spec import FileSpec
from outercore.files.input_file import require_file
from outercore.importing.table.exact import KIND, exactly, in_microseconds
from outercore.importing.table.text import Purpose, TextFile, TextOptions, suffix_of

_BATCH = 1 << 15
_READ = 1 << 20
"""Bytes of a column that are read at once."""
PARQUET = ("*.parquet", "*.pq")
"""The files of a directory that is one table."""

Missing = Literal["nan", "minus_one"]
"""What stands for a missing value: NaN, or -1 where the column holds whole numbers."""


class Table(ABC):
    """Columns by name; values arrive unchanged or are refused."""

    @property
    @abstractmethod
    def path(self) -> Path:
        """The file."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The columns; `column 1`, `column 2`, ... in a text without a header."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """The number of rows; a text file is read for it."""

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
        """How the file is written, in words; nodes with names have no first number."""

    @abstractmethod
    def dtype(self, name: str) -> np.dtype | None:
        """The type of a column of numbers or Booleans; `None` for text."""

    def kind(self, name: str) -> str:
        """The type of a column, in words for messages."""
        dtype = self.dtype(name)
        return "text" if dtype is None else str(dtype)

    def missing(self, name: str) -> int:
        """Rows without a value in a column."""
        return 0

    def padded(self, name: str) -> int:
        """Whole numbers with zeros in front, such as `007`, in a column of texts.

        Cost: reads the column, unless a text was read for its rows.
        """
        if self.kind(name) != "text":
            return 0
        return sum(
            int(pc.sum(pc.match_substring_regex(texts, "^0[0-9]+$")).as_py() or 0)
            for (texts,) in self.texts([name], "")
        )

    @abstractmethod
    def numbers(
        self, columns: list[str], dtype: np.dtype, missing: Missing
    ) -> Iterator[NDArray[Any]]:
        """Batches [rows, len(columns)] of `dtype`.

        Errors: `InvalidError` for a value that would change, with its row or line.
        """

    @abstractmethod
    def texts(self, columns: list[str], empty: str | None = None) -> Iterator[list[pa.Array]]:
        """Batches of the columns as Arrow's large strings; integers as decimals.

        `empty` stands for nulls.

        Errors: `InvalidError` for a null without `empty`, and for a column of another type.
        """

    def list_type(self, name: str) -> pa.DataType | None:
        """The type of the values in the lists of a column; `None` for a column of other values."""
        return None

    def lists(self, name: str, rows: int) -> Iterator[pa.Array]:
        """Batches of at most `rows` lists of a column of lists; a null for a missing one."""
        return iter(())


def open_table(
    spec: FileSpec, options: TextOptions | None = None, purpose: Purpose = "table"
) -> Table:
    """The table in a file; where columns are chosen by name, the first line of a text names them.

    Errors: `NotFoundError` for a column that is not there; `InvalidError` for a file that can be
    read in two ways.
    """
    if is_parquet(spec.path):
        table: Table = ParquetTable(spec.path)
    else:
        table = TextTable(TextFile.detect(spec.path, purpose, options, by_name=spec.by_name))
    require_columns(table, spec)
    return table


def is_parquet(path: Path) -> bool:
    """Whether a path is a Parquet file, or a directory of them.

    Errors: `UnsupportedError` for a directory that has Parquet files in directories below it.
    """
    if not path.is_dir():
        return suffix_of(path) == ".parquet"
    deeper = ("*/", "*/*/", "*/*/*/")
    found = (at for way in deeper for kind in PARQUET for at in path.glob(way + kind))
    below = min(found, default=None)
    if below is not None and not (path / "raw").is_dir():
        raise UnsupportedError(
            f"directory `{path}`: Parquet files in directories below it, such as `{below}`, are "
            "not read\nhint: write one file, in Python: "
            f"`pyarrow.parquet.write_table(pyarrow.dataset.dataset('{path}', "
            "partitioning='hive').to_table(), 'one.parquet')`"
        )
    return any(at for kind in PARQUET for at in path.glob(kind))


def natural(path: Path) -> list[tuple[int, str]]:
    """Sorts names as people do: `part.2` before `part.10`."""
    parts = re.split(r"([0-9]+)", path.name)
    keys = [(int(part), "") if place % 2 else (-1, part) for place, part in enumerate(parts)]
    return [*keys, (-1, path.name)]


def require_columns(table: Table, spec: FileSpec) -> None:
    """Errors: `NotFoundError` for columns that `spec` names and that are not there."""
    for name in spec.columns:
        require_column(table, name)
    require_column(table, *spec.without)


def require_column(table: Table, *names: str) -> None:
    """Errors: `NotFoundError` that lists the columns that are not there, and those that are."""
    missing = [name for name in names if name not in table.names]
    if missing:
        known = ", ".join(f"`{known}`" for known in table.names[:12])
        what = "column" if len(missing) == 1 else "columns"
        raise NotFoundError(f"`{table.path}`: no {what} {listed(missing)}; it has {known}")


@dataclass(frozen=True)
class TextTable(Table):
    """A table in a text file."""

    file: TextFile

    @property
    def path(self) -> Path:
        """The file."""
        return self.file.path

    @cached_property
    def names(self) -> list[str]:
        """The header, or the places of the columns."""
        return self.file.names or [f"column {place + 1}" for place in range(self.file.width)]

    @property
    def is_named(self) -> bool:
        """Whether there is a header."""
        return self.file.names is not None

    @property
    def has_types(self) -> bool:
        """The columns of a text tell their types by all their fields."""
        return False

    @property
    def rows(self) -> int:
        """Rows of the whole file."""
        return self.file.profile.rows

    def described(self, *, has_names: bool = False) -> str:
        """As `Table.described`."""
        return self.file.described(has_names=has_names)

    def dtype(self, name: str) -> np.dtype | None:
        """int64, float64 or bool by all fields of the column; `None` for text."""
        kinds = {"integer": np.int64, "float": np.float64, "boolean": np.bool_, "empty": np.float64}
        kind = kinds.get(self.file.profile.kinds[self.names.index(name)])
        return None if kind is None else np.dtype(kind)

    def missing(self, name: str) -> int:
        """Fields without a value."""
        return self.file.profile.missing[self.names.index(name)]

    def padded(self, name: str) -> int:
        """Whole numbers with zeros in front."""
        return self.file.profile.padded[self.names.index(name)]

    def numbers(
        self, columns: list[str], dtype: np.dtype, missing: Missing
    ) -> Iterator[NDArray[Any]]:
        """As `Table.numbers`."""
        places = [self.names.index(name) for name in columns]
        if dtype.kind in "iub":
            fill = -1 if missing == "minus_one" else None
            for batch in self.file.integers(places, fill):
                yield exactly(batch, dtype, str(self.path))
            return
        for numbers in self.file.floats(places):
            yield exactly(numbers, dtype, str(self.path))

    def texts(self, columns: list[str], empty: str | None = None) -> Iterator[list[pa.Array]]:
        """As `Table.texts`; a text has empty fields and no nulls."""
        yield from self.file.texts([self.names.index(name) for name in columns])


@dataclass(frozen=True)
class ParquetTable(Table):
    """A table in a Parquet file, or in all files of a directory: `part.2` before `part.10`."""

    place: Path

    @property
    def path(self) -> Path:
        """The file, or the directory."""
        return self.place

    @cached_property
    def files(self) -> list[Path]:
        """The files, in their order."""
        if not self.path.is_dir():
            return [self.path]
        return sorted((at for kind in PARQUET for at in self.path.glob(kind)), key=natural)

    @cached_property
    def schema(self) -> Any:
        """The Arrow schema: the columns of the first file, with types that hold what all have.

        Errors: `InvalidError` for a file with other columns, or with a type that no such type
        includes.
        """
        with _parquet_file(self.files[0]) as file:
            schema = file.schema_arrow
        for path in self.files[1:]:
            with _parquet_file(path) as file:
                part = file.schema_arrow
            if sorted(part.names) != sorted(schema.names):
                raise InvalidError(
                    f"`{path}`: other columns or types than `{self.files[0]}`: "
                    f"{', '.join(part.names)}\nhint: give all files of a directory the same columns"
                )
            for place, field in enumerate(schema):
                kind = part.field(field.name).type
                if (both := _common_type(field.type, kind)) is None:
                    raise InvalidError(
                        f"`{path}`: other columns or types than `{self.files[0]}`: column "
                        f"`{field.name}` is {kind}, and {field.type} there\n"
                        "hint: write the column with one type in all files"
                    )
                schema = schema.set(place, field.with_type(both))
        doubles = {name for name in schema.names if schema.names.count(name) > 1}
        if doubles:
            raise InvalidError(f"`{self.path}`: two columns are called `{min(doubles)}`")
        return schema

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self.schema.names)

    @cached_property
    def rows(self) -> int:
        """Rows of all files, from their footers."""
        count = 0
        for path in self.files:
            with _parquet_file(path) as file:
                count += file.metadata.num_rows
        return count

    def dtype(self, name: str) -> np.dtype | None:
        """The NumPy type; `None` for what holds no numbers."""
        kind = self.schema.field(name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
            return np.dtype(kind.to_pandas_dtype())
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return np.dtype(np.int64)
        return np.dtype(np.float64) if pa.types.is_decimal(kind) else None

    def kind(self, name: str) -> str:
        """As `Table.kind`."""
        kind = self.schema.field(name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        return "text" if _is_text(kind) else str(kind)

    def described(self, *, has_names: bool = False) -> str:
        """As `Table.described`."""
        columns = len(self.names)
        return f"Parquet, {columns} {'column' if columns == 1 else 'columns'}"

    def missing(self, name: str) -> int:
        """Nulls of a column; it is read for it."""
        return sum(column.null_count for (column,) in self.batches([name]))

    def list_type(self, name: str) -> pa.DataType | None:
        """As `Table.list_type`."""
        kind = self.schema.field(name).type
        is_list = (
            pa.types.is_list(kind)
            or pa.types.is_fixed_size_list(kind)
            or pa.types.is_large_list(kind)
        )
        return kind.value_type if is_list else None

    def lists(self, name: str, rows: int) -> Iterator[pa.Array]:
        """As `Table.lists`."""
        yield from (column for (column,) in self.batches([name], rows))

    def batches(self, columns: list[str], rows: int = _BATCH) -> Iterator[list[Any]]:
        """The columns as Arrow arrays, batch by batch."""
        for path in self.files:
            with _parquet_file(path) as file:
                try:
                    for batch in file.iter_batches(batch_size=rows, columns=columns):
                        yield [self._as_in_schema(batch.column(name), name) for name in columns]
                except (pa.ArrowException, OSError) as error:
                    raise InvalidError(f"Parquet file `{path}`: {error}") from None

    def _as_in_schema(self, column: Any, name: str) -> Any:
        """A column of one of the files in the type that all have in common."""
        kind = self.schema.field(name).type
        if column.type == kind:
            return column
        with _arrow_errors(f"`{self.path}`: column `{name}`"):
            return column.cast(kind)

    def numbers(
        self, columns: list[str], dtype: np.dtype, missing: Missing
    ) -> Iterator[NDArray[Any]]:
        """As `Table.numbers`."""
        first = 0
        for batch in self.batches(columns):
            rows = np.empty((len(batch[0]), len(columns)), dtype)
            for place, (name, column) in enumerate(zip(columns, batch, strict=True)):
                where = f"`{self.path}`: column `{name}`"
                with _arrow_errors(where):
                    values = _numbers(column, where, first)
                    if pa.types.is_decimal(column.type):
                        _require_same_decimals(column, values, where, first)
                if column.null_count:
                    empty = np.asarray(column.is_null())
                    fill: Any = np.nan if dtype.kind == "f" else -1
                    if missing == "nan" and dtype.kind != "f":
                        row = first + int(np.flatnonzero(empty)[0])
                        raise InvalidError(
                            f"{where}: row {row} has no value, expected a whole number\n"
                            "hint: fill the empty rows, or leave them out"
                        )
                rows[:, place] = exactly(values, dtype, where, first)
                if column.null_count:
                    rows[empty, place] = fill
            first += len(rows)
            yield rows

    def texts(self, columns: list[str], empty: str | None = None) -> Iterator[list[pa.Array]]:
        """As `Table.texts`."""
        first = 0
        for batch in self.batches(columns):
            yield [
                self._text(first, name, column, empty)
                for name, column in zip(columns, batch, strict=True)
            ]
            first += len(batch[0])

    def _text(self, first: int, name: str, column: Any, empty: str | None) -> Any:
        where = f"`{self.path}`: column `{name}`"
        if column.null_count and empty is None:
            row = first + int(np.flatnonzero(np.asarray(column.is_null()))[0])
            raise InvalidError(f"{where}: row {row} is empty, expected a name")
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = column.dictionary_decode()
            kind = column.type
        known = pa.types.is_integer(kind) or _is_text(kind)
        if not (known or (pa.types.is_null(kind) and empty is not None)):
            raise InvalidError(f"{where}: expected names or integers, found {kind}")
        with _arrow_errors(where):
            texts = column.cast(pa.large_string())
        return texts if empty is None else texts.fill_null(empty)


def _is_text(kind: Any) -> bool:
    return (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _common_type(one: Any, other: Any) -> Any:
    """The type that holds the values of both; `None` where there is none. A number that it cannot
    hold is refused when it is read."""
    one, other = (
        kind.value_type if pa.types.is_dictionary(kind) and one != other else kind
        for kind in (one, other)
    )
    both = (one, other)
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if all(map(_is_text, both)):
        return pa.large_string()
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in both):
        return pa.from_numpy_dtype(np.result_type(*(kind.to_pandas_dtype() for kind in both)))
    if all(pa.types.is_timestamp(kind) or pa.types.is_date(kind) for kind in both):
        zones = {getattr(kind, "tz", None) for kind in both}
        return pa.timestamp("us", zones.pop()) if len(zones) == 1 else None
    if all(pa.types.is_list(kind) or pa.types.is_large_list(kind) for kind in both):
        value = _common_type(one.value_type, other.value_type)
        return None if value is None else pa.large_list(value)
    return None


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    """An open Parquet file; what is wrong with it is an `InvalidError` that names it."""
    require_file(path, "Parquet file")
    try:
        # With a buffer before, Arrow reads all columns of a row group at once, of any size.
        file = pa.parquet.ParquetFile(path, buffer_size=_READ, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise InvalidError(f"Parquet file `{path}`: {error}") from None
    try:
        yield file
    finally:
        file.close()


@contextmanager
def _arrow_errors(where: str) -> Iterator[None]:
    """Turns what Arrow says of values that it cannot convert into our error about the column."""
    try:
        yield
    except pa.ArrowException as error:
        raise InvalidError(
            f"{where}: {error}\nhint: store the values in a type that holds them, such as float64"
        ) from None


def _numbers(column: Any, where: str, first: int) -> NDArray[Any]:
    """A column of numbers as NumPy has it, dates and times in microseconds since 1970; nulls have
    any value.

    Errors: as `in_microseconds`.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32()).cast(pa.int64())
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    if column.null_count:
        column = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    time = KIND.fullmatch(str(kind))
    return values if time is None else in_microseconds(where, values, time[2], first)


def _require_same_decimals(column: Any, values: NDArray[Any], where: str, first: int) -> None:
    """Errors: `InvalidError` with the first whole number that is another one as a float; fractions
    are rounded.
    """
    rounded = pa.array(np.where(np.asarray(column.is_null()), 0, values))
    try:
        same = pc.equal(rounded.cast(column.type, safe=False), column)
    except pa.ArrowInvalid:
        same = pa.array([False] * len(column))
    is_whole = pc.equal(pc.floor(column), column)
    changed = np.flatnonzero(np.asarray(pc.and_not(is_whole, same).fill_null(False)))
    if len(changed):
        raise InvalidError(
            f"{where}: row {first + int(changed[0])}: {column[int(changed[0])]} would change as "
            "float64\nhint: store the values in a type that holds them"
        )


Batches = Callable[[], Iterator[NDArray[Any]]]


def list_rows(table: Table, name: str, chunk_bytes: int) -> tuple[int, np.dtype, Batches]:
    """The length of the lists, the type of their values, and how to read batches [rows, length].

    A missing value is NaN, and a missing list one of NaN.

    Errors: `InvalidError` for lists of anything but numbers, an empty first list; while reading,
    with its row, for a list of another length.
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

    def batches() -> Iterator[NDArray[Any]]:
        row = 0
        for column in table.lists(name, step):
            yield _matrix(where, column, width, dtype, row)
            row += len(column)

    return width, dtype, batches


def _first_list(table: Table, name: str) -> tuple[int, int]:
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
