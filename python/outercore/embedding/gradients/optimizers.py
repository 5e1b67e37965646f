"""Steps on the rows of a table that a batch touched; rows that it did not touch stay as they are.

All state lies in one tensor beside the table, so that a partition of the table carries its own
state, and an interrupted run goes on exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from outercore.embedding.config import OptimiserName

_EPSILON = 1e-10


class Optimiser(Protocol):
    """A rule for steps on rows."""

    def state_width(self, width: int) -> int:
        """Numbers of state beside a row of `width`; the state starts with zeros."""

    def step(
        self, table: Tensor, state: Tensor, rows: Tensor, gradients: Tensor, rate: float
    ) -> None:
        """Moves `rows` of the table.

        Shapes: `table` [all, width], `state` [all, state width], `rows` int64 [touched],
        ascending without repetition, `gradients` [touched, width], overwritten.
        """


@dataclass(frozen=True)
class Adagrad:
    """Each value's step shrinks with the root of the sum of its squared gradients."""

    def state_width(self, width: int) -> int:
        """One number a value."""
        return width

    def step(
        self, table: Tensor, state: Tensor, rows: Tensor, gradients: Tensor, rate: float
    ) -> None:
        """See `Optimiser`."""
        sums = state.index_select(0, rows).addcmul_(gradients, gradients)
        state.index_copy_(0, rows, sums)
        moved = table.index_select(0, rows)
        moved.addcdiv_(gradients, sums.sqrt_().add_(_EPSILON), value=-rate)
        table.index_copy_(0, rows, moved)


@dataclass(frozen=True)
class RowAdagrad:
    """Adagrad with one sum a row, of the mean of its squared gradients: half the bytes."""

    def state_width(self, width: int) -> int:
        """One number a row."""
        return 1

    def step(
        self, table: Tensor, state: Tensor, rows: Tensor, gradients: Tensor, rate: float
    ) -> None:
        """See `Optimiser`."""
        mean = torch.linalg.vecdot(gradients, gradients).div_(gradients.size(1)).unsqueeze_(1)
        sums = state.index_select(0, rows).add_(mean)
        state.index_copy_(0, rows, sums)
        table.index_add_(0, rows, gradients.div_(sums.sqrt_().add_(_EPSILON)), alpha=-rate)


@dataclass(frozen=True)
class Adam:
    """Adam on the rows that are touched; a row's bias correction counts its own steps.

    Source: Kingma and Ba, "Adam", ICLR 2015.
    """

    first: float = 0.9
    second: float = 0.999
    epsilon: float = 1e-8

    def state_width(self, width: int) -> int:
        """Both moments, and the number of steps."""
        return 2 * width + 1

    def step(
        self, table: Tensor, state: Tensor, rows: Tensor, gradients: Tensor, rate: float
    ) -> None:
        """See `Optimiser`."""
        width = gradients.size(1)
        kept = state.index_select(0, rows)
        mean, square, steps = kept[:, :width], kept[:, width : 2 * width], kept[:, 2 * width :]
        steps.add_(1.0)
        mean.lerp_(gradients, 1.0 - self.first)
        square.mul_(self.second).addcmul_(gradients, gradients, value=1.0 - self.second)
        size = (square / (1.0 - self.second**steps)).sqrt_().add_(self.epsilon)
        move = mean / (1.0 - self.first**steps) / size
        state.index_copy_(0, rows, kept)
        table.index_add_(0, rows, move, alpha=-rate)


def build_optimiser(name: OptimiserName) -> Optimiser:
    """The optimiser of that name."""
    match name:
        case "adagrad":
            return Adagrad()
        case "row-adagrad":
            return RowAdagrad()
        case "adam":
            return Adam()
