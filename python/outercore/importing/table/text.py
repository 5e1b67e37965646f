"""Text files: how each one is written, and its columns as numbers or text."""

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
from numpy.typing import NDArray

from outercore import _core
from outercore.base.native import Names
from outercore.base.options import Option
from outercore.errors import CorruptError, InvalidError, UnsupportedError
from outercore.files.input_file import require_file

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
"""Purposes of files whose nodes have names."""
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
        Option("`tab`, `comma`, `semicolon`, `pipe` or `blanks`; detected by default."),
    ] = None
    """The character itself will do, too."""
    header: Annotated[
        bool | None,
        Option("Whether the first line names the columns; detected by default.", off="--no-header"),
    ] = None
    comment: Annotated[
        str | None,
        Option("How comment lines begin; by default `#` and `%`, and nothing among names."),
    ] = None
    """Empty where there are none."""
    one_based: Annotated[bool, Option("Node ids count from 1.")] = False

    def __post_init__(self) -> None:
        if self.separator is not None and self.separator not in _SEPARATORS:
            raise InvalidError(
                f"separator: expected tab, comma, semicolon, pipe or blanks; "
                f"found `{self.separator}`"
            )

    def native(self) -> dict[str, Any]:
        """The options as the core takes them."""
        separator = None if self.separator is None else _SEPARATORS[self.separator]
        return {
            "separator": separator,
            "header": self.header,
            "comment": self.comment,
            "one_based": self.one_based,
        }


PLAIN = TextOptions(separator="comma", header=False, comment="")
"""How OGB's text files are written, and GraphBolt's edges."""


def suffix_of(path: Path) -> str:
    """The suffix that says how a file is written, without the suffix of its compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    while suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    return ".parquet" if suffix == ".pq" else suffix


@dataclass(frozen=True)
class Profile:
    """The kinds of values in the columns of a whole file."""

    rows: int
    repeated_headers: int
    """Lines that name the columns again; they are passed over."""
    kinds: list[str]
    """`empty`, `boolean`, `integer`, `float` or `text` of each column."""
    missing: list[int]
    padded: list[int]
    """Whole numbers with zeros in front, such as `007`, in each column."""


@dataclass(frozen=True)
class TextFile:
    """A text file and how it is written; opened by `TextFile.detect`."""

    path: Path
    dialect: dict[str, Any] = field(repr=False)
    has_names: bool = False
    """Whether nodes are called by names, so that no id is the first."""
    named_by: Path | None = None
    """The file whose header names the columns, where that is another one."""

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
    ) -> TextFile:
        """Finds out how `path` is written, from its first 2,000 lines.

        `by_name` says that columns are chosen by their names, so that the first line has them;
        `columns` is the number of fields, where known.

        Errors: `InvalidError` for a file that can be read in two ways; the hint names the option
        that decides. `UnsupportedError` for a pipe or a device.
        """
        require_file(path, _CALLED[purpose])
        said = (options or TextOptions()).native()
        said["columns"] = columns
        suffix = suffix_of(path)
        # Edges have a format, from their suffix or from an option.
        by_suffix = purpose != "edges" or suffix == ".nt"
        said["convention"] = convention or (_CONVENTIONS.get(suffix) if by_suffix else None)
        said["by_name"] = by_name
        return cls(path, _core.detect_text(path, purpose, said), purpose in _NAMES)

    def below(self, first: TextFile) -> TextFile:
        """This file as a part of a table that `first` begins: without a header it has its columns,
        and lines that repeat its header hold no row."""
        same = self.width == first.width and self.format == first.format == "delimited"
        if self.names is not None or first.names is None or not same:
            return self
        header = {key: first.dialect[key] for key in ("header", "header_line")}
        return replace(self, dialect={**self.dialect, **header}, named_by=first.path)

    @property
    def names(self) -> list[str] | None:
        """The names in the header."""
        return self.dialect["header"]

    @property
    def width(self) -> int:
        """Fields of a line."""
        return self.dialect["columns"]

    @property
    def first_id(self) -> int:
        """The number of the first node in this file."""
        return self.dialect["first_id"]

    @property
    def nodes(self) -> int | None:
        """Nodes of the graph, where the format says so."""
        format_ = self.dialect["format"]
        return None if isinstance(format_, str) else next(iter(format_.values())).get("nodes")

    @property
    def stated(self) -> tuple[int, int] | None:
        """Nodes and edges that the comments above the rows speak of."""
        found = self.dialect.get("stated")
        return None if found is None else (found["nodes"], found["edges"])

    @property
    def format(self) -> str:
        """`delimited`, `matrix_market`, `dimacs` or `n_triples`."""
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
        """How the file is written, in words: `tab separated, header: src, dst; ids from 0`.

        With `has_names` nodes lack a first number, for any purpose of the file.
        """
        format_ = self.format
        if format_ == "delimited":
            separator = {"blanks": "blank"}.get(
                self.dialect["separator"], self.dialect["separator"]
            )
            parts = [f"{separator} separated" if self.width > 1 else "one column"]
            names = self.names
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
        # A file is not read just for this.
        profile: Profile | None = self.__dict__.get("profile")
        if profile is not None and (again := profile.repeated_headers):
            what = "1 line repeats" if again == 1 else f"{again:,} lines repeat"
            text += f"; {what} the header and holds no row"
        return text

    @cached_property
    def profile(self) -> Profile:
        """Reads the whole file once.

        Errors: `InvalidError` for a line with another number of fields, with its number.
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

    def integers(
        self, columns: list[int], missing: int | None = None
    ) -> Iterator[NDArray[np.int64]]:
        """Batches [rows, len(columns)] of whole numbers; `missing` stands for empty fields.

        Errors: `InvalidError` with line and column for anything else.
        """
        table = _core.TextTable(self.path, self.dialect)
        while (flat := table.next(columns, "integers", missing)) is not None:
            yield flat.reshape(-1, len(columns))

    def floats(self, columns: list[int]) -> Iterator[NDArray[np.float64]]:
        """Batches [rows, len(columns)] of numbers, NaN for empty fields.

        Errors: `InvalidError` with line and column for text, and for a number that float64 cannot
        hold.
        """
        table = _core.TextTable(self.path, self.dialect)
        while (flat := table.next(columns, "floats")) is not None:
            yield flat.reshape(-1, len(columns))

    def texts(self, columns: list[int]) -> Iterator[list[pa.Array]]:
        """Batches of the columns as Arrow's large strings."""
        table = _core.TextTable(self.path, self.dialect)
        while (batch := table.next(columns, "texts")) is not None:
            yield [
                pa.LargeStringArray.from_buffers(
                    len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data)
                )
                for offsets, data in batch
            ]


_MAGIC: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"BZh": bz2.open,
}
_LONGEST = 1 << 24
"""Characters of a line: a packed file without line ends would fill the memory."""
_ZSTD = b"\x28\xb5\x2f\xfd"
_DAMAGED = (EOFError, lzma.LZMAError, zlib.error, OSError, UnicodeDecodeError)


def lines(path: Path) -> Iterator[str]:
    """The lines of a text in gzip, xz or bzip2, by its first bytes, or in none of them.

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
    """A column of large strings as offsets and bytes."""
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    text = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    used = text[starts[0] : starts[-1]]
    return np.ascontiguousarray(starts - starts[0]), np.ascontiguousarray(used)
