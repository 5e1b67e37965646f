"""The files of an export for Neo4j: each with its header, and its rows by label or type."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.compute as pc

from outercore.errors import InvalidError, OutercoreError
from outercore.importing.format.listed_files import require_inside
from outercore.importing.format.neo4j_header import Header, Role, is_header, read_header
from outercore.importing.table.file_state import FileState, states
from outercore.importing.table.packed import lines
from outercore.importing.table.selection import Part, first_word
from outercore.importing.table.table import TextTable, natural
from outercore.importing.table.text import TextFile, TextOptions, suffix_of

_TEXTS = (".csv", ".tsv", ".txt")
_SEPARATORS = {"comma": ",", "tab": "\t", "semicolon": ";", "pipe": "|"}
"""What may separate fields; where several fit, the first one: `;` and `|` separate values, too."""
_KEYS: dict[Role, str] = {"key": ":ID", "source": ":START_ID", "target": ":END_ID"}
_KEY = re.compile(r":(ID|START_ID|END_ID)\b")
_KIND = re.compile(r"^:|\(.*")
"""What stands around the kind in a field without a name, such as `:START_ID(User)`."""
_HEADER_FILE = re.compile(r"(.+?)[-_.]?header", re.IGNORECASE)
_PART = re.compile(r"(.+?)(?:[-_ ]?(?P<word>part|chunk|split|shard)[-_ ]?|[-_ ])\d+", re.IGNORECASE)
"""A name of a part of a table: `users-part1`, `users_002`."""


@dataclass(frozen=True)
class ExportFile:
    """A file of nodes or relationships; its header may be a file of its own."""

    header: Header
    table: TextTable
    files: tuple[FileState, ...]
    name: str
    """The type of its rows, where no field says it."""

    @property
    def path(self) -> Path:
        """The file with the rows."""
        return self.table.path

    def columns_of(self, role: Role) -> tuple[str, ...]:
        """The columns of keys with this role; all files call them the same."""
        name = _KEYS[role]
        count = len(self.header.of(role))
        return tuple(name if place == 0 else f"{name} {place + 1}" for place in range(count))

    @property
    def by_value(self) -> Iterator[tuple[str, Part]]:
        """The rows by their label or type; all by the name of the file where no field has it."""
        role: Role = "label" if self.header.is_nodes else "type"
        names = self.table.names
        columns = {
            name: names[field.column]
            for key in _KEYS
            for name, field in zip(self.columns_of(key), self.header.of(key), strict=True)
        }
        columns |= {field.name: names[field.column] for field in self.header.properties}
        if not self.header.of(role):
            yield self.name, Part(self.table, columns, self.table.rows)
            return
        column = names[self.header.of(role)[0].column]
        rows = Counter[str]()
        for (texts,) in self.table.texts([column]):
            for one in pc.value_counts(first_word(texts)).to_pylist():
                rows[one["values"]] += one["counts"]
        for value in sorted(rows):
            chosen = (column, value) if len(rows) > 1 else None
            yield value or self.name, Part(self.table, columns, rows[value], chosen)


def is_neo4j(folder: Path) -> bool:
    """Whether a folder has a text file whose first line is a header of Neo4j."""

    def has_header(path: Path) -> bool:
        try:
            return _with_header(path, TextOptions(comment="")) is not None
        except OutercoreError:
            return False

    return any(has_header(path) for path in _text_files(folder))


@dataclass(frozen=True)
class _Headed:
    """A file that begins with a header."""

    header: Header
    table: TextTable
    said: TextOptions
    """How it is written."""

    @property
    def path(self) -> Path:
        return self.header.path

    @property
    def fields(self) -> list[str]:
        """The header as it is written."""
        return self.table.names

    @property
    def kind(self) -> tuple[object, ...]:
        """What parts of one table have in common."""
        roles: tuple[Role, ...] = ("key", "source", "target")
        return tuple((role, field.space) for role in roles for field in self.header.of(role))

    @property
    def has_names(self) -> bool:
        """Whether a field says the types of the rows."""
        return bool(self.header.of("label", "type"))

    def repeats(self, fields: list[str]) -> bool:
        """Whether a first line names the same columns, with their types or without."""
        if len(fields) != len(self.fields):
            return False
        names = [own.partition(":")[0] for own in self.fields]
        kinds = [_KIND.sub("", own).lower() for own in self.fields]
        return any(found and found == name for found, name in zip(fields, names, strict=True)) and (
            all(
                found in (own, name) or (not name and found.lower() == kind)
                for found, own, name, kind in zip(fields, self.fields, names, kinds, strict=True)
            )
        )


def open_files(
    folder: Path, options: TextOptions, *, outside: bool = False
) -> tuple[list[ExportFile], list[str]]:
    """The files with a header of their own, or one in a file beside them; and notes. `outside` as
    in `described_file`.

    Files whose names differ in the number of a part are one table.

    Errors: `InvalidError` for a header that does not fit, and a link out of the folder; what is
    wrong with a file that may have one.
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
        if path in filled:
            found.append(ExportFile(one.header, one.table, states(path), names[path]))
        below = [other for other in rest if belongs.get(other) == path]
        for other in below:
            table, note = _below(one, other, options.header)
            notes += note
            name = _stem(path) if path in empty else _part_stem(path)
            names[path] = name
            found.append(ExportFile(one.header, table, (*states(path), *states(other)), name))
        rest = [other for other in rest if other not in below]
        is_known = not {_stem(path), _part_stem(path)}.isdisjoint(names.values())
        if path in empty and not below and not is_known:
            found.append(ExportFile(one.header, one.table, states(path), _stem(path)))
    found = [replace(one, name=names.get(one.path, one.name)) for one in found]
    for file in found:
        for path in (file.header.path, file.path):
            require_inside(folder, path, f"`{folder}`", outside=outside)
    notes += [*_repeated(found), *_joined(found)]
    others = sorted(
        [*rest, *(one for one in folder.iterdir() if one not in texts and one.name[0] != ".")]
    )
    if not others:
        return found, notes
    listed = ", ".join(f"`{path.name}`" for path in others[:6])
    more = f" and {len(others) - 6} more" if len(others) > 6 else ""
    return found, [*notes, f"without a header of Neo4j, so not read: {listed}{more}"]


