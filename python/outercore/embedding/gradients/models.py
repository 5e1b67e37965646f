"""Score functions of triples, and the gradients of a chunk of triples.

A built-in model consists of a query and a similarity. The query is computed from the known end of a
triple (the anchor) and its relation. The similarity compares the query with candidates for the
other end. Complex rows hold all real parts, then all imaginary parts. A custom model is any PyTorch
function, see `CustomModel`.

The comparison of all pairs costs rows x candidates x width; everything else is small. An inner
product and a Euclidean distance are matrix products (BLAS); sums of absolute values are not.
Autograd derives the gradients of scores, unless its passes over all pairs would take too long.
Losses compute their gradients without autograd, which needs less memory. On a CPU, the core trains
the built-in models, see `trainer`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

from outercore import _core
from outercore.embedding.config import GIVE_SCORE, ModelConfig
from outercore.embedding.gradients.chunk import WIDEST_FUSED, Chunk, RowGradients, Side
from outercore.embedding.gradients.losses import Loss, SoftmaxLoss
from outercore.errors import InvalidError

ScoreFunction = Callable[[Tensor, Tensor, Tensor], Tensor]


class Start(NamedTuple):
    """The distribution of initial values: normal, with these standard deviations."""

    entities: float
    relations: float = 0.0
    """Standard deviation for relations; 0: as for entities."""
    uniform_relations: bool = False
    """Whether relations are uniform in [-`relations`, `relations`] instead."""


class Model:
    """A score function, for training and evaluation."""

    complex_rows: bool = False
    """Whether row halves are real and imaginary parts. The N3 norm then uses moduli."""
    block_numbers: int = 0
    """Largest product rows x candidates x width of one step; 0: unlimited."""
    frees_scores: bool = False
    """Whether the gradient of `pairs` does not need its result, which may be overwritten."""

    def start(self, dim: int) -> Start:
        """The default distribution of initial values for rows of `dim` values."""
        raise NotImplementedError

    def pairs(self, side: Side, anchors: Tensor, relations: Tensor, candidates: Tensor) -> Tensor:
        """The scores of all candidates as the open side, [rows, candidates], for autograd."""
        raise NotImplementedError

    def paired(self, side: Side, anchors: Tensor, relations: Tensor, targets: Tensor) -> Tensor:
        """The score of each row with its own target, [rows], for autograd."""
        raise NotImplementedError

    def scores(self, side: Side, anchors: Tensor, relations: Tensor, candidates: Tensor) -> Tensor:
        """As `pairs`, without gradients."""
        with torch.no_grad():
            return torch.cat(
                [
                    self.pairs(side, anchors[rows], relations[rows], candidates)
                    for rows in _blocks(anchors, candidates, self.block_numbers)
                ]
            )

    def rounding(self, side: Side, anchors: Tensor, relations: Tensor, targets: Tensor) -> Tensor:
        """Upper bound of the difference between `scores` and `paired` for a triple, [rows]."""
        raise NotImplementedError

    def gradients(self, chunk: Chunk, loss: Loss, to_candidates: Tensor) -> RowGradients:
        """The loss and its gradients; adds the gradient of the candidates to `to_candidates`."""
        leaves = _leaves(chunk.anchors, chunk.relations, chunk.targets)
        with torch.enable_grad():
            positives = self.paired(chunk.side, *leaves)
        to_positives = torch.empty_like(positives)
        to_anchors, to_relations = map(torch.zeros_like, (chunk.anchors, chunk.relations))
        value = chunk.weights.new_zeros(())
        # Autograd stores values of the size rows x candidates x width for a block.
        for rows in _blocks(chunk.anchors, chunk.candidates, self.block_numbers):
            parts = _leaves(chunk.anchors[rows], chunk.relations[rows], chunk.candidates)
            with torch.enable_grad():
                negatives = self.pairs(chunk.side, *parts)
            scores = negatives.detach() if self.frees_scores else negatives.detach().clone()
            chunk.weigh(scores, rows)
            derivatives = loss.gradients(positives.detach()[rows], scores, chunk.weights[rows])
            value += derivatives.value
            to_positives[rows] = derivatives.positives
            of_rows = _gradients(negatives, parts, derivatives.negatives)
            to_anchors[rows], to_relations[rows] = of_rows[:2]
            to_candidates.add_(of_rows[2])
        own_anchors, own_relations, to_targets = _gradients(positives, leaves, to_positives)
        return RowGradients(
            value, to_anchors.add_(own_anchors), to_relations.add_(own_relations), to_targets
        )


def _blocks(rows: Tensor, candidates: Tensor, numbers: int) -> list[slice]:
    """Blocks of rows that are compared with all candidates in one step."""
    count = max(len(rows), 1)
    step = max(1, numbers // max(1, candidates.numel())) if numbers else count
    return [slice(start, start + step) for start in range(0, count, step)]


def _leaves(*tensors: Tensor) -> list[Tensor]:
    return [tensor.detach().requires_grad_(True) for tensor in tensors]


def _gradients(scores: Tensor, leaves: Sequence[Tensor], to_scores: Tensor) -> list[Tensor]:
    """Gradients of the leaves; zero for leaves without influence on the scores."""
    gradients = torch.autograd.grad(scores, leaves, to_scores, allow_unused=True)
    # Copies, because a regulariser adds to each gradient.
    return [
        torch.zeros_like(leaf) if gradient is None else gradient.clone()
        for leaf, gradient in zip(leaves, gradients, strict=True)
    ]


class Inner:
    """The inner product. It is the base of all similarities of queries and rows.

    A larger score is better.
    """

    distance: str | None = None
    """Its name in the core, if the core computes it during ranking."""
    block_numbers = 0
    """See `Model`."""

    def paired(self, queries: Tensor, targets: Tensor) -> Tensor:
        """The score of each query with its own target, [rows]."""
        return torch.linalg.vecdot(queries, targets)

    def pairs(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """The scores of all pairs, [rows, candidates], for autograd."""
        return queries @ candidates.t()

    def rounding(self, queries: Tensor, targets: Tensor) -> Tensor:
        """Upper bound of the difference between `pairs` and `paired` for two rows, [rows]."""
        return _unit(queries) * queries.norm(dim=1) * targets.norm(dim=1)

    def scores(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """As `pairs`, without gradients."""
        if self.distance is None and not self.block_numbers:
            # Without a copy of the scores, which are most of the memory of a ranking.
            with torch.no_grad():
                return self.pairs(queries, candidates)
        scores = queries.new_empty(len(queries), len(candidates))
        if self.distance is not None and fits_core(queries, candidates):
            tables = queries.numpy(), candidates.numpy(), scores.numpy()
            _core.kernel_distance_scores(self.distance, *tables, torch.get_num_threads())
            return scores
        with torch.no_grad():
            for rows in _blocks(queries, candidates, self.block_numbers):
                scores[rows] = self.pairs(queries[rows], candidates)
        return scores


class _Distances(torch.autograd.Function):
    """Minus the distances of all pairs. Two matrix products compute their gradient."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, candidates: Tensor) -> Tensor:
        own = queries.square().sum(dim=1, keepdim=True)
        other = candidates.square().sum(dim=1)
        squares = torch.addmm(other, queries, candidates.t(), alpha=-2.0).add_(own)
        distances = squares.clamp_(min=0.0).sqrt_()
        ctx.save_for_backward(queries, candidates, distances)
        return -distances

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        queries, candidates, distances = ctx.saved_tensors
        squares = queries.square().sum(dim=1).max() + candidates.square().sum(dim=1).max()
        noise = distances.square() <= torch.finfo(distances.dtype).eps * squares
        slope = torch.div(gradients[0], distances, out=distances).neg_().masked_fill_(noise, 0.0)
        to_queries = (queries * slope.sum(dim=1, keepdim=True)).addmm_(slope, candidates, alpha=-1)
        of_columns = candidates * slope.sum(dim=0).unsqueeze(1)
        return to_queries, of_columns.addmm_(slope.t(), queries, alpha=-1)


