"""Rows of several text files as one table: those with one value in a column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.importing.table.table import Missing, TextTable
from outercore.importing.table.text import TextFile
from outercore.importing.table.times import Clock, clock_of, time_values

_KINDS: dict[Clock, str] = {
    "zone": "timestamp[us, tz=UTC]",
    "no zone": "timestamp[us]",
    "days": "date64[us]",
    "numbers": "timestamp[us]",
}
"""What Parquet would call times in microseconds."""


@dataclass(frozen=True)
class Part:
    """Rows of one file."""

    table: TextTable
    columns: dict[str, str]
    """The column of the file that has each column of the whole."""
    rows: int
    """The number of rows that count."""
    chosen: tuple[str, str] | None = None
    """A column, and what its field starts with in the rows that count; `None`: all rows count."""

    def _masks(self) -> Iterator[NDArray[np.bool_]]:
        assert self.chosen is not None
        column, value = self.chosen
        for (texts,) in self.table.texts([column]):
            yield np.asarray(pc.equal(first_word(texts), value))

    def numbers(
        self, columns: list[str], dtype: np.dtype, missing: Missing
    ) -> Iterator[NDArray[Any]]:
        """As `Table.numbers`."""
        names = [self.columns[name] for name in columns]
        batches = self.table.numbers(names, dtype, missing)
        if self.chosen is None:
            yield from batches
            return
        for batch, mask in zip(batches, self._masks(), strict=True):
            yield batch[mask]

    def texts(self, columns: list[str]) -> Iterator[list[pa.Array]]:
        """As `Table.texts`."""
        batches = self.table.texts([self.columns[name] for name in columns])
        if self.chosen is None:
            yield from batches
            return
        for batch, mask in zip(batches, self._masks(), strict=True):
            yield [column.filter(pa.array(mask)) for column in batch]


def first_word(texts: pa.Array) -> pa.Array:
    """What stands before the first semicolon of each text."""
    return pc.replace_substring_regex(texts, "(?s);.*", "")


@dataclass(frozen=True)
class Selection:
    """Parts of text files as one table, whose columns hold what the user says."""

    parts: tuple[Part, ...]
    types: dict[str, np.dtype | None]
    """Columns, and the type of those that hold numbers."""
    times: frozenset[str] = frozenset()
    """Those that hold dates and times, as text."""
    vectors: dict[str, np.dtype] = field(default_factory=dict)
    """Those that hold lists of numbers such as `0.5;1.25`, as text, and the type of the numbers."""

    @property
    def file(self) -> TextFile:
        """How the first file is written."""
        return self.parts[0].table.file

    @property
    def path(self) -> Path:
        """The first file."""
        return self.parts[0].table.path

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self.types)

    @property
    def is_named(self) -> bool:
        """The user says what the columns are called."""
        return True

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(part.rows for part in self.parts)

    def dtype(self, name: str) -> np.dtype | None:
        """As `Table.dtype`."""
        return np.dtype(np.int64) if name in self.times else self.types[name]

    def kind(self, name: str) -> str:
        """As `Table.kind`."""
        if name in self.times:
            return _KINDS[clock_of(self._as_text(), name)]
        return "text" if self.types[name] is None else str(self.types[name])

    def missing(self, name: str) -> int:
        """Rows without a number, a time or a list in a column; it is read for it."""
        if name in self.times or name in self.vectors:
            empty = (pc.equal(texts, "") for (texts,) in self.texts([name]))
            return sum(pc.sum(rows).as_py() or 0 for rows in empty)
        if self.types[name] is None:
            return 0
        # As floats, numbers beyond 2^53 would be refused: they are read so only where one has to.
        if not any(part.table.missing(part.columns[name]) for part in self.parts):
            return 0
        return sum(
            int(np.count_nonzero(np.isnan(rows)))
            for part in self.parts
            for rows in part.numbers([name], np.dtype(np.float64), "nan")
        )

    def numbers(
        self, columns: list[str], dtype: np.dtype, missing: Missing
    ) -> Iterator[NDArray[Any]]:
        """As `Table.numbers`."""
        if len(columns) == 1 and columns[0] in self.times:
            for times in time_values(self._as_text(), columns[0]):
                yield times[:, None]
            return
        for part in self.parts:
            yield from part.numbers(columns, dtype, missing)

    def list_type(self, name: str) -> pa.DataType | None:
        """As `ListTable.list_type`."""
        dtype = self.vectors.get(name)
        return None if dtype is None else pa.from_numpy_dtype(dtype)

    def lists(self, name: str, rows: int) -> Iterator[pa.Array]:
        """As `ListTable.lists`; there is none in an empty field.

        Errors: `InvalidError` for text that is no list of numbers of the type.
        """
        kind, row = self.list_type(name), 0
        nothing = pa.scalar(None, pa.large_string())
        for (whole,) in self.texts([name]):
            for first in range(0, len(whole), rows):
                texts = whole.slice(first, rows)
                lists = pc.split_pattern(pc.if_else(pc.equal(texts, ""), nothing, texts), ";")
                try:
                    values = pc.cast(pc.utf8_trim_whitespace(lists.flatten()), kind)
                except pa.ArrowInvalid as error:
                    raise InvalidError(
                        f"`{self.path}`: column `{name}`: rows {row} to {row + len(texts) - 1}: "
                        f"{error}"
                    ) from None
                yield pa.LargeListArray.from_arrays(lists.offsets, values, mask=lists.is_null())
                row += len(texts)

    def _as_text(self) -> Selection:
        """The same columns, with times as the texts that they are."""
        return replace(self, times=frozenset())

    def texts(self, columns: list[str], empty: str | None = None) -> Iterator[list[pa.Array]]:
        """As `Table.texts`; a text has empty fields and no nulls."""
        for part in self.parts:
            yield from part.texts(columns)
