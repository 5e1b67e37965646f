"""Sampled neighbourhoods as NumPy arrays, for whoever trains or serves without PyTorch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outercore.base.display import ShortRepr
from outercore.base.options import Backend, Policy, Precision, Topology
from outercore.data.far import Far
from outercore.errors import InvalidError
from outercore.loading.loader_arguments import check_arguments, refuse_arguments
from outercore.loading.minibatches import (
    InputNodes,
    MiniBatches,
    Source,
    opened,
)
from outercore.loading.seed_code import code_of_nodes

_OF_LOADER = (
    *("directed", "custom_cls", "transform_sampler_output", "transform", "subgraph_type"),
    *("disjoint", "method", "weight_attr", "time_attr", "input_time", "temporal_strategy"),
    *("equal_times", "pin_memory"),
)
_INSTEAD = dict.fromkeys(_OF_LOADER, "`oc.NeighborLoader` takes it; its batches are tensors")


@dataclass(frozen=True, eq=False, repr=False)
class SampledSubgraph(ShortRepr):
    """A mini-batch of n nodes and s edges, in local ids: node ``i`` is ``n_id[i]`` of the graph.

    Edges lie by target: those into node ``i`` come from ``indices[indptr[i]:indptr[i + 1]]``. Of n
    nodes the first d have been sampled from; what the last hop found has no edges here.
    """

    n_id: NDArray[Any]
    """[n] node ids: the seeds first, then new nodes hop by hop."""
    indptr: NDArray[Any]
    """[d + 1] where the edges into each target begin."""
    indices: NDArray[Any]
    """[s] the source of every edge."""
    e_id: NDArray[np.int64] | None
    """[s] rows of the imported edge list, where asked for."""
    input_id: NDArray[np.int64]
    """[batch_size] places of the seeds in the input nodes; where these are a mask, in the mask."""
    batch_size: int
    """Seeds."""
    num_sampled_nodes: list[int]
    """Seeds, then new nodes of every hop."""
    num_sampled_edges: list[int]
    """Edges of every hop."""
    x: NDArray[Any] | None = None
    """[n, F] features, float32; from arrays as these were: whole numbers, one dimension."""
    y: NDArray[Any] | None = None
    """[n] or [n, classes] labels: integers as int64, -1 where a node has none; others as given."""
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Further arrays where asked for, as stored: ``year`` [n, ...], ``edge_weight`` [s, ...]."""

    @property
    def num_nodes(self) -> int:
        """n."""
        return len(self.n_id)

    @property
    def num_edges(self) -> int:
        """s."""
        return len(self.indices)

    @property
    def edge_index(self) -> NDArray[Any]:
        """[2, s] source and target of every edge, as PyG has them; made anew by every call."""
        targets = np.arange(len(self.indptr) - 1, dtype=self.indices.dtype)
        return np.stack([self.indices, np.repeat(targets, np.diff(self.indptr))])


