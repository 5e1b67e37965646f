"""Scores of held-out edges: embeddings of their ends, then the head over the pairs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.errors import InvalidError
from outercore.files.atomic import device_errors
from outercore.files.large_arrays import forget
from outercore.files.npy import NpyRows
from outercore.runs.rank_metrics import metrics_of_ranks
from outercore.training.config import LinkMetric, TrainConfig
from outercore.training.inference import Context, Inference
from outercore.training.links.data import LinkData
from outercore.training.links.network import LinkModel
from outercore.training.models import evaluating
from outercore.training.work import AnyScoring, validates_fully

_HITS: dict[LinkMetric, int] = {
    "hits@1": 1,
    "hits@10": 10,
    "hits@20": 20,
    "hits@50": 50,
    "hits@100": 100,
}
_MORE = (
    *("mrr_optimistic", "mrr_pessimistic", "mean_rank", "adjusted_mean_rank"),
    *("adjusted_mean_rank_index", "candidates"),
)
_PAIRS = 1 << 14
"""Pairs that are scored together."""

PairScores: TypeAlias = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Scores float32 [n] of pairs of nodes int64 [n, 2]."""


def _require_ranked(metric: LinkMetric, part: str) -> None:
    if metric == "average_precision":
        raise InvalidError(
            f"metric `{metric}`: part `{part}` has negatives of its own for each edge, and no "
            "threshold for all\nhint: choose `mrr` by `--metric`"
        )


class HeldOutParts(Protocol):
    """The held-out edges of a run."""

    @property
    def parts(self) -> list[str]:
        """The parts that have edges."""

    def sizes(self, name: str) -> tuple[int, int]:
        """Edges and negatives of a part."""


