"""Ranks of the true end of a triple among candidates.

A question is a triple with one open end; its true end is the right answer. Triples are ranked in
groups, and each group takes one pass over the table of entities. Each block of the table is
compared with all questions of the group, and only counts are stored. So a ranking needs only one
block of the table in memory, even with partitions on disk.

A rank is the mean of the optimistic and the pessimistic rank: it counts candidates with a higher
score, and half of the candidates with an equal score. So a model with equal scores for all does not
gain from ties. Scores that differ by less than their rounding are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore import _core
from outercore.embedding.gradients.chunk import Side
from outercore.embedding.gradients.models import Model
from outercore.embedding.gradients.negatives import Pairs, known_among, occurrences
from outercore.embedding.gradients.trainer import Question, question_of
from outercore.embedding.randomness import Purpose, generator
from outercore.embedding.tables.store import Tables, check_triples
from outercore.errors import InvalidError
from outercore.runs.rank_metrics import metrics_of_ranks

SIDES: tuple[Side, ...] = ("tail", "head")
_BLOCK_NUMBERS = 1 << 21
_SCORED = 1 << 12
"""Number of questions whose true scores are computed together. Each needs a copy of its rows."""


class Tally(NamedTuple):
    """Counts of better candidates for some questions, for one kind of candidates.

    Shapes: [2, questions], raw and filtered; int32, or int64 from 2^31 candidates.
    """

    higher: Tensor
    not_lower: Tensor
    compared: Tensor

    @classmethod
    def zeros(cls, count: int, candidates: int) -> Tally:
        """Counts of zero for `count` questions with at most `candidates` candidates.

        Memory: 24 bytes per question, as in memory plans; 48 bytes from 2^31 candidates.
        """
        kind = torch.int32 if candidates < 1 << 31 else torch.int64
        return cls(*(torch.zeros(2, count, dtype=kind) for _ in cls._fields))

    @classmethod
    def joined(cls, tallies: Iterable[Tally]) -> Tally:
        """The concatenated counts of several groups of questions."""
        return cls(*(torch.cat(counts, dim=1) for counts in zip(*tallies, strict=True)))

    def within(self, some: slice) -> Tally:
        """A view of the counts of the questions `some`."""
        return Tally(*(counts[:, some] for counts in self))

    def ranks(self) -> Tensor:
        """The realistic ranks after all candidates are counted, float64 [2, questions]."""
        return (self.optimistic() + self.pessimistic()) / 2.0

    def optimistic(self) -> Tensor:
        """Ranks if the true answer precedes all equal scores, float64 [2, questions]."""
        return 1.0 + self.higher.double()

    def pessimistic(self) -> Tensor:
        """Ranks if the true answer follows all equal scores, float64 [2, questions]."""
        return 1.0 + self.not_lower.double()


class Questions:
    """Questions: triples with one open end.

    Shapes: `triples` int64 [m, 3]; rows of anchors, relations and targets [m, width].
    """

    def __init__(
        self,
        model: Model,
        triples: Tensor,
        question: Question,
        rows: tuple[Tensor, Tensor, Tensor],
        known: _core.KnownAnswers | None,
        *,
        loops: bool,
    ) -> None:
        """Prepares the questions, and computes the scores of their true ends.

        `question` has the triples as questions. `rows` are the rows of its anchors, relations and
        targets; the rows of targets are not stored. `known` has other true answers, for filtered
        ranks. Without `loops`, the anchor is not a candidate.

        Errors: `InvalidError` for a triple whose score is not finite.
        """
        self._model, self._question, self._known, self._loops = model, question, known, loops
        self._triples = triples
        self._anchors, self._relations, _ = rows
        score, slack = (
            torch.cat(
                [
                    of(question.side, *(each[some] for each in rows))
                    for some in slices(len(triples), _SCORED)
                ]
            )
            for of in (model.paired, model.rounding)
        )
        if not bool(score.isfinite().all()):
            row = int((~score.isfinite()).nonzero()[0])
            raise InvalidError(f"triple {triples[row].tolist()}: its score is not finite")
        self._above, self._below = score + slack, score - slack
        # Pairs (question, entity) that are excluded as candidates.
        self._out_rows, self._out = torch.arange(len(triples)), question.targets
        if not loops:
            others = (question.anchors != question.targets).nonzero().squeeze(1)
            self._out_rows, order = torch.cat([self._out_rows, others]).sort(stable=True)
            self._out = torch.cat([self._out, question.anchors[others]])[order]

    def __len__(self) -> int:
        return len(self._above)

    def compare(self, tally: Tally, entities: Tensor, rows: Tensor) -> None:
        """Compares the questions with a block of candidates. `entities` ascend and may repeat."""
        device = self._anchors.device
        out = occurrences(entities, self._out_rows, self._out).to(device)
        for some in slices(len(self), max(1, _BLOCK_NUMBERS // max(1, len(rows)))):
            self._compare_some(tally, some, entities, rows, out.between(some.start, some.stop))

    def compare_own(
        self, tally: Tally, candidates: NDArray[Any], rows_of: Callable[[Tensor], Tensor]
    ) -> Iterator[int]:
        """Compares each question with its own candidates; yields the number of candidates per step.

        `rows_of` returns the rows of entities. Ranks are not filtered, but the true answer is not
        its own candidate.

        Shapes: `candidates` [questions, candidates].

        Cost: memory for the rows of the candidates of a few questions.
        """
        side, count = self._question.side, candidates.shape[1]
        for some in slices(len(self), max(1, _BLOCK_NUMBERS // (count * self._anchors.shape[1]))):
            wanted = torch.from_numpy(np.array(candidates[some], np.int64))
            entities, places = wanted.unique(return_inverse=True)
            rows = rows_of(entities).to(self._anchors.device)
            require_finite("entity", entities, rows)
            anchors, relations = (
                known[some].repeat_interleave(count, 0)
                for known in (self._anchors, self._relations)
            )
            targets = rows[places.flatten().to(rows.device)]
            scores = self._model.paired(side, anchors, relations, targets).view(-1, count)
            own = wanted == self._question.targets[some].unsqueeze(1)
            scores[own.to(scores.device)] = -torch.inf
            of_some = tally.within(some)
            self._count(of_some, some, scores)
            of_some.compared.add_(count - own.sum(dim=1))
            yield wanted.numel()

    def _count(self, tally: Tally, some: slice, scores: Tensor) -> None:
        """Adds the counts of scores [questions, candidates]; minus infinity does not count."""
        # Summing bytes into 64-bit integers would take as long as the comparison.
        higher = (scores > self._above[some].unsqueeze(1)).sum(dim=1, dtype=torch.int32)
        not_lower = (scores >= self._below[some].unsqueeze(1)).sum(dim=1, dtype=torch.int32)
        tally.higher.add_(higher.cpu())
        tally.not_lower.add_(not_lower.cpu())

    def _known_among(self, entities: Tensor, some: slice) -> Iterator[Pairs]:
        """Finds other true answers of the questions `some` among `entities`; yields groups."""
        if self._known is None:
            return
        anchors, targets = self._question.anchors[some], self._question.targets[some]
        for rows, columns in known_among(self._known, self._triples[some], entities):
            others = entities[columns]
            rest = others != targets[rows]
            if not self._loops:
                rest &= others != anchors[rows]
            yield Pairs(rows[rest], columns[rest])

    def _compare_some(
        self, tally: Tally, some: slice, entities: Tensor, rows: Tensor, out: Pairs
    ) -> None:
        side = self._question.side
        scores = self._model.scores(side, self._anchors[some], self._relations[some], rows)
        above, below = self._above[some], self._below[some]
        scores[out.rows, out.columns] = -torch.inf
        count, tally = len(above), tally.within(some)
        self._count(tally, some, scores)
        tally.compared.add_((len(rows) - torch.bincount(out.rows, minlength=count)).cpu())
        for pairs in self._known_among(entities, some):
            known = pairs.to(scores.device)
            of_known = scores[known.rows, known.columns]
            higher = known.rows[of_known > above[known.rows]]
            not_lower = known.rows[of_known >= below[known.rows]]
            for total, rows in zip(tally, (higher, not_lower, known.rows), strict=True):
                total[1] -= torch.bincount(rows, minlength=count).cpu()


def questions_of(
    tables: Tables,
    model: Model,
    triples: Tensor,
    known: Mapping[str, _core.KnownAnswers] | None,
    *,
    reciprocal: bool,
    loops: bool,
) -> list[tuple[Side, Questions]]:
    """Questions for both ends of triples. `known` has other true answers, by side.

    Cost: one read of the rows of all ends; both sides share it.
    Errors: as `Questions`.
    """
    heads, tails = tables.rows(torch.cat([triples[:, 0], triples[:, 2]])).split(len(triples))
    tail, head = (
        question_of(triples, side, tables.relation_count, reciprocal=reciprocal) for side in SIDES
    )
    forward = tables.relations[tail.relations.to(heads.device)]
    back = tables.relations[head.relations.to(heads.device)] if reciprocal else forward
    sides: tuple[tuple[Side, Question, tuple[Tensor, Tensor, Tensor]], ...] = (
        ("tail", tail, (heads, forward, tails)),
        ("head", head, (tails, back, heads)),
    )
    return [
        (
            side,
            Questions(model, triples, question, rows, known[side] if known else None, loops=loops),
        )
        for side, question, rows in sides
    ]


def require_finite(name: str, numbers: Tensor | NDArray[np.int64] | range, rows: Tensor) -> None:
    """Errors: `InvalidError` for a row that is not finite. `numbers`: the number of each row.

    Without this check, scores of NaN would count as low scores, because comparisons are false.
    """
    if not bool(rows.sum().isfinite()) and not bool(rows.isfinite().all()):
        row = int((~rows.isfinite()).any(dim=1).nonzero()[0])
        raise InvalidError(f"{name} {int(numbers[row])}: its embedding is not finite")


def slices(count: int, step: int) -> Iterator[slice]:
    """Consecutive slices of `count` places, each of at most `step`."""
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


@dataclass(frozen=True)
class Candidates:
    """The candidates among which a true answer is ranked."""

    kind: Literal["all", "uniform", "degree", "given"] = "all"
    """`uniform` and `degree` draw `count` entities once for all questions, with replacement."""
    count: int = 1000
    seed: int = 0
    own: Mapping[Side, NDArray[Any]] = field(default_factory=dict)
    """For kind `given`: candidates of each triple, integers [triples, candidates], by the open
    side. Only these sides are ranked, and ranks are not filtered.
    """

    @property
    def sides(self) -> tuple[Side, ...]:
        """The open sides."""
        return tuple(side for side in SIDES if self.kind != "given" or side in self.own)


@dataclass(frozen=True)
class TieMetrics:
    """Metrics of ranks, for one rule for ties."""

    mrr: float
    """Mean reciprocal rank."""
    mean_rank: float
    hits_at_1: float
    hits_at_3: float
    hits_at_10: float
    adjusted_mean_rank: float | None
    """AMR: the mean rank divided by the mean rank of a random order. 1 means chance; less is
    better. This and AMRI are `None` if every question has only the true answer as a candidate.
    """
    adjusted_mean_rank_index: float | None
    """AMRI: 1 is the best order, 0 is chance, and worse orders are below 0."""


@dataclass(frozen=True)
class RankMetrics(TieMetrics):
    """Metrics of realistic ranks: the means of optimistic and pessimistic ranks."""

    auc: float
    """Average share of candidates with a lower score than the true answer."""
    candidates: float
    """Average number of candidates per question, including the true answer."""
    optimistic: TieMetrics
    """Metrics if the true answer precedes all equal scores."""
    pessimistic: TieMetrics
    """Metrics if the true answer follows all equal scores."""

    @classmethod
    def of(cls, tally: Tally, row: int) -> RankMetrics:
        """Metrics of at least one question. `row`: 0 for raw metrics, 1 for filtered metrics."""
        ranks, others = tally.ranks()[row], tally.compared[row]
        below = 1.0 - (ranks - 1.0) / others.clamp_min(1)
        return cls(
            **_of_ranks(ranks, others),
            auc=float(below.mean()),
            candidates=float(others.double().mean()) + 1.0,
            optimistic=TieMetrics(**_of_ranks(tally.optimistic()[row], others)),
            pessimistic=TieMetrics(**_of_ranks(tally.pessimistic()[row], others)),
        )


def _of_ranks(ranks: Tensor, others: Tensor) -> dict[str, Any]:
    return metrics_of_ranks(ranks.numpy(), others.numpy(), hits=(1, 3, 10))


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a ranking, with the protocol that is necessary to interpret them."""

    protocol: str
    raw: RankMetrics
    filtered: RankMetrics | None
    """Metrics without other true answers; `None` without known triples."""
    raw_by_side: dict[Side, RankMetrics]
    filtered_by_side: dict[Side, RankMetrics]

    @property
    def mrr(self) -> float:
        """The filtered mean reciprocal rank; without a filter, the raw one."""
        return (self.filtered or self.raw).mrr


