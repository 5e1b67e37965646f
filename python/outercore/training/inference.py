"""Predictions: with sampled neighbours, or exact, layer by layer over all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
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
from outercore.training.loaders import Loaders
from outercore.training.models import Perceptron
from outercore.training.streamed.exact import Exact, Outputs
from outercore.training.streamed.files import feature_key
from outercore.training.streamed.network import of_network
from outercore.training.streamed.steps import Computation
from outercore.training.tasks import array_key

if TYPE_CHECKING:
    from outercore.data.graph import Graph

_MOST_ROWS = 8192
_NO_LABELS = np.empty(0)


@dataclass(frozen=True)
class Prediction:
    """Outputs for some nodes.

    Shapes: `nodes` int64 [rows], `logits` float32 [rows, outputs], `labels` as the data set has
    them; none where it has none.
    """

    nodes: NDArray[np.int64]
    logits: NDArray[np.float32]
    labels: NDArray


class Predictor(Protocol):
    """Gives the outputs of a network for some nodes, or graphs, batch by batch."""

    def sampled(
        self, nodes: NDArray[np.int64] | None, what: str = "validation"
    ) -> Iterator[Prediction]:
        """From sampled neighbours; `None` stands for all nodes, in order."""

    def exact(self, nodes: NDArray[np.int64] | None) -> Iterator[Prediction]:
        """From all neighbours; `None` stands for all nodes, in order."""


class SampledOnly:
    """A predictor whose network does not run layer by layer: each node from what it samples.

    With times a node sees its own past: there are no states of layers for all to share. Of a
    network of the user's own the layers are not known.
    """

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor

    def sampled(
        self, nodes: NDArray[np.int64] | None, what: str = "validation"
    ) -> Iterator[Prediction]:
        """From sampled neighbours."""
        return self._predictor.sampled(nodes, what)

    def exact(self, nodes: NDArray[np.int64] | None) -> Iterator[Prediction]:
        """As `sampled`; a fan-out of -1 takes all neighbours."""
        return self._predictor.sampled(nodes, "inference")


class LayerByLayer(ABC):
    """Runs a network over chosen nodes of a graph, exactly or with sampled neighbours."""

    def __init__(
        self,
        graph: Graph,
        model: Any,
        sampling: SamplingConfig,
        loaders: Loaders,
        *,
        scratch: Path,
        device: torch.device,
        observer: Observer,
        stop: StopRequest,
    ) -> None:
        self._graph = graph
        self._model = model
        self._sampling = sampling
        self._scratch = scratch
        self._device = device
        self._loaders, self._observer, self._stop = loaders, observer, stop
        self._passes = Passes(loaders, sampling, device, observer, stop)

    @abstractmethod
    def sampled(
        self, nodes: NDArray[np.int64] | None, what: str = "validation"
    ) -> Iterator[Prediction]:
        """Predictions from neighbours sampled with the training fan-outs.

        Cost: reads what a training epoch over `nodes` reads.
        """

    @abstractmethod
    def _computation(self) -> Computation:
        """The network in steps."""

    @abstractmethod
    def _labels(self, nodes: NDArray[np.int64]) -> NDArray:
        """The labels of nodes, as stored; none where the data set has none."""

    def exact(self, nodes: NDArray[np.int64] | None) -> Iterator[Prediction]:
        """Predictions from all neighbours, each layer computed once for each node.

        Every layer but the last is computed for all nodes, that one for `nodes`.

        Cost: reads the features once, in order; see `Exact.outputs`.
        Errors: `BudgetError`; `NoSpaceError` where what waits on disk does not fit on the run's
        device.
        """
        shuffled = nodes is not None and not bool((nodes[1:] > nodes[:-1]).all())
        ascending = np.unique(nodes) if nodes is not None and shuffled else nodes
        exact = Exact(
            self._graph,
            self._computation(),
            ascending,
            device=self._device,
            observer=self._observer,
            stop=self._stop,
        )
        self._plan(exact)
        with evaluating(self._model), layer_directory(self._scratch) as directory:
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


class Inference(LayerByLayer):
    """Over the nodes of a graph of one type."""

    def __init__(self, *arguments: Any, degrees: Tensor | None, **options: Any) -> None:
        """`degrees` float32 [nodes] for a network that needs them; the rest as `LayerByLayer`."""
        super().__init__(*arguments, **options)
        self._degrees = degrees

    def sampled(
        self, nodes: NDArray[np.int64] | None, what: str = "validation"
    ) -> Iterator[Prediction]:
        """As `LayerByLayer.sampled`."""
        with evaluating(self._model):
            for batch in self._passes.sampled(what, nodes, self._sampling.features):
                yield prediction_of(batch, self._forward(batch))

    def exact(self, nodes: NDArray[np.int64] | None) -> Iterator[Prediction]:
        """As `LayerByLayer.exact`; a perceptron looks at no neighbour."""
        if isinstance(self._model, Perceptron):
            return self.sampled(nodes, "inference")
        return super().exact(nodes)

    def _computation(self) -> Computation:
        key = feature_key(self._graph, self._sampling.features)
        return of_network(self._model, key, self._degrees, self._sampling.precision)

    def _labels(self, nodes: NDArray[np.int64]) -> NDArray:
        name = self._sampling.labels
        if name == "y" and not self._graph.manifest["roles"].get("labels"):
            return _NO_LABELS
        return self._graph.rows(array_key(self._graph, name).removeprefix("nodes/node/"), nodes)

    # No gradients here, rather than around the loop: that is in a generator, and a
    # `no_grad` that spans a `yield` would switch them off for whoever consumes the generator.
    @torch.no_grad()
    def _forward(self, batch: Any) -> Tensor:
        logits: Tensor = self._model(batch, self._degrees_of(batch))
        return logits

    def _degrees_of(self, batch: Any) -> Tensor | None:
        return None if self._degrees is None else self._degrees[batch.n_id.cpu()].to(self._device)


@dataclass(frozen=True)
class Sizes:
    """Seeds a batch: as many as wanted, not fewer than the least."""

    wanted: int
    least: int


class Passes:
    """Passes over the nodes of a graph, in order, for models of one type and of several."""

    def __init__(
        self,
        loaders: Loaders,
        sampling: SamplingConfig,
        device: torch.device,
        observer: Observer,
        stop: StopRequest,
    ) -> None:
        self._loaders = loaders
        self._sampling = sampling
        self._device = device
        self._observer = observer
        self._stop = stop

    def sampled(self, what: str, nodes: Any, features: Any) -> Iterator[Any]:
        """Batches of `nodes` with the training fan-outs and labels."""
        # Smaller than in training, to fit the smaller share of the budget; the same whatever the
        # budget is, because what is sampled depends on the batch.
        batch_size = max(self._sampling.seeds // 4, min(self._sampling.seeds, 64))
        return self.batches(
            what,
            Sizes(batch_size, batch_size),
            num_neighbors=self._loaders.fanout(),
            input_nodes=nodes,
            replace=self._sampling.replace,
            features=features,
            labels=self._sampling.labels,
        )

    def batches(self, what: str, sizes: Sizes, **arguments: Any) -> Iterator[Any]:
        """Batches of an evaluation loader, in order.

        Where one needs more memory than there is, batches are halved from there on, and at last
        the training loader gives up its part.
        """
        size, done = sizes.wanted, 0
        while True:
            try:
                with self._loaders.evaluation(batch_size=size, **arguments) as loader:
                    self._observer.evaluation_started(what, len(loader), done)
                    loader.seek(done)
                    for batch in loader:
                        self._stop.check()
                        yield batch.to(self._device)
                        done += 1
                        self._observer.evaluation_advanced(1)
                return
            except BudgetError:
                if size // 2 >= sizes.least:
                    size, done = size // 2, done * 2
                elif not self._loaders.use_whole_budget():
                    raise


@contextmanager
def layer_directory(scratch: Path) -> Iterator[Path]:
    """A directory for the states between layers, which is removed in the end.

    Errors: `NoSpaceError`, `DeviceError` where it cannot be made.
    """
    with device_errors(f"layer states `{scratch}`"):
        scratch.mkdir(parents=True, exist_ok=True)
    with scratch_directory(scratch, "layers-") as directory:
        yield directory


class evaluating:  # noqa: N801 - reads as the statement `with evaluating(model)`
    """Dropout off and running statistics frozen within the block."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model

    def __enter__(self) -> None:
        self._training = self._model.training
        self._model.eval()

    def __exit__(self, *_: object) -> None:
        self._model.train(self._training)


def prediction_of(batch: Any, logits: Tensor) -> Prediction:
    """The outputs for the seeds of a batch, with their ids and labels."""
    # Without labels, PyG gives none or leaves the field out.
    labels = getattr(batch, "y", None)
    return Prediction(
        nodes=batch.n_id[: batch.batch_size].cpu().numpy(),
        logits=logits.detach().cpu().float().numpy(),
        labels=_NO_LABELS if labels is None else labels[: batch.batch_size].cpu().numpy(),
    )
