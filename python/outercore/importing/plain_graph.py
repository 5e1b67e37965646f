"""Opens the inputs of a graph of one type as one source."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.importing.edge_arrays import edge_arrays
from outercore.importing.edges import EdgeFormat, open_edges
from outercore.importing.format.registry import is_named, located, plain_format
from outercore.importing.inputs import Inputs
from outercore.importing.many_graphs import open_graph_ids, read_labels, read_splits
from outercore.importing.node_files import NodeFile, require_array_name
from outercore.importing.options import ImportOptions, require_once
from outercore.importing.source import GraphSource
from outercore.importing.splits import SplitChoice, open_choice
from outercore.importing.table.parquet import is_parquet
from outercore.importing.table.parts import Parts
from outercore.importing.table.rows import (
    NodeArray,
    Reading,
    RowSource,
    is_array,
    require_row_of_each_node,
)
from outercore.importing.texts import open_texts, text_files

_FORMATS = ("auto", "text", "npy", "npz", "parquet", "mtx", "dimacs")

_SHAPES = (None, "2,E", "E,2")


def open_inputs(inputs: Inputs, options: ImportOptions | None = None) -> GraphSource:
    """Opens everything that `inputs` names. Explicit files replace the arrays of a whole data set.

    It writes nothing.

    Errors: `NotFoundError` and `InvalidError` name the file.
    """
    options = options or ImportOptions()
    if inputs.nodes is not None and inputs.nodes < 0:
        raise InvalidError(f"--nodes: expected at least 0, found {inputs.nodes}")
    reading, source = inputs.reading(options), _edges(inputs, options)
    if source.graphs is None and inputs.graph_ids is None:
        first_id = max(source.first_id, int(inputs.text.one_based))
        reading = reading.starting_at(first_id, f"as in `{inputs.edges[0]}`")
    source = _with_graphs(source, inputs, reading, options.task)
    if source.graphs is not None:
        # Labels and splits belong to graphs.
        inputs = replace(inputs, labels=None, splits=SplitChoice(), nodes=source.graphs.nodes)
    of_all = replace(reading, nodes=source.stated_nodes(inputs.nodes))
    given = _arrays(inputs, of_all, options.task)
    others = {one.name for one in source.of_nodes if one.role != "array"}
    for array in given:
        if array.role == "array" and array.name in others:
            raise InvalidError(f"--array: `{array.name}` is in `{inputs.edges[0]}` already")
    nodes = inputs.nodes if inputs.nodes is not None else source.nodes
    if inputs.texts:
        counted = replace(source, arrays=_replaced(source.arrays, given), nodes=nodes).node_count()
        texts, nodes = _texts(inputs, replace(reading, nodes=counted))
        given += texts
    of_edges, notes = edge_arrays(source.edges, inputs.edge_values, reading)
    notes = [
        *source.notes,
        *_disagreement(source, inputs),
        *(note for edges in source.edges for note in edges.notes),
        *(note for array in given for note in array.rows.notes),
        *notes,
    ]
    arrays = _replaced(source.arrays, [*given, *of_edges])
    notes += notes_on_size(arrays, options)
    return replace(
        source,
        arrays=arrays,
        nodes=nodes,
        notes=notes,
        identity=reading_identity(inputs, options.task),
    )


def notes_on_size(arrays: list[NodeArray], options: ImportOptions) -> list[str]:
    """Notes on features that would need half the bytes as float32."""
    return [
        f"features stay {array.rows.dtype}; `--feature-dtype float32` would halve what training "
        "reads"
        for array in arrays
        if array.role == "features" and array.rows.typed and array.rows.dtype.itemsize == 8
        if options.feature_dtype is None
    ]


def _replaced(arrays: list[NodeArray], given: list[NodeArray]) -> list[NodeArray]:
    """All arrays. Arrays in `given` replace arrays with the same role and name."""
    names = {(array.role, array.name) for array in given}
    return [*(one for one in arrays if (one.role, one.name) not in names), *given]


def _disagreement(source: GraphSource, inputs: Inputs) -> list[str]:
    """A note if ids start at 0 in some files and at 1 in others."""
    by_first = {edge.first_id: edge.name for edge in source.edges}
    if len(by_first) < 2:
        return []
    return [
        f"ids start at 1 in `{by_first[1]}` and at 0 in `{by_first[0]}`: results have them from 0; "
        "if all start at 1, say `--one-based`"
    ]


def reading_identity(inputs: Inputs, task: str | None) -> str:
    """The options, as text, that change the import of the same files."""
    chosen = [inputs.edge_shape, vars(inputs.edge_values), task, inputs.graph_ids]
    return json.dumps([inputs.text.native(), inputs.fill, *chosen])


def _edges(inputs: Inputs, options: ImportOptions) -> GraphSource:
    if inputs.format not in _FORMATS:
        raise InvalidError(
            f"--format: expected one of {', '.join(_FORMATS)}; found `{inputs.format}`"
        )
    if inputs.edge_shape not in _SHAPES:
        raise InvalidError(f"--edge-shape: expected 2,E or E,2; found `{inputs.edge_shape}`")
    first, *more = inputs.edges
    is_whole = is_named(first) or (Path(first).is_dir() and not is_parquet(Path(first)))
    if is_whole and more:
        raise InvalidError(f"`{first}` is a whole data set; expected nothing beside it")
    if is_whole:
        _refuse_options(first, inputs)
    elif inputs.ogb_split is not None:
        raise InvalidError("--ogb-split: expected a data set of OGB, found files of edges")
    whole, path = None, Path(first)
    if is_whole or (path.is_file() and not more and inputs.format == "auto"):
        whole = plain_format(path := located(first))
    known = () if whole is None else whole.options
    if options.outside_files and "outside_files" not in known:
        raise InvalidError(f"--outside-files: has no effect on `{first}`, which names no files")
    if inputs.relation is not None and "relation" not in known:
        raise InvalidError(f"--relation: expected a data set of triples, found `{first}`")
    if whole is not None:
        return whole.open(path, inputs, options)
    kind, shape = cast(EdgeFormat, inputs.format), inputs.edge_shape
    values, parts = inputs.edge_values.names, Parts()
    return GraphSource(
        [open_edges(text, kind, inputs.text, shape, values, parts) for text in inputs.edges]
    )


def _with_graphs(
    source: GraphSource, inputs: Inputs, reading: Reading, task: str | None
) -> GraphSource:
    """The source with the graph of each node, and with labels and splits of graphs, if any.

    Errors: `InvalidError` for the option `graph_ids` if the data set already has graphs, and for
    another number of nodes.
    """
    level = source.graphs
    if inputs.graph_ids is not None:
        if level is not None:
            raise InvalidError(f"--graph-ids: `{inputs.edges[0]}` says itself what its graphs are")
        level = open_graph_ids(inputs.graph_ids, reading)
    if level is None:
        return source
    if inputs.nodes not in (None, level.nodes):
        raise InvalidError(f"--nodes: found {inputs.nodes}, but {level.nodes} nodes have a graph")
    reading = replace(reading, fill=None, nodes=level.count)
    if inputs.labels is not None:
        labels = {"y": read_labels(inputs.labels, reading, task)}
        level = replace(level, arrays={**level.arrays, **labels})
    splits = read_splits(inputs.splits, reading)
    if splits:
        level = replace(level, splits={**level.splits, **splits})
    return replace(source, graphs=level, nodes=level.nodes)


def _refuse_options(data_set: str, inputs: Inputs) -> None:
    """Errors: `InvalidError` for options without effect on a whole data set."""
    is_split_of_pyg = data_set.startswith("pyg:") and inputs.ogb_split is not None
    for option, is_given in (
        ("--format", inputs.format != "auto"),
        ("--edge-shape", inputs.edge_shape is not None),
        ("--ogb-split", is_split_of_pyg),
    ):
        if is_given:
            raise InvalidError(f"{option}: has no effect on `{data_set}`")


def _array_name(text: str, inputs: Inputs) -> tuple[str, str]:
    """Name and file from `NAME=FILE`.

    Errors: `InvalidError` for another form, and for names that batches use in another way.
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
    else:
        require_array_name(name, file)
    return name, file


