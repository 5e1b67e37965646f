"""The tables of a run: their widths and initial values, what training asks of a store of them,
and how far it has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.embedding.gradients.models import Start
from outercore.embedding.randomness import Purpose, initial_rows
from outercore.errors import InvalidError

StartRows = Callable[[Tensor], "Tensor | NDArray[np.float32]"]
"""Given entities, int64 [n], their first rows, float32 [n, width]; a row that is not a number is
one that begins with the model's own initial values."""
DAMAGED = "go on from a copy of the directory, or train again"
"""What to do about a damaged file of tables."""


def check_triples(name: str, triples: Tensor, entities: int, relations: int) -> None:
    """Raises `InvalidError` unless `triples` are int64 [m, 3] and within range."""
    if triples.dim() != 2 or triples.size(1) != 3 or triples.dtype != torch.int64:
        raise InvalidError(
            f"{name}: expected int64 [m, 3], found {triples.dtype} {list(triples.shape)}"
        )
    columns = ((0, "head", entities), (1, "relation", relations), (2, "tail", entities))
    for column, what, count in columns:
        wrong = (triples[:, column] < 0) | (triples[:, column] >= count)
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            raise InvalidError(
                f"{name}: row {row}: {what} {int(triples[row, column])}: expected 0 to {count - 1}"
            )


