"""Reads edges in a `.npy` file as a table of two columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.files.large_arrays import forget
from outercore.files.npy import open_npy
from outercore.importing.table.exact import exactly
from outercore.importing.table.file_state import FileState, states
from outercore.importing.table.table import Missing, Numbers, Table

EdgeShape = Literal["2,E", "E,2"]
"""Whether sources and targets are the two rows or the two columns of an edge array."""
ENDS = ("source", "target")
"""The names of the columns."""
_ROWS = 1 << 18


@dataclass(frozen=True)
class EdgeArrayTable(Table):
    """The ends of edges in an array as columns of a table."""

    ends: NDArray[Any]
    """Integers [2, edges]."""
    files: tuple[FileState, ...] = ()
    """The file, in the state in which it was opened."""

    @classmethod
    def open(
        cls, spec: FileSpec, shape: EdgeShape | None = None, what: str = "array"
    ) -> EdgeArrayTable:
        """Opens the edges of a `.npy` file. Without a `shape`, the axis of length 2 has the ends.

        Errors: `InvalidError` for an array of another shape or type; `what` names it there.
        """
        files = states(spec.path)
        array, where = open_npy(spec, what), f"{what} `{spec.path}`"
        if shape is None:
            if array.shape == (2, 2):
                raise InvalidError(
                    f"{where}: shape (2, 2) may be [2, edges] or [edges, 2]\n"
                    "hint: write the two edges as a text"
                )
            shape = oriented(where, array.shape, array.dtype)
        if array.dtype.kind not in "iu":
            raise InvalidError(f"{where}: expected whole numbers, found {array.dtype}")
        ends = array if shape == "2,E" else array.T
        if array.ndim != 2 or ends.shape[0] != 2:
            raise InvalidError(f"{where}: expected shape [{shape}], found {array.shape}")
        return cls(spec.path, ends, files)

    @property
    def names(self) -> list[str]:
        """The names of the two columns: source and target."""
        return list(ENDS)

    @property
    def rows(self) -> int:
        """The number of edges."""
        return int(self.ends.shape[1])

    def dtype(self, name: str) -> np.dtype | None:
        """As `Table.dtype`."""
        return self.ends.dtype

    def described(self, *, has_names: bool = False) -> str:
        """As `Table.described`."""
        return "array"

    def numbers(self, columns: list[str], dtype: np.dtype, missing: Missing) -> Numbers:
        """As `Table.numbers`."""
        places = [ENDS.index(name) for name in columns]
        for first in range(0, self.rows, _ROWS):
            part = np.stack([self.ends[place, first : first + _ROWS] for place in places], axis=1)
            forget(self.ends)
            yield exactly(part, dtype, f"array `{self.path}`", first)

    def texts(self, columns: list[str], empty: str | None = None) -> Iterator[list[pa.Array]]:
        """As `Table.texts`."""
        for rows in self.numbers(columns, self.ends.dtype.newbyteorder("="), "nan"):
            yield [pa.array(column).cast(pa.large_string()) for column in rows.T]


def oriented(
    name: str, shape: tuple[int, ...], dtype: np.dtype, said: EdgeShape | None = None
) -> EdgeShape:
    """Whether an edge array has the shape [2, E] or [E, 2]; `said` is the option of the user.

    Errors: `InvalidError` for another shape or type, and for the shape [2, 2] without the option.
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