class NeighborSampler(MiniBatches[SampledSubgraph]):
    """Yields sampled neighbourhoods as NumPy arrays, from a graph that may exceed memory.

    It samples what :class:`NeighborLoader` samples, to the bit, and needs NumPy alone: for models
    in another framework, and for programs whose memory PyTorch would take. Features and labels
    come where they are asked for. One epoch runs at a time: once a newer iterator has begun, an
    older one of the same sampler raises :class:`InvalidError`. Nested loops take a sampler each.

    Shapes: see :class:`SampledSubgraph`. ``n_id``, ``indptr`` and ``indices`` are of ``id_dtype``.

    Args:
        graph: a data set, opened or by its directory.
        num_neighbors: fan-out per hop; -1 takes all neighbours.
        input_nodes: name of a split, node ids, a boolean mask, or ``None`` for every node.
        batch_size: seeds per batch.
        replace: draw neighbours with replacement.
        shuffle: visit the seeds in a new order every epoch.
        drop_last: leave out a last batch that is not full.
        seed: seed of all randomness.
        features: array to deliver as ``x`` by name, the path of an ``.npy`` matrix with one row
            per node, or ``None``; ``"x"`` means the data set's features and is left out where
            it has none.
        labels: array to deliver as ``y``, or ``None``; ``"y"`` means the data set's labels and
            is left out where it has none.
        edge_ids: deliver ``e_id``, the rows of the imported edge list.
        arrays: further arrays to deliver in ``arrays``, by name: ``"year"`` of nodes,
            ``"edge_weight"`` of edges. ``None``: as for :class:`NeighborLoader`.
        rank: which of the processes that share an epoch this one is; as for
            :class:`NeighborLoader`.
        world_size: how many processes share an epoch.
        id_dtype: type of ids; 32 bits are half the memory, and what JAX works with.
        memory: budget for everything that the sampler keeps, such as ``"2GiB"``.
        backend: how the device is read.
        threads: sampling and assembly threads; ``None`` means one per core.
        topology: where the edges live.
        precision: ``"int8"`` reads feature rows of a byte a value, in the layout that
            ``outercore layout --precision int8`` writes.
        policy: eviction in the dynamic part of the cache of features.
        hotness: as for :class:`NeighborLoader`.
        look_ahead: groups of batches sampled ahead of the one that is being fetched.
        group: batches fetched together; ``None`` leaves it to the plan.
        constant_share: share of the cache that is constant; ``None`` leaves it to the plan.
        far: a memory server that holds features and topology too; its address, or
            `far.FarOptions`.
        others: further arguments of PyTorch's ``DataLoader``, such as ``num_workers``, which have
            no effect; a warning says so.

    Raises:
        InvalidError: an argument of the wrong type or out of range, a seed that is no node,
            more nodes than ids of 32 bits tell apart.
        NotFoundError: a split or an array that the data set does not have.

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

    def __init__(
        self,
        graph: Source,
        num_neighbors: Sequence[int],
        input_nodes: InputNodes = None,
        *,
        batch_size: int = 1,
        replace: bool = False,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        features: str | os.PathLike[str] | None = None,
        labels: str | None = None,
        edge_ids: bool = False,
        arrays: Sequence[str] | None = (),
        rank: int | None = None,
        world_size: int | None = None,
        id_dtype: Literal["int64", "int32"] = "int64",
        memory: str | int = "1GiB",
        backend: Backend = "auto",
        threads: int | None = None,
        topology: Topology = "auto",
        precision: Precision = "exact",
        policy: Policy = "window",
        hotness: str = "presample",
        look_ahead: int = 1,
        group: int | None = None,
        constant_share: float | None = None,
        far: Far | None = None,
        **others: Any,
    ) -> None:
        """Bind a graph and the seeds; nothing is read yet."""
        refuse_arguments(others, type(self), _INSTEAD)
        if id_dtype not in ("int64", "int32"):
            raise InvalidError(f"id_dtype is {id_dtype!r}, expected 'int64' or 'int32'")
        self._id_dtype = id_dtype
        data, graph = graph, opened(graph)
        check_arguments(
            others, type(self), lambda: code_of_nodes(data, graph, input_nodes), of_links=False
        )
        if graph.is_typed:
            raise InvalidError(
                f"data set `{graph.root}`: the sampler of NumPy arrays takes a graph of one type\n"
                "hint: `NeighborLoader` samples from several types"
            )
        if id_dtype == "int32" and graph.num_nodes > np.iinfo(np.int32).max:
            raise InvalidError(f"{graph.num_nodes} nodes do not fit into int32; take int64")
        super().__init__(
            graph,
            num_neighbors,
            input_nodes,
            features=features,
            labels=labels,
            edge_ids=edge_ids,
            arrays=arrays,
            rank=rank,
            world_size=world_size,
            memory=memory,
            threads=threads,
            hotness=hotness,
            far=far,
            batch_size=batch_size,
            replace=replace,
            shuffle=shuffle,
            drop_last=drop_last,
            seed=seed,
            backend=backend,
            topology=topology,
            precision=precision,
            policy=policy,
            look_ahead=look_ahead,
            group=group,
            constant_share=constant_share,
        )

    @property
    def config(self) -> dict[str, Any]:
        """The effective configuration, as the run record keeps it."""
        return {**super().config, "id_dtype": self._id_dtype}

    def _batch(self, widths: dict[str, int]) -> SampledSubgraph:
        width = widths["node"]
        parts = self._core.columns(halves=self._id_dtype == "int32")
        parts["input_id"] = self._input_id(parts, parts["n_id"])
        parts["arrays"] = self._named(parts["arrays"])
        nodes, x = len(parts["n_id"]), None
        if width:
            own = self._core.row_array(nodes, width)
            x = np.empty((nodes, width), dtype=np.float32) if own is None else own
            self._core.gather(x)
            x = self._in_form(x, "node")
        return SampledSubgraph(**parts, x=x, y=self._labels_of(parts["n_id"]))
