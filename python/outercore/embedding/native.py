"""The core's arithmetic on the memory of tensors: what PyTorch has no fast kernel for on a CPU.

Every function here has a twin in PyTorch, which serves other devices and precisions, and says what
the result is. Bits do not depend on the number of threads.
"""

from __future__ import annotations

import torch
from torch import Tensor

from outercore import _core
from outercore.embedding.losses import (
    LogisticLoss,
    Loss,
    LossGradients,
    MarginLoss,
    SelfAdversarialLoss,
    SoftmaxLoss,
)

LossOptions = tuple[str, float, float]
"""Name, margin and temperature."""


def fits(*tensors: Tensor) -> bool:
    """Whether the core can work on these: float32, in this machine's memory, without gaps."""
    return all(
        tensor.dtype == torch.float32
        and tensor.device.type == "cpu"
        and tensor.is_contiguous()
        and not tensor.requires_grad
        for tensor in tensors
    )


def loss_options(loss: Loss) -> LossOptions | None:
    """The loss as the core knows it; `None` for one of the user's own."""
    match loss:
        case SoftmaxLoss(contrastive):
            return ("contrastive" if contrastive else "softmax", 0.0, 1.0)
        case LogisticLoss(margin):
            return ("logistic", margin, 1.0)
        case MarginLoss(margin):
            return ("margin", margin, 1.0)
        case SelfAdversarialLoss(margin, temperature):
            return ("self-adversarial", margin, temperature)
    return None


def loss_gradients(
    options: LossOptions, positives: Tensor, scores: Tensor, weights: Tensor
) -> LossGradients:
    """`Loss.gradients`, in the memory of `scores`."""
    to_positives = torch.empty_like(positives)
    value = _core.kernel_loss_rows(
        options,
        positives.numpy(),
        weights.numpy(),
        scores.numpy(),
        to_positives.numpy(),
        torch.get_num_threads(),
    )
    return LossGradients(positives.new_tensor(value), to_positives, scores)


def distance_gradients(
    distance: str,
    options: LossOptions,
    queries: Tensor,
    candidates: Tensor,
    positives: Tensor,
    weights: Tensor,
    masked: tuple[Tensor, Tensor] | None,
    bias: Tensor | None,
    to_candidates: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of queries against candidates by distance; gradients of queries and positives.

    That of the candidates is added to `to_candidates`.
    """
    to_queries, to_positives = torch.empty_like(queries), torch.empty_like(positives)
    value = _core.kernel_distance_gradients(
        distance,
        options,
        queries.numpy(),
        candidates.numpy(),
        positives.numpy(),
        weights.numpy(),
        None
        if masked is None
        else (masked[0].contiguous().numpy(), masked[1].contiguous().numpy()),
        None if bias is None else bias.numpy(),
        to_queries.numpy(),
        to_positives.numpy(),
        to_candidates.numpy(),
        torch.get_num_threads(),
    )
    return positives.new_tensor(value), to_queries, to_positives


def distance_scores(distance: str, queries: Tensor, candidates: Tensor, out: Tensor) -> None:
    """Minus the distances of all pairs."""
    _core.kernel_distance_scores(
        distance, queries.numpy(), candidates.numpy(), out.numpy(), torch.get_num_threads()
    )


def gather_rows(table: Tensor, rows: Tensor) -> Tensor:
    """Copies of rows of a table."""
    if not (table.size(1) and fits(table)):
        return table.index_select(0, rows)
    out = table.new_empty(rows.numel(), table.size(1))
    _core.kernel_gather_rows(
        table.numpy(), rows.contiguous().numpy(), out.numpy(), torch.get_num_threads()
    )
    return out


def sum_rows(pieces: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Distinct rows, ascending, and the sums of their gradients, in the order of the pieces."""
    rows, sums = _core.kernel_sum_rows(
        [(rows.contiguous().numpy(), gradients.numpy()) for rows, gradients in pieces],
        torch.get_num_threads(),
    )
    return torch.from_numpy(rows), torch.from_numpy(sums)


def step_rows(
    name: str, table: Tensor, state: Tensor, rows: Tensor, gradients: Tensor, rate: float
) -> bool:
    """Moves rows of a table, ascending and each once; whether the core could do it."""
    if not fits(table, state, gradients) or not gradients.numel():
        return False
    _core.kernel_step_rows(
        name,
        table.numpy(),
        state.numpy(),
        rows.contiguous().numpy(),
        gradients.numpy(),
        rate,
        torch.get_num_threads(),
    )
    return True
