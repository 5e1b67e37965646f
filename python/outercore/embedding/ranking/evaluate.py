"""How well a model ranks the true end of a triple among candidates for it.

The table of entities is streamed once for each group of triples: blocks of it are compared with
all of the group's questions, and only counts are kept. So evaluation needs no more of the table in
memory than a block, whether it lies in memory or in partitions on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore import _core
from outercore.embedding.gradients.models import Model, Side
from outercore.embedding.gradients.negatives import known_answers
from outercore.embedding.randomness import Purpose, generator
from outercore.embedding.ranking.ranks import (
    SIDES,
    Questions,
    Tally,
    questions_of,
    require_finite,
    slices,
)
from outercore.embedding.tables.checks import check_triples
from outercore.embedding.tables.protocol import Store
from outercore.errors import InvalidError
from outercore.runs.rank_metrics import metrics_of_ranks


@dataclass(frozen=True)
class Candidates:
    """Among which entities a true one is ranked."""

    kind: Literal["all", "uniform", "degree", "given"] = "all"
    """`uniform` and `degree` draw `count` entities once, with repetition, for all questions."""
    count: int = 1000
    seed: int = 0
    given: Mapping[Side, NDArray[Any]] = field(default_factory=dict)
    """Of kind `given`: candidates of each triple, integers [triples, candidates], by the side that
    is asked for. Only these sides are ranked, and nothing is filtered."""

    @property
    def sides(self) -> tuple[Side, ...]:
        """What is asked for."""
        return SIDES if self.kind != "given" else tuple(one for one in SIDES if one in self.given)


@dataclass(frozen=True)
class TieMetrics:
    """Metrics of ranks by one rule for ties."""

    mrr: float
    """Mean reciprocal rank."""
    mean_rank: float
    hits_at_1: float
    hits_at_3: float
    hits_at_10: float
    adjusted_mean_rank: float | None
    """AMR: the mean rank divided by that of a random order; 1 for chance, less is better. `None`
    where nothing has a candidate besides the true one, and so for the index."""
    adjusted_mean_rank_index: float | None
    """AMRI: 1 for the best order, 0 for chance, below 0 for worse."""


@dataclass(frozen=True)
class RankMetrics(TieMetrics):
    """Metrics of realistic ranks, the means of the optimistic and the pessimistic ones."""

    auc: float
    """Share of a question's candidates that score below the true one, on average."""
    candidates: float
    """Candidates of a question, the true one included, on average."""
    optimistic: TieMetrics
    """The true one comes first of those with its score."""
    pessimistic: TieMetrics
    """It comes last of them."""

    @classmethod
    def of(cls, tally: Tally, row: int) -> RankMetrics:
        """Of at least one question; `row` is 0 for raw metrics, 1 for filtered ones."""
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
    """The fields of `TieMetrics`."""
    return metrics_of_ranks(ranks.numpy(), others.numpy(), hits=(1, 3, 10))


@dataclass(frozen=True)
class Evaluation:
    """Figures, and the protocol without which they mean nothing."""

    protocol: str
    raw: RankMetrics
    filtered: RankMetrics | None
    """Other true answers do not count; `None` where no known triples were given."""
    raw_by_side: dict[Side, RankMetrics]
    filtered_by_side: dict[Side, RankMetrics]

    @property
    def mrr(self) -> float:
        """The filtered mean reciprocal rank, the raw one where nothing was filtered."""
        return (self.filtered or self.raw).mrr


@dataclass(frozen=True)
class Ranking:
    """Where the true end of every triple stands: what figures are made of."""

    protocol: str
    by_side: dict[Side, Tally]
    filtered: bool
    """Whether other true answers were known."""

    def reciprocal(self) -> Tensor:
        """Reciprocal ranks, filtered where that is known, float64 [triples, 2]: tails, heads.

        [triples, 1] where only one side was ranked.
        """
        return self._of_sides(Tally.ranks).reciprocal()

    def optimistic(self) -> Tensor:
        """Ranks where the true end comes first of equal ones, shaped likewise."""
        return self._of_sides(Tally.optimistic)

    def pessimistic(self) -> Tensor:
        """Ranks where it comes last of them."""
        return self._of_sides(Tally.pessimistic)

    def candidates(self) -> Tensor:
        """Candidates of each question, the true end included, int64 [triples, 2]."""
        return self._of_sides(lambda tally: tally.compared.long()) + 1

    def _of_sides(self, of: Callable[[Tally], Tensor]) -> Tensor:
        found = [of(tally)[int(self.filtered)] for tally in self.by_side.values()]
        return torch.stack(found, dim=1)

    def evaluation(self) -> Evaluation:
        """The figures."""
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


