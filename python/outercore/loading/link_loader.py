"""Mini-batches of links, with negatives and the neighbourhoods of both ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.base.fields import number, whole
from outercore.base.sizes import format_size
from outercore.data.edge_types import PLAIN_EDGE, EdgeType
from outercore.data.graph import Graph
from outercore.data.sample_rules import (
    EqualTimes,
    SubgraphType,
    TemporalStrategy,
    edge_name,
    require_times,
)
from outercore.errors import BudgetError, InvalidError, UnsupportedError
from outercore.loading.batch_options import LARGEST_SEED, batch_options
from outercore.loading.link_seeds import LinkBatch, LinkSeeds, NegativeLinks, edge_type_of
from outercore.loading.loader import NeighborLoader
from outercore.loading.loader_arguments import refuse_arguments
from outercore.loading.minibatches import FanOuts, Source, opened
from outercore.loading.ranks import share_of
from outercore.loading.seed_code import SeedCode, code_of_links
from outercore.loading.seed_edges import leave_out_links

_POOL_SEEDS = 1 << 18
"""Most seeds that are drawn together."""
_SEED_BYTES = 96
"""For each seed of a pool: the seed, its place, link and time, and copies in the core."""
_POOL_SHARE = 16
"""A pool takes at most this part of the budget, but it holds at least one batch."""
_INSTEAD = {
    "input_nodes": "`edge_label_index` are the links",
    "input_time": "`edge_label_time` are the times of the links",
}


class LinkNeighborLoader(NeighborLoader):
    """Yields what PyG's ``LinkNeighborLoader`` yields, from a graph that may exceed memory.

    A batch is as in `NeighborLoader`, without ``batch_size``. Its seeds are the ends of links.
    It has ``edge_label_index`` and ``edge_label`` (``src_index``, ``dst_pos_index`` and
    ``dst_neg_index`` for triplets) in places of the batch's nodes, and ``input_id``: the places
    of the links in ``edge_label_index``. In a ``HeteroData`` they are in the storage of the
    links' edge type; the indices of triplets are in the storages of its node types.

    Negatives are two different nodes without an edge of that type, with edge times without one by
    the time of their link. They are drawn again while they have one, up to 16 times. With node
    times each negative is there at the time of its link.

    Shapes of a batch with n links and m binary negatives: ``edge_label_index`` int64 [2, n + m];
    ``edge_label`` [n + m] of the type given, where labels that begin at 0 grow by 1 and negatives
    have 0; float32 ones and zeros without labels, and nothing without negatives either.
    ``edge_label_time`` int64 [n + m]. With k negatives for each link in triplets, ``dst_neg_index``
    is int64 [n, k], or [n] for one; ``seed_time`` int64 [n].

    Cost: links that are given stay as they are, in the caller's memory. All edges as links take 8
    bytes each of the budget, 16 in a graph of more than 2^31 nodes, and are read when the loader is
    made. Negatives with node times take 16 bytes a node.

    Args:
        data: a data set: opened, by its directory, or by its stores, ``graph.pyg()``.
        num_neighbors: as for `NeighborLoader`.
        edge_label_index: links [2, n] by ids within the types of their ends; ``(edge type,
            links)`` or the edge type in a graph of several; ``None`` for all edges of the graph
            or the type, in the order in which they were imported.
        edge_label: a label of each link [n].
        edge_label_time: the time of each link [n], with ``time_attr``.
        neg_sampling: ``None``, ``"binary"``, ``"triplet"``, a dictionary of ``mode`` and
            ``amount`` (and ``src_weight`` and ``dst_weight``, a weight a node), or PyG's
            ``NegativeSampling``.
        neg_sampling_ratio: short for binary negatives of that amount.
        batch_size: links a batch, without negatives.
        exclude_seed_edges: leave the edges between the two nodes of each link of a batch out of
            it, in both directions and with all copies; also edges of the edge type that leads
            back. Negatives are pairs without edges.
        options: these, and arguments that are not listed here, as for `NeighborLoader`, except
            ``input_nodes`` and ``input_time``.

    Raises:
        InvalidError: links of another shape, an unknown edge type, times without ``time_attr``.
        UnsupportedError: as for `NeighborLoader`.

    Example:
        >>> import outercore as oc
        >>> loader = oc.LinkNeighborLoader(tiny_dataset, [5, 3], batch_size=16,
        ...                                neg_sampling="binary", memory="16MiB")
        >>> batch = next(iter(loader))
        >>> tuple(batch.edge_label_index.shape), int(batch.edge_label.sum())
        ((2, 32), 16)
    """

    _of_links = True
    _instead: ClassVar[Mapping[str, str]] = {**NeighborLoader._instead, **_INSTEAD}

    def __init__(
        self,
        data: Source,
        num_neighbors: FanOuts,
        edge_label_index: Any = None,
        edge_label: Tensor | NDArray[Any] | None = None,
        edge_label_time: Tensor | NDArray[Any] | None = None,
        replace: bool = False,
        subgraph_type: SubgraphType = "directional",
        disjoint: bool = False,
        temporal_strategy: TemporalStrategy = "uniform",
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        *,
        batch_size: int = 1,
        shuffle: bool | None = False,
        drop_last: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        equal_times: EqualTimes = "seen",
        exclude_seed_edges: bool = False,
        **options: Any,
    ) -> None:
        """Bind a graph and the links; reads the links of the first batches."""
        refuse_arguments(options, type(self), _INSTEAD)
        graph = opened(data)
        own = batch_options({"batch_size": batch_size, "shuffle": shuffle, "drop_last": drop_last})
        seed = whole("seed", seed, 0, LARGEST_SEED)
        self._edge_type, index = _links(graph, edge_label_index)
        self._code = code_of_links(data, graph, edge_label_index)
        self._edge_label = _labels(edge_label)
        times = None if edge_label_time is None else _whole(edge_label_time, "edge_label_time")
        self._negatives = _negatives(graph, self._edge_type, neg_sampling, neg_sampling_ratio)
        self._link_batch, self._drop_last = own["batch_size"], own["drop_last"]
        self._link_rank, self._link_world = rank, world_size
        self._excludes_links = exclude_seed_edges
        require_times(graph, time_attr)
        self._links = LinkSeeds(
            graph,
            self._edge_type,
            index,
            times,
            self._negatives,
            seed=seed,
            shuffle=own["shuffle"],
            is_disjoint=disjoint or time_attr is not None,
            node_times=time_attr,
            edge_times=None if time_attr is None else edge_name(graph, time_attr),
            sees_equal=equal_times == "seen",
        )
        amount = 0.0 if self._negatives is None else self._negatives.amount
        self._link_count = count = self._links.count
        _check(count, self._edge_label, times, time_attr)
        self._edge_label = _above_negatives(self._edge_label, self._negatives)
        self._width = max(int(2 * self._link_batch * (1 + amount)) + 2, 1)
        self._now: LinkBatch | None = None
        empty = np.empty(0, np.int64)
        super().__init__(
            graph,
            num_neighbors,
            (self._edge_type[0], empty) if graph.is_typed else empty,
            None if times is None else empty,
            replace,
            subgraph_type,
            disjoint,
            temporal_strategy,
            time_attr,
            weight_attr,
            transform,
            batch_size=self._width,
            seed=seed,
            rank=0,
            world_size=1,
            equal_times=equal_times,
            **options,
        )

    def _seed_code(self, data: Source, graph: Graph, input_nodes: Any) -> SeedCode:
        return self._code

    @property
    def batch_size(self) -> int:
        """Links per batch, without negatives."""
        return self._link_batch

    @property
    def drop_last(self) -> bool:
        """Whether a last batch that is not full is left out."""
        return bool(self._drop_last)

    @property
    def input_nodes(self) -> NoReturn:
        """The seeds are links.

        Raises:
            AttributeError: always.
        """
        raise AttributeError("input_nodes")  # `__getattr__` says what to use.

    @property
    def dataset(self) -> range:
        """As many numbers as there are links; as in PyG."""
        return range(self._link_count)

    def __len__(self) -> int:
        """Batches per epoch, of this rank."""
        return self._rounds[1]

    def _reserved(self) -> int:
        pool = min(self._pool, len(self)) * self._width
        return super()._reserved() + self._links.memory + _SEED_BYTES * pool

    def _open(self) -> None:
        super()._open()
        self._require_room()
        # The plan is made with batches of the first epoch.
        if len(self):
            self._reseed(0, 0, self._pool)

    def _require_room(self) -> None:
        """Errors: `BudgetError` where reading the links takes the budget; else the plan decides."""
        needed, budget = self._links.reading_memory, self._config["memory"]
        if needed >= budget:
            raise BudgetError(
                f"memory budget {format_size(budget)}: {self._link_count:,} edges as links take "
                f"{format_size(needed)} while they are read\n"
                "hint: raise the memory, or give fewer links by `edge_label_index`",
                needed,
            )

    @property
    def _pool(self) -> int:
        """Batches whose seeds are drawn together."""
        room = self._config["memory"] // (_POOL_SHARE * _SEED_BYTES)
        return max(min(_POOL_SEEDS, room) // self._width, 1)

    @property
    def _rounds(self) -> tuple[int, int]:
        """In how many rounds each rank takes a full batch, and all rounds of an epoch.

        All ranks have as many batches. The batches of a round differ by at most one link.
        """
        _, world = share_of(self._link_rank, self._link_world)
        full, left = divmod(self._link_count, self._link_batch * world)
        if not left or self._drop_last:
            return full, full
        if left < world and full:
            full -= 1
        return full, full + 1

    def _part(self, batch: int) -> slice:
        """The places of the links of a batch of this rank in the order of an epoch."""
        rank, world = share_of(self._link_rank, self._link_world)
        start = batch * self._link_batch * world
        is_full = batch < self._rounds[0]
        end = start + self._link_batch * world if is_full else self._link_count
        cut = np.linspace(start, end, world + 1).astype(int)
        return slice(int(cut[rank]), int(cut[rank + 1]))

    def forecast(self, step: Callable[[Any], object] | None = None) -> dict[str, Any]:
        """Not for links.

        Raises:
            UnsupportedError: always. The seeds of an epoch are drawn while it runs.
        """
        raise UnsupportedError(
            "a forecast of links: their seeds are drawn during the epoch\n"
            "hint: `plan()` says how the memory is used"
        )

    def _reseed(self, epoch: int, first: int, count: int) -> list[LinkBatch]:
        """Gives the core the seeds of at most `count` batches, from `first` of the epoch on."""
        rank, world = share_of(self._link_rank, self._link_world)
        batches = [
            self._links.batch(epoch, number * world + rank, self._part(number))
            for number in range(first, min(first + count, len(self)))
        ]
        seeds = np.concatenate([batch.seeds for batch in batches])
        bounds = np.cumsum([0, *(len(batch.seeds) for batch in batches)])
        times = [batch.times for batch in batches if batch.times is not None]
        self._core_handle().reseed(
            seeds,
            np.concatenate(times) if times else None,
            np.ascontiguousarray(bounds, np.int64),
            # Batches of a rank have consecutive numbers, with any size of pools.
            rank * len(self) + first,
        )
        return batches

    def __getstate__(self) -> dict[str, Any]:
        """The state of a `NeighborLoader`, and the share of a process group."""
        state = {**super().__getstate__(), "_now": None}
        state["_link_rank"], state["_link_world"] = share_of(self._link_rank, self._link_world)
        return state

    def _core_handle(self) -> Any:
        return self._handle if self._handle is not None else self._core

    def __iter__(self) -> Iterator[Any]:
        """One epoch. The next iteration will be the next epoch.

        Raises:
            InvalidError: a newer iterator of the same loader has begun.
        """
        core, epoch, first = self._core, self._epoch, self._first_batch
        self._epoch, self._first_batch = epoch + 1, 0
        self._begun += 1
        own, total = self._begun, len(self)
        for start in range(first, total, self._pool):
            batches = self._reseed(epoch, start, self._pool)
            core.start(epoch, 0)
            widths = core.widths()
            for batch in batches:
                if not core.advance():
                    break
                self._now = batch
                first += 1
                yield self._delivered(self._batch(widths), epoch, first, total)
                self._require_own(own, epoch)

    def _batch(self, widths: dict[str, int]) -> Any:
        transform, self.transform = self.transform, None
        try:
            data = super()._batch(widths)
        finally:
            self.transform = transform
        assert self._now is not None
        self._add_links(data, self._now)
        return data if transform is None else transform(data)

    def _add_links(self, data: Any, batch: LinkBatch) -> None:
        store, source, target = data, data, data
        if self.graph.is_typed:
            store = data[self._edge_type]
            source, target = data[self._edge_type[0]], data[self._edge_type[2]]
        del source.input_id
        del source.batch_size
        # A view would be one of the order of the whole epoch.
        store.input_id = torch.from_numpy(batch.links.copy())
        count = len(batch.links)
        if self._rules.has_trees:
            self._name_links(data, batch)
        labels = None if self._edge_label is None else self._edge_label[store.input_id]
        sources = torch.from_numpy(batch.source_places)
        targets = torch.from_numpy(batch.target_places)
        if self._excludes_links:
            of_nodes = [name for name, key in self._arrays.items() if key.startswith("nodes/")]
            ends = (sources[:count], targets[:count])
            leave_out_links(data, self._edge_type, self.graph.edge_types, ends, of_nodes)
        times = None if batch.source_times is None else torch.from_numpy(batch.source_times)
        if self._negatives is not None and self._negatives.mode == "triplet":
            source.src_index = sources
            target.dst_pos_index = targets[:count]
            negatives = targets[count:].view(-1, count).t().contiguous()
            target.dst_neg_index = negatives.view(-1) if negatives.shape[1] == 1 else negatives
            if times is not None:
                source.seed_time = target.seed_time = times
        else:
            store.edge_label_index = torch.stack([sources, targets])
            if times is not None:
                store.edge_label_time = times
            if self._negatives is not None:
                own = torch.ones(count) if labels is None else labels
                labels = torch.cat([own, own.new_zeros(len(sources) - count, *own.shape[1:])])
        if labels is not None:
            store.edge_label = labels

    def _name_links(self, data: Any, batch: LinkBatch) -> None:
        """`batch` of a node: the link, by its place, that its seed or its negative belongs to."""
        assert batch.link_of_sources is not None
        assert batch.link_of_targets is not None
        names = torch.from_numpy(np.concatenate([batch.link_of_sources, batch.link_of_targets]))
        stores = [data[name] for name in self.graph.node_types] if self.graph.is_typed else [data]
        for store in stores:
            store.batch = names[store.batch]


def _links(graph: Any, given: Any) -> tuple[EdgeType, NDArray[Any] | None]:
    """The edge type of the links, and the links [2, n] as they are given; `None` for all edges."""
    edge_type = PLAIN_EDGE
    links = given
    if graph.is_typed:
        if isinstance(given, (tuple, list)) and len(given) == 2 and not isinstance(given[0], str):
            links = given[1]
            edge_type = edge_type_of(graph, given[0], may_lack_edges=links is not None)
        else:
            edge_type, links = edge_type_of(graph, given), None
    if links is None:
        return edge_type, None
    if not graph.is_typed and isinstance(given, tuple) and isinstance(given[0], (tuple, str)):
        raise InvalidError(
            f"edge_label_index: found the edge type {given[0]!r}, but the graph has one type\n"
            "hint: `edge_label_index=edge_label_index[1]` gives only the links"
        )
    try:
        index = links.cpu().numpy() if isinstance(links, Tensor) else np.asarray(links)
    except ValueError:  # Rows of different lengths.
        raise InvalidError(
            f"edge_label_index: expected whole numbers [2, links], found {links!r:.80}"
        ) from None
    if index.ndim != 2 or index.shape[0] != 2 or index.dtype.kind not in "iu":
        raise InvalidError(
            "edge_label_index: expected whole numbers [2, links], found "
            f"{index.dtype} {index.shape}"
        )
    for end, node_type in ((0, edge_type[0]), (1, edge_type[2])):
        count = graph.node_types[node_type]
        if index.shape[1] and not 0 <= int(index[end].min()) <= int(index[end].max()) < count:
            raise InvalidError(
                f"edge_label_index: row {end} has ids beyond the {count} nodes of `{node_type}`"
            )
    return edge_type, index


def _labels(given: Any) -> Tensor | None:
    """Errors: `InvalidError` for anything but numbers."""
    try:
        return None if given is None else torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidError(f"edge_label: expected numbers [links], found {given!r}") from None


def _check(count: int, labels: Any, times: Any, time_attr: str | None) -> None:
    """Errors: `InvalidError` for arguments that do not fit together."""
    for name, given in (("edge_label", labels), ("edge_label_time", times)):
        if given is not None and len(given) != count:
            raise InvalidError(f"{name}: {len(given)} of {count} links")
    if (times is None) != (time_attr is None):
        raise InvalidError(
            "edge_label_time: expected together with `time_attr`, the name of the times"
        )


def _negatives(
    graph: Any, edge_type: EdgeType, given: Any, ratio: float | None
) -> NegativeLinks | None:
    if ratio:
        ratio = number("neg_sampling_ratio", ratio)
        if given is not None:
            raise InvalidError("neg_sampling_ratio: expected without `neg_sampling`")
        return NegativeLinks("binary", ratio)
    if given is None:
        return None
    if isinstance(given, str):
        given = {"mode": given}
    names = ("mode", "amount", "src_weight", "dst_weight")
    if not isinstance(given, Mapping):
        given = {name: getattr(given, name) for name in names if hasattr(given, name)} or given
    if not isinstance(given, Mapping) or "mode" not in given or not set(given) <= set(names):
        raise InvalidError(
            f"neg_sampling: expected {', '.join(names)}, or a mode alone; found {given!r}"
        )
    weights = []
    for name, node_type in (("src_weight", edge_type[0]), ("dst_weight", edge_type[2])):
        weight = given.get(name)
        if weight is not None:
            weight = np.asarray(weight.cpu() if isinstance(weight, Tensor) else weight, np.float64)
            count = graph.node_types[node_type]
            if weight.shape != (count,) or not np.isfinite(weight).all() or (weight < 0).any():
                raise InvalidError(
                    f"{name}: expected a weight of 0 or more for each of the {count} nodes of "
                    f"`{node_type}`, found shape {weight.shape}"
                )
        weights.append(weight)
    mode: Any = getattr(given["mode"], "value", given["mode"])
    amount = number("neg_sampling", given.get("amount", 1.0))
    return NegativeLinks(mode, amount, weights[0], weights[1])


def _above_negatives(labels: Tensor | None, negatives: NegativeLinks | None) -> Tensor | None:
    """Labels that leave 0 to binary negatives."""
    is_binary = negatives is not None and negatives.mode == "binary"
    if labels is None or not is_binary or not labels.numel() or labels.min() != 0:
        return labels
    return labels + 1


def _whole(values: Any, name: str) -> NDArray[Any]:
    found = values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if found.dtype.kind not in "iu" or found.ndim != 1:
        raise InvalidError(f"{name}: expected whole numbers [links], found {found.dtype}")
    return found
