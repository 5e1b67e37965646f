"""Finds the columns of a table that are ids, values or row numbers."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outercore.base.shell import quoted
from outercore.data.time_arrays import is_calendar_name
from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.importing.table.table import Table
from outercore.importing.table.times import is_date_column, is_time

IDS = frozenset({"id", "node", "nodeid", "vertex", "vertexid", "nid", "nodename"})
"""Names of columns of node ids, in the form of `alphanumeric`."""

_FIRSTS = {"id1", "node1", "nodeid1", "vertex1"}
_SECONDS = {"id2", "node2", "nodeid2", "vertex2"}
SOURCES = frozenset({"source", "src", "from", "u", "head", "subject", *_FIRSTS})
TARGETS = frozenset({"target", "dst", "destination", "to", "v", "tail", "object", *_SECONDS})
"""Names of the ends of an edge, in the form of `plain`: `FromNodeId` counts as `from`."""

_NEO4J = re.compile(r":(ID|START_ID|END_ID)(\(.*\))?$")
"""The ends of Neo4j's names of id columns: `personId:ID(Person)`."""
_COUNTING = re.compile(r"|unnamed\d+|indexlevel\d+|rownames?|index")
"""Names by which pandas and R call a column of row numbers, in the form of `alphanumeric`."""
_MAYBE_IDS = re.compile(r"(?i:.+[_. -]id|id[_. -].+)|.*[a-z0-9]I[dD]")


def alphanumeric(name: str) -> str:
    """A name with only its letters and digits, in lower case: `nodeid` for `node_id`."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def plain(name: str) -> str:
    """A short form of a name: `from` for `FromNodeId`; `source` for Neo4j's `:START_ID`."""
    neo4j = _NEO4J.search(name)
    if neo4j is not None:
        return {"START_ID": "source", "END_ID": "target"}.get(neo4j[1], "id")
    letters = alphanumeric(name)
    short = letters.removesuffix("id").removesuffix("node")
    return short or letters


def has_ends(names: list[str]) -> bool:
    """Whether the names include usual ones for the source and the target of edges."""
    short = {plain(name) for name in names}
    return not (SOURCES.isdisjoint(short) or TARGETS.isdisjoint(short))


def is_counting(name: str) -> bool:
    """Whether a name is usual for a column of row numbers, such as `Unnamed: 0`."""
    return _COUNTING.fullmatch(alphanumeric(name)) is not None


def may_be_ids(name: str) -> bool:
    """Whether a name is usual for ids of the rows: `paper_id`, `paperId`, `id_paper`.

    Names of ends of edges, such as `from_id`, do not count.
    """
    return _MAYBE_IDS.fullmatch(name) is not None and plain(name) not in SOURCES | TARGETS


def id_column(table: Table, key: str | None = None) -> str | None:
    """The column of ids in a node table: `key`, or else the first column with a usual name."""
    if not table.is_named:
        return None
    if key in table.names:
        return key
    return next((name for name in table.names if _is_id(name)), None)


def _is_id(name: str) -> bool:
    neo4j = _NEO4J.search(name)
    return alphanumeric(name) in IDS or (neo4j is not None and neo4j[1] == "ID")


@dataclass(frozen=True)
class NodeColumns:
    """The chosen columns of a node table."""

    key: str | None
    """The column with the node id of each row; `None`: row i is node i."""
    values: list[str]


def node_columns(spec: FileSpec, table: Table, key: str | None = None) -> NodeColumns:
    """The columns of a node table: the columns that `spec` chooses, or else all except the key.

    `key` is the name of the column of ids, if the user gave it.

    Errors: `InvalidError` if only the key is left, or if a column is chosen twice.
    """
    _require_distinct(spec)
    key = id_column(table, key)
    if spec.columns:
        return NodeColumns(None if key in spec.columns else key, list(spec.columns))
    values = [name for name in table.names if name != key and name not in spec.without]
    if spec.without:
        if not values:
            raise InvalidError(f"`{spec}`: no column is left, expected at least one")
        return NodeColumns(key, values)
    if not values:
        # A table with only a column of ids is a list of ids, so the ids are the values.
        return NodeColumns(None, list(table.names))
    return NodeColumns(key, values)


