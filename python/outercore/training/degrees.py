"""In-degrees of all nodes, for the networks that weigh a neighbour by them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from outercore.data.csc import edge_blocks, topology
from outercore.data.edge_types import PLAIN_EDGE
from outercore.files.large_arrays import forget
from outercore.runs.record import Timeline

if TYPE_CHECKING:
    from outercore.data.graph import Graph

_CHUNK = 1 << 20


def degrees_for(
    network: Any, graph: Graph, timeline: Timeline | None = None
) -> torch.Tensor | None:
    """The in-degrees of all nodes if the network weighs arcs by them, `None` otherwise."""
    if not network.needs_degrees:
        return None
    with timeline.span("in-degrees") if timeline is not None else nullcontext():
        return torch.from_numpy(in_degrees(graph, count_loops=network.counts_loops))


def in_degrees(graph: Graph, *, count_loops: bool) -> NDArray[np.float32]:
    """The number of arcs into each node, self-loops among them or not.

    Shapes: float32 [nodes].
    Cost: one sequential read of the offsets, and one of the edges where self-loops have to be
    found; 4 bytes of memory a node.
    """
    degrees = np.empty(graph.num_nodes, np.float32)
    offsets = topology(graph, "offsets")
    for first in range(0, graph.num_nodes, _CHUNK):
        last = min(first + _CHUNK, graph.num_nodes)
        degrees[first:last] = np.diff(offsets[first : last + 1].astype(np.int64))
        # What is mapped counts as our memory.
        forget(offsets)
    if not count_loops and graph.schema.import_options.get("self_loops") != "drop":
        for _, sources, targets, _ in edge_blocks(graph, PLAIN_EDGE):
            np.subtract.at(degrees, targets[sources == targets], 1.0)
    return degrees
