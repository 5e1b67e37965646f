"""Learning edges: the task `link`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from outercore.files.atomic import Storage
from outercore.runs.record import Timeline
from outercore.runs.stop import StopRequest
from outercore.training.checkpoint import Position
from outercore.training.config import LinkMetric, TrainConfig
from outercore.training.degrees import degrees_for
from outercore.training.inference import Context, Inference
from outercore.training.links.batches import LinkLoaders, require_fits
from outercore.training.links.data import LinkData, open_links
from outercore.training.links.model import LinkModel, link_loss
from outercore.training.links.scoring import LinkScoring
from outercore.training.loaders import LoaderFactory, Loaders
from outercore.training.model_files import SavedModel
from outercore.training.tasks import link_task
from outercore.training.work import Work

if TYPE_CHECKING:
    from outercore.data.graph import Graph


@dataclass(frozen=True)
class LinkPlace:
    """The directory of a run's prepared edges, and the progress of its training."""

    directory: Path
    position: Callable[[], Position]
    stop: StopRequest
    storage: Storage | None = None


class LinkWork(Work):
    """Edges, against pairs of nodes without an edge; messages pass along the training edges.

    Prepares the edges of the run if needed; `saved` is a model to score.

    Errors: `BudgetError` if a learned table does not fit; as `open_links`.
    """

    rows = "edges"
    loaders: Loaders

    def __init__(
        self,
        graph: Graph,
        config: TrainConfig,
        place: LinkPlace,
        *,
        open_loader: LoaderFactory,
        note: Callable[[str], None],
        saved: SavedModel | None = None,
    ) -> None:
        if saved is None:
            require_fits(graph, config)
        self._config = config
        stop, storage = place.stop.check, place.storage
        self.links = open_links(place.directory, graph, config, stop, storage)
        self.labelled = graph
        if saved is None:
            self.task = link_task(config.run.metric, config.model.hidden)
            self.model = build_link_model(self.links, config)
        else:
            assert isinstance(saved.model, LinkModel)
            self.task, self.model = saved.task, saved.model
        self._degrees: Tensor | None = None
        self.loaders = LinkLoaders(
            self.links,
            config,
            place.position,
            degrees=self.model.needs_degrees,
            open_loader=open_loader,
            note=note,
        )

    def prepare(self, timeline: Timeline | None = None) -> None:
        """Reads the in-degrees if the network weighs by them."""
        self._degrees = degrees_for(self.model.encoder, self.links.graph, timeline)

    def loss(self, batch: Any, device: torch.device) -> tuple[Tensor, int]:
        """The loss of a batch's edges against its negatives."""
        degrees = None
        if self._degrees is not None:
            # Arcs that are edges of the batch were left out: degrees are without them.
            degrees = self._degrees[batch.n_id].to(device) * batch.kept.to(device)
        batch = batch.to(device)
        embeddings = self.model(batch, degrees)
        positive, negative = (
            self.model.head(embeddings[pairs[0]], embeddings[pairs[1]])
            for pairs in (batch.edges, batch.negatives)
        )
        count = len(positive)
        return link_loss(self._config.link.loss, positive, negative.view(count, -1)), count

    def scoring(self, context: Context) -> LinkScoring:
        """Scores on the held-out edges of the run."""
        inference = Inference(
            self.links.graph,
            self.model,
            # The graph of training edges has no labels, whatever array the option names.
            replace(self._config.sampling, labels="y"),
            self.loaders,
            context,
            degrees=self._degrees,
        )
        metric = cast("LinkMetric", self.task.metric_name)
        return LinkScoring(self.links, self._config, self.model, metric, inference, context)

    def facts(self) -> dict[str, Any]:
        """How many edges are trained on, pass messages, and are held out."""
        sizes = {part: self.links.sizes(part) for part in self.links.parts}
        links = {
            "train": len(self.links.train()),
            "message_passing_arcs": self.links.graph.num_edges,
            **{part: edges for part, (edges, _) in sizes.items()},
            **{f"{part}_neg": negatives for part, (_, negatives) in sizes.items()},
        }
        return {"links": links}


def build_link_model(links: LinkData, config: TrainConfig) -> LinkModel:
    """A fresh model for the nodes of a run's graph."""
    if links.features is None:
        return LinkModel(config, config.model.hidden, links.graph.num_nodes)
    shape = np.load(links.features, mmap_mode="r").shape
    return LinkModel(config, int(shape[1]) if len(shape) == 2 else 1)
