"""Mini-batches of sampled neighbourhoods as PyG objects, within a memory budget."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from outercore.base.likeness import missing_attribute
from outercore.base.options import Backend, Policy, Precision, Topology
from outercore.data.batch_arrays import EDGE_ROWS, name_in_storage, own_names
from outercore.data.edge_types import EdgeType, edge_type_key
from outercore.data.far import Far
from outercore.data.graph import Graph
from outercore.data.sample_rules import (
    EqualTimes,
    Method,
    SubgraphType,
    TemporalStrategy,
)
from outercore.data.schema import type_of
from outercore.errors import InvalidError, UnsupportedError
from outercore.loading.batch_edges import lead_both_ways, reverse_types
from outercore.loading.loader_arguments import ARGUMENTS, check_arguments, refuse_arguments
from outercore.loading.loader_data import LoaderData, take_for_inference
from outercore.loading.minibatches import FanOuts, InputNodes, MiniBatches, Source, as_graph
from outercore.loading.options import LoaderOptions, shows_options
from outercore.loading.typed_choice import FeatureNames


class NeighborLoader(MiniBatches[Any]):
    """Samples neighbourhoods of nodes into mini-batches, from a graph that may exceed memory.

    It replaces PyG's ``NeighborLoader``. A batch is a ``torch_geometric.data.Data`` with ``x``,
    ``y``, ``edge_index``, ``n_id``, ``e_id``, ``input_id``, ``batch_size``, ``num_sampled_nodes``
    and ``num_sampled_edges``. The seeds are its first nodes, so ``trim_to_layer`` works. A graph
    with several types of nodes and edges gives a ``HeteroData`` with the same attributes by type.
    It has every type, even if a type is empty.

    The content of a batch depends on the epoch, the arguments up to ``transform`` below, and
    ``precision``. It never depends on the budget, the back end or the threads.

    One epoch runs at a time: as soon as a new iterator of a loader begins, older iterators raise
    :class:`InvalidError`. Nested loops need one loader each.

    Shapes: a batch has n nodes, s edges and F features.

    - ``x``: float32 [n, F].
    - ``y``: int64 [n] or float32 [n, classes].
    - ``edge_index``: int64 [2, s].
    - ``n_id``: int64 [n].
    - ``e_id``: int64 [s].
    - Further arrays: a node array ``year`` is ``year`` [n, ...], and an edge array ``weight`` is
      ``edge_weight`` [s, ...]. They have the stored type, except that ``bfloat16`` becomes float32.

    Features and labels that were imported from tensors or arrays keep their shape, such as [n, 1]
    or [n]. Integers in ``x`` and floats in ``y`` also keep their type.

    Cost: the loader reads nothing before the first iteration or :meth:`plan`. The core writes
    ``x`` directly into the memory of the tensor. Ids are converted to int64 once, into the memory
    of the tensor.

    Args:
        data: an open data set, its directory, or its two stores from ``graph.pyg()``.
        num_neighbors: fan-out per hop, or a dictionary of fan-outs by edge type. -1 takes all
            neighbours.
        input_nodes: the seeds: the name of a split, node ids, a list of node names, a boolean
            mask, or ``None`` for every node. With several node types: a split, the name of a node
            type, or ``(node type, nodes)``.
        batch_size: seeds per batch.
        replace: draw neighbours with replacement.
        method: the sampling method.
            ``"neighbor"``: neighbours of each node separately.
            ``"labor"`` (LABOR-0): neighbours of all nodes of a batch together, which needs fewer
            nodes for the same number of edges.
            ``"ladies"``: a fan-out is the number of nodes for a whole hop. Their edges lead to all
            nodes of earlier hops, and ``edge_norm`` has the weights of the edges.
            ``"hgt"``: as :class:`HGTLoader`; ``num_neighbors`` takes its ``num_samples``.
        disjoint: sample the neighbourhood of each seed separately. ``batch`` then has the position
            of the seed that each node belongs to.
        subgraph_type: the edges of a batch.
            ``"directional"``: the sampled edges.
            ``"bidirectional"``: also the reverse of each sampled edge, without parallel edges.
            ``"induced"``: all edges between the nodes of a batch. With ``disjoint``, these are the
            subgraphs of ShaDow.
        weight_attr: edge array with sampling weights. Larger values make an edge more likely.
        time_attr: array of node times, edge times or both. A seed sees only nodes and edges up to
            its time. The neighbourhood of each seed is sampled separately.
        input_time: the time of each seed. Default: the time of its node.
        temporal_strategy: ``"uniform"`` samples from all visible edges, ``"last"`` takes the
            latest edges. If neither edges nor their sources have times, ``"last"`` takes any edges.
        equal_times: whether a seed sees nodes and edges of exactly its time: ``"seen"`` as in PyG,
            ``"hidden"`` as in GraphBolt.
        shuffle: visit the seeds in a new order every epoch.
        drop_last: leave out the last batch if it is not full.
        seed: random seed. ``torch.manual_seed`` does not change batches, unless you pass
            ``seed=torch.initial_seed()``.
        features: array to deliver as ``x``: its name, or the path of an ``.npy`` matrix with one
            row per node. A dictionary gives one by node type. ``None`` delivers no features. The
            default ``"x"`` is left out if the data set, or a node type, lacks it.
        labels: array to deliver as ``y``, or ``None``. The default ``"y"`` is left out if the data
            set lacks it.
        edge_ids: deliver ``e_id``, the rows of the imported edge list.
        arrays: further arrays to deliver, by their names in a batch: ``"year"`` of nodes,
            ``"edge_weight"`` of edges. ``[]`` delivers none. ``None`` delivers all except the node
            array that ``hotness`` names and node arrays that Outercore computed.
        rank: number of this process among the processes that share an epoch. If ``rank`` and
            ``world_size`` are ``None``, ``torch.distributed`` sets both once it is initialised.
            Every process gets the same ``input_nodes``. If you split the nodes yourself, pass
            ``rank=0, world_size=1``.
        world_size: number of processes that share an epoch. Each seed is in a batch of one
            process. All processes have the same number of batches; the last one may be smaller.
        transform: function that is applied to every batch.
        memory: budget for all memory of the loader, such as ``"2GiB"``.
        backend: how files are read: ``"uring"`` (io_uring), ``"threads"`` or ``"mmap"``.
            ``"auto"`` chooses.
        threads: number of threads for sampling and assembly. ``None``: one per core.
        topology: whether the edges are in memory (``"resident"``) or on disk (``"paged"``).
            ``"auto"`` chooses by the budget.
        precision: ``"int8"`` reads feature rows with one byte per value, from the layout that
            ``outercore layout --precision int8`` writes. Each value is the nearest of 256 steps.
        policy: the row that the dynamic cache evicts. ``"window"``: the row whose next use is
            farthest among the announced batches. ``"lru"``: the least recently used row.
        hotness: how to choose rows for the static cache.
            ``"presample"``: count the visits in a sampled part of an epoch.
            ``"visits"``: compute the expected visits of each node in an epoch. This is more exact,
            but reads all edges once per hop.
            ``"in_degree"``: rows of the nodes with the most in-edges.
            ``"none"``: no static cache.
            The name of a node array, such as a saved PageRank: rows with the largest values.
        look_ahead: number of groups of batches that are sampled ahead of the group being fetched.
        group: number of batches that are fetched together. ``None``: the plan decides.
        constant_share: share of the cache slots for the static cache. ``None``: the plan decides.
        far: a memory server that also holds features and topology: its address, or
            `far.FarOptions`.
        pin_memory: assemble ``x`` in page-locked memory, for asynchronous copies to a GPU.
        others: further arguments of PyG's loader and PyTorch's ``DataLoader``, such as
            ``num_workers``. A warning names arguments that have no effect in this loader.

    Raises:
        InvalidError: an argument of the wrong type or out of range, a seed outside the graph, an
            empty split, two arrays with the same name, or ``pin_memory`` without a GPU.
        NotFoundError: the data set lacks the split or the array.
        UnsupportedError: an argument of PyG or PyTorch that works differently here. The message
            says how.

    Example:
        >>> import outercore as oc
        >>> graph = oc.open(tiny_dataset)
        >>> loader = oc.NeighborLoader(graph, num_neighbors=[5, 3], input_nodes="train",
        ...                            batch_size=32, shuffle=True, memory="16MiB")
        >>> batch = next(iter(loader))
        >>> batch.batch_size, batch.x.shape[1]
        (32, 8)
    """

    _instead: ClassVar[Mapping[str, str]] = {name: one.because for name, one in ARGUMENTS.items()}
    """Hints by name, for attributes of PyTorch's `DataLoader` that this loader lacks."""

    def __init__(
        self,
        data: Source,
        num_neighbors: FanOuts,
        input_nodes: InputNodes | Tensor = None,
        input_time: NDArray[Any] | Tensor | None = None,
        replace: bool = False,
        subgraph_type: SubgraphType = "directional",
        disjoint: bool = False,
        temporal_strategy: TemporalStrategy = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        *,
        batch_size: int = 1,
        method: Method = "neighbor",
        equal_times: EqualTimes = "seen",
        shuffle: bool | None = False,
        drop_last: bool = False,
        seed: int = 0,
        features: str | os.PathLike[str] | FeatureNames | None = "x",
        labels: str | None = "y",
        edge_ids: bool = True,
        arrays: Sequence[str] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
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
        pin_memory: bool = False,
        **others: Any,
    ) -> None:
        """Bind a graph and the seeds; nothing is read yet."""
        options, graph = LoaderOptions.of(locals()), as_graph(data)
        check_arguments(others, type(self), of_links=False)
        self._bind(graph, num_neighbors, input_nodes, options)

    def _bind(
        self,
        graph: Graph,
        num_neighbors: FanOuts,
        input_nodes: Any,
        options: LoaderOptions,
        core_options: LoaderOptions | None = None,
    ) -> None:
        if options.pin_memory and not torch.cuda.is_available():
            raise InvalidError(
                "pin_memory=True: PyTorch finds no GPU to pin memory for\n"
                "hint: leave `pin_memory` out, or write `pin_memory=torch.cuda.is_available()`"
            )
        self.transform = options.transform
        self._reverse: dict[EdgeType, EdgeType] = {}
        if options.subgraph_type == "bidirectional" and graph.is_typed:
            self._reverse = reverse_types(graph.edge_types)
        super().__init__(graph, num_neighbors, input_nodes, options, core_options)

    @cached_property
    def data(self) -> LoaderData:
        """The data set with the attributes of PyG's ``Data``; each is read on first use."""
        return LoaderData.of(self.graph)

    @property
    def node_sampler(self) -> SimpleNamespace:
        """The attribute that PyG's models read: ``num_neighbors``, as passed to the loader."""
        return SimpleNamespace(num_neighbors=self.num_neighbors)

    @property
    def num_workers(self) -> int:
        """Always 0: threads of this process make the batches."""
        return 0

    def __call__(self, index: Any) -> NoReturn:
        """Unsupported: PyG's loaders return the batch of the seeds ``index``.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "a call of a loader: its seeds are bound when it is made\n"
            "hint: make a loader with these seeds and `batch_size=len(seeds)`"
        )

    if not TYPE_CHECKING:  # With `__getattr__`, a type checker would accept any name.

        def __getattr__(self, name: str) -> Any:
            hint = self._instead.get(name, "")
            raise missing_attribute("the loader", name, dir(type(self)), hint)

    @property
    def dataset(self) -> range:
        """A range as long as the number of seeds or links, as in PyG.

        Cost: reads the split.
        """
        ids = self._input_nodes.ids(self.graph)
        every = self.graph.node_types[self._input_nodes.node_type]
        return range(every if ids is None else len(ids))

    def _batch(self, widths: dict[str, int]) -> Data | HeteroData:
        batch = self._assembled(widths)
        return batch if self.transform is None else self.transform(batch)

    def _assembled(self, widths: dict[str, int]) -> Any:
        """The current batch before `transform`."""
        is_typed = self.graph.is_typed
        batch: Any = HeteroData() if is_typed else Data()
        edge_types = {edge_type_key(one): one for one in self.graph.edge_types}

        def store(of_type: str) -> Any:
            return batch[edge_types.get(of_type, of_type)] if is_typed else batch

        parts = self._core.batch()
        labelled = None if self._label_key is None else type_of(self._label_key)
        for node_type, values in parts["nodes"].items():
            nodes, n_id = store(node_type), values["n_id"]
            _put(nodes, values)
            if (x := self._features(node_type, len(n_id), widths[node_type])) is not None:
                nodes.x = torch.from_numpy(x)
            if is_typed or x is None:
                nodes.num_nodes = len(n_id)
            if node_type == labelled and (labels := self._labels_of(n_id)) is not None:
                nodes.y = torch.from_numpy(labels)
        for key, values in parts["edges"].items():
            _put(store(key), values)
        for key, rows in self._named(parts["arrays"]).items():
            store(type_of(key))[name_in_storage(key)] = torch.from_numpy(rows)
        seeds, places = store(self._input_nodes.node_type), parts["seeds"]["input_id"]
        _put(seeds, parts["seeds"])
        seeds.input_id = torch.from_numpy(self._input_id(places, seeds.n_id.numpy()))
        if (times := self._options.input_time) is not None:
            seeds.seed_time = torch.from_numpy(times[places])
        if self._options.subgraph_type == "bidirectional":
            lead_both_ways(batch, self._reverse, self._edge_rows)
        return batch

    @property
    def _edge_rows(self) -> frozenset[str]:
        """Names of the values with a row for each edge."""
        arrays = {name_in_storage(key) for key in self._arrays if key.startswith("edges/")}
        return EDGE_ROWS & own_names(self._options, of_links=self._of_links) | arrays

    def _room(self, nodes: int, width: int) -> NDArray[np.float32]:
        if self._options.pin_memory:
            pinned: NDArray[np.float32] = torch.empty((nodes, width), pin_memory=True).numpy()
            return pinned
        return super()._room(nodes, width)


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

    @shows_options(NeighborLoader, without=("method", "num_neighbors"))
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


take_for_inference(NeighborLoader)


def _put(store: Any, values: dict[str, Any]) -> None:
    """Adds values of the core under their names."""
    for name, value in values.items():
        store[name] = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