@dataclass(frozen=True)
class TableLayout:
    """Widths and initial values of the tables of a run."""

    width: int
    state_width: int
    relation_rows: int
    relation_width: int
    relation_state_width: int
    start: Start

    def new_entities(self, seed: int, entities: Tensor, start: StartRows | None = None) -> Tensor:
        """The first rows of `entities`, int64 [n]; each depends on its number and the seed only.

        Errors: `InvalidError` where `start` gives rows of another shape.
        """
        rows = torch.empty(len(entities), self.width)
        initial_rows(seed, Purpose.ENTITIES, entities, rows, self.start.entities)
        if start is not None:
            _overlay("start", torch.as_tensor(start(entities)), rows)
        return rows

    def new_relations(
        self, seed: int, device: torch.device, given: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The relations' rows before training, and their state.

        Shapes: `given` float32 [relation rows, relation width]; a row that is not a number is one
        that begins with the model's own initial values.
        """
        relations = torch.empty(self.relation_rows, self.relation_width)
        initial_rows(
            seed,
            Purpose.RELATIONS,
            torch.arange(self.relation_rows),
            relations,
            self.start.relations or self.start.entities,
            uniform=self.start.uniform_relations,
        )
        if given is not None:
            _overlay("relations", given, relations)
        state = torch.zeros(self.relation_rows, self.relation_state_width, device=device)
        return relations.to(device), state


def _overlay(name: str, given: Tensor, rows: Tensor) -> None:
    """Puts the numbers of `given` into `rows`, except in rows that are not a number."""
    if given.shape != rows.shape:
        raise InvalidError(
            f"{name}: expected rows {list(rows.shape)}, found {list(given.shape)}\n"
            "hint: the same model and dimension as the run that they are from"
        )
    unknown = given.isnan().any(dim=1, keepdim=True)
    torch.where(unknown, rows, given.to(rows), out=rows)


@dataclass(frozen=True)
class Pool:
    """Triples that can be trained now, and the rows that they are trained on.

    Rows of entities are places in `entities`, of the partition that is there now. A pool is valid
    until the next one is requested.
    """

    number: int
    """Of this epoch's pools; part of what randomness depends on."""
    triples: Tensor
    """int64 [triples, 3]: row of the head, relation, row of the tail."""
    entities: Tensor
    """float32 [rows, width]; trained in place."""
    entity_state: Tensor
    """float32 [rows, state width] of the optimiser; trained in place."""
    ranges: list[tuple[int, int]]
    """Rows that hold entities, from which negatives are drawn."""
    weights: Tensor | None = None
    """float32 [triples]: how much each counts; `None`: 1."""
    degrees: Tensor | None = None
    """[rows]: triples of each row's entity, for degree-weighted negatives."""
    ends_state: bool = True
    """Whether a checkpoint may be taken after it."""
    ends_batches: bool = False
    """Whether one may be taken after each of its batches."""
    pairs: list[tuple[int, int]] | None = None
    """By number of their ranges: where the pool's triples have their heads and tails.

    Negatives of a triple come from ranges that are paired with the range of its other entity.
    `None`: any with any.
    """
    shares: list[float] | None = None
    """Of each pair: which part of its triples the pool has; `None`: the same of all, or all of it.

    Where they differ, an entity is the likelier an answer the larger the share of its pair, and
    negatives have to be as likely.
    """

    def release(self) -> None:
        """Releases triples and weights, even while the pool is referenced."""
        object.__setattr__(self, "triples", self.triples.new_empty(0, 3))
        object.__setattr__(self, "weights", None)


@dataclass(frozen=True)
class Progress:
    """The progress of training, which a checkpoint stores with the tables. Plain JSON values."""

    epoch: int = 0
    """The epoch under way, from 0."""
    pools: int = 0
    """Pools of that epoch that are done."""
    batch: int = 0
    """Batches of the pool after those that are done."""
    loss: float = 0.0
    """Sum over that epoch's triples so far."""
    triples: int = 0
    """Triples of that epoch that are done."""
    batches: int = 0
    """Batches of that epoch that are done."""
    seconds: float = 0.0
    """Spent training in that epoch."""
    reports: list[dict[str, Any]] = field(default_factory=list)
    """One entry for each finished epoch."""
    best: float | None = None
    """The best validation's score."""
    stale: int = 0
    """Validations since the best one."""
    counters: dict[str, Any] = field(default_factory=dict)
    """What moving partitions has cost in that epoch."""
    timeline: list[dict[str, Any]] = field(default_factory=list)
    """Spans of the whole run so far."""


class Store(Protocol):
    """Entities somewhere, relations in memory."""

    entity_count: int
    relation_count: int
    """Without the rows that reciprocal relations add."""
    relations: Tensor
    """float32 [relations, width]; twice as many rows with reciprocal relations."""
    relation_state: Tensor
    progress: Progress | None
    """Of the checkpoint that the store was opened from."""

    def pools(self, epoch: int) -> Iterator[Pool]:
        """Every triple once, in pools. Asking for the next pool gives the last one back.

        Of the epoch that the store was opened in the midst of, those that are not done yet.
        """

    def checkpoint(self, progress: Progress) -> None:
        """Makes tables, optimiser state, kept tables and `progress` durable together.

        Allowed after a pool that ends its state, after any batch of one that says so, and between
        epochs. A crash leaves this checkpoint or the previous one.
        """

    def rows(self, entities: Tensor) -> Tensor:
        """The rows of these entities, a copy [entities, width]."""

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The whole table once: (entities ascending, int64 [n]; their rows [n, width]).

        Each block is valid until the next one; several may cover the same range of numbers, with
        different entities of it.
        """

    def keep(self) -> None:
        """Remembers both tables as they are, for `restore`; between epochs.

        The next checkpoint makes them part of itself.
        """

    def restore(self) -> None:
        """Brings back the tables that `keep` remembered, if any; state stays as it is.

        Also in the midst of an epoch, of which nothing more can be trained then. Without kept
        tables they are as they were.
        """

    def write_entities(self, path: Path) -> int:
        """Writes all entities' rows, `.npy` float32 [entities, width], atomically; out of core.

        Returns the CRC-32 of the rows.
        """

    def write_relations(self, path: Path) -> int:
        """Writes the relations' rows, `.npy` float32 [rows, relation width], atomically.

        Returns the CRC-32 of the rows.
        """

    def close(self) -> None:
        """Lets go of the table, which another process may then train; nothing else can be done."""


@dataclass(frozen=True)
class EpochReport:
    """Results of an epoch."""

    epoch: int
    """Counted from 0."""
    loss: float
    """Mean over triples and sides, regulariser included."""
    triples: int
    batches: int
    seconds: float
    """Training alone, without validation."""
    score: float | None = None
    """Of the validation after it."""
    best: bool = False
    """Whether the score is the best so far."""
    pools: int = 0
    validation_seconds: float = 0.0
    counters: dict[str, Any] = field(default_factory=dict)
    """What moving partitions has cost in this epoch; empty where all is in memory."""

    def scalars(self) -> dict[str, float | None]:
        """Loss, validation, throughput and bytes, as TensorBoard shows them."""
        return {
            "train/loss": self.loss,
            "valid/mrr": self.score,
            "train/triples_per_second": self.triples / self.seconds if self.seconds else None,
            "io/bytes_read": self.counters.get("bytes_read"),
            "io/bytes_written": self.counters.get("bytes_written"),
            "io/waited_seconds": self.counters.get("waited_s"),
            "io/waited_for_triples_seconds": self.counters.get("triples_waited_s"),
        }
