"""Files in the format of `torch.save`, built by hand, including files that it never writes."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

MARK, STOP, REDUCE, BUILD = b"(", b".", b"R", b"b"


def number(value: int) -> bytes:
    """A whole number of any size."""
    if 0 <= value < 256:
        return b"K" + bytes([value])
    size = value.bit_length() // 8 + 1
    data = value.to_bytes(size, "little", signed=True)
    head = b"\x8a" + bytes([size]) if size < 256 else b"\x8b" + struct.pack("<i", size)
    return head + data


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def raw(value: bytes) -> bytes:
    return b"B" + struct.pack("<I", len(value)) + value


def fraction(value: float) -> bytes:
    return b"G" + struct.pack(">d", value)


def named(module: str, name: str) -> bytes:
    return b"c" + f"{module}\n{name}\n".encode()


def several(*items: bytes) -> bytes:
    """A tuple."""
    return MARK + b"".join(items) + b"t"


def listed(*items: bytes) -> bytes:
    return b"]" + MARK + b"".join(items) + b"e"


def mapped(*pairs: tuple[bytes, bytes]) -> bytes:
    return b"}" + MARK + b"".join(key + value for key, value in pairs) + b"u"


def called(function: bytes, *arguments: bytes) -> bytes:
    return function + several(*arguments) + REDUCE


def dtype(code: str) -> bytes:
    made = called(named("numpy", "dtype"), text(code), b"\x89", b"\x88")
    state = [number(3), text("<"), b"N", b"N", b"N", number(-1), number(-1), number(0)]
    return made + several(*state) + BUILD


def scalar(value: Any, code: str) -> bytes:
    """The pickle of a NumPy scalar."""
    data = np.array(value, code).tobytes()
    return called(named("numpy.core.multiarray", "scalar"), dtype(code), raw(data))


def array(shape: bytes, code: str, data: bytes, in_columns: bytes = b"\x89") -> bytes:
    """The pickle of a NumPy array with any shape and bytes."""
    begun = called(
        named("numpy.core.multiarray", "_reconstruct"),
        named("numpy", "ndarray"),
        several(number(0)),
        raw(b"b"),
    )
    return begun + several(number(1), shape, dtype(code), in_columns, raw(data)) + BUILD


def zero_dimensional(value: Any, code: str) -> bytes:
    """The pickle of a NumPy array without axes, which behaves like a number."""
    data = np.array(value, code).tobytes()
    made = named("numpy.core.numeric", "_frombuffer")
    return called(made, raw(data), dtype(code), b")", text("C"))


def storage(key: str, kind: str, count: bytes) -> bytes:
    pid = several(text("storage"), named("torch", kind), text(key), text("cpu"), count)
    return pid + b"Q"


def tensor(
    storage: bytes, offset: bytes, shape: bytes, strides: bytes, metadata: bytes = b""
) -> bytes:
    hooks = named("collections", "OrderedDict") + b")" + REDUCE
    return called(
        named("torch._utils", "_rebuild_tensor_v2"),
        *(storage, offset, shape, strides, b"\x89", hooks, *([metadata] if metadata else [])),
    )


def write(path: Path, pickle: bytes, parts: dict[str, bytes] | None = None) -> Path:
    """A file of `torch.save` with this pickle, and the bytes of its storages."""
    path.write_bytes(packed(pickle, parts))
    return path


def packed(pickle: bytes, parts: dict[str, bytes] | None = None) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + pickle + STOP)
        archive.writestr("archive/byteorder", "little")
        for name, data in (parts or {}).items():
            archive.writestr(f"archive/data/{name}", data)
    return file.getvalue()
