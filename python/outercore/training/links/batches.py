"""Batches of edges with their negatives, and neighbourhoods of all their ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from outercore.files.large_arrays import forget
from outercore.runs import record as records
from outercore.training.links.adjacency import among, pair_keys
from outercore.training.links.negatives import Negatives
from outercore.training.links.order import EpochOrder

OpenPool = Callable[[NDArray[np.int64], int], Any]
"""Opens a loader over seeds, so many a batch, in order."""


@dataclass(frozen=True)
class LinkBatch:
    """Edges, their negatives and all nodes that are at an end of either, each once.

    Shapes: `edges` int64 [n, 2] and `negatives` int64 [n x negatives, 2] of node ids; `nodes`
    int64, ascending.
    """

    edges: NDArray[np.int64]
    negatives: NDArray[np.int64]
    nodes: NDArray[np.int64]


@dataclass(frozen=True)
class _Pool:
    place: tuple[int, int]
    """Epoch, and number in it."""
    batches: list[LinkBatch]
    loader: Any


class LinkLoader:
    """An epoch of link batches, as the training loop takes them.

    A batch is a `Data` of a neighbour loader whose seeds are the ends of the edges and negatives.
    Beside the fields there it has `edges` and `negatives`, int64 [2, pairs], places among the
    seeds, and `kept` float32 [nodes], the share of its sampled arcs that each node still has. Arcs
    between the two nodes of an edge of the batch are taken out, in both directions, with all
    copies: a network that sees the edge would learn to look it up.

    The loader of the seeds is opened anew for each pool of the order, with the pool's seeds.
    """

    def __init__(
        self,
        edges: NDArray[Any],
        order: EpochOrder,
        negatives: Negatives,
        nodes: int,
        open_pool: OpenPool,
        start: tuple[int, int] = (0, 0),
    ) -> None:
        """`edges` [edges, 2] may be mapped; `start` is the epoch and batch to begin with."""
        self._edges, self._order, self._negatives = edges, order, negatives
        self._nodes, self._open_pool = nodes, open_pool
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
            # What the loader samples is a function of its epoch and of the batch in the pool.
            pool.loader.set_epoch(epoch * self._order.pools + number)
            pool.loader.seek(skipped)
            for links, batch in zip(pool.batches[skipped:], pool.loader, strict=True):
                yield with_links(batch, links, self._nodes)

    def counters(self) -> dict[str, Any]:
        """As those of the neighbour loader, over all pools since the last call."""
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
            width = max(len(batch.nodes) for batch in batches)
            loader = self._open_pool(seeds_of(batches, width), width)
            self._pool = _Pool((epoch, number), batches, loader)
        return self._pool

    def _batches_of(self, epoch: int, number: int) -> Iterator[LinkBatch]:
        size, first = self._order.batch_size, number * self._order.pool_batches
        pool = np.asarray(self._edges[self._order.pool(epoch, number)], np.int64)
        forget(self._edges)
        for place, start in enumerate(range(0, len(pool), size)):
            edges = pool[start : start + size]
            negatives = self._negatives.draw(epoch, first + place, edges)
            nodes = np.unique(np.concatenate([edges.ravel(), negatives.ravel()]))
            yield LinkBatch(edges, negatives, nodes)

    def _count(self) -> None:
        if self._pool is not None:
            taken = self._pool.loader.counters()
            self._counters = records.add(self._counters, taken["counters"])
            self._spans += taken.get("timeline") or []


def seeds_of(batches: list[LinkBatch], width: int) -> NDArray[np.int64]:
    """The nodes of batches one after the other, so many for each but the last.

    A loader has as many seeds in every batch: the first node of a batch with fewer is repeated.
    """
    filled = [
        np.concatenate([batch.nodes, np.full(width - len(batch.nodes), batch.nodes[0])])
        for batch in batches[:-1]
    ]
    return np.concatenate([*filled, batches[-1].nodes])


def with_links(batch: Any, links: LinkBatch, nodes: int) -> Any:
    """The batch of a neighbour loader with its links, and without the arcs that are its edges."""
    batch.edges, batch.negatives = (
        torch.from_numpy(np.searchsorted(links.nodes, pairs.T))
        for pairs in (links.edges, links.negatives)
    )
    arcs = batch.edge_index
    keys = pair_keys(batch.n_id[arcs].numpy().T, nodes)
    stays = ~among(keys, np.unique(pair_keys(links.edges, nodes)))
    before, after = (
        np.bincount(targets, minlength=len(batch.n_id))
        for targets in (arcs[1].numpy(), arcs[1].numpy()[stays])
    )
    shares = np.divide(after, before, out=np.ones(len(before)), where=before > 0)
    batch.kept = torch.from_numpy(shares.astype(np.float32))
    batch.edge_index = arcs[:, torch.from_numpy(stays)]
    hops = np.cumsum([0, *batch.num_sampled_edges])
    batch.num_sampled_edges = [
        int(stays[start:stop].sum()) for start, stop in itertools.pairwise(hops)
    ]
    return batch
