"""Learning to predict edges, with and without times: the work of training, and its scores."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.errors import InvalidError, UnsupportedError
from outercore.files.atomic import Storage, device_errors
from outercore.files.large_arrays import forget
from outercore.files.npy import NpyRows, map_npy
from outercore.runs.stop import StopRequest
from outercore.training.checkpoint import Position
from outercore.training.config import LinkMetric, TrainConfig
from outercore.training.inference import Context, Inference, evaluation_batches
from outercore.training.links.batches import LinkLoaders, require_fits
from outercore.training.links.data import open_links
from outercore.training.links.network import LinkModel, TemporalLinkModel, TimedSchema, link_loss
from outercore.training.links.timed import NEGATIVES, timed_links, times_by_type
from outercore.training.loaders import LoaderFactory, Loaders
from outercore.training.metrics import (
    LinkScores,
    Scoring,
    SeparateNegatives,
    least_negatives,
    validates_fully,
)
from outercore.training.model_files import SavedModel
from outercore.training.models import evaluating
from outercore.training.tasks import Task, link_task
from outercore.training.typed_network import (
    feature_keys,
    require_same_types,
    schema_of,
    table_bytes,
)
from outercore.training.work import Work

if TYPE_CHECKING:
    from outercore.data.graph import Graph


OF_EDGES_BY_TIME = ("sage", "gat")
"""Models that can learn edges with times."""
_PAIRS = 1 << 14
"""Number of pairs that are scored together."""

PairScores: TypeAlias = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""A function from pairs of nodes int64 [n, 2] to their scores float32 [n]."""


class EdgeScoring(Scoring):
    """Evaluates a model on the held-out edges of a run, split by split.

    Errors: `InvalidError` for a metric that the negatives of a split do not allow.
    """

    def __init__(self, task: Task, negatives: Mapping[str, int | None]) -> None:
        """Checks that the metric is defined for each split.

        `negatives` are the numbers of shared negatives by split; `None` if each edge has separate
        negatives.
        """
        self._parts, self._metric = list(negatives), cast("LinkMetric", task.metric_name)
        metric = self._metric
        self.has_validation = "valid" in negatives
        least = least_negatives(metric)
        for part, count in negatives.items():
            if count is None and metric == "average_precision":
                raise InvalidError(
                    f"metric `{metric}`: part `{part}` has negatives of its own for each edge, and "
                    "no threshold for all\nhint: choose `mrr` by `--metric`"
                )
            if count is not None and count < least:
                raise InvalidError(
                    f"metric `{metric}`: expected at least {least} negatives in part `{part}`, "
                    f"found {count}\nhint: choose another by `--metric`, or hold out more"
                )

    @abstractmethod
    def scores(self, part: str, *, sampled: bool = False) -> LinkScores:
        """Computes the scores of a held-out split, from all neighbours or from `sampled` ones."""

    def _validation(self) -> LinkScores:
        return self.scores("valid", sampled=not self.validates_fully)

    def final(self) -> dict[str, LinkScores]:
        """Computes the scores of all held-out splits."""
        return {part: self.scores(part) for part in self._parts}


