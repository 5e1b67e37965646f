"""Reads, maps and writes `.npy` files."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import DTypeLike, NDArray

from outercore.errors import HINT, CorruptError, InternalError, InvalidError, NotFoundError
from outercore.files.atomic import Storage, device_errors, replacing, whole_file
from outercore.files.file_spec import FileSpec
from outercore.files.input_file import require_file
from outercore.files.large_arrays import blocks

_RAW = "raw numbers without a header: `np.save(NEW, np.memmap(FILE, dtype, shape=...))`"
_AGAIN = "if the copy was cut short, copy it again"
_MAGIC = b"\x93NUMPY"
_READERS = {
    (1, 0): npy_format.read_array_header_1_0,
    (2, 0): npy_format.read_array_header_2_0,
}
_DATA_OFFSET = 4096
"""Offset of the values in files of Outercore, in bytes. Reads with O_DIRECT need this alignment."""
_BLOCK_NUMBERS = 1 << 20
_MOST_AXES = 32
_MOST_BYTES = 2**63 - 1
MOST_EMPTY = 2**31
"""Largest number of rows, or of columns, in an array without values."""

_NO_NUMBERS = {"U": "text", "S": "text", "M": "dates", "m": "durations", "O": "Python objects"}


@dataclass(frozen=True)
class Header:
    """The checked header of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool
    """Whether the values are in column-major (Fortran) order."""
    offset: int
    """Offset of the values in the file, in bytes."""

    @property
    def size(self) -> int:
        """Size of the values in bytes."""
        return prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes], where: str) -> Header:
    """Reads and checks the header at the position of `file`.

    Errors: `InvalidError` if NumPy did not write the header, and for Python objects.
    """
    start = file.read(8)
    if len(start) < 8 or start[:6] != _MAGIC:
        raise InvalidError(f"{where}: expected an array, found something else")
    read = _READERS.get((start[6], start[7]))
    if read is None:
        # Version 3 only adds names of fields outside ASCII, and fields are not supported.
        raise InvalidError(
            f"{where}: expected version 1 or 2 of `.npy`, found {start[6]}.{start[7]}\n"
            "hint: save each field as an array of its own"
        )
    try:
        shape, fortran, dtype = read(file)
    except Exception:
        # NumPy parses the header as Python, so damaged bytes can raise any error of a parser.
        raise InvalidError(
            f"{where}: the header of the array cannot be read\nhint: {_AGAIN}"
        ) from None
    if dtype.hasobject:
        raise InvalidError(f"{where}: expected numbers, found Python objects")
    if not dtype.itemsize:
        raise InvalidError(f"{where}: expected numbers, found {dtype}, which has no bytes")
    # NumPy accepts Booleans as extents, because `bool` is a subclass of `int`.
    whole = all(type(extent) is int and 0 <= extent <= _MOST_BYTES for extent in shape)
    # NumPy multiplies all extents except 0. The product must not overflow, even in an empty array.
    most = prod(max(one, 1) for one in shape) * dtype.itemsize if whole else 0
    if not whole or len(shape) > _MOST_AXES or most > _MOST_BYTES:
        raise InvalidError(f"{where}: the header of the array has an impossible shape")
    # Rows without columns have no bytes, but a loop over them takes time.
    if not prod(shape) and max(shape) > MOST_EMPTY:
        raise InvalidError(f"{where}: {max(shape):,} rows or columns without a number")
    return Header(shape, dtype, bool(fortran) and len(shape) > 1, file.tell())


def open_npy(spec: FileSpec, what: str) -> NDArray[Any]:
    """Maps the array of a `.npy` file; see `map_npy`. Also `InvalidError` if `spec` has columns."""
    if spec.columns:
        columns = ",".join(spec.columns)
        raise InvalidError(f"{what} `{spec.path}`: a `.npy` has one array, found `:{columns}`")
    return map_npy(spec.path, what)


def map_npy(path: Path, what: str) -> NDArray[Any]:
    """Maps the array of the `.npy` file `path` into memory; `what` names it in messages.

    Errors: `InvalidError` if NumPy did not write the file, if it is cut short, and for Python
    objects; `NotFoundError`.
    """
    where = f"{what} `{path}`"
    require_file(path, what)
    with open(path, "rb") as file:
        start = file.read(6)
        if start != _MAGIC:
            found = "a `.npz` archive" if start.startswith(b"PK") else "another file"
            way = "call it `.npz`" if start.startswith(b"PK") else _RAW
            raise InvalidError(
                f"{where}: expected `.npy` as NumPy writes it, found {found}\nhint: {way}"
            )
        file.seek(0)
        header = read_header(file, where)
        there = file.seek(0, 2) - header.offset
    if there < header.size:
        raise InvalidError(
            f"{where}: {there:,} bytes of values, expected {header.size:,} for {header.shape} of "
            f"{header.dtype}\nhint: {_AGAIN}"
        )
    if not header.size:
        return np.empty(header.shape, header.dtype)
    order = "F" if header.fortran else "C"
    return np.memmap(path, header.dtype, "r", header.offset, header.shape, order)  # type: ignore[call-overload]


def read_npy(path: Path, what: str) -> NDArray[Any]:
    """Reads a small array of numbers, such as a list of nodes, into memory.

    Errors: as `map_npy`.
    """
    return np.array(map_npy(path, what))


def map_table(path: Path, hint: str) -> NDArray[Any]:
    """Maps an array that Outercore has written.

    Errors: `CorruptError` with `hint` if the file is missing or cut short.
    """
    try:
        return map_npy(path, "array")
    except (InvalidError, NotFoundError) as error:
        raise CorruptError(f"{error.message}{HINT}{hint}") from None


