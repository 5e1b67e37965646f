"""The files of an export for Neo4j: each with its header, and its rows by label or type."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.compute as pc

from outercore.errors import InvalidError, OutercoreError
from outercore.sources.described_files import require_inside
from outercore.sources.packed import lines
from outercore.sources.table import TextTable, natural
from outercore.sources.text import TextFile, TextOptions, suffix_of
from outercore.sources.typed.neo4j_header import Header, Role, is_header, read_header
from outercore.sources.typed.selection import Part, first_word
from outercore.sources.unchanged import FileState, states

_TEXTS = (".csv", ".tsv", ".txt")
_KEYS: dict[Role, str] = {"key": ":ID", "source": ":START_ID", "target": ":END_ID"}
_KEY = re.compile(r":(ID|START_ID|END_ID)\b")
_HEADER_FILE = re.compile(r"(.+?)[-_.]?header", re.IGNORECASE)


@dataclass(frozen=True)
class ExportFile:
    """A file of nodes or relationships; its header may be a file of its own."""

    header: Header
    table: TextTable
    files: tuple[FileState, ...]

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
        own_name = _stem(self.header.path)
        if not self.header.of(role):
            yield own_name, Part(self.table, columns, self.table.rows)
            return
        column = names[self.header.of(role)[0].column]
        rows = Counter[str]()
        for (texts,) in self.table.texts([column]):
            for one in pc.value_counts(first_word(texts)).to_pylist():
                rows[one["values"]] += one["counts"]
        for value in sorted(rows):
            chosen = (column, value) if len(rows) > 1 else None
            yield value or own_name, Part(self.table, columns, rows[value], chosen)


def is_neo4j(folder: Path) -> bool:
    """Whether a folder has a text file whose first line is a header of Neo4j."""

    def has_header(path: Path) -> bool:
        try:
            return is_header(_first_fields(path))
        except OutercoreError:
            return False

    return any(has_header(path) for path in _text_files(folder))


def open_files(
    folder: Path, options: TextOptions, *, outside: bool = False
) -> tuple[list[ExportFile], list[str]]:
    """The files with a header of their own, or one in a file beside them; and notes. `outside` as
    in `described_file`.

    Errors: `InvalidError` for a header that does not fit, and a link out of the folder; what is
    wrong with a file that may have one.
    """
    texts = _text_files(folder)
    headers = {}
    for path in texts:
        try:
            fields = _first_fields(path)
        except OutercoreError:
            if _may_have_header(path):
                raise
            continue
        if is_header(fields):
            headers[path] = fields
    rest = [path for path in texts if path not in headers]
    found = []
    for path, fields in headers.items():
        header = read_header(path, fields)
        own = TextTable(TextFile.detect(path, "table", options, by_name=True))
        data = [] if own.rows else [one for one in rest if _header_of(one, list(headers)) == path]
        for one in data:
            said = replace(options, header=False)
            table = TextTable(TextFile.detect(one, "table", said, columns=header.columns))
            if len(table.names) != header.columns:
                raise InvalidError(
                    f"`{one}`: {len(table.names)} columns, but the header `{path}` has "
                    f"{header.columns}"
                )
            found.append(ExportFile(header, table, (*states(path), *states(one))))
        rest = [one for one in rest if one not in data]
        if not data:
            found.append(ExportFile(header, own, states(path)))
    for file in found:
        for path in (file.header.path, file.path):
            require_inside(folder, path, f"`{folder}`", outside=outside)
    others = sorted(
        [*rest, *(one for one in folder.iterdir() if one not in texts and one.name[0] != ".")]
    )
    if not others:
        return found, []
    listed = ", ".join(f"`{path.name}`" for path in others[:6])
    more = f" and {len(others) - 6} more" if len(others) > 6 else ""
    return found, [f"without a header of Neo4j, so not read: {listed}{more}"]


def _text_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    files = (path for path in folder.iterdir() if suffix_of(path) in _TEXTS and path.is_file())
    return sorted(files, key=natural)


def _first_fields(path: Path) -> list[str]:
    """The fields of the first line.

    Errors: as `TextFile.detect`, for a file that is no table.
    """
    return TextFile.detect(path, "table", TextOptions(comment=""), by_name=True).names or []


def _may_have_header(path: Path) -> bool:
    """Whether a file that is no table may be part of the export all the same."""
    try:
        return _KEY.search(next(lines(path), "")) is not None
    except OutercoreError:
        # Only a text for people is sure to be none.
        return suffix_of(path) != ".txt"


def _stem(path: Path) -> str:
    """What a file is called, without `-header` at the end."""
    name = path.name.partition(".")[0]
    found = _HEADER_FILE.fullmatch(name)
    return found[1] if found is not None else name


def _header_of(path: Path, headers: list[Path]) -> Path | None:
    """The header whose name begins the name of a file; the longest one."""
    fitting = [one for one in headers if path.name.startswith(_stem(one))]
    return max(fitting, key=lambda one: len(_stem(one)), default=None)
