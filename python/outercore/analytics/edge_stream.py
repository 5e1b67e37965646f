"""Custom edge programs: all arcs of a graph in blocks of NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outercore import _core
from outercore.analytics.config import split_options
from outercore.analytics.running import Direction
from outercore.base.display import ShortRepr
from outercore.base.options import Backend
from outercore.data.edge_types import EdgeType
from outercore.data.far import Far
from outercore.data.graph import Graph, Source, root_of


@dataclass(frozen=True, repr=False)
class EdgeBlock(ShortRepr):
    """A block of the arcs of a graph.

    Shapes: every array is [arcs].
    """

    source: NDArray[np.int64]
    """Node id of each arc's source."""
    target: NDArray[np.int64]
    """Node id of each arc's target."""
    weight: NDArray[np.float64] | None
    """Weight of each arc; `None` for a stream without weights."""


class EdgeStream:
    """All arcs of a graph in blocks of NumPy arrays, for custom edge programs.

    The order of the blocks is the same in every pass, for every budget, back end and number of
    threads. Sums of floats in this order are therefore bit-identical, too.

    Cost: each pass reads the edges that are not in memory. It needs 4 bytes per node.

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
        """Choose a graph and the options of its passes. No edges are read yet.

        Args:
            graph: an opened graph or the directory of a data set.
            memory: budget of a pass, without the memory that the function of the caller takes.
            relation: an edge type, or a relation of triples; only its edges are streamed. All edges
                by default. Nodes are numbered as in the results of algorithms.
            weights: edge array to pass as `EdgeBlock.weight`.
            threads: number of threads; all cores by default.
            backend: how files are read, as in `Resources`.
            far: memory server that holds edges: its address, or `far.FarOptions`.
        """
        self._graph = graph if isinstance(graph, Graph) else Graph(root_of(graph))
        self._weights = weights
        run, _ = split_options(
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
            function: called with each block. An exception that it raises ends the pass.
            direction: ``out`` passes arcs as they are, ``in`` exchanges source and target, ``both``
                passes each arc in both directions. An undirected edge always has both directions.

        Raises:
            NotFoundError: the edge array ``weights`` does not exist.
            BudgetError: the budget is too small; the message says how much memory works.
            CorruptError: a piece of the grid is damaged.
        """
        options = {"weights": self._weights, "flow": direction, "config": self._config}
        self._graph.take_additions()
        data_set = self._graph._core
        _core.stream_edges(data_set, options, lambda *arrays: function(EdgeBlock(*arrays)))
