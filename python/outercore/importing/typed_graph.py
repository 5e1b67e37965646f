"""Opens the inputs of a graph with several types of nodes and edges as one source."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from outercore.errors import InvalidError
from outercore.importing.features import open_features
from outercore.importing.graph_tables import (
    EdgeTable,
    NodeTable,
    open_edge_types,
    open_node_types,
    require_type_name,
)
from outercore.importing.inputs import TypedInputs
from outercore.importing.keyed_edges import KeyedEdges, edges_of_types
from outercore.importing.keys import Column, Keys, column_of
from outercore.importing.labels import open_labels
from outercore.importing.options import ImportOptions
from outercore.importing.source import GraphSource, GraphTypes
from outercore.importing.splits import (
    SHARES,
    KeyedSplit,
    open_splits_of_type,
    random_splits,
    splits_by_time,
)
from outercore.importing.table.parquet import ParquetTable
from outercore.importing.table.rows import NodeArray, Reading, RowSource
from outercore.importing.table.table import Table
from outercore.importing.table.text import TextTable
from outercore.importing.table.times import TIME, has_times, is_date_column
from outercore.importing.texts import columns_besides, open_node_texts


def open_typed(inputs: TypedInputs, options: ImportOptions | None = None) -> GraphSource:
    """Opens everything that `inputs` names. It writes nothing.

    Errors: `NotFoundError` and `InvalidError` name the file or the type.
    """
    options = options or ImportOptions()
    reading = inputs.reading(options)
    nodes = open_node_types(inputs.nodes, reading)
    tables = open_edge_types(inputs.edges, nodes, reading)
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
    uses: Sequence[Column] = (),
    find_edges: Callable[[Keys], list[KeyedEdges]] | None = None,
) -> GraphSource:
    """The source of opened tables, with the labels and splits of `inputs`.

    `features` are the arrays of nodes and notes on them; `named` are the inputs for the provenance.
    With `is_timed`, default splits divide nodes by their array `time`. `description` is a text that
    changes if the inputs change. `find_edges` finds edge types that depend on the keys in the
    columns `uses`.

    Errors: as `open_typed`.
    """
    reading = inputs.reading(options)
    edges, uses_of_tables = edges_of_types(tables, nodes, add_reverse=inputs.add_reverse)
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
    by_keys = [one for one in splits if isinstance(one, KeyedSplit)]
    by_rows = [one for one in splits if isinstance(one, NodeArray)]
    arrays = [*arrays, *labels, *by_rows, *texts]
    from_files = [note for array in arrays for note in array.rows.notes]
    from_files += [
        f"{one.spec.path}: {remark}; `--header` if it names the columns"
        for one in tables
        if isinstance(one.table, TextTable) and (remark := one.table.dialect.get("remark"))
    ]
    types = GraphTypes(nodes, edges, by_keys, inputs.fill, inputs.dangling)
    source = GraphSource(
        [],
        arrays,
        notes=list(dict.fromkeys([*from_files, *notes, *dates, *more])),
        types=types,
        identities=[identity],
        named=named,
        node_keys=[
            column_of(one.node_type, one.table, one.key, space=one.space, first=one.first)
            for one in nodes.values()
            if one.table is not None and one.key
        ],
        uses=[*uses, *uses_of_tables, *(one.column for one in by_keys)],
    )
    if find_edges is None:
        return source
    return replace(
        source, with_keys=lambda keys: replace(source, types=replace(types, edges=find_edges(keys)))
    )


def _splits(
    inputs: TypedInputs,
    labels: list[NodeArray],
    nodes: dict[str, NodeTable],
    reading: Reading,
    times: dict[str | None, RowSource],
    task: str | None,
) -> tuple[Sequence[NodeArray | KeyedSplit], list[str]]:
    """The splits, and a note if the user gave none and nodes are divided automatically."""
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
    return open_splits_of_type(choice, nodes[node_type], reading), []


def source_of_arrays(
    root: Path,
    inputs: TypedInputs,
    options: ImportOptions,
    counts: dict[str, int],
    tables: list[EdgeTable],
    arrays: list[NodeArray],
    notes: list[str],
) -> GraphSource:
    """The source of a directory whose files number the nodes. `counts` are the nodes of each type.

    `arrays` belong to nodes and edges; `--label` and `--split` replace their labels and splits.
    Reverse edge types have the arrays of their edges.

    Errors: `InvalidError` for `--split` without `--label`, for labels of several types, and for
    invalid names of types.
    """
    _require_types(root, counts, tables)
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
    of_types = sorted({str(one.of_type) for one in left if one.role in ("labels", "split")})
    if len(of_types) > 1:
        raise InvalidError(
            f"`{root}`: labels and splits of {', '.join(of_types)}, expected one node type"
        )
    source = typed_source(inputs, options, nodes, tables, (left, notes), [str(root)])
    assert source.types is not None
    for edges in source.types.edges:
        given = edges.ends[0].table.key
        source.arrays.extend(
            replace(one, of_type=edges.key)
            for one in arrays
            if one.role == "edge" and one.of_type == given
        )
    return source


def _require_types(root: Path, counts: dict[str, int], tables: list[EdgeTable]) -> None:
    """Errors: `InvalidError` for an invalid name of a type, and for edges of unknown node types."""
    for name in [*counts, *(one.edge_type[1] for one in tables)]:
        require_type_name(f"`{root}`", name)
    for one in tables:
        for end in (one.edge_type[0], one.edge_type[2]):
            if end not in counts:
                raise InvalidError(
                    f"`{root}`: edge type `{':'.join(one.edge_type)}`: there is no node type "
                    f"`{end}`\nhint: the node types are {', '.join(counts)}"
                )


def undeclared_times(
    nodes: dict[str, NodeTable], tables: list[EdgeTable], timed: set[str | None], *, described: bool
) -> list[str]:
    """A note on columns of dates in types without times, if any.

    `timed` are the node types with times. With `described`, `tables.yaml` names the column of
    times. Without it, columns with a time in each row need no note: they become arrays, which
    `--time` can name.

    Cost: reads the first batch of rows of each column of texts.
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
