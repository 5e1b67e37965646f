"""Whether the ids of an import may start at 1, or have gaps, without an option that says so."""

from __future__ import annotations

from typing import Any

import numpy as np

from outercore.mapped import blocks, mapped
from outercore.sources.graph import GraphSource

_SPARSE, _FEW = 4, 16
"""Ids have gaps where there are so many nodes for each end of an edge, and some more."""


def note_on_ids(source: GraphSource, graph: Any) -> str | None:
    """A note on ids that alone determine the number of nodes, if they have large gaps or if no edge
    has node 0.

    Cost: reads the sources up to the first 0; all of them where node 0 has no edge.
    """
    counted = source.nodes is None and not any(array.role != "split" for array in source.arrays)
    if not (counted and graph.num_edges):
        return None
    if graph.num_nodes > _FEW + _SPARSE * 2 * graph.num_edges:
        return (
            f"{graph.num_nodes:,} nodes, up to the largest id, for {graph.num_edges:,} edges: if "
            "ids have gaps, `--ids dictionary` makes nodes of those there are, and keeps their ids"
        )
    may_start_at_1 = source.edges and all(edge.first_id == 0 for edge in source.edges)
    if not may_start_at_1 or _has_edge_of_first(graph):
        return None
    return (
        "no edge has node 0: if the ids start at 1, import again with `--one-based`; as it is, "
        "node 0 has no edge"
    )


def _has_edge_of_first(graph: Any) -> bool:
    offsets, sources = (
        mapped(graph.root, graph.arrays[f"edges/edge/{name}"]) for name in ("offsets", "sources")
    )
    # Arcs are stored by their targets: those of node 0 come first.
    return bool(offsets[1]) or not all(np.all(block) for _, block in blocks(sources))
