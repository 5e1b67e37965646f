"""Sampled neighbourhoods as NumPy arrays, for training or serving without PyTorch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outercore.base.display import ShortRepr
from outercore.data.batch_arrays import name_in_storage
from outercore.data.sample_rules import SampleRules
from outercore.data.schema import EDGE, NODE
from outercore.errors import InvalidError
from outercore.loading.loader_arguments import check_arguments, refuse_arguments
from outercore.loading.minibatches import InputNodes, MiniBatches, Source, as_graph
from outercore.loading.options import LoaderOptions, others_of, shows_options

_OF_LOADER = (
    *(field.name for field in fields(SampleRules)),
    *("directed", "custom_cls", "transform_sampler_output", "transform", "input_time"),
    "pin_memory",
)
"""Arguments of `NeighborLoader` that change tensors or the rules of sampling."""
_INSTEAD = dict.fromkeys(_OF_LOADER, "`oc.NeighborLoader` takes it; its batches are tensors")


@dataclass(frozen=True, eq=False, repr=False)
class SampledSubgraph(ShortRepr):
    """A mini-batch of n nodes and s edges, with local ids: node ``i`` is ``n_id[i]`` of the graph.

    Edges are sorted by target: the in-neighbours of node ``i`` are
    ``indices[indptr[i]:indptr[i + 1]]``. Only the first d nodes have in-neighbours in the batch,
    because no neighbours are sampled for the new nodes of the last hop.
    """

    n_id: NDArray[Any]
    """[n] node ids: the seeds first, then new nodes hop by hop."""
    indptr: NDArray[Any]
    """[d + 1] offset of the first edge into each target."""
    indices: NDArray[Any]
    """[s] source of each edge."""
    e_id: NDArray[np.int64] | None
    """[s] rows of the imported edge list, or ``None`` without ``edge_ids``."""
    input_id: NDArray[np.int64]
    """[batch_size] positions of the seeds in the input nodes; for a mask, the node ids."""
    batch_size: int
    """Number of seeds."""
    num_sampled_nodes: list[int]
    """Number of seeds, then the number of new nodes of each hop."""
    num_sampled_edges: list[int]
    """Number of edges of each hop."""
    x: NDArray[Any] | None = None
    """[n, F] features, float32. Features from imported arrays keep integers and their shape."""
    y: NDArray[Any] | None = None
    """[n] or [n, classes] labels. Integers are int64, with -1 for a node without a label. Other
    labels keep their type."""
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Further arrays by name, in their stored type: ``year`` [n, ...], ``edge_weight`` [s, ...]."""

    @property
    def num_nodes(self) -> int:
        """Number of nodes, n."""
        return len(self.n_id)

    @property
    def num_edges(self) -> int:
        """Number of edges, s."""
        return len(self.indices)

    @property
    def edge_index(self) -> NDArray[Any]:
        """[2, s] source and target of each edge, as in PyG. Every call makes a new array."""
        targets = np.arange(len(self.indptr) - 1, dtype=self.indices.dtype)
        return np.stack([self.indices, np.repeat(targets, np.diff(self.indptr))])


