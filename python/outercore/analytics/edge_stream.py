"""Edge programs of one's own: all arcs of a graph in blocks of NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outercore import _core
from outercore.analytics.config import divided
from outercore.analytics.request import Direction
from outercore.base.common import Backend
from outercore.base.display import ShortRepr
from outercore.data.edge_types import EdgeType
from outercore.data.far import Far
from outercore.data.graph import Graph, Source, root_of


@dataclass(frozen=True, repr=False)
class EdgeBlock(ShortRepr):
    """Some of the arcs of a graph."""

    source: NDArray[np.int64]
    """Node ids, where values come from."""
    target: NDArray[np.int64]
    """Node ids, where they go to."""
    weight: NDArray[np.float64] | None
    """One for each arc, where the stream has weights."""


class EdgeStream:
    """All arcs of a graph in blocks of NumPy arrays, for programs of one's own.

    The order of the blocks is the same in every pass, whatever the budget, the back end or the
    number of threads; so are sums of floats made in that order.

    Cost: each pass reads what does not stay in memory within it, and holds 4 bytes a node.

    Example:
        >>> import outercore as oc
        >>> graph = oc.open(tiny_dataset)
        >>> degree = np.zeros(graph.num_nodes, np.int64)
        >>> def count(block):
        ...     np.add.at(degree, block.target, 1)
        >>> oc.EdgeStream(graph, memory="64MiB").each(count)
        >>> bool((degree == oc.degrees(graph, which="in")).all())
        True
    """

    def __init__(
        self,
        graph: Source,
        *,
        memory: str | int = "1GiB",
        relation: str | EdgeType | None = None,
        weights: str | None = None,
        threads: int | None = None,
        backend: Backend = "auto",
        far: Far | None = None,
    ) -> None:
        """Bind a graph; nothing is read yet.

        Args:
            graph: an opened graph or the directory of a data set.
            memory: budget of a pass, what the function holds apart.
            relation: the edge type, or relation of triples, that counts; all by default. Nodes are
                numbered as in the results of algorithms.
            weights: edge array whose values come with the arcs.
            threads: all cores by default.
            backend: how to read.
            far: a memory server that holds edges too; its address, or `far.FarOptions`.
        """
        self._graph = graph if isinstance(graph, Graph) else Graph(root_of(graph))
        self._weights = weights
        run, _ = divided(
            {
                "memory": memory,
                "relation": relation,
                "threads": threads,
                "backend": backend,
                "far": far,
            }
        )
        self._config = run.native(self._graph.root)

    def each(
        self, function: Callable[[EdgeBlock], object], *, direction: Direction = "out"
    ) -> None:
        """Make one pass: call ``function`` for every block.

        Args:
            function: what it raises ends the pass.
            direction: ``out`` gives arcs as they are, ``in`` with source and target exchanged,
                ``both`` each arc both ways. An undirected edge always comes both ways.

        Raises:
            NotFoundError: there is no edge array of that name.
            BudgetError: the message says how much memory works.
            CorruptError: a piece of the grid is damaged.
        """
        options = {"weights": self._weights, "flow": direction, "config": self._config}
        self._graph.take_additions()
        data_set = self._graph._core
        _core.stream_edges(data_set, options, lambda *arrays: function(EdgeBlock(*arrays)))
