"""Reads sparse matrices of `scipy.sparse.save_npz` without SciPy: as edges, or as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.errors import CorruptError, InvalidError, UnsupportedError
from outercore.files.file_spec import FileSpec
from outercore.files.npy import require_numbers
from outercore.importing.table.file_state import states
from outercore.importing.table.npz import NpzMember, member_names, open_member, read_member
from outercore.importing.table.rows import RowSource
from outercore.importing.table.text import suffix_of

_CHUNK = 1 << 20
_CHUNK_BYTES = 8 << 20
_WIDEST = 1 << 28
"""Largest size of a dense row in bytes."""


@dataclass(frozen=True)
class SparseMatrix:
    """A sparse matrix as a graph: the value at row i, column j is the weight of edge i to j."""

    format: str
    nodes: int
    dtype: np.dtype
    edges: Callable[[], Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]]
    values: Callable[[], Iterator[NDArray[Any]]]


def is_sparse_matrix(members: list[str]) -> bool:
    """Whether an archive with arrays of these names is a sparse matrix of SciPy."""
    return {"format", "shape", "data"} <= set(members)


def _form_and_shape(path: Path) -> tuple[str, tuple[int, int]]:
    """The form of a matrix, such as `csr`, and its numbers of rows and columns.

    Errors: `CorruptError` for content that SciPy does not write.
    """
    form, shape = open_member(path, ("format",)), open_member(path, ("shape",))
    if prod(form.shape) != 1 or form.dtype.kind not in "SU" or form.dtype.itemsize > 64:
        raise CorruptError(f"{form}: expected the form of a matrix, found {form.dtype}")
    if prod(shape.shape) != 2 or shape.dtype.kind not in "iu":
        raise CorruptError(f"{shape}: expected two whole numbers, found {shape.dtype}")
    rows, columns = (int(extent) for extent in read_member(path, "shape"))
    if not (0 <= rows < 2**62 and 0 <= columns < 2**62):
        raise CorruptError(f"{shape}: found {rows} x {columns}")
    kind = read_member(path, "format")[0]
    return kind.decode("latin1") if isinstance(kind, bytes) else str(kind), (rows, columns)


def sparse_edges(path: Path) -> SparseMatrix:
    """Opens the edges of a square sparse matrix in CSR, CSC or COO form.

    Cost: reads in chunks, so the matrix may have any size.
    Errors: `InvalidError` for a matrix that is not square; `UnsupportedError` for other forms.
    """
    form, (rows, columns) = _form_and_shape(path)
    if rows != columns:
        raise InvalidError(
            f"`{path}`: the matrix is {rows} x {columns}, expected a square one (one row and "
            "column a node)"
        )
    data = open_member(path, ("data",))
    if form not in ("csr", "csc", "coo"):
        raise UnsupportedError(
            f"`{path}`: a sparse matrix of form `{form}`, expected csr, csc or coo\n"
            "hint: save `matrix.tocsr()`"
        )
    require_numbers(f"`{path}`: values of the matrix", data.dtype)
    listed = ("row", "col") if form == "coo" else ("indices",)
    for name in (*listed, *(() if form == "coo" else ("indptr",))):
        member = open_member(path, (name,))
        if member.dtype.kind not in "iu":
            raise CorruptError(f"{member}: expected whole numbers, found {member.dtype}")
        if name == "indptr":
            continue
        count = prod(member.shape)
        if count != prod(data.shape):
            raise CorruptError(f"`{path}`: {count:,} in `{name}`, {prod(data.shape):,} in `data`")

    def values() -> Iterator[NDArray[Any]]:
        for chunk in data.values(_CHUNK):
            yield chunk.reshape(-1, 1)

    def inside(places: NDArray[Any]) -> NDArray[np.int64]:
        if len(places) and int(places.max()) >= rows:
            raise CorruptError(f"`{path}`: position {places.max()}, the matrix has {rows:,} rows")
        return places.astype(np.int64)

    def edges() -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        if form == "coo":
            pairs = zip(
                open_member(path, ("row",)).values(_CHUNK),
                open_member(path, ("col",)).values(_CHUNK),
                strict=True,
            )
            for row, column in pairs:
                yield inside(row), inside(column)
            return
        indices = _Values(open_member(path, ("indices",)))
        for first, bounds in _pointers(path, rows, prod(data.shape)):
            place, last = int(bounds[0]), int(bounds[-1])
            while place < last:
                inner = inside(indices.take(last - place))
                places = np.arange(place, place + len(inner))
                outer = first + np.searchsorted(bounds, places, side="right") - 1
                yield (outer, inner) if form == "csr" else (inner, outer)
                place += len(inner)

    return SparseMatrix(form, rows, data.dtype.newbyteorder("="), edges, values)


def _pointers(path: Path, rows: int, count: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The array `indptr` in chunks: the first row, and the bounds of the entries of its rows.

    Errors: `CorruptError` unless it ascends from 0 to `count` and has `rows` + 1 values.
    """
    member = open_member(path, ("indptr",))
    if prod(member.shape) != rows + 1:
        raise CorruptError(f"{member}: {prod(member.shape):,} positions, expected {rows + 1:,}")
    wrong = CorruptError(f"`{path}`: `indptr` is no list of ascending positions")
    first = last = 0
    for chunk in member.values(_CHUNK):
        # The last bound of the previous chunk is the first bound of this chunk.
        before = np.array([last] if first else [], np.int64)
        bounds = np.concatenate([before, chunk.astype(np.int64)])
        if (not first and bounds[0] != 0) or np.any(np.diff(bounds) < 0):
            raise wrong
        yield max(first - 1, 0), bounds
        first, last = first + len(chunk), int(bounds[-1])
    if last != count:
        raise CorruptError(f"`{path}`: {count:,} indices, `indptr` says {last:,}")


