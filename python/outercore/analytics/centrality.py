"""How much nodes matter: ranks, paths through them, degrees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from outercore.analytics.request import Personalization, Resources, Source
from outercore.analytics.running import carry_out

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
    """How often a walker who follows arcs, and jumps now and then, is at a node.

    Args:
        graph: an opened graph or the directory of a data set.
        damping: chance to follow an arc instead of jumping, 0 to below 1.
        max_iterations: one pass over the edges each.
        tolerance: ends when the ranks change by less, summed over all nodes; 0 takes what
            ``max_iterations`` give.
        personalization: where jumps lead: one weight a node, or a mapping from nodes to weights;
            all nodes alike by default. A walker at a node without out-arcs jumps too.
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
    return carry_out(
        pagerank,
        graph,
        personalization=personalization,
        damping=damping,
        max_iterations=max_iterations,
        tolerance=tolerance,
        weights=weights,
        reverse=reverse,
        **resources,
    ).values


def betweenness(
    graph: Source,
    *,
    sources: Sequence[int] | None = None,
    samples: int | None = None,
    seed: int = 0,
    normalized: bool = True,
    **resources: Unpack[Resources],
) -> NDArray[np.float64]:
    """How many shortest paths between other nodes lead through a node.

    Args:
        graph: an opened graph or the directory of a data set.
        sources: where paths begin; all nodes by default.
        samples: draw this many sources without repetition, and scale up.
        seed: which sources are drawn is a function of it.
        normalized: divide by the number of pairs, as networkx does.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: float64 [nodes].

    Cost: two passes a level and source; exact on all nodes only for small graphs.

    Raises:
        InvalidError: sources that are no nodes, or together with ``samples``.
        BudgetError: the message says how much memory works.

    Source: Brandes, 2001.

    Example:
        >>> import outercore as oc
        >>> oc.betweenness(tiny_dataset, samples=8).shape
        (200,)
    """
    return carry_out(
        betweenness,
        graph,
        sources=sources,
        samples=samples,
        seed=seed,
        normalized=normalized,
        **resources,
    ).values


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
    return carry_out(
        degrees,
        graph,
        which=which,
        **resources,
    ).values
