"""Distances between nodes, and shortest paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from outercore.analytics.recorded_run import algorithm
from outercore.analytics.running import Direction, Node, Nodes, Resources
from outercore.data.graph import Source

if TYPE_CHECKING:
    from typing_extensions import Unpack

PathResult = Literal["distances", "predecessors"]


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
    """Breadth-first search: hops from ``source`` to every node; -1 for unreachable nodes.

    Args:
        graph: an opened graph or the directory of a data set.
        source: start node. With several start nodes, hops count from the nearest. A text is a name.
            In a graph with several types: ``("author", 3)``, ``("author", [3, 17])``, or
            ``"author:3"``.
        direction: follow arcs ``out`` of nodes, ``in`` to them, or ``both`` ways.
        cutoff: largest number of hops; nodes farther away are not reached.
        result: ``predecessors`` returns the previous node on a shortest path instead, the smallest
            id if there are several; -1 for sources and unreachable nodes.

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
    """Lengths of the shortest paths from ``source`` to every node; infinity for unreachable nodes.

    Args:
        graph: an opened graph or the directory of a data set.
        source: start node. With several start nodes, paths begin at the nearest. A text is a name.
            In a graph with several types: ``("author", 3)``, ``("author", [3, 17])``, or
            ``"author:3"``.
        weights: edge array with the length of each arc, 0 or more; 1 by default.
        direction: follow arcs ``out`` of nodes, ``in`` to them, or ``both`` ways.
        cutoff: longest path; nodes farther away are not reached.
        result: ``predecessors`` returns the previous node on a shortest path instead, the smallest
            id if there are several; -1 for sources and unreachable nodes.

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
    """For each node, the largest distance from the sampled sources that reach it.

    The largest value is a lower bound of the diameter.

    Args:
        graph: an opened graph or the directory of a data set.
        sources: number of start nodes, drawn without repetition from the nodes with an arc. Rounded
            up to a multiple of 64; each 64 searches share their passes.
        seed: random seed of the draw.
        direction: follow arcs ``out`` of nodes, ``in`` to them, or ``both`` ways.

    Shapes: int32 [nodes], -1 for nodes that no source reaches.

    Raises:
        InvalidError: ``sources`` is 0.

    Example:
        >>> import outercore as oc
        >>> oc.radii(tiny_dataset).shape
        (200,)
    """
