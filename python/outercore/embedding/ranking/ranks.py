"""Questions of held-out triples, and how many of what they are compared with score higher.

A rank counts the candidates with a higher score, and half of those with the same one: the mean of
the optimistic and the pessimistic rank, so that a model that says the same of all gains nothing.
Scores closer than their rounding are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore import _core
from outercore.embedding.gradients.models import Model, Side
from outercore.embedding.gradients.negatives import Pairs, known_among, occurrences
from outercore.embedding.gradients.trainer import Ask, ask
from outercore.embedding.tables.protocol import Store
from outercore.errors import InvalidError

SIDES: tuple[Side, ...] = ("tail", "head")
_BLOCK_NUMBERS = 1 << 21
_SCORED = 1 << 12
"""Questions whose own scores are computed together: their queries are copies of their rows."""


class Tally(NamedTuple):
    """What was counted so far of some questions, among candidates of one kind.

    Shapes: int32 [2, questions], raw and filtered; int64 where candidates need it.
    """

    higher: Tensor
    not_lower: Tensor
    compared: Tensor

    @classmethod
    def zeros(cls, count: int, candidates: int) -> Tally:
        """Nothing, of so many questions with so many candidates at most.

        Memory: 24 bytes a question, which plans count with; twice that for 2^31 candidates.
        """
        kind = torch.int32 if candidates < 1 << 31 else torch.int64
        return cls(*(torch.zeros(2, count, dtype=kind) for _ in cls._fields))

    @classmethod
    def joined(cls, tallies: Iterable[Tally]) -> Tally:
        """Those of some questions after those of others."""
        return cls(*(torch.cat(counts, dim=1) for counts in zip(*tallies, strict=True)))

    def within(self, some: slice) -> Tally:
        """Those of some questions: a view, by which more is counted."""
        return Tally(*(counts[:, some] for counts in self))

    def ranks(self) -> Tensor:
        """The realistic ranks once all candidates are counted, float64 [2, questions]."""
        return (self.optimistic() + self.pessimistic()) / 2.0

    def optimistic(self) -> Tensor:
        """The ranks where the true one comes first of equal ones, float64 [2, questions]."""
        return 1.0 + self.higher.double()

    def pessimistic(self) -> Tensor:
        """The ranks where it comes last."""
        return 1.0 + self.not_lower.double()


class Questions:
    """Triples with one end asked for.

    Shapes: `triples` int64 [m, 3]; rows of what is asked with and for [m, width].
    """

    def __init__(
        self,
        model: Model,
        triples: Tensor,
        question: Ask,
        rows: tuple[Tensor, Tensor, Tensor],
        known: _core.KnownAnswers | None,
        *,
        loops: bool,
    ) -> None:
        """`question` are the triples as questions, and `rows` those of its anchors, relations and
        targets, of which the last are not kept.

        Errors: `InvalidError` for a triple whose score is not finite.
        """
        self._model, self._asked_for, self._known, self._loops = model, question, known, loops
        self._triples = triples
        self._anchors, self._relations, targets = rows
        own = [self._own_scores(some, targets) for some in slices(len(triples), _SCORED)]
        score, slack = (torch.cat(column) for column in zip(*own, strict=True))
        if not bool(score.isfinite().all()):
            row = int((~score.isfinite()).nonzero()[0])
            raise InvalidError(f"triple {triples[row].tolist()}: its score is not finite")
        self._above, self._below = score + slack, score - slack
        # What is no candidate, whatever is filtered: (question, entity).
        self._out_rows, self._out = torch.arange(len(triples)), question.targets
        if not loops:
            others = (question.anchors != question.targets).nonzero().squeeze(1)
            self._out_rows, order = torch.cat([self._out_rows, others]).sort(stable=True)
            self._out = torch.cat([self._out, question.anchors[others]])[order]

    def __len__(self) -> int:
        return len(self._above)

    def compare(self, tally: Tally, entities: Tensor, rows: Tensor) -> None:
        """Counts a block of candidates; `entities` ascend and may repeat."""
        device = self._anchors.device
        out = occurrences(entities, self._out_rows, self._out).to(device)
        for some in slices(len(self), max(1, _BLOCK_NUMBERS // max(1, len(rows)))):
            self._compare_some(tally, some, entities, rows, out.between(some.start, some.stop))

    def compare_given(
        self, tally: Tally, given: NDArray[Any], rows_of: Callable[[Tensor], Tensor]
    ) -> Iterator[int]:
        """Counts candidates that each question has of its own; yields how many, some at a time.

        `given` [questions, candidates]; `rows_of` has the rows of entities. Nothing is filtered,
        but the true answer is not its own candidate.

        Cost: the rows of all candidates of some questions at a time.
        """
        side, count = self._asked_for.side, given.shape[1]
        for some in slices(len(self), max(1, _BLOCK_NUMBERS // (count * self._anchors.shape[1]))):
            wanted = torch.from_numpy(np.array(given[some], np.int64))
            entities, places = wanted.unique(return_inverse=True)
            rows = rows_of(entities).to(self._anchors.device)
            require_finite("entity", entities, rows)
            anchors, relations = (
                known[some].repeat_interleave(count, 0)
                for known in (self._anchors, self._relations)
            )
            targets = rows[places.flatten().to(rows.device)]
            scores = self._model.paired(side, anchors, relations, targets).view(-1, count)
            own = wanted == self._asked_for.targets[some].unsqueeze(1)
            scores[own.to(scores.device)] = -torch.inf
            higher = (scores > self._above[some].unsqueeze(1)).sum(dim=1, dtype=torch.int32)
            not_lower = (scores >= self._below[some].unsqueeze(1)).sum(dim=1, dtype=torch.int32)
            counts = (higher, not_lower, count - own.sum(dim=1, dtype=torch.int32))
            for total, more in zip(tally.within(some), counts, strict=True):
                total += more.cpu()
            yield wanted.numel()

    def _own_scores(self, some: slice, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The true ones' scores, and how far these may be off."""
        rows = (self._anchors[some], self._relations[some], targets[some])
        side = self._asked_for.side
        return self._model.paired(side, *rows), self._model.rounding(side, *rows)

    def _known_among(self, entities: Tensor, some: slice) -> Iterator[Pairs]:
        """Where the other true answers of some questions stand among `entities`, some at a time."""
        if self._known is None:
            return
        anchors, targets = self._asked_for.anchors[some], self._asked_for.targets[some]
        for found in known_among(self._known, self._triples[some], entities):
            others = entities[found.columns]
            rest = others != targets[found.rows]
            if not self._loops:
                rest &= others != anchors[found.rows]
            yield Pairs(found.rows[rest], found.columns[rest])

    def _compare_some(
        self, tally: Tally, some: slice, entities: Tensor, rows: Tensor, out: Pairs
    ) -> None:
        side = self._asked_for.side
        scores = self._model.scores(side, self._anchors[some], self._relations[some], rows)
        above, below = self._above[some], self._below[some]
        scores[out.rows, out.columns] = -torch.inf
        count = len(above)
        # Sums of bytes into numbers of 64 bits take as long as the comparison.
        higher = (scores > above.unsqueeze(1)).sum(dim=1, dtype=torch.int32)
        not_lower = (scores >= below.unsqueeze(1)).sum(dim=1, dtype=torch.int32)
        compared = len(rows) - torch.bincount(out.rows, minlength=count)
        tally = tally.within(some)
        for total, counts in zip(tally, (higher, not_lower, compared), strict=True):
            total += counts.cpu()
        for found in self._known_among(entities, some):
            known = found.to(scores.device)
            of_known = scores[known.rows, known.columns]
            higher = known.rows[of_known > above[known.rows]]
            not_lower = known.rows[of_known >= below[known.rows]]
            for total, rows in zip(tally, (higher, not_lower, known.rows), strict=True):
                total[1] -= torch.bincount(rows, minlength=count).cpu()


