"""Batches of edges with their negatives, and neighbourhoods of all their ends.

The edges and negatives of a batch depend only on the run's seed, the epoch and the batch.
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
"""Number of consecutive edges that are shuffled as one block, so that reads of the file are large.
"""
_POOL_ENDS = 1 << 20
"""Approximate number of ends of edges and negatives in one pool."""
_SCORED_BYTES = 96
"""Bytes for each pair of a held-out split while it is scored: ends, positions, score and rank."""

OpenPool = Callable[[NDArray[np.int64], int], Any]
"""Opens a loader over the given seeds, in order, with the given batch size."""


@dataclass(frozen=True)
class EpochOrder:
    """The order in which an epoch visits the edges.

    Blocks of consecutive edges are shuffled. Several hundred consecutive blocks of this order form
    a pool, and the edges of a pool are shuffled. A graph that fits in one pool is shuffled
    perfectly. All edges of a batch are from one pool.
    """

    edges: int
    batch_size: int
    """Number of edges in a batch."""
    ends: int
    """Number of nodes for each edge of a batch: its two ends, and the drawn ends of negatives."""
    seed: int

    @property
    def batches(self) -> int:
        """Number of batches in an epoch."""
        return -(-self.edges // self.batch_size)

    @property
    def pool_batches(self) -> int:
        """Number of batches in a pool. The last pool of an epoch may have fewer."""
        return max(1, _POOL_ENDS // (self.ends * self.batch_size))

    @property
    def pools(self) -> int:
        """Number of pools in an epoch."""
        return -(-self.batches // self.pool_batches)

    @property
    def pool_bytes(self) -> int:
        """Bytes for the ends of a pool: as edges, as seeds, and as positions among the seeds."""
        edges = min(self.edges, self.pool_batches * self.batch_size)
        return 4 * 8 * self.ends * edges

    def pool(self, epoch: int, number: int) -> NDArray[np.int64]:
        """The positions of the edges of a pool in the order of the epoch, int64 [edges]."""
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
        """Number of nodes that are drawn for each edge of a batch."""
        both = 2 if self._config.loss == "binary" else 1
        return both * self._config.negatives

    def draw(self, epoch: int, batch: int, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Draws negatives int64 [n x negatives, 2] for the edges `pairs` [n, 2] of a batch.

        The loss `binary` draws both ends; `triplet` keeps the source of the edge. A pair of equal
        nodes counts as an edge. In a dense graph, a few negatives may be edges; see
        `draw_negatives`.
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
    """The epoch, and the number of the pool in it."""
    batches: list[LinkBatch]
    loader: Any


class LinkLoader:
    """Loads the batches of edges of an epoch, in the form that the training loop takes.

    A batch is a `Data` of a neighbour loader whose seeds are the ends of the edges and negatives.
    It also has `edges` and `negatives`, int64 [2, pairs], positions among the seeds. Arcs between
    the two nodes of an edge of the batch are left out; see `leave_out_links`. `kept` float32
    [nodes] is the share of a node's sampled arcs that stay.

    For each pool, a new neighbour loader is opened with the seeds of the pool.
    """

    def __init__(
        self,
        edges: NDArray[Any],
        order: EpochOrder,
        negatives: Negatives,
        open_pool: OpenPool,
        start: tuple[int, int] = (0, 0),
    ) -> None:
        """Binds the edges [edges, 2], which may be a mapped file.

        `start` are the epoch and batch of the first iteration.
        """
        self._edges, self._order, self._negatives = edges, order, negatives
        self._open_pool = open_pool
        self._epoch, self._batch = start
        self._pool: _Pool | None = None
        self._counters: dict[str, Any] = {}
        self._spans: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return self._order.batches

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the epoch of the next iteration."""
        self._epoch = epoch

    def seek(self, batch: int) -> None:
        """Makes the next iteration begin with batch `batch`."""
        self._batch = batch

    def plan(self) -> dict[str, Any]:
        """The memory plan of the loader for the next pool.

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
            # Samples depend on the loader's epoch and on the number of the batch in the pool.
            pool.loader.set_epoch(epoch * self._order.pools + number)
            pool.loader.seek(skipped)
            for links, batch in zip(pool.batches[skipped:], pool.loader, strict=True):
                yield _with_links(batch, links)

    def counters(self) -> dict[str, Any]:
        """The counters of the neighbour loaders of all pools since the last call."""
        self._count()
        taken = {"counters": self._counters, "timeline": self._spans}
        self._counters, self._spans = {}, []
        return taken

    def close(self) -> None:
        """Closes the loader of the current pool."""
        if self._pool is not None:
            self._count()
            self._pool.loader.close()
            self._pool = None

    def _enter(self, epoch: int, number: int) -> _Pool:
        """Opens the loader of a pool, after it has closed the loader of any other pool."""
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
    """Joins the seeds of batches, with exactly `width` seeds for each batch except the last.

    A loader has equally many seeds in every batch. So in a batch with fewer seeds, the first seed
    is repeated.
    """
    filled = [np.concatenate([some, np.full(width - len(some), some[0])]) for some in seeds[:-1]]
    return np.concatenate([*filled, seeds[-1]])


def _with_links(batch: Any, links: LinkBatch) -> Any:
    """Adds the links to the batch of a neighbour loader, and removes the arcs of its edges."""
    count = len(links.links)
    pairs = torch.from_numpy(np.stack([links.source_places, links.target_places]))
    batch.edges, batch.negatives = pairs[:, :count], pairs[:, count:]
    before = torch.bincount(batch.edge_index[1], minlength=len(batch.n_id))
    leave_out_links(batch, PLAIN_EDGE, [PLAIN_EDGE], (batch.edges[0], batch.edges[1]))
    after = torch.bincount(batch.edge_index[1], minlength=len(batch.n_id))
    batch.kept = torch.where(before > 0, after.double() / before, 1.0).float()
    return batch


class LinkLoaders(Loaders):
    """`Loaders` over the training edges of a run. `LinkLoader` makes the training batches."""

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
        """Divides the budget into in-degrees, pools, table, held-out edges and loaders.

        `position` returns the progress of the training. `degrees` tells whether the network needs
        in-degrees.

        Errors: `BudgetError` if nothing is left for the loaders.
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
    """Checks that the table of nodes without features fits in the budget. Errors: `BudgetError`."""
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
