"""Validation, and the figures at a run's end: what is ranked among what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore import _core
from outercore.base.native import Progress
from outercore.data.triples import fill
from outercore.embedding.config import CandidateKind, EmbedConfig
from outercore.embedding.gradients.kernels import Side
from outercore.embedding.gradients.models import Model
from outercore.embedding.gradients.negatives import COLUMNS
from outercore.embedding.randomness import Purpose, generator
from outercore.embedding.ranking.ranks import Candidates, Ranking, rank
from outercore.embedding.tables.placement import group_size, kinds_of, rows_compared
from outercore.embedding.tables.store import Store
from outercore.runs.progress import Observer, watched
from outercore.runs.stop import StopRequest

if TYPE_CHECKING:
    from outercore.data.triples import Part, Triples
    from outercore.embedding.data.parts import EmbedData

_FEW, _SPARSE = 1 << 20, 4
"""Of so many places, or so many times those that are drawn, a permutation is made at most."""


@dataclass(frozen=True)
class HeldOut:
    """Triples that are ranked."""

    part: Part
    triples: Tensor
    """int64 [m, 3]; those that are ranked, if not all are."""
    of: int
    """How many there are."""
    given: Mapping[Side, NDArray[Any]] | None = None
    """Separate candidates of each of `triples`, by the open side, if any."""


def choose(
    part: Part,
    triples: Triples,
    most: int,
    seed: int,
    told: Progress | None = None,
) -> HeldOut:
    """At most so many of the triples, drawn once by the seed; all where `most` is 0.

    Cost: one read of the triples, of which only those that are drawn stay in memory, with 8 bytes
    for the place of each; five times that, or 8 MiB, while they are drawn.
    """
    count = triples.count
    chunks = watched(triples.chunks(), f"read {part} triples", count, told)
    if most and count > most:
        chosen = _rows_at(_places(part, count, most, seed), chunks)
    else:
        chosen = fill(np.empty((count, 3), np.int64), chunks)
    return HeldOut(part, torch.from_numpy(chosen), count)


def with_given(held: HeldOut, given: Mapping[Side, NDArray[Any]], most: int, seed: int) -> HeldOut:
    """All triples of a part with their own candidates; of more than `most` those `choose` draws."""
    if most and held.of > most:
        places = _places(held.part, held.of, most, seed)
        chosen = {side: candidates[places] for side, candidates in given.items()}
        return HeldOut(held.part, held.triples[torch.from_numpy(places)], held.of, chosen)
    return replace(held, given=given)


def _places(part: Part, count: int, most: int, seed: int) -> NDArray[np.int64]:
    # Another place of the stream than candidates are drawn from.
    random = generator(seed, Purpose.CANDIDATES, 1 if part == "valid" else 2)
    return distinct_places(count, most, random).numpy()


def choose_parts(
    data: EmbedData, config: EmbedConfig, told: Progress | None = None
) -> list[HeldOut]:
    """The ranked triples of each held-out part; see `choose`."""
    limits = config.evaluation
    most = {"valid": limits.valid_triples, "test": limits.test_triples}
    return [
        choose(part, triples, most[part], config.run.seed, told)
        for part, triples in data.parts.items()
        if part != "train"
    ]


def distinct_places(count: int, most: int, random: torch.Generator) -> Tensor:
    """So many of `count` places, each as likely, ascending: int64 [most].

    Cost: memory for some times `most` numbers, and 8 MiB, however many places there are.
    """
    if count <= max(_FEW, _SPARSE * most):
        # Of the permutation only that part stays while it is sorted.
        return torch.randperm(count, generator=random)[:most].clone().sort().values
    # Duplicates are drawn anew. All sets of one size are as likely as each other.
    found = torch.empty(0, dtype=torch.int64)
    while len(found) < most:
        more = torch.randint(count, (most - len(found),), generator=random)
        found = torch.cat([found, more]).unique()
    return found


def _rows_at(places: NDArray[np.int64], chunks: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The rows at ascending places of all chunks one after the other."""
    found = np.empty((len(places), 3), np.int64)
    first = done = 0
    for chunk in chunks:
        until = int(np.searchsorted(places, first + len(chunk)))
        found[done:until] = chunk[places[done:until] - first]
        first, done = first + len(chunk), until
        if done == len(places):
            break
    return found


Kind: TypeAlias = Literal["given"] | CandidateKind
"""Among what is ranked."""
Answers: TypeAlias = "dict[Part, dict[str, _core.KnownAnswers]]"
"""True answers to the ranked triples of a part, by the open side."""


