"""How well edges score above pairs without an edge."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.runs.rank_metrics import metrics_of_ranks
from outercore.training.config import LinkMetric

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


class LinkScores:
    """Metrics of the scores of edges and of negatives, all edges against all negatives.

    Equal scores count half, but in Hits@k, where OGB counts them as misses.

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
        """All metrics; `None` where one is not defined."""
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


class OwnNegatives(LinkScores):
    """Metrics of edges, each among negatives of its own, as OGB has them for ogbl-citation2.

    Hits@k is the share of the edges whose rank is k or less. The average precision is not defined,
    as no threshold is shared.
    """

    def __init__(self, name: LinkMetric, edges: NDArray[np.float32]) -> None:
        """Scores [edges] as for `LinkScores`; `add` is called with those of their negatives."""
        super().__init__(name, edges, np.empty(0, np.float32))
        self._scores = edges
        self._higher: list[NDArray[np.int64]] = []
        self._not_lower: list[NDArray[np.int64]] = []
        self._count = self._done = 0

    def add(self, negatives: NDArray[np.float32]) -> None:
        """Scores [some edges, negatives] of the negatives of the edges that come next.

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
    """What ranks say besides the metrics: how far from chance, and how much ties matter."""
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
