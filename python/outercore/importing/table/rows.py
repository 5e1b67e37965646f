"""Reads rows for nodes, edges or graphs in chunks: from files, tables and arrays in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outercore.base.native import Role
from outercore.base.shell import quoted
from outercore.data.time_arrays import is_time_name
from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.files.large_arrays import blocks
from outercore.files.npy import open_npy, require_numbers
from outercore.importing.table.columns import (
    NodeColumns,
    node_columns,
    ways_to_join,
    without_counting,
)
from outercore.importing.table.exact import exactly
from outercore.importing.table.file_state import FileState, states
from outercore.importing.table.foreign import refuse_foreign
from outercore.importing.table.keys import KeyedRows, NodeIds, numbered
from outercore.importing.table.npz import NpzMember, open_member
from outercore.importing.table.parquet import is_parquet
from outercore.importing.table.parts import Parts
from outercore.importing.table.table import Batches, Missing, Table, list_rows
from outercore.importing.table.text import (
    Purpose,
    TextOptions,
    TextTable,
    offsets_and_bytes,
    suffix_of,
)
from outercore.importing.table.times import (
    are_whole,
    time_values,
    times_of,
    type_of_times,
    whole_times,
)

_CHUNK_BYTES = 8 << 20
_TEXTS = (".csv", ".tsv", ".txt", ".tab", ".dat", "")


@dataclass(frozen=True)
class RowSource:
    """Rows of one type and width, in chunks.

    Shapes: chunks are [rows] if `width` is `None`, else [rows, width].
    """

    name: str
    """The name in messages."""
    dtype: np.dtype
    chunks: Callable[[], Iterator[NDArray]]
    width: int | None = None
    count: int | None = None
    """Rows, if known without reading them."""
    path: Path | None = None
    """A `.npy` file with exactly these rows, which the core reads."""
    whole: tuple[int, ...] = ()
    """Places of the columns that are integers in the file and floats here. They must not change."""
    key: str | None = None
    """The column of ids by which rows are joined to nodes."""
    notes: list[str] = field(default_factory=list)
    """How the file was understood, to be shown once."""
    typed: bool = True
    """Whether the file says the type of its numbers; text does not."""
    files: tuple[FileState, ...] = ()
    """The files, in the state in which they were opened."""
    keeps_form: bool = False
    """Whether batches keep this shape and type of features and labels. For a table it is false: its
    columns are joined, and a missing value turns integers into floats."""
    is_column: bool = False
    """Whether the input has the shape [rows, 1]."""
    has_gaps: bool = False
    """Whether NaN marks missing values, independent of options."""
    times: str | None = None
    """The type of points in time, as in the manifest."""
    padded: int = 0
    """Number of node ids with leading zeros, which are read as numbers."""
    mirrored: Callable[[], Iterator[NDArray]] | None = None
    """Rows of edges of a symmetric file, with a row for each reverse entry that it leaves out."""

    @property
    def row_shape(self) -> list[int]:
        """The shape of a row in the input."""
        width = 1 if self.is_column else self.width
        return [] if width is None else [width]

    def with_reverse(self) -> RowSource:
        """The rows with reverse entries of a symmetric file, for a graph of directed edges."""
        return self if self.mirrored is None else replace(self, chunks=self.mirrored)

    def changed(self, change: Callable[[NDArray, int], NDArray], **fields: Any) -> RowSource:
        """The rows after `change`, a function of a chunk and the number of its first row.

        `fields` are other fields that change.
        """

        def of(source: Callable[[], Iterator[NDArray]]) -> Iterator[NDArray]:
            first = 0
            for chunk in source():
                yield change(chunk, first)
                first += len(chunk)

        mirrored = None if self.mirrored is None else partial(of, self.mirrored)
        chunks = partial(of, self.chunks)
        return replace(self, chunks=chunks, mirrored=mirrored, path=None, **fields)


@dataclass(frozen=True)
class Reading:
    """The user's options for the files of an import."""

    text: TextOptions = field(default_factory=TextOptions)
    fill: float | None = None
    """The value for missing features."""
    keeps_gaps: bool = False
    """Whether missing values stay missing, as NaN."""
    memory: int = 256 << 20
    """Bytes for rows that are put into the order of the nodes."""
    nodes: int | None = None
    ids: NodeIds | None = None
    key: str | None = None
    """The name of the column of ids, if it is not a usual one."""
    why_from_1: str = "as `--one-based` says"
    """The reason for ids from 1, for messages."""
    rows_of: Literal["nodes", "edges"] = "nodes"
    is_in_order: bool = False
    """Whether rows are in the order of the nodes, even if the table has a column of ids."""
    purpose: Purpose = "table"
    """The use of the tables of nodes. It decides which lines are comments."""
    takes_times: bool = False
    """Whether a single column, also of texts, may be dates and times. False for features."""

    def starting_at(self, first_id: int, why: str) -> Reading:
        """A copy with this first id for all files; `why` is the reason for ids from 1."""
        if first_id == int(self.text.one_based):
            return self
        return replace(self, text=replace(self.text, one_based=first_id == 1), why_from_1=why)

    @property
    def node_ids(self) -> NodeIds:
        """The functions that read a column of ids."""
        return self.ids or numbered(int(self.text.one_based), self.why_from_1)


