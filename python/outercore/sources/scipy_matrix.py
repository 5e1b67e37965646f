"""Sparse matrices as `scipy.sparse.save_npz` writes them, without SciPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.errors import CorruptError, InvalidError, UnsupportedError
from outercore.sources.npy import require_numbers
from outercore.sources.npz import open_member, read_member

_CHUNK = 1 << 20


@dataclass(frozen=True)
class SparseMatrix:
    """Row i, column j is an edge from i to j; its value is the weight."""

    format: str
    nodes: int
    dtype: np.dtype
    edges: Callable[[], Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]]
    values: Callable[[], Iterator[NDArray[Any]]]


def is_sparse_matrix(members: list[str]) -> bool:
    """Whether an archive with these arrays is a sparse matrix of SciPy."""
    return {"format", "shape", "data"} <= set(members)


def sparse_edges(path: Path) -> SparseMatrix:
    """The edges of a square sparse matrix in CSR, CSC or COO form.

    Cost: the row pointers are held in memory.
    Errors: `InvalidError` for a matrix that is not square; `UnsupportedError` for other forms.
    """
    kind = read_member(path, "format")[0]
    form = kind.decode() if isinstance(kind, bytes) else str(kind)
    rows, columns = (int(extent) for extent in read_member(path, "shape"))
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
    for name in listed:
        count = prod(open_member(path, (name,)).shape)
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
        pointers = read_member(path, "indptr").astype(np.int64)
        if len(pointers) != rows + 1 or pointers[0] != 0 or np.any(np.diff(pointers) < 0):
            raise CorruptError(f"`{path}`: `indptr` is no list of ascending positions")
        if pointers[-1] != prod(data.shape):
            raise CorruptError(
                f"`{path}`: {prod(data.shape):,} indices, `indptr` says {pointers[-1]:,}"
            )
        first = 0
        for chunk in open_member(path, ("indices",)).values(_CHUNK):
            places = np.arange(first, first + len(chunk))
            outer = np.searchsorted(pointers, places, side="right") - 1
            inner = inside(chunk)
            yield (outer, inner) if form == "csr" else (inner, outer)
            first += len(chunk)

    return SparseMatrix(form, rows, data.dtype.newbyteorder("="), edges, values)
