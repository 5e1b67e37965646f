"""Ranking held-out triples again by a finished embedding: other candidates, other parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.base.sizes import parse_size
from outercore.data.triples import PARTS, Part
from outercore.embedding.config import CandidateKind, EmbedConfig
from outercore.embedding.data.parts import data_of, has_triples
from outercore.embedding.ranking.given_candidates import GivenCandidates, given_candidates
from outercore.embedding.ranking.scoring import (
    HeldOut,
    Scoring,
    choose,
    count_answers,
    with_given,
)
from outercore.errors import InvalidError, NotFoundError
from outercore.runs.progress import Observer, until_stopped
from outercore.runs.stop import StopRequest, stop_on_signals

if TYPE_CHECKING:
    from outercore.base.native import Progress
    from outercore.embedding.data.parts import EmbedData
    from outercore.embedding.tables.protocol import Store
    from outercore.embedding.use.embedding import Embedding

_BLOCK_ROWS = 1 << 14


class FinishedTables:
    """The tables of a finished run, as far as ranking needs a store."""

    def __init__(self, embedding: Embedding) -> None:
        self._embedding = embedding
        self.entity_count = embedding.num_entities
        self.relation_count = embedding.num_relations
        self.relations = torch.from_numpy(embedding.relations)

    def rows(self, entities: Tensor) -> Tensor:
        """See `Store`."""
        return torch.from_numpy(self._embedding.rows(entities.numpy()))

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """See `Store`."""
        for first, rows in self._embedding.blocks(_BLOCK_ROWS):
            yield torch.arange(first, first + len(rows)), torch.from_numpy(rows)


def assess(
    embedding: Embedding,
    *,
    parts: Sequence[Part] = ("test",),
    candidates: Literal["auto", "all", "uniform", "degree"] = "auto",
    count: int = 1000,
    also: Sequence[CandidateKind] = (),
    filtered: bool = True,
    triples: int = 0,
    negatives: GivenCandidates | None = None,
    seed: int | None = None,
    memory: str | int = "256MiB",
    observer: Observer | None = None,
) -> list[dict[str, Any]]:
    """Ranks the held-out triples of the embedding's data set.

    Args:
        embedding: the tables.
        parts: `valid`, `test`, or `train`.
        candidates: among which entities; `auto` takes all unless that takes too many products.
        count: candidates that are drawn.
        also: further kinds of candidates.
        filtered: gives figures without other true answers, too.
        triples: how many to rank at most; 0 for all.
        negatives: candidates of each triple, as OGB gives them: arrays `tail_neg` and `head_neg`
            (or `target_node_neg`), integers [triples of the part, candidates], by name, or an
            `.npz` or `.pt` of them. Then only these are ranked, and nothing is filtered. A
            mapped array stays on disk.
        seed: of all draws; by default the run's.
        memory: for the questions in work.
        observer: told how far it is.

    Returns:
        The figures of each part and kind of candidates, with the protocol.

    Raises:
        NotFoundError: the data set has no such part.
        InvalidError: `negatives` of other triples, of several parts, or with other candidates; a
            protocol that there is not; a row that is not finite; a plain graph's run without its
            configuration.
        InterruptError: somebody asked to stop.
    """
    protocol = {"candidates": candidates, "count": count, "filtered": filtered, "also": list(also)}
    ranked = (triples, negatives)
    with _scoring(embedding, parts, protocol, ranked, seed, memory, observer) as scoring:
        return scoring.final()


class Ranked(NamedTuple):
    """Where the true ends of some triples stand."""

    triples: NDArray[np.int64]
    """[m, 3]"""
    reciprocal: NDArray[np.float64]
    """[m, 2]: one over the rank of the tail, and of the head, which is the mean of the two below.
    [m, 1] where negatives were given for one of them alone."""
    protocol: str
    optimistic: NDArray[np.int64]
    """[m, 2]: the ranks where the true end comes first of equal ones."""
    pessimistic: NDArray[np.int64]
    """[m, 2]: where it comes last of them."""
    candidates: NDArray[np.int64]
    """[m, 2]: among how many entities, the true one included."""


def ranks(
    embedding: Embedding,
    *,
    part: Part = "test",
    candidates: Literal["auto", "all", "uniform", "degree"] = "auto",
    count: int = 1000,
    filtered: bool = True,
    triples: int = 0,
    negatives: GivenCandidates | None = None,
    seed: int | None = None,
    memory: str | int = "256MiB",
    observer: Observer | None = None,
) -> Ranked:
    """Ranks the held-out triples one by one: which of them are answered well, and which are not.

    Arguments and errors are those of `assess`. Ranks are filtered unless `filtered` is false.
    """
    protocol = {"candidates": candidates, "count": count, "filtered": filtered}
    ranked = (triples, negatives)
    with _scoring(embedding, (part,), protocol, ranked, seed, memory, observer) as scoring:
        if not scoring.has(part):
            raise NotFoundError(f"data set `{embedding.graph.root}`: `{part}` has no triples")
        found = scoring.ranking(part)
        held_out = scoring.triples(part)
    return Ranked(
        held_out.numpy(),
        found.reciprocal().numpy(),
        found.protocol,
        found.optimistic().long().numpy(),
        found.pessimistic().long().numpy(),
        found.candidates().numpy(),
    )


@contextmanager
def _scoring(
    embedding: Embedding,
    parts: Sequence[Part],
    protocol: dict[str, Any],
    ranked: tuple[int, GivenCandidates | None],
    seed: int | None,
    memory: str | int,
    observer: Observer | None,
) -> Iterator[Scoring]:
    """What ranks these parts of the embedding's data set; Ctrl-C stops it within the block.

    Errors: `InvalidError` for a protocol that there is not.
    """
    triples, negatives = ranked
    # Checked as that of a run: `test_triples` are those of any part.
    chosen = EmbedConfig.from_dict({"evaluation": {**protocol, "test_triples": triples}})
    evaluation = chosen.evaluation
    config = _config(embedding)
    # Before the seed is another one: of a plain graph it says which links are held out.
    stop = StopRequest()
    told = until_stopped(observer or Observer(), stop)
    data = data_of(embedding.graph, config, told)
    if seed is not None:
        config = replace(config, run=replace(config.run, seed=seed))
    config = replace(config, evaluation=evaluation)
    for part in parts:
        if part not in PARTS:
            raise InvalidError(f"part: expected one of {', '.join(PARTS)}; found `{part}`")
        if part not in data.parts:
            known = ", ".join(data.parts)
            raise NotFoundError(
                f"data set `{embedding.graph.root}`: no triples for `{part}`\nhint: it has {known}"
            )
    held_out = _held_out(embedding, data, config, parts, negatives, told)
    degrees = None
    if "degree" in (evaluation.candidates, *evaluation.also):
        degrees = torch.from_numpy(data.degrees(told))
    with stop_on_signals(stop):
        scoring = Scoring(
            config,
            embedding.build_model(),
            # Ranking reads: it needs none of what training does with a store.
            cast("Store", FinishedTables(embedding)),
            held_out,
            loops=data.loops,
            degrees=degrees,
            memory=parse_size(memory),
            observer=observer,
            stop=stop,
        )
        if evaluation.filtered and negatives is None:
            answers = count_answers(data, held_out, told)
            scoring.collect_known(answers, data.answers("collect true answers", told))
        yield scoring


def _held_out(
    embedding: Embedding,
    data: EmbedData,
    config: EmbedConfig,
    parts: Sequence[Part],
    negatives: GivenCandidates | None,
    told: Progress | None,
) -> list[HeldOut]:
    """What is ranked of each part, with its own candidates where they are given."""
    most, seed = config.evaluation.test_triples, config.run.seed
    evaluation = config.evaluation
    if negatives is None:
        return [choose(p, data.parts[p], most, seed, told) for p in dict.fromkeys(parts)]
    if evaluation.candidates != "auto" or evaluation.also:
        raise InvalidError(
            "negatives: they are all that triples are ranked among\n"
            "hint: leave out `candidates` and `also`, or the negatives"
        )
    if len(set(parts)) != 1:
        raise InvalidError(
            f"negatives: expected one part, found {', '.join(parts)}\n"
            "hint: each part has negatives of its own; rank one after the other"
        )
    held = choose(parts[0], data.parts[parts[0]], 0, seed, told)
    entities = embedding.num_entities
    given = given_candidates(negatives, parts[0], held.triples.numpy(), entities)
    return [with_given(held, given, most, seed)]


def _config(embedding: Embedding) -> EmbedConfig:
    """The run's own configuration; that of its model where only the tables are left."""
    config = embedding.config
    if config is None:
        if not has_triples(embedding.graph):
            raise InvalidError(
                f"embedding `{embedding.root}`: no `config.json` there, and it alone says which "
                "links were held out\nhint: give the run directory with all that was in it"
            )
        return EmbedConfig(model=embedding.model)
    return replace(config, model=embedding.model)
