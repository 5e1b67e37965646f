"""Mini-batches with about as many nodes of each type, as HGT asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from outercore.loading.loader import NeighborLoader
from outercore.loading.loader_arguments import refuse_arguments
from outercore.loading.minibatches import InputNodes, Source


class HGTLoader(NeighborLoader):
    """Yields what PyG's ``HGTLoader`` yields, from a graph that may exceed memory.

    Each hop draws a number of nodes of each node type for the whole batch, without replacement. A
    node outside of the batch has a score: the sum of ``1 / degree`` over its edges to nodes of the
    batch, where ``degree`` counts the in-edges of that edge type that the target has. The chance
    of a node grows with the square of its score. A batch holds all edges between its nodes, also
    those of nodes that the last hop found.

    A batch is that of :class:`NeighborLoader`. Nodes of a type are in the order of their draws,
    the seeds first. ``num_sampled_edges`` has one number, as edges belong to no hop.

    PyG looks at 50 in-edges of a node at most, chosen at random; here all are looked at.

    Cost: reads all in-edges of each node of a batch, twice. Memory for each node that has an edge
    to the batch; too many for the budget are an error.

    Args:
        data: a data set: opened, by its directory, or by its stores, ``graph.pyg()``.
        num_samples: nodes to draw per hop of each node type, or a dictionary of these by node
            type; -1 takes all nodes with an edge to the batch.
        input_nodes: as for :class:`NeighborLoader`.
        options: as for :class:`NeighborLoader`. ``replace``, ``disjoint``, ``weight_attr`` and
            ``time_attr`` contradict this sampling and are refused.

    Raises:
        InvalidError: a node type without numbers, options that are refused.
        NotFoundError: a split or an array that the data set does not have.

    Source: Hu et al., "Heterogeneous Graph Transformer", WWW 2020, Algorithms 1 and 2. As in PyG,
    a hop draws from all types before it changes the scores.

    Example:
        >>> import outercore as oc
        >>> loader = oc.HGTLoader(tiny_dataset, [16, 8], "train", batch_size=4, memory="16MiB")
        >>> batch = next(iter(loader))
        >>> batch.num_sampled_nodes
        [4, 16, 8]
    """

    def __init__(
        self,
        data: Source,
        num_samples: Sequence[int] | Mapping[str, Sequence[int]],
        input_nodes: InputNodes | Tensor = None,
        **options: Any,
    ) -> None:
        """Bind a graph and the seeds; nothing is read yet."""
        instead = "`NeighborLoader` takes a method; this loader has its own"
        refuse_arguments(options, type(self), {"method": instead})
        super().__init__(data, num_samples, input_nodes, method="hgt", **options)
