"""The tables of a run: widths, initial values, the interface of stores, and progress."""

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
"""Maps entities, int64 [n], to initial rows, float32 [n, width]. A row of NaN means the initial
values of the model.
"""
DAMAGED = "go on from a copy of the directory, or train again"
"""Hint for a damaged file of tables."""


def check_triples(name: str, triples: Tensor, entities: int, relations: int) -> None:
    """Errors: `InvalidError` unless `triples` are int64 [m, 3] with ids in range."""
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
    seed: int = 0
    first_rows: StartRows | None = None
    """Initial rows of entities from another run."""
    first_relations: Tensor | None = None
    """Initial rows of relations from another run, float32 [relation rows, relation width]. A row of
    NaN means the initial values of the model."""

    def new_entities(self, entities: Tensor) -> Tensor:
        """The initial rows of `entities`, int64 [n]. A row depends only on its number and the seed.

        Errors: `InvalidError` for rows of a wrong shape from another run.
        """
        rows = torch.empty(len(entities), self.width)
        initial_rows(self.seed, Purpose.ENTITIES, entities, rows, self.start.entities)
        if self.first_rows is not None:
            _overlay("start", torch.as_tensor(self.first_rows(entities)), rows)
        return rows

    def new_relations(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The initial rows of relations, and their optimiser state."""
        relations = torch.empty(self.relation_rows, self.relation_width)
        initial_rows(
            self.seed,
            Purpose.RELATIONS,
            torch.arange(self.relation_rows),
            relations,
            self.start.relations or self.start.entities,
            uniform=self.start.uniform_relations,
        )
        if self.first_relations is not None:
            _overlay("relations", self.first_relations, relations)
        state = torch.zeros(self.relation_rows, self.relation_state_width, device=device)
        return relations.to(device), state


def _overlay(name: str, given: Tensor, rows: Tensor) -> None:
    """Copies `given` into `rows`, except for rows of NaN."""
    if given.shape != rows.shape:
        raise InvalidError(
            f"{name}: expected rows {list(rows.shape)}, found {list(given.shape)}\n"
            "hint: the same model and dimension as the run that they are from"
        )
    unknown = given.isnan().any(dim=1, keepdim=True)
    torch.where(unknown, rows, given.to(rows), out=rows)


@dataclass(frozen=True)
class Pool:
    """Triples to train, and the rows of their entities.

    Triples name entities by rows of `entities`, which has the partitions in memory. A pool is valid
    until the next pool is requested.
    """

    number: int
    """Number of the pool within its epoch; random numbers depend on it."""
    triples: Tensor
    """int64 [triples, 3]: row of the head, relation, row of the tail."""
    entities: Tensor
    """float32 [rows, width]; trained in place."""
    entity_state: Tensor
    """float32 [rows, state width]: the state of the optimiser; trained in place."""
    ranges: list[tuple[int, int]]
    """Ranges of rows that hold entities. Negatives are drawn from these rows."""
    weights: Tensor | None = None
    """float32 [triples]: weights of triples; `None`: 1 for all."""
    degrees: Tensor | None = None
    """[rows]: number of triples of each row's entity, for negatives drawn by degree."""
    ends_state: bool = True
    """Whether a checkpoint may be taken after this pool."""
    ends_batches: bool = False
    """Whether a checkpoint may be taken after each of its batches."""
    pairs: list[tuple[int, int]] | None = None
    """Pairs of ranges, by number, that hold heads and tails of triples of the pool.

    Negatives of a triple come from ranges that are paired with the range of its other entity.
    `None`: all pairs.
    """
    shares: list[float] | None = None
    """Share of the triples of each pair that the pool has. `None`: equal shares, or all triples.

    An entity of a pair with a larger share is a more likely answer, so negatives are drawn with the
    same probabilities.
    """

    def release(self) -> None:
        """Releases triples and weights, even while the pool is referenced."""
        object.__setattr__(self, "triples", self.triples.new_empty(0, 3))
        object.__setattr__(self, "weights", None)


@dataclass(frozen=True)
class Progress:
    """The progress of training, which a checkpoint stores with the tables. Plain JSON values."""

    epoch: int = 0
    """The current epoch, counted from 0."""
    pools: int = 0
    """Finished pools of the current epoch."""
    batch: int = 0
    """Finished batches of the current pool."""
    loss: float = 0.0
    """Sum of the loss over the trained triples of the current epoch."""
    triples: int = 0
    """Trained triples of the current epoch."""
    batches: int = 0
    """Trained batches of the current epoch."""
    seconds: float = 0.0
    """Seconds of training in the current epoch."""
    reports: list[dict[str, Any]] = field(default_factory=list)
    """One entry for each finished epoch."""
    best: float | None = None
    """The best score of all validations."""
    stale: int = 0
    """Validations since the best one."""
    counters: dict[str, Any] = field(default_factory=dict)
    """Cost of moving partitions in the current epoch."""
    timeline: list[dict[str, Any]] = field(default_factory=list)
    """Timed spans of the whole run so far, such as training and validations."""


class Tables(Protocol):
    """Tables to read for ranking: of a run in training, or of a finished run."""

    entity_count: int
    relation_count: int
    """Number of relations, without the additional rows of reciprocal relations."""
    relations: Tensor
    """float32 [relations, width]; with reciprocal relations, twice as many rows."""

    def rows(self, entities: Tensor) -> Tensor:
        """A copy of the rows of these entities, [entities, width]."""

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Iterates over the table in blocks: (ascending entities int64 [n], their rows [n, width]).

        A block is valid until the next block is requested. The ranges of entities of several blocks
        may overlap, but each entity is in one block.
        """


class Store(Tables, Protocol):
    """Interface of the stores of a run's tables. Relations are in memory."""

    relation_state: Tensor
    shape: dict[str, Any]
    """Sizes of the partitions in the form of the core; empty if all tables are in memory."""
    progress: Progress | None
    """The progress in the checkpoint that the store was opened from."""

    def pools(self, epoch: int) -> Iterator[Pool]:
        """The pools of an epoch. Each triple is in one pool. The next request releases a pool.

        If the store was opened within this epoch, it yields only the unfinished pools.
        """

    def checkpoint(self, progress: Progress) -> None:
        """Writes a checkpoint: tables, optimiser state, kept tables and `progress`, atomically.

        It is allowed between epochs, and after pools and batches if the pool allows it. After a
        crash, this checkpoint or the previous one is valid.
        """

    def keep(self) -> None:
        """Keeps a copy of both tables for `restore`. Call it between epochs.

        The next checkpoint includes the copy.
        """

    def restore(self) -> None:
        """Restores the tables from `keep`, if any. The optimiser state does not change.

        Within an epoch, the rest of the epoch can then not be trained. Without a kept copy, nothing
        changes.
        """

    def write_entities(self, path: Path) -> int:
        """Writes the rows of all entities atomically, block by block.

        The file is `.npy`, float32 [entities, width]. Returns the CRC-32 of the rows.
        """

    def write_relations(self, path: Path) -> int:
        """Writes the rows of relations atomically: `.npy`, float32 [rows, relation width].

        Returns the CRC-32 of the rows.
        """

    def counters(self) -> dict[str, Any]:
        """Cost of moving partitions since the store was opened; empty without partitions."""

    def close(self) -> None:
        """Closes the store and releases its table, so that another process may train it."""


@dataclass(frozen=True)
class EpochReport:
    """Results of an epoch."""

    epoch: int
    """Number of the epoch, counted from 0."""
    loss: float
    """Mean loss over triples and sides, including the regulariser."""
    triples: int
    batches: int
    seconds: float
    """Seconds of training, without validation."""
    score: float | None = None
    """Score of the validation after the epoch."""
    best: bool = False
    """Whether the score is the best so far."""
    pools: int = 0
    validation_seconds: float = 0.0
    counters: dict[str, Any] = field(default_factory=dict)
    """Cost of moving partitions in this epoch; empty if all tables are in memory."""

    def scalars(self) -> dict[str, float | None]:
        """Loss, validation score, throughput and bytes, for TensorBoard."""
        return {
            "train/loss": self.loss,
            "valid/mrr": self.score,
            "train/triples_per_second": self.triples / self.seconds if self.seconds else None,
            "io/bytes_read": self.counters.get("bytes_read"),
            "io/bytes_written": self.counters.get("bytes_written"),
            "io/waited_seconds": self.counters.get("waited_s"),
            "io/waited_for_triples_seconds": self.counters.get("triples_waited_s"),
        }