def evaluate(
    store: Store,
    model: Model,
    triples: Tensor,
    *,
    known: Sequence[Tensor] = (),
    candidates: Candidates | None = None,
    **options: Any,
) -> Evaluation:
    """The figures of the tails and the heads of some triples.

    `known` need not have more than the triples that share head and relation, or relation and
    tail, with one of `triples`. `options` are those of `rank`.

    Shapes: `triples` and each of `known` int64 [m, 3], entities by number.
    """
    answers = known_answers(torch.cat(list(known))) if known else None
    found = rank(store, model, triples, candidates or Candidates(), answers, **options)
    return found.evaluation()


def rank(
    store: Store,
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
    after_block: Callable[[int], None] | None = None,
) -> Ranking:
    """Ranks the tail and the head of each triple among candidates.

    `answers` are the other true ones, by side; without them nothing is filtered. Without `loops` an
    entity is no candidate for its own neighbour: under an inner product its own row is the best by
    far, whatever was learned. The protocol says if the triples are only some `of` more.
    `after_block` is told how many rows of the table were compared, and may stop the ranking by an
    exception.

    Shapes: `triples` int64 [m, 3], entities by number; `degree_sums` int64 [entities], the running
    sums of their degrees, for candidates by degree.
    Cost: one pass over the table for each `group` triples, three rows in memory for each of them,
    or four of reciprocal relations, and questions x entities scores; besides one read of the rows
    of each group's ends. Of candidates that are drawn, one read of theirs instead of the passes.
    Errors: `InvalidError` for no triples, for one out of range, or for a row that is not finite.
    """
    check_triples("triples", triples, store.entity_count, store.relation_count)
    if not len(triples):
        raise InvalidError("evaluation: expected at least one triple, found none")
    most = max(store.entity_count, candidates.count)
    if candidates.kind == "given":
        answers = None
    protocol = _protocol(store, candidates, len(triples), of, answers is None, loops=loops)
    tallies = {side: Tally.zeros(len(triples), most) for side in candidates.sides}
    with torch.no_grad():
        drawn = None
        if candidates.kind in ("uniform", "degree"):
            drawn = [_sample(store, candidates, degree_sums)]
        for place in slices(len(triples), group):
            asked = questions_of(
                store, model, triples[place], answers, reciprocal=reciprocal, loops=loops
            )
            counted = [
                (questions, tallies[side].within(place))
                for side, questions in asked
                if side in tallies
            ]
            if candidates.kind == "given":
                given = [candidates.given[side][place] for side in tallies]
                _count_given(store, counted, given, after_block)
            else:
                _count(store.blocks() if drawn is None else drawn, counted, after_block)
            del asked
            # Before the next group's rows are there.
            del counted
    return Ranking(protocol, tallies, answers is not None)


def _count(
    blocks: Iterable[tuple[Tensor, Tensor]],
    counted: Sequence[tuple[Questions, Tally]],
    after_block: Callable[[int], None] | None,
) -> None:
    """Compares questions with candidates that come in blocks."""
    for entities, rows in blocks:
        require_finite("entity", entities, rows)
        for questions, tally in counted:
            questions.compare(tally, entities, rows)
        if after_block is not None:
            after_block(len(rows))


def _count_given(
    store: Store,
    counted: Sequence[tuple[Questions, Tally]],
    given: Sequence[NDArray[Any]],
    after_block: Callable[[int], None] | None,
) -> None:
    """Compares questions with candidates of their own, [questions, candidates] each."""
    for (questions, tally), candidates in zip(counted, given, strict=True):
        for compared in questions.compare_given(tally, candidates, store.rows):
            if after_block is not None:
                after_block(compared)


def _sample(
    store: Store, candidates: Candidates, degree_sums: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Candidates that are drawn, and their rows."""
    random = generator(candidates.seed, Purpose.CANDIDATES)
    if candidates.kind == "uniform":
        drawn = torch.randint(store.entity_count, (candidates.count,), generator=random)
    else:
        if degree_sums is None or not bool(degree_sums[-1] > 0):
            raise InvalidError("candidates: drawing by degree needs the degrees of entities")
        draws = torch.rand(candidates.count, generator=random, dtype=torch.float64)
        # Of whole numbers a sum is above a draw where it is above the draw's whole part.
        draws = (draws * degree_sums[-1]).long()
        drawn = torch.searchsorted(degree_sums, draws, right=True)
        drawn = drawn.clamp_(max=len(degree_sums) - 1)
    drawn = drawn.sort().values
    return drawn, store.rows(drawn)


def _protocol(
    store: Store, candidates: Candidates, count: int, of: int | None, raw: bool, *, loops: bool
) -> str:
    among, sides = f"all {store.entity_count:,} entities", "heads and tails"
    both = "filtered and raw"
    if candidates.kind == "given":
        counts = sorted({array.shape[1] for array in candidates.given.values()})
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
