"""Score functions of triples.

A built-in model is a query, computed from the known end of a triple (the anchor) and its
relation, and a similarity of the query with candidates for the other end. Complex rows hold all
real parts, then all imaginary parts. A custom model is any PyTorch function, see `CustomModel`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from outercore.embedding.config import GIVE_SCORE, ModelConfig
from outercore.embedding.gradients.kernels import (
    Chunk,
    Euclidean,
    Inner,
    Manhattan,
    Modulus,
    Side,
    Similarity,
    Workspace,
    fuses,
    pair_scores,
    query_gradients,
)
from outercore.embedding.gradients.losses import Loss, SoftmaxLoss
from outercore.errors import InvalidError

ScoreFunction = Callable[[Tensor, Tensor, Tensor], Tensor]


class Start(NamedTuple):
    """Initial values: normal, with these standard deviations."""

    entities: float
    relations: float = 0.0
    """0: as for entities."""
    uniform_relations: bool = False
    """Whether relations are uniform in [-`relations`, `relations`] instead."""


class RowGradients(NamedTuple):
    """The loss of a chunk and the gradients of its rows without the candidates."""

    value: Tensor
    anchors: Tensor
    relations: Tensor
    targets: Tensor


class Model(Protocol):
    """Interface of score functions for training and evaluation."""

    @property
    def complex_rows(self) -> bool:
        """Whether row halves are real and imaginary parts. The N3 norm then uses moduli."""

    def start(self, dim: int) -> Start:
        """The default size of initial values."""

    def scores(self, side: Side, anchors: Tensor, relations: Tensor, candidates: Tensor) -> Tensor:
        """The scores of all candidates as the open side, [rows, candidates]."""

    def paired(self, side: Side, anchors: Tensor, relations: Tensor, targets: Tensor) -> Tensor:
        """The score of each row with its own target, [rows]."""

    def rounding(self, side: Side, anchors: Tensor, relations: Tensor, targets: Tensor) -> Tensor:
        """Bound of the difference of `scores` and `paired` for the same triple, [rows]."""

    def gradients(
        self, chunk: Chunk, loss: Loss, to_candidates: Tensor, workspace: Workspace
    ) -> RowGradients:
        """The loss and its gradients; adds the gradient of the candidates to `to_candidates`."""


class QueryModel:
    """A model by query and similarity."""

    complex_rows = False
    similarity: Similarity = Inner()

    def start(self, dim: int) -> Start:
        """See `Model`."""
        return Start(1e-3)

    def queries(self, side: Side, anchors: Tensor, relations: Tensor) -> Tensor:
        """The vectors that candidates are compared with, [rows, width]."""
        raise NotImplementedError

    def queries_backward(
        self, side: Side, anchors: Tensor, relations: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of anchors and relations from the gradient of the queries."""
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


def complex_product(first: Tensor, second: Tensor, *, conjugate_second: bool) -> Tensor:
    """The complex product of rows, each number of `first` and `second` read once."""
    half = first.size(1) // 2
    sign = -1.0 if conjugate_second else 1.0
    real, imaginary = first[:, :half], first[:, half:]
    other_real, other_imaginary = second[:, :half], second[:, half:]
    out = torch.empty_like(first)
    torch.mul(real, other_real, out=out[:, :half])
    out[:, :half].addcmul_(imaginary, other_imaginary, value=-sign)
    torch.mul(imaginary, other_real, out=out[:, half:])
    out[:, half:].addcmul_(real, other_imaginary, value=sign)
    return out


def unit_complex(angles: Tensor) -> Tensor:
    """The complex numbers of modulus 1 at these angles."""
    return torch.cat([angles.cos(), angles.sin()], dim=1)


class Dot(QueryModel):
    """The inner product of head and tail. Relations have no influence."""

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
        # Separate copies, because a regulariser adds to each gradient.
        return gradient, gradient.clone() if side == "tail" else -gradient


