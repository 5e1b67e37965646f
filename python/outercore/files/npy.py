"""Arrays in `.npy` files, mapped into memory, and which types of an array hold numbers."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.files.input_file import require_file

_RAW = "raw numbers without a header: `np.save(NEW, np.memmap(FILE, dtype, shape=...))`"
_AGAIN = "if the copy was cut short, copy it again"
_MAGIC = b"\x93NUMPY"
_READERS = {
    (1, 0): npy_format.read_array_header_1_0,
    (2, 0): npy_format.read_array_header_2_0,
}
_MOST_AXES = 32
_MOST_BYTES = 2**63 - 1
MOST_EMPTY = 2**31
"""Rows, or columns, that an array without any number may have."""

_NO_NUMBERS = {"U": "text", "S": "text", "M": "dates", "m": "durations", "O": "Python objects"}


@dataclass(frozen=True)
class Header:
    """What the header of an array says, as far as it can be true."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool
    """Whether the first index varies fastest."""
    offset: int
    """Where the values begin."""

    @property
    def size(self) -> int:
        """Bytes of the values."""
        return prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes], where: str) -> Header:
    """The header of an array, at the beginning of `file`.

    Errors: `InvalidError` for one that NumPy did not write, and for Python objects.
    """
    start = file.read(8)
    if len(start) < 8 or start[:6] != _MAGIC:
        raise InvalidError(f"{where}: expected an array, found something else")
    read = _READERS.get((start[6], start[7]))
    if read is None:
        # Version 3 is for names of fields that are not ASCII, and fields are not read.
        raise InvalidError(
            f"{where}: expected version 1 or 2 of `.npy`, found {start[6]}.{start[7]}\n"
            "hint: save each field as an array of its own"
        )
    try:
        shape, fortran, dtype = read(file)
    except Exception:
        # NumPy parses the header as Python: bad bytes raise whatever a parser of Python raises.
        raise InvalidError(
            f"{where}: the header of the array cannot be read\nhint: {_AGAIN}"
        ) from None
    if dtype.hasobject:
        raise InvalidError(f"{where}: expected numbers, found Python objects")
    if not dtype.itemsize:
        raise InvalidError(f"{where}: expected numbers, found {dtype}, which has no bytes")
    # A Boolean is an `int` to NumPy.
    whole = all(type(extent) is int and 0 <= extent <= _MOST_BYTES for extent in shape)
    # NumPy multiplies the extents of an array without values, too, but for those that are 0.
    most = prod(max(one, 1) for one in shape) * dtype.itemsize if whole else 0
    if not whole or len(shape) > _MOST_AXES or most > _MOST_BYTES:
        raise InvalidError(f"{where}: the header of the array has an impossible shape")
    # Rows without a column take no bytes, but as much time as the header says.
    if not prod(shape) and max(shape) > MOST_EMPTY:
        raise InvalidError(f"{where}: {max(shape):,} rows or columns without a number")
    return Header(shape, dtype, bool(fortran) and len(shape) > 1, file.tell())


def open_npy(spec: FileSpec, what: str) -> NDArray[Any]:
    """The array of a `.npy` file; its values are read when they are used.

    Errors: `InvalidError` for a file that NumPy did not write or that is cut short, for Python
    objects, and where `spec` chooses columns.
    """
    where = f"{what} `{spec.path}`"
    if spec.columns:
        raise InvalidError(f"{where}: a `.npy` has one array, found `:{','.join(spec.columns)}`")
    require_file(spec.path, what)
    with open(spec.path, "rb") as file:
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
    return np.memmap(spec.path, header.dtype, "r", header.offset, header.shape, order)  # type: ignore[call-overload]


def read_npy(path: Path, what: str) -> NDArray[Any]:
    """A small array of numbers, such as a list of nodes, read whole.

    Errors: as `open_npy`.
    """
    return np.array(open_npy(FileSpec(path, ()), what))


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


_DATA_OFFSET = 4096


def npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The first 4,096 bytes of a `.npy` file."""
    described = {"descr": dtype, "fortran_order": False, "shape": shape}
    header = repr(described).encode("latin1").ljust(_DATA_OFFSET - 11) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
