"""Tables whose rows are taken in their order: no column may say another order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outercore.base.shell import quoted
from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.importing.table.columns import NodeColumns, id_column, is_counting, may_be_ids
from outercore.importing.table.table import Table

_LOOKED_AT = 1 << 20
"""Rows among which no number may come twice in a column of ids."""


@dataclass(frozen=True)
class _Numbers:
    """What a column of whole numbers holds."""

    first: int | None
    """0 or 1: the number of the first row, where the column counts the rows."""
    is_unique: bool
    """Whether no number comes twice, among the first rows."""
    is_dense: bool
    """Whether the numbers are those from 0 or 1 on, none left out and none twice."""


def without_counting(
    spec: FileSpec,
    table: Table,
    columns: NodeColumns,
    first_id: int,
    rows_of: Literal["nodes", "edges"] = "nodes",
) -> tuple[NodeColumns, list[str]]:
    """The columns without those that only number the rows, and the names of these.

    `spec` may choose such a column, then it is a value.

    Cost: reads each column that is called so, and a first column of whole numbers.
    Errors: `InvalidError` for a column that may say that the rows are in another order.
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
    """Whether `spec` chooses the ids themselves, whose order says nothing."""
    return any(name == id_column(table) or may_be_ids(name) for name in spec.columns)


def _numbers(table: Table, name: str) -> _Numbers | None:
    """What the column holds; `None` for anything but whole numbers in every row."""
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
    """What a hint says about joining the rows by a column, each with its option."""
    # An import takes the one, `outercore add` the other.
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
