"""What the user named on the command line, opened as one source."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from outercore.base.native import MANIFEST, Role
from outercore.data.batch_arrays import RESERVED
from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.files.input_file import is_there
from outercore.importing.edge_arrays import EdgeChoice, edge_arrays
from outercore.importing.edges import EdgeFormat, EdgeShape, open_edges
from outercore.importing.format import ogb
from outercore.importing.format.by_name import is_named, open_named
from outercore.importing.format.graphbolt import is_graphbolt, open_untyped
from outercore.importing.format.tu import is_tu, open_tu
from outercore.importing.graph import GraphSource, NodeArray
from outercore.importing.graph_level import open_graph_file, read_labels, read_splits, with_ids
from outercore.importing.label_rows import label_arrays
from outercore.importing.splits import SplitChoice, open_split, open_splits, require_once
from outercore.importing.table.parts import Parts
from outercore.importing.table.rows import (
    Reading,
    as_times,
    is_array,
    open_rows,
    require_row_of_each_node,
)
from outercore.importing.table.table import is_parquet
from outercore.importing.table.text import TextOptions
from outercore.importing.texts import open_texts, text_files
from outercore.importing.triples_graph import open_triples

_FORMATS = ("auto", "text", "npy", "npz", "parquet", "mtx", "dimacs")

_SHAPES = (None, "2,E", "E,2")


@dataclass(frozen=True)
class Inputs:
    """Files and names, still as text."""

    edges: tuple[str, ...]
    format: str = "auto"
    features: str | None = None
    labels: str | None = None
    splits: SplitChoice = field(default_factory=SplitChoice)
    arrays: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    nodes: int | None = None
    node_table: str | None = None
    """`FILE` or `FILE:KEY`: a row a node, and the column by which other files name it."""
    ogb_split: str | None = None
    relation: str | None = None
    """Of a data set of triples; all relations without it."""
    graph_ids: str | None = None
    """The graph of each node, in a data set of many."""
    edge_shape: EdgeShape | None = None
    """For edge arrays of shape [2, 2]."""
    edge_values: EdgeChoice = field(default_factory=EdgeChoice)
    text: TextOptions = field(default_factory=TextOptions)
    fill: float | None = None
    keeps_gaps: bool = False
    """Whether missing features and values of edges stay NaN."""
    task: str | None = None
    """What the labels are for; by their values where it is not said."""
    memory: int = 1 << 30
    """The budget of the import, in bytes."""
    outside_files: bool = False
    """Whether the description of a folder may name files outside of it."""


def open_inputs(inputs: Inputs) -> GraphSource:
    """Opens everything that `inputs` names; what is given explicitly wins over a data set's own.

    Errors: `NotFoundError` and `InvalidError` name the file; nothing is written.
    """
    if inputs.nodes is not None and inputs.nodes < 0:
        raise InvalidError(f"--nodes: expected at least 0, found {inputs.nodes}")
    reading = Reading(
        inputs.text,
        inputs.fill,
        inputs.keeps_gaps,
        inputs.memory // 4,
        outside_files=inputs.outside_files,
    )
    source = _edges(inputs, reading)
    if source.graphs is None and inputs.graph_ids is None:
        first_id = max(source.first_id, int(inputs.text.one_based))
        reading = reading.starting_at(first_id, f"as in `{inputs.edges[0]}`")
    source = with_graphs(source, inputs, reading)
    if source.graphs is not None:
        # Labels and splits are those of graphs.
        inputs = replace(inputs, labels=None, splits=SplitChoice(), nodes=source.graphs.nodes)
    given = _arrays(inputs, replace(reading, nodes=source.stated_nodes(inputs.nodes)))
    taken = {(array.role, array.name) for array in given}
    kept = [array for array in source.arrays if (array.role, array.name) not in taken]
    for array in given:
        if array.role == "array" and array.name in {one.name for one in kept}:
            raise InvalidError(f"--array: `{array.name}` is in `{inputs.edges[0]}` already")
    nodes = inputs.nodes if inputs.nodes is not None else source.nodes
    if inputs.texts:
        counted = replace(source, arrays=[*kept, *given], nodes=nodes).node_count()
        texts, nodes = _texts(inputs, replace(reading, nodes=counted))
        given += texts
    from_edges, notes = edge_arrays(source.edges, inputs.edge_values, reading)
    named = {array.name for array in from_edges}
    own = [array for array in source.edge_arrays if array.name not in named]
    notes = [
        *source.notes,
        *_disagreement(source, inputs),
        *(note for edges in source.edges for note in edges.notes),
        *(note for array in given for note in array.rows.notes),
        *notes,
    ]
    return replace(
        source,
        arrays=[*kept, *given],
        nodes=nodes,
        edge_arrays=[*own, *from_edges],
        notes=notes,
        reading=reading_of(inputs),
    )


def _disagreement(source: GraphSource, inputs: Inputs) -> list[str]:
    """A note on files whose ids start at 0 beside others whose ids start at 1."""
    by_first = {edge.first_id: edge.name for edge in source.edges}
    if len(by_first) < 2:
        return []
    return [
        f"ids start at 1 in `{by_first[1]}` and at 0 in `{by_first[0]}`: results have them from 0; "
        "if all start at 1, say `--one-based`"
    ]


def reading_of(inputs: Inputs) -> str:
    """What makes another import of the same files."""
    chosen = [inputs.edge_shape, vars(inputs.edge_values), inputs.task, inputs.graph_ids]
    return json.dumps([inputs.text.native(), inputs.fill, *chosen])


def _edges(inputs: Inputs, reading: Reading) -> GraphSource:
    if inputs.format not in _FORMATS:
        raise InvalidError(
            f"--format: expected one of {', '.join(_FORMATS)}; found `{inputs.format}`"
        )
    if inputs.edge_shape not in _SHAPES:
        raise InvalidError(f"--edge-shape: expected 2,E or E,2; found `{inputs.edge_shape}`")
    first, *more = inputs.edges
    directory = Path(first).is_dir() and not is_parquet(Path(first))
    whole = is_named(first) or directory
    if whole and more:
        raise InvalidError(f"`{first}` is a whole data set; expected nothing beside it")
    if whole:
        _refuse_options(first, inputs)
    if inputs.outside_files and not (directory and is_graphbolt(Path(first))):
        raise InvalidError(f"--outside-files: has no effect on `{first}`, which names no files")
    if whole and not is_named(first) and is_there(Path(first) / MANIFEST):
        return open_triples(Path(first), inputs.relation)
    if inputs.relation is not None:
        raise InvalidError(f"--relation: expected a data set of triples, found `{first}`")
    if is_named(first):
        return open_named(first, split=inputs.ogb_split)
    if whole and is_tu(Path(first)):
        return open_tu(Path(first))
    if whole and is_graphbolt(Path(first)):
        return open_untyped(Path(first), reading)
    if whole:
        return ogb.open_layout(Path(first), inputs.ogb_split)
    if inputs.ogb_split is not None:
        raise InvalidError("--ogb-split: expected a data set of OGB, found files of edges")
    many = None if more or inputs.format != "auto" else open_graph_file(first, inputs.task)
    if many is not None:
        return many
    kind, shape = cast(EdgeFormat, inputs.format), inputs.edge_shape
    values, parts = inputs.edge_values.names, Parts()
    return GraphSource(
        [open_edges(text, kind, inputs.text, shape, values, parts) for text in inputs.edges]
    )


def with_graphs(source: GraphSource, inputs: Inputs, reading: Reading) -> GraphSource:
    """The source with what was given about graphs: ids, labels and splits.

    Errors: `InvalidError` for graph ids of a set that has its own, or another number of nodes.
    """
    level = source.graphs
    if inputs.graph_ids is not None:
        if level is not None:
            raise InvalidError(f"--graph-ids: `{inputs.edges[0]}` says itself what its graphs are")
        level = with_ids(inputs.graph_ids, reading)
    if level is None:
        return source
    if inputs.nodes not in (None, level.nodes):
        raise InvalidError(f"--nodes: found {inputs.nodes}, but {level.nodes} nodes have a graph")
    reading = replace(reading, fill=None, nodes=level.count)
    if inputs.labels is not None:
        labels = {"y": read_labels(inputs.labels, reading, inputs.task)}
        level = replace(level, arrays={**level.arrays, **labels})
    splits = read_splits(inputs.splits, reading)
    if splits:
        level = replace(level, splits={**level.splits, **splits})
    return replace(source, graphs=level, nodes=level.nodes)


def _refuse_options(data_set: str, inputs: Inputs) -> None:
    """Errors: `InvalidError` for options of files of edges, and of OGB beside a set of PyG."""
    is_split_of_pyg = data_set.startswith("pyg:") and inputs.ogb_split is not None
    for option, is_given in (
        ("--format", inputs.format != "auto"),
        ("--edge-shape", inputs.edge_shape is not None),
        ("--ogb-split", is_split_of_pyg),
    ):
        if is_given:
            raise InvalidError(f"{option}: has no effect on `{data_set}`")


def array_name(text: str, inputs: Inputs) -> tuple[str, str]:
    """Name and file of `NAME=FILE`.

    Errors: `InvalidError` for another form, and for names that batches use themselves.
    """
    name, equals, file = text.partition("=")
    if not equals or not name:
        raise InvalidError(f"--array: expected NAME=FILE, found `{text}`")
    roles = {"x": ("--features", inputs.features), "y": ("--labels", inputs.labels)}
    if name in roles:
        option, given = roles[name]
        if given is not None:
            raise InvalidError(
                f"--array: `{name}` is what {option} makes\nhint: choose another name for `{file}`"
            )
    elif name in RESERVED:
        raise InvalidError(
            f"--array: a batch has something else under the name `{name}`\n"
            f"hint: choose another name for `{file}`"
        )
    return name, file


def node_files(inputs: Inputs) -> list[tuple[Role, str, str]]:
    """Role, name and file of each node array, splits aside.

    Errors: `InvalidError` for a wrong name, or one that comes twice.
    """
    wanted: list[tuple[Role, str, str]] = []
    if inputs.features is not None:
        wanted.append(("features", "x", inputs.features))
    if inputs.labels is not None:
        wanted.append(("labels", "y", inputs.labels))
    named = [array_name(text, inputs) for text in inputs.arrays]
    require_once("--array", [name for name, _ in named])
    return wanted + [("array", name, file) for name, file in named]


def _arrays(inputs: Inputs, reading: Reading) -> list[NodeArray]:
    arrays, reading = _in_order(inputs, node_files(inputs), reading)
    if inputs.splits.archive is not None:
        found = open_splits(inputs.splits.archive, reading)
        arrays.extend(NodeArray("split", name, rows) for name, rows in found)
    single = [open_split(text, reading) for text in inputs.splits.single]
    require_once("--split", [name for name, _ in single])
    for name, rows in single:
        arrays = [array for array in arrays if (array.role, array.name) != ("split", name)]
        arrays.append(NodeArray("split", name, rows))
    return arrays


def _texts(inputs: Inputs, reading: Reading) -> tuple[list[NodeArray], int]:
    """Texts of nodes, and the number of nodes, which they say where nothing else does."""
    files = text_files(inputs.texts)
    nodes = reading.nodes
    if nodes is None:
        nodes = max(open_texts(name, None, file, reading)[1] for name, file in files)
        reading = replace(reading, nodes=nodes)
    return [one for name, file in files for one in open_texts(name, None, file, reading)[0]], nodes


def _in_order(
    inputs: Inputs, wanted: list[tuple[Role, str, str]], reading: Reading
) -> tuple[list[NodeArray], Reading]:
    """Opens node arrays, with the number of nodes that they imply together.

    Rows in the order of the nodes say it, whatever ids other tables have; else the largest id.
    """
    opened: dict[tuple[str, str], list[NodeArray]] = {}
    # Arrays come first: they say at once how many rows they have.
    for role, name, file in sorted(wanted, key=lambda one: not is_array(FileSpec.parse(one[2]))):
        found = opened[role, name] = _node_arrays(inputs, role, name, file, reading)
        if reading.nodes is None and found[0].rows.key is None:
            reading = replace(reading, nodes=found[0].rows.count)
    if reading.nodes is None:
        counts = [found[0].rows.count or 0 for found in opened.values()]
        reading = replace(reading, nodes=max(counts, default=None))
    for role, name, file in wanted:
        rows = opened[role, name][0].rows
        if rows.key is not None and rows.count != reading.nodes:
            opened[role, name] = _node_arrays(inputs, role, name, file, reading)
        require_row_of_each_node(file, opened[role, name][0].rows, reading)
    return [array for role, name, _ in wanted for array in opened[role, name]], reading


def _node_arrays(
    inputs: Inputs, role: Role, name: str, file: str, reading: Reading
) -> list[NodeArray]:
    """The array in a file, and what comes with it."""
    if role == "labels":
        return label_arrays(file, reading, inputs.task)
    is_other = role == "array"
    rows = open_rows(file, replace(reading, takes_times=is_other))
    return [NodeArray(role, name, as_times(name, rows) if is_other else rows)]
