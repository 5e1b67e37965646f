"""Features in a sparse matrix of SciPy, as rows that have all their zeros."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outercore.errors import CorruptError, UnsupportedError
from outercore.files.file_spec import FileSpec
from outercore.files.npy import require_numbers
from outercore.importing.table.file_state import states
from outercore.importing.table.npz import member_names, read_member
from outercore.importing.table.rows import RowSource
from outercore.importing.table.scipy_matrix import form_and_shape, is_sparse_matrix
from outercore.importing.table.text import suffix_of

_CHUNK_BYTES = 8 << 20
_WIDEST = 1 << 28
"""Bytes of a row with all its zeros."""


def is_sparse(spec: FileSpec) -> bool:
    """Whether a file is a sparse matrix as `scipy.sparse.save_npz` writes it."""
    return (
        suffix_of(spec.path) == ".npz"
        and not spec.columns
        and is_sparse_matrix([*member_names(spec.path)])
    )


def sparse_rows(path: Path) -> RowSource:
    """The rows of a CSR matrix.

    Shapes: [rows, columns] of the type of its values.
    Cost: the matrix is held in memory in its sparse form.
    Errors: `UnsupportedError` for another form; `CorruptError` for an index outside the matrix.
    """
    form, (count, width) = form_and_shape(path)
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
            # An entry that stands twice counts twice, as in SciPy.
            np.add.at(rows, (places, indices[own]), data[own])
            yield rows

    return RowSource(
        str(path),
        data.dtype,
        width,
        count,
        chunks,
        notes=[f"{path}: SciPy csr matrix, {count:,} rows of {width:,} features"],
        files=states(path),
    )
