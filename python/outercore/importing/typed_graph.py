"""One import of several types of nodes and edges, into one data set."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from outercore.base.native import Progress
from outercore.errors import InvalidError
from outercore.importing.build.graph import write_typed
from outercore.importing.features import open_features
from outercore.importing.graph_tables import EdgeTable, NodeTable, open_edge_types, open_node_types
from outercore.importing.inputs import TypedInputs
from outercore.importing.keyed_edges import edges_of_types
from outercore.importing.keys import column_of
from outercore.importing.labels import open_labels
from outercore.importing.options import ImportOptions
from outercore.importing.source import TypedSource
from outercore.importing.splits import SHARES, Splits, random_splits, splits_by_time
from outercore.importing.table.rows import NodeArray, Reading, RowSource
from outercore.importing.table.table import ParquetTable, Table, TextTable
from outercore.importing.table.times import (
    TIME,
    has_times,
    is_date_column,
    require_one_clock,
    require_one_kind,
)
from outercore.importing.texts import columns_besides, open_node_texts


def open_typed(inputs: TypedInputs, options: ImportOptions) -> TypedSource:
    """Opens everything that `inputs` names.

    Errors: `NotFoundError` and `InvalidError` name the file or the type; nothing is written.
    """
    reading = inputs.reading(options)
    nodes = open_node_types(inputs.nodes, reading)
    tables = open_edge_types(inputs.edges, nodes, reading)
    of_nodes, of_edges = _columns(nodes, tables)
    require_one_clock([*of_nodes, *of_edges])
    besides = columns_besides(inputs.label, inputs.texts, nodes)
    found = open_features(inputs.features, nodes, besides, reading)
    return typed_source(inputs, options, nodes, tables, found, [*inputs.nodes, *inputs.edges])


def typed_source(
    inputs: TypedInputs,
    options: ImportOptions,
    nodes: dict[str, NodeTable],
    tables: list[EdgeTable],
    features: tuple[list[NodeArray], list[str]],
    named: list[str],
    *,
    is_timed: bool = False,
    description: str = "",
) -> TypedSource:
    """The source of opened tables, with the labels and splits of `inputs`.

    `features` are the arrays of nodes and how they were chosen, `named` what the user named.
    With `is_timed` nodes with an array `time` are divided by it. `description` is what else makes
    another import.

    Errors: as `open_typed`.
    """
    reading = inputs.reading(options)
    require_kinds(nodes, tables)
    edges, uses = edges_of_types(tables, nodes, add_reverse=inputs.add_reverse)
    labels = []
    if inputs.label is not None:
        labels = open_labels(inputs.label, nodes, reading, options.task)
    arrays, notes = features
    texts = open_node_texts(inputs.texts, nodes, reading)
    times = {
        array.of_type: array.rows
        for array in arrays
        if is_timed and (array.role, array.name) == ("array", TIME)
    }
    dates = undeclared_times(nodes, tables, set(times), described=is_timed)
    splits, more = _splits(inputs, labels, nodes, reading, times, options.task)
    identity = json.dumps(
        [
            [one.identity for one in nodes.values()],
            [one.identity for one in tables],
            [inputs.add_reverse, inputs.dangling, inputs.text.native(), inputs.fill, inputs.label],
            description,
        ]
    )
    by_rows = splits.arrays if isinstance(splits, Splits) else splits
    arrays = [*arrays, *labels, *by_rows, *texts]
    from_files = [note for array in arrays for note in array.rows.notes]
    from_files += [
        f"{one.spec.path}: {remark}; `--header` if it names the columns"
        for one in tables
        if isinstance(one.table, TextTable) and (remark := one.table.file.dialect.get("remark"))
    ]
    return TypedSource(
        nodes,
        edges,
        [
            column_of(one.node_type, one.table, one.key, space=one.space, first=one.first)
            for one in nodes.values()
            if one.table is not None and one.key
        ],
        uses,
        splits if isinstance(splits, Splits) else None,
        arrays,
        [identity],
        list(dict.fromkeys([*from_files, *notes, *dates, *more])),
        named,
        inputs.fill,
    )


def require_kinds(nodes: dict[str, NodeTable], tables: list[EdgeTable]) -> None:
    """Errors: as `require_one_kind`, for all columns that may become arrays of one name."""
    require_one_kind(*_columns(nodes, tables))


def _columns(
    nodes: dict[str, NodeTable], tables: list[EdgeTable]
) -> tuple[list[tuple[Table, str]], list[tuple[Table, str]]]:
    """The columns of the tables of nodes, and those of edges besides the ends."""
    of_nodes = [
        (one.table, name) for one in nodes.values() if one.table for name in one.table.names
    ]
    return of_nodes, [(one.table, name) for one in tables for name in one.others]


def _splits(
    inputs: TypedInputs,
    labels: list[NodeArray],
    nodes: dict[str, NodeTable],
    reading: Reading,
    times: dict[str | None, RowSource],
    task: str | None,
) -> tuple[Splits | list[NodeArray], list[str]]:
    """The splits, and how nodes are divided where none are given."""
    choice = inputs.splits
    if not choice.is_given:
        if not labels:
            return [], []
        shares = ", ".join(f"{share:.0%} {name}" for name, share in SHARES)
        own_times = times.get(labels[0].of_type)
        if own_times is not None:
            by_time = splits_by_time(labels[0], own_times, task)
            if by_time is not None:
                return by_time, [f"no `--split`: labelled nodes by their times, {shares}"]
        at_random = f"no `--split`: labelled nodes at random, {shares}"
        return random_splits(labels[0], task), [at_random]
    if not labels:
        raise InvalidError("--split: expected `--label` with it, which says whose nodes they are")
    node_type = labels[0].of_type
    assert node_type is not None
    return Splits(choice, nodes[node_type], reading), []


def import_typed(
    inputs: TypedInputs,
    out: str | Path,
    options: ImportOptions | None = None,
    progress: Progress = lambda *_: None,
    note: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """Writes a data set of several types and returns the summary; as `write_typed`."""
    options = options or ImportOptions()
    source = open_typed(inputs, options)
    return write_typed(source, out, options, progress, note, dangling=inputs.dangling)


def source_of_arrays(
    root: Path,
    inputs: TypedInputs,
    options: ImportOptions,
    counts: dict[str, int],
    tables: list[EdgeTable],
    arrays: list[NodeArray],
    notes: list[str],
) -> TypedSource:
    """The source of a directory whose nodes have numbers.

    `arrays` belong to nodes and edges; `--label` and `--split` replace the labels and splits.
    Reverse edge types have the arrays of their edges.

    Errors: `InvalidError` for `--split` without labels.
    """
    nodes = {name: NodeTable(name, None, None, (), count) for name, count in sorted(counts.items())}
    is_labelled = inputs.label is not None
    labels = [one for one in arrays if one.role == "labels"]
    if inputs.splits.is_given and not is_labelled and labels:
        raise InvalidError(
            "--split: expected `--label TYPE=FILE` with it\n"
            f"hint: the labels of the directory are `{labels[0].rows.name}`"
        )
    left = [
        one
        for one in arrays
        if not (one.role == "labels" and is_labelled)
        and not (one.role == "split" and (is_labelled or inputs.splits.is_given))
        and one.role != "edge"
    ]
    source = typed_source(inputs, options, nodes, tables, (left, notes), [str(root)])
    for edges in source.edges:
        given = edges.ends[0].table.key
        source.arrays.extend(
            replace(one, of_type=edges.key)
            for one in arrays
            if one.role == "edge" and one.of_type == given
        )
    return source


def undeclared_times(
    nodes: dict[str, NodeTable], tables: list[EdgeTable], timed: set[str | None], *, described: bool
) -> list[str]:
    """A note on the dates of types without times, if there are dates.

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
