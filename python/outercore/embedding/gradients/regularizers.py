"""What a batch's rows cost by their size, with gradients written by hand."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from outercore.embedding.config import RegulariserName


class Regulariser(Protocol):
    """A sum over rows of a function of the row."""

    def __call__(
        self, rows: Tensor, weights: Tensor, strength: float, gradient: Tensor, *, pairs: bool
    ) -> Tensor:
        """The cost of the rows, each times its weight; its gradient is added to `gradient`.

        Shapes: `rows` and `gradient` [rows, width], `weights` [rows]; the result is a scalar.
        `pairs` says that a row's halves are real and imaginary parts.
        """


def n3(rows: Tensor, weights: Tensor, strength: float, gradient: Tensor, *, pairs: bool) -> Tensor:
    """The sum of cubes of absolute values, of moduli where rows are complex.

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
"""By the names of the configuration."""
