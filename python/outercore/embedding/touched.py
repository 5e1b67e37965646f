"""What a batch leaves to be done: rows of the tables that it touched, with their gradients."""

from __future__ import annotations

import torch
from torch import Tensor


class Touched:
    """Rows that a batch touches, with a gradient for each time that it does."""

    def __init__(self) -> None:
        self._entities: list[tuple[Tensor, Tensor]] = []
        self._relations: list[tuple[Tensor, Tensor]] = []

    def add_entities(self, rows: Tensor, gradients: Tensor) -> None:
        """Takes in gradients of rows of the entities' table."""
        self._entities.append((rows, gradients))

    def add_relations(self, rows: Tensor, gradients: Tensor) -> None:
        """Takes in gradients of rows of the relations' table."""
        self._relations.append((rows, gradients))

    def entities(self) -> tuple[Tensor, Tensor]:
        """Distinct rows, ascending, and the sums of their gradients."""
        return summed(self._entities)

    def relations(self) -> tuple[Tensor, Tensor]:
        """Distinct rows, ascending, and the sums of their gradients."""
        return summed(self._relations)


def summed(pieces: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Distinct rows, ascending, and the sums of their gradients.

    Shapes: each piece is int64 [rows] and [rows, width].
    """
    rows, places = torch.unique(torch.cat([rows for rows, _ in pieces]), return_inverse=True)
    first = pieces[0][1]
    sums = first.new_zeros(len(rows), first.size(1))
    start = 0
    for _, gradients in pieces:
        stop = start + len(gradients)
        sums.index_add_(0, places[start:stop], gradients)
        start = stop
    return rows, sums
