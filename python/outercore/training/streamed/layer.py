"""One layer for all its targets: fed with its input in order, it gives the new states in order."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore import _core
from outercore.training.streamed.columns import (
    Columns,
    Incoming,
    Targets,
    Weight,
    needed_sources,
    parts_of,
)
from outercore.training.streamed.files import Moved
from outercore.training.streamed.messages import (
    Block,
    Messages,
    MessagesInMemory,
    MessagesOnDisk,
    OwnInMemory,
    OwnOnDisk,
)
from outercore.training.streamed.steps import LayerSteps

if TYPE_CHECKING:
    from typing_extensions import Self

_LEAST_BLOCK = 1 << 18
"""Bytes of messages that are read at once, at least."""
_LARGE_PART = 32 << 20


@dataclass(frozen=True)
class LayerArcs:
    """A layer with its targets and the arcs into them."""

    steps: LayerSteps
    counts: Mapping[str, int]
    """Nodes by type."""
    targets: Mapping[str, Targets]
    columns: list[Columns]
    """By relation."""
    step: int
    """Nodes that come at a time."""

    def weight(self, target: str) -> Weight:
        """What targets of a type take: sums, where arcs begin, end and continue, attention."""
        size = 16
        into = [self.steps.relations[place] for place in self.steps.into(target)]
        for relation in into:
            size += 16 + 12 * relation.heads
            size += 0 if self.steps.query_heads else 4 * relation.sum_width
        if self.steps.query_heads and into:
            size += 8 * into[0].sum_width + 8 * self.steps.query_heads
        return Weight([self.columns[place] for place in self.steps.into(target)], size)

    def query_width(self, target: str) -> int:
        """Of the queries of a type's nodes."""
        into = self.steps.into(target) if self.steps.query_heads else []
        return self.steps.relations[into[0]].sum_width if into else 0


@dataclass(frozen=True)
class LayerPlan:
    """How a layer uses its memory, in bytes."""

    in_memory: bool
    """Messages and what targets keep of themselves; else they wait on disk."""
    parts: Mapping[str, list[tuple[int, int]]]
    """Places of targets of each type whose sums are in memory together."""
    block_bytes: int
    held: int
    """From the first input to the last state."""
    working: int
    """Besides, while states are computed."""


