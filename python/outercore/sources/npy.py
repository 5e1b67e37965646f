"""Arrays in `.npy` files, mapped into memory, and which types of an array hold numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.sources.table import FileSpec

_RAW = "raw numbers without a header: `np.save(NEW, np.memmap(FILE, dtype, shape=...))`"

_NO_NUMBERS = {"U": "text", "S": "text", "M": "dates", "m": "durations", "O": "Python objects"}


def open_npy(spec: FileSpec, what: str) -> NDArray[Any]:
    """The array of a `.npy` file; its values are read when they are used.

    Errors: `InvalidError` for a file that NumPy did not write or that is cut short, for Python
    objects, and where `spec` chooses columns.
    """
    where = f"{what} `{spec.path}`"
    if spec.columns:
        raise InvalidError(f"{where}: a `.npy` has one array, found `:{','.join(spec.columns)}`")
    with open(spec.path, "rb") as file:
        start = file.read(6)
    if start != b"\x93NUMPY":
        found = "a `.npz` archive" if start.startswith(b"PK") else "another file"
        way = "call it `.npz`" if start.startswith(b"PK") else _RAW
        raise InvalidError(
            f"{where}: expected `.npy` as NumPy writes it, found {found}\nhint: {way}"
        )
    try:
        return np.load(spec.path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        if "Python objects" in str(error):
            raise InvalidError(f"{where}: expected numbers, found Python objects") from None
        raise InvalidError(
            f"{where}: {error}\nhint: if the copy was cut short, copy it again"
        ) from None


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