@dataclass(frozen=True)
class Ranking:
    """The ranks of the true ends of all triples."""

    protocol: str
    by_side: dict[Side, Tally]
    filtered: bool
    """Whether other true answers were known, so that filtered ranks exist."""

    def reciprocal(self) -> Tensor:
        """Reciprocal ranks of tails and heads; filtered if other true answers are known.

        Shapes: float64 [triples, 2], or [triples, 1] if only one side was ranked.
        """
        return self._of_sides(Tally.ranks).reciprocal()

    def optimistic(self) -> Tensor:
        """Ranks if the true end precedes all equal scores; shaped like `reciprocal`."""
        return self._of_sides(Tally.optimistic)

    def pessimistic(self) -> Tensor:
        """Ranks if the true end follows all equal scores; shaped like `reciprocal`."""
        return self._of_sides(Tally.pessimistic)

    def candidates(self) -> Tensor:
        """Number of candidates of each question, including the true end, int64 [triples, 2]."""
        return self._of_sides(lambda tally: tally.compared.long()) + 1

    def _of_sides(self, of: Callable[[Tally], Tensor]) -> Tensor:
        sides = [of(tally)[int(self.filtered)] for tally in self.by_side.values()]
        return torch.stack(sides, dim=1)

    def evaluation(self) -> Evaluation:
        """The metrics."""
        every = Tally.joined(self.by_side.values())
        raw, filtered = (
            {side: RankMetrics.of(tally, row) for side, tally in self.by_side.items()}
            for row in (0, 1)
        )
        return Evaluation(
            protocol=self.protocol,
            raw=RankMetrics.of(every, 0),
            filtered=RankMetrics.of(every, 1) if self.filtered else None,
            raw_by_side=raw,
            filtered_by_side=filtered if self.filtered else {},
        )


