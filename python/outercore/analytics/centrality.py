"""Centrality of nodes: PageRank, betweenness, closeness, HITS and degrees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from outercore.analytics.recorded_run import algorithm
from outercore.analytics.running import Direction, Nodes, Personalization, Resources
from outercore.data.graph import Source

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
        graph: an opened graph or the directory of a data set.
        damping: probability to follow an arc instead of restarting, 0 to below 1.
        max_iterations: most iterations, one pass over the edges each.
        tolerance: stop when the ranks change by less, summed over all nodes. 0: run
            ``max_iterations`` iterations.
        personalization: distribution of restarts: a weight for every node, or for some nodes; all
            nodes equally by default. The walk also restarts at nodes without out-arcs.
        weights: edge array; the walk chooses arcs in proportion to it, equally by default.
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
        graph: an opened graph or the directory of a data set.
        sources: count only paths that begin at these nodes, as ``betweenness_centrality_subset`` of
            networkx with all nodes as targets; all nodes by default.
        samples: draw this many sources without repetition, and scale the sums by nodes / samples:
            an unbiased estimate, normalized or not.
        seed: random seed of the draw.
        weights: edge array with the length of each arc, above 0; 1 by default.
        normalized: divide by the number of pairs, as networkx does. If false, an undirected graph
            counts each pair once.

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
    """Closeness: one over the mean distance from the nodes that reach a node; 0 if none does.

    Args:
        graph: an opened graph or the directory of a data set.
        nodes: compute only these nodes; NaN for all others.
        direction: distances along arcs ``in`` to a node, as in networkx, ``out`` of it, or
            ``both`` ways.
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
        graph: an opened graph or the directory of a data set.
        max_iterations: most iterations, two passes over the edges each.
        tolerance: stop when the hub scores change by less, summed over all nodes. 0: run
            ``max_iterations`` iterations.
        weights: edge array with the weight of each arc; equal by default.
        score: the score to return, ``authorities`` or ``hubs``.

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
    """Degrees: number of arcs into each node, out of it, or both together.

    Args:
        graph: an opened graph or the directory of a data set.
        which: ``in``, ``out`` or ``total``.

    Shapes: int64 [nodes]. Loops and parallel arcs count. An undirected edge counts once for every
    ``which``.

    Cost: no pass over the edges.

    Example:
        >>> import outercore as oc
        >>> int(oc.degrees(tiny_dataset).sum()) == oc.open(tiny_dataset).num_edges
        True
    """
