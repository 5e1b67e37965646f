"""Where the rows of a table are while they are trained: the seam between training and storage.

A store yields pools: triples whose entities are all in memory, with the memory they are in.
Training knows rows of that memory and no entity; a store knows where entities are and no model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from outercore.embed.models import Start
from outercore.embed.randomness import Purpose, initial_rows
from outercore.errors import InvalidError


@dataclass(frozen=True)
class TableLayout:
    """Widths and initial values of the tables of a run."""

    width: int
    state_width: int
    relation_rows: int
    relation_width: int
    relation_state_width: int
    start: Start

    def new_relations(self, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """The relations' rows before training, and their state."""
        relations = torch.empty(self.relation_rows, self.relation_width)
        initial_rows(
            seed,
            Purpose.RELATIONS,
            0,
            relations,
            self.start.relations or self.start.entities,
            uniform=self.start.uniform_relations,
        )
        state = torch.zeros(self.relation_rows, self.relation_state_width, device=device)
        return relations.to(device), state


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


class Store(Protocol):
    """Entities somewhere, relations in memory."""

    entity_count: int
    relation_count: int
    """Without the rows that reciprocal relations add."""
    relations: Tensor
    """float32 [relations, width]; twice as many rows with reciprocal relations."""
    relation_state: Tensor

    def pools(self, epoch: int) -> Iterator[Pool]:
        """Every triple once, in pools. Asking for the next pool gives the last one back."""

    def rows(self, entities: Tensor) -> Tensor:
        """The rows of these entities, a copy [entities, width]."""

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The whole table once: (entities ascending, int64 [n]; their rows [n, width])."""

    def keep(self) -> None:
        """Remembers both tables as they are, for `restore`."""

    def restore(self) -> None:
        """Brings back the tables that `keep` remembered, if any; state stays as it is."""


@dataclass
class MemoryStore:
    """Everything in memory: one pool an epoch.

    Errors: `InvalidError` names the first triple that is out of range.
    """

    triples: Tensor
    """int64 [triples, 3]: head, relation, tail."""
    entity_count: int
    relation_count: int
    weights: Tensor | None = None
    block_rows: int = 1 << 14
    entities: Tensor = field(init=False)
    entity_state: Tensor = field(init=False)
    relations: Tensor = field(init=False)
    relation_state: Tensor = field(init=False)
    degrees: Tensor = field(init=False)
    _kept: tuple[Tensor, Tensor] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        check_triples("triples", self.triples, self.entity_count, self.relation_count)
        if self.weights is not None:
            _check_weights(self.weights, len(self.triples))
        ends = self.triples[:, [0, 2]].reshape(-1)
        self.degrees = torch.bincount(ends, minlength=self.entity_count)

    def allocate(self, layout: TableLayout, seed: int, device: torch.device) -> None:
        """Makes the tables: initial values, and state of zeros."""
        entities = torch.empty(self.entity_count, layout.width)
        initial_rows(seed, Purpose.ENTITIES, 0, entities, layout.start.entities)
        self.entities = entities.to(device)
        self.entity_state = torch.zeros(self.entity_count, layout.state_width, device=device)
        self.relations, self.relation_state = layout.new_relations(seed, device)

    def keep(self) -> None:
        """See `Store`."""
        self._kept = (self.entities.clone(), self.relations.clone())

    def restore(self) -> None:
        """See `Store`."""
        if self._kept is not None:
            self.entities, self.relations = (table.clone() for table in self._kept)

    def pools(self, epoch: int) -> Iterator[Pool]:
        """See `Store`."""
        yield Pool(
            number=0,
            triples=self.triples,
            entities=self.entities,
            entity_state=self.entity_state,
            ranges=[(0, self.entity_count)],
            weights=self.weights,
            degrees=self.degrees,
        )

    def rows(self, entities: Tensor) -> Tensor:
        """See `Store`."""
        return self.entities.index_select(0, entities.to(self.entities.device))

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """See `Store`."""
        for start in range(0, self.entity_count, self.block_rows):
            stop = min(start + self.block_rows, self.entity_count)
            yield torch.arange(start, stop), self.entities[start:stop]


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


def _check_weights(weights: Tensor, count: int) -> None:
    if weights.shape != (count,):
        raise InvalidError(f"weights: expected {count}, found {list(weights.shape)}")
    wrong = ~(weights.isfinite() & (weights >= 0))
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise InvalidError(
            f"weights: row {row}: expected a finite number, 0 or more, found {float(weights[row])}"
        )
