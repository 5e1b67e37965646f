"""How well a model ranks the true end of a triple among candidates for it.

The table of entities is streamed once for each group of triples: blocks of it are compared with
all of the group's questions, and only counts are kept. So evaluation needs no more of the table in
memory than a block, whether it lies in memory or in partitions on disk.

A rank counts the candidates with a higher score, and half of those with the same one: the mean of
the optimistic and the pessimistic rank, so that a model that says the same of all gains nothing.
Scores closer than their rounding are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from outercore.embed.kernels import Masked
from outercore.embed.models import Model, Side
from outercore.embed.negatives import KnownTargets, occurrences
from outercore.embed.randomness import Purpose, generator
from outercore.embed.store import Store, check_triples
from outercore.embed.trainer import ask
from outercore.errors import InvalidError

_SIDES: tuple[Side, ...] = ("tail", "head")
_BLOCK_NUMBERS = 1 << 21


@dataclass(frozen=True)
class Candidates:
    """Among which entities a true one is ranked."""

    kind: Literal["all", "uniform", "degree"] = "all"
    """`uniform` and `degree` draw `count` entities once, with repetition, for all questions."""
    count: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind != "all" and self.count < 1:
            raise InvalidError(f"candidates.count: expected at least 1, found {self.count}")


@dataclass(frozen=True)
class RankMetrics:
    """What is made of ranks."""

    mrr: float
    """Mean reciprocal rank."""
    mean_rank: float
    hits_at_1: float
    hits_at_3: float
    hits_at_10: float
    auc: float
    """Share of a question's candidates that score below the true one, on average."""

    @classmethod
    def of(cls, ranks: Tensor, candidates: Tensor) -> RankMetrics:
        """Shapes: `ranks` float64 and `candidates` int64, [questions]; none of these is empty."""
        below = 1.0 - (ranks - 1.0) / candidates.clamp_min(1)
        return cls(
            mrr=float(ranks.reciprocal().mean()),
            mean_rank=float(ranks.mean()),
            hits_at_1=float((ranks <= 1.0).double().mean()),
            hits_at_3=float((ranks <= 3.0).double().mean()),
            hits_at_10=float((ranks <= 10.0).double().mean()),
            auc=float(below.mean()),
        )

    def __str__(self) -> str:
        return (
            f"MRR {self.mrr:.4f}, mean rank {self.mean_rank:.1f}, Hits@1 {self.hits_at_1:.4f}, "
            f"Hits@3 {self.hits_at_3:.4f}, Hits@10 {self.hits_at_10:.4f}"
        )


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

    def __str__(self) -> str:
        lines = [self.protocol]
        if self.filtered is not None:
            lines.append(f"filtered: {self.filtered}")
        lines.append(f"raw: {self.raw}")
        return "\n".join(lines)


class Ranks(NamedTuple):
    """Ranks, float64, and numbers of candidates, [questions] each."""

    raw: Tensor
    raw_candidates: Tensor
    filtered: Tensor
    filtered_candidates: Tensor


@dataclass(frozen=True)
class Ranking:
    """Where the true end of every triple stands: what figures are made of."""

    protocol: str
    by_side: dict[Side, Ranks]
    filtered: bool
    """Whether other true answers were known."""

    def reciprocal(self) -> Tensor:
        """Reciprocal ranks, filtered where that is known, float64 [triples, 2]: tails, heads."""
        both = (self.by_side[side] for side in _SIDES)
        ranks = [ranks.filtered if self.filtered else ranks.raw for ranks in both]
        return torch.stack(ranks, dim=1).reciprocal()

    def evaluation(self) -> Evaluation:
        """The figures."""
        columns = zip(*self.by_side.values(), strict=True)
        everything = Ranks(*(torch.cat(column) for column in columns))
        by_side = self.by_side.items()
        clean = {side: _filtered(ranks) for side, ranks in by_side} if self.filtered else {}
        return Evaluation(
            protocol=self.protocol,
            raw=_raw(everything),
            filtered=_filtered(everything) if self.filtered else None,
            raw_by_side={side: _raw(ranks) for side, ranks in by_side},
            filtered_by_side=clean,
        )


def _raw(ranks: Ranks) -> RankMetrics:
    return RankMetrics.of(ranks.raw, ranks.raw_candidates)


