"""Graph algorithms over the grid of a data set, under a memory budget.

Every function takes a graph (or the path of a data set) and returns one value per node. The edges
are read in passes. The values of the nodes stay in memory if the budget has room for them;
otherwise a few partitions at a time are in memory. The result is bit-identical for every budget,
back end and number of threads. A result that does not fit in the budget is mapped from a file.

In a graph with several types, the values are ordered by type, as in `Graph.node_types`. The keyword
`relation` chooses one edge type; then only the nodes of its two types have values.

Every function takes the keywords of `Resources`: ``memory``, ``threads``, ``far``, ``save`` and
others. It raises `BudgetError` if the budget is too small; the message says how much memory works.

The first algorithm builds the grid and stores it in the data set.
"""

from __future__ import annotations

from outercore.analytics.algorithms import (
    betweenness,
    bfs,
    closeness,
    degrees,
    hits,
    kcore,
    label_propagation,
    local_clustering,
    louvain,
    pagerank,
    radii,
    scc,
    sssp,
    triangles,
    wcc,
)
from outercore.analytics.config import AnalysisConfig, RunConfig
from outercore.analytics.grid_building import grid
from outercore.analytics.recorded_run import resume, run, start
from outercore.analytics.running import (
    ALGORITHMS,
    Direction,
    Node,
    Nodes,
    Personalization,
    Resources,
    Run,
    plan,
)
from outercore.base.options import Backend
from outercore.data.graph import Source

__all__ = [
    "ALGORITHMS",
    "AnalysisConfig",
    "Backend",
    "Direction",
    "Node",
    "Nodes",
    "Personalization",
    "Resources",
    "Run",
    "RunConfig",
    "Source",
    "betweenness",
    "bfs",
    "closeness",
    "degrees",
    "grid",
    "hits",
    "kcore",
    "label_propagation",
    "local_clustering",
    "louvain",
    "pagerank",
    "plan",
    "radii",
    "resume",
    "run",
    "scc",
    "sssp",
    "start",
    "triangles",
    "wcc",
]
