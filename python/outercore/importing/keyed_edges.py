"""Edges of each type. Keys name their ends, and a dictionary gives the row of each key."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outercore.base.native import Importer
from outercore.base.shell import quoted
from outercore.data.edge_types import REVERSE, EdgeType, edge_type_key
from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.files.large_arrays import blocks
from outercore.importing.graph_tables import EdgeTable, NodeTable
from outercore.importing.keys import (
    EMPTY,
    NO_NODE,
    Column,
    Keys,
    column_of,
    columns_in_words,
)
from outercore.importing.table.file_state import FileState
from outercore.importing.table.keys import key_texts
from outercore.importing.table.rows import NodeArray, RowSource, common_type, without_gaps
from outercore.importing.table.table import Table
from outercore.importing.table.times import TIME, has_gaps, has_times, time_values, type_of_times

_ROWS = 1 << 17
_LOOKED_AT = 1000
"""Number of first rows that are compared with known keys, to suggest columns in an error."""
Dangling = Literal["refuse", "drop"]
"""Treatment of edges with an unknown end."""


@dataclass(frozen=True)
class Dropped:
    """Rows of an edge type that do not become edges."""

    no_node: int
    """Number of rows with a key that no node has."""
    no_key: int
    """Number of rows without a key: an empty field, or a null."""


@dataclass(frozen=True)
class Ends:
    """The edges of one table. It finds the nodes of their ends."""

    table: EdgeTable
    uses: tuple[int | None, int | None]
    """For each end, the index of its column of keys in `Keys`. `None`: the column has numbers of
    nodes, or the end is the row of the edge."""
    parts: tuple[range | None, range | None] = (None, None)
    """For each end, the range of its node type among all nodes of its space of keys; `None`: all.
    Rows with ends outside are edges of other types."""
    is_counting: bool = True
    """Whether this object counts unknown keys. If a table has rows of several edge types, only one
    of its objects counts them."""

    def batches(self, keys: Keys) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Sources and targets in batches; a negative number for an unknown or empty key."""
        first = 0
        for count, numbers in self._numbers(keys):
            part, place = slice(first, first + count), 0
            ends = []
            for end, columns in enumerate((self.table.source, self.table.target)):
                if (use := self.uses[end]) is not None:
                    ends.append(keys.part(use, part))
                elif columns:
                    ends.append(np.ascontiguousarray(numbers[:, place]))
                    place += 1
                else:
                    ends.append(np.arange(first, first + count))
            first += count
            yield ends[0], ends[1]

    def _numbers(self, keys: Keys) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """For each batch, its number of rows, and the values of the ends without keys."""
        ends = zip((self.table.source, self.table.target), self.uses, strict=True)
        plain = [name for columns, use in ends if use is None for name in columns]
        if plain:
            for numbers in self.table.table.numbers(plain, np.dtype(np.int64), "nan"):
                yield len(numbers), numbers
            return
        total = len(keys.rows(next(use for use in self.uses if use is not None)))
        for first in range(0, total, _ROWS):
            yield min(_ROWS, total - first), np.empty((0, 0), np.int64)

    def with_both_ends(self, keys: Keys, part: slice) -> NDArray[np.bool_] | None:
        """Mask of the rows of a part that have both ends; `None` for all rows."""
        found = [
            self.of_type(end, keys.part(use, part))
            for end, use in enumerate(self.uses)
            if use is not None
        ]
        return np.logical_and.reduce(found) if found else None

    def of_type(self, end: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Mask of the rows whose node at this end (0: source, 1: target) is of its type."""
        part = self.parts[end]
        return rows >= 0 if part is None else (rows >= part.start) & (rows < part.stop)


@dataclass(frozen=True)
class KeyedEdges:
    """All edges of one type, from one or more tables."""

    edge_type: EdgeType
    ends: tuple[Ends, ...]
    reverse: bool
    """Whether sources and targets are exchanged."""

    @property
    def key(self) -> str:
        """The name of the edge type in keys."""
        return edge_type_key(self.edge_type)

    @property
    def files(self) -> tuple[FileState, ...]:
        """The files of all tables, in the state in which they were opened."""
        return tuple(state for ends in self.ends for state in ends.table.files)

    def feed(self, importer: Importer, keys: Keys, dangling: Dangling) -> Dropped:
        """Passes the edges to the importer. Returns the numbers of dropped rows.

        Errors: `InvalidError` for an end that is not a node, unless `dangling` is `drop`.
        """
        importer.begin_edge_type(self.key)
        no_node = no_key = rows_of_all = 0
        for ends in self.ends:
            first = 0
            for sources, targets in ends.batches(keys):
                missing = np.zeros(len(sources), np.bool_)
                empty = np.zeros(len(sources), np.bool_)
                kept = np.ones(len(sources), np.bool_)
                # Ends without keys are numbers of nodes, and the core checks their range.
                for end, rows in enumerate((sources, targets)):
                    if ends.uses[end] is None:
                        continue
                    kept &= ends.of_type(end, rows)
                    if ends.is_counting:
                        missing |= rows < 0
                        empty |= rows == EMPTY
                    if (part := ends.parts[end]) is not None:
                        rows -= part.start
                wrong = missing & ~empty if ends.table.is_optional else missing
                if wrong.any() and dangling == "refuse":
                    raise _no_node(ends, first + int(np.flatnonzero(wrong)[0]), keys)
                no_key += int(empty.sum())
                no_node += int((missing & ~empty).sum())
                first += len(sources)
                rows_of_all += len(sources)
                both = sources[kept], targets[kept]
                importer.push_edges(*(both[::-1] if self.reverse else both))
        if 2 * no_node > rows_of_all:
            raise InvalidError(
                f"edges `{','.join(self.edge_type)}`: {no_node:,} of {rows_of_all:,} rows have "
                "keys that no node has, more than half\nhint: are the keys of both ends those of "
                "the tables of nodes? Otherwise take these rows out of the file"
            )
        return Dropped(no_node, no_key)

    def arrays(self, keys: Keys, fill: float | None) -> tuple[list[NodeArray], list[str]]:
        """Edge arrays from the other columns of numbers, and the names of ignored columns.

        `fill` replaces missing numbers. Columns of dates with gaps are ignored, except the chosen
        time. A reverse edge has the values of its edge: without the time, samples could see the
        future.
        """
        filled = self._filled()
        timed = filled[0].table.time
        arrays = []
        if timed is not None:
            arrays.append(NodeArray("edge", TIME, self._column(timed, keys, None), self.key))
        shared = [
            name
            for name in filled[0].table.others
            if all(name in ends.table.others for ends in filled)
            and not (name == TIME and timed is not None)
        ]
        named = {name for ends in self.ends for name in ends.table.others}
        numbers = [
            name
            for name in shared
            if all(_has_values(ends.table.table, name) for ends in filled)
            and not any(has_gaps(ends.table.table, name) for ends in filled)
        ]
        arrays += [
            NodeArray("edge", name, self._column(name, keys, fill), self.key) for name in numbers
        ]
        return arrays, sorted(named - set(numbers))

    def _filled(self) -> list[Ends]:
        """The tables with rows, which show the column types; the first table if all are empty."""
        return [ends for ends in self.ends if ends.table.table.rows] or [self.ends[0]]

    def _column(self, name: str, keys: Keys, fill: float | None) -> RowSource:
        filled = self._filled()
        is_chosen = name == filled[0].table.time
        times = {is_chosen or has_times(ends.table.table, name) for ends in filled}
        if times == {True}:
            dtype = np.dtype(np.int64)
        else:
            dtype = np.result_type(*{common_type(ends.table.table, [name]) for ends in filled})
        if len(times) > 1:
            paths = " and ".join(f"`{ends.table.spec.path}`" for ends in filled)
            raise InvalidError(f"{paths}: column `{name}` holds times in one of them only")

        def chunks() -> Iterator[NDArray]:
            for ends in filled:
                first = 0
                table = ends.table.table
                if True in times:
                    batches = time_values(table, name)
                else:
                    batches = (rows[:, 0] for rows in table.numbers([name], dtype, "nan"))
                for values in batches:
                    kept = ends.with_both_ends(keys, slice(first, first + len(values)))
                    first += len(values)
                    values = without_gaps(values if kept is None else values[kept], fill)
                    yield np.ascontiguousarray(values)

        stored = type_of_times(filled[0].table.table, name) if True in times else None
        return RowSource(
            f"{self.ends[0].table.spec}:{name}", dtype, chunks, files=self.files, times=stored
        )


def _has_values(table: Table, name: str) -> bool:
    return table.dtype(name) is not None or has_times(table, name)


def edges_of_types(
    tables: list[EdgeTable], nodes: dict[str, NodeTable], *, add_reverse: bool
) -> tuple[list[KeyedEdges], list[Column]]:
    """The edge types in the order of their keys, and the columns of keys that they use.

    Errors: `InvalidError` if a reverse edge type exists already.
    """
    uses: list[Column] = []
    ends: dict[EdgeType, list[Ends]] = {}
    for one in tables:
        numbers: list[int | None] = []
        for columns, node_type in ((one.source, one.edge_type[0]), (one.target, one.edge_type[2])):
            if not columns or not nodes[node_type].key:
                numbers.append(None)
                continue
            numbers.append(len(uses))
            uses.append(column_of(node_type, one.table, columns, may_be_empty=True))
        ends.setdefault(one.edge_type, []).append(Ends(one, (numbers[0], numbers[1])))
    return with_reverse(ends, add_reverse=add_reverse), uses


def with_reverse(ends: dict[EdgeType, list[Ends]], *, add_reverse: bool) -> list[KeyedEdges]:
    """The edge types in the order of their keys, with reverse edge types if `add_reverse`.

    Errors: `InvalidError` if a reverse edge type exists already.
    """
    found = [KeyedEdges(edge_type, tuple(of), reverse=False) for edge_type, of in ends.items()]
    if add_reverse:
        for source, relation, target in ends:
            reverse = (target, f"{REVERSE}{relation}", source)
            if reverse in ends:
                raise InvalidError(
                    f"--add-reverse: edge type {','.join(reverse)} is given, too\n"
                    "hint: leave it out, or leave out `--add-reverse`"
                )
            of = tuple(ends[source, relation, target])
            found.append(KeyedEdges(reverse, of, reverse=True))
    return sorted(found, key=lambda one: one.key)


def _other_ends(table: EdgeTable, keys: Keys) -> str | None:
    """A hint with the first two columns that hold known keys; `None` if the table uses these."""
    first: dict[str, Any] = {}
    for name in table.table.names:
        # Columns such as fractions cannot be keys.
        with contextlib.suppress(InvalidError):
            (texts,) = next(key_texts(table.table, [name], ""))
            first[name] = texts.slice(0, _LOOKED_AT)
    ends: list[str] = []
    for node_type in (table.edge_type[0], table.edge_type[2]):
        of_type = (name for name, texts in first.items() if keys.are_known(node_type, texts))
        ends.append(next((name for name in of_type if name not in ends), ""))
    if "" in ends or (*ends,) == (*table.source, *table.target):
        return None
    chosen = quoted(str(FileSpec(table.spec.path, tuple(ends))))
    return f"columns `{ends[0]}` and `{ends[1]}` hold keys of nodes, so choose them: `{chosen}`"


def _no_node(ends: Ends, row: int, keys: Keys) -> InvalidError:
    """The error for a row with an unknown or empty key."""
    table = ends.table
    for columns, node_type, end in (
        (table.source, table.edge_type[0], 0),
        (table.target, table.edge_type[2], 1),
    ):
        use = ends.uses[end]
        if use is None or keys.rows(use)[row] >= 0:
            continue
        where = f"`{table.spec}`: {columns_in_words(columns)}: row {row}"
        if keys.rows(use)[row] == EMPTY:
            return InvalidError(
                f"{where} is empty, expected a key of type `{node_type}`\n"
                "hint: `--dangling drop` leaves such edges out and counts them"
            )
        key = column_of(node_type, table.table, columns, may_be_empty=True).key(row)
        parts = (part for _, part in blocks(keys.rows(use), _ROWS))
        others = sum(np.count_nonzero(part == NO_NODE) for part in parts) - 1
        more = f", and {others:,} more rows have such keys" if others else ""
        hint = "`--dangling drop` leaves such edges out and counts them"
        if 2 * (others + 1) > len(keys.rows(use)):
            # Most keys are unknown, so the column or the file is likely the wrong one.
            like = keys.example(node_type)
            hint = f"keys of `{node_type}` look like {like}" if like else "is it the file?"
            hint = _other_ends(table, keys) or hint
        if row == 0 and not table.table.is_named:
            hint = f"if the first line names the columns: `--header`; {hint}"
        what = f"no node of type `{node_type}` has the key `{key}`{more}"
        return InvalidError(f"{where}: {what}\nhint: {hint}")
    return InvalidError(f"`{table.spec}`: row {row}: an end is no node")