def open_rows(
    text: str | FileSpec,
    reading: Reading | None = None,
    *,
    missing: Missing = "nan",
    absent: Any = None,
) -> RowSource:
    """Opens the rows of a `.npy` file, an array of a `.npz`, or columns of a text or Parquet file.

    The rows of a table with a column of ids are sorted into the order of the nodes. `absent` is the
    value of a node without a row; for `None`, such a node is an error. `missing` is the value of an
    empty cell.

    Errors: `NotFoundError` for a missing file or column; `InvalidError` for a table without rows,
    and for a type without numbers.
    """
    spec = text if isinstance(text, FileSpec) else FileSpec.parse(text, may_leave_out=True)
    reading = reading or Reading()
    refuse_foreign(spec.path)
    suffix = suffix_of(spec.path)
    if spec.without and is_array(spec):
        raise InvalidError(f"`{spec}`: only tables have columns to leave out")
    if suffix == ".npy":
        return _npy(spec, reading.fill)
    if suffix == ".npz":
        return filled(npz_rows(open_member(spec.path, spec.columns)), reading.fill)
    files = states(spec.path)
    table = open_node_table(spec, reading)
    rows = table_rows(spec, table, node_columns(spec, table, reading.key), reading, missing, absent)
    return replace(rows, files=files)


def is_array(spec: FileSpec) -> bool:
    """Whether a file holds NumPy arrays rather than a table."""
    return suffix_of(spec.path) in (".npy", ".npz")


def _require_table(spec: FileSpec) -> None:
    if not is_parquet(spec.path) and suffix_of(spec.path) not in _TEXTS:
        raise InvalidError(
            f"file `{spec.path}`: expected .npy, .npz, .parquet, or text (.csv, .tsv, .txt; also "
            "packed: .gz, .zst, .xz, .bz2)"
        )


def as_times(name: str, rows: RowSource) -> RowSource:
    """Converts floats without fractions to integers, if `name` is typical for times.

    Cost: reads floats once more.
    """
    is_one = rows.width is None and rows.dtype.kind == "f" and is_time_name(name)
    if not is_one or not are_whole(rows.chunks()):
        return rows
    return rows.changed(lambda chunk, _: whole_times(rows.name, chunk), dtype=np.dtype(np.int64))


def time_rows(table: Table, name: str) -> RowSource:
    """The rows of a column of times, as `time_values` reads them."""
    return RowSource(
        f"{table.path}:{name}",
        np.dtype(np.int64),
        lambda: time_values(table, name),
        count=table.rows,
        times=type_of_times(table, name),
    )