def _filtered(ranks: Ranks) -> RankMetrics:
    return RankMetrics.of(ranks.filtered, ranks.filtered_candidates)


def evaluate(store: Store, model: Model, triples: Tensor, **options: Any) -> Evaluation:
    """The figures of what `rank` finds; it says what the arguments are."""
    return rank(store, model, triples, **options).evaluation()


def rank(
    store: Store,
    model: Model,
    triples: Tensor,
    *,
    reciprocal: bool = False,
    known: Sequence[Tensor] = (),
    answers: Mapping[Side, KnownTargets] | None = None,
    loops: bool = True,
    candidates: Candidates | None = None,
    degree_sums: Tensor | None = None,
    group: int = 1 << 16,
    after_block: Callable[[int], None] | None = None,
) -> Ranking:
    """Ranks the tail and the head of each triple.

    `known` need not have more than the triples that share head and relation, or relation and
    tail, with one of `triples`. `answers` gives them by side instead, as `outercore.embed.known`
    collects them, where these would take too much memory. Without `loops` an entity is no candidate
    for its own neighbour: under an inner product its own row is the best by far, whatever was
    learned. `after_block` is told how many rows of the table were compared, and may stop the
    evaluation by an exception.

    Shapes: `triples` and each of `known` int64 [m, 3], entities by number; `degree_sums` int64
    [entities], the running sums of their degrees, for candidates by degree.
    Cost: one pass over the table for each `group` triples, two rows in memory for each of them,
    and questions x entities scores.
    Errors: `InvalidError` for no triples, for one out of range, or for a row that is not finite.
    """
    check_triples("triples", triples, store.entity_count, store.relation_count)
    if not len(triples):
        raise InvalidError("evaluation: expected at least one triple, found none")
    candidates = candidates or Candidates()
    if known:
        every = torch.cat(list(known))
        answers = {side: _known(every, side) for side in _SIDES}
    found: dict[Side, Ranks] = {}
    with torch.no_grad():
        sampled = _sample(store, candidates, degree_sums)
        parts: dict[Side, list[Ranks]] = {side: [] for side in _SIDES}
        for some in triples.split(group):
            sides = [
                _Questions(
                    store,
                    model,
                    some,
                    side,
                    None if answers is None else answers[side],
                    reciprocal=reciprocal,
                    loops=loops,
                )
                for side in _SIDES
            ]
            for entities, rows in store.blocks() if sampled is None else [sampled]:
                _require_finite(entities, rows)
                for questions in sides:
                    questions.compare(entities, rows)
                if after_block is not None:
                    after_block(len(rows))
            for questions in sides:
                parts[questions.side].append(questions.ranks())
        for side in _SIDES:
            found[side] = Ranks(*(torch.cat(column) for column in zip(*parts[side], strict=True)))
    filtered = answers is not None
    protocol = _protocol(store, candidates, len(triples), filtered=filtered, loops=loops)
    return Ranking(protocol, found, filtered)


