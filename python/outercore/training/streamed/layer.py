"""One layer for all its targets. It takes its input and returns the new states in order.

The targets of a layer are numbered from 0 (their *position*) and divided into parts: ranges of
positions whose sums of messages fit in memory together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore import _core
from outercore.data.csc import columns_of, first_ids, topology
from outercore.data.many_graphs import spans
from outercore.errors import CorruptError
from outercore.files.large_arrays import forget
from outercore.training.streamed.network import LayerSteps
from outercore.training.streamed.rows import (
    Block,
    MessagesInMemory,
    MessagesOnDisk,
    Moved,
    OwnInMemory,
    OwnOnDisk,
)

if TYPE_CHECKING:
    from outercore.data.edge_types import EdgeType
    from outercore.data.graph import Graph


_NODES_AT_ONCE = 1 << 18
_ARCS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Incoming:
    """The arcs into some targets.

    Shapes: `sources` uint32 or uint64 [arcs], ascending for each target; `starts` and `ends`
    uint64 [targets], the range of each target in `sources`.
    """

    sources: NDArray[Any]
    starts: NDArray[np.uint64]
    ends: NDArray[np.uint64]

    @property
    def counts(self) -> NDArray[np.float32]:
        """The number of arcs into each target, float32 [targets]."""
        return (self.ends - self.starts).astype(np.float32)


class Targets:
    """The nodes of a type whose new states are computed: all nodes, or the ascending `chosen`."""

    def __init__(self, count: int, chosen: NDArray[np.int64] | None = None) -> None:
        """Binds the targets. The type has `count` nodes."""
        self.chosen = None if chosen is None or len(chosen) == count else chosen
        self.count = count if self.chosen is None else len(self.chosen)

    def nodes(self, first: int, last: int) -> NDArray[np.int64]:
        """The ids of the targets at positions from `first` to below `last`, int64."""
        return np.arange(first, last) if self.chosen is None else self.chosen[first:last]

    def among(self, first: int, last: int) -> NDArray[np.int64] | None:
        """The targets among the nodes from `first` to below `last`, counted from `first`.

        `None` stands for all of these nodes.
        """
        if self.chosen is None:
            return None
        start, stop = np.searchsorted(self.chosen, (first, last))
        return self.chosen[start:stop] - first


class Columns:
    """Reads the arcs of an edge type into the targets of a layer. Ids count within node types."""

    def __init__(self, graph: Graph, edge_type: EdgeType, targets: Targets, moved: Moved) -> None:
        self._edge_type = edge_type
        columns = columns_of(graph, edge_type)
        self._offsets = topology(graph, "offsets")[columns.start : columns.stop + 1]
        self._sources = topology(graph, "sources")
        self._first_source = first_ids(graph)[edge_type[0]]
        self._chosen = targets.chosen
        self._moved = moved
        self.id_bytes = self._sources.dtype.itemsize

    def beyond(self, count: int) -> CorruptError:
        """The error for a source whose id is not below `count`."""
        return CorruptError(
            f"edges `{','.join(self._edge_type)}`: a source is beyond the last of {count:,} nodes\n"
            "hint: run `outercore check` on the data set"
        )

    def counts(self, first: int, last: int) -> NDArray[np.int64]:
        """The number of arcs into each target at positions from `first` to below `last`."""
        starts, ends = self._bounds(first, last)
        return ends - starts

    def incoming(self, first: int, last: int) -> Incoming:
        """Reads the arcs into the targets at positions from `first` to below `last`."""
        starts, ends = self._bounds(first, last)
        if self._chosen is None:
            sources = np.array(self._sources[starts[0] : ends[-1]] if last > first else [])
            start = starts[0] if last > first else 0
        else:
            sources, start = self._of_spans(starts, ends), 0
            ends = np.cumsum(ends - starts)
            starts = np.append(0, ends[:-1])
        forget(self._sources)
        sources = sources.astype(self._sources.dtype, copy=False)
        if self._first_source:
            sources -= sources.dtype.type(self._first_source)
        self._moved.topology_read += sources.nbytes
        return Incoming(
            sources, (starts - start).astype(np.uint64), (ends - start).astype(np.uint64)
        )

    def _of_spans(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[Any]:
        """Reads the sources for targets that are not consecutive nodes."""
        until = np.cumsum(ends - starts)
        sources = np.empty(int(until[-1]) if len(until) else 0, self._sources.dtype)
        first = at = 0
        while first < len(starts):
            # Indices of arcs take more memory than their sources, so read some arcs at a time.
            stop = max(int(np.searchsorted(until, at + _ARCS_AT_ONCE, side="right")), first + 1)
            places = (
                slice(int(starts[first]), int(ends[first]))
                if stop == first + 1
                else spans(starts[first:stop], ends[first:stop])
            )
            sources[at : int(until[stop - 1])] = self._sources[places]
            first, at = stop, int(until[stop - 1])
        return sources

    def _bounds(self, first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self._chosen is None:
            bounds = np.asarray(self._offsets[first : last + 1]).astype(np.int64)
            starts, ends = bounds[:-1], bounds[1:]
        else:
            nodes = self._chosen[first:last]
            starts, ends = (np.asarray(self._offsets[nodes + by]).astype(np.int64) for by in (0, 1))
        forget(self._offsets)
        self._moved.topology_read += 8 * (last - first)
        arcs = len(self._sources)
        # Check first: damaged bounds must not decide how much is allocated or read.
        if ((starts < 0) | (starts > ends) | (ends > arcs)).any():
            raise CorruptError(
                f"array `edges/edge/offsets`: bounds that fall, or are beyond the {arcs:,} arcs\n"
                "hint: run `outercore check` on the data set"
            )
        return starts, ends


def parts_of(
    count: int, step: int, most: int, columns: Sequence[Columns], target_bytes: int
) -> tuple[list[tuple[int, int]], int]:
    """Divides `count` targets into parts, and returns them with the bytes of the largest part.

    A part ends at a multiple of `step`. It takes at most `most` bytes, or has only one step. A
    target takes `target_bytes`, and an id for each of its arcs in `columns`.
    """
    parts, first, size, largest = [], 0, 0, 0
    at_once = max(_NODES_AT_ONCE // step, 1) * step
    for start in range(0, count, at_once):
        stop = min(start + at_once, count)
        places = np.append(np.arange(start, stop, step), stop)
        sizes = np.diff(places) * target_bytes
        for relation in columns:
            arcs = np.add.reduceat(relation.counts(start, stop), places[:-1] - start)
            sizes += arcs * relation.id_bytes
        for at, added in zip(places.tolist(), sizes.tolist(), strict=False):
            if at > first and size + added > most:
                parts.append((first, at))
                first, size = at, 0
            size += added
            largest = max(largest, size)
    return ([*parts, (first, count)] if count else []), largest


def needed_sources(
    columns: Columns, targets: Targets, parts: list[tuple[int, int]], nodes: int, *, loops: bool
) -> Any:
    """Marks the sources of the arcs into each part, among all `nodes` of the source type.

    With `loops`, each target is also a source.

    Shapes: uint8 [parts, nodes / 8], a bit for each node, the first node in the highest bit.
    Cost: reads the arcs once; also a byte of memory for each node.
    """
    bits = np.empty((len(parts), -(-nodes // 8)), np.uint8)
    for place, (first, last) in enumerate(parts):
        used = np.zeros(nodes, np.bool_)
        sources = columns.incoming(first, last).sources
        if len(sources) and int(sources.max()) >= nodes:
            raise columns.beyond(nodes)
        for start in range(0, len(sources), _ARCS_AT_ONCE):
            used[sources[start : start + _ARCS_AT_ONCE]] = True
        if loops:
            used[targets.nodes(first, last)] = True
        bits[place] = np.packbits(used)
    return bits


_LEAST_BLOCK = 1 << 18
"""Minimum number of bytes of messages that are read together."""
_LARGE_PART = 32 << 20


@dataclass(frozen=True)
class LayerArcs:
    """A layer with its targets and the arcs into them."""

    steps: LayerSteps
    counts: Mapping[str, int]
    """Number of nodes by type."""
    targets: Mapping[str, Targets]
    columns: list[Columns]
    """The arcs of each relation of the layer."""
    step: int
    """Number of nodes that are computed together."""

    def target_bytes(self, target: str) -> int:
        """Bytes for a target: sums; the start, end and next arc of its arcs; and attention."""
        size = 16
        into = [self.steps.relations[place] for place in self.steps.into(target)]
        for relation in into:
            size += 16 + 12 * relation.heads
            size += 0 if self.steps.query_heads else 4 * relation.width
        if self.steps.query_heads and into:
            size += 4 * into[0].width + 8 * self.steps.query_heads
        return size

    def query_width(self, target: str) -> int:
        """The number of columns of the queries of a type's nodes; 0 without queries."""
        into = self.steps.into(target) if self.steps.query_heads else []
        return self.steps.relations[into[0]].width // 2 if into else 0