def _require_rows(table: Table, *, of_names: bool = False) -> None:
    """Errors: `InvalidError` for a table without rows; with `of_names`, its header may be data."""
    if table.rows:
        return
    if isinstance(table, TextTable) and table.is_named:
        way = "if that line is data: `--no-header`" if of_names else "is it the right file?"
        raise InvalidError(
            f"file `{table.path}`: no rows below the header {', '.join(table.names)}\nhint: {way}"
        )
    raise InvalidError(f"file `{table.path}`: no rows\nhint: is it the right file?")


def open_node_table(
    spec: FileSpec, reading: Reading, *, may_be_empty: bool = False, parts: Parts | None = None
) -> Table:
    """Opens a text or Parquet file with rows for nodes.

    `parts` are the previous files of the same table. With `may_be_empty`, a table with a header may
    have no rows.

    Errors: as `open_rows`.
    """
    refuse_foreign(spec.path)
    if reading.purpose == "table":
        _require_table(spec)
    table = (parts or Parts()).open(spec, reading.text, reading.purpose)
    if not (may_be_empty and table.is_named):
        _require_rows(table, of_names=reading.purpose == "named_table")
    return table


def require_row_of_each_node(text: str, rows: RowSource, reading: Reading) -> None:
    """Errors: `InvalidError` if the number of rows differs from the number of nodes.

    It checks only tables that have another column, which may have the ids of the rows.
    """
    spec = FileSpec.parse(text, may_leave_out=True)
    if rows.key is not None or rows.count in (None, reading.nodes) or is_array(spec):
        return
    table = open_node_table(spec, reading)
    others = [name for name in table.names if name not in spec.columns]
    if reading.nodes is None or not table.is_named or len(table.names) < 2 or not others:
        return
    raise InvalidError(
        f"`{spec}`: {rows.count:,} rows, but the graph has {reading.nodes:,} nodes; column "
        f"`{others[0]}` may say which\nhint: {'; '.join(ways_to_join(spec, others[0]))}; else "
        "write a row for each node, in their order"
    )


def table_rows(
    spec: FileSpec,
    table: Table,
    columns: NodeColumns,
    reading: Reading,
    missing: Missing = "nan",
    absent: Any = None,
) -> RowSource:
    """The rows of columns of a table, in the order of the file, or of the nodes if it has a key.

    `missing` and `absent` as in `open_rows`.

    Errors: `InvalidError` for a column whose numbers may mean another order of the rows.
    """
    left_out: list[str] = []
    if not reading.is_in_order:
        first_id = int(reading.text.one_based)
        columns, left_out = without_counting(spec, table, columns, first_id, reading.rows_of)
    values = columns.values
    width = len(values) if len(values) > 1 else None
    whole: tuple[int, ...] = ()
    may_be_times = width is None and reading.takes_times
    times = times_of(table, values[0], in_text=True) if may_be_times else None
    if absent is None and times is None and (reading.fill is not None or reading.keeps_gaps):
        # Nodes without a row are filled like empty cells.
        absent = np.nan
    # Integers cannot hold NaN for nodes without a row.
    is_float = columns.key is not None and absent is not None and np.isnan(absent)
    if width is None and table.list_type(values[0]) is not None:
        width, dtype, source = list_rows(table, values[0], _CHUNK_BYTES)
        if is_float and dtype.kind in "iub":
            source, dtype = _as_floats(spec, source), np.dtype(np.float64)
    elif times is not None:
        dtype = np.dtype(np.int64)

        def source() -> Iterator[NDArray]:
            return (batch[:, None] for batch in time_values(table, values[0]))

    else:
        dtype = common_type(table, values, missing)
        dtype = np.dtype(np.float64) if is_float and dtype.kind in "iub" else dtype
        whole = _whole_columns(table, values, dtype)

        def source() -> Iterator[NDArray]:
            return table.numbers(values, dtype, missing)

    notes = [f"{spec.path}: {table.described(has_names=reading.ids is not None)}"]
    notes[0] += "".join(f"; column `{name}` counts the rows and is left out" for name in left_out)
    count = table.rows if columns.key is None else None
    if columns.key is not None:
        keyed = KeyedRows(
            table,
            columns.key,
            width or 1,
            dtype,
            source,
            reading.node_ids,
            reading.memory,
            reading.nodes,
            np.nan if absent is not None and dtype.kind == "f" else absent,
            can_fill=times is None,
        )
        notes[0] += f"; rows are joined by column `{columns.key}`"
        source = keyed.chunks
        count = keyed.count
    in_order = source

    def chunks() -> Iterator[NDArray]:
        for rows in in_order():
            rows = without_gaps(rows, reading.fill)
            yield rows[:, 0].copy() if width is None else rows

    return RowSource(
        str(spec),
        dtype,
        chunks,
        width=width,
        count=count,
        notes=notes,
        whole=whole,
        key=columns.key,
        typed=table.has_types,
        times=times,
        padded=0 if reading.ids or columns.key is None else table.padded(columns.key),
    )


