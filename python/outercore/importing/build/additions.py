"""Adds arrays to an existing data set: features, labels, splits, arrays of nodes and edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.base.native import Addition, Progress, verify_arrays
from outercore.base.shell import quoted
from outercore.data.graph import Graph, require_one_name
from outercore.data.many_graphs import has_graphs
from outercore.data.names import Names
from outercore.data.node_names import names_of_items
from outercore.errors import InvalidError, NotFoundError
from outercore.files.file_spec import FileSpec
from outercore.importing.build.graph import feed_array, require_comparable, require_place
from outercore.importing.edge_arrays import edge_rows
from outercore.importing.id_notes import zeros_in_front
from outercore.importing.inputs import FileInputs
from outercore.importing.node_files import NodeFile, require_array_name
from outercore.importing.options import ArrayOptions, require_once
from outercore.importing.splits import open_choice
from outercore.importing.table.columns import node_columns
from outercore.importing.table.file_state import require_unchanged
from outercore.importing.table.keys import NodeIds, key_texts
from outercore.importing.table.rows import (
    NodeArray,
    Reading,
    as_times,
    is_array,
    open_node_table,
    require_row_of_each_node,
)
from outercore.importing.table.table import Table
from outercore.importing.table.text import offsets_and_bytes
from outercore.importing.texts import require_text_name


@dataclass(frozen=True, kw_only=True)
class Additions(FileInputs):
    """Arrays to add, as text from the user.

    In a graph with several types, features and labels are `TYPE=FILE`, and arrays
    `TYPE/NAME=FILE`.
    """

    features: tuple[str, ...] = ()
    labels: str | None = None
    arrays: tuple[str, ...] = ()
    edge_arrays: tuple[str, ...] = ()
    key: str | None = None
    """The column of ids in tables of nodes, if its name does not say so."""


def add(
    root: Path,
    given: Additions,
    options: ArrayOptions,
    progress: Progress,
    note: Callable[[str], object],
    *,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Adds arrays to the data set in `root`, all at once.

    Returns a summary of each array: the numbers of its rows, missing values and classes. `note` is
    called with each note for the user. If the call is interrupted, the data set is unchanged.
    Repeat the call to start from the beginning.

    Cost: reads each file as an import does; the core reads `.npy` files in blocks.
    Errors: `InvalidError` names the option or the file with its row; `NotFoundError` for a type or
    a name that the data set does not have; `UnsupportedError` for a data set that takes updates.
    """
    graph = Graph(root)
    arrays = _Opening(graph, given, options).all()
    if not arrays:
        raise InvalidError(
            "nothing to add: expected `--features`, `--labels`, `--split`, `--array`, `--text` or "
            "`--edge-array`"
        )
    require_place(arrays, options)
    require_comparable(arrays, _times_of(graph, arrays))
    for text in (text for array in arrays for text in array.rows.notes):
        note(text)
    if padded := sum(array.rows.padded for array in arrays):
        note(zeros_in_front(padded))
    with Addition(root, progress, overwrite=overwrite) as addition:
        for array in arrays:
            feed_array(addition, array, options, progress)
        require_unchanged([state for array in arrays for state in array.rows.files])
        added = addition.finish([array.rows.name for array in arrays])
    # The files of replaced arrays are removed only when no reader has them open.
    graph.reload()
    return added


def _times_of(graph: Graph, replaced: list[NodeArray]) -> Iterator[tuple[str, str, str | None]]:
    """Existing integer arrays, without `replaced`: name in messages, name, and type if a time."""
    own = {"array": "nodes", "edge": "edges"}
    gone = {
        f"{own[one.role]}/{one.of_type or own[one.role][:-1]}/{one.name}"
        for one in replaced
        if one.role in own
    }
    times = graph.schema.times
    for key, entry in graph.arrays.items():
        parts = key.split("/", 2)
        is_whole = len(entry["shape"]) == 1 and "int" in entry["dtype"]
        if len(parts) == 3 and is_whole and key not in gone:
            yield f"array `{key}`", parts[2], times.get(key)


