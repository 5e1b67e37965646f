"""Tables for other programs: `.npy`, Parquet or text, with names, block by block. No PyTorch."""

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
    arrow_names,
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
"""Numbers that are text at once: some 50 bytes each, in all the forms that they go through."""


def export(
    embedding: Embedding,
    path: str | os.PathLike[str],
    *,
    what: Kind = "entities",
    by_id: bool = False,
    overwrite: bool = False,
    progress: Progress = lambda *_: None,
) -> int:
    """Writes a table to `path` and returns its number of rows, which are in the order of ids.

    - `npy`: float32 [rows, width]; names in a second file `STEM.names.txt`, one a line.
    - `parquet`: columns `id` (int64), `name` (string) and `embedding` (a list of float32).
    - `csv`: columns `id`, the name where there is one, and `embedding_0`, `embedding_1`, ...
    - `tsv`: a line a row: name, then the numbers, in as many digits as bring them back exactly.

    Nodes without names have the ids of the imported files.
    Nodes of several types have names like `author:17`, relations like `author,writes,paper`.

    Args:
        embedding: what to write.
        path: where; its ending is the format. It appears once it is complete.
        what: `entities` or `relations`; of reciprocal relations the reverse ones follow the
            others, and their names end in ` (reverse)`.
        by_id: ids from 0, which are the rows, instead of names or the ids of files.
        overwrite: replace a file that is there.
        progress: told what is done.

    Cost: one sequential read of the table and one write; some tens of MiB of memory.

    Raises:
        InvalidError: the file exists, an unknown suffix, a name that a text cannot hold.
        NoSpaceError, DeviceError.

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
    # The names first: a reader that sees the table finds its names.
    for one in reversed(written):
        with whole_file(one) as file:
            match one.suffix.lower():
                case ".parquet":
                    _write_parquet(file, table, progress)
                case ".csv":
                    _write_csv(file, one, table, progress)
                case ".tsv":
                    _write_text(file, table, progress)
                case ".npy":
                    _write_npy(file, table, progress)
                case _:
                    _write_names(file, table)
    return table.rows


class _Table:
    """Rows of one of the tables with their names, in pieces."""

    def __init__(self, embedding: Embedding, what: Kind, *, by_id: bool) -> None:
        if what not in ("entities", "relations"):
            raise InvalidError(f"what: expected `entities` or `relations`, found `{what}`")
        self._embedding = embedding
        self._relations = what == "relations"
        self.named = not by_id and (embedding.named or embedding.typed)
        from_0 = by_id or self.named or self._relations
        self._first_id = 0 if from_0 else embedding.first_id
        shape = embedding.relations.shape if self._relations else embedding.entities.shape
        self.rows, self.width = int(shape[0]), int(shape[1])

    def pieces(self, rows: int | None = None) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """(First row, rows), in order; so many at a time, if the table is large."""
        if self._relations:
            yield 0, self._embedding.relations
        else:
            yield from self._embedding.blocks(rows)

    def ids(self, start: int, stop: int) -> NDArray[np.int64]:
        """Ids of these rows, from the first id of the files on."""
        return np.arange(start, stop) + self._first_id

    def names(self, start: int, stop: int) -> pa.Array:
        """Names of these rows; ids as text for rows without names."""
        if not self.named:
            return pa.array(self.ids(start, stop)).cast(pa.large_string())
        if not self._relations and self._embedding.named:
            return arrow_names(self._embedding.graph.entities, start, stop)
        if not self._relations:
            return pa.array(self._embedding.entity_names(np.arange(start, stop)), pa.large_string())
        count = self._embedding.num_relations
        names = pa.array(self._embedding.relation_names(np.arange(count)), pa.large_string())
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
    # Arrow has no lists of the fixed size 0, which are the rows of relations of `dot`.
    vectors = pa.list_(pa.float32(), table.width or -1)
    columns: list[tuple[str, Any]] = [("id", pa.int64()), ("embedding", vectors)]
    if table.named:
        columns.insert(1, ("name", pa.large_string()))
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns])
    # Numbers of a table look random: packing them takes time and gives nothing.
    packing = {name: "zstd" if name == "name" else "none" for name, _ in columns}
    packing["embedding.list.element"] = packing.pop("embedding")
    with pq.ParquetWriter(file, schema, compression=packing, use_dictionary=False) as writer:
        for first, rows in table.pieces():
            stop = first + len(rows)
            arrays = [pa.array(table.ids(first, stop)), _lists(rows)]
            if table.named:
                arrays.insert(1, table.names(first, stop))
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            progress("writing rows", stop, table.rows, "rows")


def _lists(rows: NDArray[np.float32]) -> pa.Array:
    """Rows as lists, of a fixed size where that is not 0."""
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
        ids = table.names(first, stop) if table.named else table.ids(first, stop)
        columns = dict(zip(names, rows.T.copy(), strict=True))
        writer.append({"id": ids, **columns})
        progress("writing rows", stop, table.rows, "rows")
    writer.close()


def _write_text(file: BinaryIO, table: _Table, progress: Progress) -> None:
    for first, rows in table.pieces(max(1, _TEXT_NUMBERS // max(table.width, 1))):
        stop = first + len(rows)
        names = lines_hold(table.names(first, stop), first)
        numbers = [pa.array(column).cast(pa.large_string()) for column in rows.T.copy()]
        write_lines(file, pc.binary_join_element_wise(names, *numbers, _text("\t")))
        progress("writing rows", stop, table.rows, "rows")


def _write_names(file: BinaryIO, table: _Table) -> None:
    for first, rows in table.pieces():
        stop = first + len(rows)
        write_lines(file, lines_hold(table.names(first, stop), first))


def _text(value: str) -> pa.Scalar:
    # Made where it is used: Arrow imports pandas for it, which takes longer than the command line.
    return pa.scalar(value, pa.large_string())
