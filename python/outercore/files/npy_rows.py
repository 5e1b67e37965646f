"""`.npy` files written row by row: layer states between loaders."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outercore.errors import InternalError
from outercore.files.atomic import device_errors
from outercore.files.npy import npy_header

_DATA_OFFSET = 4096


class NpyRows:
    """An array of known shape whose data starts at byte 4096; a context manager while written.

    It appears under its name only once it is complete.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> None:
        self.path = path
        self._shape = shape
        self._dtype = np.dtype(dtype)
        self._written = 0
        self._file: BinaryIO | None = None

    def __enter__(self) -> NpyRows:
        with device_errors(f"array `{self.path}`"):
            self._file = self._partial.open("wb")
            self._file.write(npy_header(self._dtype.str, self._shape))
        return self

    def append(self, rows: NDArray) -> None:
        """Writes the next rows."""
        assert self._file is not None
        with device_errors(f"array `{self.path}`"):
            self._file.write(np.ascontiguousarray(rows, self._dtype).data)
        self._written += len(rows)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._file is not None
        if kind is not None:
            # What is buffered is written once more, and on a full device fails once more.
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                self._partial.unlink(missing_ok=True)
            return
        if self._written != self._shape[0]:
            raise InternalError(
                f"array `{self.path}`: expected {self._shape[0]} rows, got {self._written}"
            )
        with device_errors(f"array `{self.path}`"):
            self._file.close()
            self._partial.replace(self.path)

    def rows(self, ids: NDArray[np.int64]) -> NDArray:
        """The rows `ids`, in that order; one small read for each."""
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

    @property
    def _partial(self) -> Path:
        return self.path.with_name(f".{self.path.name}.partial")
