"""Whether the ids of an import may start at 1 although nobody said so."""

from __future__ import annotations

from typing import Any

import numpy as np

from outercore.mapped import blocks, mapped
from outercore.sources.graph import GraphSource


def note_on_first_node(source: GraphSource, graph: Any) -> str | None:
    """What to tell the user where no edge has node 0 and only the ids say how many nodes there are.

    Cost: reads the sources up to the first 0; all of them where node 0 has no edge.
    """
    may_start_at_1 = source.edges and all(edge.first_id == 0 for edge in source.edges)
    counted = source.nodes is None and not any(array.role != "split" for array in source.arrays)
    if not (may_start_at_1 and counted and graph.num_edges) or _has_edge_of_first(graph):
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
