"""Graph algorithms over the grid of a data set, under a memory budget.

Every function takes a graph (or the path of a data set) and returns one value a node. The values of
the nodes stay in memory, or go through it partition by partition where the budget has no room for
them; the edges are read in passes. The result is the same to the last bit whatever the budget, the
back end or the number of threads; where the budget has no room for it, it is mapped from a file.

In a graph with several types values lie type after type, in the order of `Graph.node_types`. The
keyword `relation` chooses one edge type; then only the nodes of its two types have values.

The grid is built when it is first needed and kept in the data set.
"""

from __future__ import annotations

from outercore.analytics.centrality import betweenness, closeness, degrees, hits, pagerank
from outercore.analytics.cohesion import (
    kcore,
    label_propagation,
    local_clustering,
    louvain,
    scc,
    triangles,
    wcc,
)
from outercore.analytics.config import RunConfig
from outercore.analytics.distances import bfs, radii, sssp
from outercore.analytics.grid_building import grid
from outercore.analytics.recorded_run import AnalysisConfig, resume, run, start
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
