"""What nodes belong together: components, cores, communities, triangles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from outercore.analytics.recorded_run import algorithm
from outercore.analytics.running import Resources
from outercore.data.graph import Source

if TYPE_CHECKING:
    from typing_extensions import Unpack


@algorithm
def wcc(
    graph: Source,
    **resources: Unpack[Resources],
) -> NDArray[np.int64]:
    """Weakly connected components: who can be reached when arcs lead both ways.

    Args:
        graph: an opened graph or the directory of a data set.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: int64 [nodes], the smallest node id of each node's component.

    Cost: one pass; with state in scratch files as many as it takes until no label changes.

    Raises:
        BudgetError: the message says how much memory works.

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

    Args:
        graph: an opened graph or the directory of a data set.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: int64 [nodes], the smallest node id of each node's component.

    Raises:
        BudgetError: the message says how much memory works.

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
    """Core numbers: the largest k such that a node is in a subgraph of degrees k and more.

    The direction of arcs does not matter, loops do not count, parallel edges do.

    Args:
        graph: an opened graph or the directory of a data set.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: int64 [nodes].

    Raises:
        BudgetError: the message says how much memory works.

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
    """Communities: again and again each node takes the most frequent label of its neighbours.

    Labels begin as node ids; of equally frequent ones the smallest wins. An arc both ways counts
    twice. On bipartite graphs all nodes together only exchange labels, without end: then it warns,
    and ``update="asynchronous"`` finds communities, mostly better ones on other graphs, too.

    Args:
        graph: an opened graph or the directory of a data set.
        max_iterations: rounds at most; fewer where no label changes.
        update: ``synchronous`` lets all nodes change together, as LDBC Graphalytics does.
            ``asynchronous`` lets those of three in four labels change, drawn for each round; a node
            keeps a label that is among the most frequent, and a draw decides between others.
        seed: what ``asynchronous`` draws is a function of it.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: int64 [nodes], a node id each.

    Raises:
        BudgetError: the message says how much memory works.

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
    """How many triangles a node is in; the direction of arcs, loops and parallel arcs do not count.

    Args:
        graph: an opened graph or the directory of a data set.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: int64 [nodes]; their sum is three times the number of triangles.

    Raises:
        BudgetError: the message says how much memory works.

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
    """Clustering: of the possible arcs between a node's neighbours the share that is there.

    Neighbours are other nodes at either end of an arc. An arc each way counts twice, parallel arcs
    count once; without directions an edge is an arc each way. 0 with fewer than two neighbours.

    Args:
        graph: an opened graph or the directory of a data set.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: float64 [nodes], 0 to 1.

    Raises:
        BudgetError: the message says how much memory works.

    Source: LCC of LDBC Graphalytics; without directions, Watts, Strogatz, 1998.

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
    """Communities of high modularity: much weight within them, little between them.

    Directions are ignored; arcs both ways and parallel arcs add up. Nodes are visited in a
    drawn order, so another ``seed`` may give other communities.

    Args:
        graph: an opened graph or the directory of a data set.
        resolution: above 1 for smaller communities, below 1 for larger ones.
        seed: the order of visits is a function of it.
        weights: edge array by which edges count; all alike by default.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: int64 [nodes], the smallest node id of each node's community.

    Cost: one pass; all edges stay in memory, which the plan counts as state.

    Raises:
        InvalidError: a resolution that is not above 0.
        BudgetError: the message says how much memory works.

    Source: Blondel, Guillaume, Lambiotte, Lefebvre, 2008.

    Example:
        >>> import outercore as oc
        >>> communities = oc.louvain(tiny_dataset)
        >>> int(communities[0])
        0
    """