def _names(
    filled: dict[Path, _Headed], empty: dict[Path, _Headed], used: set[Path]
) -> dict[Path, str]:
    """What the rows of each file with a header are called, where no field says it.

    `used` are the headers with rows in files without one.

    Errors: `InvalidError` for parts of one table with other columns.
    """
    names = {}
    for path, one in filled.items():
        stem = _part_stem(path)
        header = _header_of(path, {}, empty)
        if (
            header is not None
            and sorted(empty[header].fields) == sorted(one.fields)
            and (header not in used or stem == _stem(header))
        ):
            names[path] = _stem(header)
            continue
        parts = [
            other
            for other in filled.values()
            if other.path != path and _part_stem(other.path) == stem and other.kind == one.kind
        ]
        same = [other for other in parts if sorted(other.fields) == sorted(one.fields)]
        names[path] = stem if same or path in used else _stem(path)
        if len(same) == len(parts) or one.has_names or not _is_part(path):
            continue
        other = next(other for other in parts if other not in same)
        raise InvalidError(
            f"`{path}`: has other columns than `{other.path}`, and their names say that both are "
            f"parts of `{stem}`\nhint: give both the same columns, or names without `part`"
        )
    return names


def _below(one: _Headed, path: Path, header: bool | None) -> tuple[TextTable, list[str]]:
    """A file without a header of its own as rows below that of another one; and a note where its
    first line names the columns all the same. `header` is what the user says of such a line.

    Errors: `InvalidError` for another number of columns, and for one key that may be a name.
    """
    columns = one.header.columns
    line = _first_line(path, one.said)
    is_named = one.repeats(line) and header is not False
    if is_named and header is None and len(line) == 1 and line != one.fields:
        below = TextFile.detect(path, "table", one.said, columns=columns)
        if below.dialect["kinds"] == ["text"]:
            raise InvalidError(
                f"`{path}`: the first line, `{line[0]}`, may name the column, or be a key\n"
                "hint: say which: `--header` if it names the column, `--no-header` if it is data"
            )
    said = replace(one.said, header=is_named)
    file = TextFile.detect(path, "table", said, columns=columns)
    file = replace(file, dialect={**file.dialect, "header_line": _line_of(one)})
    table = TextTable(file)
    if len(table.names) != columns:
        raise InvalidError(
            f"`{path}`: {len(table.names)} columns, but the header `{one.path}` has {columns}"
        )
    again = f"`{path.name}`: line 1 names the columns again and holds no row"
    return table, [again] if is_named else []


