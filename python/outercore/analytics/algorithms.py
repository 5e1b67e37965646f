"""The graph algorithms: their parameters and documentation; the core computes them.

Centrality comes first, then groups of nodes, then distances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from outercore.analytics.recorded_run import algorithm
from outercore.analytics.running import Direction, Node, Nodes, Personalization, Resources
from outercore.data.graph import Source

if TYPE_CHECKING:
    from typing_extensions import Unpack

PathResult = Literal["distances", "predecessors"]


@algorithm
def pagerank(
    graph: Source,
    *,
    damping: float = 0.85,
    max_iterations: int = 100,
    tolerance: float = 1e-6,
    personalization: Personalization | None = None,
    weights: str | None = None,
    reverse: bool = False,
    **resources: Unpack[Resources],
) -> NDArray[np.float64]:
    """PageRank: how often a random walk with restarts visits each node.

    Args:
        damping: probability that the walk follows an arc instead of restarting, 0 to below 1.
        max_iterations: maximum number of iterations. Each takes one pass over the edges.
        tolerance: stop when the ranks change by less than this, summed over all nodes. 0 runs
            ``max_iterations`` iterations.
        personalization: restart at nodes in proportion to these weights, for every node or for some
            nodes; by default, all weights are equal. The walk also restarts at nodes without
            out-arcs.
        weights: follow arcs in proportion to this edge array. By default, all arcs are equally
            likely.
        reverse: follow arcs from target to source.

    Shapes: float64 [nodes], which sums to 1.

    Raises:
        InvalidError: an option out of its range; no convergence within ``max_iterations``.

    Example:
        >>> import outercore as oc
        >>> ranks = oc.pagerank(tiny_dataset, tolerance=1e-9)
        >>> ranks.shape, round(float(ranks.sum()), 6)
        ((200,), 1.0)
    """


@algorithm
def betweenness(
    graph: Source,
    *,
    sources: Nodes | None = None,
    samples: int | None = None,
    seed: int = 0,
    weights: str | None = None,
    normalized: bool = True,
    **resources: Unpack[Resources],
) -> NDArray[np.float64]:
    """Betweenness: how many shortest paths between other nodes lead through a node.

    Args:
        sources: count only paths that begin at these nodes, as ``betweenness_centrality_subset`` of
            networkx does with all nodes as targets. By default, paths from all nodes count.
        samples: draw this many sources without repetition, and multiply the sums by nodes /
            samples. The result is an unbiased estimate, normalized or not.
        seed: random seed of the draw.
        weights: take the length of each arc from this edge array, above 0. By default, all lengths
            are 1.
        normalized: divide by the number of pairs, as networkx does. If false, each pair of an
            undirected graph counts once.

    Shapes: float64 [nodes].

    Cost: two passes for each level of each source. With weights, a level is a wave of nodes, and
    additional passes compute the distances. Use all sources only for small graphs.

    Raises:
        InvalidError: ``sources`` are not nodes, an empty list, or combined with ``samples``.
        UnsupportedError: weights so small that they change no distance.

    Source: Brandes, 2001.

    Example:
        >>> import outercore as oc
        >>> oc.betweenness(tiny_dataset, samples=8).shape
        (200,)
    """


@algorithm
def closeness(
    graph: Source,
    *,
    nodes: Nodes | None = None,
    direction: Direction = "in",
    improved: bool = True,
    **resources: Unpack[Resources],
) -> NDArray[np.float64]:
    """Closeness: 1 / mean distance from the nodes that reach a node, or 0 if none does.

    Args:
        nodes: compute only the values of these nodes. All others get NaN.
        direction: measure the distances to a node (``in``), as networkx does, from it (``out``), or
            without regard to directions (``both``).
        improved: multiply by the share of the other nodes that have a distance, so that nodes of
            small components do not rank first.

    Shapes: float64 [nodes].

    Cost: a search from every node, 64 at a time. Compute all nodes only for small graphs.

    Raises:
        InvalidError: ``nodes`` are not in the graph, or an empty list.

    Source: Freeman, 1979; Wasserman, Faust, 1994.

    Example:
        >>> import outercore as oc
        >>> oc.closeness(tiny_dataset).shape
        (200,)
    """


@algorithm
def hits(
    graph: Source,
    *,
    max_iterations: int = 100,
    tolerance: float = 1e-8,
    weights: str | None = None,
    score: Literal["authorities", "hubs"] = "authorities",
    **resources: Unpack[Resources],
) -> NDArray[np.float64]:
    """HITS: good hubs point at good authorities, and good authorities are the targets of good hubs.

    Args:
        max_iterations: maximum number of iterations. Each takes two passes over the edges.
        tolerance: stop when the hub scores change by less than this, summed over all nodes. 0 runs
            ``max_iterations`` iterations.
        weights: take the weight of each arc from this edge array. By default, all weights are
            equal.
        score: return the scores of ``authorities`` or of ``hubs``.

    Shapes: float64 [nodes], which sums to 1.

    Raises:
        InvalidError: an option out of its range; no convergence within ``max_iterations``.

    Source: Kleinberg, 1999.

    Example:
        >>> import outercore as oc
        >>> hubs = oc.hits(tiny_dataset, score="hubs", max_iterations=500)
        >>> round(float(hubs.sum()), 6)
        1.0
    """


@algorithm
def degrees(
    graph: Source,
    *,
    which: Literal["in", "out", "total"] = "in",
    **resources: Unpack[Resources],
) -> NDArray[np.int64]:
    """Degrees: number of arcs into each node, out of it, or both.

    Args:
        which: count the arcs into a node (``in``), out of it (``out``), or both (``total``).

    Shapes: int64 [nodes]. Loops and parallel arcs count. An undirected edge counts once for every
    ``which``.

    Cost: no pass over the edges.

    Example:
        >>> import outercore as oc
        >>> int(oc.degrees(tiny_dataset).sum()) == oc.open(tiny_dataset).num_edges
        True
    """


@algorithm
def wcc(
    graph: Source,
    **resources: Unpack[Resources],
) -> NDArray[np.int64]:
    """Weakly connected components: nodes that reach each other if directions are ignored.

    Shapes: int64 [nodes], the smallest node id of each node's component.

    Cost: one pass; with state in scratch files, passes until no label changes.

    Example:
        >>> import outercore as oc
        >>> components = oc.wcc(tiny_dataset)
        >>> int(components[0])
        0
    """


@algorithm
def scc(
    graph: Source,
    **resources: Unpack[Resources],
) -> NDArray[np.int64]:
    """Strongly connected components: nodes that can all reach each other along arcs.

    Shapes: int64 [nodes], the smallest node id of each node's component.

    Source: trimming, forward-backward search from one pivot, then colouring (Slota et al., 2014).

    Example:
        >>> import outercore as oc
        >>> components = oc.scc(tiny_dataset)
        >>> int(components[0])
        0
    """


@algorithm
def kcore(
    graph: Source,
    **resources: Unpack[Resources],
) -> NDArray[np.int64]:
    """Core numbers: the largest k for which a node is in a subgraph with degrees of at least k.

    Directions and loops are ignored; parallel edges count.

    Shapes: int64 [nodes].

    Source: Montresor, De Pellegrini, Miorandi, 2013; Lü et al., 2016.

    Example:
        >>> import outercore as oc
        >>> cores = oc.kcore(tiny_dataset)
        >>> bool((cores <= oc.degrees(tiny_dataset, which="total")).all())
        True
    """


@algorithm
def label_propagation(
    graph: Source,
    *,
    max_iterations: int = 10,
    update: Literal["synchronous", "asynchronous"] = "synchronous",
    seed: int = 0,
    **resources: Unpack[Resources],
) -> NDArray[np.int64]:
    """Label propagation: each node repeatedly takes the most frequent label of its neighbours.

    The first label of a node is its id. Among equally frequent labels, the smallest wins. Two arcs
    in opposite directions count twice. On bipartite graphs, synchronous updates exchange the labels
    of the two sides without end, and the run warns. ``update="asynchronous"`` finds communities
    on these graphs, and mostly better communities on other graphs.

    Args:
        max_iterations: maximum number of rounds. The run ends earlier if no label changes.
        update: change the labels of all nodes together (``synchronous``), as LDBC Graphalytics
            does, or in each round only the nodes with a random three quarters of the labels
            (``asynchronous``). In an asynchronous round, a node keeps its label if it is among the
            most frequent labels, and otherwise takes a random one of these.
        seed: random seed of ``asynchronous`` updates.

    Shapes: int64 [nodes], the label of each node, a node id.

    Source: Raghavan, Albert, Kumara, 2007; CDLP of LDBC Graphalytics.

    Example:
        >>> import outercore as oc
        >>> labels = oc.label_propagation(tiny_dataset)
        >>> bool((labels < 200).all())
        True
    """


@algorithm
def triangles(
    graph: Source,
    **resources: Unpack[Resources],
) -> NDArray[np.int64]:
    """Number of triangles at each node.

    Directions, loops and parallel arcs are ignored.

    Shapes: int64 [nodes]; their sum is three times the number of triangles.

    Example:
        >>> import outercore as oc
        >>> counts = oc.triangles(tiny_dataset)
        >>> int(counts.sum()) % 3
        0
    """


@algorithm
def local_clustering(
    graph: Source,
    **resources: Unpack[Resources],
) -> NDArray[np.float64]:
    """Clustering coefficient: which share of the possible arcs between neighbours of a node exists.

    Arcs in either direction make neighbours. Between two neighbours, arcs in both directions count
    twice, and parallel arcs count once; an undirected edge is two arcs. A node with fewer than two
    neighbours has the coefficient 0.

    Shapes: float64 [nodes], 0 to 1.

    Source: LCC of LDBC Graphalytics; for undirected graphs, Watts, Strogatz, 1998.

    Example:
        >>> import outercore as oc
        >>> shares = oc.local_clustering(tiny_dataset)
        >>> bool((shares <= 1).all())
        True
    """


@algorithm
def louvain(
    graph: Source,
    *,
    resolution: float = 1.0,
    seed: int = 0,
    weights: str | None = None,
    **resources: Unpack[Resources],
) -> NDArray[np.int64]:
    """Louvain method: communities of high modularity, with little weight of edges between them.

    Directions are ignored. The weights of arcs in both directions and of parallel arcs are added.
    The method visits nodes in a random order, so another ``seed`` may give other communities.

    Args:
        resolution: values above 1 give smaller communities, values below 1 larger communities.
        seed: random seed of the order of visits.
        weights: take the weight of each edge from this edge array. By default, all weights are
            equal.

    Shapes: int64 [nodes], the smallest node id of each node's community.

    Cost: one pass; all edges stay in memory, which the plan counts as state.

    Raises:
        InvalidError: a resolution that is not above 0.

    Source: Blondel, Guillaume, Lambiotte, Lefebvre, 2008.

    Example:
        >>> import outercore as oc
        >>> communities = oc.louvain(tiny_dataset)
        >>> int(communities[0])
        0
    """


@algorithm
def bfs(
    graph: Source,
    source: Node | Nodes,
    *,
    direction: Direction = "out",
    cutoff: int | None = None,
    result: PathResult = "distances",
    **resources: Unpack[Resources],
) -> NDArray[Any]:
    """Breadth-first search: number of hops from ``source`` to every node, or -1 without a path.

    Args:
        source: count hops from this node, or from the nearest of several nodes; a text is the name
            of a node. In a graph with several types, write ``("author", 3)``,
            ``("author", [3, 17])``, or ``"author:3"``.
        direction: follow arcs from source to target (``out``), from target to source (``in``), or
            both ways (``both``).
        cutoff: maximum number of hops. Nodes farther away count as unreachable.
        result: return ``distances``, or ``predecessors``: the previous node of each node on a
            shortest path, with the smallest id. Sources and unreachable nodes have -1.

    Shapes: int32 [nodes]; predecessors int64 [nodes].

    Cost: predecessors need one more pass, and their state stays in memory.

    Raises:
        InvalidError: ``source`` is not a node, or an empty list.

    Example:
        >>> import outercore as oc
        >>> levels = oc.bfs(tiny_dataset, 3)
        >>> int(levels[3]), levels.dtype
        (0, dtype('int32'))
        >>> oc.bfs(tiny_dataset, [3, 8], cutoff=2, result="predecessors").shape
        (200,)
    """


@algorithm
def sssp(
    graph: Source,
    source: Node | Nodes,
    *,
    weights: str | None = None,
    direction: Direction = "out",
    cutoff: float | None = None,
    result: PathResult = "distances",
    **resources: Unpack[Resources],
) -> NDArray[Any]:
    """Lengths of the shortest paths from ``source`` to every node, or infinity without a path.

    Args:
        source: measure paths from this node, or from the nearest of several nodes; a text is the
            name of a node. In a graph with several types, write ``("author", 3)``,
            ``("author", [3, 17])``, or ``"author:3"``.
        weights: take the length of each arc from this edge array, 0 or more. By default, all
            lengths are 1.
        direction: follow arcs from source to target (``out``), from target to source (``in``), or
            both ways (``both``).
        cutoff: maximum length of a path. Nodes farther away count as unreachable.
        result: return ``distances``, or ``predecessors``: the previous node of each node on a
            shortest path, with the smallest id. Sources and unreachable nodes have -1.

    Shapes: float64 [nodes]; predecessors int64 [nodes]. Lengths are added as float64.

    Cost: predecessors need one more pass, and another one for each length of 0 in a row; their
    state stays in memory.

    Raises:
        InvalidError: ``source`` is not a node, or an empty list; a length is negative, or an
            integer that float64 does not hold exactly.
        NotFoundError: the edge array ``weights`` does not exist.

    Example:
        >>> import outercore as oc
        >>> distances = oc.sssp(tiny_dataset, 3)
        >>> float(distances[3])
        0.0
    """


@algorithm
def radii(
    graph: Source,
    *,
    sources: int = 64,
    seed: int = 0,
    direction: Direction = "out",
    **resources: Unpack[Resources],
) -> NDArray[np.int32]:
    """Largest distance of each node from the sampled sources that reach it.

    The largest of these values is a lower bound of the diameter.

    Args:
        sources: draw this many start nodes without repetition from the nodes with an arc. The
            number is rounded up to a multiple of 64, because 64 searches share their passes.
        seed: random seed of the draw.
        direction: follow arcs from source to target (``out``), from target to source (``in``), or
            both ways (``both``).

    Shapes: int32 [nodes], -1 for nodes that no source reaches.

    Raises:
        InvalidError: ``sources`` is 0.

    Example:
        >>> import outercore as oc
        >>> oc.radii(tiny_dataset).shape
        (200,)
    """
