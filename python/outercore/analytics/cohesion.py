"""Groups of nodes: components, cores, communities, triangles."""

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
    """Weakly connected components: nodes that reach each other if arcs lead both ways.

    Args:
        graph: an opened graph or the directory of a data set.

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

    Args:
        graph: an opened graph or the directory of a data set.

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
    """Core numbers: the largest k such that a node is in a subgraph of degrees k and more.

    Directions and loops are ignored; parallel edges count.

    Args:
        graph: an opened graph or the directory of a data set.

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

    The first label of a node is its id; among equally frequent labels the smallest wins. Arcs in
    both directions count twice. On bipartite graphs, synchronous updates only exchange the labels
    of the two sides, without end. The run then warns; ``update="asynchronous"`` finds communities
    there, and mostly better ones on other graphs, too.

    Args:
        graph: an opened graph or the directory of a data set.
        max_iterations: most rounds; ends earlier if no label changes.
        update: ``synchronous`` changes all nodes together, as LDBC Graphalytics does.
            ``asynchronous`` changes in each round only the nodes of three in four labels, drawn at
            random. A node keeps a label that is among the most frequent; among other equally
            frequent labels, one is drawn.
        seed: random seed of ``asynchronous``.

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
    """Number of triangles at each node; directions, loops and parallel arcs are ignored.

    Args:
        graph: an opened graph or the directory of a data set.

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
    """Clustering coefficient: share of the possible arcs between a node's neighbours that exist.

    Neighbours are the other nodes at the node's arcs, in either direction. Arcs in both directions
    count twice, parallel arcs once; an undirected edge is two arcs. 0 for a node with fewer than
    two neighbours.

    Args:
        graph: an opened graph or the directory of a data set.

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
    """Louvain method: communities with much weight inside and little between them (modularity).

    Directions are ignored; arcs in both directions and parallel arcs are summed. Nodes are visited
    in a random order, so another ``seed`` may give other communities.

    Args:
        graph: an opened graph or the directory of a data set.
        resolution: above 1 for smaller communities, below 1 for larger ones.
        seed: random seed of the order of visits.
        weights: edge array with the weight of each edge; equal by default.

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
