"""Score functions by inner products, of a query that is linear in its anchor and its relation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from outercore.embedding.gradients.kernels import Side
from outercore.embedding.gradients.models.base import QueryModel, Start
from outercore.embedding.gradients.models.complex_rows import complex_product


class Dot(QueryModel):
    """The inner product of head and tail; relations do not count."""

    def start(self, dim: int) -> Start:
        """See `Model`."""
        return Start(0.25 / math.sqrt(dim))

    def queries(self, side: Side, anchors: Tensor, relations: Tensor) -> Tensor:
        """The anchors themselves."""
        return anchors

    def queries_backward(
        self, side: Side, anchors: Tensor, relations: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The gradient itself."""
        return gradient, torch.empty_like(relations)


class DistMult(QueryModel):
    """The sum of products of head, relation and tail.

    Source: Yang et al., "Embedding entities and relations", ICLR 2015.
    """

    def queries(self, side: Side, anchors: Tensor, relations: Tensor) -> Tensor:
        """Anchor times relation, for both sides."""
        return anchors * relations

    def queries_backward(
        self, side: Side, anchors: Tensor, relations: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `QueryModel`."""
        return gradient * relations, gradient * anchors


class ComplEx(QueryModel):
    """The real part of the sum of products of head, relation and conjugated tail.

    Source: Trouillon et al., "Complex embeddings for simple link prediction", ICML 2016.
    """

    complex_rows = True

    def queries(self, side: Side, anchors: Tensor, relations: Tensor) -> Tensor:
        """Head times relation, or tail times conjugated relation."""
        return complex_product(anchors, relations, conjugate_second=side == "head")

    def queries_backward(
        self, side: Side, anchors: Tensor, relations: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `QueryModel`."""
        if side == "tail":
            to_anchors = complex_product(gradient, relations, conjugate_second=True)
            return to_anchors, complex_product(gradient, anchors, conjugate_second=True)
        to_anchors = complex_product(gradient, relations, conjugate_second=False)
        return to_anchors, complex_product(anchors, gradient, conjugate_second=True)


class SimplE(QueryModel):
    """The mean of two products: head role, relation, tail role, and the reverse.

    A row is the entity as head, then as tail; a relation's row is the relation, then its inverse.
    Source: Kazemi and Poole, "SimplE embedding for link prediction", NeurIPS 2018.
    """

    def queries(self, side: Side, anchors: Tensor, relations: Tensor) -> Tensor:
        """The anchor with its roles exchanged, times the relation in the order of the side."""
        return _exchanged(anchors) * _simple_relations(side, relations)

    def queries_backward(
        self, side: Side, anchors: Tensor, relations: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `QueryModel`."""
        to_anchors = _exchanged(gradient * _simple_relations(side, relations))
        product = gradient * _exchanged(anchors)
        return to_anchors, _simple_relations(side, product)


def _exchanged(rows: Tensor) -> Tensor:
    return rows.roll(rows.size(1) // 2, dims=1)


def _simple_relations(side: Side, relations: Tensor) -> Tensor:
    """Half of each product, in the order in which the query's halves need them."""
    ordered = _exchanged(relations) if side == "tail" else relations
    return ordered * 0.5
