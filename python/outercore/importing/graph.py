"""One import: edges and arrays from anywhere, into one data set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from outercore.base.fields import one_of
from outercore.base.native import Arrays, Importer, Progress, Role
from outercore.base.options import Option
from outercore.base.sizes import parse_size
from outercore.errors import InvalidError
from outercore.importing.edge_arrays import EdgeArray
from outercore.importing.edge_visitor import with_range
from outercore.importing.edges import EdgeSource
from outercore.importing.many_graphs import GraphLevel, add_graphs, is_unfinished, require_inside
from outercore.importing.table.file_state import FileState, require_unchanged
from outercore.importing.table.rows import RowSource, count_rows
from outercore.importing.table.times import require_one_scale

FeatureType = Literal["float64", "float32", "float16", "bfloat16"]


@dataclass(frozen=True)
class NodeArray:
    """An array and what it is for."""

    role: Role
    name: str
    rows: RowSource
    of_type: str | None = None
    """The node type, or edge type, that it belongs to in a graph of several."""


@dataclass(frozen=True)
class GraphSource:
    """Everything that one data set is made from."""

    edges: list[EdgeSource]
    arrays: list[NodeArray] = field(default_factory=list)
    nodes: int | None = None
    undirected: bool | None = None
    """What the origin says about its edges; `ImportOptions.undirected` wins."""
    edge_arrays: list[EdgeArray] = field(default_factory=list)
    reading: str = ""
    """What else decides how the inputs are read; an import with another one is another import."""
    notes: list[str] = field(default_factory=list)
    """How the inputs were understood, to be shown once."""
    graphs: GraphLevel | None = None
    """Which nodes belong to which graph, in a data set of many."""
    also_read: tuple[FileState, ...] = ()
    """What was read besides edges and arrays."""

    @property
    def first_id(self) -> int:
        """What the inputs call node 0; 0 where they disagree."""
        found = {edge.first_id for edge in self.edges}
        return found.pop() if len(found) == 1 else 0

    def inputs(self) -> list[str]:
        """The names of all inputs, for the provenance."""
        return [
            *(edge.name for edge in self.edges),
            *(array.rows.name for array in self.arrays),
            *(array.rows(False).name for array in self.edge_arrays if array.files),
        ]

    def files(self) -> list[FileState]:
        """What everything is read from, as it was when it was opened."""
        sources = [
            *(edge.files for edge in self.edges),
            *(array.rows.files for array in self.arrays),
            *(array.files for array in self.edge_arrays),
            self.also_read,
        ]
        return [state for files in sources for state in files]

    def stated_nodes(self, said: int | None = None) -> int | None:
        """The number of nodes that the user has `said`, or that the inputs state."""
        if said is not None or self.nodes is not None:
            return said if said is not None else self.nodes
        # Another edge list may have nodes that the matrix does not know.
        stated = [edge.nodes or 0 for edge in self.edges]
        return max(stated) if stated and all(stated) else None

    def node_count(self) -> int | None:
        """The number of nodes that the arrays imply; nodes without an edge count too.

        Cost: reads features or labels once where only reading tells.
        """
        if (stated := self.stated_nodes()) is not None:
            return stated
        for array in self.arrays:
            if array.role in ("features", "labels", "array"):
                return count_rows(array.rows)
        return None


@dataclass(frozen=True)
class ArrayOptions:
    """How files become arrays of nodes."""

    task: Annotated[
        Literal["classification", "multi-label", "regression"] | None,
        Option(
            "What the labels are: `classification`, `multi-label` or `regression`; by their values "
            "by default."
        ),
    ] = None
    memory: Annotated[
        str | int, Option("Memory budget: `8GiB`, `25%` of the machine, or `auto`.", size=True)
    ] = "1GiB"
    feature_dtype: Annotated[
        FeatureType | None,
        Option("`float64`, `float32`, `float16` or `bfloat16`; the file's by default."),
    ] = None
    in_place: Annotated[bool, Option("Register a `.npy` of features without copying it.")] = False
    allow_nan: bool = False
    """Whether missing values stay missing, as NaN; otherwise they are refused."""

    def __post_init__(self) -> None:
        if self.task is not None:
            one_of("task", self.task, ("classification", "multi-label", "regression"))
        if self.feature_dtype is not None:
            one_of("feature_dtype", self.feature_dtype, get_args(FeatureType))


@dataclass(frozen=True)
class ImportOptions(ArrayOptions):
    """How the inputs become a graph."""

    undirected: Annotated[
        bool | None, Option("Store every edge in both directions.", off="--directed")
    ] = None
    self_loops: Annotated[Literal["keep", "drop", "add"], Option("`keep`, `drop` or `add`.")] = (
        "keep"
    )
    duplicates: Annotated[Literal["keep", "drop"], Option("`keep` or `drop`.")] = "keep"
    overwrite: Annotated[bool, Option("Replace a data set that is there already.")] = False
    outside_files: Annotated[
        bool, Option("Read files outside of a folder that its description or links name.")
    ] = False
    command: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("self_loops", self.self_loops, ("keep", "drop", "add"))
        one_of("duplicates", self.duplicates, ("keep", "drop"))


def _silent(phase: str, done: int, total: int, unit: str) -> None:
    """Shows nothing."""


def import_graph(
    source: GraphSource,
    out: str | Path,
    options: ImportOptions | None = None,
    progress: Progress = _silent,
) -> dict[str, Any]:
    """Writes a data set and returns the summary.

    Stopped in between, the same call goes on where it stopped; the data set appears only when
    it is complete.

    Cost: within `options.memory`, whatever the size of the inputs.
    Errors: `InvalidError` names the input with its row; `NoSpaceError`; `InvalidError` where
    `out` holds a data set and `overwrite` is not given, or somebody else writes to it.
    """
    options = options or ImportOptions()
    require_place(source.arrays, options)
    undirected = options.undirected if options.undirected is not None else source.undirected
    if source.edge_arrays and options.self_loops == "add":
        raise InvalidError(
            "--self-loops add: the added edges have no row in the edge array "
            f"`{source.edge_arrays[0].name}`\nhint: add the loops to the edge list, with values"
        )
    nodes = source.node_count()
    described = {
        "memory": parse_size(options.memory),
        "nodes": nodes,
        "first_id": source.first_id,
        "undirected": bool(undirected),
        "self_loops": options.self_loops,
        "duplicates": options.duplicates,
        "overwrite": options.overwrite,
        "command": options.command,
        "inputs": source.inputs(),
        "edges": [edge.identity for edge in source.edges],
        "reading": source.reading,
    }
    if source.graphs is None:
        return _import_nodes(source, Path(out), options, described, progress)
    found: dict[str, Any] = {}
    if not is_unfinished(Path(out), described):
        require_inside(source.edges, source.graphs)
        found = _import_nodes(source, Path(out), options, described, progress)
    return found | add_graphs(Path(out), source.graphs)


def require_place(arrays: list[NodeArray], options: ArrayOptions) -> None:
    """Errors: `InvalidError` where features shall stay in place and none lie in a `.npy`, and where
    an array and a text have one name."""
    texts = {array.name for array in arrays if array.role == "names"}
    for array in arrays:
        if array.role == "array" and f"{array.of_type or 'node'}.{array.name}.offsets" in texts:
            raise InvalidError(
                f"array `{array.name}`: the nodes have a text of this name\n"
                "hint: call one of them otherwise"
            )
    features = [array.rows for array in arrays if array.role == "features"]
    if options.in_place and all(rows.path is None for rows in features):
        raise InvalidError(
            "--in-place: expected features in a `.npy` file, which can stay where they are\n"
            "hint: name one by `--features`, or leave `--in-place` out and they are copied"
        )


def _import_nodes(
    source: GraphSource,
    out: Path,
    options: ImportOptions,
    described: dict[str, Any],
    progress: Progress,
) -> dict[str, Any]:
    """Writes the edges and what belongs to nodes and edges; returns the summary."""
    of_edges = [
        NodeArray("edge", array.name, array.rows(not described["undirected"]))
        for array in source.edge_arrays
    ]
    require_comparable([*source.arrays, *of_edges])
    with Importer(out, described, progress) as importer:
        for edges in source.edges:
            try:
                edges.feed(importer, described["nodes"])
            except InvalidError as error:
                raise with_range(error, edges, described["nodes"]) from None
        for array in [*source.arrays, *of_edges]:
            feed_array(importer, array, options, progress)
        require_unchanged(source.files())
        return importer.finish()


def require_comparable(
    arrays: list[NodeArray], present: Iterable[tuple[str, str, str | None]] = ()
) -> None:
    """Errors: as `require_one_scale`, for arrays beside those that are `present` already."""
    of = {"array": "nodes", "edge": "edges"}
    named = [
        (f"`{array.name}` of {array.of_type or of[array.role]}", array.name, array.rows.times)
        for array in arrays
        if array.role in of and array.rows.width is None and array.rows.dtype.kind in "iu"
    ]
    require_one_scale([*present, *named])


def feed_array(
    importer: Arrays, array: NodeArray, options: ArrayOptions, progress: Progress
) -> None:
    """Hands an array to the importer, whole or chunk by chunk."""
    rows = array.rows
    described: dict[str, Any] = {
        "allow_nan": options.allow_nan or rows.has_gaps,
        "of_type": array.of_type,
        "times": rows.times if array.role in ("array", "edge") else None,
    }
    if array.role == "features":
        described["dtype"] = options.feature_dtype or (None if rows.typed else "float32")
    if array.role == "labels":
        described["task"] = options.task
    if rows.keeps_form and _differs(array):
        described["given"] = {"dtype": rows.dtype.name, "row_shape": rows.row_shape}
    if rows.path is not None:
        described["in_place"] = options.in_place and array.role == "features"
        importer.array_npy(array.role, array.name, rows.path, described)
        return
    importer.array_begin(array.role, array.name, rows.dtype.name, rows.width, described)
    stored = described.get("dtype")
    for chunk in _counted(rows, array.name or array.role, stored, progress):
        importer.array_push(chunk)
    importer.array_end()


def _differs(array: NodeArray) -> bool:
    """Whether batches would have the array in another form than that in which it is given.

    Features are stored in columns and come as float32. Labels, weights and times of one column are
    stored without it.
    Whole numbers as labels stay classes, whatever their width.
    """
    rows = array.rows
    if array.role == "edge":
        return rows.is_column
    if array.role == "features":
        return rows.width is None or rows.dtype.kind in "iub"
    is_column = rows.is_column or rows.width == 1
    return array.role == "labels" and (is_column or rows.dtype.kind == "f")


def _counted(
    rows: RowSource, name: str, stored: FeatureType | None, progress: Progress
) -> Iterator[NDArray]:
    done = 0
    for chunk in rows.chunks():
        if stored is not None and rows.whole:
            _refuse_other_numbers(rows, chunk, stored, done)
        yield chunk
        done += len(chunk)
        progress(f"array {name}", done, rows.count or 0, "rows")


def _refuse_other_numbers(rows: RowSource, chunk: NDArray, stored: FeatureType, first: int) -> None:
    """Errors: `InvalidError` for a whole number of the file that `stored` cannot hold."""
    values = chunk.reshape(len(chunk), -1)[:, list(rows.whole)]
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32 if stored == "bfloat16" else stored)
    if stored == "bfloat16":
        # bfloat16 is the upper half of a float32.
        narrow = np.where(narrow.view(np.uint32) & 0xFFFF, np.float32(np.inf), narrow)
    # What fills a gap may be a fraction.
    whole = np.isfinite(values) & (values == np.trunc(values))
    changed = np.argwhere(whole & (narrow != values))
    if len(changed):
        row, place = changed[0]
        raise InvalidError(
            f"`{rows.name}`: row {first + row}, column {rows.whole[place]}: "
            f"{int(values[row, place])} would change as {stored}\n"
            "hint: `--feature-dtype float64` holds whole numbers up to 2^53; or scale them before"
        )
