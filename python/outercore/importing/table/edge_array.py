"""Edges in a `.npy` file as a table of two columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.files.large_arrays import forget
from outercore.files.npy import open_npy
from outercore.importing.table.exact import exactly
from outercore.importing.table.table import Missing

ENDS = ("source", "target")
"""What the columns are called."""
_ROWS = 1 << 18


@dataclass(frozen=True)
class EdgeArrayTable:
    """The two rows, or columns, of an array as columns of a table."""

    spec: FileSpec
    shape: EdgeShape | None = None
    """Which axis is that of the ends; `None`: the one of length 2."""

    @property
    def path(self) -> Path:
        """The file."""
        return self.spec.path

    @cached_property
    def _array(self) -> NDArray[Any]:
        """[2, edges] mapped from the file.

        Errors: `InvalidError` for an array of another shape or type.
        """
        found = open_npy(self.spec, "array")
        where = f"array `{self.path}`"
        if self.shape is None:
            if found.shape == (2, 2):
                raise InvalidError(
                    f"{where}: shape (2, 2) may be [2, edges] or [edges, 2]\n"
                    "hint: write the two edges as a text"
                )
            return found if oriented(where, found.shape, found.dtype) == "2,E" else found.T
        if found.dtype.kind not in "iu":
            raise InvalidError(f"{where}: expected whole numbers, found {found.dtype}")
        ends = found if self.shape == "2,E" else found.T
        if found.ndim != 2 or ends.shape[0] != 2:
            raise InvalidError(f"{where}: expected shape [{self.shape}], found {found.shape}")
        return ends

    @property
    def names(self) -> list[str]:
        """Source and target."""
        return list(ENDS)

    @property
    def is_named(self) -> bool:
        """Columns of an array are known by their places."""
        return True

    @property
    def rows(self) -> int:
        """The number of edges."""
        return int(self._array.shape[1])

    def dtype(self, name: str) -> np.dtype | None:
        """As `Table.dtype`."""
        return self._array.dtype

    def kind(self, name: str) -> str:
        """As `Table.kind`."""
        return str(self._array.dtype)

    def missing(self, name: str) -> int:
        """An array has no gaps."""
        return 0

    def numbers(
        self, columns: list[str], dtype: np.dtype, missing: Missing
    ) -> Iterator[NDArray[Any]]:
        """As `Table.numbers`."""
        places = [ENDS.index(name) for name in columns]
        for first in range(0, self.rows, _ROWS):
            part = np.stack([self._array[place, first : first + _ROWS] for place in places], axis=1)
            forget(self._array)
            yield exactly(part, dtype, f"array `{self.path}`", first)

    def texts(self, columns: list[str], empty: str | None = None) -> Iterator[list[pa.Array]]:
        """As `Table.texts`."""
        for rows in self.numbers(columns, self._array.dtype.newbyteorder("="), "nan"):
            yield [pa.array(column).cast(pa.large_string()) for column in rows.T]


EdgeShape = Literal["2,E", "E,2"]


def oriented(
    name: str, shape: tuple[int, ...], dtype: np.dtype, said: EdgeShape | None = None
) -> EdgeShape:
    """Which axis of an edge array is the ends'.

    Errors: `InvalidError` for another shape or type, or where both fit and nothing says which.
    """
    if len(shape) != 2 or 2 not in shape or dtype.kind not in "iu":
        raise InvalidError(
            f"{name}: expected integers [2, edges] or [edges, 2], found {dtype} {shape}"
        )
    if shape == (2, 2):
        if said is None:
            raise InvalidError(
                f"{name}: shape (2, 2) may be [2, edges] or [edges, 2]\n"
                "hint: say which: `--edge-shape 2,E` or `--edge-shape E,2`"
            )
        return said
    found: EdgeShape = "2,E" if shape[0] == 2 else "E,2"
    if said is not None and said != found:
        raise InvalidError(f"{name}: expected {said} by `--edge-shape`, found {shape}")
    return found
