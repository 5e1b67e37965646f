"""Arrays and numbers in files that `torch.save` wrote, without running what a pickle asks for.

See [0047](../../../../docs/design/0047-foreign-files.md) for why PyTorch does not read them.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.files.input_file import require_file
from outercore.importing.table.pickled import (
    Named,
    Refused,
    as_text,
    checked,
    nothing,
    read_pickle,
    whole_numbers,
)

_STORAGES = {
    "torch.FloatStorage": "f4",
    "torch.DoubleStorage": "f8",
    "torch.HalfStorage": "f2",
    "torch.LongStorage": "i8",
    "torch.IntStorage": "i4",
    "torch.ShortStorage": "i2",
    "torch.CharStorage": "i1",
    "torch.ByteStorage": "u1",
    "torch.BoolStorage": "b1",
}
_LARGEST_PICKLE = 1 << 28
"""Bytes of a pickle: it holds names and arrays of NumPy, tensors are beside it."""
_TIMES = 4
"""How often the bytes of a file may be used by several tensors."""
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, ValueError, EOFError, OverflowError, struct.error, OSError),
    # Of a part that is encrypted, or packed in an unknown way.
    *(RuntimeError, NotImplementedError),
)
"""What reading a damaged archive raises."""


def read_torch(path: Path) -> Any:
    """Maps, lists, texts, numbers and arrays of a file; tensors become arrays.

    Cost: tensors are mapped, arrays of NumPy are read.
    Errors: `InvalidError` for a file of another form, and for other values.
    """
    where = f"file `{path}`"
    require_file(path, "file")
    try:
        with zipfile.ZipFile(path) as archive:
            return _value(path, archive)
    except Refused as error:
        raise InvalidError(
            f"{where}: holds {error}, which is not read\n"
            "hint: numbers and arrays only; save them by `numpy.save`"
        ) from None
    except _DAMAGED as error:
        raise InvalidError(
            f"{where}: expected a file of `torch.save`, found another one, or a damaged one "
            f"({error})"
        ) from None


def _value(path: Path, archive: zipfile.ZipFile) -> Any:
    """The value that the pickle of an archive describes.

    Errors: `Refused`, and the errors of a damaged archive.
    """
    # PyTorch packs nothing, so what is read has at most the bytes of the file.
    packed = [
        info.filename
        for info in archive.infolist()
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size
    ]
    if packed:
        is_tensor = any("/data/" in name for name in packed)
        raise Refused("a packed tensor" if is_tensor else "a packed part")
    names = [one for one in archive.namelist() if one.endswith("/data.pkl")]
    if len(names) != 1:
        raise ValueError(f"{len(names)} parts are called `data.pkl`")
    folder = names[0].removesuffix("data.pkl")
    if f"{folder}byteorder" in archive.namelist():
        order = archive.read(f"{folder}byteorder")
        if order != b"little":
            raise Refused(f"numbers of another byte order, {order[:8]!r}")
    if archive.getinfo(names[0]).file_size > _LARGEST_PICKLE:
        raise Refused(f"a pickle of more than {_LARGEST_PICKLE >> 20} MiB")
    storages = _Storages(path, archive, folder)
    functions = {"torch._utils._rebuild_tensor_v2": _tensor, **dict.fromkeys(_STORAGES, _no_call)}
    most = _TIMES * path.stat().st_size
    return read_pickle(archive.read(names[0]), functions, storages.numbers, most)


class _Storages:
    """The numbers of tensors, in parts of the archive."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, folder: str) -> None:
        self._path, self._archive, self._folder = path, archive, folder

    def numbers(self, pid: tuple[Any, ...]) -> _Numbers:
        """The numbers that `("storage", type, key, device, count)` names."""
        text = (str, bytes)
        kind, storage, key, _, count = checked(pid, text, (Named,), text, text, (int,))
        code = _STORAGES.get(storage.name)
        if as_text(kind) != "storage" or code is None:
            raise Refused("a tensor of another kind")
        if not (as_text(key).isascii() and as_text(key).isalnum()):
            raise Refused(f"a part called `{as_text(key)[:20]}`")
        place, dtype = self._place(f"{self._folder}data/{as_text(key)}"), np.dtype(code)
        if not 0 <= count * dtype.itemsize <= place.size:
            raise Refused("a tensor beyond its numbers")
        return _Numbers(place, dtype, count)

    def _place(self, name: str) -> _Place:
        if name not in self._archive.NameToInfo:
            raise Refused(f"a tensor without its part `{name[:40]}`")
        info = self._archive.getinfo(name)
        with self._path.open("rb") as file:
            file.seek(info.header_offset)
            # The part follows its own header: 30 bytes, its name, and more fields.
            header = file.read(30)
            signature, of_name, of_fields = struct.unpack("<4s22xHH", header)
            offset = info.header_offset + 30 + of_name + of_fields
            if signature != b"PK\x03\x04" or offset + info.file_size > file.seek(0, 2):
                raise ValueError(f"the part `{name[:40]}` is not where the archive says")
        return _Place(self._path, offset, info.file_size)


@dataclass(frozen=True)
class _Place:
    """Where a part of the archive lies."""

    path: Path
    offset: int
    size: int


@dataclass(frozen=True)
class _Numbers:
    """The storage of a tensor."""

    place: _Place
    dtype: np.dtype
    count: int


def _no_call(_: tuple[Any, ...]) -> Any:
    raise Refused("a call of a storage")


def _tensor(arguments: tuple[Any, ...]) -> NDArray[Any]:
    """A tensor on its storage: `(storage, offset, shape, strides, gradient, hooks, metadata)`.

    Errors: `Refused` where it would reach beyond, or repeat numbers.
    """
    storage, offset = checked(arguments, (_Numbers,), (int,))
    if len(arguments) < 4:
        raise Refused("a tensor without a shape")
    shape, strides = whole_numbers(arguments[2], "a shape"), whole_numbers(arguments[3], "steps")
    if len(shape) != len(strides):
        raise Refused("a tensor with other steps than axes")
    # It says, for instance, that every number is to be negated.
    if len(arguments) > 6 and arguments[6]:
        raise Refused("a tensor with metadata")
    if 0 in shape:
        return nothing(shape, storage.dtype)
    last = offset + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    if offset < 0 or last >= storage.count:
        raise Refused("a tensor beyond its numbers")
    if prod(shape) > storage.count:
        raise Refused("a tensor that repeats its numbers")
    place, width = storage.place, storage.dtype.itemsize
    numbers = np.memmap(
        place.path, storage.dtype, "r", place.offset + offset * width, (last - offset + 1,)
    )
    # Stays a mapped array, whose pages can be let go.
    return np.lib.stride_tricks.as_strided(
        numbers, shape, tuple(step * width for step in strides), subok=True, writeable=False
    )
