"""How far nodes are from others, and on which way."""

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
    """Breadth-first search: hops from ``source`` to every node; -1 where none lead there.

    Args:
        graph: an opened graph or the directory of a data set.
        source: where to begin; with several nodes, hops count from the nearest. A text is a name.
            In a graph with several types ``("author", 3)``, ``("author", [3, 17])``, or
            ``"author:3"``.
        direction: follow arcs ``out`` of nodes, ``in`` to them, or ``both`` ways.
        cutoff: the most hops; nodes farther away are not reached.
        result: ``predecessors`` gives the node before each one on a shortest path instead, of
            several the smallest; -1 for sources, and where no path leads.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: int32 [nodes]; predecessors int64 [nodes].

    Cost: predecessors take one pass more, and their state stays in memory.

    Raises:
        InvalidError: ``source`` is no node, or an empty list.
        BudgetError: the message says how much memory works.

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
    """Shortest paths: their lengths from ``source`` to every node; infinity where none leads.

    Args:
        graph: an opened graph or the directory of a data set.
        source: where to begin; with several nodes, paths begin at the nearest. A text is a name.
            In a graph with several types ``("author", 3)``, ``("author", [3, 17])``, or
            ``"author:3"``.
        weights: edge array with the lengths, 0 or more; 1 each by default.
        direction: follow arcs ``out`` of nodes, ``in`` to them, or ``both`` ways.
        cutoff: the longest path; nodes farther away are not reached.
        result: ``predecessors`` gives the node before each one on a shortest path instead, of
            several the smallest; -1 for sources, and where no path leads.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: float64 [nodes]; predecessors int64 [nodes]. Lengths are added as float64.

    Cost: predecessors take one pass more, and another for each length of 0 in a row; their state
    stays in memory.

    Raises:
        InvalidError: ``source`` is no node, or an empty list; a length is negative, or an integer
            that float64 does not hold exactly.
        NotFoundError: there is no edge array of that name.
        BudgetError: the message says how much memory works.

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
    """How far the farthest of some sampled nodes is from each node that they reach.

    The largest value is a lower bound of the diameter.

    Args:
        graph: an opened graph or the directory of a data set.
        sources: nodes to begin at, drawn without repetition from those with an arc; rounded up to
            a multiple of 64, which share their passes.
        seed: which nodes are drawn is a function of it.
        direction: follow arcs ``out`` of nodes, ``in`` to them, or ``both`` ways.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: int32 [nodes], -1 where no sampled node reaches.

    Raises:
        InvalidError: no sources.
        BudgetError: the message says how much memory works.

    Example:
        >>> import outercore as oc
        >>> oc.radii(tiny_dataset).shape
        (200,)
    """
