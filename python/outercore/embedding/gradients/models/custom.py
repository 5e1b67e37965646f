"""Score functions of one's own, with gradients by autograd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from outercore.embedding.gradients.kernels import Chunk, Side, Workspace
from outercore.embedding.gradients.losses import Loss
from outercore.embedding.gradients.models.base import RowGradients, Start

ScoreFunction = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class CustomModel:
    """A score function of one's own, with gradients by autograd.

    `score(heads, relations, tails)` takes tensors whose last extent is the row and whose others
    broadcast, and returns their scores without that extent.

    Example:
        >>> def score(heads, relations, tails):
        ...     return (heads * relations.tanh() * tails).sum(-1)
        >>> model = CustomModel(score)
    """

    score: ScoreFunction
    complex_rows: bool = False
    block_numbers: int = 1 << 21
    """Rows x candidates x width that are computed at once."""

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
        """See `Model`. Of a function that is not known, a few units of the score."""
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
        # Scores are computed again, block by block: autograd keeps all that a block made of its
        # rows x candidates x width numbers until its gradients are there.
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
    """Of the leaves; nought for one that the scores do not depend on."""
    found = torch.autograd.grad(scores, leaves, to_scores, allow_unused=True)
    return [
        torch.zeros_like(leaf) if gradient is None else gradient.clone()
        for leaf, gradient in zip(leaves, found, strict=True)
    ]
