"""How well edges score above pairs without an edge."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.training.config import LinkMetric

_HITS: dict[LinkMetric, int] = {
    "hits@1": 1,
    "hits@10": 10,
    "hits@20": 20,
    "hits@50": 50,
    "hits@100": 100,
}


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
            if not np.isfinite(scores).all():
                place = int(np.flatnonzero(~np.isfinite(scores))[0])
                raise InvalidError(
                    f"{what} {place} of the split: expected a finite score, found {scores[place]}\n"
                    "hint: lower `--learning-rate`, or check the features for huge values"
                )
        self._edges, self._negatives = np.sort(edges), np.sort(negatives)

    def values(self) -> dict[str, float | None]:
        """All metrics; `None` where one is not defined."""
        if not (len(self._edges) and len(self._negatives)):
            return dict.fromkeys(("roc_auc", "average_precision", "mrr", *_HITS))
        above, not_below = self._negatives_above()
        ranks = 1 + (above + not_below) / 2
        return {
            "roc_auc": float(1 - (ranks - 1).mean() / len(self._negatives)),
            "average_precision": self._average_precision(not_below),
            "mrr": float((1 / ranks).mean()),
            **dict(self._hits(not_below)),
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


def least_negatives(name: LinkMetric) -> int:
    """Negatives that a split needs for the metric to be defined."""
    return _HITS.get(name, 1)
