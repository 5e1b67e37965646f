"""What training and evaluation need of a score function, and the models by query and similarity."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from outercore.embedding.gradients.kernels import (
    Chunk,
    Inner,
    Side,
    Similarity,
    Workspace,
    fuses,
    pair_scores,
    query_gradients,
)
from outercore.embedding.gradients.losses import Loss, SoftmaxLoss


class Start(NamedTuple):
    """Initial values: normal, with these deviations."""

    entities: float
    relations: float = 0.0
    """0: that of the entities."""
    uniform_relations: bool = False
    """Within plus and minus `relations` instead."""


class RowGradients(NamedTuple):
    """The loss of a chunk and the gradients of its rows, except those of the candidates."""

    value: Tensor
    anchors: Tensor
    relations: Tensor
    targets: Tensor


class Model(Protocol):
    """What training and evaluation need of a score function."""

    @property
    def complex_rows(self) -> bool:
        """Whether a row's halves are real and imaginary parts; the N3 norm takes moduli then."""

    def start(self, dim: int) -> Start:
        """The size of initial values, where the user names none."""

    def scores(self, side: Side, anchors: Tensor, relations: Tensor, candidates: Tensor) -> Tensor:
        """The scores of all candidates as the side that is asked for, [rows, candidates]."""

    def paired(self, side: Side, anchors: Tensor, relations: Tensor, targets: Tensor) -> Tensor:
        """The score of each row with its own target, [rows]."""

    def rounding(self, side: Side, anchors: Tensor, relations: Tensor, targets: Tensor) -> Tensor:
        """How far apart `scores` and `paired` may be for the same triple, [rows]."""

    def gradients(
        self, chunk: Chunk, loss: Loss, to_candidates: Tensor, workspace: Workspace
    ) -> RowGradients:
        """The loss and its gradients; that of the candidates is added to `to_candidates`."""


class QueryModel:
    """A model by query and similarity."""

    complex_rows = False
    similarity: Similarity = Inner()

    def start(self, dim: int) -> Start:
        """See `Model`."""
        return Start(1e-3)

    def queries(self, side: Side, anchors: Tensor, relations: Tensor) -> Tensor:
        """What a candidate is compared with, [rows, width]."""
        raise NotImplementedError

    def queries_backward(
        self, side: Side, anchors: Tensor, relations: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of anchors and relations, given that of the queries."""
        raise NotImplementedError

    def scores(self, side: Side, anchors: Tensor, relations: Tensor, candidates: Tensor) -> Tensor:
        """See `Model`."""
        return pair_scores(self.similarity, self.queries(side, anchors, relations), candidates)

    def paired(self, side: Side, anchors: Tensor, relations: Tensor, targets: Tensor) -> Tensor:
        """See `Model`."""
        return self.similarity.paired(self.queries(side, anchors, relations), targets)

    def rounding(self, side: Side, anchors: Tensor, relations: Tensor, targets: Tensor) -> Tensor:
        """See `Model`."""
        return self.similarity.rounding(self.queries(side, anchors, relations), targets)

    def gradients(
        self, chunk: Chunk, loss: Loss, to_candidates: Tensor, workspace: Workspace
    ) -> RowGradients:
        """See `Model`."""
        queries = self.queries(chunk.side, chunk.anchors, chunk.relations)
        if chunk.known is None and fuses(self.similarity, loss, queries):
            from outercore.embedding.gradients.triton_kernels import softmax_gradients

            contrastive = isinstance(loss, SoftmaxLoss) and loss.contrastive
            found = softmax_gradients(queries, chunk, to_candidates, contrastive=contrastive)
        else:
            found = query_gradients(self.similarity, loss, queries, chunk, to_candidates, workspace)
        to_anchors, to_relations = self.queries_backward(
            chunk.side, chunk.anchors, chunk.relations, found.queries
        )
        return RowGradients(found.value, to_anchors, to_relations, found.targets)
