"""Optimiser steps on the rows of a table that a batch uses. Other rows do not change.

The state of an optimiser is one tensor, with a row for each row of the table. So a partition
contains its state, and an interrupted run continues exactly. The state starts with zeros;
`state_width` in `tables/placement.py` gives its width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from outercore.embedding.config import OptimiserName

Step = Callable[[Tensor, Tensor, Tensor, Tensor, float], None]
"""Makes a step on rows, from (table, state, rows, gradients, learning rate).

Shapes: `table` [all, width], `state` [all, state width], `rows` int64 [touched], ascending without
repetition, `gradients` [touched, width], overwritten.
"""
_EPSILON = 1e-10
_ADAM_FIRST, _ADAM_SECOND, _ADAM_EPSILON = 0.9, 0.999, 1e-8


def adagrad(table: Tensor, state: Tensor, rows: Tensor, gradients: Tensor, rate: float) -> None:
    """Adagrad: divides the step of a value by the root of the sum of its squared gradients.

    State: one number per value.
    """
    sums = state.index_select(0, rows).addcmul_(gradients, gradients)
    state.index_copy_(0, rows, sums)
    moved = table.index_select(0, rows)
    moved.addcdiv_(gradients, sums.sqrt_().add_(_EPSILON), value=-rate)
    table.index_copy_(0, rows, moved)


def row_adagrad(table: Tensor, state: Tensor, rows: Tensor, gradients: Tensor, rate: float) -> None:
    """Adagrad with one sum per row: the mean of its squared gradients. It needs half the bytes.

    State: one number per row.
    """
    mean = torch.linalg.vecdot(gradients, gradients).div_(gradients.size(1)).unsqueeze_(1)
    sums = state.index_select(0, rows).add_(mean)
    state.index_copy_(0, rows, sums)
    table.index_add_(0, rows, gradients.div_(sums.sqrt_().add_(_EPSILON)), alpha=-rate)


def adam(table: Tensor, state: Tensor, rows: Tensor, gradients: Tensor, rate: float) -> None:
    """Adam on the touched rows. The bias correction of a row uses the number of this row's steps.

    State: two moments per value, and the number of steps per row.
    Source: Kingma and Ba, "Adam", ICLR 2015.
    """
    width = gradients.size(1)
    kept = state.index_select(0, rows)
    mean, square, steps = kept[:, :width], kept[:, width : 2 * width], kept[:, 2 * width :]
    steps.add_(1.0)
    mean.lerp_(gradients, 1.0 - _ADAM_FIRST)
    square.mul_(_ADAM_SECOND).addcmul_(gradients, gradients, value=1.0 - _ADAM_SECOND)
    size = (square / (1.0 - _ADAM_SECOND**steps)).sqrt_().add_(_ADAM_EPSILON)
    move = mean / (1.0 - _ADAM_FIRST**steps) / size
    state.index_copy_(0, rows, kept)
    table.index_add_(0, rows, move, alpha=-rate)


STEPS: dict[OptimiserName, Step] = {"adagrad": adagrad, "row-adagrad": row_adagrad, "adam": adam}
"""Optimisers by their names in the configuration."""
