"""Opens the features and further arrays of each node type."""

from __future__ import annotations

from functools import partial

from outercore.base.listing import listed
from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.importing.graph_tables import NodeTable, refuse_keys
from outercore.importing.table.columns import NodeColumns
from outercore.importing.table.rows import (
    NodeArray,
    Reading,
    RowSource,
    open_rows,
    table_rows,
    time_rows,
)
from outercore.importing.table.sparse import is_sparse, sparse_rows
from outercore.importing.table.table import Table, require_columns
from outercore.importing.table.times import TIME, has_gaps, has_times


def open_features(
    texts: tuple[str, ...],
    nodes: dict[str, NodeTable],
    besides: dict[str, set[str]],
    reading: Reading,
) -> tuple[list[NodeArray], list[str]]:
    """The arrays of all node types, and notes on the chosen columns.

    `texts` are `TYPE=FILE` or `TYPE=FILE:COLUMN,COLUMN`. Other types get features from their node
    table: its only column of lists, or else all columns of numbers. Columns of times become
    separate arrays. `besides` has the columns of each type that are used in another way.

    Errors: `InvalidError` for a text of another form, or with an unknown type.
    """
    given: dict[str, str] = {}
    for text in texts:
        node_type, equals, file = text.partition("=")
        if not equals or node_type not in nodes:
            raise InvalidError(
                f"--features: expected TYPE=FILE with a type of {', '.join(nodes)}; found `{text}`"
            )
        if node_type in given:
            raise InvalidError(
                f"--features: `{node_type}` is given twice\nhint: leave one of them out"
            )
        given[node_type] = file
    arrays, notes = [], []
    for node_type, one in nodes.items():
        own = besides.get(node_type, set())
        if node_type in given:
            spec = FileSpec.parse(given[node_type], may_leave_out=True)
            features, note = _of_file(spec, one, own, reading)
        else:
            features, note = arrays_of_table(one, own, reading)
        arrays += features
        notes += note
    return arrays, notes


def _of_file(
    spec: FileSpec, nodes: NodeTable, besides: set[str], reading: Reading
) -> tuple[list[NodeArray], list[str]]:
    """The arrays of a type from a file, which may be its node table, and notes.

    Errors: `InvalidError` if `spec` leaves out all columns of numbers of the table.
    """
    is_own = nodes.spec is not None and spec.path == nodes.spec.path
    if nodes.table is None or not is_own:
        if not is_sparse(spec):
            refuse_keys("--features", str(spec), nodes, reading)
        return [NodeArray("features", "x", _rows(spec, reading), nodes.node_type)], []
    require_columns(nodes.table, spec)
    if not spec.without:
        columns = NodeColumns(None, list(spec.columns))
        rows = table_rows(spec, nodes.table, columns, reading)
        return [NodeArray("features", "x", rows, nodes.node_type)], []
    found, notes = arrays_of_table(nodes, besides | set(spec.without), reading)
    if not any(array.role == "features" for array in found):
        raise InvalidError(f"--features {nodes.node_type}: `{spec}`: no column of numbers is left")
    return found, notes


def _rows(spec: FileSpec, reading: Reading) -> RowSource:
    """The rows of a file; rows of a sparse matrix become dense."""
    return sparse_rows(spec.path) if is_sparse(spec) else open_rows(spec, reading)


def arrays_of_table(
    nodes: NodeTable,
    besides: set[str],
    reading: Reading,
    *,
    chosen: list[str] | None = None,
    time: str | None = None,
) -> tuple[list[NodeArray], list[str]]:
    """Features and arrays of a type from its node table, and notes on the chosen columns.

    Columns in `besides` are used in another way. `chosen` are the columns of the features; by
    default they are detected. `time` is the column that becomes the array `time`.
    """
    if nodes.spec is None:
        return [], []
    if nodes.table is None:
        rows = _rows(nodes.spec, reading)
        return [NodeArray("features", "x", rows, nodes.node_type)], []
    table = nodes.table
    names = [name for name in table.names if name not in {*nodes.key, *besides, time}]
    times = [name for name in names if has_times(table, name)]
    names = [name for name in names if name not in times]
    gaps = [name for name in times if has_gaps(table, name)]
    lists = [name for name in names if table.list_type(name) is not None]
    numbers = [name for name in names if name not in lists and table.dtype(name) is not None]
    features = lists if len(lists) == 1 else numbers
    arrays = (numbers if len(lists) == 1 else []) + (lists if len(lists) > 1 else [])
    if chosen is not None:
        features, arrays = chosen, []
    left_out = [name for name in names if name not in features + arrays]
    # The array `time` holds the column `time` of the caller, so a column of this name is left out.
    is_second = time is not None and TIME in [*times, *arrays]
    if is_second:
        times, arrays = ([one for one in of if one != TIME] for of in (times, arrays))
    named = [(name, name) for name in times if name not in gaps]
    named += [(TIME, time)] if time is not None else []
    found = [NodeArray("array", name, time_rows(table, at), nodes.node_type) for name, at in named]
    of = partial(_columns, nodes.spec, table, reading)
    found += [NodeArray("array", name, of([name]), nodes.node_type) for name in arrays]
    _require_values(nodes.node_type, table, [*features, *arrays], reading)
    if features:
        found.insert(0, NodeArray("features", "x", of(features), nodes.node_type))
    notes = _notes(nodes, features, left_out, is_chosen=chosen is not None)
    if gaps:
        notes.append(
            f"times of `{nodes.node_type}` with missing values are left out: {listed(gaps)}"
        )
    if is_second:
        notes.append(f"column `{TIME}` of `{nodes.node_type}` is left out: `{time}` is its time")
    return found, notes


def _require_values(node_type: str, table: Table, names: list[str], reading: Reading) -> None:
    """Errors: `InvalidError` for missing values, unless the options fill or keep them."""
    if reading.fill is not None or reading.keeps_gaps:
        return
    gaps = {name: count for name in names if (count := table.missing(name))}
    if not gaps:
        return
    shown = ", ".join(f"`{name}` ({count:,})" for name, count in list(gaps.items())[:6])
    more = f" and {len(gaps) - 6} more columns" if len(gaps) > 6 else ""
    raise InvalidError(
        f"features of `{node_type}`: `{table.path}` has rows without a value: {shown}{more}\n"
        "hint: give them one: `--fill 0`; or keep them: `--fill nan`; or choose other columns"
    )


def _notes(
    nodes: NodeTable, features: list[str], left_out: list[str], *, is_chosen: bool
) -> list[str]:
    notes = []
    if features:
        notes.append(f"features of `{nodes.node_type}`: {listed(features, most=6)}")
    if left_out and not is_chosen:
        notes.append(
            f"columns of `{nodes.node_type}` without numbers are left out: "
            f"{listed(left_out, most=6)}"
        )
    return notes


def _columns(spec: FileSpec, table: Table, reading: Reading, names: list[str]) -> RowSource:
    return table_rows(spec, table, NodeColumns(None, names), reading)