@dataclass(frozen=True)
class LayerPlan:
    """The use of memory by a layer, in bytes."""

    in_memory: bool
    """Whether messages and stored rows of targets are in memory. Otherwise they wait on disk."""
    parts: Mapping[str, list[tuple[int, int]]]
    """The parts of the targets of each type: first position and end of each part."""
    block_bytes: int
    held: int
    """Bytes from the first input to the last state."""
    working: int
    """Further bytes while states are computed."""


def plan_layer(arcs: LayerArcs, memory: int) -> LayerPlan:
    """Divides `memory` bytes for a layer.

    Two consecutive layers are in memory together. So if possible, a layer holds at most 3/8 of
    `memory`, and takes at most half of `memory` while states are computed.
    """
    steps, counts = arcs.steps, arcs.counts
    scores = sum(4 * relation.heads * counts[relation.source] for relation in steps.relations)
    messages = {
        relation.sends: 4 * relation.width * counts[relation.source] for relation in steps.relations
    }
    rows = sum(
        4 * arcs.targets[name].count * (steps.own_width[name] + arcs.query_width(name))
        for name in steps.targets
    )
    rows += sum(
        4 * arcs.targets[relation.target].count * relation.heads for relation in steps.relations
    )
    whole = sum(messages.values()) + rows + scores
    in_memory = 8 * whole <= 3 * memory
    # If messages are in memory, larger parts have no use: they would only exceed the processor's
    # caches.
    part_bytes = min(memory // 8, _LARGE_PART) if in_memory else memory // 3
    parts, largest = {}, 0
    for name in steps.targets:
        columns = [arcs.columns[place] for place in steps.into(name)]
        parts[name], size = parts_of(
            arcs.targets[name].count,
            arcs.step,
            max(part_bytes, 1),
            columns,
            arcs.target_bytes(name),
        )
        largest = max(largest, size)
    widest = max((relation.width for relation in steps.relations), default=0)
    block_bytes = max(memory // 12, _LEAST_BLOCK, 4 * widest * arcs.step)
    bits = sum(
        len(parts[relation.target]) * -(-counts[relation.source] // 8)
        for relation in steps.relations
    )
    # `needed_sources` takes a byte for each node.
    bits += max((counts[relation.source] for relation in steps.relations), default=0)
    return LayerPlan(
        in_memory,
        parts,
        block_bytes,
        held=whole if in_memory else bits + scores,
        working=largest if in_memory else largest + 2 * block_bytes,
    )


class Layer:
    """A layer in progress. `feed` takes all inputs, then `states` returns the results."""

    def __init__(
        self,
        arcs: LayerArcs,
        plan: LayerPlan,
        path: Path,
        device: torch.device,
        moved: Moved,
        stack: ExitStack,
    ) -> None:
        """Opens the files of the layer. Their names begin with `path`; `stack` removes them."""
        self._arcs, self._steps, self._plan = arcs, arcs.steps, plan
        self._device, self._stack = device, stack
        self._threads = torch.get_num_threads()
        self._path, self._moved = path, moved
        self._relations = list(enumerate(self._steps.relations))
        self._first_part: list[int] = []
        """For each relation, the index of its first part in the file of its messages."""
        self._messages = self._open_messages()
        self._source_scores = [
            np.empty((arcs.counts[relation.source], relation.heads), np.float32)
            for _, relation in self._relations
        ]
        self._target_scores = [
            self._stored(f"scores-{place}", relation.target, relation.heads)
            for place, relation in self._relations
        ]
        places = list(enumerate(self._steps.targets))
        self._own = {
            target: self._stored(f"own-{place}", target, self._steps.own_width[target])
            for place, target in places
        }
        self._queries = {
            target: self._stored(f"queries-{place}", target, arcs.query_width(target))
            for place, target in places
        }

    def _stored(self, what: str, target: str, width: int) -> OwnInMemory | OwnOnDisk:
        if self._plan.in_memory:
            return OwnInMemory(self._arcs.targets[target].count, width)
        path = self._path.with_name(f"{self._path.name}-{what}")
        return self._stack.enter_context(closing(OwnOnDisk(path, width, self._moved)))

    def _open_messages(self) -> dict[Hashable, MessagesInMemory | MessagesOnDisk]:
        """Opens the messages, by their name, and sets `_first_part`."""
        relations = {relation.sends: relation for _, relation in self._relations}
        if self._plan.in_memory:
            self._first_part = [0] * len(self._relations)
            return {
                sends: MessagesInMemory(self._arcs.counts[relation.source], relation.width)
                for sends, relation in relations.items()
            }
        needed: dict[Hashable, list[Any]] = {sends: [] for sends in relations}
        for place, relation in self._relations:
            self._first_part.append(sum(map(len, needed[relation.sends])))
            bits = needed_sources(
                self._arcs.columns[place],
                self._arcs.targets[relation.target],
                self._plan.parts[relation.target],
                self._arcs.counts[relation.source],
                loops=relation.loops,
            )
            needed[relation.sends].append(bits)
        opened: dict[Hashable, MessagesInMemory | MessagesOnDisk] = {}
        for number, (sends, relation) in enumerate(relations.items()):
            messages = MessagesOnDisk(
                self._path.with_name(f"{self._path.name}-messages-{number}"),
                np.concatenate(needed[sends]),
                self._arcs.counts[relation.source],
                relation.width,
                step=self._arcs.step,
                block_bytes=self._plan.block_bytes,
                moved=self._moved,
            )
            opened[sends] = self._stack.enter_context(closing(messages))
        return opened

    @torch.no_grad()
    def feed(self, node_type: str, first: int, x: Tensor) -> None:
        """Takes the input [rows, width before] of the nodes from `first` on.

        All nodes of a type must be passed in order.
        """
        last = first + len(x)
        x, nodes = x.to(self._device), torch.arange(first, last)
        sent: dict[Hashable, Tensor] = {}
        for place, relation in self._relations:
            if relation.source != node_type:
                continue
            sends = relation.sends
            if sends not in sent:
                sent[sends] = relation.message(x, nodes)
                self._messages[sends].append(first, sent[sends].cpu().numpy())
            if relation.attention is not None:
                scores = relation.attention.of_source(sent[sends])
                self._source_scores[place][first:last] = scores.cpu().numpy()
        if node_type not in self._own:
            return
        among = self._arcs.targets[node_type].among(first, last)
        own = x if among is None else x[torch.from_numpy(among)]
        self._own[node_type].append(self._steps.own(node_type, own).cpu().numpy())
        for place in self._steps.into(node_type):
            attention = self._steps.relations[place].attention
            if attention is not None:
                scores = attention.of_target(own)
                self._target_scores[place].append(scores.cpu().numpy())
        if self._steps.queries is not None and self._arcs.query_width(node_type):
            queries = self._steps.queries(node_type, own)
            self._queries[node_type].append(queries.cpu().numpy())

    def states(self, target: str) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """Computes the new states [rows, width after] of a type's targets, with their ids."""
        for part, (first, last) in enumerate(self._plan.parts[target]):
            sums, counts = self._gathered(target, part, first, last)
            for start in range(first, last, self._arcs.step):
                stop = min(start + self._arcs.step, last)
                here = slice(start - first, stop - first)
                nodes = self._arcs.targets[target].nodes(start, stop)
                with torch.no_grad():
                    state = self._steps.combine(
                        target,
                        [self._on_device(rows[here]) for rows in sums],
                        [self._on_device(rows[here]) for rows in counts],
                        self._on_device(self._own[target].read(start, stop)),
                        torch.from_numpy(nodes),
                    )
                yield nodes, state

    def _on_device(self, array: NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def _gathered(
        self, target: str, part: int, first: int, last: int
    ) -> tuple[list[NDArray[np.float32]], list[NDArray[np.float32]]]:
        """The sums and the numbers of the messages into a part's targets, for each relation."""
        into = self._steps.into(target)
        if self._steps.query_heads:
            return self._alike(target, into, part, first, last), []
        sums, counts = [], []
        for place in into:
            incoming = self._arcs.columns[place].incoming(first, last)
            sums.append(self._summed(place, incoming, part, first, last))
            counts.append(incoming.counts)
        return sums, counts

    def _summed(
        self, place: int, incoming: Incoming, part: int, first: int, last: int
    ) -> NDArray[np.float32]:
        relation = self._steps.relations[place]
        sums = np.zeros((last - first, relation.width), np.float32)
        loops = None
        if relation.loops:
            loops = self._arcs.targets[relation.target].nodes(first, last).astype(np.uint64)
        continues = incoming.starts.copy()
        attention = totals = None
        if relation.attention is not None:
            here = self._target_scores[place].read(first, last)
            attention = (self._source_scores[place], here, relation.attention.slope)
            totals = np.empty((last - first, 2 * relation.heads), np.float32)
            _core.kernel_attention_totals(
                incoming.sources, continues, incoming.ends, loops, attention, totals, self._threads
            )
        for block in self._blocks(place, part):
            _core.kernel_add_neighbours(
                incoming.sources,
                continues,
                incoming.ends,
                loops,
                (block.first, block.last),
                block.rows,
                block.places,
                attention,
                totals,
                sums,
                self._threads,
            )
        self._require_all(place, incoming, continues)
        return sums

    def _alike(
        self, target: str, into: list[int], part: int, first: int, last: int
    ) -> list[NDArray[np.float32]]:
        """The sums of values, weighted by a softmax of the products of keys and queries."""
        if not into:
            return []
        heads = self._steps.query_heads
        queries = self._queries[target].read(first, last)
        sums = np.zeros_like(queries)
        most = np.full((last - first, heads), -np.inf, np.float32)
        totals = np.zeros((last - first, heads), np.float32)
        for place in into:
            incoming = self._arcs.columns[place].incoming(first, last)
            continues = incoming.starts.copy()
            for block in self._blocks(place, part):
                _core.kernel_add_alike(
                    incoming.sources,
                    continues,
                    incoming.ends,
                    (block.first, block.last),
                    block.rows,
                    block.places,
                    queries,
                    most,
                    totals,
                    sums,
                    self._threads,
                )
            self._require_all(place, incoming, continues)
        by_head = sums.reshape(last - first, heads, -1)
        # For a node without arcs, sums and totals are 0; the result is 0, too.
        by_head /= np.maximum(totals, np.finfo(np.float32).tiny)[:, :, None]
        return [sums]

    def _blocks(self, place: int, part: int) -> Iterator[Block]:
        messages = self._messages[self._steps.relations[place].sends]
        return messages.blocks(self._first_part[place] + part)

    def _require_all(self, place: int, incoming: Incoming, continues: NDArray[np.uint64]) -> None:
        """Checks that all arcs were used, because sources beyond the last node never are.

        Errors: `CorruptError`.
        """
        if (continues != incoming.ends).any():
            count = self._arcs.counts[self._steps.relations[place].source]
            raise self._arcs.columns[place].beyond(count)
