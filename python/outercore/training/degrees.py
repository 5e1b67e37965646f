"""In-degrees of all nodes, for the networks that weigh a neighbour by them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from outercore.files.large_arrays import forget, mapped
from outercore.runs.record import Timeline
from outercore.training.models import Network

if TYPE_CHECKING:
    from outercore.data.graph import Graph

_CHUNK = 1 << 20


def degrees_for(
    network: Any, graph: Graph, timeline: Timeline | None = None
) -> torch.Tensor | None:
    """The in-degrees by which a network weighs; `None` for one that does not."""
    if not (isinstance(network, Network) and network.needs_degrees):
        return None
    with timeline.span("in-degrees") if timeline is not None else nullcontext():
        return torch.from_numpy(in_degrees(graph, count_loops=network.counts_loops))


def in_degrees(graph: Graph, *, count_loops: bool) -> NDArray[np.float32]:
    """The number of arcs into each node, self-loops among them or not.

    Shapes: float32 [nodes].
    Cost: one sequential read of the offsets, and one of the sources where self-loops have to be
    found; 4 bytes of memory a node.
    """
    degrees = np.empty(graph.num_nodes, np.float32)
    offsets = _topology(graph, "offsets")
    loops_possible = _may_have_loops(graph) and not count_loops
    sources = _topology(graph, "sources") if loops_possible else None
    for first in range(0, graph.num_nodes, _CHUNK):
        last = min(first + _CHUNK, graph.num_nodes)
        bounds = _some(offsets, first, last + 1)
        degrees[first:last] = np.diff(bounds)
        if sources is not None:
            degrees[first:last] -= _loops(sources, bounds, first)
    return degrees


def _loops(sources: NDArray[Any], bounds: NDArray[np.int64], first: int) -> NDArray[np.float32]:
    """Self-loops of the nodes `first..`, whose columns lie between consecutive `bounds`."""
    loops = np.zeros(len(bounds) - 1, np.float32)
    for start in range(int(bounds[0]), int(bounds[-1]), _CHUNK):
        stop = min(start + _CHUNK, int(bounds[-1]))
        column = np.searchsorted(bounds, np.arange(start, stop), side="right") - 1
        here = _some(sources, start, stop) == column + first
        np.add.at(loops, column[here], 1.0)
    return loops


def _topology(graph: Graph, part: str) -> NDArray[Any]:
    return mapped(graph.root, graph.manifest["arrays"][f"edges/edge/{part}"])


def _some(values: NDArray[Any], start: int, stop: int) -> NDArray[np.int64]:
    found: NDArray[np.int64] = values[start:stop].astype(np.int64)
    # What is mapped counts as our memory.
    forget(values)
    return found


def _may_have_loops(graph: Graph) -> bool:
    options = graph.manifest.get("provenance", {}).get("options", {})
    return options.get("self_loops") != "drop"