def rank(
    tables: Tables,
    model: Model,
    triples: Tensor,
    candidates: Candidates,
    answers: Mapping[str, _core.KnownAnswers] | None,
    *,
    reciprocal: bool = False,
    loops: bool = True,
    degree_sums: Tensor | None = None,
    group: int = 1 << 16,
    of: int | None = None,
    after_block: Callable[[int], object] = lambda rows: None,
) -> Ranking:
    """Ranks the tail and the head of each triple among candidates.

    `answers` are other true answers by side; without them, ranks are not filtered. Without `loops`,
    an entity is not a candidate for its own neighbour, because its own row always has by far the
    highest inner product. If the triples are a sample, `of` is the number of all triples, for the
    protocol. `group` is the number of triples that are ranked in one pass. `after_block` receives
    the number of compared rows of the table, and may stop the ranking by an exception.

    Shapes: `triples` int64 [m, 3], ids of entities; `degree_sums` int64 [entities], the cumulative
    sums of their degrees, for candidates by degree.

    Cost: one pass over the table for each group of triples, or one read of drawn candidates;
    questions x entities scores; one read of the rows of each group's ends. Memory: three rows per
    triple of a group, or four with reciprocal relations.

    Errors: `InvalidError` without triples, for a triple out of range, or for a row that is not
    finite.
    """
    check_triples("triples", triples, tables.entity_count, tables.relation_count)
    if not len(triples):
        raise InvalidError("evaluation: expected at least one triple, found none")
    most = max(tables.entity_count, candidates.count)
    if candidates.kind == "given":
        answers = None
    protocol = _protocol(tables, candidates, len(triples), of, answers is None, loops=loops)
    tallies = {side: Tally.zeros(len(triples), most) for side in candidates.sides}
    with torch.no_grad():
        drawn, none = [], np.empty((0, 0), np.int64)
        if candidates.kind in ("uniform", "degree"):
            drawn.append(_sample(tables, candidates, degree_sums))
        for place in slices(len(triples), group):
            questions = questions_of(
                tables, model, triples[place], answers, reciprocal=reciprocal, loops=loops
            )
            counted = [
                (of_side, tallies[side].within(place), candidates.own.get(side, none)[place])
                for side, of_side in questions
                if side in tallies
            ]
            blocks = drawn if candidates.kind != "all" else tables.blocks()
            _count(tables, counted, blocks, after_block)
            # Release these rows before the next group reads its rows.
            del questions, counted
    return Ranking(protocol, tallies, answers is not None)