class _Values:
    def __init__(self, member: NpzMember) -> None:
        self._member, self._chunks = member, member.values(_CHUNK)
        self._rest: NDArray[Any] = np.empty(0, np.int64)

    def take(self, most: int) -> NDArray[Any]:
        """The next values, at least one and at most `most`."""
        if not len(self._rest):
            self._rest = next(self._chunks, self._rest)
        if not len(self._rest):
            raise CorruptError(f"{self._member}: fewer than `indptr` says")
        found, self._rest = self._rest[:most], self._rest[most:]
        return found


def is_sparse(spec: FileSpec) -> bool:
    """Whether a file is a sparse matrix in the format of `scipy.sparse.save_npz`."""
    return (
        suffix_of(spec.path) == ".npz"
        and not spec.columns
        and is_sparse_matrix([*member_names(spec.path)])
    )


def sparse_rows(path: Path) -> RowSource:
    """The rows of a CSR matrix, as dense rows.

    Shapes: [rows, columns] of the type of its values.
    Cost: keeps the matrix in memory in its sparse form.
    Errors: `UnsupportedError` for another form; `CorruptError` for an index outside the matrix.
    """
    form, (count, width) = _form_and_shape(path)
    if form != "csr":
        raise UnsupportedError(
            f"`{path}`: a sparse matrix of form `{form}`, expected csr\nhint: save `matrix.tocsr()`"
        )
    pointers, indices, data = (read_member(path, name) for name in ("indptr", "indices", "data"))
    require_numbers(f"`{path}`: values of the matrix", data.dtype)
    if pointers.dtype.kind not in "iu" or indices.dtype.kind not in "iu":
        raise CorruptError(f"`{path}`: `indptr` and `indices` are no whole numbers")
    if width * data.dtype.itemsize > _WIDEST:
        raise CorruptError(f"`{path}`: a row of {width:,} columns, expected at most {_WIDEST:,} B")
    ends = np.asarray(pointers, np.int64)
    if len(ends) != count + 1 or ends[0] != 0 or (np.diff(ends) < 0).any():
        raise CorruptError(f"`{path}`: row pointers that do not fit {count} rows")
    if len(indices) != ends[-1] or len(data) != ends[-1]:
        raise CorruptError(f"`{path}`: {len(indices)} indices, expected {ends[-1]}")
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < width:
        raise CorruptError(f"`{path}`: a column outside the {width} of the matrix")
    step = max(_CHUNK_BYTES // max(width * data.dtype.itemsize, 1), 1)

    def chunks() -> Iterator[NDArray]:
        for first in range(0, count, step):
            last = min(first + step, count)
            rows = np.zeros((last - first, width), data.dtype)
            own = slice(ends[first], ends[last])
            places = np.repeat(np.arange(last - first), np.diff(ends[first : last + 1]))
            # Repeated entries are added, as in SciPy.
            np.add.at(rows, (places, indices[own]), data[own])
            yield rows

    return RowSource(
        str(path),
        data.dtype,
        chunks,
        width=width,
        count=count,
        notes=[f"{path}: SciPy csr matrix, {count:,} rows of {width:,} features"],
        files=states(path),
    )
