"""The best few of many candidates that come block by block."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.errors import InvalidError

_COLUMNS = 64
"""Columns in a group of which first only the highest score is looked at."""


class TopK:
    """The `k` highest scores of each question so far, and whose they are.

    Equal scores are in the order of ids, so that what is found does not depend on the blocks.
    A score of minus infinity is none.
    """

    def __init__(self, questions: int, k: int) -> None:
        if k < 1:
            raise InvalidError(f"k: expected at least 1, found {k}")
        self._k = k
        self._scores = torch.full((questions, k), -torch.inf)
        self._ids = torch.full((questions, k), -1, dtype=torch.int64)

    def offer(self, first: int, scores: Tensor, some: slice = slice(None)) -> None:
        """Takes the candidates `first`, `first` + 1, ... for the questions `some`.

        Blocks come in the order of ids. Shapes: `scores` [questions, candidates], not kept.
        """
        best, ids = _best(scores, min(self._k, scores.size(1)))
        # What was there comes first, has lower ids, and so wins where scores are equal.
        best = torch.cat([self._scores[some], best], dim=1)
        ids = torch.cat([self._ids[some], ids + first], dim=1)
        best, order = best.sort(dim=1, descending=True, stable=True)
        best, ids = best[:, : self._k], ids.gather(1, order)[:, : self._k]
        self._scores[some] = best
        self._ids[some] = torch.where(best == -torch.inf, -1, ids)

    def best(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Ids and scores [questions, k], best first; -1 and minus infinity where none is left."""
        return self._ids.numpy(), self._scores.numpy()


def _best(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best of each row and their places; equal scores by place, the first ones.

    Only the groups of columns with the highest maxima can hold them, which is found ten times as
    fast as by looking at every column.
    """
    rows, columns = scores.shape
    grouped = columns // _COLUMNS * _COLUMNS
    if grouped < 4 * _COLUMNS * count:
        return _best_of_all(scores, count)
    highest = scores[:, :grouped].unflatten(1, (-1, _COLUMNS)).amax(dim=2)
    groups = _best_of_all(highest, count)[1].sort(dim=1).values
    places = (groups.unsqueeze(2) * _COLUMNS + torch.arange(_COLUMNS)).flatten(1)
    rest = torch.arange(grouped, columns).expand(rows, -1)
    places = torch.cat([places, rest], dim=1)
    best, among = _best_of_all(scores.gather(1, places), count)
    return best, places.gather(1, among)


def _best_of_all(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """As `_best`, by looking at every column."""
    best, places = scores.topk(count, dim=1)
    least = best[:, -1:]
    # Where more have the last score than there is room for, `topk` takes any of them.
    crowded = (((scores >= least).sum(dim=1) > count) & (least[:, 0] > -torch.inf)).nonzero()[:, 0]
    for row in crowded.tolist():
        above = (scores[row] > least[row]).nonzero()[:, 0]
        level = (scores[row] == least[row]).nonzero()[: count - len(above), 0]
        places[row] = torch.cat([above, level])
    places = places.sort(dim=1).values
    best, order = scores.gather(1, places).sort(dim=1, descending=True, stable=True)
    return best, places.gather(1, order)
