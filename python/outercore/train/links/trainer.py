"""The training loop over edges: what differs from training over nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch import Tensor

from outercore.graph import Graph
from outercore.storage import Storage
from outercore.train.config import LinkMetric, SamplingConfig, TrainConfig
from outercore.train.inference import Inference
from outercore.train.links.data import LinkData, open_links
from outercore.train.links.loaders import LinkLoaders, require_fits
from outercore.train.links.model import LinkModel, link_loss
from outercore.train.links.scoring import TABLE, LinkScoring
from outercore.train.loop import Trainer
from outercore.train.models import Network, Perceptron
from outercore.train.run_directory import RunDirectory
from outercore.train.stopping import StopRequest
from outercore.train.summary import describe
from outercore.train.tasks import Task, link_task


class LinkTrainer(Trainer):
    """A `Trainer` whose batches are edges, and whose graph is that of the training edges."""

    def __init__(
        self,
        graph: Graph,
        config: TrainConfig,
        run: RunDirectory,
        *,
        stop: StopRequest | None = None,
        storage: Storage | None = None,
        **options: Any,
    ) -> None:
        """As `Trainer`; prepares the run's edges where they are not yet.

        Errors: `BudgetError` where a learned table does not fit; those of `open_links`.
        """
        stop = stop or StopRequest()
        require_fits(graph, config)
        self._links = open_links(run.links, graph, config, stop.check, storage)
        super().__init__(self._links.graph, config, run, stop=stop, storage=storage, **options)

    def _find_task(self) -> Task:
        return link_task(self._config.run.metric, self._config.model.hidden)

    def _build_model(self) -> LinkModel:
        return build_link_model(self._links, self._config)

    def _open_loaders(self) -> LinkLoaders:
        return LinkLoaders(
            self._links,
            self._config,
            lambda: self._position,
            degrees=self._model.needs_degrees,
            open_loader=self._open_loader,
            note=self._observer.note,
        )

    def _network(self) -> Network | Perceptron:
        return self._link_model.encoder

    def _inference_sampling(self) -> SamplingConfig:
        return inference_sampling(self._links, self._config, self._run.scratch)

    def _open_scoring(self, inference: Inference) -> LinkScoring:
        return LinkScoring(
            self._links,
            self._config,
            self._link_model,
            cast("LinkMetric", self._task.metric_name),
            inference,
            self._run.scratch,
            self._device,
        )

    def _describe(self) -> dict[str, Any]:
        described = describe(
            self._links.original,
            self._config,
            self._model,
            self._task,
            run=str(self._run.path),
            device=str(self._device),
            validation=self._scoring.validation_kind(),
        )
        parts = {part: self._links.part(part) for part in self._links.parts}
        described["data_set"]["links"] = {
            "train": len(self._links.train()),
            "message_passing_arcs": self._links.graph.num_edges,
            **{part: len(pairs.edges) for part, pairs in parts.items()},
            **{f"{part}_neg": len(pairs.negatives) for part, pairs in parts.items()},
        }
        return described

    def _loss(self, batch: Any, degrees: Tensor | None) -> tuple[Tensor, int]:
        # Of a node that lost arcs to the batch's own edges, the degree without them.
        embeddings = self._model(batch, None if degrees is None else degrees * batch.kept)
        positive, negative = (
            self._link_model.head(embeddings[pairs[0]], embeddings[pairs[1]])
            for pairs in (batch.edges, batch.negatives)
        )
        count = len(positive)
        loss = link_loss(self._config.link.loss, positive, negative.view(count, -1))
        return loss, count

    @property
    def _link_model(self) -> LinkModel:
        return cast("LinkModel", self._model)


def build_link_model(links: LinkData, config: TrainConfig) -> LinkModel:
    """A fresh model for the nodes of a run's graph."""
    if links.features is None:
        return LinkModel(config, config.model.hidden, links.graph.num_nodes)
    shape = np.load(links.features, mmap_mode="r").shape
    return LinkModel(config, int(shape[1]) if len(shape) == 2 else 1)


def inference_sampling(links: LinkData, config: TrainConfig, scratch: Path) -> SamplingConfig:
    """Which features inference reads: those of the nodes, or the file of the learned table."""
    return replace(config.sampling, features=links.features or str((scratch / TABLE).resolve()))
