"""What a run learns from: here nodes with sampled neighbours.

Whole graphs are in `graph_work.py`, edges in `links/work.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from outercore.data.many_graphs import Labelled
from outercore.errors import InvalidError
from outercore.runs.progress import Observer
from outercore.runs.record import Timeline
from outercore.runs.stop import StopRequest
from outercore.training.config import TrainConfig
from outercore.training.custom_network import OwnCode, OwnNetwork, build_own
from outercore.training.degrees import degrees_for
from outercore.training.inference import Inference, Predictor, SampledOnly
from outercore.training.loaders import LoaderFactory, Loaders
from outercore.training.model_files import SavedModel
from outercore.training.models import build_model
from outercore.training.scoring import AnyScoring, Scoring
from outercore.training.splits import nodes_of
from outercore.training.tasks import Task, array_key, detect_task

if TYPE_CHECKING:
    from outercore.data.graph import Graph


class TrainingBatches(Protocol):
    """Where the batches of training come from."""

    training_plan: dict[str, Any]
    """What is kept in memory."""

    @property
    def shares(self) -> dict[str, int]:
        """How training and validation share the budget, in bytes."""

    def training(self) -> Any:
        """The loader of training."""

    def use_whole_budget(self) -> bool:
        """Lets training and scores take turns with all of the budget; whether that helps."""

    def release_training(self) -> None:
        """Leaves the whole budget to scores."""

    def close(self) -> None:
        """Closes what is open."""


class Work(Protocol):
    """The task, the network and the batches of a run."""

    task: Task
    model: Any
    rows: str
    """What is predicted: `nodes`, `graphs` or `edges`."""

    @property
    def labelled(self) -> Labelled:
        """Where the labels and splits are."""

    @property
    def loaders(self) -> TrainingBatches:
        """The batches."""

    def prepare(self, timeline: Timeline | None = None) -> None:
        """Reads what every batch needs."""

    def loss(self, batch: Any, device: torch.device) -> tuple[Tensor, int]:
        """The mean loss of a batch of training, and of how many seeds it is the mean."""

    def scoring(
        self, *, scratch: Path, device: torch.device, observer: Observer, stop: StopRequest
    ) -> AnyScoring:
        """What scores the network after each epoch, and in the end."""

    def facts(self) -> dict[str, Any]:
        """What the run record says of the data set besides its sizes."""


class PredictingWork(Work, Protocol):
    """A work whose network predicts a value for each row."""

    def predictor(
        self, *, scratch: Path, device: torch.device, observer: Observer, stop: StopRequest
    ) -> Predictor:
        """What runs the network as it is."""


class ScoredOnSplits(ABC):
    """A work whose network is scored on the splits of the data set."""

    labelled: Labelled
    task: Task
    model: Any
    _config: TrainConfig

    def scoring(
        self, *, scratch: Path, device: torch.device, observer: Observer, stop: StopRequest
    ) -> AnyScoring:
        """As `Work` says."""
        predictor = self.predictor(scratch=scratch, device=device, observer=observer, stop=stop)
        return Scoring(self.labelled, self._config, self.task, predictor)

    def predictor(
        self, *, scratch: Path, device: torch.device, observer: Observer, stop: StopRequest
    ) -> Predictor:
        """As `PredictingWork` says."""
        found = self._inference(scratch=scratch, device=device, observer=observer, stop=stop)
        return SampledOnly(found) if samples_only(self._config, self.model) else found

    @abstractmethod
    def _inference(
        self, *, scratch: Path, device: torch.device, observer: Observer, stop: StopRequest
    ) -> Predictor:
        """What runs the network over all neighbours, or over sampled ones."""


class NodeWork(ScoredOnSplits):
    """Nodes, each by its sampled neighbours.

    A freshly initialised network is a function of the configuration and PyTorch's seed; `saved` is
    one to score instead.

    Errors: `NotFoundError` without labels; `InvalidError` where features or labels do not fit.
    """

    rows = "nodes"

    def __init__(
        self,
        graph: Graph,
        config: TrainConfig,
        *,
        open_loader: LoaderFactory,
        note: Callable[[str], None],
        saved: SavedModel | None = None,
        own: OwnCode | None = None,
    ) -> None:
        """`own` makes the network in place of the configuration."""
        self.labelled = graph
        self._graph, self._config = graph, config
        if saved is None:
            self.task = detect_task(
                graph,
                config.sampling.labels,
                config.run.metric,
                config.run.task,
                nodes_of(graph, config.sampling.train),
            )
            features = _width(graph, config.sampling.features)
            sizes = (config.model, config.layers, features, self.task.outputs)
            self.model: Any = build_model(*sizes) if own is None else build_own(own, *sizes)
        else:
            self.task, self.model = saved.task, saved.model
            _require_features(graph, config, self.model.features)
        self._degrees: Tensor | None = None
        self.loaders = Loaders(
            graph,
            config,
            reserved={"in-degrees": 4 * graph.num_nodes if self.model.needs_degrees else 0},
            open_loader=open_loader,
            note=note,
        )

    def prepare(self, timeline: Timeline | None = None) -> None:
        """Reads the in-degrees where the network weighs by them."""
        self._degrees = degrees_for(self.model, self._graph, timeline)

    def loss(self, batch: Any, device: torch.device) -> tuple[Tensor, int]:
        """That of the task, over the seeds."""
        degrees = None
        if self._degrees is not None:
            degrees = self._degrees[batch.n_id].to(device)
        batch = batch.to(device)
        labels = batch.y[: batch.batch_size]
        return self.task.loss(self.model(batch, degrees), labels), int(batch.batch_size)

    def _inference(
        self, *, scratch: Path, device: torch.device, observer: Observer, stop: StopRequest
    ) -> Predictor:
        return Inference(
            self._graph,
            self.model,
            self._config.sampling,
            self.loaders,
            degrees=self._degrees,
            scratch=scratch,
            device=device,
            observer=observer,
            stop=stop,
        )

    def facts(self) -> dict[str, Any]:
        """Nothing more."""
        return {}


def samples_only(config: TrainConfig, model: Any) -> bool:
    """Whether a model is scored with sampled neighbours in any case."""
    return config.sampling.time is not None or isinstance(model, OwnNetwork)


def _require_features(graph: Graph, config: TrainConfig, expected: int) -> None:
    found = graph.num_features
    if config.sampling.features == "x" and found != expected:
        raise InvalidError(
            f"data set `{graph.root}`: expected {expected} features a node, as the model "
            f"was trained with, found {found}"
        )


def _width(graph: Graph, features: str) -> int:
    shape = graph.manifest["arrays"][array_key(graph, features)]["shape"]
    return int(shape[1]) if len(shape) == 2 else 1
