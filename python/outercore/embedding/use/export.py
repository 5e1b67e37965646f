"""Exports tables with names as `.npy`, Parquet or text, block by block. Does not need PyTorch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outercore.base.native import Progress
from outercore.data.outputs import (
    TableWriter,
    check_output,
    check_place,
    lines_hold,
    write_lines,
)
from outercore.errors import InvalidError
from outercore.files.atomic import whole_file
from outercore.files.npy import NpyWriter

if TYPE_CHECKING:
    from outercore.embedding.use.embedding import Embedding, Kind

FORMATS = (".npy", ".parquet", ".csv", ".tsv")
_TEXT_NUMBERS = 1 << 18
"""Number of values that are converted to text together. Each takes about 50 bytes meanwhile."""


def export(
    embedding: Embedding,
    path: str | os.PathLike[str],
    *,
    what: Kind = "entities",
    by_id: bool = False,
    overwrite: bool = False,
    progress: Progress = lambda *_: None,
) -> int:
    """Writes a table to a file and returns its number of rows. Rows are in the order of ids.

    - `npy`: float32 [rows, width]. Names are in a second file `STEM.names.txt`, one per line.
    - `parquet`: columns `id` (int64), `name` (string) and `embedding` (a list of float32).
    - `csv`: columns `id`, the name if rows have names, and `embedding_0`, `embedding_1`, ...
    - `tsv`: one line per row: the name, then the values with enough digits to restore them.

    Nodes without names have the ids of the imported files. In a graph with several types, nodes
    have names like `author:17`, and relations like `author,writes,paper`.

    Args:
        embedding: the embedding.
        path: the file. Its ending is the format. It appears under this name when it is complete.
        what: `entities` or `relations`. Rows of reciprocal relations follow at the end; their names
            end with ` (reverse)`.
        by_id: write row numbers from 0 instead of names or ids of the imported files.
        overwrite: replace an existing file.
        progress: called with the progress.

    Cost: one sequential read of the table and one write; a few tens of MiB of memory.

    Raises:
        InvalidError: an existing file, an unknown ending, or a name that the text format cannot
            represent.
        NoSpaceError: the device is full.
        DeviceError: the device reports another error.

    Example:
        >>> import outercore as oc
        >>> from outercore.embedding import export
        >>> embedding = oc.Embedding.open(tiny_embedding)
        >>> export(embedding, tmp_path / "vectors.parquet")
        200
    """
    path = Path(path)
    check_output(path, FORMATS, overwrite=overwrite)
    table = _Table(embedding, what, by_id=by_id)
    written = [path]
    if path.suffix.lower() == ".npy" and table.named:
        written.append(path.with_suffix(".names.txt"))
        check_place(written[1], overwrite=overwrite)
    # Write names before the table, so that a reader of the table finds its names.
    for place in reversed(written):
        with whole_file(place) as file:
            match place.suffix.lower():
                case ".parquet":
                    _write_parquet(file, table, progress)
                case ".csv":
                    _write_csv(file, place, table, progress)
                case ".tsv":
                    _write_text(file, table, progress)
                case ".npy":
                    _write_npy(file, table, progress)
                case _:
                    _write_names(file, table)
    return table.rows


class _Table:
    """One of the tables, with the names of its rows."""

    def __init__(self, embedding: Embedding, what: Kind, *, by_id: bool) -> None:
        if what not in ("entities", "relations"):
            raise InvalidError(f"what: expected `entities` or `relations`, found `{what}`")
        self._embedding, self._by_id = embedding, by_id
        self._relations = what == "relations"
        self.named = not by_id and (embedding.named or embedding.typed)
        shape = embedding.relations.shape if self._relations else embedding.entities.shape
        self.rows, self.width = int(shape[0]), int(shape[1])

    def pieces(self, rows: int | None = None) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Pieces (first row, rows) in order. `rows`: rows per piece of a large table."""
        if self._relations:
            yield 0, self._embedding.relations
        else:
            yield from self._embedding.blocks(rows)

    def ids(self, start: int, stop: int) -> pa.Array:
        """Ids of the rows `start` to `stop`; without names, as in the imported files."""
        by_id = self._by_id or self.named or self._relations
        return self._embedding.labels(np.arange(start, stop), by_id=by_id)

    def labels(self, start: int, stop: int) -> pa.Array:
        """Names of the rows `start` to `stop`; without names, their ids."""
        if not self.named:
            return self.ids(start, stop)
        if not self._relations:
            return self._embedding.labels(np.arange(start, stop))
        count = self._embedding.num_relations
        names = self._embedding.labels(np.arange(count), "relation")
        if self.rows > count:
            reverse = pc.binary_join_element_wise(names, _text("(reverse)"), _text(" "))
            names = pa.concat_arrays([names, reverse])
        return names[start:stop]


