"""Columns of dates that no import option takes as times: a note names them."""

from __future__ import annotations

from outercore.importing.table.table import ParquetTable, Table, TextTable
from outercore.importing.table.times import has_times, is_date_column
from outercore.importing.typed.tables import EdgeTable, NodeTable


def undeclared_times(
    nodes: dict[str, NodeTable], tables: list[EdgeTable], timed: set[str | None], *, described: bool
) -> list[str]:
    """A note on the dates of types without times; nothing where there are none.

    `timed` are the node types with times. With `described` a `tables.yaml` says which column is
    the time; without, columns with a time in each row are arrays that `--time` can name.

    Cost: of each column of texts the first batch of rows.
    """
    found = []
    for name, one in nodes.items():
        if one.table is not None and name not in timed:
            listed = _dates(one.table, one.table.names, described=described)
            found += [f"`{column}` of `{name}`" for column in listed]
    for edges in tables:
        if edges.time is None:
            listed = _dates(edges.table, edges.others, described=described)
            found += [f"`{column}` of {','.join(edges.edge_type)}" for column in listed]
    if not found:
        return []
    way = "`time: COLUMN` in `tables.yaml` takes one of each table"
    if not described:
        way = "a column becomes an array where each row has a date such as `2013-01-31`"
    return [f"dates that are not taken as times: {', '.join(dict.fromkeys(found))} ({way})"]


def _dates(table: Table, names: list[str] | tuple[str, ...], *, described: bool) -> list[str]:
    if not isinstance(table, TextTable | ParquetTable):
        return []
    return [
        name
        for name in names
        if is_date_column(table, name) and (described or not has_times(table, name))
    ]
