"""What training asks of a store, what it is given to train, and how far it has come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

DAMAGED = "go on from a copy of the directory, or train again"
"""What to do about a damaged file of tables."""


@dataclass(frozen=True)
class Pool:
    """Triples that can be trained now, and the rows that they are trained on.

    Rows of entities are places in `entities`, whichever partition lies there now. A pool is valid
    until the next one is asked for.
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

    A triple's entity is replaced by those of the ranges that are paired with that of its other
    one. `None`: any with any.
    """
    shares: list[float] | None = None
    """Of each pair: which part of its triples the pool has; `None`: the same of all, or all of it.

    Where they differ, an entity is the likelier an answer the larger the share of its pair, and
    negatives have to be as likely.
    """

    def release(self) -> None:
        """Lets go of the triples and weights, whoever still holds the pool."""
        object.__setattr__(self, "triples", self.triples.new_empty(0, 3))
        object.__setattr__(self, "weights", None)


@dataclass(frozen=True)
class Progress:
    """How far training has come: what a checkpoint says beside the tables. Plain JSON values."""

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
        epochs. A crash leaves this checkpoint
        or the one before.
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