class LinkScoring(EdgeScoring):
    """Scores held-out edges by embeddings from the graph of training edges."""

    def __init__(self, work: LinkWork, inference: Inference, context: Context) -> None:
        """Binds `inference`, which runs the model over the graph of training edges."""
        self._data, self._model, self._inference = work.links, work.model, inference
        parts = {part: work.links.part(part) for part in work.links.parts}
        negatives = {
            part: None if pairs.targets is not None else len(pairs.negatives)
            for part, pairs in parts.items()
        }
        super().__init__(work.task, negatives)
        self._scratch, self._device = context.scratch, context.device
        self.validates_fully = work.validates_fully

    def scores(self, part: str, *, sampled: bool = False) -> LinkScores:
        """Computes the scores of a held-out split, from all neighbours or from `sampled` ones.

        Cost: as `Inference`. The embeddings of all ends are on disk during the call.
        """
        pairs = self._data.part(part)
        nodes = np.unique(np.concatenate([pairs.edges.ravel(), pairs.negatives.ravel()]))
        if pairs.targets is None:
            with self.embedded(nodes, sampled=sampled) as scored:
                return LinkScores(self._metric, scored(pairs.edges), scored(pairs.negatives))
        count = pairs.targets.shape[1]
        some_edges = max(1, _PAIRS // count)
        for first in range(0, len(pairs.targets), some_edges):
            nodes = np.union1d(nodes, pairs.targets[first : first + some_edges])
        with self.embedded(nodes, sampled=sampled) as scored:
            scores = SeparateNegatives(self._metric, scored(pairs.edges))
            for first in range(0, len(pairs.targets), some_edges):
                targets = np.asarray(pairs.targets[first : first + some_edges])
                sources = pairs.edges[first : first + some_edges, :1].repeat(count, axis=1)
                made = np.stack([sources, targets], axis=-1).reshape(-1, 2)
                scores.add(scored(made).reshape(-1, count))
        return scores

    @contextmanager
    def embedded(self, nodes: NDArray[np.int64], *, sampled: bool = False) -> Iterator[PairScores]:
        """Context with a function that scores pairs of `nodes`. The nodes must be ascending.

        Cost: as `Inference`. The embeddings of all nodes are on disk during the block.
        """
        with device_errors(f"embeddings `{self._scratch}`"):
            self._scratch.mkdir(parents=True, exist_ok=True)
        shape = (len(nodes), self._model.outputs)
        rows = NpyRows(self._scratch / "ends.npy", shape, durable=False)
        run = self._inference.sampled if sampled else self._inference.exact
        with rows:
            for prediction in run(nodes):
                rows.append(prediction.logits)
        embeddings = map_npy(rows.path, "embeddings")
        try:
            with evaluating(self._model.head):
                yield lambda pairs: self._of_pairs(embeddings, np.searchsorted(nodes, pairs))
        finally:
            rows.remove()

    @torch.no_grad()
    def _of_pairs(
        self, embeddings: NDArray[np.float32], places: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        scores = np.empty(len(places), np.float32)
        for start in range(0, len(places), _PAIRS):
            some = places[start : start + _PAIRS]
            first, second = (self._rows(embeddings, column) for column in some.T)
            scores[start : start + len(some)] = self._model.head(first, second).cpu().numpy()
            forget(embeddings)
        return scores

    def _rows(self, embeddings: NDArray[np.float32], places: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(embeddings[places]).to(self._device)


@dataclass(frozen=True)
class LinkPlace:
    """The directory of a run's prepared edges, and the progress of its training."""

    directory: Path
    position: Callable[[], Position]
    stop: StopRequest
    storage: Storage | None = None


class LinkWork(Work):
    """Learns to score edges above pairs of nodes without an edge.

    Messages pass along the training edges only. The constructor prepares the edges of the run if
    needed. `saved` is a trained model to score; without it, a new model is made.

    Errors: `BudgetError` if a learned table does not fit; errors of `open_links`.
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
        self._config, self.labelled = config, graph
        stop, storage = place.stop.check, place.storage
        self.links = open_links(place.directory, graph, config, stop, storage)
        self._graph = self.links.graph
        self.validates_fully = validates_fully(config.run.validation, self._graph.num_edges)
        if saved is None:
            self.task = link_task(config.run.metric, config.model.hidden)
            features, rows = self.links.features, 0
            if features is None:
                width, rows = config.model.hidden, graph.num_nodes
            else:
                width = prod(map_npy(Path(features), "features").shape[1:])
            self.model = LinkModel(config, width, rows)
        else:
            assert isinstance(saved.model, LinkModel)
            self.task, self.model = saved.task, saved.model
        self.loaders = LinkLoaders(
            self.links,
            config,
            place.position,
            degrees=self.model.needs_degrees,
            open_loader=open_loader,
            note=note,
        )

    def loss(self, batch: Any, device: torch.device) -> tuple[Tensor, int]:
        """The loss of a batch's edges and negatives, and the number of edges."""
        degrees, batch = self._degrees_of(batch, device), batch.to(device)
        if degrees is not None:
            # The batch lacks the arcs of its edges, so the in-degrees are reduced accordingly.
            degrees = degrees * batch.kept
        embeddings = self.model(batch, degrees)
        positive, negative = (
            self.model.head(embeddings[pairs[0]], embeddings[pairs[1]])
            for pairs in (batch.edges, batch.negatives)
        )
        count = len(positive)
        return link_loss(self._config.link.loss, positive, negative.view(count, -1)), count

    def scoring(self, context: Context) -> LinkScoring:
        """The scoring on the held-out edges of the run."""
        inference = Inference(
            self.links.graph,
            self.model,
            # The graph of training edges has no labels, so the option names no array of it.
            replace(self._config.sampling, labels="y"),
            self.loaders,
            context,
            degrees=self._degrees,
        )
        return LinkScoring(self, inference, context)

    def facts(self) -> dict[str, Any]:
        """The numbers of training edges, arcs for messages, and edges of each held-out split."""
        sizes = {part: self.links.sizes(part) for part in self.links.parts}
        links = {
            "train": len(self.links.train()),
            "message_passing_arcs": self.links.graph.num_edges,
            **{part: edges for part, (edges, _) in sizes.items()},
            **{f"{part}_neg": negatives for part, (_, negatives) in sizes.items()},
        }
        return {"links": links}


class TemporalLinkWork(Work):
    """Learns to score the edges of one type above other targets of the source at the same time.

    All edges of the data set pass messages, but only to later links. So held-out edges need not be
    left out. `saved` is a trained model to score; without it, a new model is made.

    Errors: as `timed_links`; `BudgetError` if the edges or embeddings take all memory.
    """

    rows = "edges"
    loaders: Loaders

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
        self._graph, self._config, self.labelled = graph, config, graph
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
        else:
            assert isinstance(saved.model, TemporalLinkModel)
            self.task, self.model = saved.task, saved.model
            require_same_types(graph, keys, self.model.schema.types, seeds)
        rows = self.model.schema.types.table_rows
        embeddings = table_bytes(rows, config.model.hidden, is_saved=self._is_saved)
        self.loaders = Loaders(
            graph,
            config,
            seeds={**self.links_of("train", config.link.negatives), "hotness": "none"},
            reserved={"edges": self.links.memory, "embeddings": embeddings},
            open_loader=open_loader,
            note=note,
        )

    def loss(self, batch: Any, device: torch.device) -> tuple[Tensor, int]:
        """The loss of a batch's edges and their negatives, and the number of edges."""
        positive, negative = self.model(batch.to(device))
        return link_loss(self._config.link.loss, positive, negative), len(positive)

    def scoring(self, context: Context) -> TemporalScoring:
        """The scoring on the edges that are later than the training edges."""
        return TemporalScoring(self, context)

    def links_of(self, part: str, negatives: int) -> dict[str, Any]:
        """The arguments of a loader of the links of a split. `negatives`: number for each link."""
        links, chosen, graph = self.links, self._config.link, self._graph
        places = links.part(part)
        index = links.index[:, places]
        negative: dict[str, Any] = {"mode": "triplet", "amount": negatives}
        if chosen.negative_ends == "degree":
            trained = links.index[1, links.part("train")]
            count = graph.node_types[links.edge_type[2]]
            # Count training edges only: the later degrees of targets are not known yet.
            negative["dst_weight"] = np.bincount(trained, minlength=count).astype(np.float64)
        sampling = self._config.sampling
        return {
            "of_links": True,
            "num_neighbors": list(sampling.fanout),
            "edge_label_index": (links.edge_type, index) if graph.is_typed else index,
            "edge_label_time": links.times[places],
            # An edge must not see itself, nor other edges of the same time.
            "equal_times": "hidden",
            "neg_sampling": negative,
            "batch_size": sampling.batch_size,
            "replace": sampling.replace,
            "features": self._features(),
            "labels": None,
            "arrays": sorted(times_by_type(graph, self._config).values()),
        }

    def _features(self) -> Any:
        """The feature array of each node type; in a graph with one type, the name of its array."""
        features = self.model.schema.types.features(self._keys)
        return features if features is None or self._graph.is_typed else features["node"]

    def facts(self) -> dict[str, Any]:
        """The predicted edge type, the size of each split, and the first time of held-out edges."""
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


class TemporalScoring(EdgeScoring):
    """Scores the edges that are later than the training edges, from sampled neighbours.

    Each end is embedded from the neighbourhood that it has at the time of its edge.
    """

    validates_fully = False

    def __init__(self, work: TemporalLinkWork, context: Context) -> None:
        links = work.links
        super().__init__(work.task, {part: links.sizes(part)[1] for part in links.parts})
        self._work, self._context = work, context

    def scores(self, part: str, *, sampled: bool = True) -> LinkScores:
        """Computes the scores of a held-out split. Every call gives the same scores."""
        del sampled  # Each link sees a different past, so links cannot share states.
        model = self._work.model
        positive: list[NDArray[np.float32]] = []
        negative: list[NDArray[np.float32]] = []
        batches = evaluation_batches(
            self._work.loaders, self._context, part, **self._work.links_of(part, NEGATIVES)
        )
        with evaluating(model), torch.no_grad():
            for batch in batches:
                of_links, of_negatives = model(batch)
                positive.append(of_links.cpu().numpy())
                negative.append(of_negatives.flatten().cpu().numpy())
        return LinkScores(self._metric, np.concatenate(positive), np.concatenate(negative))


def _require_fits(graph: Graph, config: TrainConfig) -> None:
    """Checks that edges with times support the options. Errors: `UnsupportedError`."""
    if config.model.kind not in OF_EDGES_BY_TIME:
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
