"""Exact outputs of a network: each layer runs for all nodes, and reads its input once, in order.

The next layer takes states as soon as they are computed, so they are never stored as a whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.base.sizes import format_size
from outercore.errors import BudgetError
from outercore.runs.progress import Observer
from outercore.runs.stop import StopRequest
from outercore.training.streamed.layer import (
    Columns,
    Layer,
    LayerArcs,
    LayerPlan,
    Targets,
    plan_layer,
)
from outercore.training.streamed.network import Computation
from outercore.training.streamed.rows import Moved, OwnOnDisk, feature_rows

if TYPE_CHECKING:
    from outercore.data.graph import Graph

_STEP_NUMBERS = 1 << 20
"""Maximum number of float32 values in a step (4 MiB)."""
_STEP_SHARE = 512
"""A step has at most this fraction (1/512) of the nodes, so that it takes little memory."""
_LEAST_STEP = 64
_STEPS_AT_ONCE = 6
"""Memory for input, states and temporary values, as a multiple of the memory of one step."""

Chunks: TypeAlias = Generator[tuple[str, NDArray[np.int64], Tensor], None, None]
"""Chunks of (node type, ids int64 [rows], rows float32 [rows, width]). Within a type, ids ascend
from chunk to chunk."""
Outputs: TypeAlias = Generator[tuple[NDArray[np.int64], Tensor], None, None]
"""Chunks of (nodes int64 [rows], outputs float32 [rows, outputs]). Nodes ascend from chunk to
chunk."""


class Exact:
    """Computes the outputs of a network for some nodes.

    The number of nodes that are computed together depends only on the network and the graph.
    Messages are added in the order of their sources. So outputs are bit-identical for all budgets.
    """

    def __init__(
        self,
        graph: Graph,
        computation: Computation,
        nodes: NDArray[np.int64] | None,
        *,
        device: torch.device,
        observer: Observer,
        stop: StopRequest,
    ) -> None:
        """Binds the nodes. They must be ascending; `None` stands for all nodes of the type."""
        self._graph, self._computation = graph, computation
        self._device, self._observer, self._stop = device, observer, stop
        self.moved = Moved()
        layers, counts = computation.layers, graph.node_types
        self._widest = widest = max(steps.widest for steps in layers)
        most = max(min(_STEP_NUMBERS // widest, graph.num_nodes // _STEP_SHARE), _LEAST_STEP)
        # A power of two of at least 64, so that the bits of a step's nodes fill whole bytes.
        self._step = 1 << most.bit_length() - 1
        (self._labelled,) = layers[-1].targets
        everyone = {name: Targets(count) for name, count in counts.items()}
        chosen = {**everyone, self._labelled: Targets(counts[self._labelled], nodes)}
        self._layers = []
        for steps in layers:
            targets = chosen if steps is layers[-1] else everyone
            columns = [
                Columns(graph, relation.edge_type, targets[relation.target], self.moved)
                for relation in steps.relations
            ]
            self._layers.append(LayerArcs(steps, counts, targets, columns, self._step))
        self._nodes_bytes = 0 if nodes is None else nodes.nbytes
        self._plans: list[LayerPlan] = []

    def plan(self, memory: int) -> None:
        """Divides `memory` bytes. Must be called before `outputs`.

        Errors: `BudgetError` with a sufficient number of bytes.
        """
        try:
            self._plans = self._planned(memory)
        except BudgetError:
            # Even less memory than this is never sufficient, so the search starts here.
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
                    needed=least,
                ) from None

    def _planned(self, memory: int) -> list[LayerPlan]:
        left = memory - _STEPS_AT_ONCE * 4 * self._widest * self._step - self._nodes_bytes
        plans = [plan_layer(layer, max(left, 0)) for layer in self._layers]
        # While a layer computes its states, the next layer takes them. So both are in memory.
        for plan, after in itertools.zip_longest(plans, plans[1:]):
            used = plan.held + plan.working + (0 if after is None else after.held)
            if used > left:
                raise BudgetError(f"layers take {used}", needed=used)
        return plans

    def outputs(self, directory: Path) -> Outputs:
        """Computes the outputs of the nodes, step by step.

        Cost: reads the features once. Each layer reads the topology once, or twice if its messages
        wait on disk in `directory`.
        Errors: `NoSpaceError` if the messages do not fit on the disk.
        """
        computation = self._computation
        last = len(self._layers) - 1
        with ExitStack() as stack:
            earlier: list[OwnOnDisk] = []
            chunks = self._input()
            stack.callback(chunks.close)
            for index, layer in enumerate(self._layers):
                store = None
                if computation.needs_all and index < last:
                    path, width = directory / f"kept-{index + 1}", layer.steps.after
                    store = stack.enter_context(closing(OwnOnDisk(path, width, self.moved)))
                    earlier.append(store)
                chunks = self._through(index, chunks, directory, store)
                # After an error in the chain of generators, close them from the last to the first.
                stack.callback(chunks.close)
            done = 0
            for _, nodes, state in chunks:
                before = [
                    torch.from_numpy(store.read(done, done + len(nodes))).to(self._device)
                    for store in earlier
                ]
                done += len(nodes)
                with torch.no_grad():
                    outputs = computation.head([*before, state])
                yield nodes, outputs

    def _input(self) -> Chunks:
        """Computes the states before the first layer, type by type."""
        inputs, counts = self._computation.inputs, self._graph.node_types
        self._started("features", [counts[name] for name in inputs])
        for name, features in inputs.items():
            with ExitStack() as stack:
                read = None
                if features.key is not None:
                    reading = feature_rows(
                        self._graph, features.key, features.precision, self.moved
                    )
                    read = stack.enter_context(reading)
                for first in range(0, counts[name], self._step):
                    self._stop.check()
                    last = min(first + self._step, counts[name])
                    x = torch.empty(last - first, 0) if read is None else read(first, last)
                    with torch.no_grad():
                        nodes = torch.arange(first, last, device=self._device)
                        state = features.encode(x.to(self._device), nodes)
                    yield name, np.arange(first, last), state
                    self._observer.evaluation_advanced(1)

    def _through(
        self, index: int, chunks: Chunks, directory: Path, store: OwnOnDisk | None
    ) -> Chunks:
        """Computes the states after layer `index`. Its input are the `chunks` of all nodes.

        The states of the nodes with outputs are also stored in `store`, if it is not `None`.
        """
        arcs, plan = self._layers[index], self._plans[index]
        targets = arcs.steps.targets
        path = directory / f"layer-{index + 1}"
        with ExitStack() as stack:
            layer = Layer(arcs, plan, path, self._device, self.moved, stack)
            for name, nodes, x in chunks:
                layer.feed(name, int(nodes[0]), x)
            counts = [arcs.targets[name].count for name in targets]
            self._started(f"layer {index + 1} of {len(self._layers)}", counts)
            for name in targets:
                for nodes, state in layer.states(name):
                    self._stop.check()
                    if store is not None and name == self._labelled:
                        among = (
                            self._layers[-1].targets[name].among(int(nodes[0]), int(nodes[-1]) + 1)
                        )
                        store.append((state if among is None else state[among]).cpu().numpy())
                    yield name, nodes, state
                    self._observer.evaluation_advanced(1)

    def _started(self, what: str, counts: list[int]) -> None:
        steps = sum(-(-count // self._step) for count in counts)
        self._observer.evaluation_started(what, steps, 0)
