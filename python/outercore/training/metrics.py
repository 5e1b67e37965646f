"""Metrics of predictions, accumulated batch by batch, and metrics of ranked edges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.runs.rank_metrics import metrics_of_ranks
from outercore.training.config import LinkMetric, Validation

_HITS: dict[LinkMetric, int] = {
    "hits@1": 1,
    "hits@10": 10,
    "hits@20": 20,
    "hits@50": 50,
    "hits@100": 100,
}
_OF_RANKS = ("mean_rank", "adjusted_mean_rank", "adjusted_mean_rank_index")
_MORE = ("mrr_optimistic", "mrr_pessimistic", *_OF_RANKS, "candidates")


class Score(ABC):
    """A score. Larger is better, except for errors such as `rmse`."""

    name: str

    @abstractmethod
    def value(self) -> float | None:
        """The score by which epochs are compared; `None` if it is not defined."""

    def values(self) -> dict[str, float | None]:
        """All scores by name, if the metric has several scores."""
        return {}


class Metric(Score):
    """A score that is accumulated batch by batch."""

    @abstractmethod
    def update(self, scores: NDArray[np.float32], labels: NDArray) -> None:
        """Adds a batch.

        Shapes: `scores` [rows, outputs]. `labels` are class numbers [rows], negative for unknown;
        or 0 and 1 [rows, outputs], NaN or -1 for unknown; or numbers [rows, outputs], NaN for
        unknown.
        """


class _Accuracy(Metric):
    """Share of nodes whose largest output is their class."""

    name = "accuracy"

    def __init__(self) -> None:
        self._right = 0
        self._count = 0

    def update(self, scores: NDArray[np.float32], labels: NDArray) -> None:
        known = labels >= 0
        self._right += int((scores.argmax(axis=1)[known] == labels[known]).sum())
        self._count += int(known.sum())

    def value(self) -> float | None:
        return self._right / self._count if self._count else None


class _RocAuc(Metric):
    """Area under the ROC curve: the mean over the outputs that have both classes.

    For two classes, the score is the difference of the two outputs, which orders nodes like the
    probability. Cost: one float32 and one byte of memory per score.
    """

    name = "roc_auc"

    def __init__(self) -> None:
        self._scores: list[NDArray[np.float32]] = []
        self._labels: list[NDArray[np.int8]] = []

    def update(self, scores: NDArray[np.float32], labels: NDArray) -> None:
        if labels.ndim == 1:
            if scores.shape[1] != 2:
                raise InvalidError(
                    f"metric `roc_auc`: expected two classes, found {scores.shape[1]}\n"
                    "hint: use `--metric accuracy`"
                )
            self._scores.append(scores[:, 1:2] - scores[:, 0:1])
            self._labels.append(labels[:, None].astype(np.int8))
            return
        known = np.where(labels >= 0, labels, -1)
        self._scores.append(scores.astype(np.float32))
        self._labels.append(known.astype(np.int8))

    def value(self) -> float | None:
        if not self._scores:
            return None
        scores, labels = np.concatenate(self._scores), np.concatenate(self._labels)
        areas = []
        for column in range(scores.shape[1]):
            known = labels[:, column] >= 0
            area = auc(scores[known, column], labels[known, column] > 0)
            if area is not None:
                areas.append(area)
        return float(np.mean(areas)) if areas else None


class _F1(Metric):
    """F1 over classes or labels: `micro` pools all decisions, `macro` averages over classes."""

    def __init__(self, average: str) -> None:
        self.name = f"f1_{average}"
        self._average = average
        self._counts: NDArray[np.int64] | None = None

    def update(self, scores: NDArray[np.float32], labels: NDArray) -> None:
        outputs = scores.shape[1]
        if labels.ndim == 1:
            rows = labels >= 0
            one_hot = np.eye(outputs, dtype=bool)
            predicted = one_hot[scores[rows].argmax(axis=1)]
            actual = one_hot[labels[rows].astype(np.int64)]
            known = np.ones_like(actual)
        else:
            known = labels >= 0
            predicted, actual = scores > 0, np.where(known, labels, 0) > 0
        counts = np.stack(
            [
                (predicted & actual & known).sum(axis=0),
                (predicted & ~actual & known).sum(axis=0),
                (~predicted & actual & known).sum(axis=0),
            ]
        ).astype(np.int64)
        self._counts = counts if self._counts is None else self._counts + counts

    def value(self) -> float | None:
        if self._counts is None:
            return None
        hit, wrong, missed = self._counts
        if self._average == "micro":
            hit, wrong, missed = hit.sum(), wrong.sum(), missed.sum()
        denominator = np.asarray(2 * hit + wrong + missed)
        if not denominator.any():
            return None
        # A class that neither occurs nor is predicted is left out, instead of counted as 0.
        seen = denominator > 0
        return float(np.mean(2 * np.asarray(hit)[seen] / denominator[seen]))


class _Errors(Metric):
    """Mean squared error, its root, mean absolute error and R2, each as a mean over the columns.

    R2 is 1 for exact predictions, and 0 if each column's mean is predicted. It is not defined for a
    column of equal labels.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._shift: NDArray[np.float64] | None = None
        self._sums = np.zeros(0)

    def update(self, scores: NDArray[np.float32], labels: NDArray) -> None:
        labels = labels.astype(np.float64)
        known = ~np.isnan(labels)
        actual = np.where(known, labels, 0.0)
        if self._shift is None:
            # Subtract a value of the column before squares are summed. Otherwise digits are lost
            # if the values are far from 0.
            first = known.argmax(axis=0)
            self._shift = actual[first, np.arange(labels.shape[1])]
            self._sums = np.zeros((5, labels.shape[1]))
        error = np.where(known, scores.astype(np.float64) - actual, 0.0)
        shifted = np.where(known, actual - self._shift, 0.0)
        parts = (known, error**2, np.abs(error), shifted, shifted**2)
        self._sums += np.stack([part.sum(axis=0) for part in parts])

    def values(self) -> dict[str, float | None]:
        if self._shift is None or not self._sums[0].any():
            return dict.fromkeys(("mse", "rmse", "mae", "r2"))
        count, squares, absolute, total, total_squares = self._sums[:, self._sums[0] > 0]
        spread = total_squares - total**2 / count
        # Equal labels have a spread below this limit, which is only due to rounding.
        varied = spread > 1e-12 * np.maximum(total_squares, 1e-300)
        shares = 1 - squares[varied] / spread[varied]
        return {
            "mse": float((squares / count).mean()),
            "rmse": float(np.sqrt(squares / count).mean()),
            "mae": float((absolute / count).mean()),
            "r2": float(shares.mean()) if len(shares) else None,
        }

    def value(self) -> float | None:
        return self.values()[self.name]


