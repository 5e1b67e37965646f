"""Opens several files of one table. All of them may have a header, or only the first file."""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from outercore.base.listing import listed
from outercore.errors import InvalidError, OutercoreError
from outercore.files.file_spec import FileSpec, are_named
from outercore.importing.table.columns import EdgeColumns, edge_columns, has_ends
from outercore.importing.table.parquet import ParquetTable, is_parquet
from outercore.importing.table.table import Table, require_columns
from outercore.importing.table.text import Convention, Purpose, TextOptions, TextTable

_NUMBER = re.compile(r"[-+.\d]*")


@dataclass
class Parts:
    """The columns of the first of several files. They hold for the files that follow."""

    _first: Table | None = None
    _ends: tuple[str, ...] = ()
    _unnamed: TextTable | None = None
    """The first file without a header."""

    def open(self, spec: FileSpec, options: TextOptions, purpose: Purpose) -> Table:
        """Opens the table in a file. If `spec` chooses columns by name, a text needs a header.

        Errors: `NotFoundError` for a missing column; `InvalidError` for a file that can be read in
        two ways.
        """
        table: Table
        if is_parquet(spec.path):
            table = ParquetTable(spec.path)
        else:
            chosen = spec.columns or spec.without
            table = self.text(spec.path, purpose, options, chosen=chosen)
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
    ) -> TextTable:
        """Opens a text. If it has no header, it gets the columns of the first file.

        `chosen` are columns that the header must have; `columns` is the number of fields, if known.

        Errors: as `TextTable.detect`.
        """

        if self._first is None and are_named(chosen) and options.header is False:
            # `--no-header` holds for all texts of an import, but names of columns are in a header.
            options = replace(options, header=None)

        def detected(said: TextOptions, *, by_name: bool = are_named(chosen)) -> TextTable:
            return TextTable.detect(
                path, purpose, said, columns=columns, by_name=by_name, convention=convention
            )

        first = self._first if isinstance(self._first, TextTable) else None
        if first is None or first.header is None:
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
            # The first file has a header, so the first line of this file may be data.
            found = detected(replace(options, header=False))
            if found.width != first.width:
                raise error from None
        if (
            are_named(chosen)
            and not set(chosen) <= set(found.header or ())
            and set(chosen) <= set(first.header)
        ):
            plain = detected(options, by_name=False)
            found = plain if plain.header is None else found
        return found.below(first)

    def _require_same_kind(self, file: TextTable, *, of_names: bool) -> None:
        """Errors: `InvalidError` if it is unclear whether the first lines are headers.

        Either two files have the same first line. Or only the second file seems to have a header,
        without usual names of columns, and nodes have names (`of_names`), so it may be data.
        """
        if (first := self._unnamed) is None:
            self._unnamed = file if file.header is None else None
            return
        line = file.header or _first_line(file)
        if not line or any(_NUMBER.fullmatch(field) for field in line):
            return
        is_same = line == _first_line(first)
        if is_same and file.header is None and _is_data(line, first, file):
            return
        if is_same or (file.header is not None and of_names and not has_ends(line)):
            why = "is that of" if is_same else "may name the columns, unlike that of"
            raise InvalidError(
                f"`{file.path}`: the first line, `{','.join(line)}`, {why} `{first.path}`\nhint: "
                "say which: `--header` if it names the columns, `--no-header` if it is data"
            )

    def by_name(self, spec: FileSpec, table: Table, ends: int = 2) -> tuple[FileSpec, str]:
        """Chooses the columns by name if a file has the first file's columns in another order.

        `ends` is the number of columns that are compared. Returns the file, and a note or "".
        """
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
        """The file, its ends of edges with the names as in the first file, and a note or "".

        Errors: as `edge_columns`; `NotFoundError` for a missing column of `spec`.
        """
        require_columns(table, spec)
        spec, by_name = self.by_name(spec, table)
        ends = edge_columns(spec, table, values)
        self.remember(table, (ends.source, ends.target))
        return spec, ends, by_name

    def remember(self, table: Table, ends: tuple[str, ...]) -> None:
        """Stores the first table with a header, and the columns `ends` that are used from it."""
        if self._first is None and table.is_named:
            self._first, self._ends = table, ends


def _first_line(file: TextTable) -> list[str]:
    batch = next(file.texts(file.names), [])
    return [column[0].as_py() for column in batch if len(column)]


def _is_data(line: list[str], *files: TextTable) -> bool:
    """Whether the first line, which is the same in all files, is data rather than a header.

    It is data if its words occur again below: names of nodes and relations do so, but names of
    columns do not. It is also data if no file has other lines.

    Cost: reads the first batch of each file.
    """
    words = pa.array(line, pa.large_string())
    batches = [next(file.texts(file.names), []) for file in files]
    below = [column[1:] for batch in batches for column in batch]
    occur_again = any(pc.any(pc.is_in(column, value_set=words)).as_py() for column in below)
    return occur_again or not any(len(column) for column in below)


def _with_names_of(
    first: TextTable, detected: Callable[[TextOptions], TextTable], options: TextOptions
) -> TextTable | None:
    """The file with its first line as header, if that line has the columns of `first`."""
    if options.header is False:
        return None
    try:
        found = detected(replace(options, header=True))
    except OutercoreError:
        return None
    return found if sorted(found.header or ()) == sorted(first.header or ()) else None
