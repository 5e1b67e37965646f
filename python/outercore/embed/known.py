"""The known triples that matter for a ranking, out of more than fit in memory."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


class Relevant:
    """Collects the triples that share two of three parts with one that is asked about.

    Only these can be other true answers: the same head and relation, or relation and tail.

    Shapes: `asked` int64 [m, 3].
    Cost: 16 bytes a triple asked, 24 bytes a triple found.
    """

    def __init__(self, asked: NDArray[np.int64], relations: int) -> None:
        self._relations = relations
        self._keys = [np.unique(keys) for keys in self._of(asked)]
        self._found: list[NDArray[np.int64]] = []

    def add(self, triples: NDArray[np.int64]) -> None:
        """Takes what matters of `triples`, int64 [n, 3]."""
        matters = np.zeros(len(triples), dtype=np.bool_)
        for keys, wanted in zip(self._of(triples), self._keys, strict=True):
            if not len(wanted):
                continue
            places = np.searchsorted(wanted, keys)
            places[places == len(wanted)] = 0
            matters |= wanted[places] == keys
        self._found.append(triples[matters])

    def triples(self) -> NDArray[np.int64]:
        """All that were found, int64 [found, 3]."""
        nothing = np.empty((0, 3), dtype=np.int64)
        return np.concatenate([nothing, *self._found])

    def _of(self, triples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        heads, relations, tails = triples.T
        return heads * self._relations + relations, tails * self._relations + relations


def relevant(
    asked: NDArray[np.int64], relations: int, chunks: Iterable[NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Of all `chunks` the triples that can be other true answers to `asked`.

    Example:
        >>> asked = np.array([[0, 0, 1]])
        >>> relevant(asked, 2, [np.array([[0, 0, 7], [3, 0, 1], [0, 1, 1], [5, 1, 6]])]).tolist()
        [[0, 0, 7], [3, 0, 1]]
    """
    collected = Relevant(asked, relations)
    for chunk in chunks:
        collected.add(chunk)
    return collected.triples()