class _Opening:
    """Opens the files of `given` for a data set."""

    def __init__(self, graph: Graph, given: Additions, options: ArrayOptions) -> None:
        self._graph, self._given, self._task = graph, given, options.task
        names = None if graph.is_typed else names_of_items(graph)
        reading = replace(given.reading(options), key=given.key)
        self._is_named = isinstance(names, Names)
        if isinstance(names, Names):
            self._reading = replace(reading, ids=by_name(names, graph))
        else:
            # Data sets of earlier versions lack the first id, so the option still counts.
            first = max(graph.first_id, int(given.text.one_based))
            self._reading = reading.starting_at(first, "as in the files of the data set")
        self._labelled = graph.labelled_type

    def all(self) -> list[NodeArray]:
        """All arrays. Labels come before splits, because they give the node type of the splits."""
        given = self._given
        return [
            *(array for text in given.features for array in self._features(text)),
            *([] if given.labels is None else self._labels(given.labels)),
            *self._splits(),
            *(array for text in given.arrays for array in self._array(text)),
            *(array for text in given.texts for array in self._text(text)),
            *(self._edge_array(text) for text in given.edge_arrays),
        ]

    def _features(self, text: str) -> list[NodeArray]:
        node_type, file = self._type_of("--features", text)
        return self._open(NodeFile("features", "x", file, node_type))

    def _labels(self, text: str) -> list[NodeArray]:
        self._refuse_graphs("--labels")
        node_type, file = self._type_of("--labels", text)
        if self._labelled not in (None, node_type or "node"):
            raise InvalidError(
                f"--labels: the data set has labels of `{self._labelled}`, expected none or those"
            )
        self._labelled = node_type or "node"
        return self._open(NodeFile("labels", "y", file, node_type))

    def _array(self, text: str) -> list[NodeArray]:
        node_type, name, file = self._named("--array", text)
        require_array_name(name, file)
        require_one_name(self._graph, node_type or "node", name)
        return self._open(NodeFile("array", name, file, node_type))

    def _text(self, text: str) -> list[NodeArray]:
        node_type, name, file = self._named("--text", text)
        require_text_name(name)
        require_one_name(self._graph, node_type or "node", name, is_text=True)
        return self._open(NodeFile("names", name, file, node_type))

    def _edge_array(self, text: str) -> NodeArray:
        edge_type, name, file = self._named("--edge-array", text)
        spec = FileSpec.parse(file, may_leave_out=True)
        rows = edge_rows("--edge-array", spec, replace(self._reading, takes_times=True))
        return NodeArray("edge", name, as_times(name, rows), edge_type)

    def _splits(self) -> list[NodeArray]:
        choice = self._given.splits
        if not choice.is_given:
            return []
        self._refuse_graphs("--split")
        of_type = self._labelled if self._graph.is_typed else None
        if self._graph.is_typed and of_type is None:
            raise InvalidError(
                "--split: the data set has no labels, which say whose nodes these are\n"
                "hint: give `--labels TYPE=FILE` with it"
            )
        found = open_choice(choice, self._reading_of(of_type))
        require_once("--split", [name for name, _ in found])
        return [NodeArray("split", name, rows, of_type) for name, rows in found]

    def _open(self, file: NodeFile) -> list[NodeArray]:
        """The arrays of a file, with a row for each node."""
        self._require_ids(file.file)
        reading = self._reading_of(file.of_type)
        arrays = file.open(reading, self._task)
        if file.of_type is None and file.role != "names":
            require_row_of_each_node(file.file, arrays[0].rows, reading)
        return arrays

    def _reading_of(self, node_type: str | None) -> Reading:
        """The reading options for files about nodes of a type; a table may name nodes by key."""
        count = self._count(node_type)
        if node_type is None:
            return replace(self._reading, nodes=count)
        keys = self._graph.keys_of(node_type)
        ids = _NO_KEYS if keys is None else by_name(keys, self._graph)
        return replace(self._reading, nodes=count, ids=ids)

    def _count(self, node_type: str | None) -> int:
        counts = self._graph.node_types
        if node_type is not None and node_type not in counts:
            raise NotFoundError(
                f"there is no node type `{node_type}`\nhint: there are {' and '.join(counts)}"
            )
        return counts[node_type or "node"]

    def _require_ids(self, file: str) -> None:
        """Errors: `InvalidError` for a table without a column of ids, if the nodes have names."""
        spec = FileSpec.parse(file, may_leave_out=True)
        if not self._is_named or is_array(spec):
            return
        table = open_node_table(spec, self._reading)
        if node_columns(spec, table, self._given.key).key is not None:
            return
        others = [name for name in table.names if name not in spec.columns]
        way = "write a table with the names of the nodes"
        if table.is_named and others and len(table.names) > 1:
            way = f"name the column of keys: `--key {quoted(others[0])}`"
        raise InvalidError(
            f"`{file}`: no column of ids, and the nodes have names\nhint: {way}; or write a `.npy` "
            "with a row for each node, in the order of `graph.entity_names()`"
        )

    def _type_of(self, option: str, text: str) -> tuple[str | None, str]:
        if not self._graph.is_typed:
            return None, text
        node_type, equals, file = text.partition("=")
        if not equals or node_type not in self._graph.node_types:
            known = ", ".join(self._graph.node_types)
            raise InvalidError(
                f"{option}: expected TYPE=FILE with a type of {known}; found `{text}`"
            )
        return node_type, file

    def _named(self, option: str, text: str) -> tuple[str | None, str, str]:
        """Type, name and file from a text such as `paper/year=years.npy` or `year=years.npy`."""
        name, equals, file = text.partition("=")
        kind, slash, short = name.partition("/")
        form = "TYPE/NAME=FILE" if self._graph.is_typed else "NAME=FILE"
        if not equals or not name or self._graph.is_typed != bool(slash and short):
            raise InvalidError(f"{option}: expected {form}, found `{text}`")
        return (kind, short, file) if slash else (None, name, file)

    def _refuse_graphs(self, option: str) -> None:
        if has_graphs(self._graph):
            raise InvalidError(
                f"{option}: the data set is one of many graphs, whose labels and splits come with "
                "the import\nhint: import it again with them"
            )


def by_name(names: Names, graph: Graph) -> NodeIds:
    """Reads a column of node names as node ids.

    It first verifies the checksums of the names: damaged names would give rows to wrong nodes.
    """

    def ids(table: Table, key: str) -> Iterator[NDArray[np.int64]]:
        row = 0
        verify_arrays(graph.root, names.keys)
        for (column,) in key_texts(table, [key]):
            found = names.lookup(*offsets_and_bytes(column))
            if len(wrong := np.flatnonzero(found < 0)):
                place = int(wrong[0])
                raise NotFoundError(
                    f"`{table.path}`: row {row + place}: column `{key}` names node "
                    f"`{column[place].as_py()}`, which is not in the data set"
                )
            row += len(found)
            yield found

    return NodeIds(ids, names.names)


def _no_keys(table: Table, key: str) -> Iterator[NDArray[np.int64]]:
    """Raises `InvalidError`, because the nodes of this type lack keys."""
    raise InvalidError(
        f"`{table.path}`: column `{key}` holds keys, and the nodes of this type have none\n"
        f"hint: leave the column `{key}` out, and write a row for each node in their order"
    )


_NO_KEYS = NodeIds(_no_keys, lambda nodes: nodes.tolist())
