"""Opens a folder of CSV files for `neo4j-admin database import` as a typed graph.

**Source** The Neo4j operations manual, section "CSV header format".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outercore.base.listing import listed
from outercore.data.edge_types import EdgeType
from outercore.errors import InvalidError, OutercoreError
from outercore.files.file_spec import FileSpec
from outercore.files.large_arrays import blocks
from outercore.importing.features import arrays_of_table
from outercore.importing.format.description import require_inside
from outercore.importing.graph_tables import EdgeTable, NodeTable, require_type_name
from outercore.importing.inputs import TypedInputs
from outercore.importing.keyed_edges import Ends, KeyedEdges, with_reverse
from outercore.importing.keys import Keys, column_of
from outercore.importing.options import ImportOptions
from outercore.importing.source import Format, GraphSource
from outercore.importing.table.file_state import FileState, states
from outercore.importing.table.parquet import natural
from outercore.importing.table.table import Missing, Numbers, Table
from outercore.importing.table.text import TextOptions, TextTable, lines, suffix_of
from outercore.importing.table.times import time_values, type_of_times
from outercore.importing.texts import columns_besides
from outercore.importing.typed_graph import typed_source

Role = Literal["key", "source", "target", "label", "type", "number", "numbers", "time", "text"]

_FIELD = re.compile(
    r"(?P<name>.*?)(?::(?P<kind>[A-Za-z_]+)(?P<array>\[\])?(?:\((?P<space>.*?)\))?(?:\{.*\})?)?$"
)
_ENDS: dict[str, Role] = {
    "ID": "key",
    "START_ID": "source",
    "END_ID": "target",
    "LABEL": "label",
    "TYPE": "type",
}
_PROPERTIES: tuple[Role, ...] = ("number", "numbers", "time", "text")
_WHOLE = ("int", "long", "short", "byte")
_TIMES = ("date", "datetime", "localdatetime")
_OTHERS = ("string", "char", "point", "time", "localtime", "duration")
_ROWS = 1 << 20
"""Number of relationships that are processed together."""


@dataclass(frozen=True)
class Field:
    """A column: its name and the kind of its values."""

    column: int
    """Its place in the file."""
    name: str
    role: Role
    dtype: np.dtype | None
    """The type of the numbers; `None` for other values."""
    space: str
    """The id space of Neo4j, in which keys are unique; empty for the space without a name."""


def _is_header(names: list[str]) -> bool:
    """Whether the fields of a first line are a header in Neo4j's format."""
    kinds = {found["kind"] for name in names if (found := _FIELD.fullmatch(name)) is not None}
    return "ID" in kinds or {"START_ID", "END_ID"} <= kinds


def _fields(path: Path, names: list[str]) -> tuple[Field, ...]:
    """The columns that a header names, except `:IGNORE`.

    Errors: `InvalidError` for an unknown field, and for fields that exclude each other.
    """
    found = [_field(path, column, name) for column, name in enumerate(names)]
    fields = tuple(field for field in found if field is not None)
    roles = [field.role for field in fields]
    if "key" in roles and not {"source", "target", "type"}.isdisjoint(roles):
        raise InvalidError(f"`{path}`: the header has the fields of nodes and of relationships")
    if len({field.space for field in fields if field.role == "key"}) > 1:
        raise InvalidError(f"`{path}`: the fields `:ID` are of different spaces")
    for role in ("label", "type"):
        if roles.count(role) > 1:
            raise InvalidError(f"`{path}`: two fields `:{role.upper()}`, expected one")
    properties = [field.name for field in fields if field.role in _PROPERTIES]
    for name in properties:
        if properties.count(name) > 1:
            raise InvalidError(f"`{path}`: two properties are called `{name}`")
    return fields


