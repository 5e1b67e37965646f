"""The best few of many entities: a pass over the table, or what an index proposes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from outercore.embedding.ranking.ranks import require_finite
from outercore.embedding.use.topk import TopK
from outercore.errors import InvalidError

if TYPE_CHECKING:
    from outercore.embedding.use.approximate import Index
    from outercore.embedding.use.embedding import Embedding

GROUP = 1024
"""Questions that share a pass over the table."""
LARGEST = 1 << 22
"""Scores that are in memory at once."""

Found = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Ids and scores [questions, k], best first."""


class Hidden:
    """Pairs of a question and an id that is no answer to it.

    Shapes: `questions` and `ids` int64 [pairs].
    """

    def __init__(self, questions: ArrayLike = (), ids: ArrayLike = ()) -> None:
        of, hidden = (torch.from_numpy(np.array(some, np.int64)) for some in (questions, ids))
        self._ids, order = hidden.sort(stable=True)
        self._questions = of[order]

    @property
    def most(self) -> int:
        """How many the question with the most has."""
        return int(torch.bincount(self._questions, minlength=1).max())

    def hide(self, scores: Tensor, start: int, first: int) -> None:
        """Takes the pairs out of scores [questions from `start` on, ids from `first` on]."""
        bounds = torch.tensor([first, first + scores.size(1)])
        begin, end = torch.searchsorted(self._ids, bounds).tolist()
        rows, ids = self._questions[begin:end] - start, self._ids[begin:end] - first
        here = (rows >= 0) & (rows < scores.size(0))
        scores[rows[here], ids[here]] = -torch.inf

    def remove(self, ids: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """Ids [questions, some], below `count`, with -1 in the place of the pairs."""
        found = np.arange(len(ids))[:, None] * count + ids
        return np.where(np.isin(found, (self._questions * count + self._ids).numpy()), -1, ids)


class Search:
    """Where answers are looked for: all entities, some of them, or what an index proposes."""

    def __init__(
        self, embedding: Embedding, candidates: ArrayLike | None, index: Index | None
    ) -> None:
        """`candidates` are the ids to look among, all without.

        Errors: `InvalidError` for an id that is none, no candidate, or an index beside them.
        """
        self.embedding, self.index = embedding, index
        self._others: Tensor | None = None
        if candidates is None:
            return
        if index is not None:
            raise InvalidError(
                "candidates: an index looks among all entities\n"
                "hint: leave out `--approximate`, or the candidates"
            )
        ids = embedding.entity_ids(np.asarray(candidates).reshape(-1).tolist(), by_id=True)
        if not len(ids):
            raise InvalidError("candidates: expected at least one entity, found none")
        self._others = torch.ones(embedding.num_entities, dtype=torch.bool)
        self._others[torch.from_numpy(ids)] = False

    def table(
        self, questions: int, k: int, score: Callable[[slice, Tensor], Tensor], hidden: Hidden
    ) -> Found:
        """The best of all candidates for so many questions, in one pass over the table.

        `score` gives the scores [questions, entities] of some questions and a block of rows.
        """
        best = TopK(questions, k)
        for first, block in self.embedding.blocks():
            rows = torch.from_numpy(block)
            require_finite("entity", range(first, first + len(rows)), rows)
            step = max(1, LARGEST // len(rows))
            for start in range(0, questions, step):
                some = slice(start, start + step)
                scores = score(some, rows)
                hidden.hide(scores, start, first)
                if self._others is not None:
                    scores[:, self._others[first : first + len(rows)]] = -torch.inf
                best.offer(first, scores, some)
        return best.best()

    def proposed(
        self, index: Index, metric: str, queries: Tensor, k: int, hidden: Hidden
    ) -> NDArray[np.int64]:
        """More than `k` entities for each query that may be its best; -1 is none."""
        index.require(self.embedding, metric)
        ids = index.candidates(queries, k + hidden.most)
        return hidden.remove(ids, self.embedding.num_entities)


def in_groups(questions: int, answer: Callable[[slice], Found]) -> Found:
    """Answers to all questions, a group of them at a time.

    Columns in which no question has an answer are left out.
    """
    groups = [slice(start, start + GROUP) for start in range(0, max(questions, 1), GROUP)]
    found = [answer(group) for group in groups]
    ids, scores = (np.concatenate(column) for column in zip(*found, strict=True))
    width = int((ids >= 0).any(axis=0).sum())
    return ids[:, :width], scores[:, :width]
