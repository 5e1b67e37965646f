"""Batches of edges with their negatives, and neighbourhoods of all their ends.

Which edges and negatives a batch has is a function of the run's seed, the epoch and the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from outercore.base.sizes import format_size, parse_size
from outercore.data.csc import Edges
from outercore.data.edge_types import PLAIN_EDGE
from outercore.errors import BudgetError
from outercore.files.large_arrays import forget
from outercore.loading.batch_edges import leave_out_links
from outercore.loading.link_seeds import LinkBatch, Purpose, draw_negatives, generator
from outercore.runs import record as records
from outercore.training.checkpoint import Position
from outercore.training.config import LinkConfig, TrainConfig
from outercore.training.links.data import PAIRS, LinkData
from outercore.training.loaders import LoaderFactory, Loaders
from outercore.training.typed_network import table_bytes

if TYPE_CHECKING:
    from outercore.data.graph import Graph

_BLOCK = 1 << 10
"""Consecutive edges that stay in one pool: reads of the file are this long, or longer."""
_POOL_ENDS = 1 << 20
"""Ends of edges and negatives in one pool, about."""
_SCORED_BYTES = 96
"""For each pair of a held-out part while it is scored: ends, their places, score and rank."""

OpenPool = Callable[[NDArray[np.int64], int], Any]
"""Opens a loader over seeds, so many a batch, in order."""


@dataclass(frozen=True)
class EpochOrder:
    """The order in which an epoch visits the edges: in pools, and in batches of a pool.

    Blocks of consecutive edges are shuffled, then the edges within each pool of several hundred
    blocks. A graph that fits one pool is shuffled perfectly. A batch lies within one pool.
    """

    edges: int
    batch_size: int
    """Edges of a batch."""
    ends: int
    """Nodes for each edge of a batch: its two ends and the nodes of its negatives."""
    seed: int

    @property
    def batches(self) -> int:
        """Batches of an epoch."""
        return -(-self.edges // self.batch_size)

    @property
    def pool_batches(self) -> int:
        """Batches of a pool, the last one of an epoch excepted."""
        return max(1, _POOL_ENDS // (self.ends * self.batch_size))

    @property
    def pools(self) -> int:
        """Pools of an epoch."""
        return -(-self.batches // self.pool_batches)

    @property
    def pool_bytes(self) -> int:
        """Memory for the ends of a pool: as edges, as seeds, and where they are among the seeds."""
        edges = min(self.edges, self.pool_batches * self.batch_size)
        return 4 * 8 * self.ends * edges

    def pool(self, epoch: int, number: int) -> NDArray[np.int64]:
        """Places of the edges of a pool, int64 [edges], in the order in which they are visited."""
        first = number * self.pool_batches * self.batch_size
        last = min(first + self.pool_batches * self.batch_size, self.edges)
        blocks = -(-self.edges // _BLOCK)
        shuffled = generator(self.seed, Purpose.ORDER, epoch).permutation(blocks)
        sizes = np.full(blocks, _BLOCK)
        sizes[shuffled == blocks - 1] = self.edges - (blocks - 1) * _BLOCK
        stops = np.cumsum(sizes)
        place = np.arange(first, last)
        block = np.searchsorted(stops, place, side="right")
        within = place - (stops[block] - sizes[block])
        edges = shuffled[block] * _BLOCK + within
        return generator(self.seed, Purpose.ORDER, epoch, number + 1).permutation(edges)


class Negatives:
    """Draws the negatives of training batches: pairs without an edge in `graph`."""

    def __init__(self, config: LinkConfig, seed: int, graph: Graph) -> None:
        self._config, self._seed, self._nodes = config, seed, graph.num_nodes
        self._edges = Edges(graph, PLAIN_EDGE, pairs=PAIRS)

    @property
    def ends(self) -> int:
        """Nodes drawn for each edge of a batch."""
        both = 2 if self._config.loss == "binary" else 1
        return both * self._config.negatives

    def draw(self, epoch: int, batch: int, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Negatives int64 [n x negatives, 2] for the edges `pairs` [n, 2] of a batch.

        `binary` draws both ends; `triplet` keeps the source of the edge. One node twice counts as
        an edge. In a dense graph a few edges may remain: see `draw_negatives`.
        """
        random = generator(self._seed, Purpose.NEGATIVES, epoch, batch)
        drawn = np.repeat(pairs, self._config.negatives, axis=0)
        ends = [0, 1] if self._config.loss == "binary" else [1]

        def draw(places: NDArray[np.int64]) -> None:
            for end in ends:
                drawn[places, end] = self._nodes_drawn(random, len(places))

        def is_link(places: NDArray[np.int64]) -> NDArray[np.bool_]:
            some = drawn[places]
            return self._edges.connect(some) | (some[:, 0] == some[:, 1])

        draw_negatives(len(drawn), draw, is_link)
        return drawn

    def _nodes_drawn(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        if self._config.negative_ends == "degree":
            return self._edges.sources_at(random.random(count))
        return random.integers(self._nodes, size=count)


@dataclass(frozen=True)
class _Pool:
    place: tuple[int, int]
    """Epoch, and number in it."""
    batches: list[LinkBatch]
    loader: Any


class LinkLoader:
    """An epoch of link batches, as the training loop takes them.

    A batch is a `Data` of a neighbour loader whose seeds are the ends of the edges and negatives.
    It also has `edges` and `negatives`, int64 [2, pairs], places among the seeds. Arcs between the
    two nodes of an edge of the batch are left out, see `leave_out_links`. `kept` float32 [nodes] is
    the share of its sampled arcs that each node still has.

    The loader of the seeds is opened anew for each pool of the order, with the pool's seeds.
    """

    def __init__(
        self,
        edges: NDArray[Any],
        order: EpochOrder,
        negatives: Negatives,
        open_pool: OpenPool,
        start: tuple[int, int] = (0, 0),
    ) -> None:
        """`edges` [edges, 2] may be mapped; `start` is the epoch and batch to begin with."""
        self._edges, self._order, self._negatives = edges, order, negatives
        self._open_pool = open_pool
        self._epoch, self._batch = start
        self._pool: _Pool | None = None
        self._counters: dict[str, Any] = {}
        self._spans: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return self._order.batches

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is epoch `epoch`."""
        self._epoch = epoch

    def seek(self, batch: int) -> None:
        """The next iteration begins with batch `batch`."""
        self._batch = batch

    def plan(self) -> dict[str, Any]:
        """The plan of the loader of the pool that is next.

        Errors: `BudgetError`.
        """
        if self._batch >= len(self):
            return {}
        pool = self._enter(self._epoch, self._batch // self._order.pool_batches)
        plan: dict[str, Any] = pool.loader.plan()
        return plan

    def __iter__(self) -> Iterator[Any]:
        epoch, first = self._epoch, self._batch
        self._epoch, self._batch = epoch + 1, 0
        per_pool = self._order.pool_batches
        for number in range(first // per_pool, self._order.pools):
            pool = self._enter(epoch, number)
            skipped = max(first - number * per_pool, 0)
            # Samples are a function of the loader's epoch and of the batch in the pool.
            pool.loader.set_epoch(epoch * self._order.pools + number)
            pool.loader.seek(skipped)
            for links, batch in zip(pool.batches[skipped:], pool.loader, strict=True):
                yield _with_links(batch, links)

    def counters(self) -> dict[str, Any]:
        """Counters of the neighbour loaders of all pools since the last call."""
        self._count()
        taken = {"counters": self._counters, "timeline": self._spans}
        self._counters, self._spans = {}, []
        return taken

    def close(self) -> None:
        """Closes the loader of the pool."""
        if self._pool is not None:
            self._count()
            self._pool.loader.close()
            self._pool = None

    def _enter(self, epoch: int, number: int) -> _Pool:
        """The pool, with its loader open; there is one at a time."""
        if self._pool is None or self._pool.place != (epoch, number):
            self.close()
            batches = list(self._batches_of(epoch, number))
            width = max(len(batch.seeds) for batch in batches)
            loader = self._open_pool(padded([batch.seeds for batch in batches], width), width)
            self._pool = _Pool((epoch, number), batches, loader)
        return self._pool

    def _batches_of(self, epoch: int, number: int) -> Iterator[LinkBatch]:
        size, first = self._order.batch_size, number * self._order.pool_batches
        places = self._order.pool(epoch, number)
        pool = np.asarray(self._edges[places], np.int64)
        forget(self._edges)
        for batch, start in enumerate(range(0, len(pool), size), first):
            edges = pool[start : start + size]
            pairs = np.concatenate([edges, self._negatives.draw(epoch, batch, edges)])
            nodes = np.unique(pairs)
            sources, targets = np.searchsorted(nodes, pairs.T)
            yield LinkBatch(places[start : start + size], nodes, sources, targets)

    def _count(self) -> None:
        if self._pool is not None:
            taken = self._pool.loader.counters()
            self._counters = records.add(self._counters, taken["counters"])
            self._spans += taken.get("timeline") or []


def padded(seeds: list[NDArray[np.int64]], width: int) -> NDArray[np.int64]:
    """The seeds of batches one after the other, `width` of each batch but the last.

    A loader has as many seeds in every batch: the first seed of a batch with fewer is repeated.
    """
    filled = [np.concatenate([some, np.full(width - len(some), some[0])]) for some in seeds[:-1]]
    return np.concatenate([*filled, seeds[-1]])


def _with_links(batch: Any, links: LinkBatch) -> Any:
    """The batch of a neighbour loader with its links, and without the arcs that are its edges."""
    count = len(links.links)
    pairs = torch.from_numpy(np.stack([links.source_places, links.target_places]))
    batch.edges, batch.negatives = pairs[:, :count], pairs[:, count:]
    before = torch.bincount(batch.edge_index[1], minlength=len(batch.n_id))
    leave_out_links(batch, PLAIN_EDGE, [PLAIN_EDGE], (batch.edges[0], batch.edges[1]))
    after = torch.bincount(batch.edge_index[1], minlength=len(batch.n_id))
    batch.kept = torch.where(before > 0, after.double() / before, 1.0).float()
    return batch


class LinkLoaders(Loaders):
    """`Loaders` over the training edges of a run; a training batch is one of `LinkLoader`."""

    def __init__(
        self,
        data: LinkData,
        config: TrainConfig,
        position: Callable[[], Position],
        *,
        degrees: bool,
        open_loader: LoaderFactory,
        note: Callable[[str], None],
    ) -> None:
        """`position` says where training stands; `degrees` whether the network needs in-degrees.

        Errors: `BudgetError` if in-degrees, pools, table and held-out edges take the whole budget.
        """
        self._data, self._position = data, position
        self._negatives = Negatives(config.link, config.run.seed, data.graph)
        ends = 2 + self._negatives.ends
        self._order = EpochOrder(len(data.train()), config.sampling.seeds, ends, config.run.seed)
        pairs = [sum(data.sizes(part)) for part in data.parts]
        nodes = data.graph.num_nodes
        reserved = {
            "in-degrees": 4 * nodes if degrees else 0,
            "pools of edges": self._order.pool_bytes,
            "learned table": 0 if data.features else table_bytes(nodes, config.model.hidden),
            "held-out edges": _SCORED_BYTES * max(pairs, default=0),
        }
        super().__init__(
            data.graph,
            config,
            features=data.features,
            reserved=reserved,
            advice="give more memory by `--memory`, hold out fewer edges, or use smaller batches",
            open_loader=open_loader,
            note=note,
        )

    def _open_training(self) -> LinkLoader:
        position = self._position()
        start = (position.epoch, position.batch)
        return LinkLoader(self._data.train(), self._order, self._negatives, self._open_pool, start)

    def _open_pool(self, seeds: NDArray[np.int64], width: int) -> Any:
        return self._open(
            num_neighbors=self.fanout(),
            input_nodes=seeds,
            batch_size=width,
            memory=self.training_memory,
            replace=self._config.sampling.replace,
            features=self.features,
            labels=None,
            hotness=self._config.budget.hotness,
            far=None,
        )


def require_fits(graph: Graph, config: TrainConfig) -> None:
    """Errors: `BudgetError` where nodes without features need a larger table than the budget."""
    if config.sampling.features != "x" or graph.schema.features:
        return
    needed = table_bytes(graph.num_nodes, config.model.hidden)
    budget = parse_size(config.budget.memory)
    if needed >= budget:
        raise BudgetError(
            f"memory budget {format_size(budget)}: the nodes of data set `{graph.root}` have no "
            f"features, and a learned table with {config.model.hidden} values for each of "
            f"{graph.num_nodes:,} nodes takes {format_size(needed)} while it is trained\n"
            "hint: give more memory, a smaller `--hidden`, or import node features with "
            "`--features`; `outercore embed` writes some within any budget",
            needed=needed,
        )
