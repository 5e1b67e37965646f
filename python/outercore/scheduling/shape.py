"""What a graph is like, so that measurements of one say something about another."""

from __future__ import annotations

import math

import numpy as np

from outercore.errors import CorruptError
from outercore.graph import Graph
from outercore.scheduling.decide import GraphShape

_ROWS = 1 << 20


def graph_shape(graph: Graph) -> GraphShape:
    """Nodes, arcs and skew of the in-degrees.

    **Cost**: reads the offsets once, in pieces.
    """
    described = graph.arrays[graph.key("offsets")]
    dtype = np.dtype(described["dtype"]).newbyteorder("<")
    count, start = described["shape"][0], described["data_offset"]
    squares, before = 0.0, np.zeros(1, dtype)
    file = graph.root / described["file"]
    for first in range(0, count, _ROWS):
        rows = min(_ROWS, count - first)
        offsets = np.fromfile(file, dtype, rows, offset=start + first * dtype.itemsize)
        if len(offsets) != rows:
            raise CorruptError(
                f"array `{file}`: found {first + len(offsets):,} offsets, expected {count:,}"
            )
        degrees = np.diff(offsets, prepend=before).astype(np.float64)
        squares += float(np.dot(degrees, degrees))
        before = offsets[-1:]
    nodes, arcs = graph.num_nodes, graph.num_edges
    mean = arcs / nodes if nodes else 0.0
    variance = max(squares / nodes - mean * mean, 0.0) if nodes else 0.0
    return GraphShape(nodes, arcs, round(math.sqrt(variance) / mean, 6) if mean else 0.0)