class RotatE(QueryModel):
    """Minus the sum of moduli of head, turned by the relation's angles, minus tail.

    A relation's row is one angle for each complex number.
    Source: Sun et al., "RotatE: knowledge graph embedding by relational rotation", ICLR 2019.
    """

    complex_rows = True
    similarity = Modulus()

    def start(self, dim: int) -> Start:
        """See `Model`. Initial angles are uniform over the circle."""
        return Start(1.0 / math.sqrt(dim), relations=math.pi, uniform_relations=True)

    def queries(self, side: Side, anchors: Tensor, relations: Tensor) -> Tensor:
        """The anchor, rotated by the relation; for an open head, the tail is rotated back."""
        return complex_product(anchors, unit_complex(relations), conjugate_second=side == "head")

    def queries_backward(
        self, side: Side, anchors: Tensor, relations: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `QueryModel`."""
        turn = unit_complex(relations)
        to_anchors = complex_product(gradient, turn, conjugate_second=side == "tail")
        query = complex_product(anchors, turn, conjugate_second=side == "head")
        # The derivative by an angle is perpendicular to the query.
        real, imaginary = query.chunk(2, dim=1)
        to_real, to_imaginary = gradient.chunk(2, dim=1)
        to_angles = real * to_imaginary - imaginary * to_real
        return to_anchors, to_angles if side == "tail" else -to_angles


@dataclass(frozen=True)
class CustomModel:
    """A custom score function, with gradients by autograd.

    `score(heads, relations, tails)` takes tensors [..., width] whose leading dimensions broadcast.
    It returns scores [...].

    Example:
        >>> def score(heads, relations, tails):
        ...     return (heads * relations.tanh() * tails).sum(-1)
        >>> model = CustomModel(score)
    """

    score: ScoreFunction
    complex_rows: bool = False
    block_numbers: int = 1 << 21
    """Largest rows x candidates x width of one step."""

    def start(self, dim: int) -> Start:
        """See `Model`."""
        return Start(0.1)

    def scores(self, side: Side, anchors: Tensor, relations: Tensor, candidates: Tensor) -> Tensor:
        """See `Model`."""
        with torch.no_grad():
            parts = [
                self._pairs(side, anchors[rows], relations[rows], candidates)
                for rows in self._blocks(anchors, candidates)
            ]
        return torch.cat(parts)

    def paired(self, side: Side, anchors: Tensor, relations: Tensor, targets: Tensor) -> Tensor:
        """See `Model`."""
        if side == "tail":
            return self.score(anchors, relations, targets)
        return self.score(targets, relations, anchors)

    def rounding(self, side: Side, anchors: Tensor, relations: Tensor, targets: Tensor) -> Tensor:
        """See `Model`. For an unknown function: a few rounding units of the score."""
        score = self.paired(side, anchors, relations, targets)
        return 8.0 * torch.finfo(score.dtype).eps * score.abs()

    def gradients(
        self, chunk: Chunk, loss: Loss, to_candidates: Tensor, workspace: Workspace
    ) -> RowGradients:
        """See `Model`."""
        rows = (chunk.anchors, chunk.relations, chunk.targets)
        with torch.no_grad():
            positives = self.paired(chunk.side, *rows)
        scores = self.scores(chunk.side, chunk.anchors, chunk.relations, chunk.candidates)
        chunk.weigh(scores)
        work = workspace.take("work", tuple(scores.shape), scores)
        found = loss.gradients(positives, scores, chunk.weights, work)
        with torch.enable_grad():
            leaves = _leaves(*rows)
            positives = self.paired(chunk.side, *leaves)
        to_anchors, to_relations, to_targets = _gradients(positives, leaves, found.positives)
        # Compute scores again, block by block: autograd stores intermediate values of the size
        # rows x candidates x width until it has computed the gradients of a block.
        for some in self._blocks(chunk.anchors, chunk.candidates):
            with torch.enable_grad():
                leaves = _leaves(chunk.anchors[some], chunk.relations[some], chunk.candidates)
                negatives = self._pairs(chunk.side, *leaves)
            more = _gradients(negatives, leaves, found.negatives[some])
            to_anchors[some] += more[0]
            to_relations[some] += more[1]
            to_candidates.add_(more[2])
        return RowGradients(found.value, to_anchors, to_relations, to_targets)

    def _pairs(self, side: Side, anchors: Tensor, relations: Tensor, candidates: Tensor) -> Tensor:
        return self.paired(side, anchors.unsqueeze(1), relations.unsqueeze(1), candidates)

    def _blocks(self, anchors: Tensor, candidates: Tensor) -> list[slice]:
        step = max(1, self.block_numbers // max(1, candidates.numel()))
        return [slice(start, start + step) for start in range(0, max(anchors.size(0), 1), step)]


def _leaves(*tensors: Tensor) -> list[Tensor]:
    return [tensor.detach().requires_grad_(True) for tensor in tensors]


def _gradients(scores: Tensor, leaves: list[Tensor], to_scores: Tensor) -> list[Tensor]:
    """Gradients of the leaves; zero for leaves without influence on the scores."""
    found = torch.autograd.grad(scores, leaves, to_scores, allow_unused=True)
    return [
        torch.zeros_like(leaf) if gradient is None else gradient.clone()
        for leaf, gradient in zip(leaves, found, strict=True)
    ]


def build_model(config: ModelConfig, score: ScoreFunction | None = None) -> Model:
    """The model that `config` describes; `score` is the function of `custom`.

    Errors: `InvalidError` for `custom` without a function, or a function for another model.
    """
    if (score is not None) != (config.kind == "custom"):
        found = "no score function" if score is None else "a score function of one's own"
        raise InvalidError(f"model `{config.kind}`: found {found}\nhint: {GIVE_SCORE}")
    match config.kind:
        case "dot":
            return Dot()
        case "distmult":
            return DistMult()
        case "complex":
            return ComplEx()
        case "simple":
            return SimplE()
        case "transe":
            return TransE(config.norm)
        case "rotate":
            return RotatE()
        case "custom":
            assert score is not None
            return CustomModel(score)
