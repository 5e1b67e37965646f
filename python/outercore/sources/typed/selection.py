"""Rows of several text files as one table: those with one value in a column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outercore.sources.table import Missing, TextTable
from outercore.sources.text import TextFile
from outercore.sources.typed.times import Clock, clock_of, time_values

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
    chosen: tuple[str, str] | None = None
    """A column, and what its field starts with in the rows that count; `None`: all rows count."""

    @cached_property
    def rows(self) -> int:
        """The number of rows that count; the file is read for it."""
        if self.chosen is None:
            return self.table.rows
        return sum(int(np.count_nonzero(mask)) for mask in self._masks())

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
        masks = _Cut(self._masks())
        for batch in batches:
            yield batch[masks.next(len(batch))]

    def texts(self, columns: list[str]) -> Iterator[list[pa.Array]]:
        """As `Table.texts`."""
        batches = self.table.texts([self.columns[name] for name in columns])
        if self.chosen is None:
            yield from batches
            return
        masks = _Cut(self._masks())
        for batch in batches:
            mask = pa.array(masks.next(len(batch[0])))
            yield [column.filter(mask) for column in batch]


class _Cut:
    """Batches that are cut as others are."""

    def __init__(self, batches: Iterator[NDArray[np.bool_]]) -> None:
        self._batches = batches
        self._left = np.empty(0, np.bool_)

    def next(self, rows: int) -> NDArray[np.bool_]:
        """The next rows."""
        while len(self._left) < rows:
            self._left = np.concatenate([self._left, next(self._batches)])
        found, self._left = self._left[:rows], self._left[rows:]
        return found


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
        """Rows without a number in a column; it is read for it."""
        if self.types[name] is None:
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

    def _as_text(self) -> Selection:
        """The same columns, with times as the texts that they are."""
        return replace(self, times=frozenset())

    def texts(self, columns: list[str], empty: str | None = None) -> Iterator[list[pa.Array]]:
        """As `Table.texts`; a text has empty fields and no nulls."""
        for part in self.parts:
            yield from part.texts(columns)
