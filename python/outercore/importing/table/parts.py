"""Several files of one table: each with its header, or only the first one."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outercore.base.listing import listed
from outercore.errors import InvalidError, OutercoreError
from outercore.files.file_spec import FileSpec, are_named
from outercore.importing.table.columns import EdgeColumns, edge_columns, has_ends
from outercore.importing.table.table import (
    Missing,
    Table,
    TextTable,
    is_parquet,
    open_table,
    require_columns,
)
from outercore.importing.table.text import Convention, Purpose, TextFile, TextOptions

_NUMBER = re.compile(r"[-+.\d]*")


@dataclass
class Parts:
    """The columns of the first of several files, for the files that follow."""

    _first: Table | None = None
    _ends: tuple[str, ...] = ()
    _unnamed: TextFile | None = None
    """The first file without a header."""

    def open(self, spec: FileSpec, options: TextOptions, purpose: Purpose) -> Table:
        """The table in a file; as `open_table`."""
        if is_parquet(spec.path):
            return open_table(spec)
        chosen = spec.columns or spec.without
        table = TextTable(self.text(spec.path, purpose, options, chosen=chosen))
        require_columns(table, spec)
        return table

    def text(
        self,
        path: Path,
        purpose: Purpose,
        options: TextOptions,
        *,
        columns: int | None = None,
        chosen: tuple[str, ...] = (),
        convention: Convention | None = None,
    ) -> TextFile:
        """How a text is written. One without a header has the columns of the first file.

        `chosen` are columns that its header has to name.

        Errors: as `TextFile.detect`.
        """

        def detected(said: TextOptions, *, by_name: bool = are_named(chosen)) -> TextFile:
            return TextFile.detect(
                path, purpose, said, columns=columns, by_name=by_name, convention=convention
            )

        first = self._first.file if isinstance(self._first, TextTable) else None
        if first is None or first.names is None:
            found = detected(options)
            if options.header is None and purpose != "edges":
                self._require_same_kind(found, of_names=purpose in ("named_edges", "triples"))
            return found
        if (again := _with_names_of(first, detected, options)) is not None:
            return again
        try:
            found = detected(options)
        except InvalidError as error:
            if options.header is not None or not error.names("header"):
                raise
            # The first file has names for the columns, so that this line may well be data.
            found = detected(replace(options, header=False))
            if found.width != first.width:
                raise error from None
        if (
            are_named(chosen)
            and not set(chosen) <= set(found.names or ())
            and set(chosen) <= set(first.names)
        ):
            plain = detected(options, by_name=False)
            found = plain if plain.names is None else found
        return found.below(first)

    def _require_same_kind(self, file: TextFile, *, of_names: bool) -> None:
        """Errors: `InvalidError` where it is unclear whether the first lines are headers.

        They are the same in two files; or, `of_names` of nodes, only the second file seems to have
        a header, and its words are not the usual ones.
        """
        if (first := self._unnamed) is None:
            self._unnamed = file if file.names is None else None
            return
        line = file.names or _first_line(file)
        if not line or any(_NUMBER.fullmatch(field) for field in line):
            return
        is_same = line == _first_line(first)
        if is_same and file.names is None and _is_data(line, first, file):
            return
        if is_same or (file.names is not None and of_names and not has_ends(line)):
            why = "is that of" if is_same else "may name the columns, unlike that of"
            raise InvalidError(
                f"`{file.path}`: the first line, `{','.join(line)}`, {why} `{first.path}`\nhint: "
                "say which: `--header` if it names the columns, `--no-header` if it is data"
            )

    def by_name(self, spec: FileSpec, table: Table, ends: int = 2) -> tuple[FileSpec, str]:
        """The file with the columns of the first file, if it has these in another order; and a
        note on that."""
        has_others = (
            bool(self._ends)
            and not spec.columns
            and table.is_named
            and set(self._ends) <= set(table.names)
            and tuple(table.names[:ends]) != self._ends
        )
        if not has_others or self._first is None:
            return spec, ""
        return replace(
            spec, columns=self._ends
        ), f"; by name, as in {self._first.path}: {listed(self._ends)}"

    def edges(
        self, spec: FileSpec, table: Table, values: Container[str] = ()
    ) -> tuple[FileSpec, EdgeColumns, str]:
        """The file and its ends of edges, as in the first file; and a note on that.

        Errors: `NotFoundError` for a column of `spec` that is not there; as `edge_columns`.
        """
        require_columns(table, spec)
        spec, by_name = self.by_name(spec, table)
        ends = edge_columns(spec, table, values)
        self.remember(table, (ends.source, ends.target))
        return spec, ends, by_name

    def remember(self, table: Table, ends: tuple[str, ...]) -> None:
        """`table` is the first file, if it has names for its columns; `ends` are those taken."""
        if self._first is None and table.is_named:
            self._first, self._ends = table, ends


def _first_line(file: TextFile) -> list[str]:
    batch = next(file.texts(list(range(file.width))), [])
    return [column[0].as_py() for column in batch if len(column)]


def _is_data(line: list[str], *files: TextFile) -> bool:
    """Whether the first line of these files is data rather than a header.

    Names of nodes and relations occur again below, and names of columns do not. Files of this line
    alone would hold nothing if it were a header.

    Cost: reads the first batch of each file.
    """
    words = pa.array(line, pa.large_string())
    batches = [next(file.texts(list(range(file.width))), []) for file in files]
    below = [column[1:] for batch in batches for column in batch]
    occur_again = any(pc.any(pc.is_in(column, value_set=words)).as_py() for column in below)
    return occur_again or not any(len(column) for column in below)


def _with_names_of(
    first: TextFile, detected: Callable[[TextOptions], TextFile], options: TextOptions
) -> TextFile | None:
    """The file with its first line as the header, if this names the columns of `first`."""
    if options.header is False:
        return None
    try:
        found = detected(replace(options, header=True))
    except OutercoreError:
        return None
    return found if sorted(found.names or ()) == sorted(first.names or ()) else None


@dataclass(frozen=True)
class TextParts(TextTable):
    """Several texts as one table, whose columns are read by their names."""

    others: tuple[TextTable, ...] = ()
    """The files after the first one."""

    @property
    def _parts(self) -> tuple[TextTable, ...]:
        return (TextTable(self.file), *self.others)

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(part.rows for part in self._parts)

    def described(self, *, has_names: bool = False) -> str:
        """As `Table.described`, of each file."""
        first, *others = (part.file.described(has_names=has_names) for part in self._parts)
        named = zip((part.path for part in self.others), others, strict=True)
        return "; further part ".join([first, *(f"{path}: {text}" for path, text in named)])

    def dtype(self, name: str) -> np.dtype | None:
        """The type that holds what all files have in a column; `None` for text."""
        found = [
            dtype
            for part in self._parts
            if part.file.profile.kinds[part.names.index(name)] != "empty"
            for dtype in [part.dtype(name)]
        ]
        if not found:
            return self._parts[0].dtype(name)
        kinds = [dtype for dtype in found if dtype is not None]
        return None if len(kinds) < len(found) else np.result_type(*kinds)

    def missing(self, name: str) -> int:
        """Fields without a value."""
        return sum(part.missing(name) for part in self._parts)

    def padded(self, name: str) -> int:
        """Whole numbers with zeros in front."""
        return sum(part.padded(name) for part in self._parts)

    def numbers(
        self, columns: list[str], dtype: np.dtype, missing: Missing
    ) -> Iterator[NDArray[Any]]:
        """As `Table.numbers`."""
        for part in self._parts:
            yield from part.numbers(columns, dtype, missing)

    def texts(self, columns: list[str], empty: str | None = None) -> Iterator[list[pa.Array]]:
        """As `Table.texts`; a text has empty fields and no nulls."""
        for part in self._parts:
            yield from part.texts(columns)


def joined(table: TextTable, part: TextTable) -> TextParts:
    """The rows of both."""
    others = table.others if isinstance(table, TextParts) else ()
    return TextParts(table.file, (*others, part))
