"""The links of an epoch and their negatives, as seeds of a loader. Does not import PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from outercore import _core
from outercore.data.csc import Edges, all_links, count_links, first_ids, id_type, reading_bytes
from outercore.data.edge_types import PLAIN_EDGE, EdgeType, edge_type_key, only_between
from outercore.data.sample_rules import edge_name
from outercore.errors import InvalidError

if TYPE_CHECKING:
    from outercore.data.graph import Graph
    from outercore.loading.options import LoaderOptions

_TIMED_NODE_BYTES = 16
"""Bytes per node if negatives are drawn by time: its id and its time, in the order of times."""
_ROUNDS = 16
"""Maximum number of draws of one pair. If all draws give an edge, the last draw stays."""


class Purpose(IntEnum):
    """Purpose of a random stream. All results depend on these values: never change them."""

    ORDER = 1
    NEGATIVES = 2
    VALID = 3
    TEST = 4


def generator(seed: int, purpose: Purpose, *place: int) -> np.random.Generator:
    """The random generator for one purpose. `place` are numbers such as epoch and batch."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, purpose, *place))))


def draw_negatives(
    count: int,
    draw: Callable[[NDArray[np.int64]], None],
    is_link: Callable[[NDArray[np.int64]], NDArray[np.bool_]],
) -> None:
    """Draws `count` pairs of nodes, and repeats the draw for pairs that are links.

    In a dense graph a few links may remain: after 16 rounds the last draw stays.

    Args:
        count: number of pairs.
        draw: draws new pairs at the given positions, int64.
        is_link: tells which of the pairs at the given positions, int64, are links.
    """
    places = np.arange(count)
    for _ in range(_ROUNDS):
        draw(places)
        places = places[is_link(places)]
        if not len(places):
            return


@dataclass(frozen=True)
class NegativeLinks:
    """Pairs of nodes without an edge, drawn for each link of a batch."""

    mode: Literal["binary", "triplet"]
    """`binary` draws both ends. `triplet` keeps the source of a link and draws other targets."""
    amount: float = 1.0
    """Negatives per link; an integer for triplets."""
    src_weight: NDArray[np.float64] | None = None
    """Weight of each node as a source; `None` for equal weights."""
    dst_weight: NDArray[np.float64] | None = None
    """Weight of each node as a target; `None` for equal weights."""

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
    """The links of a batch, with their negatives.

    Shapes: arrays of sources are int64 [n + binary negatives]. Arrays of targets have the same
    length, or [n + n x amount] for triplets. The negatives of triplets are in the order of PyG:
    the first negative of each link, then the second of each link, and so on.
    """

    links: NDArray[np.int64]
    """[n] positions of the links among all links."""
    seeds: NDArray[np.int64]
    """Global ids of the seeds."""
    source_places: NDArray[np.int64]
    """Local id of each source, within its node type."""
    target_places: NDArray[np.int64]
    """Local id of each target, within its node type."""
    link_of_sources: NDArray[np.int64] | None = None
    """Position in `links` for each source. A negative belongs to the link whose time it has."""
    link_of_targets: NDArray[np.int64] | None = None
    """Position in `links` for each target."""
    source_times: NDArray[np.int64] | None = None
    """Time of each source."""
    times: NDArray[np.int64] | None = None
    """Time of each seed."""


