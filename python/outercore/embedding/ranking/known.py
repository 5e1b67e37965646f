"""The true answers to what is ranked, out of more triples than fit in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError

if TYPE_CHECKING:
    from outercore.embedding.gradients.models import Side

_PIECE = 1 << 16
"""Triples, or answers, that are worked on at a time: however many a question has."""
_SIEVE = 1 << 18
"""Places of a sieve that most other questions fall through; as many bytes, for a core's cache."""


Columns: TypeAlias = "NDArray[np.int64] | tuple[NDArray[np.int64], ...]"
"""Anchors, relations and targets of triples, int64 [triples] each."""


def sided(columns: Any, side: Side) -> Any:
    """Anchors, relations and targets of heads, relations and tails where one end is asked for."""
    return columns if side == "tail" else columns[::-1]


class KnownAnswers:
    """The entities that complete the questions of some triples, one end asked for.

    All triples go through it twice: `count` says how much memory the answers take, `add` keeps
    them, `finish` puts them in order.

    Shapes: `anchors` and `relations` int64 [m], those of the questions.
    Cost: 16 bytes a distinct question; 4 bytes an answer where ids have 31 bits, else 8; beside
    these 256 KiB and a piece of the triples.
    Errors: `InvalidError` where entities times relations is more than 64 bits hold.
    """

    def __init__(
        self,
        anchors: NDArray[np.int64],
        relations: NDArray[np.int64],
        entity_count: int,
        relation_count: int,
    ) -> None:
        if entity_count * relation_count >= 1 << 63:
            raise InvalidError(
                f"known triples: {entity_count} entities times {relation_count} relations is more "
                "than 64 bits hold"
            )
        self._relation_count = relation_count
        self._kept_as = np.int32 if entity_count < 1 << 31 else np.int64
        self._keys = np.unique(anchors * relation_count + relations)
        self._sieve = np.zeros(_SIEVE, np.bool_)
        self._sieve[self._keys % _SIEVE] = True
        # After each question how many answers it has while they are counted, where the next goes
        # while they are added, so in the end where they end and those to the next begin.
        self._starts = np.zeros(len(self._keys) + 1, np.int64)
        self._answers: NDArray[Any] | None = None

    def count(self, triples: Columns) -> None:
        """Counts the answers among some triples."""
        for questions, _ in self._matches(triples):
            np.add.at(self._starts, questions + 1, 1)

    @property
    def counted(self) -> int:
        """How many answers were counted; one that stands twice is two."""
        return int(self._starts.sum())

    def add(self, triples: Columns) -> None:
        """Keeps the answers among some triples, once all of them are counted."""
        if self._answers is None:
            self._answers = np.empty(self.counted, self._kept_as)
            places = self._starts[1:]
            places[1:] = np.cumsum(places[:-1])
            places[:1] = 0
        for questions, found in self._matches(triples):
            order = np.argsort(questions, kind="stable")
            asked, first, counts = np.unique(
                questions[order], return_index=True, return_counts=True
            )
            offsets = np.arange(len(order)) - np.repeat(first, counts)
            self._answers[np.repeat(self._starts[asked + 1], counts) + offsets] = found[order]
            self._starts[asked + 1] += counts

    def finish(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
        """Puts the answers in order, and those that stand twice once; they are the caller's then.

        Returns: the questions' keys, anchor x relations + relation, ascending, int64 [questions];
        where the answers to each begin, int64 [questions + 1]; the answers, ascending, each once.
        """
        if self._answers is None:
            self._answers = np.empty(0, self._kept_as)
        answers, starts = self._answers, self._starts
        # Whoever has counted may keep this longer than the answers are wanted.
        self._answers = None
        for question in range(len(self._keys)):
            answers[starts[question] : starts[question + 1]].sort()
        ends = slice(int(np.searchsorted(starts, len(answers))), None)
        kept, last = 0, -1
        for begin in range(0, len(answers), _PIECE):
            some = answers[begin : begin + _PIECE]
            first = np.diff(some, prepend=some.dtype.type(last)) != 0
            inside = slice(*np.searchsorted(starts, [begin, begin + len(some)]))
            first[starts[inside] - begin] = True
            starts[inside] = kept + (np.cumsum(first) - first)[starts[inside] - begin]
            last, found = int(some[-1]), some[first]
            answers[kept : kept + len(found)] = found
            kept += len(found)
        starts[ends] = kept
        return self._keys, starts, answers[:kept]

    def _matches(self, triples: Columns) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Questions by place, and answers to them, of a piece of the triples at a time."""
        anchors, relations, targets = triples
        if not len(self._keys):
            return
        for start in range(0, len(anchors), _PIECE):
            some = slice(start, start + _PIECE)
            keys = anchors[some] * self._relation_count + relations[some]
            likely = np.flatnonzero(self._sieve[keys % _SIEVE])
            keys = keys[likely]
            places = np.searchsorted(self._keys, keys)
            places[places == len(self._keys)] = 0
            matches = self._keys[places] == keys
            yield places[matches], targets[some][likely[matches]]
