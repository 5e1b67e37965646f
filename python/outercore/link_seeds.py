"""The links of an epoch with their negatives, as seeds of a loader; no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.graph import EdgeType, edge_type_key
from outercore.mapped import mapped

if TYPE_CHECKING:
    from outercore.graph import Graph

_ROUNDS = 16
"""How often a pair that is an edge is drawn again; the last draw stays."""
_OF_ORDER, _OF_NEGATIVES = 1, 2
"""What random numbers are for. They are part of every result: keep them."""


@dataclass(frozen=True)
class NegativeLinks:
    """Pairs of nodes without an edge, drawn for each link of a batch."""

    mode: Literal["binary", "triplet"]
    """`binary` draws both ends, `triplet` other targets for the source of each link."""
    amount: float = 1.0
    """Negatives for each link; a whole number for triplets."""

    def __post_init__(self) -> None:
        if self.mode not in ("binary", "triplet"):
            raise InvalidError(f"neg_sampling: expected binary or triplet, found `{self.mode}`")
        if self.amount <= 0 or (self.mode == "triplet" and self.amount != int(self.amount)):
            raise InvalidError(
                f"neg_sampling: {self.amount} negatives for each link, expected a number above 0"
                f"{', a whole one for triplets' if self.mode == 'triplet' else ''}"
            )


@dataclass(frozen=True)
class LinkBatch:
    """The links of a batch.

    Shapes: `links` int64 [n], places among all; `sources` int64 [n + binary negatives]; `targets`
    likewise, or [n + n x amount] for triplets, whose negatives follow link by link.
    """

    links: NDArray[np.int64]
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    seeds: NDArray[np.int64]
    """Global ids of the seeds."""
    source_places: NDArray[np.int64]
    """Of each source among the batch's nodes of its type."""
    target_places: NDArray[np.int64]
    times: NDArray[np.int64] | None
    """Of each seed."""