class LinkSeeds:
    """Chooses links and draws negatives for batches. They depend only on seed, epoch and batch."""

    def __init__(
        self,
        graph: Graph,
        edge_type: EdgeType,
        index: NDArray[Any] | None,
        times: NDArray[Any] | None,
        negatives: NegativeLinks | None,
        options: LoaderOptions,
    ) -> None:
        """Binds the links. Nothing is read yet.

        Shapes: `index` [2, links] has node ids within the node types; `None` stands for all edges
        of the type. `times` is [links]. Both arrays may have any integer type. They are not copied,
        to save memory.
        """
        self._graph, self._edge_type, self._given = graph, edge_type, index
        self._times, self._negatives, self._options = times, negatives, options

    def __getstate__(self) -> dict[str, Any]:
        """The state without data from disk: pickling a mapped file would copy all of it."""
        lazy = ("_edges", "_ends", "_index")
        return {name: value for name, value in self.__dict__.items() if name not in lazy}

    @cached_property
    def count(self) -> int:
        """Number of links in an epoch."""
        if self._given is not None:
            return int(self._given.shape[1])
        return count_links(self._graph, self._edge_type)

    @property
    def memory(self) -> int:
        """Bytes that this object takes: for links that are all edges, and to draw negatives.

        Links from the caller do not count. To draw negatives, it keeps the nodes in the order of
        their times, and sums of weights.
        """
        links = 0 if self._given is not None else self._link_bytes
        return links + self._drawable_bytes

    @property
    def reading_memory(self) -> int:
        """Bytes that this object takes while it reads the edges, before the first batch."""
        if self._given is not None:
            return self.memory
        return self.memory + reading_bytes(self._graph, self._edge_type)

    @property
    def _link_bytes(self) -> int:
        return 2 * id_type(self._graph, self._edge_type).itemsize * self.count

    @property
    def _drawable_bytes(self) -> int:
        if self._negatives is None:
            return 0
        source, _, target = self._edge_type
        # Triplets draw only targets.
        ends = [(target, self._negatives.dst_weight)]
        if self._negatives.mode == "binary":
            ends.append((source, self._negatives.src_weight))
        nodes = self._graph.node_types
        of_time = sum(_TIMED_NODE_BYTES * nodes[end] for end, _ in ends if self._times_key(end))
        return of_time + sum(8 * nodes[end] for end, weights in ends if weights is not None)

    @cached_property
    def _index(self) -> NDArray[Any]:
        """The links. If all edges are links, they are read at the first batch."""
        if self._given is not None:
            return self._given
        return all_links(self._graph, self._edge_type)

    def places(self, epoch: int, part: slice) -> NDArray[np.int64]:
        """The positions of the links in slice `part` of the order of an epoch."""
        if not self._options.shuffle:
            return np.arange(part.start, part.stop)
        shuffled: NDArray[np.int64] = _core.shuffled(
            self.count, self._options.seed, epoch, part.start, part.stop
        )
        return shuffled

    def batch(self, epoch: int, number: int, part: slice) -> LinkBatch:
        """Batch `number` of an epoch: the links in slice `part` of its order, with negatives."""
        links = self.places(epoch, part)
        sources, targets = (self._index[end, links].astype(np.int64) for end in (0, 1))
        own = np.arange(len(links))
        if self._negatives is None:
            return self._seeds(links, sources, targets, own, own)
        extra = ceil(self._negatives.amount * len(links))
        is_triplet = self._negatives.mode == "triplet"
        # Assign binary negatives to the links in turn, so that the times are evenly distributed.
        of = np.repeat(own, int(self._negatives.amount)) if is_triplet else np.resize(own, extra)
        now = self._times_of(links[of])
        random = generator(self._options.seed, Purpose.NEGATIVES, epoch, number)
        drawn = self._drawn(len(of), sources[of] if is_triplet else None, now, random)
        if is_triplet:
            # Negatives were drawn link by link; sort them into the order of PyG.
            order = np.arange(len(of)).reshape(len(links), -1).T.reshape(-1)
            of, drawn = of[order], drawn[:, order]
        of_targets = np.concatenate([own, of])
        targets = np.concatenate([targets, drawn[1]])
        if is_triplet:
            return self._seeds(links, sources, targets, own, of_targets)
        return self._seeds(
            links, np.concatenate([sources, drawn[0]]), targets, of_targets, of_targets
        )

    def _times_of(self, links: NDArray[np.int64]) -> NDArray[np.int64] | None:
        return None if self._times is None else self._times[links].astype(np.int64)

    def _drawn(
        self,
        count: int,
        fixed: NDArray[np.int64] | None,
        now: NDArray[np.int64] | None,
        random: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Draws pairs int64 [2, count] that are not links at the times `now`.

        `fixed` are the sources, if only targets are drawn.
        """
        pairs = np.empty((2, count), np.int64)
        if fixed is not None:
            pairs[0] = fixed
        is_known = self._edge_type in self._graph.edge_types
        is_of_one_type = self._edge_type[0] == self._edge_type[2]

        def draw(places: NDArray[np.int64]) -> None:
            at = None if now is None else now[places]
            for end in (0, 1) if fixed is None else (1,):
                pairs[end, places] = self._ends[end].draw(len(places), at, random)

        def is_link(places: NDArray[np.int64]) -> NDArray[np.bool_]:
            sources, targets = pairs[:, places]
            found = np.zeros(len(places), bool)
            if is_known:
                found = self._edges.has(sources, targets, None if now is None else now[places])
            return found | (sources == targets) if is_of_one_type else found

        draw_negatives(count, draw, is_link)
        return pairs

    @cached_property
    def _ends(self) -> tuple[_Drawable, _Drawable]:
        source, _, target = self._edge_type
        assert self._negatives is not None
        return (
            self._drawable(source, self._negatives.src_weight),
            self._drawable(target, self._negatives.dst_weight),
        )

    def _drawable(self, node_type: str, weights: NDArray[np.float64] | None) -> _Drawable:
        key = self._times_key(node_type)
        times = None if key is None else self._graph.array(key)
        sees_equal = self._options.equal_times == "seen"
        return _Drawable(self._graph.node_types[node_type], times, sees_equal, weights)

    def _times_key(self, node_type: str) -> str | None:
        """Key of the array with the time from which each node of a type exists."""
        name = self._options.time_attr
        key = f"nodes/{node_type}/{name}"
        return key if name is not None and key in self._graph.arrays else None

    @cached_property
    def _edges(self) -> Edges:
        name = self._options.time_attr
        times = None if name is None else edge_name(self._graph, name)
        return Edges(self._graph, self._edge_type, times)

    def _seeds(
        self,
        links: NDArray[np.int64],
        sources: NDArray[np.int64],
        targets: NDArray[np.int64],
        of_sources: NDArray[np.int64],
        of_targets: NDArray[np.int64],
    ) -> LinkBatch:
        source_type, _, target_type = self._edge_type
        first = first_ids(self._graph)
        ends = [first[source_type] + sources, first[target_type] + targets]
        same = source_type == target_type
        source_times, target_times = self._times_of(links[of_sources]), None
        times = None
        if source_times is not None:
            target_times = self._times_of(links[of_targets])
            times = np.concatenate([source_times, target_times])
        if self._options.has_trees:
            seeds = np.concatenate(ends)
            source_places = np.arange(len(sources))
            target_places = np.arange(len(targets)) + (len(sources) if same else 0)
        elif same:
            seeds, places = _distinct(np.concatenate(ends))
            source_places, target_places = np.split(places, [len(sources)])
        else:
            seeds_of, source_places = _distinct(ends[0])
            others, target_places = _distinct(ends[1])
            seeds = np.concatenate([seeds_of, others])
        return LinkBatch(
            links,
            seeds,
            source_places,
            target_places,
            of_sources,
            of_targets,
            source_times,
            times,
        )


class _Drawable:
    """The nodes of one type, to draw negatives from. With times, it draws only existing nodes."""

    def __init__(
        self,
        count: int,
        times: NDArray[Any] | None,
        sees_equal: bool,
        weights: NDArray[np.float64] | None,
    ) -> None:
        self._count, self._side = count, "right" if sees_equal else "left"
        self._by_time = None if times is None else np.argsort(times, kind="stable")
        self._sorted = None if times is None else np.asarray(times)[self._by_time]
        self._sums = None
        if weights is not None:
            in_order = weights if self._by_time is None else weights[self._by_time]
            self._sums = np.concatenate([[0.0], np.cumsum(in_order)])

    def draw(
        self, count: int, now: NDArray[np.int64] | None, random: np.random.Generator
    ) -> NDArray[np.int64]:
        """Draws `count` nodes. With `now` [count], node i exists at time `now[i]`.

        Errors: `InvalidError` if no node with a positive weight exists at one of the times.
        """
        there = np.full(count, self._count)
        if now is not None and self._sorted is not None:
            there = np.searchsorted(self._sorted, now, side=self._side)  # type: ignore[call-overload]
        within = there if self._sums is None else self._sums[there]
        if count and not within.min() > 0:
            at = "" if now is None else f" at time {int(now[np.argmin(within)])}"
            raise InvalidError(
                f"negatives: no node to draw from is there{at}\n"
                "hint: drop the earliest links, or sample without negatives"
            )
        if self._sums is None:
            places = random.integers(there)
        else:
            drawn = np.searchsorted(self._sums, random.random(count) * within, side="right")
            places = np.minimum(drawn, there) - 1
        return places if self._by_time is None else self._by_time[places]


def edge_type_of(graph: Graph, given: Any, *, may_lack_edges: bool = False) -> EdgeType:
    """The edge type `given`: a known edge type, or a pair of node types with one edge type.

    With `may_lack_edges`, a new edge type is accepted if the graph has no edge type between its
    node types.

    Errors: `InvalidError` for an unknown edge type, or a pair with several edge types.
    """
    known = graph.edge_types if graph.is_typed else [PLAIN_EDGE]
    if isinstance(given, (tuple, list)) and tuple(given) in known:
        source, relation, target = given
        return source, relation, target
    if isinstance(given, (tuple, list)) and (between := only_between(given, known)) is not None:
        return between
    if may_lack_edges and isinstance(given, (tuple, list)) and len(given) in (2, 3):
        source, relation, target = given[0], given[1] if len(given) == 3 else "to", given[-1]
        is_new = (source, target) not in {(kind[0], kind[2]) for kind in known}
        if is_new and {source, target} <= set(graph.node_types):
            return source, relation, target
    raise InvalidError(
        f"edge_label_index: edge type {given!r} is not in the graph\n"
        f"hint: it has {', '.join(edge_type_key(one) for one in known)}"
    )


def _distinct(ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct ids in the order of their first appearance, and the index of each id in them."""
    distinct, first, places = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(distinct), np.int64)
    rank[order] = np.arange(len(distinct))
    return distinct[order], rank[places.reshape(-1)]
