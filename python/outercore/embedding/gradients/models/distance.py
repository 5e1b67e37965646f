"""Score functions by distances: relations move a head to where its tails are."""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor

from outercore.embedding.gradients.kernels import Euclidean, Manhattan, Modulus, Side
from outercore.embedding.gradients.models.base import QueryModel, Start
from outercore.embedding.gradients.models.complex_rows import complex_product, turn_of


class TransE(QueryModel):
    """Minus the distance of head plus relation from tail.

    Source: Bordes et al., "Translating embeddings", NIPS 2013.
    """

    def __init__(self, norm: Literal[1, 2] = 1) -> None:
        self.similarity = Manhattan() if norm == 1 else Euclidean()

    def start(self, dim: int) -> Start:
        """See `Model`."""
        return Start(1.0 / math.sqrt(dim))

    def queries(self, side: Side, anchors: Tensor, relations: Tensor) -> Tensor:
        """Head plus relation, or tail minus relation."""
        return anchors + relations if side == "tail" else anchors - relations

    def queries_backward(
        self, side: Side, anchors: Tensor, relations: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `QueryModel`."""
        # Each has memory of its own, where a regulariser adds to it.
        return gradient, gradient.clone() if side == "tail" else -gradient


class RotatE(QueryModel):
    """Minus the sum of moduli of head, turned by the relation's angles, minus tail.

    A relation's row is one angle for each complex number.
    Source: Sun et al., "RotatE: knowledge graph embedding by relational rotation", ICLR 2019.
    """

    complex_rows = True
    similarity = Modulus()

    def start(self, dim: int) -> Start:
        """See `Model`. Angles start evenly over the circle."""
        return Start(1.0 / math.sqrt(dim), relations=math.pi, uniform_relations=True)

    def queries(self, side: Side, anchors: Tensor, relations: Tensor) -> Tensor:
        """The anchor, turned; heads are asked for by turning the tail back."""
        return complex_product(anchors, turn_of(relations), conjugate_second=side == "head")

    def queries_backward(
        self, side: Side, anchors: Tensor, relations: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `QueryModel`."""
        turn = turn_of(relations)
        to_anchors = complex_product(gradient, turn, conjugate_second=side == "tail")
        query = complex_product(anchors, turn, conjugate_second=side == "head")
        # An angle moves the query at right angles to itself.
        real, imaginary = query.chunk(2, dim=1)
        to_real, to_imaginary = gradient.chunk(2, dim=1)
        to_angles = real * to_imaginary - imaginary * to_real
        return to_anchors, to_angles if side == "tail" else -to_angles
