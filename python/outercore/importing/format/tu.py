"""Opens data sets in the TU layout: a directory of text files that begin with the set's name.

**Source** Morris et al., "TUDataset: a collection of benchmark datasets", 2020.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError, NotFoundError
from outercore.files.file_spec import FileSpec
from outercore.importing.edges import text_edges
from outercore.importing.inputs import Inputs
from outercore.importing.many_graphs import GraphLevel, class_numbers, first_nodes, labels_of
from outercore.importing.options import ImportOptions
from outercore.importing.source import Format, GraphSource
from outercore.importing.table.file_state import states
from outercore.importing.table.rows import NodeArray, from_array
from outercore.importing.table.text import PLAIN, TextOptions, TextTable

_INDICATOR = "_graph_indicator.txt"
_TAKEN = ("A", "graph_indicator", "graph_labels", "graph_attributes", "node_labels")
_OTHERS = ("edge_labels", "edge_attributes")


def is_tu(directory: Path) -> bool:
    """Whether a directory has this layout."""
    return any(directory.glob(f"*{_INDICATOR}"))


def open_tu(directory: Path, _: Inputs, _options: ImportOptions) -> GraphSource:
    """Opens the graphs of such a directory.

    Labels of graphs become classes. Attributes of graphs become the array `attributes`; in a set
    without labels, they become numbers to predict. Labels of nodes become the node array `tag`, and
    attributes of nodes become the features.

    Cost: reads the files of nodes and graphs whole, and streams the edges.
    Errors: `NotFoundError` for a missing file; `InvalidError` with the row that is wrong.
    """
    name = _name(directory)
    path = {part: directory / f"{name}_{part}.txt" for part in (*_TAKEN, "node_attributes")}
    for part in ("A", "graph_indicator"):
        if not path[part].exists():
            raise NotFoundError(f"TU directory `{directory}`: `{path[part].name}` is missing")
    files = [state for one in path.values() if one.exists() for state in states(one)]
    graph_ids = _read(path["graph_indicator"], np.int64).reshape(-1)
    first, nodes = first_nodes(graph_ids, f"`{path['graph_indicator']}`", 1), len(graph_ids)
    arrays, notes = _graph_arrays(path, len(first))
    options = TextOptions(separator="comma", header=False, comment="", one_based=True)
    edges = text_edges(FileSpec(path["A"], ()), "text", options)
    level = GraphLevel(first, nodes, arrays)
    found = [part for part in _OTHERS if (directory / f"{name}_{part}.txt").exists()]
    if found:
        notes.append(f"{directory}: not taken: {', '.join(found)}")
    return GraphSource(
        [edges],
        _node_arrays(path, nodes),
        nodes,
        False,
        notes=[f"{directory}: {level.count:,} graphs, {nodes:,} nodes in the TU layout", *notes],
        graphs=level,
        also_read=tuple(files),
    )


def _name(directory: Path) -> str:
    names = sorted(one.name.removesuffix(_INDICATOR) for one in directory.glob(f"*{_INDICATOR}"))
    if len(names) > 1:
        raise InvalidError(
            f"TU directory `{directory}`: expected one data set, found {', '.join(names)}"
        )
    return names[0]


def _graph_arrays(path: dict[str, Path], graphs: int) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Labels and attributes of graphs, and a note if the classes get new numbers.

    `path` maps each part of the data set to its file; `graphs` is the number of graphs.

    Errors: `NotFoundError` if both are missing.
    """
    arrays: dict[str, NDArray[Any]] = {}
    notes: list[str] = []
    if path["graph_labels"].exists():
        values = _rows_for(path["graph_labels"], graphs, "graph", np.int64)[:, 0]
        arrays["y"], notes = class_numbers(values, f"`{path['graph_labels']}`")
    if path["graph_attributes"].exists():
        where = path["graph_attributes"]
        values = _rows_for(where, graphs, "graph", np.float64)
        numbers = labels_of(values, f"`{where}`", "regression")
        arrays["attributes" if "y" in arrays else "y"] = numbers
    if not arrays:
        raise NotFoundError(
            f"`{path['graph_labels']}` is missing, and so is `{path['graph_attributes'].name}`\n"
            "hint: one of them says what is to be learnt"
        )
    return arrays, notes


def _node_arrays(path: dict[str, Path], nodes: int) -> list[NodeArray]:
    arrays = []
    if (file := path["node_labels"]).exists():
        tags = _rows_for(file, nodes, "node", np.int64)
        tags = tags[:, 0] if tags.shape[1] == 1 else tags
        arrays.append(NodeArray("array", "tag", from_array(str(file), tags)))
    if (file := path["node_attributes"]).exists():
        values = _rows_for(file, nodes, "node", np.float64).astype(np.float32)
        arrays.append(NodeArray("features", "x", from_array(str(file), values)))
    return arrays


def _rows_for(path: Path, count: int, what: str, dtype: Any) -> NDArray[Any]:
    """The rows of a file, one for each of the `count` graphs or nodes (`what`).

    Errors: `InvalidError` for another number of rows.
    """
    rows = _read(path, dtype)
    if len(rows) != count:
        raise InvalidError(f"`{path}`: {len(rows)} rows, expected {count}: one for each {what}")
    return rows


def _read(path: Path, dtype: Any) -> NDArray[Any]:
    table = TextTable.detect(path, "table", PLAIN)
    rows = table.numbers(table.names, np.dtype(dtype), "nan")
    return np.concatenate([np.empty((0, table.width), dtype), *rows])


FORMAT = Format("a directory of the TU collection", is_tu, open_tu)
