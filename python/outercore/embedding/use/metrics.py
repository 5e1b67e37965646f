"""Measures by which rows are near to each other, and scores by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.embedding.gradients.kernels import (
    Euclidean,
    Inner,
    Manhattan,
    Modulus,
    Similarity,
    pair_scores,
)
from outercore.embedding.use.search import LARGEST, Found
from outercore.errors import InvalidError

if TYPE_CHECKING:
    from outercore.embedding.config import ModelConfig
    from outercore.embedding.use.embedding import Embedding

Metric = Literal["model", "inner", "cosine", "euclidean", "manhattan", "modulus"]
_SIMILARITIES: dict[str, Similarity] = {
    "inner": Inner(),
    "cosine": Inner(),
    "euclidean": Euclidean(),
    "manhattan": Manhattan(),
    "modulus": Modulus(),
}


def metric_of(model: ModelConfig, metric: str) -> str:
    """The name of the measure that `metric` means for this model.

    Errors: `InvalidError` where there is none of the name, or the model has none.
    """
    if metric in _SIMILARITIES:
        if metric == "modulus" and model.dim % 2:
            raise InvalidError("metric `modulus`: a row has no halves to be complex numbers")
        return metric
    if metric != "model":
        known = ", ".join(["model", *_SIMILARITIES])
        raise InvalidError(f"metric: expected one of {known}; found `{metric}`")
    if model.kind == "custom":
        raise InvalidError(
            "metric `model`: a score function of one's own says no distance\n"
            "hint: for neighbours choose one, for example `--metric cosine`; leave out "
            "`--approximate`: predictions are exact then"
        )
    if model.kind == "transe":
        return "manhattan" if model.norm == 1 else "euclidean"
    return "modulus" if model.kind == "rotate" else "inner"


def measured(metric: str, rows: Tensor) -> Tensor:
    """Rows as they are compared: for `cosine` at length 1, but a row of zeros stays one."""
    return torch.nn.functional.normalize(rows, dim=1, eps=1e-30) if metric == "cosine" else rows


def scores_of(metric: str, queries: Tensor, rows: Tensor) -> Tensor:
    """Each query with each row, [queries, rows]; queries are `measured` already."""
    return pair_scores(_SIMILARITIES[metric], queries, measured(metric, rows))


def rescored(
    embedding: Embedding, metric: str, queries: Tensor, ids: NDArray[np.int64], k: int
) -> Found:
    """The best `k` of candidates [questions, some], each scored by itself; -1 is none.

    A score does not depend on how many there were: a matrix product rounds another way.
    """
    questions, count = ids.shape
    scores = torch.full((questions, count), -torch.inf)
    queries = measured(metric, queries)
    step = max(1, LARGEST // max(count * queries.size(1), 1))
    for start in range(0, questions, step):
        wanted = ids[start : start + step]
        real = torch.from_numpy(wanted >= 0).reshape(-1)
        rows = torch.from_numpy(embedding.rows(np.maximum(wanted, 0)))
        again = queries[start : start + step].repeat_interleave(count, dim=0)
        found = _SIMILARITIES[metric].paired(again, measured(metric, rows))
        scores[start : start + step] = torch.where(real, found, -torch.inf).view(-1, count)
    # By id first: equal scores are in the order of ids.
    by_id = torch.from_numpy(ids).argsort(dim=1, stable=True)
    scores = scores.gather(1, by_id)
    scores, order = scores.sort(dim=1, descending=True, stable=True)
    places = by_id.gather(1, order)[:, :k].numpy()
    return np.take_along_axis(ids, places, 1), scores[:, :k].numpy()
