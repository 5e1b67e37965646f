"""Losses, regularisers and steps against their definitions."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

import embed_reference as reference
from outercore.embedding.config import LossConfig, LossName, OptimiserName, RegulariserName
from outercore.embedding.gradients.losses import REGULARISERS, build_loss
from outercore.embedding.gradients.optimizers import STEPS, row_adagrad
from outercore.embedding.tables.placement import state_width


@pytest.mark.parametrize("kind", get_args(LossName))
def test_a_loss_and_its_gradients_are_the_definition(kind: LossName) -> None:
    config = LossConfig(kind=kind, margin=0.4, temperature=0.7)
    for seed in range(10):
        random = torch.Generator().manual_seed(seed)
        positives = torch.randn(5, generator=random, dtype=torch.float64) * 3
        negatives = torch.randn(5, 8, generator=random, dtype=torch.float64) * 3
        negatives[torch.rand(5, 8, generator=random) < 0.3] = -torch.inf
        negatives[:, 0] = 0.25
        weights = torch.rand(5, generator=random, dtype=torch.float64)
        leaves = (positives.requires_grad_(True), negatives.requires_grad_(True))
        value = reference.loss(config, *leaves, weights)
        expected = torch.autograd.grad(value, leaves)
        found = build_loss(config).gradients(
            positives.detach(), negatives.detach().clone(), weights
        )
        torch.testing.assert_close(found.value, value.detach(), msg=f"seed {seed}")
        torch.testing.assert_close(found.positives, expected[0], msg=f"seed {seed}")
        # Through a score of minus infinity autograd gives no number where the gradient is zero.
        torch.testing.assert_close(found.negatives, expected[1].nan_to_num(0.0), msg=f"seed {seed}")


def test_equation_1_leaves_the_positive_out_of_the_sum() -> None:
    positives, negatives = torch.tensor([2.0]), torch.tensor([[1.0, 0.0]])
    sum_of_negatives = torch.tensor(1.0).exp() + 1.0
    for kind, total in (
        ("contrastive", sum_of_negatives),
        ("softmax", sum_of_negatives + torch.tensor(2.0).exp()),
    ):
        loss = build_loss(LossConfig(kind=kind))
        found = loss.gradients(positives, negatives.clone(), torch.ones(1))
        torch.testing.assert_close(found.value, total.log() - 2.0)


def test_a_margin_that_nobody_gives_is_one_ahead() -> None:
    assert build_loss(LossConfig(kind="margin")) == build_loss(LossConfig(kind="margin", margin=1))
    positives, negatives = torch.tensor([0.5]), torch.tensor([[0.0, -1.0]])
    found = build_loss(LossConfig(kind="margin")).gradients(positives, negatives, torch.ones(1))
    # Half of what the first negative is too near, and nothing for the second.
    torch.testing.assert_close(found.value, torch.tensor(0.25))


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("kind", ["n3", "l2"])
def test_a_regulariser_and_its_gradient_are_the_definition(
    kind: RegulariserName, pairs: bool
) -> None:
    random = torch.Generator().manual_seed(1)
    rows = torch.randn(6, 8, generator=random, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(6, generator=random, dtype=torch.float64)
    sizes = rows.abs()
    if pairs:
        sizes = torch.complex(*rows.chunk(2, dim=1)).abs()
    power = 3 if kind == "n3" else 2
    value = 0.3 * (weights * sizes.pow(power).sum(dim=1)).sum()
    (expected,) = torch.autograd.grad(value, rows)
    gradient = torch.ones_like(rows)
    cost = REGULARISERS[kind](rows.detach(), weights, 0.3, gradient, pairs=pairs)
    torch.testing.assert_close(cost, value.detach())
    torch.testing.assert_close(gradient - 1.0, expected)


def _steps(optimiser: OptimiserName, *, dense: bool) -> torch.Tensor:
    """Five steps on some rows of a table, as rows or as the whole table."""
    random = torch.Generator().manual_seed(2)
    table = torch.randn(7, 4, generator=random, dtype=torch.float64)
    state = torch.zeros(7, state_width(optimiser, 4), dtype=torch.float64)
    for _ in range(5):
        if dense:
            gradients = torch.randn(7, 4, generator=random, dtype=torch.float64)
            STEPS[optimiser](table, state, torch.arange(7), gradients, 0.1)
        else:
            gradients = torch.randn(7, 4, generator=random, dtype=torch.float64)
            half = torch.randperm(7, generator=torch.Generator().manual_seed(0))
            for rows in (half[:3].sort().values, half[3:].sort().values):
                STEPS[optimiser](table, state, rows, gradients[rows], 0.1)
    return table


@pytest.mark.parametrize("optimiser", ["adagrad", "row-adagrad", "adam"])
def test_steps_on_rows_are_steps_on_the_whole_table(optimiser: OptimiserName) -> None:
    torch.testing.assert_close(_steps(optimiser, dense=False), _steps(optimiser, dense=True))


@pytest.mark.parametrize(
    ("optimiser", "kind"),
    [("adagrad", torch.optim.Adagrad), ("adam", torch.optim.Adam)],
)
def test_steps_are_those_of_pytorch(
    optimiser: OptimiserName, kind: type[torch.optim.Optimizer]
) -> None:
    random = torch.Generator().manual_seed(2)
    table = torch.randn(7, 4, generator=random, dtype=torch.float64, requires_grad=True)
    theirs = kind([table], lr=0.1)  # type: ignore[call-arg]
    for _ in range(5):
        table.grad = torch.randn(7, 4, generator=random, dtype=torch.float64)
        theirs.step()
    torch.testing.assert_close(_steps(optimiser, dense=True), table.detach())


def test_row_adagrad_keeps_one_number_a_row() -> None:
    table, state = torch.zeros(3, 2), torch.zeros(3, 1)
    row_adagrad(table, state, torch.tensor([1]), torch.tensor([[3.0, 1.0]]), 1.0)
    torch.testing.assert_close(state, torch.tensor([[0.0], [5.0], [0.0]]))
    torch.testing.assert_close(table[1], torch.tensor([-3.0, -1.0]) / 5.0**0.5)
    assert table[[0, 2]].tolist() == [[0.0, 0.0], [0.0, 0.0]]
