"""Metrics of ranks: of triples among entities, and of edges among negatives.

Source: Berrendorf, Faerman, Vermue, Tresp, "On the Ambiguity of Rank-Based Evaluation of Entity
Alignment or Link Prediction Methods" (2020), for the kinds of ranks, AMR and AMRI.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def metrics_of_ranks(
    ranks: NDArray[np.float64], others: NDArray[Any], hits: Iterable[int]
) -> dict[str, Any]:
    """Mean reciprocal rank, mean rank, Hits@k and the adjusted mean rank with its index.

    `ranks` are the ranks of the true answers, from 1. `others` are the numbers of candidates other
    than the true answer. `hits` are the values of k for Hits@k. The adjusted metrics are `None` if
    all `others` are 0.

    Shapes: `ranks` and `others` [predictions].

    Example:
        >>> metrics = metrics_of_ranks(np.array([1.0, 3.0]), np.array([4, 4]), hits=[1])
        >>> metrics["mean_rank"], metrics["hits_at_1"], metrics["adjusted_mean_rank_index"]
        (2.0, 0.5, 0.5)
    """
    count, above = len(ranks), float((ranks - 1.0).sum())
    # In a random order, on average half of the other candidates rank above the true one.
    expected = float(others.sum(dtype=np.float64)) / 2.0
    return {
        "mrr": float((1.0 / ranks).mean()),
        "mean_rank": float(ranks.mean()),
        **{f"hits_at_{k}": float((ranks <= k).mean()) for k in hits},
        "adjusted_mean_rank": (above + count) / (expected + count) if expected else None,
        "adjusted_mean_rank_index": 1.0 - above / expected if expected else None,
    }
