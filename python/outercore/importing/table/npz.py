"""Reads arrays of `.npz` archives in chunks; `np.load` would read each array whole."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from outercore.base.listing import listed
from outercore.errors import CorruptError, InvalidError, NotFoundError
from outercore.files.input_file import require_file
from outercore.files.npy import read_header

_MOST_UNPACKED = 1 << 28
"""Largest size in bytes of a compressed array that is read whole. Its file may be a thousand times
smaller."""
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, OverflowError),
    *(lzma.LZMAError, NotImplementedError, RuntimeError, struct.error),
)
"""Errors that reading a damaged archive raises."""


@dataclass(frozen=True)
class NpzMember:
    """One array of an archive."""

    archive: Path
    member: str
    shape: tuple[int, ...]
    dtype: np.dtype
    data_offset: int
    """Offset of its values in the decompressed member, in bytes."""
    fortran: bool = False
    """Whether the values are in column-major (Fortran) order."""

    @property
    def size(self) -> int:
        """Size of the values in bytes."""
        return prod(self.shape) * self.dtype.itemsize

    def values(self, step: int, first: int = 0, last: int | None = None) -> Iterator[NDArray]:
        """The values `first..last` of the flattened array, in chunks of `step` values.

        Cost: decompresses a compressed member from its beginning.
        """
        end = prod(self.shape) if last is None else last
        with _zip(self.archive) as archive, self._opened(archive) as file:
            with self._undamaged():
                file.seek(self.data_offset + first * self.dtype.itemsize)
            for start in range(first, end, step):
                count = min(step, end - start)
                stored = np.frombuffer(self._exactly(file, count), self.dtype)
                yield stored.astype(self.dtype.newbyteorder("="), copy=False)

    def rows_in_order(self) -> NpzMember:
        """This member, if its values are in row-major (C) order.

        Errors: `InvalidError` for a matrix in Fortran order.
        """
        if self.fortran:
            raise InvalidError(
                f"{self}: expected C order, found Fortran order\n"
                "hint: save `np.ascontiguousarray(array)`"
            )
        return self

    def in_memory_order(self) -> NpzMember:
        """The same values in C order: an array in Fortran order becomes its transpose."""
        if not self.fortran:
            return self
        return replace(self, shape=self.shape[::-1], fortran=False)

    def _opened(self, archive: zipfile.ZipFile) -> IO[bytes]:
        with self._undamaged():
            return archive.open(self.member)

    def _exactly(self, file: IO[bytes], count: int) -> bytes:
        wanted = count * self.dtype.itemsize
        with self._undamaged():
            data = file.read(wanted)
        if len(data) != wanted:
            raise CorruptError(f"{self}: expected {wanted} more bytes, found {len(data)}")
        return data

    @contextmanager
    def _undamaged(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGED as error:
            raise CorruptError(f"{self}: {error}") from error

    @property
    def name(self) -> str:
        """The name in the form of the user's input: `ARCHIVE:NAME`."""
        return f"{self.archive}:{self.member.removesuffix('.npy')}"

    def __str__(self) -> str:
        return f"`{self.name}`"


def member_names(archive: Path) -> list[str]:
    """The names of the arrays in an archive."""
    with _zip(archive) as opened:
        return [name.removesuffix(".npy") for name in opened.namelist() if name.endswith(".npy")]


def open_member(archive: Path, names: tuple[str, ...] = ()) -> NpzMember:
    """Opens the array `names[0]`, or without `names` the only array.

    Errors: `NotFoundError` and `InvalidError` list the existing arrays.
    """
    known = member_names(archive)
    arrays_there = listed(known)
    if len(names) > 1:
        raise InvalidError(f"archive `{archive}`: expected one array, found {', '.join(names)}")
    if not names and len(known) != 1:
        raise InvalidError(
            f"archive `{archive}` holds {arrays_there or 'no array'}\n"
            f"hint: choose one by `{archive}:NAME`"
        )
    name = names[0] if names else known[0]
    if name not in known:
        raise NotFoundError(f"archive `{archive}`: no array `{name}`; it has {arrays_there}")
    with _zip(archive) as opened:
        try:
            with opened.open(f"{name}.npy") as file:
                found = _described(archive, f"{name}.npy", file)
            there = opened.getinfo(f"{name}.npy").file_size - found.data_offset
        except InvalidError:
            raise
        except _DAMAGED as error:
            raise InvalidError(f"`{archive}:{name}`: {error}") from None
    if there < found.size:
        raise InvalidError(
            f"{found}: expected {found.size - there} more bytes for {found.shape} of "
            f"{found.dtype}\nhint: if the copy was cut short, copy it again"
        )
    return found


def other_members(member: NpzMember) -> list[str]:
    """A note that names the other arrays of the member's archive."""
    others = [name for name in member_names(member.archive) if f"{name}.npy" != member.member]
    if not others:
        return []
    return [
        f"{member.name}: other arrays of the archive are taken where an option names them: "
        f"{listed(others)} (such as `--weight {member.archive}:NAME`)"
    ]


def read_member(archive: Path, name: str) -> NDArray[Any]:
    """Reads a whole array of an archive, flattened.

    Errors: `InvalidError` for a large compressed array. An uncompressed array may have any size,
    because its file has the same size.
    """
    member = open_member(archive, (name,))
    with _zip(archive) as opened:
        is_packed = opened.getinfo(member.member).compress_type != zipfile.ZIP_STORED
    if is_packed and member.size > _MOST_UNPACKED:
        raise InvalidError(
            f"{member}: {member.size:,} bytes when unpacked, expected at most {_MOST_UNPACKED:,}\n"
            "hint: save the archive without packing it: `numpy.savez`, or for SciPy "
            "`save_npz(..., compressed=False)`"
        )
    return np.concatenate([np.empty(0, member.dtype.newbyteorder("=")), *member.values(1 << 20)])


def _described(archive: Path, member: str, file: IO[bytes]) -> NpzMember:
    header = read_header(file, f"`{archive}:{member.removesuffix('.npy')}`")
    return NpzMember(archive, member, header.shape, header.dtype, header.offset, header.fortran)


def _zip(archive: Path) -> zipfile.ZipFile:
    if archive.is_dir():
        raise InvalidError(f"archive `{archive}`: expected a `.npz` file, found a directory")
    require_file(archive, "archive")
    try:
        return zipfile.ZipFile(archive)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, OSError):
        raise InvalidError(
            f"archive `{archive}`: expected `.npz` as NumPy writes it, found another file\n"
            "hint: if the copy was cut short, copy it again"
        ) from None