def without_gaps(rows: NDArray, fill: float | None) -> NDArray:
    """`rows` with `fill` instead of NaN."""
    if fill is None or rows.dtype.kind != "f":
        return rows
    return np.where(np.isnan(rows), np.array(fill, rows.dtype), rows)


def filled(source: RowSource, fill: float | None) -> RowSource:
    """`source` with `fill` instead of NaN."""
    if fill is None or source.dtype.kind != "f":
        return source
    return source.changed(lambda rows, _: without_gaps(rows, fill))


def _as_floats(spec: FileSpec, source: Batches) -> Batches:
    def chunks() -> Iterator[NDArray]:
        first = 0
        for rows in source():
            yield exactly(rows, np.dtype(np.float64), f"`{spec}`", first)
            first += len(rows)

    return chunks


def _whole_columns(table: Table, columns: list[str], dtype: np.dtype) -> tuple[int, ...]:
    """The places of the columns that are integers in the file, if `dtype` is a float type."""
    if dtype.kind != "f":
        return ()
    kinds = [table.dtype(name) for name in columns]
    return tuple(
        place for place, kind in enumerate(kinds) if kind is not None and kind.kind in "iu"
    )


def common_type(table: Table, columns: list[str], missing: Missing = "nan") -> np.dtype:
    """The type that can hold the values of all columns; `missing` is the value of empty cells.

    Errors: `InvalidError` for a column without numbers.
    """
    kinds = []
    for name in columns:
        kind = table.dtype(name)
        if kind is None:
            raise _no_numbers(table, name, columns)
        kinds.append(kind)
    if all(kind == kinds[0] for kind in kinds):
        found = kinds[0]
    elif all(kind.kind in "iub" for kind in kinds):
        found = np.dtype(np.int64)
    else:
        found = np.result_type(*kinds, np.float32)
    if found.kind in "iub" and any(table.missing(name) for name in columns):
        return np.dtype(np.int64 if missing == "minus_one" else np.float64)
    return found


def _no_numbers(table: Table, name: str, columns: list[str]) -> InvalidError:
    """The error for the column `name` of `columns`, which has values other than numbers.

    Cost: reads a text up to the first such value.
    """
    found = table.kind(name)
    way = "cast the column to numbers: `column.cast('float64')`"
    if found.startswith(("list", "large_list", "fixed_size_list")):
        way = f"name it alone, with its file: `{quoted(table.path)}:{name}`"
    elif found == "text":
        way = (
            "write numbers such as `1234.5`, nothing for a missing one, 1 and 0 for true and "
            "false; titles and other texts of nodes are kept by `--text NAME=FILE`; names become "
            "numbers by `codes, names = pandas.factorize(column)`"
        )
        found += _first_text(table, name)
    if len(columns) > 1:
        way += f"; choose columns by `{quoted(table.path)}:NAME,NAME`"
    return InvalidError(
        f"`{table.path}`: column `{name}`: expected numbers, found {found}\nhint: {way}"
    )


def _first_text(table: Table, name: str) -> str:
    """The first field of a column that is not a number, and its place, as text."""
    if isinstance(table, TextTable):
        try:
            for _ in table.numbers([name], np.dtype(np.float64), "nan"):
                pass
        except InvalidError as error:
            _, _, why = str(error).partition("\n")[0].partition("`: ")
            return f" ({why})"
    return ""