def _line_of(one: _Headed) -> str | None:
    """The line of a header, by which it is known where it comes again."""
    line: str | None = one.table.file.dialect["header_line"]
    return line


def _repeated(files: list[ExportFile]) -> list[str]:
    """Notes on lines that repeat the header."""
    notes = []
    for one in files:
        count = one.table.file.profile.repeated_headers
        if count:
            what = "1 line repeats" if count == 1 else f"{count:,} lines repeat"
            notes.append(f"`{one.path.name}`: {what} the header and holds no row")
    return notes


def _joined(files: list[ExportFile]) -> list[str]:
    """Notes on files that are one table because of their names."""
    parts: dict[tuple[str, bool], list[str]] = {}
    for one in files:
        if not one.header.of("label", "type"):
            parts.setdefault((one.name, one.header.is_nodes), []).append(one.path.name)
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


def _headed(path: Path, options: TextOptions) -> _Headed | None:
    """The file, if its first line is a header of Neo4j.

    Errors: as `_with_header`, and `InvalidError` for an unknown field.
    """
    found = _with_header(path, options)
    return None if found is None else _Headed(read_header(path, found[0].names), *found)


def _with_header(path: Path, options: TextOptions) -> tuple[TextTable, TextOptions] | None:
    """The file and how it is written, if its first line is a header of Neo4j, which says what
    separates fields.

    Errors: `InvalidError` for a header that does not fit to the rows.
    """
    found: TextTable | None = None
    wrong: OutercoreError | None = None
    for separator in [options.separator] if options.separator else _SEPARATORS:
        said = replace(options, separator=separator, header=True)
        try:
            table = TextTable(TextFile.detect(path, "table", said))
        except OutercoreError as error:
            wrong = wrong or error
            continue
        names = table.names if table.is_named else []
        if is_header(names) and (found is None or len(names) > len(found.names)):
            found, chosen = table, said
    if found is not None:
        return found, chosen
    if _may_have_header(path, is_table=wrong is None):
        raise wrong or _uneven(path, options)
    return None


def _uneven(path: Path, options: TextOptions) -> InvalidError:
    """What is wrong with a file whose header has another number of fields than its rows."""
    line = next(lines(path), "").strip()
    cuts = {name: [one.strip('"') for one in line.split(by)] for name, by in _SEPARATORS.items()}
    fitting = [name for name, fields in cuts.items() if is_header(fields)]
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
    """The fields of the first line; none where they cannot be names."""
    try:
        return TextFile.detect(path, "table", replace(said, header=True)).names or []
    except OutercoreError:
        return []


def _may_have_header(path: Path, *, is_table: bool) -> bool:
    """Whether a file may be part of the export although it has no header that fits."""
    try:
        return _KEY.search(next(lines(path), "")) is not None
    except OutercoreError:
        # Only a text for people is sure to be none.
        return not is_table and suffix_of(path) != ".txt"


def _stem(path: Path) -> str:
    """What a file is called, without `-header` at the end."""
    name = path.name.partition(".")[0]
    found = _HEADER_FILE.fullmatch(name)
    return found[1] if found is not None else name


def _part_stem(path: Path) -> str:
    """What a file is called, without the number of a part at the end."""
    name = _stem(path)
    found = _PART.fullmatch(name)
    return found[1] if found is not None else name


def _is_part(path: Path) -> bool:
    """Whether a name says in a word that a file is a part."""
    found = _PART.fullmatch(_stem(path))
    return found is not None and found["word"] is not None


def _header_of(path: Path, filled: dict[Path, _Headed], empty: dict[Path, _Headed]) -> Path | None:
    """The header for the rows of a file: one in a file of its own whose name begins the file's, or
    that of the first part of the same table; the one with the longest name."""
    fitting = [one for one in empty if path.name.startswith(_stem(one))]
    first = next((one for one in filled if _part_stem(one) == _part_stem(path)), None)
    fitting += [first] if first is not None else []
    return max(fitting, key=lambda one: len(_part_stem(one)), default=None)
