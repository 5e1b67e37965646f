"""Mini-batches of sampled neighbourhoods as PyG objects, within a memory budget."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from outercore.base.likeness import missing_attribute
from outercore.base.options import Backend, Policy, Precision, Topology
from outercore.data.batch_arrays import name_in_storage
from outercore.data.edge_types import EdgeType, edge_type_key
from outercore.data.far import Far
from outercore.data.sample_rules import (
    EqualTimes,
    Method,
    SampleRules,
    SubgraphType,
    TemporalStrategy,
)
from outercore.data.schema import type_of
from outercore.errors import InvalidError, UnsupportedError
from outercore.loading.bidirectional import lead_both_ways, reverse_types
from outercore.loading.loader_arguments import ARGUMENTS, check_arguments
from outercore.loading.loader_data import LoaderData, take_for_inference
from outercore.loading.minibatches import FanOuts, InputNodes, MiniBatches, Source, as_graph
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
        disjoint: sample the neighbourhood of each seed separately. ``batch`` then has the place of
            the seed that each node belongs to.
        subgraph_type: the edges of a batch.
            ``"directional"``: the sampled edges.
            ``"bidirectional"``: also the reverse of each sampled edge, without parallel edges.
            ``"induced"``: all edges between the nodes of a batch. With ``disjoint``, these are the
            subgraphs of ShaDow.
        weight_attr: edge array with sampling weights. Larger values make an edge more likely.
        time_attr: array of node times, edge times or both. A seed sees only nodes and edges up to
            its time; its neighbourhood is sampled separately.
        input_time: the time of each seed. Default: the time of its node.
        temporal_strategy: ``"uniform"`` samples from all visible edges, ``"last"`` takes the
            latest ones. If neither edges nor their sources have times, ``"last"`` takes any.
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
        backend: how the device is read.
        threads: threads for sampling and assembly. ``None``: one per core.
        topology: where the edges are: in memory or on disk.
        precision: ``"int8"`` reads feature rows with one byte per value, from the layout that
            ``outercore layout --precision int8`` writes. Each value is the nearest of 256 steps.
        policy: eviction from the dynamic cache.
        hotness: how to choose rows for the static cache.
            ``"presample"``: count the visits in a sampled part of an epoch.
            ``"visits"``: compute the expected visits of each node in an epoch. This is more exact,
            but reads all edges once per hop.
            ``"in_degree"``: rows of the nodes with the most in-edges.
            ``"none"``: no static cache.
            The name of a node array, such as a saved PageRank: rows with the largest values.
        look_ahead: groups of batches that are sampled ahead of the group being fetched.
        group: batches that are fetched together. ``None``: the plan decides.
        constant_share: share of the cache slots for the static cache. ``None``: the plan decides.
        far: a memory server that also holds features and topology: its address, or
            `far.FarOptions`.
        pin_memory: assemble ``x`` in page-locked memory, for asynchronous copies to a GPU.
        others: further arguments of PyG's loader and PyTorch's ``DataLoader``, such as
            ``num_workers``. An argument without a meaning here has no effect; a warning names it.

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
        graph = as_graph(data)
        check_arguments(others, type(self), of_links=self._of_links)
        self.transform, self._pin_memory = _callable(transform), _pinnable(pin_memory)
        self._reverse: dict[EdgeType, EdgeType] = {}
        rules = SampleRules.of(
            method, disjoint, subgraph_type, weight_attr, time_attr, temporal_strategy, equal_times
        )
        if rules.subgraph_type == "bidirectional" and graph.is_typed:
            self._reverse = reverse_types(graph.edge_types)
        super().__init__(
            graph,
            num_neighbors,
            _without_tensors(input_nodes),
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
            rules=rules,
            input_time=input_time.cpu().numpy() if isinstance(input_time, Tensor) else input_time,
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
        batch = self._typed(widths) if self.graph.is_typed else self._plain(widths["node"])
        if self._rules.subgraph_type == "bidirectional":
            of_nodes = [name for name, key in self._arrays.items() if key.startswith("nodes/")]
            lead_both_ways(batch, self._reverse, of_nodes)
        return batch if self.transform is None else self.transform(batch)

    def _plain(self, width: int) -> Data:
        parts = self._core.batch()
        n_id = parts["n_id"]
        data = Data(edge_index=torch.from_numpy(parts["edge_index"]))
        data.n_id = torch.from_numpy(n_id)
        if width:
            x = self._rows(len(n_id), width)
            self._core.gather(x.numpy())
            data.x = torch.from_numpy(self._in_form(x.numpy(), "node"))
        else:
            data.num_nodes = len(n_id)
        if (labels := self._labels_of(n_id)) is not None:
            data.y = torch.from_numpy(labels)
        if self._config["edge_ids"]:
            data.e_id = torch.from_numpy(parts["e_id"])
        if len(parts["edge_weights"]):
            data.edge_norm = torch.from_numpy(parts["edge_weights"])
        for name, rows in self._named(parts["arrays"]).items():
            data[name] = torch.from_numpy(rows)
        if self._rules.has_trees:
            data.batch = torch.from_numpy(parts["trees"])
        data.input_id = torch.from_numpy(self._input_id(parts, n_id))
        self._add_times(data, parts)
        data.batch_size = parts["batch_size"]
        data.num_sampled_nodes = parts["num_sampled_nodes"]
        data.num_sampled_edges = parts["num_sampled_edges"]
        return data

    def _typed(self, widths: dict[str, int]) -> HeteroData:
        parts = self._core.typed_batch()
        data = HeteroData()
        labelled = None if self._label_key is None else type_of(self._label_key)
        for node_type, nodes in parts["nodes"].items():
            store, n_id = data[node_type], nodes["n_id"]
            store.n_id = torch.from_numpy(n_id)
            store.num_nodes = len(n_id)
            if width := widths[node_type]:
                x = self._rows(len(n_id), width)
                self._core.gather(x.numpy(), node_type)
                store.x = torch.from_numpy(self._in_form(x.numpy(), node_type))
            if self._rules.has_trees:
                store.batch = torch.from_numpy(nodes["trees"])
            if node_type == labelled and (labels := self._labels_of(n_id)) is not None:
                store.y = torch.from_numpy(labels)
            store.num_sampled_nodes = nodes["num_sampled_nodes"]
        edge_types = {edge_type_key(one): one for one in self.graph.edge_types}
        for key, edge_type in edge_types.items():
            edges, store = parts["edges"][key], data[edge_type]
            store.edge_index = torch.from_numpy(edges["edge_index"])
            if self._config["edge_ids"]:
                store.e_id = torch.from_numpy(edges["e_id"])
            store.num_sampled_edges = edges["num_sampled_edges"]
        for key, rows in self._named(parts["arrays"]).items():
            of, of_type, _ = key.split("/", 2)
            store = data[of_type if of == "nodes" else edge_types[of_type]]
            store[name_in_storage(key)] = torch.from_numpy(rows)
        seeds = data[self._input_nodes.node_type]
        seeds.input_id = torch.from_numpy(self._input_id(parts, seeds.n_id.numpy()))
        self._add_times(seeds, parts)
        seeds.batch_size = parts["batch_size"]
        return data

    def _add_times(self, seeds: Any, parts: dict[str, Any]) -> None:
        """Adds the times of the seeds if the caller passed them; links carry their times."""
        if self._input_times is not None and len(self._input_times):
            seeds.seed_time = torch.from_numpy(self._input_times[parts["input_id"]])

    def _rows(self, nodes: int, width: int) -> Tensor:
        """Memory for ``x``. The core lends large arrays and reuses their memory once they die."""
        own = None if self._pin_memory else self._core.row_array(nodes, width)
        if own is None:
            return torch.empty((nodes, width), pin_memory=self._pin_memory)
        return torch.from_numpy(own)


take_for_inference(NeighborLoader)


def _callable(transform: Any) -> Any:
    """The argument, checked. Errors: `InvalidError` if it is not callable."""
    if transform is not None and not callable(transform):
        raise InvalidError(f"transform: expected a function of a batch, found {transform!r}")
    return transform


def _pinnable(pin_memory: bool) -> bool:
    """The argument, checked. Errors: `InvalidError` if it is true without a GPU."""
    if pin_memory and not torch.cuda.is_available():
        raise InvalidError(
            "pin_memory=True: PyTorch finds no GPU to pin memory for\n"
            "hint: leave `pin_memory` out, or write `pin_memory=torch.cuda.is_available()`"
        )
    return pin_memory


def _without_tensors(nodes: InputNodes | Tensor) -> InputNodes:
    """The input nodes, with tensors converted to NumPy arrays."""
    if isinstance(nodes, Tensor):
        return nodes.cpu().numpy()
    if isinstance(nodes, tuple) and len(nodes) == 2 and isinstance(nodes[1], Tensor):
        return nodes[0], nodes[1].cpu().numpy()
    return nodes
