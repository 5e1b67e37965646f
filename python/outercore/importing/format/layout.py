"""What directories of arrays share: node types by count, edges by number, arrays by type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from outercore.data.edge_types import EdgeType, edge_type_key
from outercore.errors import InvalidError
from outercore.importing.graph import ImportOptions, NodeArray
from outercore.importing.table.rows import RowSource
from outercore.importing.typed.edges import EdgesOfType
from outercore.importing.typed.graph import TypedInputs, TypedSource, typed_source
from outercore.importing.typed.tables import EdgeTable, NodeTable


def source_of_arrays(
    root: Path,
    inputs: TypedInputs,
    options: ImportOptions,
    counts: dict[str, int],
    tables: list[EdgeTable],
    arrays: list[NodeArray],
    edge_arrays: dict[EdgeType, list[tuple[str, RowSource]]],
    notes: list[str],
) -> TypedSource:
    """The source of a directory whose nodes have numbers.

    `arrays` are those of nodes, labels and splits among them; `--label` and `--split` replace
    these. Reverse edge types have the arrays of their edges.

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
    ]
    source = typed_source(inputs, options, nodes, tables, (left, notes), [str(root)])
    for edges in source.edges:
        source.arrays.extend(_of_edges(edges, edge_arrays))
    return source


def _of_edges(
    edges: EdgesOfType, arrays: dict[EdgeType, list[tuple[str, RowSource]]]
) -> Iterator[NodeArray]:
    given = edges.ends[0].table.edge_type
    for name, rows in arrays.get(given, []):
        yield NodeArray("edge", name, rows, edge_type_key(edges.edge_type))
