"""Building the grid that the algorithms read."""

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
    """Write the edges a second time, as the compressed grid that the algorithms read.

    The algorithms do it by themselves with the defaults; call this to have weights in the grid, to
    choose the order, or to have it done beforehand. Returns sizes, counts and seconds.

    Args:
        graph: an opened graph or the directory of a data set.
        memory: budget of the build, such as ``2GiB``.
        threads: how many; all cores by default.
        relation: the edge type whose edges the grid has, such as ``author,writes,paper``, or a
            relation of triples; all by default.
        weights: an edge array, such as ``weight``, whose values are stored with the edges.
        order: how the grid numbers the nodes: ``degree`` brings busy nodes together, ``natural``
            keeps an order that is local already, ``auto`` looks at the edges.
        partition_log2: nodes of a partition as a power of two, 1 to 16; chosen by default.
        overwrite: build again where there is a grid.
        progress: called as ``progress(phase, done, total, unit)``.

    Cost: reads the edges twice, three times where they are directed; writes less than twice the
    bytes that it reads once. Waits while another process writes to the data set, and takes the
    grid that it built.

    Raises:
        InvalidError: there is a grid with other weights, another relation or another order; weights
            without a relation in a graph with several edge types.
        NotFoundError: there is no edge array, edge type or relation of that name.
        BudgetError: the message says how much memory works.

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
