"""Reads arrays and numbers from files of `torch.save`, without running code from the pickle.

A pickle is a program. Python's unpickler calls each function that the pickle names, with any values
that the program has built. So each function would need checks against every type. This module runs
fewer operations: values have only the types below, an extent must be an `int`, and an unexpected
value is an error. It imports no names from the pickle.

[0047](../../../../docs/design/0047-foreign-files.md) explains why PyTorch does not read the files.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.files.input_file import require_file
from outercore.files.npy import MOST_EMPTY

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
_CODES = frozenset(["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"])
_LEAST, _MOST = -(2**63), 2**64 - 1
"""Smallest and largest integer of NumPy."""
_MOST_AXES = 32
_MOST_DEPTH = 32
_SHARED = 1 << 20
"""Number of places of values, in addition to one place per byte of the pickle."""
_LARGEST_PICKLE = 1 << 28
"""Maximum bytes of a pickle. It has names and arrays of NumPy; tensors are in other parts."""
_TIMES = 4
"""How often tensors together may use the bytes of the file."""
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, ValueError, EOFError, OverflowError, struct.error, OSError),
    # Raised for a part that is encrypted, or compressed in an unknown way.
    *(RuntimeError, NotImplementedError),
    # Raised by operations on values of a wrong type on the stack.
    *(pickle.UnpicklingError, LookupError, AttributeError, TypeError),
)
"""Errors that reading a damaged archive or pickle raises."""


class Refused(Exception):  # noqa: N818 - caught by `read_torch`, never seen outside
    """A pickle asks for more than numbers, texts, containers and arrays."""


def read_torch(path: Path) -> Any:
    """Reads maps, lists, texts, numbers and arrays of a file; tensors become arrays.

    Cost: maps tensors, and reads arrays of NumPy.
    Errors: `InvalidError` for a file in another format, and for other values.
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
    # PyTorch does not compress, so the content has at most the bytes of the file.
    packed = [
        info.filename
        for info in archive.infolist()
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size
    ]
    if packed:
        is_tensor = any("/data/" in name for name in packed)
        raise Refused("a packed tensor" if is_tensor else "a packed part")
    names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    if len(names) != 1:
        raise ValueError(f"{len(names)} parts are called `data.pkl`")
    folder = names[0].removesuffix("data.pkl")
    if f"{folder}byteorder" in archive.namelist():
        order = archive.read(f"{folder}byteorder")
        if order != b"little":
            raise Refused(f"numbers of another byte order, {order[:8]!r}")
    if archive.getinfo(names[0]).file_size > _LARGEST_PICKLE:
        raise Refused(f"a pickle of more than {_LARGEST_PICKLE >> 20} MiB")
    data = archive.read(names[0])
    value = _Unpickler(data, path, archive, folder).load()
    return _Plain(_SHARED + len(data), _TIMES * path.stat().st_size).of(value)


class _Named:
    """A type that a pickle names. It can be an argument, but cannot be called."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Type:
    """A type of NumPy, before and after its byte order is known."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.order = "<"

    def dtype(self) -> np.dtype:
        if self.code not in _CODES or self.order not in ("<", ">", "|", "="):
            raise Refused(f"the type `{self.code[:20]}`")
        return np.dtype(f"{self.order}{self.code}")


class _Array:
    """An array of NumPy whose shape and bytes follow."""

    values: NDArray[Any] | None = None


@dataclass(frozen=True)
class _Storage:
    """The values of a tensor, in a part of the archive that begins at `offset`."""

    path: Path
    offset: int
    dtype: np.dtype
    count: int


_OPERATIONS = """
    PROTO FRAME STOP MARK POP POP_MARK NONE NEWTRUE NEWFALSE
    INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT
    UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8
    EMPTY_LIST EMPTY_TUPLE EMPTY_DICT LIST TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS
    PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET GLOBAL STACK_GLOBAL BINPERSID
"""
"""Operations that Python's unpickler runs. `_Unpickler` defines some more."""


class _Dispatch(dict[int, Callable[[Any], None]]):
    """The operations of a pickle by their codes."""

    def __missing__(self, code: int) -> Any:
        raise Refused(f"the operation {bytes([code])!r} of a pickle")


