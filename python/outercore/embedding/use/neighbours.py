"""Entities whose rows are near to others', by the model's own measure.

Exact by default: one pass over the table answers a group of questions, whatever its size. With an
`Index` a few lists of it are read instead, and what they propose is scored exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from outercore.embedding.kernels import (
    Euclidean,
    Inner,
    Manhattan,
    Modulus,
    Similarity,
    pair_scores,
)
from outercore.embedding.use.among import Among, without_empty
from outercore.embedding.use.topk import LARGEST, TopK, require_finite
from outercore.errors import InvalidError

if TYPE_CHECKING:
    from outercore.embedding.config import ModelConfig
    from outercore.embedding.use.approximate import Index
    from outercore.embedding.use.embedding import Embedding

Metric = Literal["model", "inner", "cosine", "euclidean", "manhattan", "modulus"]
GROUP = 1024
"""Questions that share a pass over the table."""


class Cosine(Inner):
    """The inner product of rows of length 1."""

    def prepared(self, rows: Tensor) -> Tensor:
        """The rows, each at length 1; a row of zeros stays one."""
        return torch.nn.functional.normalize(rows, dim=1, eps=1e-30)


_SIMILARITIES: dict[str, Similarity] = {
    "inner": Inner(),
    "cosine": Cosine(),
    "euclidean": Euclidean(),
    "manhattan": Manhattan(),
    "modulus": Modulus(),
}


@dataclass(frozen=True)
class Nearest:
    """What was found, best first.

    Shapes: [questions, k], or as many as the question with the most has. Where another has fewer,
    its last ids are -1.
    """

    metric: str
    """`inner`, `cosine`, or the distance."""
    ids: NDArray[np.int64]
    scores: NDArray[np.float32]
    """Larger is nearer: a distance is negative."""


def neighbours(
    embedding: Embedding,
    of: str | int | Iterable[str | int] | NDArray[np.floating],
    k: int = 10,
    *,
    metric: Metric = "model",
    by_id: bool = False,
    itself: bool = False,
    index: Index | None = None,
    candidates: ArrayLike | None = None,
) -> Nearest:
    """The `k` entities nearest to each of `of`.

    Args:
        embedding: where to look.
        of: names of entities (ids, where they have no names), or rows float32 [questions, width].
        k: how many.
        metric: `model` takes that of the score function: the inner product for `dot`,
            `distmult`, `complex` and `simple`, the distance for `transe` and `rotate`.
        by_id: `of` are ids, though there are names.
        itself: whether an entity may be its own neighbour.
        index: proposes candidates, instead of a pass over the whole table.
        candidates: ids of entities to look among; all by default.

    Cost: a pass over the table for each 1,024 questions, and questions x entities scores; with an
    index, the lists that it looks at and a few rows a question.

    Raises:
        NotFoundError: no such name.
        InvalidError: an id that is none, a row of another width, an index of another metric, a
            row that is not finite.

    Example:
        >>> import outercore as oc
        >>> found = oc.Embedding.open(tiny_embedding).neighbours([7], k=3)
        >>> found.metric, found.ids.shape
        ('inner', (1, 3))
    """
    chosen = metric_of(embedding.model, metric)
    among = Among(embedding, candidates, index)
    if isinstance(of, np.ndarray) and of.dtype.kind == "f":
        if of.ndim != 2 or of.shape[1] != embedding.width:
            raise InvalidError(
                f"neighbours: rows of shape {list(of.shape)}, expected [n, {embedding.width}]"
            )
        rows, own = np.ascontiguousarray(of, np.float32), None
    else:
        ids = embedding.entity_ids(of, by_id=by_id)
        rows, own = embedding.rows(ids), None if itself else ids
    parts = [
        _some(embedding, chosen, rows[start : start + GROUP], _slice(own, start), k, index, among)
        for start in range(0, max(len(rows), 1), GROUP)
    ]
    found = np.concatenate([ids for ids, _ in parts])
    return Nearest(chosen, *without_empty(found, np.concatenate([near for _, near in parts])))


def neighbours_of_all(
    embedding: Embedding,
    k: int = 10,
    *,
    metric: Metric = "model",
    index: Index | None = None,
    candidates: ArrayLike | None = None,
) -> Iterator[tuple[int, Nearest]]:
    """The neighbours of every entity, 1,024 at a time: (first entity, what was found).

    Cost: as `neighbours`, for all: the square of the number of entities without an index.
    """
    for start in range(0, embedding.num_entities, GROUP):
        ids = np.arange(start, min(start + GROUP, embedding.num_entities))
        options: Any = {"metric": metric, "index": index, "candidates": candidates}
        yield start, neighbours(embedding, ids, k, by_id=True, **options)


def metric_of(model: ModelConfig, metric: Metric) -> str:
    """The name of the measure that `metric` means for this model."""
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
            "hint: choose one, for example `--metric cosine`"
        )
    if model.kind == "transe":
        return "manhattan" if model.norm == 1 else "euclidean"
    return "modulus" if model.kind == "rotate" else "inner"


def similarity_of(metric: str) -> Similarity:
    """The measure of this name."""
    return _SIMILARITIES[metric]


def exact(
    embedding: Embedding,
    metric: str,
    queries: Tensor,
    own: Tensor | None,
    k: int,
    among: Among | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The best `k` of the candidates for each row of `queries`, but for `own` [questions]."""
    similarity = similarity_of(metric)
    queries = _prepared(similarity, queries)
    best = TopK(len(queries), k)
    for first, block in embedding.blocks():
        rows = torch.from_numpy(block)
        require_finite("entity", first, rows)
        rows = _prepared(similarity, rows)
        step = max(1, LARGEST // len(rows))
        for start in range(0, len(queries), step):
            some = slice(start, start + step)
            scores = pair_scores(similarity, queries[some], rows)
            if own is not None:
                here = own[some] - first
                inside = ((here >= 0) & (here < len(rows))).nonzero()[:, 0]
                scores[inside, here[inside]] = -torch.inf
            if among is not None:
                among.hide_others(scores, first)
            best.offer(first, scores, some)
    return best.best()


def rescored(
    embedding: Embedding, metric: str, queries: Tensor, ids: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The best `k` of candidates [questions, some], each scored by itself; -1 is none.

    A score does not depend on how many there were: a matrix product rounds another way.
    """
    similarity = similarity_of(metric)
    questions, count = ids.shape
    scores = torch.full((questions, count), -torch.inf)
    queries = _prepared(similarity, queries)
    step = max(1, LARGEST // max(count * queries.size(1), 1))
    for start in range(0, questions, step):
        wanted = ids[start : start + step]
        real = torch.from_numpy(wanted >= 0).reshape(-1)
        rows = torch.from_numpy(embedding.rows(np.maximum(wanted, 0)))
        again = queries[start : start + step].repeat_interleave(count, dim=0)
        found = similarity.paired(again, _prepared(similarity, rows))
        scores[start : start + step] = torch.where(real, found, -torch.inf).view(-1, count)
    # By id first: equal scores are in the order of ids.
    by_id = torch.from_numpy(ids).argsort(dim=1, stable=True)
    scores = scores.gather(1, by_id)
    scores, order = scores.sort(dim=1, descending=True, stable=True)
    places = by_id.gather(1, order)[:, :k].numpy()
    return np.take_along_axis(ids, places, 1), scores[:, :k].numpy()


def _some(
    embedding: Embedding,
    metric: str,
    rows: NDArray[np.float32],
    own: NDArray[np.int64] | None,
    k: int,
    index: Index | None,
    among: Among,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    queries = torch.from_numpy(rows)
    require_finite("question", 0, queries)
    if index is None:
        ids, _ = exact(embedding, metric, queries, _tensor(own), k, among)
    else:
        index.require(embedding, metric)
        ids = index.candidates(queries, k + (own is not None))
        if own is not None:
            ids = np.where(ids == own[:, None], -1, ids)
    return rescored(embedding, metric, queries, ids, k)


def _prepared(similarity: Similarity, rows: Tensor) -> Tensor:
    return similarity.prepared(rows) if isinstance(similarity, Cosine) else rows


def _slice(ids: NDArray[np.int64] | None, start: int) -> NDArray[np.int64] | None:
    return None if ids is None else ids[start : start + GROUP]


def _tensor(ids: NDArray[np.int64] | None) -> Tensor | None:
    return None if ids is None else torch.from_numpy(ids)