def _write_npy(file: BinaryIO, table: _Table, progress: Progress) -> None:
    writer = NpyWriter(file, (table.rows, table.width), "<f4")
    for first, rows in table.pieces():
        writer.append(rows)
        progress("writing rows", first + len(rows), table.rows, "rows")


def _write_parquet(file: BinaryIO, table: _Table, progress: Progress) -> None:
    # Relations of `dot` have 0 values, and Arrow has no lists of the fixed size 0.
    vectors = pa.list_(pa.float32(), table.width or -1)
    columns: list[tuple[str, Any]] = [("id", pa.int64()), ("embedding", vectors)]
    if table.named:
        columns.insert(1, ("name", pa.large_string()))
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns])
    # The values of a table look random: compression takes time and does not save space.
    packing = {name: "zstd" if name == "name" else "none" for name, _ in columns}
    packing["embedding.list.element"] = packing.pop("embedding")
    with pq.ParquetWriter(file, schema, compression=packing, use_dictionary=False) as writer:
        for first, rows in table.pieces():
            stop = first + len(rows)
            arrays = [table.ids(first, stop), _lists(rows)]
            if table.named:
                arrays.insert(1, table.labels(first, stop))
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            progress("writing rows", stop, table.rows, "rows")


def _lists(rows: NDArray[np.float32]) -> pa.Array:
    """Rows as Arrow lists: of a fixed size, unless the size is 0."""
    flat = pa.array(rows.reshape(-1))
    if rows.shape[1]:
        return pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])
    return pa.ListArray.from_arrays(np.zeros(len(rows) + 1, np.int32), flat)


def _write_csv(file: BinaryIO, path: Path, table: _Table, progress: Progress) -> None:
    names = [f"embedding_{place}" for place in range(table.width)]
    kinds = {"id": pa.large_string() if table.named else pa.int64()}
    schema = pa.schema([*(kinds | dict.fromkeys(names, pa.float32())).items()])
    writer = TableWriter(path, file, schema)
    for first, rows in table.pieces(max(1, _TEXT_NUMBERS // max(table.width, 1))):
        stop = first + len(rows)
        columns = dict(zip(names, rows.T.copy(), strict=True))
        writer.append({"id": table.labels(first, stop), **columns})
        progress("writing rows", stop, table.rows, "rows")
    writer.close()


def _write_text(file: BinaryIO, table: _Table, progress: Progress) -> None:
    for first, rows in table.pieces(max(1, _TEXT_NUMBERS // max(table.width, 1))):
        stop = first + len(rows)
        names = lines_hold(table.labels(first, stop).cast(pa.large_string()), first)
        numbers = [pa.array(column).cast(pa.large_string()) for column in rows.T.copy()]
        write_lines(file, pc.binary_join_element_wise(names, *numbers, _text("\t")))
        progress("writing rows", stop, table.rows, "rows")


def _write_names(file: BinaryIO, table: _Table) -> None:
    for first, rows in table.pieces():
        stop = first + len(rows)
        write_lines(file, lines_hold(table.labels(first, stop), first))


def _text(value: str) -> pa.Scalar:
    # Created on use: Arrow imports pandas for it, which takes longer than the rest of the command.
    return pa.scalar(value, pa.large_string())
