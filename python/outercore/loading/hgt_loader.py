"""Mini-batches with a balanced number of nodes of each type, for HGT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from outercore.loading.loader import NeighborLoader
from outercore.loading.loader_arguments import refuse_arguments
from outercore.loading.minibatches import InputNodes, Source


class HGTLoader(NeighborLoader):
    """Samples a fixed number of nodes of each type per hop, from a graph that may exceed memory.

    It replaces PyG's ``HGTLoader``. Each hop draws nodes of each node type for the whole batch,
    without replacement. A node outside the batch has a score: the sum of ``1 / degree`` over its
    edges to nodes of the batch. ``degree`` is the number of in-edges of the target, of that edge
    type. The probability of a node grows with the square of its score. A batch holds all edges
    between its nodes, including edges of nodes that were drawn in the last hop.

    A batch has the attributes of a :class:`NeighborLoader` batch. The nodes of a type are in the
    order of their draws, after the seeds. ``num_sampled_edges`` has one number, because an edge
    does not belong to a hop.

    PyG scores at most 50 random in-edges of a node. This loader scores all of them.

    Cost: reads all in-edges of each node of a batch twice. It needs memory for each node with an
    edge to the batch, and raises an error if they exceed the budget.

    Args:
        data: an open data set, its directory, or its two stores from ``graph.pyg()``.
        num_samples: nodes to draw per hop from each node type, or a dictionary of these lists by
            node type. -1 takes all nodes with an edge to the batch.
        input_nodes: as for :class:`NeighborLoader`.
        options: as for :class:`NeighborLoader`. ``replace``, ``disjoint``, ``weight_attr`` and
            ``time_attr`` contradict this sampling and raise an error.

    Raises:
        InvalidError: a node type without a list in ``num_samples``, or an option that contradicts
            this sampling.
        NotFoundError: the data set lacks the split or the array.

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
