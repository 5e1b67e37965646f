"""Scores of a network: after each epoch, and in the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from outercore.data.many_graphs import Labelled
from outercore.data.split_names import normal_split
from outercore.training.config import TrainConfig, Validation
from outercore.training.inference import Prediction, Predictor
from outercore.training.metrics import Metric
from outercore.training.tasks import Task

_FULL_VALIDATION_EDGES = 2_000_000


class AnyScoring(ABC):
    """Scores of a model on the parts of its data that are not trained on."""

    has_validation: bool
    validates_fully: bool
    """Whether epochs are scored over all neighbours."""

    def validation_kind(self) -> str:
        """How epochs are scored: `full`, `sampled`, or `none` without validation data."""
        if not self.has_validation:
            return "none"
        return "full" if self.validates_fully else "sampled"

    def validation(self) -> float | None:
        """The score after an epoch; `None` without validation data."""
        return self._validation().value() if self.has_validation else None

    @abstractmethod
    def _validation(self) -> AnyMetric:
        """The score on the validation data."""

    @abstractmethod
    def final(self) -> Mapping[str, AnyMetric]:
        """The last scores by part; exact, except with times."""


class AnyMetric(Protocol):
    """A score."""

    def value(self) -> float | None:
        """The score; `None` where it is not defined."""


def validates_fully(chosen: Validation, edges: int) -> bool:
    """Whether epochs are scored over all neighbours, of a graph with so many arcs."""
    if chosen == "auto":
        return edges <= _FULL_VALIDATION_EDGES
    return chosen == "full"


class Scoring(AnyScoring):
    """Evaluates the network of a `Predictor` on the splits of a data set."""

    def __init__(
        self, graph: Labelled, config: TrainConfig, task: Task, predictor: Predictor
    ) -> None:
        self._graph, self._config, self._task, self._predictor = graph, config, task, predictor
        self.has_validation = config.sampling.valid in graph.splits
        self.validates_fully = not predictor.samples_only and validates_fully(
            config.run.validation, graph.num_edges
        )

    def _validation(self) -> Metric:
        name = self._config.sampling.valid
        nodes = self._graph.split(name)
        run = self._predictor.exact if self.validates_fully else self._predictor.sampled
        return next(iter(self._score(run(nodes), {name: nodes}).values()))

    def final(self) -> dict[str, Metric]:
        """Exact scores on the splits `valid` and `test` under their normal names, in one pass.

        With sampled neighbours each split has a pass: samples depend on the other nodes of a batch,
        and in `outercore evaluate` these are from the same split.
        """
        sampling = self._config.sampling
        splits = {
            name: self._graph.split(name)
            for name in (sampling.valid, sampling.test)
            if name in self._graph.splits
        }
        if not splits:
            return {}
        if self._predictor.samples_only:
            found: dict[str, Metric] = {}
            for name, nodes in splits.items():
                found |= self._score(self._predictor.sampled(nodes), {name: nodes})
            return found
        nodes = np.unique(np.concatenate(list(splits.values())))
        return self._score(self._predictor.exact(nodes), splits)

    def _score(
        self, predictions: Iterable[Prediction], splits: dict[str, NDArray[np.int64]]
    ) -> dict[str, Metric]:
        metrics = {name: self._task.metric() for name in splits}
        members = {name: np.unique(nodes) for name, nodes in splits.items()}
        for prediction in predictions:
            for name, metric in metrics.items():
                chosen = np.isin(prediction.nodes, members[name])
                if chosen.any():
                    self._task.update(metric, prediction.logits[chosen], prediction.labels[chosen])
        return {normal_split(name): metric for name, metric in metrics.items()}
