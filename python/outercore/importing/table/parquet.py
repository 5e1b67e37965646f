"""Reads tables in Parquet: one file, or all files of a directory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from outercore.errors import InvalidError, UnsupportedError
from outercore.files.input_file import require_file
from outercore.importing.table.exact import exactly, in_microseconds, is_text
from outercore.importing.table.table import Missing, Numbers, Table
from outercore.importing.table.text import suffix_of

_BATCH = 1 << 15
_READ = 1 << 20
"""Bytes of a column that one read brings."""
PARQUET = ("*.parquet", "*.pq")
"""The files of a directory that is one table."""


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
    """Sort key by which `part.2` comes before `part.10`."""
    parts = re.split(r"([0-9]+)", path.name)
    keys = [(int(part), "") if place % 2 else (-1, part) for place, part in enumerate(parts)]
    return [*keys, (-1, path.name)]


@dataclass(frozen=True)
class ParquetTable(Table):
    """A table in a Parquet file, or in all files of a directory: `part.2` before `part.10`."""

    @cached_property
    def files(self) -> list[Path]:
        """The files, in their order."""
        if not self.path.is_dir():
            return [self.path]
        return sorted((at for kind in PARQUET for at in self.path.glob(kind)), key=natural)

    @cached_property
    def schema(self) -> Any:
        """The Arrow schema: the columns of the first file, with types that hold all files' values.

        Errors: `InvalidError` for a file with other columns, or with types without a common type.
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
        """The NumPy type of a column; `None` for a column without numbers."""
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
        return "text" if is_text(kind) else str(kind)

    def described(self, *, has_names: bool = False) -> str:
        """As `Table.described`."""
        columns = len(self.names)
        return f"Parquet, {columns} {'column' if columns == 1 else 'columns'}"

    def missing(self, name: str) -> int:
        """Number of nulls in a column. Reads the column."""
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
        """The columns as Arrow arrays, in batches of at most `rows` rows."""
        for path in self.files:
            with _parquet_file(path) as file:
                try:
                    for batch in file.iter_batches(batch_size=rows, columns=columns):
                        yield [self._as_in_schema(batch.column(name), name) for name in columns]
                except (pa.ArrowException, OSError) as error:
                    raise InvalidError(f"Parquet file `{path}`: {error}") from None

    def _as_in_schema(self, column: Any, name: str) -> Any:
        """A column of one file in the common type of all files."""
        kind = self.schema.field(name).type
        if column.type == kind:
            return column
        with _arrow_errors(f"`{self.path}`: column `{name}`"):
            return column.cast(kind)

    def numbers(self, columns: list[str], dtype: np.dtype, missing: Missing) -> Numbers:
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
        known = pa.types.is_integer(kind) or is_text(kind)
        if not (known or (pa.types.is_null(kind) and empty is not None)):
            raise InvalidError(f"{where}: expected names or integers, found {kind}")
        with _arrow_errors(where):
            texts = column.cast(pa.large_string())
        return texts if empty is None else texts.fill_null(empty)


def _common_type(one: Any, other: Any) -> Any:
    """The type for the values of both types; `None` if no type fits.

    A number that the type cannot hold exactly is refused when it is read.
    """
    if one == other:
        return one
    schemas = [pa.schema([("", _widened(kind))]) for kind in (one, other)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None


def _widened(kind: Any) -> Any:
    """A wider type: dates become times, and all forms of texts become large strings.

    Arrow has no common type for dates and times, or for texts in different forms.
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_date(kind):
        return pa.timestamp("us")
    return pa.large_string() if is_text(kind) else kind


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    """Context of an open Parquet file. Errors: `InvalidError` with its name."""
    require_file(path, "Parquet file")
    try:
        # With `pre_buffer`, Arrow would read all columns of a row group at once, of any size.
        file = pa.parquet.ParquetFile(path, buffer_size=_READ, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise InvalidError(f"Parquet file `{path}`: {error}") from None
    try:
        yield file
    finally:
        file.close()


@contextmanager
def _arrow_errors(where: str) -> Iterator[None]:
    """Context that turns Arrow's errors of conversion into an `InvalidError` about the column."""
    try:
        yield
    except pa.ArrowException as error:
        raise InvalidError(
            f"{where}: {error}\nhint: store the values in a type that holds them, such as float64"
        ) from None


def _numbers(column: Any, where: str, first: int) -> NDArray[Any]:
    """A column of numbers as a NumPy array. The values of nulls are undefined.

    Dates and times become microseconds since 1970; `first` is the first row, for messages.

    Errors: as `in_microseconds`.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return in_microseconds(where, column, first)
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    if column.null_count:
        column = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def _require_same_decimals(column: Any, values: NDArray[Any], where: str, first: int) -> None:
    """Errors: `InvalidError` with the first integer that changes as a float.

    Fractions may be rounded.
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
