"""Reads tables in text files: detects the dialect, and reads columns as numbers or text."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa

from outercore import _core
from outercore.base.native import Names
from outercore.base.options import Option
from outercore.errors import CorruptError, InvalidError, UnsupportedError
from outercore.files.input_file import require_file
from outercore.importing.table.exact import exactly
from outercore.importing.table.table import Missing, Numbers, Table

Purpose = Literal["edges", "named_edges", "triples", "table", "named_table"]
Convention = Literal["matrix_market", "dimacs", "n_triples"]

_SEPARATORS = {
    "tab": "tab",
    "comma": "comma",
    "semicolon": "semicolon",
    "pipe": "pipe",
    "blanks": "blanks",
    "\t": "tab",
    "\\t": "tab",
    ",": "comma",
    ";": "semicolon",
    "|": "pipe",
    " ": "blanks",
}
_PACKED = (".gz", ".zst", ".zstd", ".xz", ".bz2")
_CONVENTIONS: dict[str, Convention] = {
    ".mtx": "matrix_market",
    ".gr": "dimacs",
    ".dimacs": "dimacs",
    ".nt": "n_triples",
}


_NAMES = ("named_edges", "triples", "named_table")
"""The purposes for which nodes in a file have names."""
_CALLED = {
    "edges": "edge list",
    "named_edges": "edge list",
    "triples": "triples",
    "table": "table",
    "named_table": "table",
}


@dataclass(frozen=True)
class TextOptions:
    """The user's options on the text files of an import; everything else is detected."""

    separator: Annotated[
        str | None,
        Option(
            "Columns are separated by `tab`, `comma`, `semicolon`, `pipe` or `blanks`. By default, "
            "the separator is detected."
        ),
    ] = None
    """The character, such as `;`, is also accepted."""
    header: Annotated[
        bool | None,
        Option(
            "Say whether the first line names the columns. By default, a header is detected.",
            off="--no-header",
        ),
    ] = None
    comment: Annotated[
        str | None,
        Option(
            "Skip lines that begin with this sign. By default, these are lines with `#` or `%`; in "
            "files with names, only lines above the data."
        ),
    ] = None
    """An empty text means that the files have no comments."""
    one_based: Annotated[bool, Option("Node ids in the files start at 1.")] = False

    def __post_init__(self) -> None:
        if self.separator is not None and self.separator not in _SEPARATORS:
            raise InvalidError(
                f"separator: expected tab, comma, semicolon, pipe or blanks; "
                f"found `{self.separator}`"
            )

    def native(self) -> dict[str, Any]:
        """The options in the form of the core."""
        separator = None if self.separator is None else _SEPARATORS[self.separator]
        return {
            "separator": separator,
            "header": self.header,
            "comment": self.comment,
            "one_based": self.one_based,
        }


PLAIN = TextOptions(separator="comma", header=False, comment="")
"""The dialect of OGB's text files, and of GraphBolt's edges."""


