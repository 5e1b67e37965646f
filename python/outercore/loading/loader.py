"""Mini-batches of sampled neighbourhoods, under a memory budget."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
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
from outercore.data.graph import Graph
from outercore.data.sample_rules import (
    EqualTimes,
    Method,
    SampleRules,
    SubgraphType,
    TemporalStrategy,
)
from outercore.errors import InvalidError, UnsupportedError
from outercore.loading.bidirectional import lead_both_ways, reverse_types
from outercore.loading.loader_arguments import ARGUMENTS, check_arguments
from outercore.loading.loader_data import LoaderData, take_for_inference
from outercore.loading.minibatches import FanOuts, InputNodes, MiniBatches, Source, opened
from outercore.loading.seed_code import SeedCode, code_of_nodes
from outercore.loading.typed_choice import FeatureNames


class NeighborLoader(MiniBatches[Any]):
    """Yields what PyG's ``NeighborLoader`` yields, from a graph that may exceed memory.

    A batch is a ``torch_geometric.data.Data`` with ``x``, ``y``, ``edge_index``, ``n_id``,
    ``e_id``, ``input_id``, ``batch_size``, ``num_sampled_nodes`` and ``num_sampled_edges``; seeds
    come first, ``trim_to_layer`` works. From a graph with several types of nodes and edges it is a
    ``HeteroData`` with the same by type; all types are there, also where they are empty.

    What is in a batch depends on ``seed``, the epoch and the arguments of the first group below,
    never on the budget, the back end or the threads.

    One epoch runs at a time: once a newer iterator has begun, an older one of the same loader
    raises :class:`InvalidError`. Nested loops take a loader each.

    Shapes of a batch with n nodes, s edges and F features: ``x`` float32 [n, F]; ``edge_index``
    int64 [2, s]; ``n_id`` int64 [n]; ``e_id`` int64 [s]; ``y`` int64 [n] or float32 [n, classes];
    a node array ``year`` as ``year`` [n, ...] and an edge array ``weight`` as ``edge_weight``
    [s, ...], of the type in which they are stored (``bfloat16`` as float32). ``x`` and ``y`` that
    were given as tensors or arrays keep their shape, such as [n, 1] or [n]. Whole numbers in ``x``
    and floats in ``y`` keep their type, too.

    Cost: nothing is read before the first iteration or :meth:`plan`. ``x`` is written by the core
    straight into the tensor's memory; ids are converted to int64 once, and that buffer is the
    tensor's.

    Args:
        data: a data set: opened, by its directory, or by its stores, ``graph.pyg()``.
        num_neighbors: fan-out per hop, or a dictionary of them by edge type; -1 takes all
            neighbours.
        input_nodes: name of a split, node ids, a list of names of nodes, a boolean mask, or
            ``None`` for every node. With several node types a split, the name of a node type, or
            ``(node type, nodes)``.
        batch_size: seeds per batch.
        replace: draw neighbours with replacement.
        method: ``"neighbor"``; ``"labor"`` (LABOR-0): the neighbours of all nodes of a batch are
            chosen together, which takes fewer nodes for as many edges; ``"ladies"``: a fan-out is
            a number of nodes for a whole hop, whose edges lead to all nodes found before it, and
            ``edge_norm`` are their weights; ``"hgt"``: as :class:`HGTLoader`, whose
            ``num_samples`` are then given as ``num_neighbors``.
        disjoint: the neighbourhood of each seed is sampled separately; ``batch`` says which
            seed, by its place, a node belongs to.
        subgraph_type: ``"directional"``; ``"bidirectional"``: also the reverse of each sampled
            edge, without parallel edges; or ``"induced"``: all edges between the nodes of a batch,
            with ``disjoint`` the subgraphs of ShaDow.
        weight_attr: edge array by whose values edges are more or less likely to be sampled.
        time_attr: array of node times, edge times or both. A seed sees no node and no edge of a
            later time; seeds are disjoint.
        input_time: the time of each seed; by default that of its node.
        temporal_strategy: ``"uniform"``, or ``"last"``: the latest edges of those that are seen;
            where neither edges nor their sources have times, any.
        equal_times: whether a seed sees what has its own time: ``"seen"`` as in PyG, ``"hidden"``
            as in GraphBolt.
        shuffle: visit the seeds in a new order every epoch.
        drop_last: leave out a last batch that is not full.
        seed: seed of all randomness, so ``torch.manual_seed`` has no effect on batches;
            ``seed=torch.initial_seed()`` follows it.
        features: array to deliver as ``x`` by name, the path of an ``.npy`` matrix with one row
            per node, or ``None``; or a dictionary of these by node type. A default ``x`` that the
            data set, or a node type, lacks is left out.
        labels: array to deliver as ``y``, or ``None``; likewise.
        edge_ids: deliver ``e_id``, the rows of the imported edge list.
        arrays: further arrays to deliver, by their names in a batch: ``"year"`` of nodes,
            ``"edge_weight"`` of edges. ``None`` delivers every array of edges, and every array
            of nodes but the one that ``hotness`` names and results that Outercore has added;
            ``[]`` delivers none.
        rank: which of the processes that share an epoch this one is; ``None`` for both asks
            ``torch.distributed`` where it is initialised. All get the same ``input_nodes``;
            where these are split already, ``rank=0, world_size=1`` takes all of them.
        world_size: how many processes share an epoch. Every seed is in a batch of one of them,
            and each has as many batches; their last ones may be smaller.
        transform: applied to every batch.
        memory: budget for everything that the loader keeps, such as ``"2GiB"``.
        backend: how the device is read.
        threads: sampling and assembly threads; ``None`` means one per core.
        topology: where the edges live.
        precision: ``"int8"`` reads feature rows of a byte a value, in the layout that
            ``outercore layout --precision int8`` writes; batches have the nearest of 256 steps.
        policy: eviction in the dynamic part of the cache.
        hotness: how rows of the static cache are chosen. ``"presample"`` samples a part of an
            epoch; ``"visits"`` computes how often an epoch is expected to visit each node, which is
            more exact and looks at all edges once a hop; ``"in_degree"``; ``"none"``; or the name
            of a node array whose largest values are kept, such as a PageRank that was saved.
        look_ahead: groups of batches sampled ahead of the one that is being fetched.
        group: batches fetched together; ``None`` leaves it to the plan.
        constant_share: share of the cache that is constant; ``None`` leaves it to the plan.
        far: a memory server that holds features and topology too; its address, or
            `far.FarOptions`.
        pin_memory: assemble ``x`` in page-locked memory, for asynchronous copies to a GPU.
        others: further arguments of PyG's loader and of PyTorch's ``DataLoader``, such as
            ``num_workers``. Those that mean nothing here have no effect and a warning says so.

    Raises:
        InvalidError: an argument of the wrong type or out of range, a seed that is no node, an
            empty split, two arrays of one name, ``pin_memory`` without a GPU.
        NotFoundError: a split or an array that the data set does not have.
        UnsupportedError: an argument of PyG or PyTorch that works in another way here; the message
            says in which.

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
    """What is here in place of attributes of PyTorch's `DataLoader`."""

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
        graph = opened(data)
        seeds = partial(self._seed_code, data, graph, input_nodes)
        check_arguments(others, type(self), seeds, of_links=self._of_links)
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

    def _seed_code(self, data: Source, graph: Graph, input_nodes: Any) -> SeedCode:
        """The seeds in the code of a hint."""
        return code_of_nodes(data, graph, input_nodes)

    @cached_property
    def data(self) -> LoaderData:
        """The data set, with the attributes of PyG's ``Data``, read when they are used."""
        return LoaderData.of(self.graph)

    @property
    def node_sampler(self) -> SimpleNamespace:
        """What PyG's models look at: ``num_neighbors``, as they were given."""
        return SimpleNamespace(num_neighbors=self.num_neighbors)

    @property
    def num_workers(self) -> int:
        """0: batches come from threads of this process."""
        return 0

    def __call__(self, index: Any) -> NoReturn:
        """Not here: PyG's loaders give the batch of these seeds.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "a call of a loader: its seeds are bound when it is made\n"
            "hint: make a loader with these seeds and `batch_size=len(seeds)`"
        )

    if not TYPE_CHECKING:  # Else a type checker would accept any name.

        def __getattr__(self, name: str) -> Any:
            hint = self._instead.get(name, "")
            raise missing_attribute("the loader", name, dir(type(self)), hint)

    @property
    def dataset(self) -> range:
        """As many numbers as there are seeds, or links; as in PyG.

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
        data, labelled = HeteroData(), _type_of(self._label_key)
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
        """The times of the seeds where they were given; links have them by themselves."""
        if self._input_times is not None and len(self._input_times):
            seeds.seed_time = torch.from_numpy(self._input_times[parts["input_id"]])

    def _rows(self, nodes: int, width: int) -> Tensor:
        """Memory for ``x``: where it is large, of its own, which the budget gets back at once."""
        own = None if self._pin_memory else self._core.row_array(nodes, width)
        if own is None:
            return torch.empty((nodes, width), pin_memory=self._pin_memory)
        return torch.from_numpy(own)


take_for_inference(NeighborLoader)


def _callable(transform: Any) -> Any:
    """As given. Errors: `InvalidError` for what cannot be called."""
    if transform is not None and not callable(transform):
        raise InvalidError(f"transform: expected a function of a batch, found {transform!r}")
    return transform


def _pinnable(pin_memory: bool) -> bool:
    """As given. Errors: `InvalidError` where memory shall be pinned without a GPU."""
    if pin_memory and not torch.cuda.is_available():
        raise InvalidError(
            "pin_memory=True: PyTorch finds no GPU to pin memory for\n"
            "hint: leave `pin_memory` out, or write `pin_memory=torch.cuda.is_available()`"
        )
    return pin_memory


def _without_tensors(nodes: InputNodes | Tensor) -> InputNodes:
    """The input nodes with tensors as NumPy arrays."""
    if isinstance(nodes, Tensor):
        return nodes.cpu().numpy()
    if isinstance(nodes, tuple) and len(nodes) == 2 and isinstance(nodes[1], Tensor):
        return nodes[0], nodes[1].cpu().numpy()
    return nodes


def _type_of(key: str | None) -> str | None:
    """The node type of an array of nodes."""
    return None if key is None else key.split("/")[1]