def table_blocks(
    path: Path, hint: str, checksum: int | None = None, shape: tuple[int, ...] | None = None
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Reads a float32 table in blocks; yields the number of each block's first row, and the block.

    `checksum` is the result of `write_npy`.

    Errors: `CorruptError` with `hint` if the file is missing or cut short, or has another `shape`.
    Also for a wrong checksum, after the last block.
    """
    stored = map_table(path, hint)
    shape = stored.shape if shape is None else shape
    if stored.dtype != np.float32 or stored.shape != shape:
        raise CorruptError(
            f"array `{path}`: expected float32 {list(shape)}, "
            f"found {stored.dtype} {list(stored.shape)}{HINT}{hint}"
        )
    total = 0
    for first, rows in _blocks_of_rows(stored):
        total = zlib.crc32(_bytes(rows), total)
        yield first, rows
    if checksum is not None and total != checksum:
        raise CorruptError(
            f"array `{path}`: found checksum {total:08x}, expected {checksum:08x}{HINT}{hint}"
        )


def read_table(path: Path, hint: str, checksum: int | None = None) -> NDArray[np.float32]:
    """Reads a float32 table into memory. Errors: as `table_blocks`."""
    table = np.empty(map_table(path, hint).shape, np.float32)
    for first, rows in table_blocks(path, hint, checksum):
        table[first : first + len(rows)] = rows
    return table


def checksum_of_rows(path: Path, hint: str) -> int:
    """The checksum of a table that the core has written, as `write_npy` computes it.

    Errors: as `map_table`.
    """
    total = 0
    for _, rows in _blocks_of_rows(map_table(path, hint)):
        total = zlib.crc32(_bytes(rows), total)
    return total


def _blocks_of_rows(table: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """The blocks of a table. A block has at most `_BLOCK_NUMBERS` values, or one row."""
    return blocks(table, max(1, _BLOCK_NUMBERS // max(1, table[:1].size)))


def require_numbers(where: str, dtype: np.dtype) -> None:
    """Errors: `InvalidError` for text, dates, complex numbers and structured types."""
    if dtype.names is not None:
        raise InvalidError(
            f"{where}: expected numbers, found the fields {', '.join(dtype.names)}\n"
            "hint: save each field as an array of its own"
        )
    if dtype.kind not in "iufb" or dtype.itemsize > 8:
        found = _NO_NUMBERS.get(dtype.kind)
        raise InvalidError(f"{where}: expected numbers, found {found or dtype}")


def npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The header of a `.npy` file, padded to 4,096 bytes."""
    described = {"descr": dtype, "fortran_order": False, "shape": shape}
    header = repr(described).encode("latin1").ljust(_DATA_OFFSET - 11) + b"\n"
    return _MAGIC + b"\x01\x00" + len(header).to_bytes(2, "little") + header


def write_npy(storage: Storage, path: Path, table: NDArray[Any]) -> int:
    """Writes an array to the file `path` atomically, and returns the CRC-32 of its values.

    Errors: `NoSpaceError` and `DeviceError`; a previous file at `path` stays.
    """
    array = np.ascontiguousarray(table)
    with device_errors(f"array `{path}`"), replacing(storage, path) as temporary:
        storage.write_pieces(temporary, [npy_header(array.dtype.str, array.shape), array.data])
    return zlib.crc32(_bytes(array))


class NpyWriter:
    """Writes an array of known shape to an open file, in blocks of rows."""

    def __init__(self, file: BinaryIO, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.rows = 0
        self._file = file
        self._dtype = np.dtype(dtype)
        file.write(npy_header(self._dtype.str, shape))

    def append(self, rows: NDArray[Any]) -> None:
        """Writes the next rows."""
        self._file.write(_bytes(np.ascontiguousarray(rows, self._dtype)))
        self.rows += len(rows)

    def close(self) -> None:
        """Does nothing, because `append` has written each row."""


class NpyRows:
    """A `.npy` file of known shape, written in blocks of rows within a `with` block.

    The file appears under its name at the end of the block. Scratch files need not be `durable`.
    """

    def __init__(
        self,
        path: Path,
        shape: tuple[int, ...],
        dtype: DTypeLike = np.float32,
        *,
        durable: bool = True,
    ) -> None:
        self.path = path
        self._shape = shape
        self._dtype = np.dtype(dtype)
        self._durable = durable
        self._writer: NpyWriter | None = None

    def __enter__(self) -> NpyRows:
        self._writing = self._whole()
        self._writing.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._writing.__exit__(*error)

    def append(self, rows: NDArray) -> None:
        """Writes the next rows."""
        assert self._writer is not None
        with device_errors(f"array `{self.path}`"):
            self._writer.append(rows)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        what = f"array `{self.path}`"
        with whole_file(self.path, what=what, durable=self._durable) as file:
            self._writer = NpyWriter(file, self._shape, self._dtype)
            yield
            if self._writer.rows != self._shape[0]:
                raise InternalError(
                    f"{what}: expected {self._shape[0]} rows, got {self._writer.rows}"
                )

    def rows(self, ids: NDArray[np.int64]) -> NDArray:
        """Reads the rows `ids`, in that order. Cost: one small read per row."""
        wanted = np.empty((len(ids), *self._shape[1:]), self._dtype)
        stride = int(np.prod(self._shape[1:])) * self._dtype.itemsize
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            for place, row in enumerate(ids):
                offset = _DATA_OFFSET + int(row) * stride
                if os.preadv(descriptor, [wanted[place : place + 1].data], offset) != stride:
                    raise InternalError(
                        f"array `{self.path}`: row {row}: short read at byte {offset}"
                    )
        finally:
            os.close(descriptor)
        return wanted

    def remove(self) -> None:
        """Deletes the file."""
        self.path.unlink()


def _bytes(array: NDArray[Any]) -> memoryview:
    """The bytes of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data