def suffix_of(path: Path) -> str:
    """The suffix of the file's format, without the suffix of its compression, in lower case."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    while suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    return ".parquet" if suffix == ".pq" else suffix


@dataclass(frozen=True)
class Profile:
    """Counts of a whole file, and the kind of values in each column."""

    rows: int
    repeated_headers: int
    """Number of lines that repeat the header. They are ignored."""
    kinds: list[str]
    """The kind of each column: `empty`, `boolean`, `integer`, `float` or `text`."""
    missing: list[int]
    padded: list[int]
    """Number of integers with leading zeros, such as `007`, in each column."""


_KINDS: dict[str, Any] = {
    "empty": np.float64,
    "boolean": np.bool_,
    "integer": np.int64,
    "float": np.float64,
    "text": None,
}
"""The type of a column by the kind of its values. Each kind includes the previous ones."""


@dataclass(frozen=True)
class TextTable(Table):
    """A table in one or more text files with the same columns; opened by `TextTable.detect`."""

    dialect: dict[str, Any] = field(repr=False)
    has_names: bool = False
    """Whether nodes have names, so that there is no first id."""
    named_by: Path | None = None
    """The other file whose header names the columns, if any."""
    others: tuple[TextTable, ...] = ()
    """Further files with rows of the table. Their columns are read by name."""

    @classmethod
    def detect(
        cls,
        path: Path,
        purpose: Purpose,
        options: TextOptions | None = None,
        *,
        columns: int | None = None,
        by_name: bool = False,
        convention: Convention | None = None,
    ) -> TextTable:
        """Opens the text file `path`. Detects its dialect from its first 2,000 lines.

        `by_name`: columns are chosen by name, so the first line is a header. `columns` is the
        number of fields, if known. `convention` is the file format, if it is not a plain table.

        Errors: `InvalidError` for a file that can be read in two ways; the hint names the option
        that decides. `UnsupportedError` for a pipe or a device.
        """
        require_file(path, _CALLED[purpose])
        said = (options or TextOptions()).native()
        said["columns"] = columns
        suffix = suffix_of(path)
        # For edges, the caller passes the format from the suffix or from an option.
        by_suffix = purpose != "edges" or suffix == ".nt"
        said["convention"] = convention or (_CONVENTIONS.get(suffix) if by_suffix else None)
        said["by_name"] = by_name
        return cls(path, _core.detect_text(path, purpose, said), purpose in _NAMES)

    def below(self, first: TextTable) -> TextTable:
        """This file as a further part of the table of `first`.

        Without a header, it gets the header of `first`, and ignores lines that repeat that header.
        """
        same = self.width == first.width and self.format == first.format == "delimited"
        if self.header is not None or first.header is None or not same:
            return self
        header = {key: first.dialect[key] for key in ("header", "header_line")}
        return replace(self, dialect={**self.dialect, **header}, named_by=first.path)

    def followed_by(self, part: TextTable) -> TextTable:
        """A table with the rows of this table and then of `part`."""
        whole = replace(self, others=(*self.others, part))
        if "profile" in self.__dict__:
            # Keep the profile, because it cost a pass over the file.
            whole.__dict__["profile"] = self.profile
        return whole

    @property
    def header(self) -> list[str] | None:
        """The names in the header; `None` without a header."""
        return self.dialect["header"]

    @cached_property
    def names(self) -> list[str]:
        """The header, or `column 1`, `column 2`, ..."""
        return self.header or [f"column {place + 1}" for place in range(self.width)]

    @property
    def is_named(self) -> bool:
        """Whether the file has a header."""
        return self.header is not None

    @property
    def has_types(self) -> bool:
        """False: a text has no types. They follow from the fields of the whole column."""
        return False

    @property
    def width(self) -> int:
        """Number of fields in a line."""
        return self.dialect["columns"]

    @property
    def first_id(self) -> int:
        """The first id of nodes in this file: 0 or 1."""
        return self.dialect["first_id"]

    @property
    def nodes(self) -> int | None:
        """Number of nodes of the graph, if the format has it."""
        format_ = self.dialect["format"]
        return None if isinstance(format_, str) else next(iter(format_.values())).get("nodes")

    @property
    def stated(self) -> tuple[int, int] | None:
        """Numbers of nodes and edges in the comments above the rows, if any."""
        found = self.dialect.get("stated")
        return None if found is None else (found["nodes"], found["edges"])

    @property
    def format(self) -> str:
        """The format: `delimited`, `matrix_market`, `dimacs` or `n_triples`."""
        kind = self.dialect["format"]
        return kind if isinstance(kind, str) else next(iter(kind))

    @property
    def mirror(self) -> Literal["no", "same", "negated"]:
        """The reverse entry that an entry off the diagonal implies, if any."""
        format_ = self.dialect["format"]
        if "matrix_market" in format_:
            symmetry = format_["matrix_market"]["symmetry"]
            found = {"symmetric": "same", "skew-symmetric": "negated"}.get(symmetry, "no")
            return found  # type: ignore[return-value]
        if "dimacs" in format_ and format_["dimacs"]["undirected"]:
            return "same"
        return "no"

    def described(self, *, has_names: bool = False) -> str:
        """The dialect as text for notes: `tab separated, header: src, dst; ids from 0`.

        With `has_names`, it omits the first id.
        """
        format_ = self.format
        if format_ == "delimited":
            separator = {"blanks": "blank"}.get(
                self.dialect["separator"], self.dialect["separator"]
            )
            parts = [f"{separator} separated" if self.width > 1 else "one column"]
            names = self.header
            if self.named_by is not None:
                parts.append(f"no header, columns as in {self.named_by}")
            elif names is not None:
                listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
                parts.append(f"header: {listed}")
            else:
                parts.append("no header")
        else:
            parts = [
                {
                    "matrix_market": "Matrix Market",
                    "dimacs": "DIMACS",
                    "n_triples": "N-Triples",
                }[format_]
            ]
        text = ", ".join(parts)
        has_names = has_names or self.has_names or format_ == "n_triples"
        text += "" if has_names else f"; ids from {self.first_id}"
        comments = self.dialect["comment_lines"]
        if comments:
            text += f"; {comments} comment {'line' if comments == 1 else 'lines'} at the start"
        remark = self.dialect.get("remark")
        text += f"; {remark}; `--header` if it names the columns" if remark else ""
        # Repeated headers are reported only if the file has been read already.
        profile: Profile | None = self.__dict__.get("profile")
        if profile is not None and (again := profile.repeated_headers):
            what = "1 line repeats" if again == 1 else f"{again:,} lines repeat"
            text += f"; {what} the header and holds no row"
        others = (f"{part.path}: {part.described(has_names=has_names)}" for part in self.others)
        return "; further part ".join([text, *others])

    @cached_property
    def profile(self) -> Profile:
        """The profile of the first file. Cost: reads it once.

        Errors: `InvalidError` with the number of a line that has another number of fields.
        """
        found = _core.TextTable(self.path, self.dialect).profile()
        columns = found["columns"]
        return Profile(
            found["rows"],
            found["repeated_headers"],
            [column["kind"] for column in columns],
            [column["missing"] for column in columns],
            [column["padded"] for column in columns],
        )

    @property
    def _files(self) -> tuple[TextTable, ...]:
        return (self, *self.others)

    def _profiles(self, name: str) -> list[tuple[Profile, int]]:
        """The profile of each file, and the place of the column `name` in it."""
        return [(file.profile, file.names.index(name)) for file in self._files]

    @property
    def rows(self) -> int:
        """Number of rows of all files."""
        return sum(file.profile.rows for file in self._files)

    def dtype(self, name: str) -> np.dtype | None:
        """The type of a column by all its fields: int64, float64 or bool; `None` for text."""
        found = [profile.kinds[place] for profile, place in self._profiles(name)]
        kind = _KINDS[max(found, key=[*_KINDS].index)]
        return None if kind is None else np.dtype(kind)

    def missing(self, name: str) -> int:
        """Number of empty fields in a column."""
        return sum(profile.missing[place] for profile, place in self._profiles(name))

    def padded(self, name: str) -> int:
        """Number of integers with leading zeros in a column."""
        return sum(profile.padded[place] for profile, place in self._profiles(name))

    def numbers(self, columns: list[str], dtype: np.dtype, missing: Missing) -> Numbers:
        """As `Table.numbers`. An error has the line and column of a wrong field."""
        is_whole = dtype.kind in "iub"
        fill = -1 if is_whole and missing == "minus_one" else None
        for path, first, flat in self._read(columns, "integers" if is_whole else "floats", fill):
            yield exactly(flat.reshape(-1, len(columns)), dtype, f"`{path}`", first)

    def texts(self, columns: list[str], empty: str | None = None) -> Iterator[list[pa.Array]]:
        """As `Table.texts`. A text file has empty fields instead of nulls."""
        for _, _, batch in self._read(columns, "texts"):
            yield [
                pa.LargeStringArray.from_buffers(
                    len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data)
                )
                for offsets, data in batch
            ]

    def _read(
        self, columns: list[str], kind: str, missing: int | None = None
    ) -> Iterator[tuple[Path, int, Any]]:
        """Batches of the core, each with its file and the row of its first value."""
        for file in self._files:
            places = [file.names.index(name) for name in columns]
            table, first = _core.TextTable(file.path, file.dialect), 0
            while (batch := table.next(places, kind, missing)) is not None:
                yield file.path, first, batch
                first += len(batch[0][0]) - 1 if kind == "texts" else len(batch) // len(columns)


_MAGIC: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"BZh": bz2.open,
}
_LONGEST = 1 << 24
"""Maximum characters of a line. A compressed file without line ends could fill the memory."""
_ZSTD = b"\x28\xb5\x2f\xfd"
_DAMAGED = (EOFError, lzma.LZMAError, zlib.error, OSError, UnicodeDecodeError)


def lines(path: Path) -> Iterator[str]:
    """The lines of a text, which may be compressed by gzip, xz or bzip2; detected by first bytes.

    Errors: `UnsupportedError` for zstd; `CorruptError` for a file that is damaged or cut short;
    `InvalidError` for a line that is far too long.
    """
    require_file(path, "text")
    with path.open("rb") as file:
        start = file.read(6)
    if start.startswith(_ZSTD):
        raise UnsupportedError(
            f"`{path}`: zstd is not read for sets of many graphs\nhint: unpack it, or pack it by xz"
        )
    opener = next((opener for magic, opener in _MAGIC.items() if start.startswith(magic)), None)
    try:
        with path.open("rb") if opener is None else opener(path, "rb") as file:
            text = io.TextIOWrapper(file, encoding="utf-8")
            while line := text.readline(_LONGEST):
                if len(line) == _LONGEST:
                    raise InvalidError(
                        f"`{path}`: a line is longer than {_LONGEST >> 20} MiB, expected short "
                        "lines of text"
                    )
                yield line
    except _DAMAGED as error:
        raise CorruptError(f"`{path}`: {error}\nhint: copy the file again") from error


def offsets_and_bytes(column: Any) -> Names:
    """The offsets and bytes of a column of large strings."""
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    text = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    used = text[starts[0] : starts[-1]]
    return np.ascontiguousarray(starts - starts[0]), np.ascontiguousarray(used)
