"""Validation and final metrics of a run: the ranked triples and their candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore import _core
from outercore.base.native import Progress
from outercore.data.triples import fill
from outercore.embedding.config import CandidateKind, EmbedConfig
from outercore.embedding.data.parts import watched
from outercore.embedding.gradients.chunk import Side
from outercore.embedding.gradients.models import Model
from outercore.embedding.gradients.negatives import COLUMNS
from outercore.embedding.randomness import Purpose, generator
from outercore.embedding.ranking.ranks import Candidates, Ranking, rank
from outercore.embedding.tables.placement import group_size, kinds_of, rows_compared
from outercore.embedding.tables.store import Tables
from outercore.runs.progress import Observer, until_stopped
from outercore.runs.stop import StopRequest

if TYPE_CHECKING:
    from outercore.data.triples import Part, Triples
    from outercore.embedding.data.parts import EmbedData

_FEW, _SPARSE = 1 << 20, 4
"""Largest permutation for a draw: `_FEW` positions, or `_SPARSE` times the drawn positions."""


@dataclass(frozen=True)
class RankedTriples:
    """The triples to rank of one part (`train`, `valid` or `test`)."""

    part: Part
    triples: Tensor
    """int64 [m, 3]: the triples to rank, all triples of the part or a sample."""
    of: int
    """Number of triples of the part."""
    own: Mapping[Side, NDArray[Any]] | None = None
    """Candidates of each of `triples`, by the open side, if each triple has its own."""


def choose(
    part: Part,
    triples: Triples,
    most: int,
    seed: int,
    progress: Progress | None = None,
) -> RankedTriples:
    """Draws at most `most` triples of a part with the seed; 0 takes all triples.

    Cost: one read of the triples. Memory: the drawn triples, and 8 bytes for the position of each
    one. The draw itself takes five times these 8 bytes, or 8 MiB.
    """
    count = triples.count
    chunks = watched(triples.chunks(), f"read {part} triples", count, progress)
    if not most or count <= most:
        every = fill(np.empty((count, 3), np.int64), chunks)
        return RankedTriples(part, torch.from_numpy(every), count)
    places, rows = drawn_places(part, count, most, seed), np.empty((most, 3), np.int64)
    first = done = 0
    for chunk in chunks:
        until = int(np.searchsorted(places, first + len(chunk)))
        rows[done:until] = chunk[places[done:until] - first]
        first, done = first + len(chunk), until
        if done == most:
            break
    return RankedTriples(part, torch.from_numpy(rows), count)


def drawn_places(part: Part, count: int, most: int, seed: int) -> NDArray[np.int64]:
    """Draws the positions of `most` of the `count` triples of a part, in ascending order."""
    # Draws of candidates do not use this place of the random stream.
    random = generator(seed, Purpose.CANDIDATES, 1 if part == "valid" else 2)
    return distinct_places(count, most, random).numpy()


def choose_parts(
    data: EmbedData, config: EmbedConfig, progress: Progress | None = None
) -> list[RankedTriples]:
    """Chooses the ranked triples of each held-out part; see `choose`."""
    limits = config.evaluation
    most = {"valid": limits.valid_triples, "test": limits.test_triples}
    return [
        choose(part, triples, most[part], config.run.seed, progress)
        for part, triples in data.parts.items()
        if part != "train"
    ]


def distinct_places(count: int, most: int, random: torch.Generator) -> Tensor:
    """Draws `most` different numbers below `count`, uniformly and in ascending order: int64 [most].

    Cost: memory for a small multiple of `most` integers, and 8 MiB, independent of `count`.
    """
    if count <= max(_FEW, _SPARSE * most):
        # Copy this part, so that the whole permutation is released before the sort.
        return torch.randperm(count, generator=random)[:most].clone().sort().values
    # Duplicates are drawn again, so all sets of one size have equal probability.
    places = torch.empty(0, dtype=torch.int64)
    while len(places) < most:
        more = torch.randint(count, (most - len(places),), generator=random)
        places = torch.cat([places, more]).unique()
    return places


Kind: TypeAlias = Literal["given"] | CandidateKind
"""The kind of candidates of a ranking."""
AnswersByPart: TypeAlias = "dict[Part, dict[str, _core.KnownAnswers]]"
"""The true answers to the ranked triples of each part, by the open side."""


def count_answers(
    data: EmbedData, held_out: Iterable[RankedTriples], progress: Progress | None = None
) -> AnswersByPart:
    """Counts the true answers to both sides of held-out triples, to plan memory for them.

    Cost: one read of all triples, and 32 bytes of memory per held-out triple.
    """

    known = {
        held.part: {
            side: _core.KnownAnswers(held.triples.numpy(), some, data.entities, data.relations)
            for side, some in COLUMNS.items()
        }
        for held in held_out
    }
    for chunk in data.answers("count true answers", progress):
        for sides in known.values():
            for answers in sides.values():
                answers.count(chunk)
    return known


def answers_in(known: AnswersByPart) -> int:
    """Number of true answers to all ranked triples."""
    return sum(answers.counted for sides in known.values() for answers in sides.values())


class Scoring:
    """Ranks held-out triples with the current tables."""

    def __init__(
        self,
        config: EmbedConfig,
        model: Model,
        tables: Tables,
        data: EmbedData,
        held_out: Iterable[RankedTriples],
        known: AnswersByPart,
        *,
        memory: int,
        observer: Observer,
        stop: StopRequest,
    ) -> None:
        """Collects the true answers.

        `known` are the counted true answers to `held_out`. `memory` is for the triples that are
        ranked in one pass over the table.

        Cost: one pass over all triples for the answers; 4 bytes of memory per answer, or 8 with
        large ids. If candidates are drawn by degree, also one pass over the training triples.
        """
        progress = until_stopped(observer, stop)
        self._config, self._model, self._tables = config, model, tables
        self._loops = data.train.loops
        self._held_out = {held.part: held for held in held_out if len(held.triples)}
        self._degree_sums: Tensor | None = None
        if "degree" in (config.evaluation.candidates, *config.evaluation.also):
            # In place, to save memory if there are many entities.
            self._degree_sums = torch.from_numpy(data.degrees(progress)).cumsum_(0)
        self._group = group_size(config, memory)
        self._observer, self._stop = observer, stop
        self._known: AnswersByPart = {}
        if known:
            self.collect_known(known, data.answers("collect true answers", progress))

    def collect_known(self, known: AnswersByPart, chunks: Iterable[NDArray[np.int64]]) -> None:
        """Collects the answers that `count_answers` has counted, in a pass over all triples."""
        every = [answers for sides in known.values() for answers in sides.values()]
        for chunk in chunks:
            for answers in every:
                answers.add(chunk)
        for answers in every:
            answers.finish()
        self._known = known

    def has(self, part: Part) -> bool:
        """Whether the part has triples to rank."""
        return part in self._held_out

    def triples(self, part: Part) -> Tensor:
        """The ranked triples of a part, int64 [m, 3]."""
        return self._held_out[part].triples

    def validate(self) -> float:
        """The mean reciprocal rank of the validation triples."""
        return self.ranking("valid").evaluation().mrr

    def final(self) -> list[dict[str, Any]]:
        """The metrics of all parts for all chosen protocols."""
        metrics = []
        for part in self._held_out:
            for kind in self._kinds(part):
                result = self.ranking(part, kind).evaluation()
                values = {"part": part, "candidates": kind, "mrr": result.mrr, **asdict(result)}
                metrics.append(values)
        return metrics

    def ranking(self, part: Part, kind: Kind | None = None) -> Ranking:
        """Ranks the triples of a part. Default `kind`: the candidates of validations.

        Errors: `InterruptError` after a requested stop.
        """
        kind = kind or self._kinds(part)[0]
        held, entities = self._held_out[part], self._tables.entity_count
        own = held.own or {}
        if kind == "given":
            rows = sum(candidates.size for candidates in own.values())
        else:
            passes = -(-len(held.triples) // self._group)
            rows = passes * rows_compared(self._config, kind, entities)
        self._observer.evaluation_started(f"{part}, among {_AMONG[kind]}", rows, 0)

        def after_block(compared: int) -> None:
            self._observer.evaluation_advanced(compared)
            self._stop.check()

        evaluation = self._config.evaluation
        return rank(
            self._tables,
            self._model,
            held.triples,
            Candidates(kind, evaluation.count, self._config.run.seed, own),
            self._known[part] if evaluation.filtered and not own else None,
            reciprocal=self._config.model.reciprocal,
            loops=self._loops,
            degree_sums=self._degree_sums,
            group=self._group,
            of=held.of,
            after_block=after_block,
        )

    def _kinds(self, part: Part) -> Sequence[Kind]:
        """The kinds of candidates for a part. Validations use the first kind."""
        if self._held_out[part].own is not None:
            return ["given"]
        count = len(self._held_out[part].triples)
        return kinds_of(self._config, count, self._tables.entity_count)


_AMONG: dict[Kind, str] = {
    "given": "entities given for each",
    "all": "all entities",
    "uniform": "entities drawn uniformly",
    "degree": "entities drawn by degree",
}
