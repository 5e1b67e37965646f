"""Writes result files. The ending of the name is the format, and a file appears when complete.

Every command with a result file calls `check_output` before the work, and uses these writers
afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, DTypeLike, NDArray

from outercore.base.shell import quoted
from outercore.data.names import Names
from outercore.data.node_names import FileIds, NamesOfType, NodeNames, NodeNumbers
from outercore.errors import InternalError, InvalidError, UnsupportedError
from outercore.files.atomic import (
    require_directory_of,
    require_free,
    require_writable,
    whole_file,
)
from outercore.files.large_arrays import blocks
from outercore.files.npy import NpyWriter

VALUES = (".npy", ".parquet", ".csv")
"""Allowed endings of files with values of nodes."""
TABLES = (".parquet", ".csv", ".tsv")
"""Allowed endings of files with other tables."""

_BREAKS = r"[\t\n\r]"
_QUOTED = r'[",\n\r]'


def check_output(
    path: Path, endings: Sequence[str], *, option: str = "", overwrite: bool = False
) -> None:
    """Checks before the work that `path` can be written afterwards; `option` is for messages.

    Errors: `InvalidError` for an unknown ending, a directory, or an existing file without
    `overwrite`; `NotFoundError` if its directory is missing; `DeviceError` if its directory is not
    writable.
    """
    check_ending(path, endings, option=option)
    check_place(path, option=option, overwrite=overwrite)


def check_ending(path: Path, endings: Sequence[str], *, option: str = "") -> None:
    """Errors: `InvalidError` if the file name has none of these endings."""
    what = f"{option}: `{path}`" if option else f"`{path}`"
    if path.suffix.lower() not in endings:
        known = endings[0] if len(endings) == 1 else f"one of {', '.join(endings)}"
        name = quoted(path.with_suffix(endings[0]))
        hint = f"\nhint: `--{option.removeprefix('--')} {name}`" if option else ""
        raise InvalidError(f"{what}: expected a name that ends in {known}{hint}")


def check_place(path: Path, *, option: str = "", overwrite: bool = False) -> None:
    """Checks like `check_output`, but accepts any ending."""
    if path.is_dir():
        what = f"{option}: `{path}`" if option else f"`{path}`"
        raise InvalidError(f"{what}: expected a file, found a directory")
    require_free(path, overwrite=overwrite)
    require_directory_of(path)
    require_writable(path)


def check_directory(path: Path) -> None:
    """Checks before the work that files can be created in the directory `path`.

    Errors: `NotFoundError`, `DeviceError`.
    """
    check_place(path / ".outercore-check", overwrite=True)


class TableWriter:
    """Writes a table piece by piece, in the format of the file ending.

    Text formats have a header. CSV quotes cells if necessary. The format `.tsv` does not have
    quotes, so a name with a tab or a line break is an error.
    """

    def __init__(self, path: Path, file: BinaryIO, schema: pa.Schema) -> None:
        self.rows = 0
        self._ending = path.suffix.lower()
        self._file = file
        self._schema = schema
        self._parquet: Any = None
        if self._ending == ".parquet":
            # A dictionary of numbers takes ten times their memory, and numbers rarely repeat.
            texts = [field.name for field in schema if pa.types.is_large_string(field.type)]
            self._parquet = pq.ParquetWriter(
                file, schema, compression="zstd", use_dictionary=texts or False
            )
            return
        self._separator = pa.scalar("," if self._ending == ".csv" else "\t", pa.large_string())
        file.write((str(self._separator).join(schema.names) + "\n").encode())

    def append(self, columns: dict[str, ArrayLike | pa.Array]) -> None:
        """Writes rows; `columns` maps each column name to its values.

        Errors: `InvalidError` for a name that the format cannot represent.
        """
        batch = self.batch(columns)
        arrays = batch.columns
        if self._parquet is not None:
            self._parquet.write_batch(batch)
        elif len(arrays[0]):
            texts = [self._text(array) for array in arrays]
            write_lines(self._file, pc.binary_join_element_wise(*texts, self._separator))
        self.rows += len(arrays[0])

    def batch(self, columns: dict[str, ArrayLike | pa.Array]) -> pa.RecordBatch:
        """The rows of `columns` in the types of this table."""
        arrays = [pa.array(columns[field.name], field.type) for field in self._schema]
        return pa.record_batch(arrays, schema=self._schema)

    def close(self) -> None:
        """Writes the rest of the table."""
        if self._parquet is not None:
            self._parquet.close()

    def _text(self, array: pa.Array) -> pa.Array:
        # Missing values are written as empty cells.
        text = pc.fill_null(array.cast(pa.large_string()), "")
        if not (pa.types.is_large_string(array.type) or pa.types.is_string(array.type)):
            return text
        if self._ending != ".csv":
            return lines_hold(text, self.rows)
        quote = pa.scalar('"', pa.large_string())
        doubled = pc.replace_substring(text, '"', '""')
        quoted = pc.binary_join_element_wise(
            quote, doubled, quote, pa.scalar("", pa.large_string())
        )
        return pc.if_else(pc.match_substring_regex(text, _QUOTED), quoted, text)


@contextmanager
def table_file(path: Path, columns: dict[str, pa.DataType]) -> Iterator[TableWriter]:
    """Context of a table file. The file appears under its name at the end of the block.

    Errors: as `whole_file`.
    """
    with whole_file(path) as file:
        writer = TableWriter(path, file, pa.schema(list(columns.items())))
        try:
            yield writer
        except BaseException:
            # Otherwise the garbage collector would close the writer after its file.
            with suppress(OSError):
                writer.close()
            raise
        writer.close()


class _Identity:
    """The columns of a table that identify nodes: name or id, and with several types the type."""

    def __init__(self, names: NodeNames) -> None:
        self._names = names
        if isinstance(names, NodeNumbers):
            ids = pa.large_string() if names.are_named else pa.int64()
            self.columns = [("type", pa.large_string()), ("id", ids)]
        else:
            self.columns = [("id", type_of_ids(names))]

    def of(self, ids: NDArray[np.int64]) -> dict[str, ArrayLike | pa.Array]:
        """The columns for rows of the nodes `ids`."""
        if not isinstance(names := self._names, NodeNumbers):
            return {"id": arrow_ids(names, ids)}
        places, ids = names.split(ids)
        types = pa.array(names.types, pa.large_string())
        column = _keys_of(names, places, ids) if names.are_named else ids
        return {"type": types.take(pa.array(places)), "id": column}

    def type_of_values(self, dtype: np.dtype[Any]) -> pa.DataType:
        """The type of a column whose values are nodes; `dtype` is the type of their numbers."""
        is_number = isinstance(self._names, FileIds)
        return pa.from_numpy_dtype(dtype) if is_number else pa.large_string()

    def values(self, ids: NDArray[Any]) -> pa.Array:
        """Nodes that are values of other nodes, as names or ids in the files; -1: missing."""
        if isinstance(self._names, FileIds):
            return pa.array(self._names.of(ids).astype(ids.dtype, copy=False))
        named = self.of(np.maximum(ids, 0).astype(np.int64))
        texts = [pa.array(column).cast(pa.large_string()) for column in named.values()]
        names = pc.binary_join_element_wise(*texts, pa.scalar(":", pa.large_string()))
        return pc.if_else(pa.array(ids >= 0), names, pa.scalar(None, names.type))


class NodeValues:
    """Writes values of nodes to a file, with one row per node.

    NPY files hold only the values, in the order of `append`; values that are nodes are node ids.

    A table has a column `id`: the name of the node, or its id in the imported files if the data set
    lacks names. The values are in the column `value`, or `value_0`, `value_1`, ... for several.
    Values that are nodes (`of_nodes`) are also written as names or ids; -1 is an empty cell.

    With several types, the table has a column `type`, and `id` is the key or the id within the
    type. Values that are nodes are strings like `paper:17`.
    """

    def __init__(
        self,
        path: Path,
        file: BinaryIO,
        names: NodeNames,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        of_nodes: bool = False,
    ) -> None:
        self._path, self._shape, self._dtype = path, shape, dtype
        self._file: NpyWriter | TableWriter
        self._names: list[str] = []
        if path.suffix.lower() == ".npy":
            self._file = NpyWriter(file, shape, dtype)
            return
        self._identity = _Identity(names)
        self._of_nodes = of_nodes
        kind = self._identity.type_of_values(dtype) if of_nodes else pa.from_numpy_dtype(dtype)
        self._names = ["value"]
        if len(shape) > 1:
            self._names = [f"value_{place}" for place in range(shape[1])]
        columns = [*self._identity.columns, *((name, kind) for name in self._names)]
        self._file = TableWriter(path, file, pa.schema(columns))

    def append(self, ids: NDArray[np.int64], values: NDArray[Any]) -> None:
        """Writes the values of the nodes `ids`, in that order."""
        if isinstance(self._file, NpyWriter):
            self._file.append(values)
            return
        values = np.ascontiguousarray(values, self._dtype)
        parts = [values] if values.ndim == 1 else list(values.T)
        if self._of_nodes:
            parts = [self._identity.values(part) for part in parts]
        named = self._identity.of(ids)
        self._file.append({**named, **dict(zip(self._names, parts, strict=True))})

    def close(self) -> None:
        """Writes the rest of a table. Errors: `InternalError` for a wrong number of rows."""
        if self._file.rows != self._shape[0]:
            found = self._file.rows
            raise InternalError(f"`{self._path}`: expected {self._shape[0]} rows, got {found}")
        self._file.close()

    def abandon(self) -> None:
        """Closes an incomplete file without raising an error."""
        with suppress(OSError):
            self._file.close()


@contextmanager
def node_values(
    path: Path,
    names: NodeNames,
    shape: tuple[int, ...],
    dtype: DTypeLike,
    *,
    of_nodes: bool = False,
) -> Iterator[NodeValues]:
    """Context of a file with values of nodes; see `NodeValues`.

    The file appears under its name at the end of the block.

    Shapes: `shape` [rows] or [rows, columns].
    Errors: as `whole_file`.
    """
    with whole_file(path) as file:
        kind = np.dtype(dtype)
        writer = NodeValues(path, file, names, shape, kind, of_nodes=of_nodes)
        try:
            yield writer
        except BaseException:
            writer.abandon()
            raise
        writer.close()


def write_node_values(
    path: Path, names: NodeNames, values: NDArray[Any], *, of_nodes: bool = False
) -> None:
    """Writes a value or a row for each node, block by block; see `NodeValues`."""
    shape, dtype = values.shape, values.dtype
    with node_values(path, names, shape, dtype, of_nodes=of_nodes) as file:
        for first, block in blocks(values):
            file.append(np.arange(first, first + len(block)), block)


def node_frame(
    names: NodeNames, columns: Mapping[str, NDArray[Any]], *, of_nodes: bool = False
) -> Any:
    """Values of all nodes as a pandas data frame, with the columns that `NodeValues` writes.

    Shapes: each [nodes], or [nodes, columns] with column names `NAME_0`, `NAME_1`, ...
    Errors: `InvalidError` for a wrong number of rows; `UnsupportedError` without pandas.
    """
    if find_spec("pandas") is None:
        raise UnsupportedError("package `pandas` is not installed\nhint: pip install pandas")
    identity, count = _Identity(names), len(names)
    frame = dict(identity.of(np.arange(count)))
    for name, values in columns.items():
        if name in frame:
            raise InvalidError(f"column `{name}` has the ids of the nodes\nhint: call it otherwise")
        if values.ndim not in (1, 2) or len(values) != count:
            raise InvalidError(
                f"column `{name}`: shape {values.shape}, expected {count:,} rows: a value a node"
            )
        parts = [values] if values.ndim == 1 else list(values.T)
        titles = [name] if values.ndim == 1 else [f"{name}_{at}" for at in range(len(parts))]
        for column, part in zip(titles, parts, strict=True):
            frame[column] = identity.values(part) if of_nodes else pa.array(part)
    return pa.table(frame).to_pandas()


def _keys_of(numbers: NodeNumbers, places: NDArray[Any], ids: NDArray[Any]) -> pa.Array:
    """The keys of nodes, or their ids as text, from the two results of `NodeNumbers.split`."""
    order = np.argsort(places, kind="stable")
    ends = np.searchsorted(places[order], np.arange(len(numbers.types) + 1))
    parts = []
    for node_type, first, last in zip(numbers.types, ends[:-1], ends[1:], strict=True):
        own, keys = ids[order[first:last]], numbers.keys_of(node_type)
        parts.append(
            pa.array(own).cast(pa.large_string()) if keys is None else arrow_names_of(keys, own)
        )
    column = pa.concat_arrays(parts)
    return column if (np.diff(order) > 0).all() else column.take(pa.array(np.argsort(order)))


def type_of_ids(ids: NamesOfType) -> pa.DataType:
    """The Arrow type of a column of nodes: integers for ids in files, strings for names."""
    return pa.int64() if isinstance(ids, FileIds) else pa.large_string()


def arrow_ids(ids: NamesOfType, positions: NDArray[np.int64]) -> pa.Array:
    """An Arrow column of the nodes at `positions`: their names, or their ids in the files.

    Errors: `CorruptError` for damaged names.
    """
    if isinstance(ids, FileIds):
        return pa.array(ids.of(positions))
    return arrow_names_of(ids, positions)


def arrow_names_of(names: Names, ids: NDArray[np.int64]) -> pa.Array:
    """The names of `ids` as an Arrow array of large strings.

    Errors: `CorruptError` for damaged names.
    """
    if len(ids) and ids[-1] - ids[0] == len(ids) - 1 and (np.diff(ids) == 1).all():
        return arrow_names(names, int(ids[0]), int(ids[-1]) + 1)
    return pa.array(names.names(ids), pa.large_string())


def arrow_names(names: Names, start: int, stop: int) -> pa.Array:
    """The names of the ids from `start` to `stop` as an Arrow array of large strings.

    Errors: `CorruptError` for damaged names.
    """
    offsets, characters = names.block(start, stop)
    buffers = [pa.py_buffer(offsets), pa.py_buffer(characters)]
    return pa.LargeStringArray.from_buffers(stop - start, *buffers)


def write_lines(file: BinaryIO, lines: pa.Array) -> None:
    """Writes large strings, one per line."""
    if len(lines):
        empty, line = (pa.scalar(text, pa.large_string()) for text in ("", "\n"))
        ended = pc.binary_join_element_wise(lines, empty, line)
        # The text of an array without slices is its last buffer.
        offsets, text = ended.buffers()[1:]
        ends = np.frombuffer(offsets, np.int64, len(ended) + 1, ended.offset * 8)
        file.write(memoryview(text)[int(ends[0]) : int(ends[-1])])


def lines_hold(names: pa.Array, first: int) -> pa.Array:
    """Checks names for a text format, and returns them. `first` is the row of the first name.

    Errors: `InvalidError` for a name with a tab or a line break.
    """
    broken = pc.match_substring_regex(names, _BREAKS)
    if pc.any(broken).as_py():
        row = pc.index(broken, True).as_py()
        raise InvalidError(
            f"row {first + row}: the name {names[row].as_py()!r} has a tab or a line break, which "
            "a text cannot hold\nhint: write Parquet, or ids by `--ids`"
        )
    return names