def _field(path: Path, column: int, text: str) -> Field | None:
    found = _FIELD.fullmatch(text)
    assert found is not None  # The pattern matches any text.
    name, kind = found["name"], found["kind"] or "string"
    if kind == "IGNORE":
        return None
    if kind in _ENDS:
        return Field(column, name, _ENDS[kind], None, found["space"] or "")
    lower = kind.lower()
    is_array = found["array"] is not None
    role: Role = "text"
    dtype = None
    if lower in _WHOLE or lower == "boolean":
        dtype = np.dtype(np.int64 if lower in _WHOLE else np.bool_)
    elif lower in ("float", "double"):
        dtype = np.dtype(np.float64)
    elif lower in _TIMES and not is_array:
        role = "time"
    elif lower not in (*_TIMES, *_OTHERS):
        known = ", ".join([*_ENDS, "IGNORE", *_WHOLE, "boolean", "float", "double", *_TIMES])
        raise InvalidError(
            f"`{path}`: the header has `{text}`, and `{kind}` is not known\n"
            f"hint: known are {known}, {', '.join(_OTHERS)}"
        )
    if dtype is not None:
        role = "numbers" if is_array else "number"
    return Field(column, name, role, dtype, "")


@dataclass(frozen=True)
class Part:
    """The rows of one file that belong to one type."""

    table: TextTable
    columns: dict[str, str]
    """The column in the file for each column of the type's table."""
    rows: int
    """The number of rows of the type."""
    chosen: tuple[str, str] | None = None
    """A column, and its first word in the rows of the type; `None`: all rows are of the type."""

    def numbers(self, columns: list[str], dtype: np.dtype, missing: Missing) -> Numbers:
        """As `Table.numbers`."""
        names = [self.columns[name] for name in columns]
        for batch, mask in self._masked(self.table.numbers(names, dtype, missing)):
            yield batch if mask is None else batch[mask]

    def texts(self, columns: list[str]) -> Iterator[list[pa.Array]]:
        """As `Table.texts`."""
        names = [self.columns[name] for name in columns]
        for batch, mask in self._masked(self.table.texts(names)):
            yield batch if mask is None else [column.filter(pa.array(mask)) for column in batch]

    def _masked(self, batches: Iterator[Any]) -> Iterator[tuple[Any, NDArray[np.bool_] | None]]:
        """Batches with masks of the rows that belong to the type; `None` for all rows."""
        if self.chosen is None:
            return zip(batches, repeat(None), strict=False)
        column, value = self.chosen
        texts = (_first_word(texts) for (texts,) in self.table.texts([column]))
        return zip(batches, (np.asarray(pc.equal(words, value)) for words in texts), strict=True)


def _first_word(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, "(?s);.*", "")