def _count(
    tables: Tables,
    counted: list[tuple[Questions, Tally, NDArray[Any]]],
    blocks: Iterable[tuple[Tensor, Tensor]],
    after_block: Callable[[int], object],
) -> None:
    """Compares questions with their own candidates, and with blocks of common candidates."""
    for questions, tally, own in counted:
        for compared in questions.compare_own(tally, own, tables.rows) if len(own) else ():
            after_block(compared)
    for entities, rows in blocks:
        require_finite("entity", entities, rows)
        for questions, tally, _ in counted:
            questions.compare(tally, entities, rows)
        after_block(len(rows))


def _sample(
    tables: Tables, candidates: Candidates, degree_sums: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Draws candidates, and reads their rows."""
    random = generator(candidates.seed, Purpose.CANDIDATES)
    if candidates.kind == "uniform":
        drawn = torch.randint(tables.entity_count, (candidates.count,), generator=random)
    else:
        if degree_sums is None or not bool(degree_sums[-1] > 0):
            raise InvalidError("candidates: drawing by degree needs the degrees of entities")
        draws = torch.rand(candidates.count, generator=random, dtype=torch.float64)
        # Sums are integers, so a sum exceeds a draw if it exceeds the integer part of the draw.
        draws = (draws * degree_sums[-1]).long()
        drawn = torch.searchsorted(degree_sums, draws, right=True)
        drawn = drawn.clamp_(max=len(degree_sums) - 1)
    drawn = drawn.sort().values
    return drawn, tables.rows(drawn)


def _protocol(
    tables: Tables, candidates: Candidates, count: int, of: int | None, raw: bool, *, loops: bool
) -> str:
    among, sides = f"all {tables.entity_count:,} entities", "heads and tails"
    both = "filtered and raw"
    if candidates.kind == "given":
        counts = sorted({array.shape[1] for array in candidates.own.values()})
        among = f"{' and '.join(f'{count:,}' for count in counts)} entities given for each"
        sides = " and ".join(sorted(f"{side}s" for side in candidates.sides))
        both = "not filtered"
    elif candidates.kind != "all":
        how = "uniformly" if candidates.kind == "uniform" else "by degree"
        among = f"{candidates.count:,} entities drawn {how} (seed {candidates.seed})"
    if raw and candidates.kind != "given":
        both = "raw, other true answers count as wrong"
    if not loops:
        among += ", the node itself left out"
    some = f"{count:,}" if of in (None, count) else f"{count:,} of {of:,}"
    return (
        f"{some} triples, {sides}, among {among}; {both}; "
        "ties: mean of the optimistic and the pessimistic rank"
    )
