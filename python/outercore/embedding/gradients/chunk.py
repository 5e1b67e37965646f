"""A chunk of triples that share negatives, and the gradients of its rows."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

Side = Literal["head", "tail"]
"""The open end of a triple. The other end is the anchor."""
WIDEST_FUSED = 256
"""Largest width of a row that the GPU kernels keep on the chip."""


class Chunk(NamedTuple):
    """Positive triples with one open end, and the negatives that they share."""

    side: Side
    anchors: Tensor
    """[rows, width]"""
    relations: Tensor
    """[rows, relation width]"""
    targets: Tensor
    """[rows, width], the open end."""
    candidates: Tensor
    """[negatives, width]"""
    weights: Tensor
    """[rows]"""
    bias: Tensor | None = None
    """[negatives], added to their scores."""
    own: tuple[Tensor, Tensor] | None = None
    """Ids of targets and of candidates, if the target of a row must not be its negative."""
    known: Tensor | None = None
    """bool [rows, negatives]: candidates to ignore, because they complete a known triple."""

    def weigh(self, scores: Tensor, rows: slice) -> None:
        """Adds the bias to `scores` [rows, negatives] of the slice `rows` of the chunk.

        Scores of candidates to ignore become minus infinity.
        """
        if self.bias is not None:
            scores.add_(self.bias)
        if self.own is not None:
            scores.masked_fill_(self.own[0][rows].unsqueeze(1) == self.own[1], -torch.inf)
        if self.known is not None:
            scores.masked_fill_(self.known[rows], -torch.inf)


class RowGradients(NamedTuple):
    """The loss of a chunk, and the gradients of its anchors, relations and targets."""

    value: Tensor
    anchors: Tensor
    relations: Tensor
    targets: Tensor


class QueryGradients(NamedTuple):
    """The loss of a chunk, and the gradients of its queries and targets."""

    value: Tensor
    queries: Tensor
    targets: Tensor
