"""The known triples that matter for a ranking, out of more than fit in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Relevant:
    """Collects the triples that share two of three parts with one that is asked about.

    Only these can be other true answers: the same head and relation, or relation and tail.

    Shapes: `asked` int64 [m, 3].
    Cost: 16 bytes a triple asked, 12 bytes a triple found where ids have 31 bits, else 24; up to a
    quarter more until all are found.
    """

    def __init__(self, asked: NDArray[np.int64], entities: int, relations: int) -> None:
        self._relations = relations
        self._kept_as = np.int32 if max(entities, relations) < 1 << 31 else np.int64
        self._keys = [np.unique(keys) for keys in self._of(asked)]
        # The first ones count; the others are room for more.
        self._found = np.empty((0, 3), self._kept_as)
        self._count = 0

    def add(self, triples: NDArray[np.int64]) -> None:
        """Takes what matters of `triples`, int64 [n, 3]; not after `triples` was asked for."""
        matters = np.zeros(len(triples), dtype=np.bool_)
        for keys, wanted in zip(self._of(triples), self._keys, strict=True):
            if not len(wanted):
                continue
            places = np.searchsorted(wanted, keys)
            places[places == len(wanted)] = 0
            matters |= wanted[places] == keys
        until = self._count + int(np.count_nonzero(matters))
        if until > len(self._found):
            # Grown in place: pieces to be put together would be there twice.
            self._found.resize((max(until, 5 * len(self._found) // 4), 3), refcheck=False)
        self._found[self._count : until] = triples[matters]
        self._count = until

    def triples(self) -> NDArray[Any]:
        """All that were found, [found, 3]."""
        self._found.resize((self._count, 3), refcheck=False)
        return self._found

    def _of(self, triples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        heads, relations, tails = triples.T
        return heads * self._relations + relations, tails * self._relations + relations


def relevant(
    asked: NDArray[np.int64],
    entities: int,
    relations: int,
    chunks: Iterable[NDArray[np.int64]],
) -> NDArray[Any]:
    """Of all `chunks` the triples that can be other true answers to `asked`.

    Example:
        >>> asked = np.array([[0, 0, 1]])
        >>> chunk = np.array([[0, 0, 7], [3, 0, 1], [0, 1, 1], [5, 1, 6]])
        >>> relevant(asked, 8, 2, [chunk]).tolist()
        [[0, 0, 7], [3, 0, 1]]
    """
    collected = Relevant(asked, entities, relations)
    for chunk in chunks:
        collected.add(chunk)
    return collected.triples()


def pieces(triples: NDArray[Any], rows: int = 1 << 16) -> Iterator[NDArray[np.int64]]:
    """Of what `Relevant` keeps so many triples at a time, int64."""
    for start in range(0, len(triples), rows):
        yield triples[start : start + rows].astype(np.int64)
