"""Arrays as streams of row chunks, whatever file they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from outercore.errors import InvalidError, NotFoundError
from outercore.sources.npz import NpzMember, open_member
from outercore.storage import missing_file

_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class RowSource:
    """Rows of one type and width.

    Shapes: chunks are [rows] where `width` is `None`, else [rows, width].
    """

    name: str
    """What messages call it."""
    dtype: np.dtype
    width: int | None
    count: int | None
    """Rows, where known without reading them."""
    chunks: Callable[[], Iterator[NDArray]]
    path: Path | None = None
    """A `.npy` file that holds exactly this, for the core to read by itself."""


@dataclass(frozen=True)
class FileSpec:
    """A file, and which of its columns or members: `nodes.npz:x`, `users.csv:age,height`."""

    path: Path
    columns: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> FileSpec:
        """Reads `PATH[:NAME[,NAME]]`; a path that exists is taken as it is.

        Errors: `NotFoundError` where there is no such file.
        """
        path = Path(text)
        if path.exists():
            return cls(path, ())
        before, colon, after = text.rpartition(":")
        if colon and Path(before).exists():
            return cls(Path(before), tuple(name for name in after.split(",") if name))
        raise missing_file("file", path)

    def __str__(self) -> str:
        names = f":{','.join(self.columns)}" if self.columns else ""
        return f"{self.path}{names}"


def open_rows(text: str | FileSpec) -> RowSource:
    """The rows of a `.npy`, a member of a `.npz`, or columns of a CSV or Parquet file.

    Errors: `NotFoundError` for the file or column, `InvalidError` for a type that holds no
    numbers.
    """
    spec = text if isinstance(text, FileSpec) else FileSpec.parse(text)
    suffix = kind_of(spec.path)
    if suffix == ".npy":
        return _npy(spec)
    if suffix == ".npz":
        return npz_rows(open_member(spec.path, spec.columns))
    if suffix == ".parquet":
        return _parquet(spec)
    if suffix in (".csv", ".tsv", ".txt"):
        return csv_rows(spec)
    raise InvalidError(
        f"file `{spec.path}`: expected .npy, .npz, .csv, .tsv, .txt (also .gz, .zst) or .parquet"
    )


def from_array(name: str, array: NDArray) -> RowSource:
    """Rows of an array in memory."""
    if array.ndim not in (1, 2):
        raise InvalidError(f"{name}: expected [rows] or [rows, width], found {array.shape}")
    width = None if array.ndim == 1 else array.shape[1]
    step = _rows_per_chunk(array.dtype, width)

    def chunks() -> Iterator[NDArray]:
        for first in range(0, len(array), step):
            yield np.ascontiguousarray(array[first : first + step])

    return RowSource(name, array.dtype, width, len(array), chunks)


def npz_rows(member: NpzMember) -> RowSource:
    """Rows of a member of a `.npz` archive."""
    name = str(member)
    member = member.rows_in_order()
    if len(member.shape) not in (1, 2):
        raise InvalidError(f"{name}: expected [rows] or [rows, width], found {member.shape}")
    width = None if len(member.shape) == 1 else member.shape[1]
    step = _rows_per_chunk(member.dtype, width)

    def chunks() -> Iterator[NDArray]:
        for flat in member.values(step * (width or 1)):
            yield flat if width is None else flat.reshape(-1, width)

    return RowSource(name, member.dtype.newbyteorder("="), width, member.shape[0], chunks)


def csv_rows(spec: FileSpec, dtype: np.dtype | None = None) -> RowSource:
    """Numeric columns of a delimited text file; a header is found by its not being numbers.

    A ragged row or a field that is no number is an `InvalidError` with its line.
    """
    names, header = _csv_columns(spec.path)
    chosen = _chosen(spec, names)
    kind = dtype or np.dtype(np.float32 if len(chosen) > 1 else np.float64)

    def chunks() -> Iterator[NDArray]:
        with _csv(spec, names, header, chosen, pa.float64()) as reader:
            for batch in reader:
                yield _matrix(batch, chosen, kind)

    width = len(chosen) if len(chosen) > 1 else None
    return RowSource(str(spec), kind, width, None, chunks)


def csv_batches(spec: FileSpec, columns: int) -> Iterator[list[NDArray[np.int64]]]:
    """The first `columns` columns (or the chosen ones) of a text file, batch by batch."""
    names, header = _csv_columns(spec.path)
    chosen = _chosen(spec, names)[:columns]
    with _csv(spec, names, header, chosen, pa.int64()) as reader:
        for batch in reader:
            yield [_integers(spec, name, batch.column(name)) for name in chosen]


def parquet_batches(spec: FileSpec, columns: int) -> Iterator[list[NDArray]]:
    """The first `columns` columns (or the chosen ones) of a Parquet file, batch by batch."""
    with parquet_file(spec.path) as file:
        chosen = _chosen(spec, file.schema_arrow.names)[:columns]
        for batch in file.iter_batches(batch_size=1 << 20, columns=list(chosen)):
            yield [_integers(spec, name, batch.column(name)) for name in chosen]


def column_names(path: Path) -> list[str]:
    """Names of the columns of a Parquet file, or of a delimited text with a header; else none."""
    kind = kind_of(path)
    if kind == ".parquet":
        with parquet_file(path) as file:
            return list(file.schema_arrow.names)
    if kind not in (".csv", ".tsv"):
        return []
    fields = _first_fields(path)
    return [] if all(_is_number(field) for field in fields) else fields


def kind_of(path: Path) -> str:
    """The suffix that says how a file is written, under `.gz` and `.zst`."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    while suffixes and suffixes[-1] in (".gz", ".zst", ".zstd"):
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    return ".parquet" if suffix == ".pq" else suffix


