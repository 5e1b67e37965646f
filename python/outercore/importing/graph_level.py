"""What the user gives about whole graphs: files of many, graph ids of nodes, labels and splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.importing.format.foreign import refuse_foreign
from outercore.importing.format.graph_text import is_graph_text, open_graph_text
from outercore.importing.format.molecules import is_molecules, open_molecules
from outercore.importing.graph import GraphSource
from outercore.importing.many_graphs import GraphLevel, first_nodes, labels_of, split_of
from outercore.importing.splits import SplitChoice, open_split, open_splits
from outercore.importing.table.rows import Reading, RowSource, open_rows
from outercore.importing.table.text import suffix_of

_TEXTS = (".txt", ".dat", "")


def open_graph_file(text: str, task: str | None) -> GraphSource | None:
    """A file of many graphs; `None` for what does not look like one."""
    path = Path(text)
    if not path.is_file():
        return None
    refuse_foreign(path)
    suffix = suffix_of(path)
    if suffix == ".npz" and is_molecules(path):
        return open_molecules(path, task)
    if suffix in _TEXTS and is_graph_text(path):
        return open_graph_text(path)
    return None


def with_ids(text: str, reading: Reading) -> GraphLevel:
    """The graphs that a file with the graph of each node describes.

    Cost: reads the file; 8 bytes of memory a node.
    """
    ids = _all(open_rows(text, reading))
    first = first_nodes(ids, f"--graph-ids: `{text}`", int(reading.text.one_based))
    return GraphLevel(first, len(ids))


def read_labels(text: str, reading: Reading, task: str | None) -> NDArray[Any]:
    """Labels of graphs, as they are stored; `reading.nodes` is the number of graphs.

    Errors: `InvalidError` unless the file has a row for each.
    """
    rows = open_rows(text, reading, missing="nan", absent=np.nan)
    values = _all(rows)
    if len(values) != reading.nodes:
        raise InvalidError(
            f"--labels: `{text}`: {len(values)} rows, expected {reading.nodes}: one for each graph"
        )
    return labels_of(values, f"--labels: `{text}`", task)


def read_splits(choice: SplitChoice, reading: Reading) -> dict[str, NDArray[np.int64]]:
    """Splits of graphs by their names; `reading.nodes` is the number of graphs."""
    graphs = reading.nodes or 0
    found = open_splits(choice.archive, reading) if choice.archive is not None else []
    found += [open_split(text, reading) for text in choice.single]
    return {name: split_of(_all(rows), graphs, f"--split: `{rows.name}`") for name, rows in found}


def _all(rows: RowSource) -> NDArray[Any]:
    """Every row in memory."""
    empty = np.empty((0,) if rows.width is None else (0, rows.width), rows.dtype)
    return np.concatenate([empty, *rows.chunks()])
