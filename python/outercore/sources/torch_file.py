"""Arrays and numbers in files that `torch.save` wrote, without running what a pickle asks for.

A pickle names functions to call. Here each name that arrays need stands for a small one of this
module, and any other name ends the reading: nothing outside of it is imported or called.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError

_CODES = frozenset(["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"])
_STORAGES = {
    "FloatStorage": "f4",
    "DoubleStorage": "f8",
    "HalfStorage": "f2",
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "b1",
}


def read_torch(path: Path) -> Any:
    """Maps, lists, texts, numbers and arrays of a file; tensors become arrays.

    Cost: tensors are mapped, arrays of NumPy are read.
    Errors: `InvalidError` for a file of another form, and for what is none of these.
    """
    where = f"file `{path}`"
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = (one for one in archive.namelist() if one.endswith("/data.pkl"))
            folder = name.removesuffix("data.pkl")
            if f"{folder}byteorder" in archive.namelist():
                order = archive.read(f"{folder}byteorder")
                if order != b"little":
                    raise InvalidError(f"{where}: expected little-endian numbers, found {order!r}")
            reader = _Reader(
                io.BytesIO(archive.read(name)), lambda key: _place(path, archive, folder + key)
            )
            return _plain(reader.load(), where)
    except InvalidError:
        raise
    except _Refused as error:
        raise InvalidError(
            f"{where}: holds {error}, which is not read\n"
            "hint: numbers and arrays only; save them by `numpy.save`"
        ) from None
    except (zipfile.BadZipFile, ValueError) as error:
        raise InvalidError(
            f"{where}: expected a file of `torch.save`, found another one ({error})"
        ) from None
    except Exception as error:  # What a pickle of bad bytes raises is not known beforehand.
        raise InvalidError(f"{where}: is damaged: {error}") from None


@dataclass(frozen=True)
class _Place:
    """Where a part of the archive lies."""

    path: Path
    offset: int
    size: int


def _place(path: Path, archive: zipfile.ZipFile, name: str) -> _Place:
    """The place of a part in the file.

    Errors: `_Refused` for one that is packed.
    """
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED:
        raise _Refused("a packed tensor")
    with path.open("rb") as file:
        file.seek(info.header_offset)
        # The part follows its own header: 30 bytes, its name, and more fields.
        of_name, of_fields = struct.unpack("<26xHH", file.read(30))
    return _Place(path, info.header_offset + 30 + of_name + of_fields, info.file_size)


class _Refused(Exception):  # noqa: N818 - caught here, never seen outside
    """What a pickle wants that is no number and no array."""


class _Type:
    """A type of NumPy."""

    def __init__(self, code: str, *_: Any) -> None:
        self.code = code
        self.order = "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]

    def dtype(self) -> np.dtype:
        """The type itself.

        Errors: `_Refused` for one that is no number.
        """
        if self.code not in _CODES or self.order not in "<>|=":
            raise _Refused(f"the type `{self.code}`")
        return np.dtype(f"{self.order}{self.code}")


class _Array:
    """An array of NumPy."""

    def __init__(self, *_: Any) -> None:
        self.values: NDArray[Any] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, in_columns, data = state
        if not isinstance(data, bytes):
            raise _Refused("an array of objects")
        flat = np.frombuffer(data, kind.dtype())
        self.values = flat.reshape(shape, order="F" if in_columns else "C")


class _Storage:
    """The kind of numbers of a tensor."""

    def __init__(self, code: str) -> None:
        self.code = code


class _Reader(pickle.Unpickler):
    """Builds only what this module knows."""

    def __init__(self, file: io.BytesIO, place: Callable[[str], _Place]) -> None:
        super().__init__(file, encoding="bytes")
        self._place = place

    def find_class(self, module: str, name: str) -> Any:
        """What stands for a name.

        Errors: `_Refused` for any other.
        """
        if module == "torch" and name in _STORAGES:
            return _Storage(_STORAGES[name])
        known = _KNOWN.get((module.replace("numpy._core", "numpy.core"), name))
        if known is None:
            raise _Refused(f"`{module}.{name}`")
        return known

    def persistent_load(self, pid: Any) -> NDArray[Any]:
        """The numbers of a tensor, from a part of the archive."""
        kind, storage, key, _, count = pid
        if _text(kind) != "storage" or not isinstance(storage, _Storage):
            raise _Refused("a tensor of another kind")
        if not _text(key).isalnum():
            raise _Refused(f"a part called `{_text(key)}`")
        place, dtype = self._place(f"data/{_text(key)}"), np.dtype(storage.code)
        if not isinstance(count, int) or not 0 <= count * dtype.itemsize <= place.size:
            raise _Refused("a tensor beyond its numbers")
        if not count:
            return np.empty(0, dtype)
        return np.memmap(place.path, dtype, "r", place.offset, (count,))


def _tensor(
    numbers: NDArray[Any], offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
) -> NDArray[Any]:
    """A tensor on its storage.

    Errors: `_Refused` where it would reach beyond.
    """
    last = offset + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    is_empty = 0 in shape
    if offset < 0 or min(strides, default=0) < 0 or (not is_empty and last >= len(numbers)):
        raise _Refused("a tensor beyond its numbers")
    steps = tuple(step * numbers.itemsize for step in strides)
    # Stays a mapped array, whose pages can be let go.
    return np.lib.stride_tricks.as_strided(
        numbers[offset:], shape, steps, subok=True, writeable=False
    )


def _scalar(kind: _Type, data: bytes) -> Any:
    return np.frombuffer(data, kind.dtype(), 1)[0].item()


def _from_buffer(data: bytes, kind: _Type, shape: tuple[int, ...], order: str) -> NDArray[Any]:
    return np.frombuffer(data, kind.dtype()).reshape(shape, order=_text(order))  # type: ignore[call-overload]


def _encoded(text: str, encoding: str) -> bytes:
    """What Python 2 writes for bytes."""
    if _text(encoding) != "latin1":
        raise _Refused(f"text as {_text(encoding)}")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    """What Python 3 writes for no bytes, in a form that Python 2 reads."""
    return b""


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): lambda code, *_: _Type(_text(code)),
    ("_codecs", "encode"): _encoded,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("__builtin__", "bytes"): _no_bytes,
    ("collections", "OrderedDict"): dict,
}


def _plain(value: Any, where: str) -> Any:
    """The value with arrays in place of what built them."""
    if isinstance(value, _Array):
        return value.values
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {_plain(key, where): _plain(one, where) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one, where) for one in value]
    if value is None or isinstance(value, (bool, int, float, str, np.ndarray)):
        return value
    raise InvalidError(f"{where}: holds {type(value).__name__}, expected numbers and arrays")