def count_rows(source: RowSource) -> int:
    """The number of rows, reading them where nothing else tells."""
    if source.count is not None:
        return source.count
    return sum(len(chunk) for chunk in source.chunks())


def _npy(spec: FileSpec) -> RowSource:
    try:
        array = np.load(spec.path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InvalidError(
            f"array `{spec.path}`: {error}\n"
            "hint: expected `.npy` as NumPy writes it; if the copy was cut short, copy it again"
        ) from None
    width = int(np.prod(array.shape[1:])) if array.ndim > 1 else None
    dtype, count = array.dtype, len(array)
    step = _rows_per_chunk(dtype, width)

    def chunks() -> Iterator[NDArray]:
        rows = np.load(spec.path, mmap_mode="r", allow_pickle=False)
        for first in range(0, count, step):
            yield np.ascontiguousarray(rows[first : first + step])

    return RowSource(str(spec.path), dtype, width, count, chunks, path=spec.path)


def _parquet(spec: FileSpec) -> RowSource:
    with parquet_file(spec.path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
        chosen = _chosen(spec, schema.names)
        first = schema.field(chosen[0]).type
        listed = len(chosen) == 1 and (
            pa.types.is_list(first) or pa.types.is_fixed_size_list(first)
        )
        if listed:
            head = next(file.iter_batches(batch_size=1, columns=list(chosen)))
            width: int | None = len(head.column(0)[0])
            dtype = np.dtype(first.value_type.to_pandas_dtype())
        else:
            width = len(chosen) if len(chosen) > 1 else None
            dtype = np.result_type(
                *[_numpy_type(spec, name, schema.field(name).type) for name in chosen]
            )
    step = _rows_per_chunk(dtype, width)

    def chunks() -> Iterator[NDArray]:
        with parquet_file(spec.path) as file:
            seen = 0
            for batch in file.iter_batches(batch_size=step, columns=list(chosen)):
                if listed:
                    assert width is not None
                    yield _list_rows(spec, batch.column(0), width, dtype, seen)
                else:
                    yield _matrix(batch, chosen, dtype)
                seen += batch.num_rows

    return RowSource(str(spec), dtype, width, rows, chunks)


def table_batches(spec: FileSpec, rows: int) -> Iterator[Any]:
    """Arrow batches of the chosen columns of a Parquet file or of a text with a header; of all
    columns of a Parquet file where none is chosen. Columns of a text come as strings."""
    if kind_of(spec.path) == ".parquet":
        with parquet_file(spec.path) as file:
            chosen = _chosen(spec, file.schema_arrow.names)
            yield from file.iter_batches(batch_size=rows, columns=list(chosen))
        return
    names, _ = _csv_columns(spec.path)
    chosen = _chosen(spec, names)
    with _csv(spec, names, True, chosen, pa.string()) as reader:
        yield from reader


@contextmanager
def parquet_file(path: Path) -> Iterator[Any]:
    """An open Parquet file; what is wrong with it is an `InvalidError` that names it."""
    try:
        file = pa.parquet.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidError(f"Parquet file `{path}`: {error}") from None
    try:
        yield file
    finally:
        file.close()


def _list_rows(spec: FileSpec, column: Any, width: int, dtype: np.dtype, first: int) -> NDArray:
    lengths = np.asarray(column.value_lengths())
    ragged = np.flatnonzero(lengths != width)
    if len(ragged):
        row = int(ragged[0])
        raise InvalidError(
            f"`{spec}`: row {first + row}: expected {width} values, found {lengths[row]}"
        )
    return column.flatten().to_numpy(zero_copy_only=False).astype(dtype).reshape(-1, width)


def _matrix(batch: Any, columns: tuple[str, ...], dtype: np.dtype) -> NDArray:
    if len(columns) == 1:
        return batch.column(columns[0]).to_numpy(zero_copy_only=False).astype(dtype)
    rows = np.empty((batch.num_rows, len(columns)), dtype)
    for place, name in enumerate(columns):
        rows[:, place] = batch.column(name).to_numpy(zero_copy_only=False)
    return rows


def _integers(spec: FileSpec, name: str, column: Any) -> NDArray[np.int64]:
    if not pa.types.is_integer(column.type):
        raise InvalidError(
            f"`{spec.path}`: column `{name}`: expected integers, found {column.type}"
        )
    if column.null_count:
        raise InvalidError(f"`{spec.path}`: column `{name}`: expected node ids, found empty fields")
    return column.to_numpy(zero_copy_only=False).astype(np.int64)


def _numpy_type(spec: FileSpec, name: str, kind: Any) -> np.dtype:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return np.dtype(kind.to_pandas_dtype())
    raise InvalidError(
        f"`{spec.path}`: column `{name}`: expected numbers, found {kind}\n"
        f"hint: choose columns by `{spec.path}:NAME,NAME`"
    )


def _chosen(spec: FileSpec, names: list[str]) -> tuple[str, ...]:
    missing = [name for name in spec.columns if name not in names]
    if missing:
        known = ", ".join(f"`{name}`" for name in names[:12])
        raise NotFoundError(f"`{spec.path}`: no column `{missing[0]}`; it has {known}")
    return spec.columns or tuple(names)


@contextmanager
def _csv(
    spec: FileSpec, names: list[str], header: bool, chosen: tuple[str, ...], kind: Any
) -> Iterator[Iterator[Any]]:
    with _opened(spec.path) as stream:
        yield _csv_reader(
            spec,
            stream,
            read_options=pa.csv.ReadOptions(
                column_names=names,
                skip_rows=1 if header else 0,
                block_size=_CHUNK_BYTES,
                # Threads would read ahead without a bound.
                use_threads=False,
            ),
            parse_options=pa.csv.ParseOptions(delimiter=_delimiter(spec.path)),
            convert_options=pa.csv.ConvertOptions(
                include_columns=list(chosen),
                column_types=dict.fromkeys(chosen, kind),
            ),
        )


def _csv_reader(spec: FileSpec, stream: Any, **options: Any) -> Iterator[Any]:
    """Batches of a text file; what is wrong with it is wrong with `spec`."""
    try:
        # Opening reads the first block already.
        yield from pa.csv.open_csv(stream, **options)
    except pa.ArrowInvalid as error:
        raise InvalidError(f"`{spec.path}`: {error}") from None


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    packing = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}.get(path.suffix.lower())
    with pa.OSFile(str(path)) as raw:
        if packing is None:
            yield raw
            return
        with pa.CompressedInputStream(raw, packing) as stream:
            yield stream


def _csv_columns(path: Path) -> tuple[list[str], bool]:
    """Column names, and whether the first line gives them."""
    fields = _first_fields(path)
    if not fields:
        raise InvalidError(f"`{path}`: expected rows of numbers, found an empty first line")
    if all(_is_number(field) for field in fields):
        return [f"f{place}" for place in range(len(fields))], False
    return fields, True


def _first_fields(path: Path) -> list[str]:
    """What the first line of a text has between its delimiters; nothing where it is empty."""
    with _opened(path) as stream:
        line = bytes(stream.read(1 << 20)).split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    if not line:
        return []
    return [field.strip().strip('"') for field in line.split(_delimiter(path))]


def _delimiter(path: Path) -> str:
    return "\t" if kind_of(path) == ".tsv" else ","


def _is_number(field: str) -> bool:
    try:
        float(field or "nan")
    except ValueError:
        return False
    return True


def _rows_per_chunk(dtype: np.dtype, width: int | None) -> int:
    return max(_CHUNK_BYTES // max(dtype.itemsize * (width or 1), 1), 1)
