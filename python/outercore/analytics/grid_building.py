"""Building the grid, the form of the edges that the algorithms read."""

from __future__ import annotations

from typing import Any, Literal

from outercore import _core
from outercore.analytics.config import relation_key
from outercore.base.fields import typed
from outercore.base.native import Progress
from outercore.base.sizes import parse_size
from outercore.base.threads import checked_threads
from outercore.data.edge_types import EdgeType
from outercore.data.graph import Graph, Source

_Order = Literal["auto", "degree", "natural"]


def grid(
    graph: Source,
    *,
    memory: str | int = "1GiB",
    threads: int | None = None,
    relation: str | EdgeType | None = None,
    weights: str | None = None,
    order: _Order = "auto",
    partition_log2: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Build the grid: a compressed second copy of the edges, which the algorithms read.

    The first algorithm builds a grid with the defaults. Call this function to store weights in the
    grid, to choose the order of the nodes, or to build the grid in advance. Returns sizes, counts
    and seconds.

    Args:
        graph: an opened graph or the directory of a data set.
        memory: memory budget of the build, such as ``2GiB``.
        threads: number of threads. The default is one for each core.
        relation: write only the edges of this type, such as ``author,writes,paper``, or of this
            relation of triples. By default, the grid holds all edges.
        weights: store this edge array, such as ``weight``, with the edges.
        order: place nodes of high degree together (``degree``), or keep the order of ids
            (``natural``), which suits graphs whose neighbours have close ids. ``auto`` chooses by
            the edges.
        partition_log2: give a partition at most 2 to the power of this many nodes, 1 to 16. By
            default, the build chooses it.
        overwrite: replace an existing grid.
        progress: called as ``progress(phase, done, total, unit)``.

    Cost: reads the edges twice, directed edges three times; writes less than twice the size of the
    edges. Waits while another process writes to the data set, and uses the grid that it built.

    Raises:
        InvalidError: a grid with other weights, another relation or another order exists; weights
            without a relation in a graph with several edge types.
        NotFoundError: the edge array, edge type or relation does not exist.
        BudgetError: the budget is too small; the message says how much memory works.

    Example:
        >>> import outercore as oc
        >>> summary = oc.grid(tiny_dataset)
        >>> summary["nodes"]
        200
    """
    opened = graph if isinstance(graph, Graph) else Graph(graph)
    options: dict[str, Any] = {
        "memory": parse_size(memory),
        "threads": checked_threads(threads),
        "relation": None if relation is None else relation_key(opened, relation),
        "weights": typed(str | None, weights, "weights"),
        "order": None if order == "auto" else typed(_Order, order, "order"),
        "partition_log2": typed(int | None, partition_log2, "partition_log2"),
        "overwrite": typed(bool, overwrite, "overwrite"),
    }
    summary = _core.build_grid(opened.root, options, progress)
    opened.reload()
    return summary