class LinkSeeds:
    """Draws links and negatives of batches: a function of seed, epoch and batch alone."""

    def __init__(
        self,
        graph: Graph,
        edge_type: EdgeType,
        index: NDArray[np.int64],
        times: NDArray[np.int64] | None,
        negatives: NegativeLinks | None,
        *,
        seed: int,
        shuffle: bool,
        is_disjoint: bool,
        node_times: str | None,
        sees_equal: bool,
    ) -> None:
        """`index` int64 [2, links] within the types of the ends; `times` int64 [links]."""
        self._graph, self._edge_type, self._index = graph, edge_type, index
        self._times, self._negatives = times, negatives
        self._seed, self._shuffle, self._is_disjoint = seed, shuffle, is_disjoint
        self._node_times, self._sees_equal = node_times, sees_equal
        self._order: tuple[int, NDArray[np.int64]] | None = None

    def order(self, epoch: int) -> NDArray[np.int64]:
        """Places of the links in the order of an epoch."""
        if self._order is None or self._order[0] != epoch:
            count = self._index.shape[1]
            links = np.arange(count)
            if self._shuffle:
                links = _generator(self._seed, _OF_ORDER, epoch).permutation(count)
            self._order = (epoch, links)
        return self._order[1]

    def batch(self, epoch: int, number: int, part: slice) -> LinkBatch:
        """The links at `part` of the epoch's order, with negatives."""
        links = self.order(epoch)[part]
        sources, targets = self._index[0, links], self._index[1, links]
        times = None if self._times is None else self._times[links]
        if self._negatives is not None:
            random = _generator(self._seed, _OF_NEGATIVES, epoch, number)
            sources, targets, times = self._with_negatives(sources, targets, times, random)
        return self._seeds(links, sources, targets, times)

    def _with_negatives(
        self,
        sources: NDArray[np.int64],
        targets: NDArray[np.int64],
        times: NDArray[np.int64] | None,
        random: np.random.Generator,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64] | None]:
        assert self._negatives is not None
        count = ceil(self._negatives.amount * len(sources))
        if self._negatives.mode == "triplet":
            own = np.repeat(np.arange(len(sources)), int(self._negatives.amount))
            fixed: NDArray[np.int64] | None = sources[own]
        else:
            # In turn, so that each time has as many negatives.
            own, fixed = np.arange(count) % max(len(sources), 1), None
        now = None if times is None else times[own]
        drawn = self._drawn(len(own), fixed, now, random)
        if fixed is None:
            both = times if now is None or times is None else np.concatenate([times, now])
            return np.concatenate([sources, drawn[0]]), np.concatenate([targets, drawn[1]]), both
        return sources, np.concatenate([targets, drawn[1]]), times

    def _drawn(
        self,
        count: int,
        fixed: NDArray[np.int64] | None,
        now: NDArray[np.int64] | None,
        random: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Pairs int64 [2, count]; sources as `fixed` where given."""
        pairs = np.empty((2, count), np.int64)
        if fixed is not None:
            pairs[0] = fixed
        wrong = np.arange(count)
        for _ in range(_ROUNDS):
            at = None if now is None else now[wrong]
            if fixed is None:
                pairs[0, wrong] = self._ends[0].draw(len(wrong), at, random)
            pairs[1, wrong] = self._ends[1].draw(len(wrong), at, random)
            again = pairs[:, wrong]
            is_edge = self._edges.has(again[0], again[1])
            if self._edge_type[0] == self._edge_type[2]:
                is_edge |= again[0] == again[1]
            wrong = wrong[is_edge]
            if not len(wrong):
                break
        return pairs

    @cached_property
    def _ends(self) -> tuple[_Drawable, _Drawable]:
        source, _, target = self._edge_type
        return self._drawable(source), self._drawable(target)

    def _drawable(self, node_type: str) -> _Drawable:
        times = None
        if self._node_times is not None:
            key = f"nodes/{node_type}/{self._node_times}"
            if key in self._graph.arrays:
                times = self._graph.array(key)
        return _Drawable(self._graph.node_types[node_type], times, self._sees_equal)

    @cached_property
    def _edges(self) -> Edges:
        return Edges(self._graph, self._edge_type)

    def _seeds(
        self,
        links: NDArray[np.int64],
        sources: NDArray[np.int64],
        targets: NDArray[np.int64],
        times: NDArray[np.int64] | None,
    ) -> LinkBatch:
        source_type, _, target_type = self._edge_type
        first = first_ids(self._graph)
        ends = [first[source_type] + sources, first[target_type] + targets]
        same = source_type == target_type
        if self._is_disjoint:
            seeds = np.concatenate(ends)
            source_places = np.arange(len(sources))
            target_places = np.arange(len(targets)) + (len(sources) if same else 0)
            of_targets = times
            if times is not None and len(targets) != len(times):
                repeats = (len(targets) - len(times)) // max(len(times), 1)
                of_targets = np.concatenate([times, np.repeat(times, repeats)])
            at = None if times is None else np.concatenate([times, of_targets])
            return LinkBatch(links, sources, targets, seeds, source_places, target_places, at)
        if same:
            seeds, places = _distinct(np.concatenate(ends))
            source_places, target_places = np.split(places, [len(sources)])
        else:
            seeds_of, source_places = _distinct(ends[0])
            others, target_places = _distinct(ends[1])
            seeds = np.concatenate([seeds_of, others])
        return LinkBatch(links, sources, targets, seeds, source_places, target_places, None)


class _Drawable:
    """Nodes that negatives are drawn from; with times, those that are there by then."""

    def __init__(self, count: int, times: NDArray[Any] | None, sees_equal: bool) -> None:
        self._count, self._side = count, "right" if sees_equal else "left"
        self._by_time = None if times is None else np.argsort(times, kind="stable")
        self._sorted = None if times is None else np.asarray(times)[self._by_time]

    def draw(
        self, count: int, now: NDArray[np.int64] | None, random: np.random.Generator
    ) -> NDArray[np.int64]:
        """`count` nodes, each there at its time.

        Errors: `InvalidError` where no node is.
        """
        if now is None or self._sorted is None or self._by_time is None:
            return random.integers(self._count, size=count)
        there = np.searchsorted(self._sorted, now, side=self._side)  # type: ignore[call-overload]
        if count and int(there.min()) == 0:
            raise InvalidError(
                f"negatives: no node is there at time {int(now[np.argmin(there)])}\n"
                "hint: drop the earliest links, or sample without negatives"
            )
        found: NDArray[np.int64] = self._by_time[random.integers(there)]
        return found


class Edges:
    """Whether there is an edge of a type between two nodes, by search in the CSC on disk."""

    def __init__(self, graph: Graph, edge_type: EdgeType) -> None:
        arrays = graph.arrays
        self._offsets = mapped(graph.root, arrays["edges/edge/offsets"])
        self._sources = mapped(graph.root, arrays["edges/edge/sources"])
        first = first_ids(graph)
        self._first_source = first[edge_type[0]]
        self._first_column = 0
        for other in graph.edge_types:
            if other == edge_type:
                break
            self._first_column += graph.node_types[other[2]]

    def has(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Bool [n]: whether edge `sources[i]` to `targets[i]` is there, ids within their types.

        Cost: about log2 of the in-degree reads of the CSC for each pair.
        """
        columns = self._first_column + targets
        low = np.asarray(self._offsets[columns], np.int64)
        end = np.asarray(self._offsets[columns + 1], np.int64)
        high, wanted = end.copy(), self._first_source + sources
        # In a column sources ascend.
        while (open_ := low < high).any():
            middle = (low + high) // 2
            found = np.zeros(len(low), np.int64)
            found[open_] = self._sources[middle[open_]]
            less = open_ & (found < wanted)
            low = np.where(less, middle + 1, low)
            high = np.where(open_ & ~less, middle, high)
        inside = low < end
        same = np.zeros(len(low), bool)
        same[inside] = np.asarray(self._sources[low[inside]], np.int64) == wanted[inside]
        return same


def all_links(graph: Graph, edge_type: EdgeType) -> NDArray[np.int64]:
    """All edges of a type as int64 [2, edges], in the order of the CSC.

    Cost: 16 bytes an edge in memory.
    """
    edges = Edges(graph, edge_type)
    columns = graph.node_types[edge_type[2]]
    offsets = np.asarray(
        edges._offsets[edges._first_column : edges._first_column + columns + 1], np.int64
    )
    sources = np.asarray(edges._sources[offsets[0] : offsets[-1]], np.int64)
    targets = np.repeat(np.arange(columns), np.diff(offsets))
    return np.stack([sources - edges._first_source, targets])


def first_ids(graph: Graph) -> dict[str, int]:
    """The global id of the first node of each type."""
    first, found = 0, {}
    for name, count in graph.node_types.items():
        found[name] = first
        first += count
    return found


def edge_type_of(graph: Graph, given: Any) -> EdgeType:
    """An edge type that is there.

    Errors: `InvalidError` for one that is not.
    """
    known = graph.edge_types if graph.is_typed else [("node", "edge", "node")]
    if isinstance(given, (tuple, list)) and tuple(given) in known:
        source, relation, target = given
        return source, relation, target
    raise InvalidError(
        f"edge_label_index: edge type {given!r} is not in the graph\n"
        f"hint: it has {', '.join(edge_type_key(one) for one in known)}"
    )


def _distinct(ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ids, each once in the order of their first appearance, and the place of each."""
    found, first, places = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(found), np.int64)
    rank[order] = np.arange(len(found))
    return found[order], rank[places.reshape(-1)]


def _generator(seed: int, purpose: int, *place: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, purpose, *place))))