class _Questions:
    """A group of triples with one end asked for, and what was counted so far."""

    def __init__(
        self,
        store: Store,
        model: Model,
        triples: Tensor,
        side: Side,
        known: KnownTargets | None,
        *,
        reciprocal: bool,
        loops: bool,
    ) -> None:
        self.side: Side = side
        self._model = model
        question = ask(triples, side, store.relation_count, reciprocal=reciprocal)
        self._asked = question.side
        self._anchors = store.rows(question.anchors)
        device = self._anchors.device
        self._relations = store.relations[question.relations.to(device)]
        self._targets = question.targets
        targets = store.rows(question.targets)
        score = model.paired(question.side, self._anchors, self._relations, targets)
        slack = model.rounding(question.side, self._anchors, self._relations, targets)
        if not bool(score.isfinite().all()):
            row = int((~score.isfinite()).nonzero()[0])
            raise InvalidError(f"triple {triples[row].tolist()}: its score is not finite")
        self._above, self._below = score + slack, score - slack
        count = len(triples)
        self._higher = torch.zeros(2, count, dtype=torch.int64)
        self._not_lower = torch.zeros(2, count, dtype=torch.int64)
        self._compared = torch.zeros(2, count, dtype=torch.int64)
        # What is no candidate, whatever is filtered: (question, entity).
        self._out_rows, self._out = torch.arange(count), question.targets
        if not loops:
            others = (question.anchors != question.targets).nonzero().squeeze(1)
            self._out_rows, order = torch.cat([self._out_rows, others]).sort(stable=True)
            self._out = torch.cat([self._out, question.anchors[others]])[order]
        self._known = known
        self._asked_for, self._relation_ids = question, triples[:, 1]
        self._loops = loops

    def compare(self, entities: Tensor, rows: Tensor) -> None:
        """Counts a block of candidates; `entities` ascend and may repeat."""
        device = self._anchors.device
        out = occurrences(entities, self._out_rows, self._out).to(device)
        step = max(1, _BLOCK_NUMBERS // max(1, len(rows)))
        for start in range(0, len(self._targets), step):
            some = slice(start, min(start + step, len(self._targets)))
            self._compare_some(some, entities, rows, out.between(some.start, some.stop))

    def _known_among(self, entities: Tensor, some: slice) -> Iterator[Masked]:
        """Where the other true answers of some questions stand among `entities`, some at a time."""
        if self._known is None:
            return
        anchors, targets = self._asked_for.anchors[some], self._asked_for.targets[some]
        for found in self._known.among(anchors, self._relation_ids[some], entities):
            others = entities[found.columns]
            rest = others != targets[found.rows]
            if not self._loops:
                rest &= others != anchors[found.rows]
            yield Masked(found.rows[rest], found.columns[rest])

    def _compare_some(self, some: slice, entities: Tensor, rows: Tensor, out: Masked) -> None:
        scores = self._model.scores(self._asked, self._anchors[some], self._relations[some], rows)
        above, below = self._above[some], self._below[some]
        scores[out.rows, out.columns] = -torch.inf
        count = len(above)
        higher = (scores > above.unsqueeze(1)).sum(dim=1)
        not_lower = (scores >= below.unsqueeze(1)).sum(dim=1)
        compared = len(rows) - torch.bincount(out.rows, minlength=count)
        counts = ((self._higher, higher), (self._not_lower, not_lower), (self._compared, compared))
        for total, all_of_them in counts:
            total[:, some] += all_of_them.cpu()
        for found in self._known_among(entities, some):
            known = found.to(scores.device)
            of_known = scores[known.rows, known.columns]
            for total, rows_of_known in (
                (self._higher, known.rows[of_known > above[known.rows]]),
                (self._not_lower, known.rows[of_known >= below[known.rows]]),
                (self._compared, known.rows),
            ):
                total[1, some] -= torch.bincount(rows_of_known, minlength=count).cpu()

    def ranks(self) -> Ranks:
        """The ranks, once all candidates are counted."""
        ranks = 1.0 + (self._higher + self._not_lower).double() / 2.0
        return Ranks(ranks[0], self._compared[0], ranks[1], self._compared[1])


def _known(triples: Tensor, side: Side) -> KnownTargets:
    heads, relations, tails = triples.unbind(1)
    if side == "tail":
        return KnownTargets(heads, relations, tails)
    return KnownTargets(tails, relations, heads)


def _sample(
    store: Store, candidates: Candidates, degree_sums: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """The candidates and their rows, `None` for all."""
    if candidates.kind == "all":
        return None
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


def _require_finite(entities: Tensor, rows: Tensor) -> None:
    """A score that is not a number compares with nothing, and would pass for a low one."""
    if not bool(rows.sum().isfinite()) and not bool(rows.isfinite().all()):
        row = int((~rows.isfinite()).any(dim=1).nonzero()[0])
        raise InvalidError(f"entity {int(entities[row])}: its embedding is not finite")


def _protocol(
    store: Store, candidates: Candidates, triples: int, *, filtered: bool, loops: bool
) -> str:
    among = f"all {store.entity_count:,} entities"
    if candidates.kind != "all":
        how = "uniformly" if candidates.kind == "uniform" else "by degree"
        among = f"{candidates.count:,} entities drawn {how} (seed {candidates.seed})"
    both = "filtered and raw" if filtered else "raw, other true answers count as wrong"
    if not loops:
        among += ", the node itself left out"
    return (
        f"{triples:,} triples, heads and tails, among {among}; {both}; "
        "ties: mean of the optimistic and the pessimistic rank"
    )