@dataclass(frozen=True)
class EdgeColumns:
    """The two columns with the ends of the edges in a table, and its other columns."""

    source: str
    target: str
    others: list[str]


def edge_columns(spec: FileSpec, table: Table, values: Container[str] = ()) -> EdgeColumns:
    """The columns with the ends of edges: chosen by `spec`, or else the first two outside `values`.

    Errors: `InvalidError` if later columns have usual names for ends, if one of the first two holds
    dates or times, or if a column is chosen twice.
    """
    names = table.names
    if spec.columns:
        if len(spec.columns) != 2:
            raise InvalidError(
                f"`{spec}`: expected two columns of node ids, found {len(spec.columns)}\n"
                "hint: choose source and target: `FILE:SOURCE,TARGET`"
            )
        _require_distinct(spec)
        source, target = spec.columns
    else:
        may_be_ends = [name for name in names if name not in values]
        if len(may_be_ends) < 2:
            raise InvalidError(
                f"`{spec}`: expected two columns of node ids, found {len(may_be_ends)}"
            )
        if table.is_named:
            _require_ends_first(spec, may_be_ends)
        _refuse_times(spec, table, may_be_ends)
        source, target = may_be_ends[:2]
    return EdgeColumns(source, target, [name for name in names if name not in (source, target)])


def _require_distinct(spec: FileSpec) -> None:
    doubles = {name for name in spec.columns if spec.columns.count(name) > 1}
    if doubles:
        raise InvalidError(f"`{spec}`: column `{min(doubles)}` is chosen twice")


def _require_ends_first(spec: FileSpec, names: list[str]) -> None:
    """Errors: `InvalidError` if columns with usual names for ends are not the first two.

    Also if one of the first two columns has a usual name for row numbers.
    """
    short = [plain(name) for name in names]
    ends = [
        next((at for at, name in enumerate(short) if name in kind), None)
        for kind in (SOURCES, TARGETS)
    ]
    source, target = ends
    if source is None or target is None:
        if not any(is_counting(name) for name in names[:2]):
            return
        others = [name for name in names if not is_counting(name)]
        chosen = f"{spec.path}:{','.join(others[:2]) if len(others) > 1 else 'SOURCE,TARGET'}"
    elif (source, target) == (0, 1):
        return
    else:
        chosen = f"{spec.path}:{names[source]},{names[target]}"
    raise InvalidError(
        f"`{spec.path}`: the first two columns would be taken as source and target, and they are "
        f"`{names[0]}` and `{names[1]}`\nhint: choose the columns: `{quoted(chosen)}`"
    )


def _refuse_times(spec: FileSpec, table: Table, names: list[str]) -> None:
    """Errors: `InvalidError` if one of the first two columns is a time, which is rarely a node.

    Cost: reads the first batch of rows of a text.
    """
    if table.is_named and plain(names[0]) in SOURCES and plain(names[1]) in TARGETS:
        return
    times = [
        name
        for name in names[:2]
        if (table.is_named and is_calendar_name(name)) or is_date_column(table, name)
    ]
    if not times:
        return
    said = f"`{spec.path}`: column `{times[0]}` holds times and would be taken as an end of edges"
    ways = other_ends(names, times)
    if not any(is_time(table, name) for name in names[:2]):
        ways.append((names[:2], f"with `{times[0]}` as nodes"))
    listed = [
        f"{why}: `{quoted(str(FileSpec(spec.path, tuple(chosen))))}`" for chosen, why in ways
    ] or ["write the dates as text, which can be names of nodes"]
    raise InvalidError(f"{said}\nhint: {'; '.join(listed)}")


def other_ends(names: list[str], times: list[str]) -> list[tuple[list[str], str]]:
    """For a hint: the first two columns that are neither times nor row numbers; else empty."""
    others = [
        name
        for name in names
        if name not in times and not is_calendar_name(name) and not is_counting(name)
    ]
    return [(others[:2], "choose the columns")] if len(others) > 1 else []


_LOOKED_AT = 1 << 20
"""Number of first rows in which a column of ids must not repeat a number."""


@dataclass(frozen=True)
class _Numbers:
    """A summary of a column of integers."""

    first: int | None
    """0 or 1: the number of the first row, if the column counts the rows; else `None`."""
    is_unique: bool
    """Whether the first rows do not repeat a number."""
    is_dense: bool
    """Whether the numbers start at 0 or 1, without gaps or repetitions."""