def node_files(inputs: Inputs) -> list[NodeFile]:
    """The files of node arrays, without splits and texts.

    Errors: `InvalidError` for a wrong name, or a name that occurs twice.
    """
    wanted = []
    if inputs.features is not None:
        wanted.append(NodeFile("features", "x", inputs.features))
    if inputs.labels is not None:
        wanted.append(NodeFile("labels", "y", inputs.labels))
    named = [_array_name(text, inputs) for text in inputs.arrays]
    require_once("--array", [name for name, _ in named])
    return wanted + [NodeFile("array", name, file) for name, file in named]


def _arrays(inputs: Inputs, reading: Reading, task: str | None) -> list[NodeArray]:
    arrays, reading = _in_order(node_files(inputs), reading, task)
    splits: dict[str, RowSource] = {}
    for name, rows in open_choice(inputs.splits, reading):
        splits.pop(name, None)
        splits[name] = rows
    return arrays + [NodeArray("split", name, rows) for name, rows in splits.items()]


def _texts(inputs: Inputs, reading: Reading) -> tuple[list[NodeArray], int]:
    """Texts of nodes, and the number of nodes, which the texts give if no other file does."""
    files = text_files(inputs.texts)
    nodes = reading.nodes
    if nodes is None:
        nodes = max(open_texts(name, None, file, reading)[1] for name, file in files)
        reading = replace(reading, nodes=nodes)
    return [one for name, file in files for one in open_texts(name, None, file, reading)[0]], nodes


def _in_order(
    wanted: list[NodeFile], reading: Reading, task: str | None
) -> tuple[list[NodeArray], Reading]:
    """Opens node arrays. Sets the number of nodes in the returned `Reading`.

    The number is the number of rows of a file in the order of the nodes, or else follows from the
    largest id of all tables.
    """
    opened: dict[NodeFile, list[NodeArray]] = {}
    # Arrays come first, because their number of rows is known at once.
    for one in sorted(wanted, key=lambda one: not is_array(FileSpec.parse(one.file))):
        arrays = opened[one] = one.open(reading, task)
        if reading.nodes is None and arrays[0].rows.key is None:
            reading = replace(reading, nodes=arrays[0].rows.count)
    if reading.nodes is None:
        counts = [arrays[0].rows.count or 0 for arrays in opened.values()]
        reading = replace(reading, nodes=max(counts, default=None))
    for one in wanted:
        rows = opened[one][0].rows
        if rows.key is not None and rows.count != reading.nodes:
            opened[one] = one.open(reading, task)
        require_row_of_each_node(one.file, opened[one][0].rows, reading)
    return [array for one in wanted for array in opened[one]], reading
