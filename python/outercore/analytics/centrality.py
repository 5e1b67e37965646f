"""How much nodes matter: ranks, paths through them, degrees."""

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
    """PageRank: how often a walker who follows arcs, and jumps now and then, is at a node.

    Args:
        graph: an opened graph or the directory of a data set.
        damping: chance to follow an arc instead of jumping, 0 to below 1.
        max_iterations: one pass over the edges each.
        tolerance: ends when the ranks change by less, summed over all nodes; 0 takes what
            ``max_iterations`` give.
        personalization: where jumps lead: a weight of every node, or some nodes with weights; all
            nodes alike by default. A walker at a node without out-arcs jumps too.
        weights: edge array by which an arc is chosen; all alike by default.
        reverse: follow arcs from target to source.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: float64 [nodes], which sums to 1.

    Raises:
        InvalidError: an option out of its range; no convergence within ``max_iterations``.
        BudgetError: the message says how much memory works.

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
        sources: only paths that begin at these nodes, as ``betweenness_centrality_subset`` of
            networkx with all nodes as targets; all nodes by default.
        samples: draw this many sources without repetition, and scale the sums by nodes / samples:
            an unbiased estimate, normalized or not.
        seed: which sources are drawn is a function of it.
        weights: edge array with the lengths, above 0; 1 each by default.
        normalized: divide by the number of pairs, as networkx does. Otherwise a graph without
            directions counts each pair once.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: float64 [nodes].

    Cost: two passes a level and source; with weights a level is a wave of nodes, and distances take
    passes of their own. Exact on all nodes only for small graphs.

    Raises:
        InvalidError: sources that are no nodes, an empty list, or together with ``samples``.
        UnsupportedError: weights so small that they change no distance.
        BudgetError: the message says how much memory works.

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
    """Closeness: one over the mean distance between a node and those that reach it, else 0.

    Args:
        graph: an opened graph or the directory of a data set.
        nodes: only of these nodes; NaN for all others.
        direction: distances along arcs ``in`` to a node, as networkx has it, ``out`` of it, or
            ``both`` ways.
        improved: times the share of the other nodes at such a distance, so that small components
            do not come first.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: float64 [nodes].

    Cost: a search from every node, 64 at a time: exact on all nodes only for small graphs.

    Raises:
        InvalidError: ``nodes`` that are not there, or an empty list.
        BudgetError: the message says how much memory works.

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
    """HITS: authorities are nodes that good hubs point at; good hubs point at authorities.

    Args:
        graph: an opened graph or the directory of a data set.
        max_iterations: two passes over the edges each.
        tolerance: ends when the hubs change by less, summed over all nodes; 0 takes what
            ``max_iterations`` give.
        weights: edge array by which arcs count; all alike by default.
        score: which of the two, ``authorities`` or ``hubs``.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: float64 [nodes], which sums to 1.

    Raises:
        InvalidError: an option out of its range; no convergence within ``max_iterations``.
        BudgetError: the message says how much memory works.

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
    """How many arcs lead into a node, out of it, or both together.

    Args:
        graph: an opened graph or the directory of a data set.
        which: ``in``, ``out`` or ``total``.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: int64 [nodes]; loops and parallel arcs count, an undirected edge once whatever
    ``which``.

    Cost: no pass.

    Raises:
        BudgetError: the message says how much memory works.

    Example:
        >>> import outercore as oc
        >>> int(oc.degrees(tiny_dataset).sum()) == oc.open(tiny_dataset).num_edges
        True
    """
