"""Widths and initial values of the tables that are trained, wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
