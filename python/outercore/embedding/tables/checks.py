"""Whether triples can be trained or ranked."""

from __future__ import annotations

import torch
from torch import Tensor

from outercore.errors import InvalidError


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