_PYTHONS: Any = pickle._Unpickler


class _Unpickler(_PYTHONS):
    """Python's unpickler, in its form written in Python, with fewer operations.

    The unpickler in C has a fixed table of operations. It also reserves memory for any index of a
    stored value.
    """

    dispatch = _Dispatch(
        (code[0], _PYTHONS.dispatch[code[0]])
        for code in (getattr(pickle, name) for name in _OPERATIONS.split())
    )

    def __init__(self, data: bytes, path: Path, archive: zipfile.ZipFile, folder: str) -> None:
        super().__init__(io.BytesIO(data))
        self._path, self._archive, self._folder = path, archive, folder
        self._may_encode = 2 * len(data)

    def find_class(self, module: str, name: str) -> Any:
        # NumPy 2 has renamed its core module.
        whole = f"{module.replace('numpy._core', 'numpy.core')}.{name}"
        if whole == "_codecs.encode":
            return self._encoded
        if whole in _STORAGES or whole == "numpy.ndarray":
            return _Named(whole)
        if whole not in _FUNCTIONS:
            raise Refused(f"`{whole[:80]}`")
        return _FUNCTIONS[whole]

    def _reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        # Only functions from `find_class` can be called.
        if not callable(function) or type(arguments) is not tuple:
            raise Refused("a call of a value that is not a function")
        self.append(function(arguments))

    def _build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if type(target) is _Type:
            _set_type(target, state)
        elif type(target) is _Array:
            _set_array(target, state)
        else:
            raise Refused("a state for a value other than an array")

    def _dict(self) -> None:
        items = self.pop_mark()
        self.append({})
        self._set(items)

    def _set(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict:
            raise Refused("an item for a value that is not a map")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is bytes:
                key = key.decode()
            # Hashing and comparing other keys could take any amount of time.
            if type(key) not in (str, int):
                raise Refused(f"a key of type {type(key).__name__}, expected text or a number")
            target[key] = value

    dispatch[pickle.REDUCE[0]] = _reduce
    dispatch[pickle.BUILD[0]] = _build
    dispatch[pickle.DICT[0]] = _dict
    dispatch[pickle.SETITEM[0]] = lambda self: self._set([self.stack.pop(), self.stack.pop()][::-1])
    dispatch[pickle.SETITEMS[0]] = lambda self: self._set(self.pop_mark())

    def _encoded(self, arguments: tuple[Any, ...]) -> bytes:
        """Bytes in the form that Python 2 can read: a text and its encoding."""
        text, encoding = _checked(arguments, (str,), (str, bytes))
        if _as_text(encoding) != "latin1":
            raise Refused(f"text as {_as_text(encoding)[:20]}")
        # Three bytes of pickle can encode a text once more, so the total is limited.
        self._may_encode -= len(text)
        if self._may_encode < 0:
            raise Refused("bytes that are made again and again")
        return text.encode("latin1")

    def persistent_load(self, pid: Any) -> _Storage:
        """The storage of a tensor, from `("storage", type, key, device, count)`."""
        if type(pid) is not tuple:
            raise Refused("a tensor of another kind")
        text = (str, bytes)
        kind, storage, key, _, count = _checked(pid, text, (_Named,), text, text, (int,))
        code, key = _STORAGES.get(storage.name), _as_text(key)
        if _as_text(kind) != "storage" or code is None:
            raise Refused("a tensor of another kind")
        if not (key.isascii() and key.isalnum()):
            raise Refused(f"a part called `{key[:20]}`")
        name, dtype = f"{self._folder}data/{key}", np.dtype(code)
        if name not in self._archive.NameToInfo:
            raise Refused(f"a tensor without its part `{name[:40]}`")
        info = self._archive.getinfo(name)
        with self._path.open("rb") as file:
            file.seek(info.header_offset)
            # A header comes before the part: 30 bytes, its name, and more fields.
            signature, of_name, of_fields = struct.unpack("<4s22xHH", file.read(30))
            offset = info.header_offset + 30 + of_name + of_fields
            if signature != b"PK\x03\x04" or offset + info.file_size > file.seek(0, 2):
                raise ValueError(f"the part `{name[:40]}` is not where the archive says")
        if not 0 <= count * dtype.itemsize <= info.file_size:
            raise Refused("a tensor beyond its numbers")
        return _Storage(self._path, offset, dtype, count)


def _checked(arguments: tuple[Any, ...], *kinds: tuple[type, ...]) -> tuple[Any, ...]:
    """Checks the types of the first arguments, and returns these. A Boolean is not an `int` here.

    Errors: `Refused` for another type, or for fewer arguments.
    """
    if len(arguments) < len(kinds):
        raise Refused("a call with too few values")
    for value, kind in zip(arguments, kinds, strict=False):
        if type(value) not in kind:
            expected = " or ".join(one.__name__.strip("_").lower() for one in kind)
            raise Refused(f"{type(value).__name__.strip('_').lower()} where {expected} is expected")
    return arguments[: len(kinds)]


def _whole_numbers(value: Any, what: str) -> tuple[int, ...]:
    """Checks a shape or strides: a tuple of integers of 0 or more.

    Errors: `Refused` for anything else.
    """
    if type(value) is not tuple or len(value) > _MOST_AXES:
        raise Refused(f"{what} other than a tuple of at most {_MOST_AXES} numbers")
    if any(type(number) is not int or not 0 <= number < 2**63 for number in value):
        raise Refused(f"{what} of other than whole numbers")
    return value


def _as_text(value: str | bytes) -> str:
    """A text that Python 2 may have written as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _ordered(arguments: tuple[Any, ...]) -> dict[Any, Any]:
    """An empty `OrderedDict`. Later operations add its items."""
    if arguments:
        raise Refused("an `OrderedDict` of items")
    return {}


def _no_bytes(arguments: tuple[Any, ...]) -> bytes:
    """Empty bytes. Python 3 writes them as this call, so that Python 2 can read them."""
    if arguments:
        raise Refused("a call of `bytes`")
    return b""


def _type(arguments: tuple[Any, ...]) -> _Type:
    (code,) = _checked(arguments, (str, bytes))
    return _Type(_as_text(code))


def _set_type(target: _Type, state: Any) -> None:
    """Sets the byte order. The state is (version, byte order, part of, names, fields, ...)."""
    if type(state) is not tuple:
        raise Refused("the state of a type")
    _, order = _checked(state, (int,), (str, bytes))
    if any(part is not None for part in state[2:5]):
        raise Refused("a type of fields")
    target.order = _as_text(order)


def _begun(arguments: tuple[Any, ...]) -> _Array:
    """A new array, from `_reconstruct(ndarray, (0,), b"b")`. A later operation sets its state."""
    (kind,) = _checked(arguments, (_Named,))
    if kind.name != "numpy.ndarray":
        raise Refused(f"an array of `{kind.name}`")
    return _Array()


def _set_array(target: _Array, state: Any) -> None:
    """Sets the values. The state is (version, shape, type, whether column-major, bytes)."""
    if type(state) is not tuple:
        raise Refused("the state of an array")
    _, shape, kind, in_columns, data = _checked(
        state, (int,), (tuple,), (_Type,), (bool,), (bytes, list)
    )
    target.values = _shaped(shape, kind, "F" if in_columns else "C", data)


def _shaped(shape: Any, kind: _Type, order: str, data: Any) -> NDArray[Any]:
    if type(data) is not bytes:
        raise Refused("an array of objects")
    dtype = kind.dtype()
    if prod(_whole_numbers(shape, "a shape")) * dtype.itemsize != len(data):
        raise Refused(f"an array of {len(data)} bytes, but its shape says otherwise")
    if not data:
        return _empty(shape, dtype)
    return np.frombuffer(data, dtype).reshape(shape, order="F" if order == "F" else "C")


def _empty(shape: tuple[int, ...], dtype: np.dtype) -> NDArray[Any]:
    """An array without values.

    Errors: `Refused` for an array with many rows, because a loop over them takes time.
    """
    if max(shape, default=0) > MOST_EMPTY:
        raise Refused("rows without a number")
    return np.empty(shape, dtype)


def _number(arguments: tuple[Any, ...]) -> Any:
    kind, data = _checked(arguments, (_Type,), (bytes,))
    dtype = kind.dtype()
    if len(data) != dtype.itemsize:
        raise Refused(f"a number of {len(data)} bytes, expected {dtype.itemsize}")
    return np.frombuffer(data, dtype)[0].item()


def _from_buffer(arguments: tuple[Any, ...]) -> NDArray[Any]:
    data, kind, shape, order = _checked(arguments, (bytes,), (_Type,), (tuple,), (str, bytes))
    return _shaped(shape, kind, _as_text(order), data)


def _tensor(arguments: tuple[Any, ...]) -> NDArray[Any]:
    """A tensor, from `(storage, offset, shape, strides, gradient, hooks, metadata)`.

    Errors: `Refused` if it would reach beyond its storage, or repeat numbers.
    """
    storage, offset = _checked(arguments, (_Storage,), (int,))
    if len(arguments) < 4:
        raise Refused("a tensor without a shape")
    shape, strides = _whole_numbers(arguments[2], "a shape"), _whole_numbers(arguments[3], "steps")
    if len(shape) != len(strides):
        raise Refused("a tensor with other steps than axes")
    # Metadata may mean, for example, that all numbers are negated.
    if len(arguments) > 6 and arguments[6]:
        raise Refused("a tensor with metadata")
    if 0 in shape:
        return _empty(shape, storage.dtype)
    last = offset + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    if offset < 0 or last >= storage.count:
        raise Refused("a tensor beyond its numbers")
    if prod(shape) > storage.count:
        raise Refused("a tensor that repeats its numbers")
    width = storage.dtype.itemsize
    numbers = np.memmap(
        storage.path, storage.dtype, "r", storage.offset + offset * width, (last - offset + 1,)
    )
    # The result is still a mapped array, so its pages can be released.
    return np.lib.stride_tricks.as_strided(
        numbers, shape, tuple(step * width for step in strides), subok=True, writeable=False
    )


_FUNCTIONS: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "numpy.core.multiarray._reconstruct": _begun,
    "numpy.core.multiarray.scalar": _number,
    "numpy.core.numeric._frombuffer": _from_buffer,
    "numpy.dtype": _type,
    "__builtin__.bytes": _no_bytes,
    "collections.OrderedDict": _ordered,
    "torch._utils._rebuild_tensor_v2": _tensor,
}


class _Plain:
    """Converts the unpickled value to plain values and arrays, within limits.

    A list in two places is visited twice, here and by the reader of the value. A few hundred bytes
    of pickle can describe more places than a machine can visit, so the number of places is limited.
    All arrays together may have `most` bytes; an array in two places counts twice.
    """

    def __init__(self, places: int, most: int) -> None:
        self._places, self._bytes = places, most

    def of(self, value: Any, depth: int = 0) -> Any:
        self._places -= 1
        if self._places < 0:
            raise Refused("lists that are in each other again and again")
        if depth > _MOST_DEPTH:
            raise Refused(f"lists in each other, more than {_MOST_DEPTH} deep")
        kind = type(value)
        if kind is _Array:
            if value.values is None:
                raise Refused("an array without values")
            value, kind = value.values, np.ndarray
        if kind is np.ndarray or kind is np.memmap:
            self._bytes -= value.nbytes
            if self._bytes < 0:
                raise Refused("more numbers than the file has")
            return value
        if kind is dict:
            return {self.of(key): self.of(item, depth + 1) for key, item in value.items()}
        if kind is list or kind is tuple:
            return [self.of(item, depth + 1) for item in value]
        if kind is int and not _LEAST <= value <= _MOST:
            raise Refused("a whole number of more than 64 bits")
        if kind is bytes or kind is str:
            text = _as_text(value)
            # Encoding fails for half of a surrogate pair, which cannot be printed.
            text.encode()
            return text
        if value is None or kind in (bool, int, float):
            return value
        raise Refused(f"{kind.__name__.strip('_').lower()}, expected numbers and arrays")
