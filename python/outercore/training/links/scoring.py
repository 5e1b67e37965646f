"""Scores of held-out edges: embeddings of their ends, then the head over the pairs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.errors import InvalidError
from outercore.files.atomic import device_errors
from outercore.files.large_arrays import forget
from outercore.files.npy import NpyRows, map_npy
from outercore.training.config import LinkMetric, TrainConfig
from outercore.training.inference import Context, Inference
from outercore.training.links.data import LinkData
from outercore.training.links.network import LinkModel
from outercore.training.metrics import (
    LinkScores,
    Scoring,
    SeparateNegatives,
    least_negatives,
    validates_fully,
)
from outercore.training.models import evaluating

_PAIRS = 1 << 14
"""Pairs that are scored together."""

PairScores: TypeAlias = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Scores float32 [n] of pairs of nodes int64 [n, 2]."""


class EdgeScoring(Scoring):
    """Evaluates a model on the held-out edges of a run, part by part.

    Errors: `InvalidError` where a part has too few negatives for the metric.
    """

    def __init__(self, negatives: Mapping[str, int | None], metric: LinkMetric) -> None:
        """`negatives` of each part; `None` if each edge has its own."""
        self._parts, self._metric = list(negatives), metric
        self.has_validation = "valid" in negatives
        least = least_negatives(metric)
        for part, found in negatives.items():
            if found is not None and found < least:
                raise InvalidError(
                    f"metric `{metric}`: expected at least {least} negatives in part `{part}`, "
                    f"found {found}\nhint: choose another by `--metric`, or hold out more"
                )

    @abstractmethod
    def scores(self, part: str, *, sampled: bool = False) -> LinkScores:
        """The scores of a held-out part, from all neighbours or from sampled ones."""

    def _validation(self) -> LinkScores:
        return self.scores("valid", sampled=not self.validates_fully)

    def final(self) -> dict[str, LinkScores]:
        """Scores on all held-out parts."""
        return {part: self.scores(part) for part in self._parts}


class LinkScoring(EdgeScoring):
    """Scores by embeddings over the graph of training edges."""

    def __init__(
        self,
        data: LinkData,
        config: TrainConfig,
        model: LinkModel,
        metric: LinkMetric,
        inference: Inference,
        context: Context,
    ) -> None:
        """`inference` runs the model over the graph of training edges."""
        parts = {part: data.part(part) for part in data.parts}
        for part, pairs in parts.items():
            if pairs.targets is not None and metric == "average_precision":
                raise InvalidError(
                    f"metric `{metric}`: part `{part}` has negatives of its own for each edge, and "
                    "no threshold for all\nhint: choose `mrr` by `--metric`"
                )
        shared = {
            part: None if pairs.targets is not None else len(pairs.negatives)
            for part, pairs in parts.items()
        }
        super().__init__(shared, metric)
        self._data, self._model, self._inference = data, model, inference
        self._scratch, self._device = context.scratch, context.device
        self.validates_fully = validates_fully(config.run.validation, data.graph.num_edges)

    def scores(self, part: str, *, sampled: bool = False) -> LinkScores:
        """The scores of a held-out part, from all neighbours or from sampled ones.

        Cost: as `Inference`. The embeddings of all ends are on disk meanwhile.
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
            found = SeparateNegatives(self._metric, scored(pairs.edges))
            for first in range(0, len(pairs.targets), some_edges):
                targets = np.asarray(pairs.targets[first : first + some_edges])
                sources = pairs.edges[first : first + some_edges, :1].repeat(count, axis=1)
                made = np.stack([sources, targets], axis=-1).reshape(-1, 2)
                found.add(scored(made).reshape(-1, count))
        return found

    @contextmanager
    def embedded(self, nodes: NDArray[np.int64], *, sampled: bool = False) -> Iterator[PairScores]:
        """A function that scores pairs of `nodes`, which ascend, within the block.

        Cost: as `Inference`. The embeddings of all nodes are on disk meanwhile.
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
