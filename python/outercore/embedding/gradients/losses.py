"""Losses of a positive score against negative ones, and regularisers, with their gradients.

A loss depends only on scores. There is one row per positive, and rows are independent. If a
negative must be ignored, its score is minus infinity, and its gradient is zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import softplus

from outercore.embedding.config import LossConfig, RegulariserName


class LossGradients(NamedTuple):
    """The loss and its derivatives with respect to the scores."""

    value: Tensor
    """The sum over the rows, a scalar."""
    positives: Tensor
    """[rows]"""
    negatives: Tensor
    """[rows, negatives]"""


class Loss(Protocol):
    """A sum over rows of a function of the row's scores."""

    def gradients(self, positives: Tensor, negatives: Tensor, weights: Tensor) -> LossGradients:
        """The loss and its gradients, each row times its weight.

        Shapes: `positives` and `weights` [rows]; `negatives` [rows, negatives], overwritten.
        """


@dataclass(frozen=True)
class SoftmaxLoss:
    """Cross entropy: minus the log of the softmax of the positive among all scores of its row.

    With `contrastive`, the sum of the softmax does not include the positive, as in equation 1 of
    the Legend paper. This loss is not bounded from below, so training increases the scores of
    positives without end.
    """

    contrastive: bool = False

    def gradients(self, positives: Tensor, negatives: Tensor, weights: Tensor) -> LossGradients:
        """See `Loss`."""
        largest = negatives.amax(dim=1)
        shares = torch.softmax(negatives, dim=1)
        # The largest share is 1 / sum(exp(score - largest)). So it gives the log of the sum
        # without a second pass of exponentials, and it cannot underflow.
        log_sum = largest - shares.amax(dim=1).log()
        empty = largest.isneginf()
        if bool(empty.any()):
            log_sum[empty] = -torch.inf
            shares[empty] = 0.0
        if self.contrastive:
            counted = weights.masked_fill(empty, 0.0)
            value = torch.where(empty, 0.0, counted * (log_sum - positives)).sum()
            return LossGradients(value, -counted, shares.mul_(counted.unsqueeze(1)))
        total = torch.logaddexp(log_sum, positives)
        value = torch.dot(weights, total - positives)
        share = torch.exp(positives - total)
        shares.mul_((weights * torch.exp(log_sum - total)).unsqueeze(1))
        return LossGradients(value, weights * (share - 1.0), shares)


@dataclass(frozen=True)
class LogisticLoss:
    """Binary cross entropy of the positive, plus the mean over its negatives.

    It adds `margin` to every score first. A score by distance is never positive, so without a
    margin every triple would count as false.
    """

    margin: float = 0.0

    def gradients(self, positives: Tensor, negatives: Tensor, weights: Tensor) -> LossGradients:
        """See `Loss`."""
        above = positives + self.margin
        below = negatives + self.margin
        share = weights / negatives.size(1)
        value = torch.dot(weights, softplus(-above)) + torch.dot(share, softplus(below).sum(dim=1))
        gradient = torch.sigmoid(below, out=negatives).mul_(share.unsqueeze(1))
        return LossGradients(value, -weights * torch.sigmoid(-above), gradient)


@dataclass(frozen=True)
class MarginLoss:
    """Margin loss: the mean of max(0, negative score - positive score + `margin`)."""

    margin: float = 1.0

    def gradients(self, positives: Tensor, negatives: Tensor, weights: Tensor) -> LossGradients:
        """See `Loss`."""
        missing = (negatives - (positives - self.margin).unsqueeze(1)).clamp_(min=0.0)
        share = weights / negatives.size(1)
        value = torch.dot(share, missing.sum(dim=1))
        violated = torch.sign(missing, out=negatives).mul_(share.unsqueeze(1))
        return LossGradients(value, -violated.sum(dim=1), violated)


@dataclass(frozen=True)
class SelfAdversarialLoss:
    """Logistic loss with negatives weighted by a softmax over their scores.

    The softmax is a constant weight: gradients do not flow through it.

    Source: Sun et al., "RotatE", ICLR 2019, equation 6.
    """

    margin: float = 9.0
    temperature: float = 1.0

    def gradients(self, positives: Tensor, negatives: Tensor, weights: Tensor) -> LossGradients:
        """See `Loss`."""
        above = positives + self.margin
        half = weights / 2.0
        empty = negatives.amax(dim=1).isneginf()
        steep = negatives.mul(self.temperature)
        if self.temperature == 0.0:
            # Minus infinity times 0 is NaN, so masked negatives need an explicit zero.
            steep.nan_to_num_(nan=-torch.inf)
        shares = torch.softmax(steep, dim=1).nan_to_num_(nan=0.0)
        below = negatives.add_(self.margin)
        costs = softplus(below).mul_(shares).sum(dim=1).masked_fill_(empty, 0.0)
        value = torch.dot(half, softplus(-above) + costs)
        gradient = below.sigmoid_().mul_(shares).mul_(half.unsqueeze(1))
        return LossGradients(value, -half * torch.sigmoid(-above), gradient)


def build_loss(config: LossConfig) -> Loss:
    """The loss that `config` describes."""
    match config.kind:
        case "softmax":
            return SoftmaxLoss()
        case "contrastive":
            return SoftmaxLoss(contrastive=True)
        case "logistic":
            return LogisticLoss(config.margin)
        case "margin":
            return MarginLoss(config.ahead)
        case "self-adversarial":
            return SelfAdversarialLoss(config.margin, config.temperature)


class Regulariser(Protocol):
    """A sum over rows of a function of the row."""

    def __call__(
        self, rows: Tensor, weights: Tensor, strength: float, gradient: Tensor, *, pairs: bool
    ) -> Tensor:
        """The cost of the rows, each times its weight, times `strength`. Adds to `gradient`.

        `pairs`: whether the halves of a row are real and imaginary parts.

        Shapes: `rows` and `gradient` [rows, width], `weights` [rows]; the result is a scalar.
        """


def n3(rows: Tensor, weights: Tensor, strength: float, gradient: Tensor, *, pairs: bool) -> Tensor:
    """The sum of cubes of absolute values; for complex rows, of moduli.

    Source: Lacroix et al., "Canonical tensor decomposition", ICML 2018.
    """
    scale = (weights * strength).unsqueeze(1)
    if not pairs:
        size = rows.abs()
        gradient.addcmul_(size * rows, scale, value=3.0)
        return (size.pow_(3) * scale).sum()
    real, imaginary = rows.chunk(2, dim=1)
    squares = (real * real).addcmul_(imaginary, imaginary)
    size = squares.sqrt()
    cost = (squares.mul_(size) * scale).sum()
    size.mul_(scale)
    to_real, to_imaginary = gradient.chunk(2, dim=1)
    to_real.addcmul_(real, size, value=3.0)
    to_imaginary.addcmul_(imaginary, size, value=3.0)
    return cost


def l2(rows: Tensor, weights: Tensor, strength: float, gradient: Tensor, *, pairs: bool) -> Tensor:
    """The sum of squares."""
    scale = weights * strength
    gradient.addcmul_(rows, scale.unsqueeze(1), value=2.0)
    return torch.dot(scale, torch.linalg.vecdot(rows, rows))


REGULARISERS: dict[RegulariserName, Regulariser] = {"n3": n3, "l2": l2}
"""Regularisers by their names in the configuration."""
