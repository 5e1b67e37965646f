"""Labels of one node type, and how its nodes are divided where the user does not say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.importing.graph import NodeArray
from outercore.importing.label_rows import label_arrays, label_columns
from outercore.importing.table.columns import NodeColumns
from outercore.importing.table.rows import Reading, RowSource
from outercore.importing.table.table import require_column
from outercore.importing.typed.tables import NodeTable, refuse_keys

SHARES = (("train", 0.8), ("valid", 0.1), ("test", 0.1))
"""How labelled nodes are divided where no split is given."""


def open_labels(
    text: str, nodes: dict[str, NodeTable], reading: Reading, task: str | None
) -> list[NodeArray]:
    """Labels given as `TYPE.COLUMN` of a node table, or as `TYPE=FILE`.

    Words become classes, as in `label_columns`.

    Errors: `InvalidError` for another form; `NotFoundError` for a column that is not there.
    """
    node_type, equals, file = text.partition("=")
    if equals:
        _require_type(node_type, nodes, text)
        refuse_keys("--labels", file, nodes[node_type], reading)
        reading = replace(reading, nodes=nodes[node_type].count)
        return label_arrays(file, reading, task, node_type)
    node_type, column = label_column(text, nodes)
    table, spec = nodes[node_type].table, nodes[node_type].spec
    assert table is not None
    assert spec is not None
    return label_columns(spec, table, NodeColumns(None, [column]), reading, task, node_type)


def label_column(
    text: str, nodes: dict[str, NodeTable], option: str = "--label"
) -> tuple[str, str]:
    """Node type and column of `TYPE.COLUMN`.

    Errors: as `open_labels`.
    """
    # A type may have dots, and so may a column: the longest type that has the column.
    parts = text.split(".")
    ends = range(len(parts) - 1, 0, -1)
    known = [(".".join(parts[:end]), ".".join(parts[end:])) for end in ends]
    known = [(node_type, column) for node_type, column in known if node_type in nodes]
    for node_type, column in known:
        table = nodes[node_type].table
        if table is not None and column in table.names:
            return node_type, column
    for node_type, column in known:
        if (table := nodes[node_type].table) is None:
            raise InvalidError(f"{option} {text}: type `{node_type}` has no table of nodes")
        require_column(table, column)
    _require_type(text.partition(".")[0], nodes, text, option)
    or_file = " or TYPE=FILE" if option == "--label" else ""
    raise InvalidError(f"{option}: expected TYPE.COLUMN{or_file}, found `{text}`")


def _require_type(
    node_type: str, nodes: dict[str, NodeTable], text: str, option: str = "--label"
) -> None:
    if node_type not in nodes:
        raise InvalidError(
            f"{option} {text}: there is no node type `{node_type}`\n"
            f"hint: the node types are {', '.join(nodes)}"
        )


def random_splits(labels: NodeArray, task: str | None) -> list[NodeArray]:
    """Labelled nodes, divided at random: the same for the same labels."""
    nodes = _labelled(labels, task)
    shuffled = np.random.default_rng(0).permutation(nodes)
    splits, start = [], 0
    for place, (name, share) in enumerate(SHARES):
        later = len(SHARES) - 1 - place
        # Of few nodes each split has one, as far as they go.
        end = min(start + max(round(share * len(nodes)), 1), max(len(nodes) - later, start))
        end = end if later else len(nodes)
        own = np.sort(shuffled[start:end]).astype(np.int64)
        splits.append(NodeArray("split", name, _in_memory(f"split `{name}`", own), labels.of_type))
        start = end
    return splits


def splits_by_time(labels: NodeArray, times: RowSource, task: str | None) -> list[NodeArray] | None:
    """Labelled nodes, divided by their times: the oldest are learnt from, the newest are tested.

    Nodes of one time stay together. `None` where that leaves a split without nodes.

    Cost: in memory, 16 bytes for each node and 40 for each labelled one.
    """
    nodes = _labelled(labels, task)
    of_nodes = np.concatenate([np.empty(0, np.int64), *times.chunks()])[nodes]
    ordered = np.sort(of_nodes)
    splits, start, share = [], 0, 0.0
    for name, own_share in SHARES:
        share += own_share
        place = round(share * len(ordered))
        end = len(ordered)
        if place < len(ordered):
            end = int(np.searchsorted(ordered, ordered[place]))
        if end <= start:
            return None
        is_own = of_nodes >= ordered[start]
        if end < len(ordered):
            is_own &= of_nodes < ordered[end]
        splits.append(
            NodeArray("split", name, _in_memory(f"split `{name}`", nodes[is_own]), labels.of_type)
        )
        start = end
    return splits


def _labelled(labels: NodeArray, task: str | None) -> NDArray[np.int64]:
    """The nodes with a label, in ascending order."""
    labelled, first = [np.empty(0, np.int64)], 0
    for chunk in labels.rows.chunks():
        labelled.append(first + np.flatnonzero(has_label(chunk, task)))
        first += len(chunk)
    return np.concatenate(labelled)


def has_label(labels: NDArray, task: str | None) -> NDArray[np.bool_]:
    """Which rows of labels, [rows] or [rows, tasks], say something. Among numbers to learn any
    number does."""
    if labels.dtype.kind == "f":
        known = ~np.isnan(labels)
    else:
        known = np.ones(labels.shape, np.bool_) if task == "regression" else labels >= 0
    return known.any(axis=1) if known.ndim > 1 else known


def _in_memory(name: str, values: NDArray) -> RowSource:
    return RowSource(name, values.dtype, None, len(values), lambda: iter([values]))