class NeighborSampler(MiniBatches[SampledSubgraph]):
    """Samples neighbourhoods of nodes as NumPy arrays, from a graph that may exceed memory.

    The samples equal the samples of :class:`NeighborLoader` bit by bit, but this class needs only
    NumPy. Use it for models in other frameworks, or to save the memory of PyTorch.
    It delivers features and labels only if you name them.

    One epoch runs at a time: as soon as a new iterator of a sampler begins, older iterators raise
    :class:`InvalidError`. Nested loops need one sampler each.

    Shapes: see :class:`SampledSubgraph`. ``n_id``, ``indptr`` and ``indices`` have ``id_dtype``.

    Args:
        graph: an open data set, or its directory.
        num_neighbors: fan-out per hop. -1 takes all neighbours.
        input_nodes: the seeds: the name of a split, node ids, a boolean mask, or ``None`` for
            every node.
        features: array to deliver as ``x``: its name, or the path of an ``.npy`` matrix with one
            row per node. ``None`` delivers no features. ``"x"`` means the features of the data
            set; it is left out if the data set lacks features.
        labels: array to deliver as ``y``, or ``None``. ``"y"`` means the labels of the data set;
            it is left out if the data set lacks labels.
        edge_ids: deliver ``e_id``, the rows of the imported edge list.
        arrays: further arrays to deliver in ``arrays``, by name: ``"year"`` of nodes,
            ``"edge_weight"`` of edges. ``None``: as for :class:`NeighborLoader`.
        id_dtype: type of ids. 32 bits need half the memory, and JAX uses them by default.
        options: all other arguments are as for :class:`NeighborLoader`, except the rules of
            sampling, ``transform`` and ``pin_memory``, which do not exist here.

    Raises:
        InvalidError: an argument of the wrong type or out of range, a seed outside the graph, or
            too many nodes for ids of 32 bits.
        NotFoundError: the data set lacks the split or the array.

    Example:
        >>> import outercore as oc
        >>> graph = oc.open(tiny_dataset)
        >>> sampler = oc.NeighborSampler(graph, num_neighbors=[5, 3], input_nodes="train",
        ...                              batch_size=32, features="x", memory="16MiB")
        >>> batch = next(iter(sampler))
        >>> batch.batch_size, batch.x.shape == (batch.num_nodes, 8)
        (32, True)
        >>> batch.edge_index.shape == (2, batch.num_edges)
        True
    """

    @shows_options(LoaderOptions, without=_OF_LOADER)
    def __init__(
        self,
        graph: Source,
        num_neighbors: Sequence[int],
        input_nodes: InputNodes = None,
        *,
        features: str | os.PathLike[str] | None = None,
        labels: str | None = None,
        edge_ids: bool = False,
        arrays: Sequence[str] | None = (),
        id_dtype: Literal["int64", "int32"] = "int64",
        **options: Any,
    ) -> None:
        """Bind a graph and the seeds; nothing is read yet."""
        chosen = {**locals(), **options}
        refuse_arguments(options, type(self), _INSTEAD)
        if id_dtype not in ("int64", "int32"):
            raise InvalidError(f"id_dtype is {id_dtype!r}, expected 'int64' or 'int32'")
        self._id_dtype = id_dtype
        graph = as_graph(graph)
        check_arguments(others_of(options), type(self), of_links=False)
        if graph.is_typed:
            raise InvalidError(
                f"data set `{graph.root}`: the sampler of NumPy arrays takes a graph of one type\n"
                "hint: `NeighborLoader` samples from several types"
            )
        if id_dtype == "int32" and graph.num_nodes > np.iinfo(np.int32).max:
            raise InvalidError(f"{graph.num_nodes} nodes do not fit into int32; take int64")
        super().__init__(graph, num_neighbors, input_nodes, LoaderOptions.of(chosen))

    @property
    def config(self) -> dict[str, Any]:
        """The effective configuration, as written to the run record."""
        return {**super().config, "id_dtype": self._id_dtype}

    def _batch(self, widths: dict[str, int]) -> SampledSubgraph:
        parts = self._core.batch(self._id_dtype)
        nodes, edges, seeds = parts["nodes"][NODE], parts["edges"][EDGE], parts["seeds"]
        n_id = nodes["n_id"]
        seeds["input_id"] = self._input_id(seeds["input_id"], n_id)
        return SampledSubgraph(
            **{"e_id": None, **nodes, **edges, **seeds},
            x=self._features(NODE, len(n_id), widths[NODE]),
            y=self._labels_of(n_id),
            arrays={
                name_in_storage(key): rows for key, rows in self._named(parts["arrays"]).items()
            },
        )
