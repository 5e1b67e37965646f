"""Entities whose rows are near to others', by the model's own measure.

Exact by default: one pass over the table answers a group of questions, whatever its size. With an
`Index` a few lists of it are read instead, and what they propose is scored exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from outercore.base.display import ShortRepr
from outercore.embedding.ranking.ranks import require_finite
from outercore.embedding.use.metrics import Metric, measured, metric_of, rescored, scores_of
from outercore.embedding.use.search import GROUP, Found, Hidden, Search, in_groups
from outercore.errors import InvalidError

if TYPE_CHECKING:
    from outercore.embedding.use.approximate import Index
    from outercore.embedding.use.embedding import Embedding


@dataclass(frozen=True, repr=False)
class Nearest(ShortRepr):
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
        >>> from outercore.embedding import neighbours
        >>> found = neighbours(oc.Embedding.open(tiny_embedding), [7], k=3)
        >>> found.metric, found.ids.shape
        ('inner', (1, 3))
    """
    chosen = metric_of(embedding.model, metric)
    search = Search(embedding, candidates, index)
    own = None
    if isinstance(of, np.ndarray) and of.dtype.kind == "f":
        if of.ndim != 2 or of.shape[1] != embedding.width:
            raise InvalidError(
                f"neighbours: rows of shape {list(of.shape)}, expected [n, {embedding.width}]"
            )
        rows = np.ascontiguousarray(of, np.float32)
    else:
        ids = embedding.entity_ids(of, by_id=by_id)
        rows, own = embedding.rows(ids), None if itself else ids

    def nearest(group: slice) -> Found:
        queries = torch.from_numpy(rows[group])
        require_finite("question", range(len(queries)), queries)
        hidden = Hidden() if own is None else Hidden(range(len(queries)), own[group])
        if index is None:
            prepared = measured(chosen, queries)
            found, _ = search.table(
                len(queries),
                k,
                lambda some, block: scores_of(chosen, prepared[some], block),
                hidden,
            )
        else:
            found = search.proposed(index, chosen, queries, k, hidden)
        return rescored(embedding, chosen, queries, found, k)

    return Nearest(chosen, *in_groups(len(rows), nearest))


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
