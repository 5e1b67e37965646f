"""How far nodes are from others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outercore.analytics.request import Direction, Resources, Source
from outercore.analytics.running import carry_out

if TYPE_CHECKING:
    from typing_extensions import Unpack


def bfs(
    graph: Source,
    source: int,
    *,
    direction: Direction = "out",
    **resources: Unpack[Resources],
) -> NDArray[np.int32]:
    """Hops from ``source`` to every node; -1 where none lead there.

    Args:
        graph: an opened graph or the directory of a data set.
        source: where to begin.
        direction: follow arcs ``out`` of nodes, ``in`` to them, or ``both`` ways.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: int32 [nodes].

    Raises:
        InvalidError: ``source`` is no node.
        BudgetError: the message says how much memory works.

    Example:
        >>> import outercore as oc
        >>> levels = oc.bfs(tiny_dataset, 3)
        >>> int(levels[3]), levels.dtype
        (0, dtype('int32'))
    """
    return carry_out(
        bfs,
        graph,
        source=source,
        direction=direction,
        **resources,
    ).values


def sssp(
    graph: Source,
    source: int,
    *,
    weights: str | None = None,
    direction: Direction = "out",
    **resources: Unpack[Resources],
) -> NDArray[np.float64]:
    """Length of the shortest path from ``source`` to every node; infinity where none leads there.

    Args:
        graph: an opened graph or the directory of a data set.
        source: where to begin.
        weights: edge array with the lengths, 0 or more; 1 each by default.
        direction: follow arcs ``out`` of nodes, ``in`` to them, or ``both`` ways.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: float64 [nodes]. Lengths are read as float32 and added as float64.

    Raises:
        InvalidError: ``source`` is no node; a length is negative.
        NotFoundError: there is no edge array of that name.
        BudgetError: the message says how much memory works.

    Example:
        >>> import outercore as oc
        >>> distances = oc.sssp(tiny_dataset, 3)
        >>> float(distances[3])
        0.0
    """
    return carry_out(
        sssp,
        graph,
        source=source,
        weights=weights,
        direction=direction,
        **resources,
    ).values


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
    return carry_out(
        radii,
        graph,
        sources=sources,
        seed=seed,
        direction=direction,
        **resources,
    ).values
