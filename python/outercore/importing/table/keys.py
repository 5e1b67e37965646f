"""Reads columns of keys: as texts, or as the nodes that the keys name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.importing.table.table import Table
from outercore.importing.table.text import TextTable

_WHOLE = r"^([+-]?[0-9]+)\.0*$"
_MOST = 2.0**53
"""Floats hold all integers below this number."""


def key_texts(table: Table, columns: list[str], empty: str | None = None) -> Iterator[list[Any]]:
    """Batches of columns of keys as Arrow's large strings; `empty` replaces nulls.

    pandas writes integers with missing values as floats, so `1.0` is the key `1`.

    Errors: as `Table.texts`; `InvalidError` for a fraction in a column of floats.
    """
    dtypes = {name: table.dtype(name) for name in columns}
    floats = [name for name, dtype in dtypes.items() if dtype is not None and dtype.kind == "f"]
    if not floats:
        yield from table.texts(columns, empty)
        return
    streams = [
        _whole_texts(table, name, empty)
        if name in floats
        else (texts for (texts,) in table.texts([name], empty))
        for name in columns
    ]
    for parts in zip(*streams, strict=True):
        yield list(parts)


def _whole_texts(table: Table, name: str, empty: str | None) -> Iterator[Any]:
    """The integers in a column of floats as texts; `empty` replaces NaN."""
    if isinstance(table, TextTable):
        for (texts,) in table.texts([name], empty):
            yield pc.replace_substring_regex(texts, _WHOLE, r"\1")
        return
    row, where = 0, f"`{table.path}`: column `{name}`: row"
    for rows in table.numbers([name], np.dtype(np.float64), "nan"):
        values = rows[:, 0]
        missing = np.isnan(values)
        if missing.any() and empty is None:
            raise InvalidError(f"{where} {row + int(np.argmax(missing))} is empty, expected a name")
        wrong = ~missing & ((values != np.trunc(values)) | (np.abs(values) >= _MOST))
        if wrong.any():
            place = int(np.argmax(wrong))
            raise InvalidError(
                f"{where} {row + place}: {values[place]!s} is no key, expected whole numbers or "
                "texts\nhint: store the keys as integers or as texts"
            )
        texts = pa.array(values, mask=missing).cast(pa.int64()).cast(pa.large_string())
        yield texts if empty is None else texts.fill_null(empty)
        row += len(values)


Lookup = Callable[[Table, str], Iterator[NDArray[np.int64]]]
Called = Callable[[NDArray[np.int64]], Sequence[int | str]]


@dataclass(frozen=True)
class NodeIds:
    """Functions that convert the ids of tables to nodes, and nodes to ids for messages."""

    lookup: Lookup
    """Returns the nodes of a column of ids in batches. Ids are numbers or names."""
    called: Called
    """Returns the ids of nodes in the form of the tables, for messages."""


_Batch = TypeVar("_Batch", bound=Sized)
_SHOWN = 5


def numbered(first_id: int = 0, why: str = "") -> NodeIds:
    """Ids that are integers from `first_id`; `why` is the reason for ids from 1, for messages."""

    start = f": ids start at 1, {why}" if first_id else ""

    def ids(table: Table, key: str) -> Iterator[NDArray[np.int64]]:
        row = 0
        for batch in _numbers_in(table, key):
            column = batch - first_id
            wrong = np.flatnonzero(column < 0)
            if len(wrong):
                place = int(wrong[0])
                raise InvalidError(
                    f"`{table.path}`: row {row + place}: node id {batch[place]} in column "
                    f"`{key}`, expected {first_id} or more{start}"
                )
            row += len(column)
            yield column

    return NodeIds(ids, lambda nodes: (nodes + first_id).tolist())


def _numbers_in(table: Table, key: str) -> Iterator[NDArray[np.int64]]:
    """A column of integers in batches. Parquet may store them as texts.

    Errors: `InvalidError` for any other text.
    """
    if table.dtype(key) is not None:
        for batch in table.numbers([key], np.dtype(np.int64), "nan"):
            yield batch[:, 0]
        return
    for (texts,) in table.texts([key]):
        if not pc.all(pc.match_substring_regex(texts, "^[0-9]{1,18}$")).as_py():
            raise InvalidError(
                f"`{table.path}`: column `{key}` holds names, expected node ids\n"
                "hint: nodes with names: `--ids dictionary`"
            )
        yield texts.cast(pa.int64()).to_numpy()


@dataclass(frozen=True)
class KeyedRows:
    """The values of a table with ids, sorted into the order of the nodes.

    Cost: reads the table once for each range of nodes that fits in `memory`.
    """

    table: Table
    key: str
    width: int
    dtype: np.dtype
    values: Callable[[], Iterator[NDArray[Any]]]
    """Batches [rows, width] in the order of the file."""
    ids: NodeIds
    memory: int
    nodes: int | None
    """Number of nodes of the graph, if known."""
    absent: Any = None
    """The value of a node without a row; `None`: every node must have a row."""
    can_fill: bool = False
    """Whether the option `--fill` gives values to nodes without a row."""

    @cached_property
    def count(self) -> int:
        """Number of nodes: `nodes`, or else the largest id plus one. Then it reads the ids."""
        if self.nodes is not None:
            return self.nodes
        largest = max(
            (int(ids.max()) for ids in self.ids.lookup(self.table, self.key) if len(ids)),
            default=-1,
        )
        rows = self.table.rows
        if largest >= 4 * rows + 1024:
            raise InvalidError(
                f"`{self.table.path}`: the largest id in column `{self.key}` is "
                f"{self._listed(np.array([largest]))}, and "
                f"there are {rows:,} rows\nhint: nodes with sparse numbers: `--ids dictionary`"
            )
        return largest + 1

    def chunks(self) -> Iterator[NDArray[Any]]:
        """Rows [nodes, columns] in chunks, in the order of the nodes.

        Errors: `InvalidError` names ids that are repeated, out of range or missing.
        """
        count = self.count
        step = max(self.memory // (self.dtype.itemsize * self.width + 1), 1024)
        for first in range(0, count, step):
            yield self._share(first, min(first + step, count))

    def _share(self, first: int, last: int) -> NDArray[Any]:
        rows = np.zeros((last - first, self.width), self.dtype)
        met = np.zeros(last - first, bool)
        row = 0
        for ids, batch in alongside(self.ids.lookup(self.table, self.key), self.values()):
            if self.nodes is not None and len(ids) and int(ids.max()) >= self.nodes:
                place = int(np.argmax(ids >= self.nodes))
                raise InvalidError(
                    f"`{self.table.path}`: row {row + place}: column `{self.key}` names node "
                    f"{self._listed(ids[place : place + 1])}, the graph has nodes "
                    f"{self._range(self.nodes)}"
                )
            inside = (ids >= first) & (ids < last)
            places = ids[inside] - first
            self._refuse_doubles(places, met, first)
            rows[places] = batch[inside]
            met[places] = True
            row += len(ids)
        if not met.all():
            absent = np.flatnonzero(~met)
            if self.absent is None:
                hint = "give every node a row"
                hint += ", or a value: `--fill 0` or `--fill nan`" if self.can_fill else ""
                # `--one-based` helps only during an import, when the number of nodes is unknown.
                is_open = self.nodes is None
                if is_open and [*absent + first] == [0] and self.ids.called(absent) == [0]:
                    hint = "if ids start at 1: `--one-based`; else give every node a row"
                raise InvalidError(
                    f"`{self.table.path}`: column `{self.key}` has no row for "
                    f"{len(absent):,} nodes: {self._listed(absent + first)}\nhint: {hint}"
                )
            rows[absent] = self.absent
        return rows

    def _refuse_doubles(
        self, places: NDArray[np.int64], met: NDArray[np.bool_], first: int
    ) -> None:
        unique, counts = np.unique(places, return_counts=True)
        again = np.union1d(unique[counts > 1], places[met[places]])
        if len(again):
            raise InvalidError(
                f"`{self.table.path}`: column `{self.key}` has several rows for "
                f"{len(again):,} nodes: {self._listed(again + first)}\n"
                "hint: keep one row for each node"
            )

    def _range(self, nodes: int) -> str:
        first, *_, last = self.ids.called(np.array([0, nodes - 1]))
        return f"{first} to {last}"

    def _listed(self, nodes: NDArray[np.int64]) -> str:
        more = ", ..." if len(nodes) > _SHOWN else ""
        return ", ".join(map(str, self.ids.called(nodes[:_SHOWN]))) + more


def alongside(
    ids: Iterator[NDArray[np.int64]], batches: Iterator[_Batch]
) -> Iterator[tuple[NDArray[np.int64], _Batch]]:
    """Each batch with the ids of its rows. The batches of ids may have other lengths."""
    left = np.empty(0, np.int64)
    for batch in batches:
        while len(left) < len(batch):
            left = np.concatenate([left, next(ids)])
        yield left[: len(batch)], batch
        left = left[len(batch) :]