def without_counting(
    spec: FileSpec,
    table: Table,
    columns: NodeColumns,
    first_id: int,
    rows_of: Literal["nodes", "edges"] = "nodes",
) -> tuple[NodeColumns, list[str]]:
    """The columns without columns of row numbers, and the names of the removed columns.

    If `spec` chooses such a column, it is a value.

    Cost: reads each column with a usual name for row numbers, and a first column of integers.
    Errors: `InvalidError` for a column whose numbers may mean that the rows have another order.
    """
    if not table.is_named:
        return columns, []
    left_out: list[str] = []
    for name in table.names:
        if name in spec.columns or name == columns.key:
            continue
        counting = is_counting(name)
        is_value = name in columns.values
        if counting and is_value and len(columns.values) - len(left_out) > 1:
            found = _numbers(table, name)
            if found is None or found.first not in (0, 1):
                raise _other_order(spec, table, columns, name, first_id, rows_of)
            left_out.append(name)
        elif columns.key is None and not _are_ids(spec, table) and len(table.names) > 1:
            if not counting and (name != table.names[0] or (is_value and not may_be_ids(name))):
                continue
            found = _numbers(table, name)
            if found is None or (
                not counting and not (found.is_unique if may_be_ids(name) else found.is_dense)
            ):
                continue
            if found.first not in ((0, 1) if counting else (first_id,)):
                raise _other_order(spec, table, columns, name, first_id, rows_of)
            if is_value:
                left_out.append(name)
    values = [name for name in columns.values if name not in left_out]
    return replace(columns, values=values), left_out


def _are_ids(spec: FileSpec, table: Table) -> bool:
    """Whether `spec` chooses a column of ids as values. Their order is then free."""
    return any(name == id_column(table) or may_be_ids(name) for name in spec.columns)


def _numbers(table: Table, name: str) -> _Numbers | None:
    """The summary of a column; `None` unless it has an integer in every row."""
    dtype = table.dtype(name)
    if dtype is None or dtype.kind not in "iu" or table.missing(name):
        return None
    row, first, unique = 0, None, True
    least, largest = np.iinfo(np.int64).max, -1
    head: list[NDArray[Any]] = []
    for batch in table.numbers([name], dtype, "nan"):
        numbers = batch[:, 0]
        if len(numbers):
            least, largest = min(least, int(numbers.min())), max(largest, int(numbers.max()))
        if not row and len(numbers):
            first = int(numbers[0]) if numbers[0] <= 1 else None
        if first is not None:
            counted = np.arange(first + row, first + row + len(numbers))
            first = first if np.array_equal(numbers, counted) else None
        if row < _LOOKED_AT:
            head.append(numbers)
        row += len(numbers)
    if first is None and head:
        every = np.concatenate(head)
        unique = len(np.unique(every)) == len(every)
    is_dense = unique and row > 1 and least in (0, 1) and largest - least + 1 == row
    return _Numbers(first, unique, is_dense)


def ways_to_join(spec: FileSpec, name: str) -> list[str]:
    """Hints with options that join the rows by a column."""
    # The first option is for `outercore import`, the second one for `outercore add`.
    options = (f"--nodes {quoted(f'{spec.path}:{name}')}", f"--key {quoted(name)}")
    return [f"to join the rows by it: `{option}`" for option in options]


def _other_order(
    spec: FileSpec,
    table: Table,
    columns: NodeColumns,
    name: str,
    first_id: int,
    rows_of: Literal["nodes", "edges"],
) -> InvalidError:
    others = ",".join(value for value in columns.values if value != name)
    ways = []
    if columns.key is None:
        if rows_of == "nodes" and name:
            ways = ways_to_join(spec, name)
        ways += ["call it `id`"] if rows_of == "nodes" and not name else []
        ways.append("write the file without it to take the rows as they are")
    elif others:
        ways = [f"choose the columns without it: `{quoted(f'{spec.path}:{others}')}`"]
    if name and not spec.columns:
        ways.append(f"as a value: `{quoted(spec.path)}:{','.join(columns.values)}`")
    return InvalidError(
        f"`{table.path}`: column `{name}` may be the ids of the rows, and does not count them "
        f"from {first_id}\nhint: {'; '.join(ways)}"
    )