def plan_layer(arcs: LayerArcs, memory: int) -> LayerPlan:
    """Divides memory for a layer.

    Two consecutive layers are in memory together. So a layer holds at most 3/8 of `memory` if
    possible, and works with at most a half.
    """
    steps, counts = arcs.steps, arcs.counts
    scores = sum(4 * one.heads * counts[one.source] for one in steps.relations)
    messages = {one.sends: 4 * one.width * counts[one.source] for one in steps.relations}
    kept = sum(
        4 * arcs.targets[name].count * (steps.own_width(name) + arcs.query_width(name))
        for name in steps.targets
    )
    kept += sum(4 * arcs.targets[one.target].count * one.heads for one in steps.relations)
    whole = sum(messages.values()) + kept + scores
    in_memory = 8 * whole <= 3 * memory
    # More in a part would only leave the processor's caches where messages are in memory.
    part_bytes = min(memory // 8, _LARGE_PART) if in_memory else memory // 3
    parts, largest = {}, 0
    for name in steps.targets:
        count, weight = arcs.targets[name].count, arcs.weight(name)
        parts[name], size = parts_of(count, arcs.step, max(part_bytes, 1), weight)
        largest = max(largest, size)
    widest = max((one.width for one in steps.relations), default=0)
    block_bytes = max(memory // 12, _LEAST_BLOCK, 4 * widest * arcs.step)
    bits = sum(len(parts[one.target]) * -(-counts[one.source] // 8) for one in steps.relations)
    # While it is found which sources a part needs, there is a byte for each node.
    bits += max((counts[one.source] for one in steps.relations), default=0)
    return LayerPlan(
        in_memory,
        parts,
        block_bytes,
        held=whole if in_memory else bits + scores,
        working=largest if in_memory else largest + 2 * block_bytes,
    )


class Layer:
    """A layer in progress; a context manager. `feed` takes all inputs, `states` gives results."""

    def __init__(
        self,
        arcs: LayerArcs,
        plan: LayerPlan,
        directory: Path,
        name: str,
        device: torch.device,
        moved: Moved,
    ) -> None:
        self._arcs, self._steps, self._plan = arcs, arcs.steps, plan
        self._device, self._stack = device, ExitStack()
        self._threads = torch.get_num_threads()
        self._path, self._moved = directory / name, moved
        self._relations = list(enumerate(self._steps.relations))
        self._first_part: list[int] = []
        """Of each relation among the parts of its messages."""
        self._messages = self._open_messages()
        counts, steps = arcs.counts, self._steps
        self._source_scores = [
            np.empty((counts[one.source], one.heads), np.float32) for _, one in self._relations
        ]
        self._target_scores = [
            self._kept(f"scores-{place}", one.target, one.heads) for place, one in self._relations
        ]
        places = list(enumerate(steps.targets))
        self._own = {
            target: self._kept(f"own-{place}", target, steps.own_width(target))
            for place, target in places
        }
        self._queries = {
            target: self._kept(f"queries-{place}", target, arcs.query_width(target))
            for place, target in places
        }

    def _kept(self, what: str, target: str, width: int) -> OwnInMemory | OwnOnDisk:
        if self._plan.in_memory:
            return OwnInMemory(self._arcs.targets[target].count, width)
        return OwnOnDisk(self._path.with_name(f"{self._path.name}-{what}"), width, self._moved)

    def _open_messages(self) -> dict[Hashable, Messages]:
        """The messages by what names them; sets the first part of each relation."""
        bits: dict[Hashable, list[Any]] = {}
        for place, one in self._relations:
            bits.setdefault(one.sends, [])
            self._first_part.append(sum(map(len, bits[one.sends])))
            if not self._plan.in_memory:
                found = needed_sources(
                    self._arcs.columns[place],
                    self._arcs.targets[one.target],
                    self._plan.parts[one.target],
                    self._arcs.counts[one.source],
                    loops=one.loops,
                )
                bits[one.sends].append(found)
        first = {one.sends: one for _, one in reversed(self._relations)}
        found_messages: dict[Hashable, Messages] = {}
        for number, (sends, of_parts) in enumerate(bits.items()):
            one = first[sends]
            count = self._arcs.counts[one.source]
            if self._plan.in_memory:
                found_messages[sends] = MessagesInMemory(count, one.width)
                continue
            found_messages[sends] = MessagesOnDisk(
                self._path.with_name(f"{self._path.name}-messages-{number}"),
                np.concatenate(of_parts),
                count,
                one.width,
                step=self._arcs.step,
                block_bytes=self._plan.block_bytes,
                moved=self._moved,
            )
        return found_messages

    def __enter__(self) -> Self:
        kept = (*self._own.values(), *self._queries.values(), *self._target_scores)
        for store in (*self._messages.values(), *kept):
            self._stack.enter_context(store)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @torch.no_grad()
    def feed(self, node_type: str, first: int, x: Tensor) -> None:
        """Takes the input [rows, width before] of a type's nodes from `first` on, all in order."""
        last = first + len(x)
        x, nodes = x.to(self._device), torch.arange(first, last)
        sent: dict[Hashable, Tensor] = {}
        for place, one in self._relations:
            if one.source != node_type:
                continue
            if one.sends not in sent:
                sent[one.sends] = one.message(x, nodes)
                self._messages[one.sends].append(first, sent[one.sends].cpu().numpy())
            if one.heads:
                scores = one.source_scores(sent[one.sends])
                self._source_scores[place][first:last] = scores.cpu().numpy()
        if node_type not in self._own:
            return
        among = self._arcs.targets[node_type].among(first, last)
        own = x if among is None else x[torch.from_numpy(among)]
        self._own[node_type].append(self._steps.own(node_type, own).cpu().numpy())
        for place in self._steps.into(node_type):
            if self._steps.relations[place].heads:
                scores = self._steps.relations[place].target_scores(own)
                self._target_scores[place].append(scores.cpu().numpy())
        if self._arcs.query_width(node_type):
            queries = self._steps.queries(node_type, own)
            self._queries[node_type].append(queries.cpu().numpy())

    def states(self, target: str) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """Targets of a type, and their new states [rows, width after]."""
        for part, (first, last) in enumerate(self._plan.parts[target]):
            sums, counts = self._gathered(target, part, first, last)
            for start in range(first, last, self._arcs.step):
                stop = min(start + self._arcs.step, last)
                here = slice(start - first, stop - first)
                nodes = self._arcs.targets[target].nodes(start, stop)
                with torch.no_grad():
                    state = self._steps.combine(
                        target,
                        [self._on_device(one[here]) for one in sums],
                        [self._on_device(one[here]) for one in counts],
                        self._on_device(self._own[target].read(start, stop)),
                        torch.from_numpy(nodes),
                    )
                yield nodes, state

    def _on_device(self, array: NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def _gathered(
        self, target: str, part: int, first: int, last: int
    ) -> tuple[list[NDArray[np.float32]], list[NDArray[np.float32]]]:
        """The sums of the messages into a part's targets, and how many these are."""
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
        sums = np.zeros((last - first, relation.sum_width), np.float32)
        loops = None
        if relation.loops:
            loops = self._arcs.targets[relation.target].nodes(first, last).astype(np.uint64)
        continues = incoming.starts.copy()
        attention = totals = None
        if relation.heads:
            here = self._target_scores[place].read(first, last)
            attention = (self._source_scores[place], here, relation.slope)
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
        """The sums of values, weighed by how alike keys and queries are."""
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
        # A node without an arc has sums of 0.
        by_head /= np.maximum(totals, np.finfo(np.float32).tiny)[:, :, None]
        return [sums]

    def _blocks(self, place: int, part: int) -> Iterator[Block]:
        messages = self._messages[self._steps.relations[place].sends]
        return messages.blocks(self._first_part[place] + part)

    def _require_all(self, place: int, incoming: Incoming, continues: NDArray[np.uint64]) -> None:
        """Errors: `CorruptError` where a source is beyond the last node."""
        if (continues != incoming.ends).any():
            count = self._arcs.counts[self._steps.relations[place].source]
            raise self._arcs.columns[place].beyond(count)