def from_array(name: str, array: NDArray) -> RowSource:
    """Rows of an array in memory, or mapped from a file."""
    if array.ndim not in (1, 2):
        raise InvalidError(f"{name}: expected [rows] or [rows, width], found {array.shape}")
    require_numbers(name, array.dtype)
    width = None if array.ndim == 1 else array.shape[1]
    dtype = array.dtype.newbyteorder("=")
    step = _rows_per_chunk(dtype, width)

    def chunks() -> Iterator[NDArray]:
        for _, block in blocks(array, step):
            yield np.ascontiguousarray(block, dtype)

    return RowSource(name, dtype, chunks, width=width, count=len(array))


def name_arrays(kind: str, names: pa.Array, called: str = "") -> list[NodeArray]:
    """The two arrays that store names: offsets and bytes; `called` names them in messages."""
    offsets, characters = offsets_and_bytes(names)
    return [
        NodeArray("names", f"{kind}.{part}", from_array(called or f"{kind}.{part}", values))
        for part, values in (("offsets", offsets.astype(np.uint64)), ("bytes", characters))
    ]


def npz_rows(member: NpzMember) -> RowSource:
    """Rows of an array of a `.npz` archive."""
    name = member.name
    require_numbers(str(member), member.dtype)
    member = member.rows_in_order()
    if len(member.shape) not in (1, 2):
        raise InvalidError(f"{member}: expected [rows] or [rows, width], found {member.shape}")
    width = None if len(member.shape) == 1 else member.shape[1]
    if width == 0:
        raise InvalidError(f"{member}: expected columns, found {member.shape}")
    step = _rows_per_chunk(member.dtype, width)

    def chunks() -> Iterator[NDArray]:
        for flat in member.values(step * (width or 1)):
            yield flat if width is None else flat.reshape(-1, width)

    dtype = member.dtype.newbyteorder("=")
    files = states(member.archive)
    return RowSource(
        name, dtype, chunks, width=width, count=member.shape[0], files=files, keeps_form=True
    )


def count_rows(source: RowSource) -> int:
    """The number of rows. Reads them if the number is unknown."""
    if source.count is not None:
        return source.count
    return sum(len(chunk) for chunk in source.chunks())


def _npy(spec: FileSpec, fill: float | None) -> RowSource:
    files = states(spec.path)
    array = open_npy(spec, "array")
    where = f"array `{spec.path}`"
    require_numbers(where, array.dtype)
    if not array.ndim:
        raise InvalidError(f"{where}: expected rows, found a single number")
    # The core reads C order. Arrays in other orders are converted here, in chunks.
    in_order = array.flags.c_contiguous and array.dtype.isnative
    if array.ndim > 2 and not in_order:
        raise InvalidError(
            f"{where}: expected [rows] or [rows, width], found {array.shape}\n"
            "hint: save `np.ascontiguousarray(array)` in the byte order of this machine"
        )
    if array.ndim > 2 and fill is not None and array.dtype.kind == "f":
        raise InvalidError(
            f"{where}: `--fill` expects [rows] or [rows, width], found {array.shape}\n"
            "hint: save `array.reshape(len(array), -1)`, or fill it before"
        )
    if 0 in array.shape[1:]:
        raise InvalidError(f"{where}: expected columns, found {array.shape}")
    if array.ndim > 2:
        array = array.reshape(len(array), int(np.prod(array.shape[1:])))
    rows = from_array(str(spec.path), array)
    path = spec.path if in_order else None
    return filled(replace(rows, path=path, files=files, keeps_form=True), fill)


def _rows_per_chunk(dtype: np.dtype, width: int | None) -> int:
    return max(_CHUNK_BYTES // max(dtype.itemsize * (width or 1), 1), 1)


@dataclass(frozen=True)
class NodeArray:
    """An array and its role."""

    role: Role
    name: str
    rows: RowSource
    of_type: str | None = None
    """The node type or edge type of the array, in a graph with several types."""
