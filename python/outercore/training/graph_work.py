"""Learning from whole graphs: the task `graph`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.base.sizes import parse_size
from outercore.data.many_graphs import FIRST, PREFIX, SPLITS, ManyGraphs
from outercore.errors import InvalidError, NotFoundError, UnsupportedError
from outercore.runs.record import Timeline
from outercore.training.config import TrainConfig
from outercore.training.graph_batches import (
    GraphLoader,
    GraphLoaders,
    GraphReader,
    NodeInputs,
    input_name,
    node_inputs,
)
from outercore.training.graph_models import GraphNetwork
from outercore.training.inference import Context, Prediction, Predictor, prediction_of
from outercore.training.model_files import SavedModel
from outercore.training.models import evaluating
from outercore.training.splits import nodes_of
from outercore.training.tasks import detect_task
from outercore.training.work import PredictingWork

if TYPE_CHECKING:
    from outercore.data.graph import Graph


def with_inputs(graph: Graph, config: TrainConfig) -> TrainConfig:
    """The configuration with the name of the node array that the network uses."""
    name = input_name(graph, config.sampling.features)
    return replace(config, sampling=replace(config.sampling, features=name))


class GraphWork(PredictingWork):
    """Whole graphs, each with all its nodes and arcs.

    Arguments and errors as `NodeWork`; `NotFoundError` for a data set of one graph, `BudgetError`
    where a batch needs more than the budget, `InvalidError` for far memory.
    """

    rows = "graphs"

    def __init__(
        self, graph: Graph, config: TrainConfig, *, saved: SavedModel | None = None
    ) -> None:
        if config.sampling.time is not None:
            raise UnsupportedError("--time: whole graphs have no past\nhint: leave it out")
        if config.budget.far is not None:
            raise InvalidError(
                "far memory: whole graphs are read from the disk\nhint: leave it out"
            )
        self._many = ManyGraphs(graph)
        self.labelled = self._many
        self._config = config
        sampling = config.sampling
        _require_labels(graph, sampling.labels)
        trained = saved.model if saved is not None else None
        assert trained is None or isinstance(trained, GraphNetwork)
        known = None if trained is None else trained.categories
        self._inputs = node_inputs(graph, sampling.features, known)
        if saved is None or trained is None:
            self.task = detect_task(
                self._many,
                sampling.labels,
                config.run.metric,
                nodes=nodes_of(self._many, sampling.train),
            )
            self.model = graph_network(config, self._inputs, self.task.outputs)
        else:
            self.task, self.model = saved.task, trained
            _require_inputs(graph, self._inputs, trained)
        self._reader = GraphReader(
            self._many,
            self._inputs,
            sampling.labels,
            memory=parse_size(config.budget.memory),
            batch_size=sampling.seeds,
        )
        self.loaders = GraphLoaders(self._many, config, self._reader)

    def prepare(self, timeline: Timeline | None = None) -> None:
        """Batches need no preparation."""

    def loss(self, batch: Any, device: torch.device) -> tuple[Tensor, int]:
        """That of the task, over the graphs."""
        batch = batch.to(device)
        return self.task.loss(self.model(batch), batch.y), int(batch.batch_size)

    def predictor(self, context: Context) -> Predictor:
        """Runs the network, which always takes all neighbours."""
        return _GraphPredictor(self._reader, self.model, self._config.sampling.seeds, context)

    def facts(self) -> dict[str, Any]:
        """The number of graphs, and the node array that is used."""
        return {"graphs": self._many.num_nodes, "inputs": self._config.sampling.features}


def graph_network(config: TrainConfig, inputs: NodeInputs, outputs: int) -> GraphNetwork:
    """A freshly initialised network; a function of the arguments and PyTorch's seed."""
    return GraphNetwork(
        config.model,
        config.layers,
        inputs.width,
        outputs,
        categories=inputs.categories,
        readout=config.graph.readout,
        of_degrees=inputs.key is None,
    )


class _GraphPredictor:
    """Runs a network over chosen graphs."""

    samples_only = False

    def __init__(
        self, reader: GraphReader, model: GraphNetwork, batch_size: int, context: Context
    ) -> None:
        self._reader, self._model, self._batch_size = reader, model, batch_size
        self._context = context

    def sampled(
        self, nodes: NDArray[np.int64] | None, what: str = "validation"
    ) -> Iterator[Prediction]:
        """As `exact`: no neighbours are sampled."""
        yield from self.exact(nodes)

    def exact(self, nodes: NDArray[np.int64] | None) -> Iterator[Prediction]:
        """Predictions of the graphs `nodes`, in this order; of all without them."""
        if nodes is None:
            nodes = np.arange(self._reader.count)
        loader = GraphLoader(self._reader, nodes, self._batch_size)
        self._context.observer.evaluation_started("scores", len(loader), 0)
        with evaluating(self._model):
            for batch in loader:
                self._context.stop.check()
                here = batch.to(self._context.device)
                # Not around the loop: it would hold in the caller's code, too.
                with torch.no_grad():
                    outputs = self._model(here)
                yield prediction_of(here, outputs)
                self._context.observer.evaluation_advanced(1)


def _require_labels(graph: Graph, labels: str) -> None:
    if PREFIX + labels in graph.arrays:
        return
    known = ", ".join(
        f"`{key.removeprefix(PREFIX)}`"
        for key in graph.arrays
        if key.startswith(PREFIX) and key != FIRST and not key.startswith(SPLITS)
    )
    raise NotFoundError(
        f"data set `{graph.root}`: no labels `{labels}` of graphs; it has {known or 'none'}\n"
        "hint: import it again with `--labels FILE`, or choose others by `--labels`"
    )


def _require_inputs(graph: Graph, inputs: NodeInputs, trained: GraphNetwork) -> None:
    expected = trained.categories
    if inputs.width != trained.features or bool(inputs.categories) != bool(expected):
        kind = "categories" if expected else "features"
        found = "categories" if inputs.categories else "features"
        raise InvalidError(
            f"data set `{graph.root}`: expected {trained.features} {kind} a node, as the model "
            f"was trained with, found {inputs.width} {found}"
        )