@dataclass(frozen=True)
class Selection(Table):
    """Rows of several text files as one table. The headers define the types of its columns."""

    parts: tuple[Part, ...]
    fields: dict[str, Field | None]
    """Columns with their header fields; `None` for columns of keys, which are texts."""

    @property
    def has_types(self) -> bool:
        """False: a header has the kind of numbers, but not their width in bytes."""
        return False

    def described(self, *, has_names: bool = False) -> str:
        """As `Table.described`, of the first file."""
        return self.parts[0].table.described(has_names=has_names)

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self.fields)

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(part.rows for part in self.parts)

    def _role(self, name: str) -> Role:
        field = self.fields[name]
        return "text" if field is None else field.role

    def dtype(self, name: str) -> np.dtype | None:
        """As `Table.dtype`."""
        if self._role(name) == "time":
            return np.dtype(np.int64)
        field = self.fields[name]
        return field.dtype if field is not None and field.role == "number" else None

    def kind(self, name: str) -> str:
        """As `Table.kind`."""
        if self._role(name) == "time":
            return str(type_of_times(self._as_text(name), name))
        return super().kind(name)

    def missing(self, name: str) -> int:
        """Number of rows without a number, a time or a list in a column. Reads the column."""
        if self._role(name) in ("time", "numbers"):
            empty = (pc.equal(texts, "") for (texts,) in self.texts([name]))
            return sum(pc.sum(rows).as_py() or 0 for rows in empty)
        if self._role(name) == "text":
            return 0
        # Numbers beyond 2^53 would be refused as floats, so columns are read as floats only if a
        # value is missing.
        if not any(part.table.missing(part.columns[name]) for part in self.parts):
            return 0
        return sum(
            int(np.count_nonzero(np.isnan(rows)))
            for part in self.parts
            for rows in part.numbers([name], np.dtype(np.float64), "nan")
        )

    def numbers(self, columns: list[str], dtype: np.dtype, missing: Missing) -> Numbers:
        """As `Table.numbers`."""
        if len(columns) == 1 and self._role(columns[0]) == "time":
            for times in time_values(self._as_text(columns[0]), columns[0]):
                yield times[:, None]
            return
        for part in self.parts:
            yield from part.numbers(columns, dtype, missing)

    def list_type(self, name: str) -> pa.DataType | None:
        """As `Table.list_type`."""
        field = self.fields[name]
        if field is None or field.role != "numbers":
            return None
        return pa.from_numpy_dtype(field.dtype)

    def lists(self, name: str, rows: int) -> Iterator[pa.Array]:
        """As `Table.lists`; an empty field is a null.

        Errors: `InvalidError` for text other than a list of numbers of the type.
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

    def _as_text(self, name: str) -> Selection:
        """A column of times as the texts that the file has."""
        return replace(self, fields={name: None})

    def texts(self, columns: list[str], empty: str | None = None) -> Iterator[list[pa.Array]]:
        """As `Table.texts`; a text has empty fields and no nulls."""
        for part in self.parts:
            yield from part.texts(columns)


_TEXTS = (".csv", ".tsv", ".txt")
_SEPARATORS = {"comma": ",", "tab": "\t", "semicolon": ";", "pipe": "|"}
"""Possible separators of fields. The first one is preferred: `;` and `|` also separate values."""
_KEYS: dict[Role, str] = {"key": ":ID", "source": ":START_ID", "target": ":END_ID"}
_KEY = re.compile(r":(ID|START_ID|END_ID)\b")
_KIND = re.compile(r"^:|\(.*")
"""The text before and after the kind in a field without a name, such as `:START_ID(User)`."""
_HEADER_FILE = re.compile(r"(.+?)[-_.]?header", re.IGNORECASE)
_PART = re.compile(r"(.+?)(?:[-_ ]?(?P<word>part|chunk|split|shard)[-_ ]?|[-_ ])\d+", re.IGNORECASE)
"""A file name with the number of a part: `users-part1`, `users_002`."""


@dataclass(frozen=True)
class ExportFile:
    """A file of nodes or relationships; its header may be a separate file."""

    header: Path
    """The file whose first line is the header."""
    fields: tuple[Field, ...]
    """The columns, except `:IGNORE`."""
    table: TextTable
    said: TextOptions
    """The options by which the header was read."""
    files: tuple[FileState, ...]
    name: str = ""
    """The type of its rows, if no field says it."""

    @property
    def path(self) -> Path:
        """The file with the rows."""
        return self.table.path

    def of(self, *roles: Role) -> list[Field]:
        """The columns with one of these roles."""
        return [field for field in self.fields if field.role in roles]

    @property
    def is_nodes(self) -> bool:
        """Whether the rows are nodes rather than relationships."""
        return bool(self.of("key"))

    @property
    def has_names(self) -> bool:
        """Whether a field has the types of the rows."""
        return bool(self.of("label", "type"))

    @property
    def kind(self) -> list[tuple[str, str]]:
        """Roles and id spaces of the keys, which are equal in all parts of one table."""
        roles: tuple[Role, ...] = ("key", "source", "target")
        return [(role, field.space) for role in roles for field in self.of(role)]

    def space_of(self, role: Role) -> str:
        """The id space of the keys in the columns with this role."""
        return self.of(role)[0].space

    def columns_of(self, role: Role) -> tuple[str, ...]:
        """Names of the key columns with this role, the same for all files."""
        name = _KEYS[role]
        count = len(self.of(role))
        return tuple(name if place == 0 else f"{name} {place + 1}" for place in range(count))

    @property
    def by_value(self) -> Iterator[tuple[str, Part]]:
        """The rows by type: the value of the field `:LABEL` or `:TYPE`, or else `name`."""
        names = self.table.names
        columns = {
            name: names[field.column]
            for key in _KEYS
            for name, field in zip(self.columns_of(key), self.of(key), strict=True)
        }
        columns |= {field.name: names[field.column] for field in self.of(*_PROPERTIES)}
        if not self.has_names:
            yield self.name, Part(self.table, columns, self.table.rows)
            return
        column = names[self.of("label" if self.is_nodes else "type")[0].column]
        rows = Counter[str]()
        for (texts,) in self.table.texts([column]):
            for one in pc.value_counts(_first_word(texts)).to_pylist():
                rows[one["values"]] += one["counts"]
        for value in sorted(rows):
            chosen = (column, value) if len(rows) > 1 else None
            yield value or self.name, Part(self.table, columns, rows[value], chosen)

    def repeats(self, fields: list[str]) -> bool:
        """Whether the fields of a line repeat the header, with or without its types."""
        if len(fields) != len(self.table.names):
            return False
        names = [own.partition(":")[0] for own in self.table.names]
        kinds = [_KIND.sub("", own).lower() for own in self.table.names]
        return any(found and found == name for found, name in zip(fields, names, strict=True)) and (
            all(
                found in (own, name) or (not name and found.lower() == kind)
                for found, own, name, kind in zip(
                    fields, self.table.names, names, kinds, strict=True
                )
            )
        )


def is_neo4j(folder: Path) -> bool:
    """Whether a folder has a text file whose first line is a header of Neo4j."""

    def has_header(path: Path) -> bool:
        try:
            return _with_header(path, TextOptions(comment="")) is not None
        except OutercoreError:
            return False

    return any(has_header(path) for path in _text_files(folder))


def open_files(
    folder: Path, options: TextOptions, *, outside: bool = False
) -> tuple[list[ExportFile], list[str]]:
    """Opens the files of an export, and returns notes on them; `outside` as in `described_file`.

    The header of a file is its first line or in a separate file. Files whose names differ only in
    the number of a part are one table.

    Errors: `InvalidError` for a wrong header, and for a link to a file outside the folder. If a
    file with a field such as `:ID` cannot be read, the error of reading it.
    """
    texts = _text_files(folder)
    headed = {path: one for path in texts if (one := _headed(path, options)) is not None}
    rest = [path for path in texts if path not in headed]
    empty = {path: one for path, one in headed.items() if not one.table.rows}
    filled = {path: one for path, one in headed.items() if path not in empty}
    belongs = {path: header for path in rest if (header := _header_of(path, filled, empty))}
    names = _names(filled, empty, set(belongs.values()))
    found, notes = [], list[str]()
    for path, one in headed.items():
        below = [other for other in rest if belongs.get(other) == path]
        name = _stem(path) if path in empty else _part_stem(path)
        if below:
            names[path] = name
        if path in filled:
            found.append(one)
        for other in below:
            table, note = _below(one, other, options.header)
            notes += note
            found.append(replace(one, table=table, files=(*one.files, *states(other)), name=name))
        is_known = not {_stem(path), _part_stem(path)}.isdisjoint(names.values())
        if path in empty and not is_known:
            found.append(replace(one, name=_stem(path)))
    rest = [path for path in rest if path not in belongs]
    found = [replace(one, name=names.get(one.path, one.name)) for one in found]
    for file in found:
        for path in (file.header, file.path):
            require_inside(folder, path, f"`{folder}`", outside=outside)
    notes += [*_repeated(found), *_joined(found)]
    others = sorted(
        [*rest, *(one for one in folder.iterdir() if one not in texts and one.name[0] != ".")]
    )
    if not others:
        return found, notes
    return found, [
        *notes,
        f"without a header of Neo4j, so not read: {listed((path.name for path in others), most=6)}",
    ]


def _names(
    filled: dict[Path, ExportFile], empty: dict[Path, ExportFile], used: set[Path]
) -> dict[Path, str]:
    """The type of the rows in each file of `filled`, for files without a type field.

    `filled` are files with header and rows, `empty` are files with only a header. `used` are the
    headers of files without a header.

    Errors: `InvalidError` for parts of one table with different columns.
    """
    names = {}
    for path, one in filled.items():
        stem = _part_stem(path)
        header = _header_of(path, {}, empty)
        if (
            header is not None
            and sorted(empty[header].table.names) == sorted(one.table.names)
            and (header not in used or stem == _stem(header))
        ):
            names[path] = _stem(header)
            continue
        parts = [
            other
            for other in filled.values()
            if other.path != path and _part_stem(other.path) == stem and other.kind == one.kind
        ]
        columns = sorted(one.table.names)
        same = [other for other in parts if sorted(other.table.names) == columns]
        names[path] = stem if same or path in used else _stem(path)
        if len(same) == len(parts) or one.has_names or not _is_part(path):
            continue
        other = next(other for other in parts if other not in same)
        raise InvalidError(
            f"`{path}`: has other columns than `{other.path}`, and their names say that both are "
            f"parts of `{stem}`\nhint: give both the same columns, or names without `part`"
        )
    return names


def _below(one: ExportFile, path: Path, header: bool | None) -> tuple[TextTable, list[str]]:
    """Opens the file `path` with the header of `one`. Returns a note if its first line repeats it.

    `header` is the user's option: whether such a first line is a header; `None`: it is detected.

    Errors: `InvalidError` for another number of columns, and for a single field that may be a key
    or the name of the column.
    """
    columns = one.table.width
    line = _first_line(path, one.said)
    is_named = one.repeats(line) and header is not False
    if is_named and header is None and len(line) == 1 and line != one.table.names:
        below = TextTable.detect(path, "table", one.said, columns=columns)
        if below.dialect["kinds"] == ["text"]:
            raise InvalidError(
                f"`{path}`: the first line, `{line[0]}`, may name the column, or be a key\n"
                "hint: say which: `--header` if it names the column, `--no-header` if it is data"
            )
    said = replace(one.said, header=is_named)
    table = TextTable.detect(path, "table", said, columns=columns)
    table = replace(
        table, dialect={**table.dialect, "header_line": one.table.dialect["header_line"]}
    )
    if len(table.names) != columns:
        raise InvalidError(
            f"`{path}`: {len(table.names)} columns, but the header `{one.path}` has {columns}"
        )
    again = f"`{path.name}`: line 1 names the columns again and holds no row"
    return table, [again] if is_named else []


def _repeated(files: list[ExportFile]) -> list[str]:
    notes = []
    for one in files:
        count = one.table.profile.repeated_headers
        if count:
            what = "1 line repeats" if count == 1 else f"{count:,} lines repeat"
            notes.append(f"`{one.path.name}`: {what} the header and holds no row")
    return notes


def _joined(files: list[ExportFile]) -> list[str]:
    """Notes on files that are read as one table because of their names."""
    parts: dict[tuple[str, bool], list[str]] = {}
    for one in files:
        if not one.has_names:
            parts.setdefault((one.name, one.is_nodes), []).append(one.path.name)
    return [
        f"read as one table `{name}`: {', '.join(f'`{path}`' for path in paths[:6])}"
        + (f" and {len(paths) - 6} more" if len(paths) > 6 else "")
        for (name, _), paths in parts.items()
        if len(paths) > 1
    ]


def _text_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    files = (path for path in folder.iterdir() if suffix_of(path) in _TEXTS and path.is_file())
    return sorted(files, key=natural)


def _headed(path: Path, options: TextOptions) -> ExportFile | None:
    """The file, if its first line is a header of Neo4j.

    Errors: as `_with_header`, and `InvalidError` for an unknown field.
    """
    files, found = states(path), _with_header(path, options)
    return found and ExportFile(path, _fields(path, found[0].names), *found, files)


def _with_header(path: Path, options: TextOptions) -> tuple[TextTable, TextOptions] | None:
    """The file and its options, if its first line is a header of Neo4j. It tells the separator.

    Errors: `InvalidError` for a header with another number of fields than the rows.
    """
    found: TextTable | None = None
    wrong: OutercoreError | None = None
    for separator in [options.separator] if options.separator else _SEPARATORS:
        said = replace(options, separator=separator, header=True)
        try:
            table = TextTable.detect(path, "table", said)
        except OutercoreError as error:
            wrong = wrong or error
            continue
        names = table.names if table.is_named else []
        if _is_header(names) and (found is None or len(names) > len(found.names)):
            found, chosen = table, said
    if found is not None:
        return found, chosen
    if _may_have_header(path, is_table=wrong is None):
        raise wrong or _uneven(path, options)
    return None


def _uneven(path: Path, options: TextOptions) -> InvalidError:
    """The error for a file whose header has another number of fields than its rows."""
    line = next(lines(path), "").strip()
    cuts = {name: [one.strip('"') for one in line.split(by)] for name, by in _SEPARATORS.items()}
    fitting = [name for name, fields in cuts.items() if _is_header(fields)]
    separator = max(fitting, key=lambda name: len(cuts[name]), default=None)
    said = options.native()["separator"]
    if separator is not None and said not in (None, separator):
        return InvalidError(
            f"`{path}`: the first line is a header of Neo4j with another separator\n"
            "hint: leave out `--separator`: the header of each file says what separates its fields"
        )
    count = f" {len(cuts[separator])}" if separator is not None else ""
    return InvalidError(
        f"`{path}`: the header has{count} fields, and the lines below it have others\n"
        "hint: give each line as many fields as the header, and quote those with a separator in "
        "them"
    )


def _first_line(path: Path, said: TextOptions) -> list[str]:
    """The fields of the first line; empty if they cannot be names of columns."""
    try:
        return TextTable.detect(path, "table", replace(said, header=True)).header or []
    except OutercoreError:
        return []


def _may_have_header(path: Path, *, is_table: bool) -> bool:
    """Whether a file without a valid header may still be part of the export.

    `is_table`: the file can be read as a table.
    """
    try:
        return _KEY.search(next(lines(path), "")) is not None
    except OutercoreError:
        # Of the files that cannot be read as a table, only `.txt` files are ignored: they may be
        # notes for people.
        return not is_table and suffix_of(path) != ".txt"


def _stem(path: Path) -> str:
    """The name of a file, without `-header` at the end."""
    name = path.name.partition(".")[0]
    found = _HEADER_FILE.fullmatch(name)
    return found[1] if found is not None else name


def _part_stem(path: Path) -> str:
    """The name of a file, without the number of a part at the end."""
    name = _stem(path)
    found = _PART.fullmatch(name)
    return found[1] if found is not None else name


def _is_part(path: Path) -> bool:
    """Whether a file name has a word such as `part` before its number."""
    found = _PART.fullmatch(_stem(path))
    return found is not None and found["word"] is not None


def _header_of(
    path: Path, filled: dict[Path, ExportFile], empty: dict[Path, ExportFile]
) -> Path | None:
    """The file with the header for a file of rows; of several, the one with the longest name.

    It is a header file whose name begins the file's name, or the first part of the same table.
    """
    fitting = [one for one in empty if path.name.startswith(_stem(one))]
    first = next((one for one in filled if _part_stem(one) == _part_stem(path)), None)
    fitting += [first] if first is not None else []
    return max(fitting, key=lambda one: len(_part_stem(one)), default=None)


@dataclass(frozen=True)
class _Relation:
    """Relationships of one type in one file. The node types of their ends may differ by row."""

    name: str
    table: EdgeTable
    """The rows. The node types in its edge type are still empty."""
    ends: tuple[list[NodeTable], list[NodeTable]]
    """The possible node types of the sources, and of the targets."""


def open_neo4j(folder: Path, inputs: TypedInputs, options: ImportOptions) -> GraphSource:
    """Opens the graph in a folder of node and relationship files.

    The type of a node is its first label, or else the name of the file. The type of a relationship
    is found in the same way. Numbers become features and edge arrays; dates become separate arrays.

    Errors: `InvalidError` names the file with its field, or an unknown key.
    """
    if inputs.text.comment is None:
        # In these files, `#` does not begin a comment.
        inputs = replace(inputs, text=replace(inputs.text, comment=""))
    inputs = replace(inputs, is_in_order=True)
    files, notes = open_files(folder, inputs.text, outside=options.outside_files)
    nodes, left_out = _node_types([one for one in files if one.is_nodes])
    notes += left_out
    relations = [
        relation
        for one in files
        if not one.is_nodes
        for relation in _relations(one, list(nodes.values()))
    ]
    besides = columns_besides(inputs.label, inputs.texts, nodes)
    arrays = []
    for node_type, one in nodes.items():
        own = besides.get(node_type, set())
        found, more = arrays_of_table(one, own, inputs.reading(options))
        arrays += found
        notes += more
    description = " ".join(str(state) for one in files for state in one.files)
    uses = [
        column_of(types[0].node_type, one.table.table, key, may_be_empty=True, space=types[0].space)
        for one in relations
        for types, key in zip(one.ends, (one.table.source, one.table.target), strict=True)
    ]
    return typed_source(
        inputs,
        options,
        nodes,
        [],
        (arrays, notes),
        [str(folder)],
        description=description,
        uses=uses,
        find_edges=partial(_find_edges, relations, add_reverse=inputs.add_reverse),
    )


def _node_types(files: list[ExportFile]) -> tuple[dict[str, NodeTable], list[str]]:
    """The node types by name, and notes on properties that some files of a type lack.

    Each type gets its range of numbers among all nodes of its id space.

    Errors: `InvalidError` for a type with keys of two id spaces.
    """
    if not files:
        raise InvalidError("expected a file with a field `:ID`, found relationships only")
    parts: dict[str, list[tuple[ExportFile, Part]]] = {}
    for one in files:
        for name, part in one.by_value:
            require_type_name(f"`{one.path}`: label", name)
            parts.setdefault(name, []).append((one, part))
    found, firsts, notes = dict[str, NodeTable](), dict[str, int](), list[str]()
    for name, own in sorted(parts.items()):
        spaces = {one.space_of("key") for one, _ in own}
        if len(spaces) > 1:
            paths = " and ".join(f"`{one.path}`" for one, _ in own[:2])
            raise InvalidError(f"{paths}: nodes of type `{name}` have keys of different spaces")
        space, table = spaces.pop(), _selection(own, ("key",))
        first, count = firsts.get(space, 0), table.rows
        firsts[space] = first + count
        keys = own[0][0].columns_of("key")
        states = tuple(state for one, _ in own for state in one.files)
        spec = FileSpec(own[0][0].path, ())
        found[name] = NodeTable(name, spec, table, keys, count, states, space, first)
        properties = {field.name for one, _ in own for field in one.of(*_PROPERTIES)}
        if left := sorted(properties - set(table.names)):
            notes.append(
                f"properties of `{name}` that some of its files lack are left out: {listed(left)}"
            )
    return found, notes


def _selection(own: list[tuple[ExportFile, Part]], keys: tuple[Role, ...]) -> Selection:
    """The rows of several files as one table, with the columns that all files have.

    Errors: `InvalidError` for a property with different types.
    """
    file = own[0][0]
    shared = dict[str, Field | None].fromkeys(name for key in keys for name in file.columns_of(key))
    for wanted in file.of(*_PROPERTIES):
        same = [
            other for one, _ in own for other in one.of(*_PROPERTIES) if other.name == wanted.name
        ]
        if len(same) < len(own):
            continue
        if any((one.role, one.dtype) != (wanted.role, wanted.dtype) for one in same):
            paths = " and ".join(f"`{one.path}`" for one, _ in own)
            raise InvalidError(f"{paths}: property `{wanted.name}` has different types")
        shared[wanted.name] = wanted
    return Selection(file.path, tuple(part for _, part in own), shared)


def _relations(file: ExportFile, nodes: list[NodeTable]) -> list[_Relation]:
    """The relationships of a file, by type.

    Errors: `InvalidError` for keys of an id space without nodes.
    """
    roles: tuple[Role, Role] = ("source", "target")
    ends = []
    for role in roles:
        space = file.space_of(role)
        types = [one for one in nodes if one.space == space]
        if not types:
            known = ", ".join(sorted({f"`:ID({one.space})`" for one in nodes}))
            raise InvalidError(
                f"`{file.path}`: field `{file.columns_of(role)[0]}`: no node has keys of this "
                f"space\nhint: nodes have {known}"
            )
        if len(types[0].key) != len(file.columns_of(role)):
            raise InvalidError(
                f"`{file.path}`: {len(file.columns_of(role))} fields `{file.columns_of(role)[0]}`, "
                f"but `{types[0].spec}` has {len(types[0].key)} fields `:ID`"
            )
        ends.append(types)
    source, target = (file.columns_of(role) for role in roles)
    found = []
    for name, part in file.by_value:
        require_type_name(f"`{file.path}`: relationship type", name)
        table = _selection([(file, part)], roles)
        others = tuple(field.name for field in file.of(*_PROPERTIES))
        edges = EdgeTable(
            ("", name, ""), FileSpec(file.path, ()), table, source, target, others, file.files
        )
        found.append(_Relation(name, edges, (ends[0], ends[1])))
    return found


def _find_edges(relations: list[_Relation], keys: Keys, *, add_reverse: bool) -> list[KeyedEdges]:
    """The edge types in the rows, in the order of their keys."""
    ends: dict[EdgeType, list[Ends]] = {}
    for number, one in enumerate(relations):
        uses = (2 * number, 2 * number + 1)
        pairs = _pairs(one, keys, uses)
        for place, (source, target) in enumerate(pairs):
            edge_type = source.node_type, one.name, target.node_type
            table = replace(one.table, edge_type=edge_type)
            own = Ends(table, uses, (source.numbers, target.numbers), is_counting=place == 0)
            ends.setdefault(edge_type, []).append(own)
    return with_reverse(ends, add_reverse=add_reverse)


def _pairs(
    relation: _Relation, keys: Keys, uses: tuple[int, int]
) -> list[tuple[NodeTable, NodeTable]]:
    """The pairs of node types that edges connect; without edges, the first possible pair."""
    sources = keys.rows(uses[0])
    starts = [np.array([one.first for one in types]) for types in relation.ends]
    found = set()
    for first, block in blocks(sources, _ROWS):
        other = keys.part(uses[1], slice(first, first + len(block)))
        both = (block >= 0) & (other >= 0)
        come = np.searchsorted(starts[0], block[both], "right") - 1
        to = np.searchsorted(starts[1], other[both], "right") - 1
        found |= set(np.unique(come * len(starts[1]) + to).tolist())
    pairs = [divmod(pair, len(starts[1])) for pair in sorted(found)] or [(0, 0)]
    return [(relation.ends[0][come], relation.ends[1][to]) for come, to in pairs]


FORMAT = Format("an export for Neo4j", is_neo4j, open_neo4j, ("header",))
