"""Mini-batches of links, with negatives and sampled neighbourhoods of both ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.base.fields import number
from outercore.base.sizes import format_size
from outercore.data.edge_types import PLAIN_EDGE, EdgeType
from outercore.data.sample_rules import (
    SubgraphType,
    TemporalStrategy,
    require_times,
    whole_numbers,
)
from outercore.errors import BudgetError, InvalidError, UnsupportedError
from outercore.loading.batch_edges import leave_out_links
from outercore.loading.link_seeds import LinkBatch, LinkSeeds, NegativeLinks, edge_type_of
from outercore.loading.loader import NeighborLoader
from outercore.loading.loader_arguments import check_arguments, refuse_arguments
from outercore.loading.minibatches import FanOuts, Source, as_graph
from outercore.loading.options import LoaderOptions, others_of, shows_options

_POOL_SEEDS = 1 << 18
"""Largest number of seeds that are drawn together."""
_SEED_BYTES = 96
"""Bytes per seed of a pool: the seed, its position, its link, its time, and copies in the core."""
_POOL_SHARE = 16
"""The budget divided by this number limits a pool, but a pool holds at least one batch."""
_INSTEAD = {
    "input_nodes": "`edge_label_index` are the links",
    "input_time": "`edge_label_time` are the times of the links",
}


class LinkNeighborLoader(NeighborLoader):
    """Samples neighbourhoods of links into mini-batches, from a graph that may exceed memory.

    It replaces PyG's ``LinkNeighborLoader``. A batch is like a batch of `NeighborLoader`, without
    ``batch_size``. Its seeds are the ends of links.

    A batch has ``edge_label_index`` and ``edge_label``. For triplets it has ``src_index``,
    ``dst_pos_index`` and ``dst_neg_index`` instead of the index. All indices are local ids of the
    batch. ``input_id`` has the positions of the links in ``edge_label_index`` of the loader. In a
    ``HeteroData`` they are in the storage of the edge type of the links. The indices of triplets
    are in the storages of its two node types.

    A negative is a pair of different nodes without an edge of that type. With edge times, only
    edges up to the time of the link count. A pair with an edge is drawn again; the 16th draw stays.
    With node times, both nodes of a negative exist at the time of its link.

    Shapes: a batch has n links and m binary negatives.

    - ``edge_label_index``: int64 [2, n + m].
    - ``edge_label``: [n + m] with the type of the labels. Negatives have label 0; if the smallest
      label of a link is 0, all labels of links grow by 1. Without labels: float32, 1 for links
      and 0 for negatives. Without labels and negatives it is missing.
    - ``edge_label_time``: int64 [n + m].
    - Triplets with k negatives per link: ``dst_neg_index`` is int64 [n, k], or [n] if k is 1.
      ``seed_time`` is int64 [n].

    Cost: links from the caller are not copied. With ``edge_label_index=None``, each edge takes 8
    bytes of the budget, or 16 in a graph of more than 2^31 nodes. The loader reads these edges
    when it is created. Negatives with node times take 16 bytes per node.

    Args:
        data: an open data set, its directory, or its two stores from ``graph.pyg()``.
        num_neighbors: as for `NeighborLoader`.
        edge_label_index: links [2, n], as node ids within the node types of their ends. With
            several edge types: ``(edge type, links)``, or an edge type for all of its edges.
            ``None``: all edges of the graph, in the order of their import.
        edge_label: label of each link [n].
        edge_label_time: time of each link [n]; needs ``time_attr``.
        neg_sampling: ``None``, ``"binary"``, ``"triplet"``, PyG's ``NegativeSampling``, or a
            dictionary. Its keys are ``mode`` and ``amount``, and optionally ``src_weight`` and
            ``dst_weight`` with one weight per node.
        neg_sampling_ratio: number of binary negatives per link, instead of ``neg_sampling``.
        exclude_seed_edges: remove the edges between the two nodes of each link from its batch, in
            both directions and with all copies. This includes edges of the reverse edge type.
        options: all other arguments are as for `NeighborLoader`, except ``input_nodes`` and
            ``input_time``, which do not exist here. ``batch_size`` counts links without negatives.

    Raises:
        InvalidError: links of a wrong shape, an unknown edge type, or times without ``time_attr``.
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

    @shows_options(NeighborLoader, without=tuple(_INSTEAD))
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
        exclude_seed_edges: bool = False,
        **options: Any,
    ) -> None:
        """Bind a graph and the links. Reads the links of the first batches."""
        refuse_arguments(options, type(self), _INSTEAD)
        own = LoaderOptions.of({**locals(), **options})
        graph = as_graph(data)
        self._edge_type, index = _links(graph, edge_label_index)
        check_arguments(others_of(options), type(self), of_links=True)
        self._edge_label = _labels(edge_label)
        times = whole_numbers("edge_label_time", edge_label_time, "links")
        self._negatives = _negatives(graph, self._edge_type, neg_sampling, neg_sampling_ratio)
        self._excludes_links = exclude_seed_edges
        require_times(graph, time_attr)
        self._links = LinkSeeds(graph, self._edge_type, index, times, self._negatives, own)
        amount = 0.0 if self._negatives is None else self._negatives.amount
        self._link_count = count = self._links.count
        _check(count, self._edge_label, times, time_attr)
        self._edge_label = _above_negatives(self._edge_label, self._negatives)
        self._width = max(int(2 * own.batch_size * (1 + amount)) + 2, 1)
        self._drawn: Iterator[LinkBatch] = iter(())
        empty = np.empty(0, np.int64)
        # The core takes the ends of the links of a pool as they come.
        core_options = dataclasses.replace(
            own,
            input_time=None if times is None else empty,
            batch_size=self._width,
            shuffle=False,
            drop_last=False,
            rank=0,
            world_size=1,
        )
        seeds = (self._edge_type[0], empty) if graph.is_typed else empty
        self._bind(graph, num_neighbors, seeds, own, core_options)

    @property
    def input_nodes(self) -> NoReturn:
        """Missing, because the seeds are links.

        Raises:
            AttributeError: always.
        """
        raise AttributeError("input_nodes")  # `__getattr__` adds a hint.

    @property
    def dataset(self) -> range:
        """A range as long as the number of links, as in PyG."""
        return range(self._link_count)

    def __len__(self) -> int:
        """Batches per epoch of this rank."""
        return self._rounds[1]

    def _reserved(self) -> int:
        pool = min(self._pool, len(self)) * self._width
        return super()._reserved() + self._links.memory + _SEED_BYTES * pool

    def _open(self) -> None:
        super()._open()
        self._require_room()
        # The memory plan samples batches of the first epoch.
        if len(self):
            self._reseed(0, 0, self._pool)

    def _require_room(self) -> None:
        """Checks that the links can be read within the budget.

        The plan later checks whether the rest of the budget is sufficient for batches.

        Errors: `BudgetError` if reading the links takes the whole budget.
        """
        needed, budget = self._links.reading_memory, self._config["memory"]
        if needed >= budget:
            raise BudgetError(
                f"memory budget {format_size(budget)}: {self._link_count:,} edges as links take "
                f"{format_size(needed)} while they are read\n"
                "hint: raise the memory, or give fewer links by `edge_label_index`",
                needed=needed,
            )

    @property
    def _pool(self) -> int:
        """Number of batches whose seeds are drawn together."""
        room = self._config["memory"] // (_POOL_SHARE * _SEED_BYTES)
        return max(min(_POOL_SEEDS, room) // self._width, 1)

    @property
    def _rounds(self) -> tuple[int, int]:
        """The number of rounds with full batches, and the number of all rounds of an epoch.

        In a round, each rank takes one batch, so all ranks have the same number of batches. The
        sizes of the batches of a round differ by at most one link.
        """
        _, world = self._options.share
        full, left = divmod(self._link_count, self.batch_size * world)
        if not left or self.drop_last:
            return full, full
        if left < world and full:
            full -= 1
        return full, full + 1

    def _part(self, batch: int) -> slice:
        """The range of the links of one batch of this rank, in the order of an epoch."""
        rank, world = self._options.share
        start = batch * self.batch_size * world
        is_full = batch < self._rounds[0]
        end = start + self.batch_size * world if is_full else self._link_count
        cut = np.linspace(start, end, world + 1).astype(int)
        return slice(int(cut[rank]), int(cut[rank + 1]))

    def forecast(self, step: Callable[[Any], object] | None = None) -> dict[str, Any]:
        """Unsupported for links.

        Raises:
            UnsupportedError: always, because the seeds of an epoch are drawn while it runs.
        """
        raise UnsupportedError(
            "a forecast of links: their seeds are drawn during the epoch\n"
            "hint: `plan()` says how the memory is used"
        )

    def _reseed(self, epoch: int, first: int, count: int) -> list[LinkBatch]:
        """Passes the seeds of at most `count` batches to the core, starting with batch `first`."""
        rank, world = self._options.share
        batches = [
            self._links.batch(epoch, number * world + rank, self._part(number))
            for number in range(first, min(first + count, len(self)))
        ]
        seeds = np.concatenate([batch.seeds for batch in batches])
        bounds = np.cumsum([0, *(len(batch.seeds) for batch in batches)])
        times = [batch.times for batch in batches if batch.times is not None]
        self._core.reseed(
            seeds,
            np.concatenate(times) if times else None,
            np.ascontiguousarray(bounds, np.int64),
            # The batches of a rank have consecutive numbers, for every pool size.
            rank * len(self) + first,
        )
        return batches

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_drawn": iter(())}

    def _start(self, epoch: int, first: int) -> None:
        self._drawn = iter(self._reseed(epoch, first, self._pool))
        self._core.start(epoch, 0)

    def _assembled(self, widths: dict[str, int]) -> Any:
        data = super()._assembled(widths)
        self._add_links(data, next(self._drawn))
        return data

    def _add_links(self, data: Any, batch: LinkBatch) -> None:
        store, source, target = data, data, data
        if self.graph.is_typed:
            store = data[self._edge_type]
            source, target = data[self._edge_type[0]], data[self._edge_type[2]]
        del source.input_id
        del source.batch_size
        # A view would keep the order of the whole epoch in memory.
        store.input_id = torch.from_numpy(batch.links.copy())
        count = len(batch.links)
        if self._options.has_trees:
            self._name_links(data, batch)
        labels = None if self._edge_label is None else self._edge_label[store.input_id]
        sources = torch.from_numpy(batch.source_places)
        targets = torch.from_numpy(batch.target_places)
        if self._excludes_links:
            ends = (sources[:count], targets[:count])
            edge_types, edge_rows = self.graph.edge_types, self._edge_rows
            leave_out_links(data, self._edge_type, edge_types, ends, edge_rows)
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
        """Sets `batch` of each node to the position of the link that its seed belongs to.

        The seeds of a negative belong to the link that the negative was drawn for.
        """
        assert batch.link_of_sources is not None
        assert batch.link_of_targets is not None
        names = torch.from_numpy(np.concatenate([batch.link_of_sources, batch.link_of_targets]))
        stores = [data[name] for name in self.graph.node_types] if self.graph.is_typed else [data]
        for store in stores:
            store.batch = names[store.batch]


def _links(graph: Any, given: Any) -> tuple[EdgeType, NDArray[Any] | None]:
    """Splits `edge_label_index` into the edge type and the links [2, n]; `None` for all edges."""
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


def _labels(labels: Any) -> Tensor | None:
    """The labels as a tensor. Errors: `InvalidError` if they are not numbers."""
    try:
        return None if labels is None else torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidError(f"edge_label: expected numbers [links], found {labels!r}") from None


def _check(count: int, labels: Any, times: Any, time_attr: str | None) -> None:
    """Checks that labels and times fit to `count` links. Errors: `InvalidError`."""
    for name, values in (("edge_label", labels), ("edge_label_time", times)):
        if values is not None and len(values) != count:
            raise InvalidError(f"{name}: {len(values)} of {count} links")
    if (times is None) != (time_attr is None):
        raise InvalidError(
            "edge_label_time: expected together with `time_attr`, the name of the times"
        )


def _negatives(
    graph: Any, edge_type: EdgeType, sampling: Any, ratio: float | None
) -> NegativeLinks | None:
    if ratio:
        ratio = number("neg_sampling_ratio", ratio)
        if sampling is not None:
            raise InvalidError("neg_sampling_ratio: expected without `neg_sampling`")
        return NegativeLinks("binary", ratio)
    if sampling is None:
        return None
    if isinstance(sampling, str):
        sampling = {"mode": sampling}
    names = ("mode", "amount", "src_weight", "dst_weight")
    if not isinstance(sampling, Mapping):
        sampling = {
            name: getattr(sampling, name) for name in names if hasattr(sampling, name)
        } or sampling
    if (
        not isinstance(sampling, Mapping)
        or "mode" not in sampling
        or not set(sampling) <= set(names)
    ):
        raise InvalidError(
            f"neg_sampling: expected {', '.join(names)}, or a mode alone; found {sampling!r}"
        )
    weights = []
    for name, node_type in (("src_weight", edge_type[0]), ("dst_weight", edge_type[2])):
        weight = sampling.get(name)
        if weight is not None:
            weight = np.asarray(weight.cpu() if isinstance(weight, Tensor) else weight, np.float64)
            count = graph.node_types[node_type]
            if weight.shape != (count,) or not np.isfinite(weight).all() or (weight < 0).any():
                raise InvalidError(
                    f"{name}: expected a weight of 0 or more for each of the {count} nodes of "
                    f"`{node_type}`, found shape {weight.shape}"
                )
        weights.append(weight)
    mode: Any = getattr(sampling["mode"], "value", sampling["mode"])
    amount = number("neg_sampling", sampling.get("amount", 1.0))
    return NegativeLinks(mode, amount, weights[0], weights[1])


def _above_negatives(labels: Tensor | None, negatives: NegativeLinks | None) -> Tensor | None:
    """Labels of links, increased by 1 if binary negatives need the label 0."""
    is_binary = negatives is not None and negatives.mode == "binary"
    if labels is None or not is_binary or not labels.numel() or labels.min() != 0:
        return labels
    return labels + 1
