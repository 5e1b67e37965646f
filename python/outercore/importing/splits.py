"""Opens splits: node ids, or a Boolean for each node, in separate files or in one archive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outercore.base.listing import listed
from outercore.base.shell import quoted
from outercore.data.split_names import KNOWN, normal_split
from outercore.errors import InvalidError
from outercore.files.atomic import missing_file
from outercore.files.file_spec import FileSpec
from outercore.files.input_file import is_there
from outercore.importing.graph_tables import NodeTable
from outercore.importing.keys import Column, column_of
from outercore.importing.labels import has_label
from outercore.importing.options import require_once
from outercore.importing.table.columns import NodeColumns, alphanumeric, id_column
from outercore.importing.table.exact import exactly
from outercore.importing.table.file_state import states
from outercore.importing.table.keys import NodeIds, alongside
from outercore.importing.table.npz import member_names, open_member
from outercore.importing.table.rows import (
    NodeArray,
    Reading,
    RowSource,
    from_array,
    is_array,
    npz_rows,
    open_node_table,
    open_rows,
    table_rows,
)
from outercore.importing.table.table import Table

_NAMES = {
    "train": ("train", "train_idx", "train_mask", "train_id", "train_ids"),
    "valid": ("valid", "val", "valid_idx", "val_idx", "valid_mask", "val_mask", "valid_id"),
    "test": ("test", "test_idx", "test_mask", "test_id", "test_ids"),
}


@dataclass(frozen=True)
class SplitChoice:
    """The values of `--split`."""

    single: tuple[str, ...] = ()
    """`NAME=FILE`."""
    archive: Path | None = None
    """A `.npz` of all splits."""

    @property
    def is_given(self) -> bool:
        """Whether the user gave any splits."""
        return self != SplitChoice()

    @classmethod
    def parse(cls, texts: list[str]) -> SplitChoice:
        """Reads the values of `--split`: `NAME=FILE`, or an archive of all splits.

        Errors: `InvalidError` for several archives, and for other texts.
        """
        # The path of an archive may have a `=`, too.
        single = [text for text in texts if "=" in text and not is_there(Path(text))]
        others = [text for text in texts if text not in single]
        archives = [text for text in others if text.lower().endswith(".npz")]
        neither = [text for text in others if text not in archives]
        if neither:
            raise InvalidError(
                "--split: expected NAME=FILE, such as `train=train.npy`, or an archive FILE.npz; "
                f"found `{neither[0]}`"
            )
        if len(archives) > 1:
            raise InvalidError(f"--split: expected one archive, found {', '.join(archives)}")
        return cls(tuple(single), Path(archives[0]) if archives else None)


def split_name(text: str) -> tuple[str, str]:
    """Name and file from `NAME=FILE`; synonyms such as `val` become `valid`.

    Errors: `InvalidError` for another form.
    """
    name, equals, file = text.partition("=")
    if not equals or not name:
        raise InvalidError(
            f"--split: expected NAME=FILE, such as `train=train.npy`, found `{text}`"
        )
    return normal_split(name), file


def open_split(name: str, file: str, reading: Reading) -> RowSource:
    """Opens the split `name` in a file of ids, or of true and false.

    If nodes have names, their order is the order of the rows; otherwise it is the order of ids.
    """
    spec = FileSpec.parse(file)
    if is_array(spec):
        return as_ids(open_rows(spec, replace(reading, fill=None)), reading)
    files = states(spec.path)
    table = open_node_table(spec, reading)
    columns = split_columns(name, spec, table, reading.key)
    if columns.mask is not None and columns.ids is None and reading.ids is not None:
        raise InvalidError(
            f"--split: `{file}`: column `{columns.mask}` counts rows, but nodes have names\n"
            "hint: add a column `id` with the names"
        )
    notes = [columns.described(name, table)]
    if columns.ids is not None and reading.ids is not None:
        chunks = partial(_by_name, table, columns, reading.ids)
        count = table.rows if columns.mask is None else None
        return RowSource(
            str(spec), np.dtype(np.int64), chunks, count=count, files=files, notes=notes
        )
    taken = NodeColumns(columns.ids if columns.mask else None, [columns.mask or columns.ids or ""])
    # A node without a row is not in the split.
    rows = table_rows(spec, table, taken, replace(reading, fill=None), absent=False)
    if columns.mask is None:
        rows = as_ids(rows, reading)
    else:
        rows = rows.changed(lambda chunk, _: chunk.astype(np.bool_), dtype=np.dtype(np.bool_))
    padded = 0 if columns.ids is None else table.padded(columns.ids)
    return replace(rows, files=files, notes=notes, padded=padded)


def _by_name(table: Table, columns: SplitColumns, ids: NodeIds) -> Iterator[NDArray[np.int64]]:
    """The ids of the nodes in the rows of a table that the mask selects."""
    assert columns.ids is not None
    nodes = ids.lookup(table, columns.ids)
    if columns.mask is None:
        yield from nodes
        return
    for of_rows, is_taken in alongside(nodes, _flags(table, columns.mask)):
        yield of_rows[is_taken]


def _flags(table: Table, mask: str) -> Iterator[NDArray[np.bool_]]:
    dtype = table.dtype(mask)
    assert dtype is not None
    for rows in table.numbers([mask], dtype, "nan"):
        yield rows[:, 0] != 0


@dataclass(frozen=True)
class SplitColumns:
    """The columns of a table that describe a split."""

    ids: str | None
    """The column of ids; `None`: row i is node i."""
    mask: str | None
    """The column that says which nodes belong to the split; `None`: all of `ids`."""

    def described(self, name: str, table: Table) -> str:
        """A note for the user on the use of the columns."""
        how = f"ids in column `{self.ids}`"
        if self.mask is not None:
            order = f", nodes by column `{self.ids}`" if self.ids else ""
            how = f"true and false in column `{self.mask}`{order}"
        return f"{table.path}: {table.described()}; split `{name}`: {how}"


def split_columns(name: str, spec: FileSpec, table: Table, key: str | None = None) -> SplitColumns:
    """The columns of split `name`: the chosen columns of `spec`, or else the only possible ones.

    `key` is the name of the column of ids, if the user gave it.

    Cost: reads a column that may be a mask of 0 and 1.
    Errors: `InvalidError` for a table that can be read in two ways.
    """
    key = id_column(table, key)
    chosen = list(spec.columns)
    if len(chosen) > 1:
        raise InvalidError(f"`{spec}`: expected one column for a split, found {len(chosen)}")
    others = [column for column in chosen or table.names if column != key]
    called = [column for column in others if _is_called(column, name)]
    is_single = len(table.names) == 1
    if len(called or others) == 1 and (chosen or key or is_single):
        (column,) = called or others
        # A column of 0 and 1 is rarely one of ids. In a table without a column of ids it may be.
        counts = bool(called or chosen) if key else column.lower().endswith("mask")
        if table.dtype(column) == np.bool_ or (counts and _is_zero_or_one(table, column)):
            if not chosen and not called:
                _refuse_other_split(name, spec, column)
            _require_whole(table, column)
            return SplitColumns(key, column)
    if chosen or is_single:
        return SplitColumns((chosen or table.names)[0], None)
    what = f"true and false for the ids in column `{key}`" if key else "a column `id` with a mask"
    raise InvalidError(
        f"`{spec}`: expected one column of node ids, or {what}; found "
        f"{', '.join(f'`{column}`' for column in table.names)}\n"
        f"hint: choose the column of ids: `--split {name}={spec}:{key or 'COLUMN'}`"
    )


def _is_called(column: str, split: str) -> bool:
    """Whether a column has a usual name: `train`, `is_train`, `train_mask`, or `mask`."""
    short = _short(column)
    return not short or normal_split(short) == normal_split(split)


def _short(column: str) -> str:
    return alphanumeric(column).removesuffix("mask").removeprefix("is").removeprefix("in")


def _refuse_other_split(name: str, spec: FileSpec, column: str) -> None:
    """Errors: `InvalidError` for a mask with the name of another split than `name`."""
    if normal_split(_short(column)) in KNOWN:
        raise InvalidError(
            f"`{spec}`: column `{column}` is called like another split than `{name}`\n"
            f"hint: if it is meant, choose it: `--split {name}={spec}:{column}`"
        )


def _require_whole(table: Table, column: str) -> None:
    """Errors: `InvalidError` for a mask with missing values."""
    if missing := table.missing(column):
        raise InvalidError(
            f"`{table.path}`: column `{column}` has no value in {missing:,} rows, expected true or "
            "false"
        )


def _is_zero_or_one(table: Table, column: str) -> bool:
    dtype = table.dtype(column)
    if dtype is None or dtype.kind not in "iu" or table.missing(column):
        return False
    return all(bool(np.isin(rows, (0, 1)).all()) for rows in table.numbers([column], dtype, "nan"))


def open_choice(choice: SplitChoice, reading: Reading) -> list[tuple[str, RowSource]]:
    """Opens all splits that the user gave: first the splits of the archive.

    Errors: `InvalidError` for a repeated name.
    """
    archive = [] if choice.archive is None else open_splits(choice.archive, reading)
    named = [split_name(text) for text in choice.single]
    require_once("--split", [name for name, _ in named])
    return archive + [(name, open_split(name, file, reading)) for name, file in named]


def open_splits(path: Path, reading: Reading) -> list[tuple[str, RowSource]]:
    """Opens the splits in an archive, by their usual names (`train`, `val_idx`, `test_mask`, ...).

    Errors: `InvalidError` if no array has a usual name.
    """
    if not path.exists():
        raise missing_file("archive", path)
    found = []
    known = member_names(path)
    for split, names in _NAMES.items():
        member = next((name for name in names if name in known), None)
        if member is not None:
            rows = npz_rows(open_member(path, (member,)))
            found.append((split, as_ids(rows, reading)))
    if not found:
        raise InvalidError(
            f"archive `{path}`: expected `train`, `valid` or `test`, found {listed(known)}\n"
            f"hint: name them by `--split train={quoted(path)}:NAME`"
        )
    return found


def as_ids(source: RowSource, reading: Reading) -> RowSource:
    """Node ids from 0 as integers; ids from 1 are converted. Masks do not change."""
    first = int(reading.text.one_based)
    is_float = source.dtype.kind == "f"
    if source.dtype.kind == "b" or not (first or is_float):
        return source

    def from_zero(chunk: NDArray, row: int) -> NDArray:
        if is_float and len(wrong := np.flatnonzero(chunk.ravel() != np.trunc(chunk.ravel()))):
            row += int(wrong[0]) // (source.width or 1)
            fraction = chunk.ravel()[wrong[0]]
            raise InvalidError(
                f"`{source.name}`: row {row}: expected whole numbers, found {fraction}"
            )
        ids = exactly(chunk, np.dtype(np.int64), f"`{source.name}`", row)
        if first and len(below := np.flatnonzero(ids.ravel() < first)):
            raise InvalidError(
                f"`{source.name}`: row {row + int(below[0])}: node id {ids.ravel()[below[0]]}, "
                f"expected 1 or more: ids start at 1, {reading.why_from_1}"
            )
        return ids - first

    return source.changed(from_zero, dtype=np.dtype(np.int64))


@dataclass(frozen=True)
class KeyedSplit:
    """A split whose nodes are named by keys."""

    name: str
    column: Column
    nodes: NodeTable
    has_header: bool = True
    """Whether the file has a header; otherwise its first line is a key."""

    def looked_up(self, rows: NDArray[np.int64]) -> NodeArray:
        """The split as an array of node ids. `rows` has the node of each key in its space.

        Errors: `InvalidError` for a key without a node.
        """
        rows = rows - self.nodes.first
        assert self.nodes.count is not None  # Types with keys have a table.
        missing = np.flatnonzero((rows < 0) | (rows >= self.nodes.count))
        if len(missing):
            row = int(missing[0])
            hint = "\nhint: if the first line names the columns: `--header`"
            raise InvalidError(
                f"--split {self.name}: {self.column.name}: row {row}: no node of type "
                f"`{self.column.node_type}` has the key `{self.column.key(row)}`"
                f"{hint if row == 0 and not self.has_header else ''}"
            )
        of_split = from_array(f"split `{self.name}`", rows)
        return NodeArray("split", self.name, of_split, self.column.node_type)


def open_splits_of_type(
    choice: SplitChoice, nodes: NodeTable, reading: Reading
) -> list[NodeArray | KeyedSplit]:
    """Opens the splits of the nodes of one type. Row numbers or keys name the nodes.

    Errors: `InvalidError` for a repeated split, and for a table without keys, ids or a mask.
    """
    reading = replace(reading, nodes=nodes.count, fill=None)
    archive = [] if choice.archive is None else open_splits(choice.archive, reading)
    found = [_of_rows(name, rows, nodes) for name, rows in archive]
    for name, file in map(split_name, choice.single):
        spec = FileSpec.parse(file)
        if nodes.key and is_array(spec):
            found.append(_of_rows(name, open_rows(spec, reading), nodes))
            continue
        by_key = _of_table(name, spec, nodes, reading) if nodes.key else None
        if by_key is None:
            by_key = NodeArray("split", name, open_split(name, file, reading), nodes.node_type)
        found.append(by_key)
    require_once("--split", [one.name for one in found])
    return found


def _of_rows(name: str, rows: RowSource, nodes: NodeTable) -> NodeArray | KeyedSplit:
    """A split from an array: a mask, or the keys of the nodes, or their ids without keys."""
    if not nodes.key or rows.dtype.kind == "b":
        return NodeArray("split", name, rows, nodes.node_type)
    if rows.dtype.kind not in "iu":
        raise InvalidError(f"--split {name}: expected keys, found {rows.dtype}")

    def texts() -> Iterator[Any]:
        for chunk in rows.chunks():
            yield pa.array(chunk).cast(pa.large_string())

    where = f"split `{name}` in `{rows.name}`"
    return KeyedSplit(name, Column(nodes.node_type, where, texts, space=nodes.space), nodes)


def _of_table(
    name: str, spec: FileSpec, nodes: NodeTable, reading: Reading
) -> NodeArray | KeyedSplit | None:
    """A split from a table of keys. A column of true and false may select some of the keys.

    `None`: the table has no keys, but a row for each node.
    """
    table = open_node_table(spec, reading)
    if len(nodes.key) > 1:
        columns, mask = _key_columns(name, spec, table, len(nodes.key)), None
    else:
        found = split_columns(name, spec, table, nodes.key[0])
        if found.ids is None:
            return None
        columns, mask = (found.ids,), found.mask
    column = column_of(nodes.node_type, table, columns, space=nodes.space)
    if mask is not None:
        column = _where_true(column, table, mask)
    return KeyedSplit(name, column, nodes, table.is_named)


def _where_true(column: Column, table: Table, mask: str) -> Column:
    """The keys in the rows that the column `mask` selects."""

    def texts() -> Iterator[Any]:
        flags = (flags.astype(np.int64) for flags in _flags(table, mask))
        for is_taken, keys in alongside(flags, column.texts()):
            yield keys.filter(pa.array(is_taken != 0))

    return replace(column, texts=texts)


def _key_columns(name: str, spec: FileSpec, table: Table, count: int) -> tuple[str, ...]:
    """The columns of a key that has `count` columns: the chosen columns, or all of the table.

    Errors: `InvalidError` for another number of columns.
    """
    if len(spec.columns) == count:
        return spec.columns
    if not spec.columns and len(table.names) == count:
        return tuple(table.names)
    found = f"{len(spec.columns)} chosen" if spec.columns else "none that is called so"
    raise InvalidError(
        f"--split {name}: `{spec.path}`: keys have {count} columns, found "
        f"{found}\nhint: name all: `--split NAME=FILE:{','.join(['COLUMN'] * count)}`"
    )


SHARES = (("train", 0.8), ("valid", 0.1), ("test", 0.1))
"""Shares of the labelled nodes, if no split is given."""


def random_splits(labels: NodeArray, task: str | None) -> list[NodeArray]:
    """Divides the labelled nodes at random. Equal labels always give equal splits."""
    nodes = _labelled_nodes(labels, task)
    shuffled = np.random.default_rng(0).permutation(nodes)
    splits, start = [], 0
    for place, (name, share) in enumerate(SHARES):
        later = len(SHARES) - 1 - place
        # Each split gets at least one node, if there are enough nodes.
        end = min(start + max(round(share * len(nodes)), 1), max(len(nodes) - later, start))
        end = end if later else len(nodes)
        own = np.sort(shuffled[start:end]).astype(np.int64)
        splits.append(NodeArray("split", name, from_array(f"split `{name}`", own), labels.of_type))
        start = end
    return splits


def splits_by_time(labels: NodeArray, times: RowSource, task: str | None) -> list[NodeArray] | None:
    """Divides the labelled nodes by time: the oldest for training, the newest for the test.

    Nodes with equal times are in the same split. Returns `None` if a split would be empty.

    Cost: 16 bytes of memory per node, and 40 per labelled node.
    """
    nodes = _labelled_nodes(labels, task)
    of_nodes = np.concatenate([np.empty(0, np.int64), *times.chunks()])[nodes]
    ordered = np.sort(of_nodes)
    splits, start, share = [], 0, 0.0
    for name, own_share in SHARES:
        share += own_share
        place = round(share * len(ordered))
        end = len(ordered)
        if place < len(ordered):
            end = int(np.searchsorted(ordered, ordered[place]))
        if end <= start:
            return None
        is_own = of_nodes >= ordered[start]
        if end < len(ordered):
            is_own &= of_nodes < ordered[end]
        splits.append(
            NodeArray("split", name, from_array(f"split `{name}`", nodes[is_own]), labels.of_type)
        )
        start = end
    return splits


def _labelled_nodes(labels: NodeArray, task: str | None) -> NDArray[np.int64]:
    """The nodes with a label, in ascending order."""
    labelled, first = [np.empty(0, np.int64)], 0
    for chunk in labels.rows.chunks():
        labelled.append(first + np.flatnonzero(has_label(chunk, task)))
        first += len(chunk)
    return np.concatenate(labelled)
