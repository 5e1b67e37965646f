"""Predictions: with sampled neighbours, or exact, layer by layer over all neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.errors import BudgetError
from outercore.files.atomic import device_errors, scratch_directory
from outercore.files.npy import NpyRows
from outercore.runs.progress import Observer
from outercore.runs.stop import StopRequest
from outercore.training.config import SamplingConfig
from outercore.training.graph_batches import GraphLoaders
from outercore.training.links.network import LinkModel
from outercore.training.loaders import Loaders
from outercore.training.models import Perceptron, evaluating
from outercore.training.streamed.exact import Exact, Outputs
from outercore.training.streamed.network import (
    Computation,
    Input,
    network_steps,
    typed_network_steps,
)
from outercore.training.tasks import array_key
from outercore.training.typed_network import TypedNetwork

if TYPE_CHECKING:
    from outercore.data.graph import Graph

_MOST_ROWS = 8192
_NO_LABELS = np.empty(0)


@dataclass(frozen=True)
class Prediction:
    """The outputs of a network for some nodes.

    Shapes: `nodes` int64 [rows], `logits` float32 [rows, outputs]. `labels` are as stored; empty
    for a data set without labels.
    """

    nodes: NDArray[np.int64]
    logits: NDArray[np.float32]
    labels: NDArray


@dataclass(frozen=True)
class Context:
    """The surroundings of a network in use: scratch directory, device, observer and stop flag."""

    scratch: Path
    device: torch.device
    observer: Observer
    stop: StopRequest


class Predictor(Protocol):
    """Computes the outputs of a network for some nodes or graphs, batch by batch."""

    @property
    def samples_only(self) -> bool:
        """Whether `exact` also samples, because the network cannot run layer by layer."""

    def sampled(
        self, nodes: NDArray[np.int64] | None, what: str = "validation"
    ) -> Iterator[Prediction]:
        """Predicts from sampled neighbours. `None` stands for all nodes, in order.

        The observer shows the progress under the name `what`.
        """

    def exact(self, nodes: NDArray[np.int64] | None) -> Iterator[Prediction]:
        """Predicts from all neighbours. `None` stands for all nodes, in order."""


class Inference:
    """Runs a network over chosen nodes of a graph, exactly or with sampled neighbours.

    With `samples_only`, `exact` also samples neighbours. This is needed in two cases. With times,
    each node sees a different past, so nodes cannot share the states of layers. A custom network
    has no known layers.
    """

    def __init__(
        self,
        graph: Graph,
        model: Any,
        sampling: SamplingConfig,
        loaders: Loaders,
        context: Context,
        *,
        degrees: Tensor | None = None,
        samples_only: bool = False,
    ) -> None:
        """Binds the network. `degrees` float32 [nodes] are for networks that use in-degrees."""
        self._graph, self._model, self._sampling = graph, model, sampling
        self._loaders, self._context, self._degrees = loaders, context, degrees
        self._type = model.schema.labelled if isinstance(model, TypedNetwork) else None
        # A model of links embeds nodes by its encoder; the inputs may be rows of a learned table.
        self._network: Any = model.encoder if isinstance(model, LinkModel) else model
        self.samples_only = samples_only

    def sampled(
        self, nodes: NDArray[np.int64] | None, what: str = "validation"
    ) -> Iterator[Prediction]:
        """Predictions from neighbours sampled with the training fan-outs.

        Cost: the same reads as a training epoch over `nodes`.
        """
        sampling = self._sampling
        batches = evaluation_batches(
            self._loaders,
            self._context,
            what,
            num_neighbors=self._loaders.fanout(),
            input_nodes=nodes if self._type is None else (self._type, nodes),
            # Smaller than in training, to fit the smaller share of the budget. Samples depend on
            # the batch, so its size must not depend on the budget.
            batch_size=max(sampling.seeds // 4, min(sampling.seeds, 64)),
            replace=sampling.replace,
            features=self._loaders.features,
            labels=sampling.labels,
        )
        with evaluating(self._model):
            for batch in batches:
                labelled = batch if self._type is None else batch[self._type]
                yield prediction_of(labelled, self._forward(batch))

    def exact(self, nodes: NDArray[np.int64] | None) -> Iterator[Prediction]:
        """Predictions from all neighbours, each layer computed once for each node.

        Every layer except the last is computed for all nodes, the last layer only for `nodes`. A
        perceptron uses no neighbours. With `samples_only`, it is the same as `sampled`: only a
        fan-out of -1 takes all neighbours.

        Cost: reads the features once, in order; see `Exact.outputs`.
        Errors: `BudgetError`; `NoSpaceError` if layer states do not fit on the run's device.
        """
        if self.samples_only or isinstance(self._network, Perceptron):
            return self.sampled(nodes, "inference")
        return self._layer_by_layer(nodes)

    def _layer_by_layer(self, nodes: NDArray[np.int64] | None) -> Iterator[Prediction]:
        shuffled = nodes is not None and not bool((nodes[1:] > nodes[:-1]).all())
        ascending = np.unique(nodes) if nodes is not None and shuffled else nodes
        context = self._context
        exact = Exact(
            self._graph,
            self._computation(),
            ascending,
            device=context.device,
            observer=context.observer,
            stop=context.stop,
        )
        self._plan(exact)
        with device_errors(f"layer states `{context.scratch}`"):
            context.scratch.mkdir(parents=True, exist_ok=True)
        layers = scratch_directory(context.scratch, "layers-")
        with evaluating(self._model), layers as directory:
            outputs = exact.outputs(directory)
            with closing(outputs):
                if nodes is not None and ascending is not None and shuffled:
                    yield from self._reordered(outputs, ascending, nodes, directory)
                    return
                for some, logits in outputs:
                    yield self._prediction(some, logits.cpu().numpy())

    def _plan(self, exact: Exact) -> None:
        while True:
            try:
                exact.plan(self._loaders.inference_memory())
                return
            except BudgetError as error:
                if not self._loaders.use_whole_budget():
                    raise self._loaders.beside(error) from None

    def _reordered(
        self, outputs: Outputs, ascending: NDArray[np.int64], nodes: NDArray[np.int64], at: Path
    ) -> Iterator[Prediction]:
        """The outputs of `ascending` nodes in the order of `nodes`."""
        shape = (len(ascending), self._model.outputs)
        rows = NpyRows(at / "outputs.npy", shape, durable=False)
        with rows:
            for _, logits in outputs:
                rows.append(logits.cpu().numpy())
        for first in range(0, len(nodes), _MOST_ROWS):
            some = nodes[first : first + _MOST_ROWS]
            yield self._prediction(some, rows.rows(np.searchsorted(ascending, some)))

    def _prediction(self, nodes: NDArray[np.int64], logits: NDArray[np.float32]) -> Prediction:
        labels = self._labels(nodes)
        if np.issubdtype(labels.dtype, np.integer):
            labels = labels.astype(np.int64)
        return Prediction(nodes, logits.astype(np.float32, copy=False), labels)

    def _labels(self, nodes: NDArray[np.int64]) -> NDArray:
        """The labels of nodes, as stored; an empty array for a data set without labels."""
        name = self._sampling.labels
        if name == "y" and not self._graph.schema.labels:
            return _NO_LABELS
        return self._graph.rows(array_key(self._graph, name).removeprefix("nodes/node/"), nodes)

    def _computation(self) -> Computation:
        """The network in steps for `Exact`."""
        features: Any = self._loaders.features
        precision = self._sampling.precision
        if self._type is not None:
            return typed_network_steps(self._model, features or {}, precision)
        if isinstance(self._model, LinkModel) and self._model.table is not None:
            table = self._model.table
            rows = Input(lambda _, nodes: table(nodes))
        else:
            is_path = features.endswith(".npy")
            key = features if is_path else array_key(self._graph, features)
            rows = Input(lambda x, _: x, key, precision)
        return network_steps(self._network, rows, self._degrees)

    # Gradients are switched off here, not around the loop of the generator: a `no_grad` that spans
    # a `yield` would switch them off in the code of the caller.
    @torch.no_grad()
    def _forward(self, batch: Any) -> Tensor:
        degrees = None
        if self._degrees is not None:
            degrees = self._degrees[batch.n_id.cpu()].to(self._context.device)
        logits: Tensor = self._model(batch, degrees)
        return logits


def evaluation_batches(
    loaders: Loaders | GraphLoaders, context: Context, what: str, **arguments: Any
) -> Iterator[Any]:
    """The batches of an evaluation loader with these arguments, in order.

    The observer shows the progress under the name `what`. If a batch does not fit, the training
    loader gives up its memory.
    """
    done = 0
    while True:
        try:
            with loaders.evaluation(**arguments) as loader:
                context.observer.evaluation_started(what, len(loader), done)
                loader.seek(done)
                for batch in loader:
                    context.stop.check()
                    yield batch.to(context.device)
                    done += 1
                    context.observer.evaluation_advanced(1)
            return
        except BudgetError:
            if not loaders.use_whole_budget():
                raise


def prediction_of(batch: Any, logits: Tensor) -> Prediction:
    """The outputs for the seeds of a batch, with their ids and labels."""
    # Without labels, `y` may be `None` or missing.
    labels = getattr(batch, "y", None)
    return Prediction(
        nodes=batch.n_id[: batch.batch_size].cpu().numpy(),
        logits=logits.detach().cpu().float().numpy(),
        labels=_NO_LABELS if labels is None else labels[: batch.batch_size].cpu().numpy(),
    )
