"""Exact outputs of a network: each layer for all nodes, its input read once and in order.

The states of one layer are the input of the next as they come: they are never stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.config.sizes import format_size
from outercore.errors import BudgetError
from outercore.runs.progress import Observer
from outercore.runs.stop import StopRequest
from outercore.training.models import Network
from outercore.training.streamed.columns import Columns
from outercore.training.streamed.files import Moved, feature_key, rows_of
from outercore.training.streamed.layer import Layer, LayerPlan, plan_layer
from outercore.training.streamed.messages import OwnOnDisk
from outercore.training.streamed.steps import steps_of

if TYPE_CHECKING:
    from outercore.graph import Graph

_STEP_NUMBERS = 1 << 20
"""In a step there are at most so many numbers: 4 MiB."""
_STEP_SHARE = 512
"""In a step there is at most one of so many nodes, so that a step takes a small share of memory."""
_LEAST_STEP = 64
_STEPS_AT_ONCE = 6
"""What a step's input, states and temporary values take together, in steps."""

Chunks: TypeAlias = Generator[tuple[NDArray[np.int64], Tensor], None, None]
"""Nodes int64 [rows], ascending from chunk to chunk, and their rows float32 [rows, width]."""


class Exact:
    """The outputs of a network for some nodes.

    How many nodes are computed together depends on the network and the graph alone, and messages
    are added in the order of their sources: the outputs have the same bits within every budget.
    """

    def __init__(
        self,
        graph: Graph,
        model: Network,
        features: str,
        degrees: Tensor | None,
        nodes: NDArray[np.int64] | None,
        *,
        device: torch.device,
        observer: Observer,
        stop: StopRequest,
    ) -> None:
        """`nodes` ascend; `None` stands for all."""
        self._graph, self._model, self._features = graph, model, features
        self._device, self._observer, self._stop = device, observer, stop
        self.moved = Moved()
        if nodes is not None and len(nodes) == graph.num_nodes:
            nodes = None
        last = model.layers - 1
        inner = Columns(graph, None, self.moved)
        outer = inner if nodes is None else Columns(graph, nodes, self.moved)
        self._columns = [outer if index == last else inner for index in range(model.layers)]
        self._steps = [steps_of(model, index, degrees) for index in range(model.layers)]
        widest = max(max(one.before, one.width, one.after) for one in self._steps)
        most = max(min(_STEP_NUMBERS // widest, graph.num_nodes // _STEP_SHARE), _LEAST_STEP)
        # A power of two: bits of nodes are cut at bytes.
        self._step = 1 << most.bit_length() - 1
        self._widest = widest
        self._nodes_bytes = 0 if nodes is None else nodes.nbytes
        self._plans: list[LayerPlan] = []

    def plan(self, memory: int) -> None:
        """Divides so many bytes; comes before `outputs`.

        Errors: `BudgetError` with the least that would do.
        """
        try:
            self._plans = self._planned(memory)
        except BudgetError:
            # Below this nothing can do.
            least = max(memory, _STEPS_AT_ONCE * 4 * self._widest * self._step + self._nodes_bytes)
            while True:
                least += least // 8
                try:
                    self._planned(least)
                except BudgetError:
                    continue
                raise BudgetError(
                    f"inference over {self._graph.num_nodes:,} nodes: {format_size(memory)} of "
                    f"memory, needs {format_size(least)}\nhint: give more by `--memory`",
                    least,
                ) from None

    def _planned(self, memory: int) -> list[LayerPlan]:
        left = memory - _STEPS_AT_ONCE * 4 * self._widest * self._step - self._nodes_bytes
        plans = [
            plan_layer(steps, columns, self._graph.num_nodes, self._step, max(left, 0))
            for steps, columns in zip(self._steps, self._columns, strict=True)
        ]
        # A layer gives its states while the next one takes them.
        for plan, after in itertools.zip_longest(plans, plans[1:]):
            used = plan.held + plan.working + (0 if after is None else after.held)
            if used > left:
                raise BudgetError(f"layers take {used}", used)
        return plans

    def outputs(self, directory: Path) -> Chunks:
        """The nodes with their outputs float32 [rows, outputs], a step at a time.

        Cost: reads the features once. The topology is read once a layer, and twice where messages
        wait on disk in `directory`.
        Errors: `NoSpaceError` where they do not fit there.
        """
        model = self._model
        with ExitStack() as stack:
            earlier: list[OwnOnDisk] = []
            chunks = self._input(stack)
            for index in range(model.layers):
                kept = None
                if model.jumping and index < model.layers - 1:
                    path = directory / f"kept-{index + 1}"
                    kept = stack.enter_context(OwnOnDisk(path, model.width(index), self.moved))
                    earlier.append(kept)
                chunks = self._through(index, chunks, directory, kept)
                # What fails within a chain of generators is closed in their order.
                stack.callback(chunks.close)
            done = 0
            for nodes, state in chunks:
                before = [
                    torch.from_numpy(one.read(done, done + len(nodes))).to(self._device)
                    for one in earlier
                ]
                done += len(nodes)
                with torch.no_grad():
                    outputs = model.head([*before, state])
                yield nodes, outputs

    def _input(self, stack: ExitStack) -> Chunks:
        rows = stack.enter_context(rows_of(self._graph, feature_key(self._graph, self._features)))
        count = self._graph.num_nodes
        self._started("features", count)
        for first in range(0, count, self._step):
            last = min(first + self._step, count)
            self._stop.check()
            self.moved.features_read += rows.row_bytes * (last - first)
            yield np.arange(first, last), rows.numbers(first, last)
            self._observer.evaluation_advanced(1)

    def _through(
        self, index: int, chunks: Chunks, directory: Path, kept: OwnOnDisk | None
    ) -> Chunks:
        """The states after layer `index`, whose input are `chunks` of all nodes."""
        columns = self._columns[index]
        layer = Layer(
            self._steps[index],
            columns,
            self._graph.num_nodes,
            self._step,
            self._plans[index],
            directory,
            f"layer-{index + 1}",
            self._device,
            self.moved,
        )
        with layer:
            for nodes, x in chunks:
                layer.feed(int(nodes[0]), x)
            self._started(f"layer {index + 1} of {self._model.layers}", columns.count)
            for nodes, state in layer.states():
                self._stop.check()
                with torch.no_grad():
                    state = self._model.finished(index, state)
                if kept is not None:
                    among = self._columns[-1].among(int(nodes[0]), int(nodes[-1]) + 1)
                    kept.append((state if among is None else state[among]).cpu().numpy())
                yield nodes, state
                self._observer.evaluation_advanced(1)

    def _started(self, what: str, nodes: int) -> None:
        self._observer.evaluation_started(what, -(-nodes // self._step), 0)