class EdgeScoring(AnyScoring):
    """Evaluates a model on the held-out edges of a run, part by part.

    Errors: `InvalidError` where a part has too few negatives for the metric.
    """

    def __init__(
        self, links: HeldOutParts, metric: LinkMetric, separate_negatives: Collection[str] = ()
    ) -> None:
        """`separate_negatives` are the parts with separate negatives for each edge."""
        self._parts, self._metric = links.parts, metric
        self.has_validation = "valid" in links.parts
        for part in links.parts:
            _, found = links.sizes(part)
            if part not in separate_negatives and found < least_negatives(metric):
                raise InvalidError(
                    f"metric `{metric}`: expected at least {least_negatives(metric)} negatives in "
                    f"part `{part}`, found {found}\nhint: choose another by `--metric`, or hold "
                    "out more"
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
        own = [part for part in data.parts if data.part(part).targets is not None]
        for part in own:
            _require_ranked(metric, part)
        super().__init__(data, metric, own)
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
        embeddings = np.load(rows.path, mmap_mode="r")
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


class LinkScores:
    """Metrics of the scores of edges and of negatives, all edges against all negatives.

    Equal scores count half, except in Hits@k: there they count as misses, as in OGB.

    Cost: sorts the scores; 40 bytes each.
    """

    def __init__(
        self, name: LinkMetric, edges: NDArray[np.float32], negatives: NDArray[np.float32]
    ) -> None:
        """Scores [edges] and [negatives]; `name` is the metric by which epochs are compared.

        Errors: `InvalidError` for a score that is not finite.
        """
        self.name = name
        for what, scores in (("edge", edges), ("negative", negatives)):
            _require_finite(what, scores)
        self._edges, self._negatives = np.sort(edges), np.sort(negatives)

    def values(self) -> dict[str, float | None]:
        """All metrics; `None` for a metric that is not defined."""
        if not (len(self._edges) and len(self._negatives)):
            return dict.fromkeys(("roc_auc", "average_precision", "mrr", *_HITS, *_MORE))
        above, not_below = self._negatives_above()
        others = np.full(len(above), len(self._negatives))
        return {
            "roc_auc": float(1 - (above + not_below).mean() / 2 / len(self._negatives)),
            "average_precision": self._average_precision(not_below),
            "mrr": float((2 / (2 + above + not_below)).mean()),
            **dict(self._hits(not_below)),
            **_of_ties(above, not_below, others),
        }

    def value(self) -> float | None:
        """The metric by which epochs are compared."""
        return self.values()[self.name]

    def _negatives_above(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each edge, how many negatives score higher, and higher or the same."""
        count = len(self._negatives)
        above = count - np.searchsorted(self._negatives, self._edges, side="right")
        not_below = count - np.searchsorted(self._negatives, self._edges, side="left")
        return above, not_below

    def _average_precision(self, not_below: NDArray[np.int64]) -> float:
        """The mean over the edges of the precision where the threshold is their score."""
        found = len(self._edges) - np.searchsorted(self._edges, self._edges, side="left")
        return float((found / (found + not_below)).mean())

    def _hits(self, not_below: NDArray[np.int64]) -> Iterator[tuple[str, float | None]]:
        """Shares of the edges that score above the k-th best negative."""
        for name, k in _HITS.items():
            enough = len(self._negatives) >= k
            yield name, float((not_below < k).mean()) if enough else None


class SeparateNegatives(LinkScores):
    """Metrics of edges with separate negatives for each edge, as in ogbl-citation2 of OGB.

    Hits@k is the share of the edges whose rank is k or less. The average precision is not defined,
    as no threshold is shared.
    """

    def __init__(self, name: LinkMetric, edges: NDArray[np.float32]) -> None:
        """Scores [edges] as for `LinkScores`; `add` takes the scores of their negatives."""
        super().__init__(name, edges, np.empty(0, np.float32))
        self._scores = edges
        self._higher: list[NDArray[np.int64]] = []
        self._not_lower: list[NDArray[np.int64]] = []
        self._count = self._done = 0

    def add(self, negatives: NDArray[np.float32]) -> None:
        """Adds the scores [some edges, negatives] of the negatives of the next edges.

        Errors: `InvalidError` for a score that is not finite.
        """
        own = self._scores[self._done : self._done + len(negatives), None]
        _require_finite("negative", negatives.ravel())
        self._higher.append((negatives > own).sum(axis=1))
        self._not_lower.append((negatives >= own).sum(axis=1))
        self._done, self._count = self._done + len(negatives), negatives.shape[1]

    def values(self) -> dict[str, float | None]:
        """See `LinkScores`."""
        above, not_below = np.concatenate(self._higher), np.concatenate(self._not_lower)
        ranks, others = 1 + (above + not_below) / 2, np.full(len(above), self._count)
        found = metrics_of_ranks(ranks, others, _HITS.values())
        return {
            "roc_auc": float(1 - (ranks - 1).mean() / self._count),
            "average_precision": None,
            "mrr": found["mrr"],
            **{name: found[f"hits_at_{k}"] for name, k in _HITS.items()},
            **_of_ties(above, not_below, others),
        }


def _of_ties(
    above: NDArray[np.int64], not_below: NDArray[np.int64], others: NDArray[np.int64]
) -> dict[str, float | None]:
    """More metrics of ranks: their distance from chance, and the effect of ties."""
    realistic = metrics_of_ranks(1 + (above + not_below) / 2, others, ())
    return {
        "mrr_optimistic": float((1 / (1 + above)).mean()),
        "mrr_pessimistic": float((1 / (1 + not_below)).mean()),
        "mean_rank": realistic["mean_rank"],
        "adjusted_mean_rank": realistic["adjusted_mean_rank"],
        "adjusted_mean_rank_index": realistic["adjusted_mean_rank_index"],
        "candidates": float(others.mean()) + 1.0,
    }


def _require_finite(what: str, scores: NDArray[np.float32]) -> None:
    if not np.isfinite(scores).all():
        place = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise InvalidError(
            f"{what} {place} of the split: expected a finite score, found {scores[place]}\n"
            "hint: lower `--learning-rate`, or check the features for huge values"
        )


def least_negatives(name: LinkMetric) -> int:
    """Negatives that a split needs for the metric to be defined."""
    return _HITS.get(name, 1)
