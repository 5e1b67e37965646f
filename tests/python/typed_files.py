"""Tables of several types, and the edges of a typed data set by type, for tests of imports."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from outercore.data.edge_types import edge_type_key
from outercore.data.graph import Graph


def write_table(path: Path, columns: dict[str, list[Any]]) -> Path:
    """A table as CSV or Parquet, by the suffix; `None` is an empty field, or a null."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path, row_group_size=3)
        return path
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))
    return path


def edges_by_type(graph: Graph) -> dict[str, list[tuple[int, int, int]]]:
    """(row, source, target) of each edge, ordered by row; numbers are within the types."""
    offsets = np.asarray(graph.array("edges/edge/offsets"), np.int64)
    sources = np.asarray(graph.array("edges/edge/sources"), np.int64)
    has_ids = "edges/edge/ids" in graph.arrays
    ids = np.asarray(graph.array("edges/edge/ids") if has_ids else np.arange(len(sources)))
    first, start = {}, 0
    for name, count in graph.node_types.items():
        first[name] = start
        start += count
    edges, column, row = {}, 0, 0
    for edge_type in graph.edge_types:
        source, _, target = edge_type
        count = graph.node_types[target]
        bounds = offsets[column : column + count + 1]
        part = slice(bounds[0], bounds[-1])
        targets = np.repeat(np.arange(count), np.diff(bounds))
        rows, own = ids[part].astype(np.int64) - row, sources[part] - first[source]
        assert (own >= 0).all()
        assert (own < graph.node_types[source]).all()
        key = edge_type_key(edge_type)
        triples = zip(rows.tolist(), own.tolist(), targets.tolist(), strict=True)
        edges[key] = sorted(triples)
        column += count
        row += graph.manifest["edge_types"][key]["rows"]
    assert column == len(offsets) - 1
    return edges
