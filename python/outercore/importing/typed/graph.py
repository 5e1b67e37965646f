"""One import of several types of nodes and edges, into one data set."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from outercore.base.native import Progress
from outercore.base.sizes import parse_size
from outercore.errors import InvalidError
from outercore.importing.graph import (
    ImportOptions,
    NodeArray,
    feed_array,
    require_comparable,
    require_place,
)
from outercore.importing.splits import SplitChoice
from outercore.importing.table.file_state import FileState, require_unchanged
from outercore.importing.table.rows import Reading, RowSource, count_rows
from outercore.importing.table.text import TextOptions
from outercore.importing.table.times import TIME, require_one_clock, require_one_kind
from outercore.importing.typed.edges import Dangling, EdgesOfType, edges_of_types
from outercore.importing.typed.features import open_features
from outercore.importing.typed.importer import refuse_options, typed_importer
from outercore.importing.typed.keys import Column, Keys, column_of
from outercore.importing.typed.labels import (
    SHARES,
    open_labels,
    random_splits,
    splits_by_time,
)
from outercore.importing.typed.node_texts import columns_besides, open_node_texts
from outercore.importing.typed.splits import Splits
from outercore.importing.typed.tables import EdgeTable, NodeTable, open_edge_types, open_node_types
from outercore.importing.undeclared_times import undeclared_times


@dataclass(frozen=True)
class TypedInputs:
    """What the user named, still as text."""

    nodes: tuple[str, ...]
    """`TYPE=FILE`, `TYPE=FILE:KEY` or `TYPE=COUNT`."""
    edges: tuple[str, ...]
    """`SOURCE,RELATION,TARGET=FILE`."""
    features: tuple[str, ...] = ()
    """`TYPE=FILE`."""
    label: str | None = None
    """`TYPE.COLUMN` or `TYPE=FILE`."""
    texts: tuple[str, ...] = ()
    """`TYPE.COLUMN`."""
    splits: SplitChoice = field(default_factory=SplitChoice)
    add_reverse: bool = False
    """Whether each edge type gets one in the other direction."""
    dangling: Dangling = "refuse"
    text: TextOptions = field(default_factory=TextOptions)
    fill: float | None = None
    """What stands for missing features; with `ImportOptions.allow_nan` they may stay missing."""
    ogb_split: str | None = None
    """The folder of the splits in a directory of OGB."""
    is_in_order: bool = False
    """Whether rows are nodes in their order, whatever columns of ids say."""

    def reading(self, options: ImportOptions) -> Reading:
        """How the files are read."""
        memory = parse_size(options.memory) // 4
        return Reading(
            self.text,
            self.fill,
            options.allow_nan,
            memory,
            is_in_order=self.is_in_order,
            outside_files=options.outside_files,
        )


@dataclass(frozen=True)
class TypedSource:
    """Everything that one data set of several types is made from."""

    nodes: dict[str, NodeTable]
    edges: list[EdgesOfType]
    node_keys: list[Column]
    edge_keys: list[Column]
    splits: Splits | None
    """Those by keys."""
    arrays: list[NodeArray]
    identity: str
    """What makes another import."""
    notes: list[str]
    inputs: list[str]
    """What the user named, for the provenance."""
    fill: float | None = None
    """What stands for missing values of edges; those of nodes are filled when they are read."""
    find_edges: Callable[[Keys], list[EdgesOfType]] | None = None
    """Finds the edge types where only the keys tell them."""

    @property
    def counts(self) -> dict[str, int]:
        """Nodes of each type."""
        of_arrays = {array.of_type: array for array in self.arrays if array.role == "features"}
        counts = {}
        for node_type, one in self.nodes.items():
            count = one.count
            if count is None:
                count = count_rows(of_arrays[node_type].rows)
            counts[node_type] = count
        return counts

    def files(self) -> list[FileState]:
        """What everything is read from, as it was when it was opened."""
        sources = [
            *(one.files for one in self.nodes.values()),
            *(ends.table.files for edges in self.edges for ends in edges.ends),
            *(array.rows.files for array in self.arrays),
        ]
        return [state for files in sources for state in files]


def open_typed(inputs: TypedInputs, options: ImportOptions) -> TypedSource:
    """Opens everything that `inputs` names.

    Errors: `NotFoundError` and `InvalidError` name the file or the type; nothing is written.
    """
    reading = inputs.reading(options)
    nodes = open_node_types(inputs.nodes, reading)
    tables = open_edge_types(inputs.edges, nodes, reading)
    of_nodes = [
        (one.table, name) for one in nodes.values() if one.table for name in one.table.names
    ]
    of_edges = [(one.table, name) for one in tables for name in one.others]
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
        identity,
        list(dict.fromkeys([*from_files, *notes, *dates, *more])),
        named,
        inputs.fill,
    )


def require_kinds(nodes: dict[str, NodeTable], tables: list[EdgeTable]) -> None:
    """Errors: as `require_one_kind`, for all columns that may become arrays of one name."""
    of_nodes = [
        (one.table, name) for one in nodes.values() if one.table for name in one.table.names
    ]
    require_one_kind(of_nodes, [(one.table, name) for one in tables for name in one.others])


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
    note: Any = lambda _: None,
) -> dict[str, Any]:
    """Writes a data set of several types and returns the summary; as `write_typed`."""
    options = options or ImportOptions()
    source = open_typed(inputs, options)
    return write_typed(source, out, options, progress, note, dangling=inputs.dangling)


def write_typed(
    source: TypedSource,
    out: str | Path,
    options: ImportOptions,
    progress: Progress,
    note: Any,
    *,
    dangling: Dangling = "refuse",
) -> dict[str, Any]:
    """Writes a data set of several types and returns the summary.

    Stopped in between, the same call resumes. The data set appears only when it is complete.

    Cost: within `options.memory`, besides 16 bytes a node on disk while it is built.
    Errors: `InvalidError` names the input with its row; `NotFoundError`; `NoSpaceError`.
    """
    refuse_options(options)
    require_place(source.arrays, options)
    for line in source.notes:
        note(line)
    out = Path(out)
    uses = [*source.edge_keys, *(source.splits.columns if source.splits else [])]
    with Keys(out, source.node_keys, uses, source.identity) as keys:
        keys.build(parse_size(options.memory), progress)
        if source.find_edges is not None:
            source = replace(source, edges=source.find_edges(keys))
        with typed_importer(
            out,
            options,
            progress,
            inputs=source.inputs,
            identities=[source.identity],
            nodes=source.counts,
            edges=[one.edge_type for one in source.edges],
        ) as importer:
            dropped = {one.key: one.feed(importer, keys, dangling) for one in source.edges}
            by_keys = []
            if source.splits is not None:
                by_keys = source.splits.looked_up(keys, len(source.edge_keys))
            for array in [*source.arrays, *by_keys, *keys.arrays()]:
                feed_array(importer, array, options, progress)
            named = list(source.arrays)
            for edges in source.edges:
                arrays, left_out = edges.arrays(keys, source.fill)
                named += arrays
                require_comparable(named)
                for array in arrays:
                    feed_array(importer, array, options, progress)
                if left_out and not edges.reverse:
                    names = ", ".join(f"`{name}`" for name in left_out)
                    note(f"columns of {','.join(edges.edge_type)} are left out: {names}")
            require_unchanged(source.files())
            found = importer.finish()
    return found | {
        "node_types": source.counts,
        "dangling_dropped": {key: one.no_node for key, one in dropped.items() if one.no_node},
        "empty_keys_dropped": {key: one.no_key for key, one in dropped.items() if one.no_key},
    }