class Euclidean(Inner):
    """Minus the Euclidean distance, by one matrix product.

    A distance below the rounding error of that product gets a zero gradient, because its direction
    would be noise.
    """

    def paired(self, queries: Tensor, targets: Tensor) -> Tensor:
        """See `Inner`."""
        return -(queries - targets).norm(dim=1)

    def pairs(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """See `Inner`."""
        return _Distances.apply(queries, candidates)

    def rounding(self, queries: Tensor, targets: Tensor) -> Tensor:
        """See `Inner`."""
        # The product has a rounding error of the squared distance. So the error of the distance is
        # largest for close rows.
        squares = queries.square().sum(dim=1) + targets.square().sum(dim=1)
        error = _unit(queries) * squares
        root = error.sqrt()
        return root * root / torch.maximum((queries - targets).norm(dim=1), root).clamp_min(1e-30)


class Manhattan(Inner):
    """Minus the sum of absolute differences. A matrix product cannot compute it."""

    distance = "manhattan"

    def paired(self, queries: Tensor, targets: Tensor) -> Tensor:
        """See `Inner`."""
        return -(queries - targets).abs().sum(dim=1)

    def pairs(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """See `Inner`."""
        return -torch.cdist(queries, candidates, p=1.0)

    def rounding(self, queries: Tensor, targets: Tensor) -> Tensor:
        """See `Inner`."""
        return _unit(queries) * (queries.abs() + targets.abs()).sum(dim=1)


class _Moduli(torch.autograd.Function):
    """Minus the sums of moduli of all pairs. Autograd would make five times as many passes."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, candidates: Tensor) -> Tensor:
        half = queries.size(1) // 2
        real = queries[:, None, :half] - candidates[:, :half]
        imaginary = queries[:, None, half:] - candidates[:, half:]
        # The smallest positive number avoids a division by zero for equal values.
        least = queries.new_tensor(torch.finfo(queries.dtype).tiny)
        moduli = torch.addcmul(least, real, real).addcmul_(imaginary, imaginary).sqrt_()
        ctx.save_for_backward(real, imaginary, moduli)
        return moduli.sum(dim=2).neg_()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        real, imaginary, moduli = ctx.saved_tensors
        slope = torch.div(gradients[0].unsqueeze(2), moduli, out=moduli).neg_()
        parts = [part.mul_(slope) for part in (real, imaginary)]
        to_queries = torch.cat([part.sum(dim=1) for part in parts], dim=1)
        return to_queries, torch.cat([part.sum(dim=0) for part in parts], dim=1).neg_()


class Modulus(Inner):
    """Minus the sum of the moduli of complex differences.

    PyTorch makes several passes over rows x candidates x width values. Blocks of rows keep them in
    the cache.
    """

    distance = "modulus"
    block_numbers = 1 << 20

    def paired(self, queries: Tensor, targets: Tensor) -> Tensor:
        """See `Inner`."""
        differences = queries - targets
        if differences.requires_grad:
            # The gradient of a modulus of zero would not be a number.
            equal = differences == 0
            differences = torch.where(equal, torch.finfo(differences.dtype).tiny, differences)
        return -torch.hypot(*differences.chunk(2, dim=1)).sum(dim=1)

    def pairs(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """See `Inner`."""
        return _Moduli.apply(queries, candidates)

    def rounding(self, queries: Tensor, targets: Tensor) -> Tensor:
        """See `Inner`."""
        least = queries.size(1) * torch.finfo(queries.dtype).tiny ** 0.5
        return _unit(queries) * (queries.abs() + targets.abs()).sum(dim=1) + least


def _unit(rows: Tensor) -> float:
    """The relative rounding error of a sum: a few rounding units of its type."""
    return 8.0 * torch.finfo(rows.dtype).eps


def fits_core(*tensors: Tensor) -> bool:
    """Whether the core can use these tensors: float32, on the CPU, contiguous."""
    return all(
        tensor.dtype == torch.float32
        and tensor.device.type == "cpu"
        and tensor.is_contiguous()
        and not tensor.requires_grad
        for tensor in tensors
    )


def fuses(similarity: Inner, loss: Loss, rows: Tensor) -> bool:
    """Whether the GPU kernels can compute this loss, without a matrix of scores in memory."""
    return (
        rows.is_cuda
        and rows.dtype == torch.float32
        and rows.size(1) <= WIDEST_FUSED
        and type(similarity) is Inner
        and isinstance(loss, SoftmaxLoss)
        and find_spec("triton") is not None
    )


def _complex_product(first: Tensor, second: Tensor, *, conjugate_second: bool) -> Tensor:
    sign = -1.0 if conjugate_second else 1.0
    real, imaginary = first.chunk(2, dim=1)
    other_real, other_imaginary = second.chunk(2, dim=1)
    return torch.cat(
        [
            torch.addcmul(real * other_real, imaginary, other_imaginary, value=-sign),
            torch.addcmul(imaginary * other_real, real, other_imaginary, value=sign),
        ],
        dim=1,
    )


def _rotated(side: Side, anchors: Tensor, angles: Tensor) -> Tensor:
    """The anchors turned by the angles of the relation: heads forward, tails back."""
    turn = torch.cat([angles.cos(), angles.sin()], dim=1)
    return _complex_product(anchors, turn, conjugate_second=side == "head")


def _exchanged(side: Side, anchors: Tensor, relations: Tensor) -> Tensor:
    """The query of SimplE: the anchor with exchanged halves, times half the relation.

    For an open tail, the halves of the relation are exchanged, too.
    """
    half = anchors.size(1) // 2
    ordered = relations.roll(half, dims=1) if side == "tail" else relations
    return anchors.roll(half, dims=1) * (ordered * 0.5)


@dataclass(frozen=True)
class QueryModel(Model):
    """A model with a query and a similarity."""

    queries: Callable[[Side, Tensor, Tensor], Tensor]
    """Computes queries [rows, width] from open side, anchors and relations."""
    similarity: Inner = field(default_factory=Inner)
    initial: Callable[[int], Start] = lambda dim: Start(1e-3)
    """The default distribution of initial values, by dimension."""
    complex_rows: bool = False
    frees_scores = True

    @property
    def block_numbers(self) -> int:  # type: ignore[override]
        """See `Model`."""
        return self.similarity.block_numbers

    def start(self, dim: int) -> Start:
        """See `Model`."""
        return self.initial(dim)

    def pairs(self, side: Side, anchors: Tensor, relations: Tensor, candidates: Tensor) -> Tensor:
        """See `Model`."""
        return self.similarity.pairs(self.queries(side, anchors, relations), candidates)

    def paired(self, side: Side, anchors: Tensor, relations: Tensor, targets: Tensor) -> Tensor:
        """See `Model`."""
        return self.similarity.paired(self.queries(side, anchors, relations), targets)

    def scores(self, side: Side, anchors: Tensor, relations: Tensor, candidates: Tensor) -> Tensor:
        """See `Model`."""
        return self.similarity.scores(self.queries(side, anchors, relations), candidates)

    def rounding(self, side: Side, anchors: Tensor, relations: Tensor, targets: Tensor) -> Tensor:
        """See `Model`."""
        return self.similarity.rounding(self.queries(side, anchors, relations), targets)

    def gradients(self, chunk: Chunk, loss: Loss, to_candidates: Tensor) -> RowGradients:
        """See `Model`."""
        if chunk.known is not None or not fuses(self.similarity, loss, chunk.anchors):
            return super().gradients(chunk, loss, to_candidates)
        from outercore.embedding.gradients.triton_kernels import softmax_gradients

        leaves = _leaves(chunk.anchors, chunk.relations)
        with torch.enable_grad():
            queries = self.queries(chunk.side, *leaves)
        contrastive = isinstance(loss, SoftmaxLoss) and loss.contrastive
        fused = softmax_gradients(queries.detach(), chunk, to_candidates, contrastive=contrastive)
        to_anchors, to_relations = _gradients(queries, leaves, fused.queries)
        return RowGradients(fused.value, to_anchors, to_relations, fused.targets)


@dataclass(frozen=True)
class CustomModel(Model):
    """A custom score function.

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
    """See `Model`."""

    def start(self, dim: int) -> Start:
        """See `Model`."""
        return Start(0.1)

    def pairs(self, side: Side, anchors: Tensor, relations: Tensor, candidates: Tensor) -> Tensor:
        """See `Model`."""
        return self.paired(side, anchors.unsqueeze(1), relations.unsqueeze(1), candidates)

    def paired(self, side: Side, anchors: Tensor, relations: Tensor, targets: Tensor) -> Tensor:
        """See `Model`."""
        if side == "tail":
            return self.score(anchors, relations, targets)
        return self.score(targets, relations, anchors)

    def rounding(self, side: Side, anchors: Tensor, relations: Tensor, targets: Tensor) -> Tensor:
        """See `Model`. For any custom function, it is a few rounding units of the score."""
        score = self.paired(side, anchors, relations, targets)
        return _unit(score) * score.abs()


BUILT_IN = {
    # The inner product of head and tail. Relations have no influence.
    "dot": QueryModel(
        lambda side, anchors, relations: anchors,
        initial=lambda dim: Start(0.25 / math.sqrt(dim)),
    ),
    # Source: Yang et al., "Embedding entities and relations", ICLR 2015.
    "distmult": QueryModel(lambda side, anchors, relations: anchors * relations),
    # The real part of the sum of products of head, relation and conjugated tail.
    # Source: Trouillon et al., "Complex embeddings for simple link prediction", ICML 2016.
    "complex": QueryModel(
        lambda side, anchors, relations: _complex_product(
            anchors, relations, conjugate_second=side == "head"
        ),
        complex_rows=True,
    ),
    # The mean of two products: head role, relation, tail role, and the reverse. A row is the entity
    # as head, then as tail; a relation's row is the relation, then its inverse.
    # Source: Kazemi and Poole, "SimplE embedding for link prediction", NeurIPS 2018.
    "simple": QueryModel(_exchanged),
    # Minus the distance of head plus relation from tail.
    # Source: Bordes et al., "Translating embeddings", NIPS 2013.
    "transe": QueryModel(
        lambda side, anchors, relations: (
            anchors + relations if side == "tail" else anchors - relations
        ),
        Manhattan(),
        lambda dim: Start(1.0 / math.sqrt(dim)),
    ),
    # Minus the sum of moduli of head, turned by the relation's angles, minus tail. A relation's row
    # is one angle for each complex number; initial angles are uniform over the circle.
    # Source: Sun et al., "RotatE: knowledge graph embedding by relational rotation", ICLR 2019.
    "rotate": QueryModel(
        _rotated,
        Modulus(),
        lambda dim: Start(1.0 / math.sqrt(dim), relations=math.pi, uniform_relations=True),
        complex_rows=True,
    ),
}
"""The models by their names in the configuration; `transe` with the norm 1."""


def build_model(config: ModelConfig, score: ScoreFunction | None = None) -> Model:
    """The model that `config` describes; `score` is the function of `custom`.

    Errors: `InvalidError` for `custom` without a function, or a function for another model.
    """
    if (score is not None) != (config.kind == "custom"):
        what = "no score function" if score is None else "a score function of one's own"
        raise InvalidError(f"model `{config.kind}`: found {what}\nhint: {GIVE_SCORE}")
    if score is not None:
        return CustomModel(score)
    model = BUILT_IN[config.kind]
    return replace(model, similarity=Euclidean()) if config.similarity == "euclidean" else model
