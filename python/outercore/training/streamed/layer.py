"""One layer for all its targets: fed with its input in order, it gives the new states in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore import _core
from outercore.training.streamed.columns import Columns, Incoming, needed
from outercore.training.streamed.files import Moved
from outercore.training.streamed.messages import (
    Messages,
    MessagesInMemory,
    MessagesOnDisk,
    OwnInMemory,
    OwnOnDisk,
)
from outercore.training.streamed.steps import Steps

if TYPE_CHECKING:
    from typing_extensions import Self

_LEAST_BLOCK = 1 << 18
"""Bytes of messages that are read at once, at least."""
_LARGE_PART = 32 << 20


@dataclass(frozen=True)
class LayerPlan:
    """How a layer uses its memory, in bytes."""

    in_memory: bool
    """Messages and what targets keep of themselves; else they wait on disk."""
    parts: list[tuple[int, int]]
    """Places of targets whose sums are in memory together."""
    block_bytes: int
    held: int
    """From the first input to the last state."""
    working: int
    """Besides, while states are computed."""


def plan_layer(steps: Steps, columns: Columns, nodes: int, step: int, memory: int) -> LayerPlan:
    """Divides memory for a layer over `nodes` nodes, of which `step` come at a time.

    The layer before or after it holds its own beside it: a layer holds at most 3/8 of `memory`
    where it can, and works with at most a half.
    """
    scores = 4 * steps.heads * nodes
    kept = columns.count * (steps.own_width + steps.heads)
    whole = 4 * (nodes * steps.width + kept) + scores
    in_memory = 8 * whole <= 3 * memory
    # More in a part would only leave the processor's caches where messages are in memory.
    part_bytes = min(memory // 8, _LARGE_PART) if in_memory else memory // 3
    # Of a target: its sums, its id, where its arcs begin, end and continue, and its attention.
    node_bytes = 4 * steps.width + 32 + 12 * steps.heads
    parts = columns.parts(step, max(part_bytes, 1), node_bytes)
    largest = max((_bytes(columns, part, node_bytes) for part in parts), default=0)
    block_bytes = max(memory // 12, _LEAST_BLOCK, 4 * steps.width * step)
    # While it is found which sources a part needs, there is a byte for each node.
    bits = len(parts) * -(-nodes // 8) + nodes + scores
    return LayerPlan(
        in_memory,
        parts,
        block_bytes,
        held=whole if in_memory else bits,
        working=largest if in_memory else largest + 2 * block_bytes,
    )


def _bytes(columns: Columns, part: tuple[int, int], node_bytes: int) -> int:
    arcs = int(columns.counts(*part).sum())
    return arcs * columns.id_bytes + (part[1] - part[0]) * node_bytes


class Layer:
    """A layer in progress; a context manager. First it is fed, then it is asked for states."""

    def __init__(
        self,
        steps: Steps,
        columns: Columns,
        nodes: int,
        step: int,
        plan: LayerPlan,
        directory: Path,
        name: str,
        device: torch.device,
        moved: Moved,
    ) -> None:
        self._steps, self._columns, self._step, self._plan = steps, columns, step, plan
        self._device, self._stack = device, ExitStack()
        self._threads = torch.get_num_threads()
        self._source_scores = np.empty((nodes, steps.heads), np.float32)
        self._messages: Messages
        self._own: OwnInMemory | OwnOnDisk
        self._target_scores: OwnInMemory | OwnOnDisk
        if plan.in_memory:
            self._messages = MessagesInMemory(nodes, steps.width)
            self._own = OwnInMemory(columns.count, steps.own_width)
            self._target_scores = OwnInMemory(columns.count, steps.heads)
            return
        self._messages = MessagesOnDisk(
            directory / f"{name}-messages",
            needed(columns, plan.parts, nodes, loops=steps.loops),
            nodes,
            steps.width,
            step=step,
            block_bytes=plan.block_bytes,
            moved=moved,
        )
        self._own = OwnOnDisk(directory / f"{name}-own", steps.own_width, moved)
        self._target_scores = OwnOnDisk(directory / f"{name}-scores", steps.heads, moved)

    def __enter__(self) -> Self:
        for store in (self._messages, self._own, self._target_scores):
            self._stack.enter_context(store)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @torch.no_grad()
    def feed(self, first: int, x: Tensor) -> None:
        """Takes the input [rows, width before] of the nodes from `first` on; all come in order."""
        x = x.to(self._device)
        message = self._steps.message(x, torch.arange(first, first + len(x)))
        self._messages.append(first, message.cpu().numpy())
        among = self._columns.among(first, first + len(x))
        chosen: Any = slice(None) if among is None else torch.from_numpy(among)
        self._own.append(self._steps.own(x[chosen]).cpu().numpy())
        if self._steps.heads:
            of_source, of_target = self._steps.scores(message)
            self._source_scores[first : first + len(x)] = of_source.cpu().numpy()
            self._target_scores.append(of_target[chosen].cpu().numpy())

    def states(self) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """Targets, and their new states [rows, width after], before norm and activation."""
        for part, (first, last) in enumerate(self._plan.parts):
            incoming = self._columns.incoming(first, last)
            sums = self._sums(part, incoming, first, last)
            counts = (incoming.ends - incoming.starts).astype(np.float32)
            for start in range(first, last, self._step):
                stop = min(start + self._step, last)
                here = slice(start - first, stop - first)
                yield (
                    incoming.nodes[here],
                    self._combined(sums[here], counts[here], incoming.nodes[here], start, stop),
                )

    @torch.no_grad()
    def _combined(
        self,
        sums: NDArray[np.float32],
        counts: NDArray[np.float32],
        nodes: NDArray[np.int64],
        first: int,
        last: int,
    ) -> Tensor:
        arrays = (sums, self._own.read(first, last), counts)
        on_device = (torch.from_numpy(array).to(self._device) for array in arrays)
        of_sums, own, of_counts = on_device
        return self._steps.combine(of_sums, own, of_counts, torch.from_numpy(nodes))

    def _sums(self, part: int, incoming: Incoming, first: int, last: int) -> NDArray[np.float32]:
        sums = np.zeros((last - first, self._steps.width), np.float32)
        loops = incoming.nodes.astype(np.uint64) if self._steps.loops else None
        continues = incoming.starts.copy()
        attention = totals = None
        if self._steps.heads:
            here = self._target_scores.read(first, last)
            attention = (self._source_scores, here, self._steps.slope)
            totals = np.empty((last - first, 2 * self._steps.heads), np.float32)
            _core.kernel_attention_totals(
                incoming.sources, continues, incoming.ends, loops, attention, totals, self._threads
            )
        for block in self._messages.blocks(part):
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
        return sums
