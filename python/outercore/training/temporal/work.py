"""Learning edges by time: the task `link` with `--time`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from outercore.data.many_graphs import Labelled
from outercore.errors import UnsupportedError
from outercore.runs.progress import Observer
from outercore.runs.record import Timeline
from outercore.runs.stop import StopRequest
from outercore.training.config import LinkMetric, TrainConfig
from outercore.training.inference import Passes
from outercore.training.links.model import link_loss
from outercore.training.loaders import TABLE_COPIES, LoaderFactory, Loaders
from outercore.training.model_files import SavedModel
from outercore.training.tasks import link_task
from outercore.training.temporal.links import (
    TimedLinks,
    timed_links,
    times_by_type,
)
from outercore.training.temporal.network import TemporalLinkModel, TimedSchema
from outercore.training.temporal.scoring import TemporalScoring
from outercore.training.typed.inputs import feature_keys, require_same_types, schema_of

if TYPE_CHECKING:
    from outercore.data.graph import Graph


class TemporalLinkWork:
    """The edges of one type, against other targets at the same time.

    All edges of the data set pass messages, each to what comes after it: no edge that is held out
    needs to be taken out. `saved` is a model to score.

    Errors: those of `timed_links`; `BudgetError` where the edges or embeddings take all memory.
    """

    rows = "edges"

    def __init__(
        self,
        graph: Graph,
        config: TrainConfig,
        *,
        open_loader: LoaderFactory,
        note: Callable[[str], None],
        saved: SavedModel | None = None,
    ) -> None:
        _require_fits(graph, config)
        self._graph, self._config = graph, config
        self.links = timed_links(graph, config)
        self._is_saved = saved is not None
        self._keys = keys = feature_keys(graph, config.sampling.features)
        source, _, target = self.links.edge_type
        seeds = tuple(dict.fromkeys((source, target)))
        if saved is None:
            self.task = link_task(config.run.metric, config.model.hidden)
            types = schema_of(graph, seeds, config, keys, note)
            timed = times_by_type(graph, config)
            array = timed[self.links.edge_type].rpartition("/")[2]
            schema = TimedSchema(types, frozenset(timed), array, self.links.span)
            self.model = TemporalLinkModel(config, schema)
            copies = TABLE_COPIES
        else:
            assert isinstance(saved.model, TemporalLinkModel)
            self.task, self.model = saved.task, saved.model
            require_same_types(graph, keys, self.model.schema.types, seeds)
            copies = 1
        types = self.model.schema.types
        self.loaders = TemporalLoaders(
            graph,
            config,
            self.links,
            features={name: keys[name] for name, of in types.inputs.items() if of.features},
            embeddings=4 * config.model.hidden * copies * types.table_rows,
            open_loader=open_loader,
            note=note,
        )

    @property
    def labelled(self) -> Labelled:
        """The data set."""
        return self._graph

    def prepare(self, timeline: Timeline | None = None) -> None:
        """Measures the scales of features, which a saved model has."""
        if self._is_saved:
            return
        with timeline.span("feature scales") if timeline is not None else nullcontext():
            self.model.encoder.standardise(self._graph, self._keys)

    def loss(self, batch: Any, device: torch.device) -> tuple[Tensor, int]:
        """How far the edges of a batch are from scoring above their negatives."""
        positive, negative = self.model(batch.to(device))
        return link_loss(self._config.link.loss, positive, negative), len(positive)

    def scoring(
        self, *, scratch: Path, device: torch.device, observer: Observer, stop: StopRequest
    ) -> TemporalScoring:
        """Scores on the edges that come after the training."""
        del scratch
        metric = cast("LinkMetric", self.task.metric_name)
        passes = Passes(self.loaders, self._config.sampling, device, observer, stop)
        return TemporalScoring(self.links, self.model, metric, self.loaders, passes)

    def facts(self) -> dict[str, Any]:
        """Which edges are predicted, how many of each part, and from which times on."""
        links = self.links
        return {
            "links": {
                "edge_type": list(links.edge_type),
                "train": links.count("train"),
                **{part: links.count(part) for part in links.parts},
                **{
                    f"{part}_from_time": int(links.times[links.part(part).start])
                    for part in links.parts
                },
            }
        }


class TemporalLoaders(Loaders):
    """`Loaders` of links with their times; all edges of the type are in memory, too."""

    advice = "give more memory by `--memory`"

    def __init__(
        self,
        graph: Graph,
        config: TrainConfig,
        links: TimedLinks,
        *,
        features: dict[str, str],
        embeddings: int,
        **options: Any,
    ) -> None:
        """`features` by node type; `embeddings` in bytes; `options` as those of `Loaders`."""
        reserved = {"edges": links.memory, "embeddings": embeddings}
        super().__init__(graph, config, reserved=reserved, **options)
        self._links, self._features = links, features

    def features(self) -> Any:
        """The array of each node type that has features; of one type its name."""
        if self._graph.is_typed:
            return self._features or None
        return next(iter(self._features.values()), None)

    def of_links(self, part: str, negatives: int) -> dict[str, Any]:
        """What a loader of the links of a part is asked for."""
        links, chosen = self._links, self._config.link
        places = links.part(part)
        index = links.index[:, places]
        sampling: dict[str, Any] = {"mode": "triplet", "amount": negatives}
        if chosen.negative_ends == "degree":
            trained = links.index[1, links.part("train")]
            count = self._graph.node_types[links.edge_type[2]]
            # Those of the training: how often a target comes later is not known yet.
            sampling["dst_weight"] = np.bincount(trained, minlength=count).astype(np.float64)
        return {
            "of_links": True,
            "num_neighbors": self.fanout(),
            "edge_label_index": (links.edge_type, index) if self._graph.is_typed else index,
            "edge_label_time": links.times[places],
            # An edge does not see itself, nor what comes at the same time.
            "equal_times": "hidden",
            "neg_sampling": sampling,
            "batch_size": self._config.sampling.batch_size,
            "replace": self._config.sampling.replace,
            "features": self.features(),
            "labels": None,
            "arrays": self._time_keys(),
        }

    def _open_training(self) -> Any:
        return self._open(
            memory=self.training_memory,
            shuffle=True,
            hotness="none",
            far=self._far,
            **self.of_links("train", self._config.link.negatives),
        )

    def _time_keys(self) -> list[str]:
        return sorted(times_by_type(self._graph, self._config).values())


def _require_fits(graph: Graph, config: TrainConfig) -> None:
    """Errors: `UnsupportedError` for what is not there with times."""
    if config.model.kind not in ("sage", "gat"):
        raise UnsupportedError(
            f"model `{config.model.kind}`: edges with times are learnt by `sage` or `gat`\n"
            "hint: choose one of these by `--model`"
        )
    if config.model.residual or config.model.jumping != "none":
        raise UnsupportedError(
            "model.residual, model.jumping: networks of edges with times have neither\n"
            "hint: leave them out"
        )
    if config.link.edges is not None:
        raise UnsupportedError(
            "link.held_out_edges: with `--time` the latest edges are held out\n"
            "hint: choose how many by `--set link.held_out=SHARE`"
        )