def build_metric(name: str) -> Metric:
    """A new, empty metric with this name."""
    if name == "accuracy":
        return _Accuracy()
    if name == "roc_auc":
        return _RocAuc()
    if name in ("f1_micro", "f1_macro"):
        return _F1(name.removeprefix("f1_"))
    if name in ("mse", "rmse", "mae", "r2"):
        return _Errors(name)
    raise InvalidError(
        "metric: expected accuracy, roc_auc, f1_micro, f1_macro, mse, rmse, mae or r2; "
        f"found `{name}`"
    )


def auc(scores: NDArray[np.floating], positive: NDArray[np.bool_]) -> float | None:
    """The area under the ROC curve; `None` without positives or negatives.

    It is computed as Mann-Whitney U by average ranks: a tie of a positive and a negative counts
    half.
    """
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if positives == 0 or negatives == 0:
        return None
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last_rank = np.cumsum(counts)
    rank = (last_rank - (counts - 1) / 2)[inverse]
    return float((rank[positive].sum() - positives * (positives + 1) / 2) / positives / negatives)


class LinkScores(Score):
    """Metrics of edges that share their negatives: each edge is ranked among all negatives.

    Equal scores count half, except in Hits@k: there they count as misses, as in OGB.

    Cost: sorts the scores; 40 bytes of memory per score.
    """

    def __init__(
        self, name: LinkMetric, edges: NDArray[np.float32], negatives: NDArray[np.float32]
    ) -> None:
        """Takes the scores of edges and of negatives. Epochs are compared by the metric `name`.

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
        edges, negatives, count = self._edges, self._negatives, len(self._negatives)
        above = count - np.searchsorted(negatives, edges, side="right")
        not_below = count - np.searchsorted(negatives, edges, side="left")
        # For each edge, the number of edges with at least its score.
        at_least = len(edges) - np.searchsorted(edges, edges, side="left")
        return {
            **_of_ranks(above, not_below, count),
            "average_precision": float((at_least / (at_least + not_below)).mean()),
            # The share of edges that score above the k-th best negative.
            **{
                name: float((not_below < k).mean()) if count >= k else None
                for name, k in _HITS.items()
            },
        }

    def value(self) -> float | None:
        """The metric by which epochs are compared."""
        return self.values()[self.name]


class SeparateNegatives(LinkScores):
    """Metrics of edges with separate negatives for each edge, as in ogbl-citation2 of OGB.

    Hits@k is the share of the edges whose rank is k or less. The average precision is not defined,
    because the edges share no threshold.
    """

    def __init__(self, name: LinkMetric, edges: NDArray[np.float32]) -> None:
        """Takes the scores of edges, as `LinkScores`. Call `add` with the scores of negatives."""
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
        """All metrics, as for `LinkScores`. The scores of all negatives must be added before."""
        above, not_below = np.concatenate(self._higher), np.concatenate(self._not_lower)
        return _of_ranks(above, not_below, self._count)


def _of_ranks(
    above: NDArray[np.int64], not_below: NDArray[np.int64], count: int
) -> dict[str, float | None]:
    """Metrics of the ranks of edges, each among `count` negatives.

    Shapes: `above` [edges], number of negatives with a higher score; `not_below` [edges], number of
    negatives with a higher or equal score.
    """
    ranks, others = 1 + (above + not_below) / 2, np.full(len(above), count)
    metrics = metrics_of_ranks(ranks, others, _HITS.values())
    return {
        "roc_auc": float(1 - (ranks - 1).mean() / count),
        "average_precision": None,
        "mrr": metrics["mrr"],
        **{name: metrics[f"hits_at_{k}"] for name, k in _HITS.items()},
        "mrr_optimistic": float((1 / (1 + above)).mean()),
        "mrr_pessimistic": float((1 / (1 + not_below)).mean()),
        **{name: metrics[name] for name in _OF_RANKS},
        "candidates": count + 1.0,
    }


def _require_finite(what: str, scores: NDArray[np.float32]) -> None:
    if not np.isfinite(scores).all():
        place = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise InvalidError(
            f"{what} {place} of the split: expected a finite score, found {scores[place]}\n"
            "hint: lower `--learning-rate`, or check the features for huge values"
        )


def least_negatives(name: LinkMetric) -> int:
    """The number of negatives that a split needs, so that the metric is defined."""
    return _HITS.get(name, 1)


_FULL_VALIDATION_EDGES = 2_000_000


class Scoring(ABC):
    """Scores a model on data that it is not trained on."""

    has_validation: bool
    validates_fully: bool
    """Whether all neighbours are used to score epochs, instead of sampled neighbours."""

    def validation_kind(self) -> str:
        """How epochs are scored: `full`, `sampled`, or `none` without validation data."""
        if not self.has_validation:
            return "none"
        return "full" if self.validates_fully else "sampled"

    def validation(self) -> float | None:
        """Computes the score after an epoch; `None` without validation data."""
        return self._validation().value() if self.has_validation else None

    @abstractmethod
    def _validation(self) -> Score:
        """Computes the score on the validation data."""

    @abstractmethod
    def final(self) -> Mapping[str, Score]:
        """Computes the final scores by split. They are exact if the network allows it."""


def validates_fully(chosen: Validation, edges: int) -> bool:
    """Whether all neighbours are used to score epochs. `edges`: number of arcs of the graph."""
    if chosen == "auto":
        return edges <= _FULL_VALIDATION_EDGES
    return chosen == "full"