def count_answers(
    data: EmbedData, held_out: Iterable[HeldOut], told: Progress | None = None
) -> Answers:
    """The true answers to both sides of held-out triples, counted so that memory can be planned.

    Cost: one read of all triples, and 32 bytes a triple that is held out.
    """

    known = {
        held.part: {
            side: _core.KnownAnswers(held.triples.numpy(), some, data.entities, data.relations)
            for side, some in COLUMNS.items()
        }
        for held in held_out
    }
    for chunk in data.answers("count true answers", told):
        for sides in known.values():
            for answers in sides.values():
                answers.count(chunk)
    return known


def answers_in(known: Answers) -> int:
    """How many true answers there are to all that is ranked."""
    return sum(one.counted for sides in known.values() for one in sides.values())


class Scoring:
    """Ranks held-out triples by the tables of a store as they are."""

    def __init__(
        self,
        config: EmbedConfig,
        model: Model,
        store: Store,
        data: EmbedData,
        held_out: Iterable[HeldOut],
        known: Answers,
        *,
        memory: int,
        observer: Observer,
        stop: StopRequest,
        told: Progress,
    ) -> None:
        """`known` are the counted true answers to `held_out`; `memory` is for a group of questions.

        Cost: one pass over all triples for the answers, 4 bytes each, or 8 with long ids; one over
        the training triples for degrees if candidates are drawn by them. `told` gets the progress.
        """
        self._loops = data.loops
        self._config = config
        self._model = model
        self._store = store
        self._held_out = {held.part: held for held in held_out if len(held.triples)}
        self._degree_sums: Tensor | None = None
        if "degree" in (config.evaluation.candidates, *config.evaluation.also):
            # In place: entities may be many.
            self._degree_sums = torch.from_numpy(data.degrees(told)).cumsum_(0)
        self._group = group_size(config, memory)
        self._observer, self._stop = observer, stop
        self._known: Answers = {}
        if known:
            self.collect_known(known, data.answers("collect true answers", told))

    def collect_known(self, known: Answers, chunks: Iterable[NDArray[np.int64]]) -> None:
        """Goes through all triples for the answers that `count_answers` has counted."""
        every = [answers for sides in known.values() for answers in sides.values()]
        for chunk in chunks:
            for answers in every:
                answers.add(chunk)
        for answers in every:
            answers.finish()
        self._known = known

    def has(self, part: Part) -> bool:
        """Whether there is something to rank."""
        return part in self._held_out

    def triples(self, part: Part) -> Tensor:
        """The triples of a part that are ranked, int64 [m, 3]."""
        return self._held_out[part].triples

    def validate(self) -> float:
        """The mean reciprocal rank of the validation triples."""
        return self.ranking("valid").evaluation().mrr

    def final(self) -> list[dict[str, Any]]:
        """The metrics of all parts by all chosen protocols, each with its protocol."""
        found = []
        for part in self._held_out:
            for kind in self._kinds(part):
                one = self.ranking(part, kind).evaluation()
                found.append({"part": part, "candidates": kind, "mrr": one.mrr, **asdict(one)})
        return found

    def ranking(self, part: Part, kind: Kind | None = None) -> Ranking:
        """Ranks a part's triples among these candidates, or those that validation takes.

        Errors: `InterruptError` after a requested stop.
        """
        kind = kind or self._kinds(part)[0]
        held, entities = self._held_out[part], self._store.entity_count
        given = held.given or {}
        if kind == "given":
            rows = sum(candidates.size for candidates in given.values())
        else:
            passes = -(-len(held.triples) // self._group)
            rows = passes * rows_compared(self._config, kind, entities)
        self._observer.evaluation_started(f"{part}, among {_AMONG[kind]}", rows, 0)

        def after_block(compared: int) -> None:
            self._observer.evaluation_advanced(compared)
            self._stop.check()

        evaluation = self._config.evaluation
        return rank(
            self._store,
            self._model,
            held.triples,
            Candidates(kind, evaluation.count, self._config.run.seed, given),
            self._known[part] if evaluation.filtered and not given else None,
            reciprocal=self._config.model.reciprocal,
            loops=self._loops,
            degree_sums=self._degree_sums,
            group=self._group,
            of=held.of,
            after_block=after_block,
        )

    def _kinds(self, part: Part) -> Sequence[Kind]:
        """Among which entities a part is ranked."""
        if self._held_out[part].given is not None:
            return ["given"]
        count = len(self._held_out[part].triples)
        return kinds_of(self._config, count, self._store.entity_count)


_AMONG: dict[Kind, str] = {
    "given": "entities given for each",
    "all": "all entities",
    "uniform": "entities drawn uniformly",
    "degree": "entities drawn by degree",
}