def questions_of(
    store: Store,
    model: Model,
    triples: Tensor,
    known: Mapping[str, _core.KnownAnswers] | None,
    *,
    reciprocal: bool,
    loops: bool,
) -> list[tuple[Side, Questions]]:
    """Triples as questions for both their ends, with the other answers that are known.

    Cost: one read of the rows of all ends, which both sides share.
    Errors: as `Questions`.
    """
    heads, tails = store.rows(torch.cat([triples[:, 0], triples[:, 2]])).split(len(triples))
    asked = [ask(triples, side, store.relation_count, reciprocal=reciprocal) for side in SIDES]
    forward = store.relations[asked[0].relations.to(heads.device)]
    back = store.relations[asked[1].relations.to(heads.device)] if reciprocal else forward
    of_sides = ((heads, forward, tails), (tails, back, heads))
    found = []
    for question, side, rows in zip(asked, SIDES, of_sides, strict=True):
        answers = None if known is None else known[side]
        found.append((side, Questions(model, triples, question, rows, answers, loops=loops)))
    return found


def require_finite(name: str, numbers: Tensor | NDArray[np.int64] | range, rows: Tensor) -> None:
    """Raises `InvalidError` for a row that is not finite: its scores compare with nothing, and
    would pass for low ones. `numbers` are those of the rows."""
    if not bool(rows.sum().isfinite()) and not bool(rows.isfinite().all()):
        row = int((~rows.isfinite()).any(dim=1).nonzero()[0])
        raise InvalidError(f"{name} {int(numbers[row])}: its embedding is not finite")


def slices(count: int, step: int) -> Iterator[slice]:
    """So many places one after the other, at most `step` at a time."""
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))
